"""Ranges of sizes: a page shows each size by itself only as long as a person can tell them apart.

The ranges follow from the sizes alone, which are public, by a fixed rule; no count is looked at.
"""

from __future__ import annotations

from itertools import pairwise

Range = tuple[int, int]
LARGEST_BY_ITSELF = 2_000
"""Where the largest size is larger, sizes are shown in ranges: in charts, tables and look-ups."""
_FIRST_STARTS = (0, 1, 2, 3, 5)


def size_bins(sizes: range) -> tuple[Range, ...] | None:
    """Cut very many sizes into 0, 1, 2, 3–4, 5–9, 10–19, 20–49, 50–99, … and the largest.

    The largest stands alone because it means something else than its number: "or more".

    Returns:
        First and last size of each range; None where every size is shown by itself.
    """
    smallest, largest = sizes[0], sizes[-1]
    if largest <= LARGEST_BY_ITSELF:
        return None
    starts = list(_FIRST_STARTS)
    scale = 10
    while scale < largest:
        starts += [scale, 2 * scale, 5 * scale]
        scale *= 10
    inner = [start for start in starts if smallest < start < largest]
    starts = [smallest, *inner, largest]
    return (*((first, after - 1) for first, after in pairwise(starts)), (largest, largest))


def bin_label(bin_: Range) -> str:
    """Name a range of sizes, or a single one."""
    first, last = bin_
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"
