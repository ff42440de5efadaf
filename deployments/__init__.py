"""Schedules and product configurations for Prefect."""
