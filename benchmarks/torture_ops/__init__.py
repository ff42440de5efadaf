"""Torture of operations: real servers, workers and schedules, killed and restarted."""
