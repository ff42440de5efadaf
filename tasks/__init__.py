"""Prefect tasks and the storage, ledger and publication that they use."""
