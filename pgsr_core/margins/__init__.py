"""Margins of error of released counts, from the release itself: they cost no privacy."""

from pgsr_core.margins.tables import BOUNDS, HALF_WIDTHS, MARGINS, MARGINS_BY_LEVEL, Margins

__all__ = ["BOUNDS", "HALF_WIDTHS", "MARGINS", "MARGINS_BY_LEVEL", "Margins"]
