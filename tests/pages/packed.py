"""The slow, obvious twin of the packed numbers of a page: reads them all back, one by one."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any


def unpack(block: str, columns: list[tuple[str, int]], width: int) -> dict[str, list[list[int]]]:
    """The columns of a block, row by row."""
    content = zlib.decompress(base64.b64decode(block), -zlib.MAX_WBITS)
    rows = len(content) // (width * sum(length for _, length in columns))
    found: dict[str, list[list[int]]] = {}
    start = 0
    for name, length in columns:
        cells = rows * length
        steps = [
            sum(content[start + place * cells + cell] << 8 * place for place in range(width))
            for cell in range(cells)
        ]
        start += width * cells
        found[name] = [running(steps[row * length :][:length]) for row in range(rows)]
    assert start == len(content)
    return found


def running(steps: list[int]) -> list[int]:
    value, values = 0, []
    for step in steps:
        value += -((step + 1) // 2) if step % 2 else step // 2
        values.append(value)
    return values


def release_of(page: str) -> dict[str, Any]:
    """What a page holds for its script besides the packed numbers."""
    found = re.search(r'<script type="application/json" id="release">(.*?)</script>', page)
    assert found is not None
    return dict(json.loads(found[1]))


def numbers_of(page: str) -> Iterator[dict[str, list[list[int]]]]:
    """The packed numbers of a page, block by block."""
    packed = release_of(page)["packed"]
    for block in re.findall(r'<script type="text/plain" id="block-\d+">(.*?)</script>', page):
        yield unpack(block, packed["columns"], packed["width"])
