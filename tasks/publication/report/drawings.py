"""What a drawing may consist of: shapes, numbers and the names of its axes, and nothing else.

Drawings are not derived again by those who verify a page, so they must not be a place to hide
anything: no script, no link, no other element, attribute or word than these charts have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from tasks.pages.charts import HEIGHT, PADDING, ROWS, WIDTH

MOST_CHARACTERS = 4_000_000
_SVG = "{http://www.w3.org/2000/svg}"
_ELEMENTS = {f"{_SVG}{name}" for name in ("svg", "g", "path", "line", "rect", "text")}
_WIDTH = WIDTH + PADDING["left"] + PADDING["right"]
_HEIGHT = HEIGHT + PADDING["top"] + PADDING["bottom"]
_FRAME = {"width": f"{_WIDTH}", "height": f"{_HEIGHT}", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}"}
_NUMBER = r"-?[0-9.]{1,30}(e-[0-9]{1,3})?"
_COLOR = r"none|transparent|var\(--[a-z]{1,20}\)"
_ATTRIBUTES = {
    **dict.fromkeys(("x", "y", "x1", "x2", "y1", "y2", "width", "height", "opacity"), _NUMBER),
    **dict.fromkeys(("stroke-width", "stroke-miterlimit"), _NUMBER),
    **dict.fromkeys(("fill", "stroke"), _COLOR),
    "aria-hidden": "true",
    "aria-roledescription": r"(area|group|line|rect|rule|symbol|text) mark container|axis",
    "class": r"(marks|background|foreground|(mark|role)-[a-z0-9_ -]{1,60})",
    "d": r"[MLHVAZmlhvaz0-9.,e -]*",
    "display": "none",
    "font-family": "sans-serif",
    "font-size": "12px",
    "font-weight": "normal",
    "pointer-events": "none",
    "role": r"graphics-(object|symbol)",
    "stroke-dasharray": r"[0-9.,]{1,20}",
    "text-anchor": "start|middle|end",
    "transform": rf"translate\({_NUMBER},{_NUMBER}\)",
    "version": r"1\.1",
    "viewBox": r"[0-9 ]{1,30}",
}
_TICK = re.compile(r"[−-]?[0-9][0-9,.]{0,20}[µmkMGTPE]?\+?")


def is_mere_drawing(svg: str, specification: Mapping[str, Any]) -> bool:
    """Say whether a drawing has nothing in it that a drawing of this chart would not have.

    Args:
        svg: what stands in a page, from a stranger.
        specification: the chart, in Vega and with its data.
    """
    # No comment, declaration or entity of one's own: what follows sees what a browser sees.
    if len(svg) > MOST_CHARACTERS or not svg.startswith("<svg ") or "<!" in svg or "<?" in svg:
        return False
    try:
        root = ElementTree.fromstring(svg)  # noqa: S314 (without a declaration nothing expands)
    except (ElementTree.ParseError, ValueError):
        return False
    if root.tag != f"{_SVG}svg" or any(root.get(name) != value for name, value in _FRAME.items()):
        return False
    words = set(_words_of(specification))
    return all(_is_plain(element, words) for element in root.iter())


def _is_plain(element: ElementTree.Element, words: set[str]) -> bool:
    text = (element.text or "").strip()
    return (
        element.tag in _ELEMENTS
        and not (element.tail or "").strip()
        and all(
            name in _ATTRIBUTES and re.fullmatch(_ATTRIBUTES[name], value)
            for name, value in element.items()
        )
        and (
            not text
            or (element.tag == f"{_SVG}text" and (text in words or bool(_TICK.fullmatch(text))))
        )
    )


def _words_of(specification: Mapping[str, Any]) -> Iterator[str]:
    """The titles of the axes, and the labels of the rows."""
    for axis in specification["axes"]:
        yield str(axis.get("title"))
    for data in specification["data"]:
        if data["name"] == ROWS:
            yield from (row["label"] for row in data["values"])
