"""Synthetic populations, as arrays; writing them to files is a task."""
