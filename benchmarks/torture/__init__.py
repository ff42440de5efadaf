"""Torture of the ledger and the publication: crashes, races, failing disks, forgeries, mutants."""
