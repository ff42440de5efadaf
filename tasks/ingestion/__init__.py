"""Ingestion: from person rows, a region table and a unit table to counts per region and size.

Everything here stands left of the privacy barrier. Errors name the rule, the column and the
row position, never a value, and are meant for the terminal of the one who runs it.
"""
