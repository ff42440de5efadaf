"""A page without its drawings: everything that it says, and where each drawing belongs.

What a page says follows from the release alone, so that anyone can derive it again; how a chart
is drawn also depends on the library that draws it, and how numbers are packed on the one that
packs them. Hence these are left open to the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tasks.pages.charts import Row
from tasks.pages.drawing import draw
from tasks.publication.report.charts import Chart

if TYPE_CHECKING:
    from markupsafe import Markup

# Whatever comes into a page is escaped, so these can only have been put there by a canvas.
_OPEN = re.compile(r"<!--open (drawing|block) (\d+)-->")


class Kind(StrEnum):
    """What is filled in later."""

    DRAWING = "drawing"
    BLOCK = "block"


@dataclass(frozen=True)
class Opening:
    """A place that is filled in later: the drawing or block of that number."""

    kind: Kind
    number: int


@dataclass(frozen=True)
class Outline:
    """A page with open places.

    Attributes:
        text: the page.
        drawings: the charts that belong into it, in Vega and with their data.
        blocks: packed numbers (see packing.py).
    """

    text: str
    drawings: tuple[dict[str, Any], ...] = ()
    blocks: tuple[str, ...] = ()

    def parts(self) -> list[str | Opening]:
        """The page in order: text, an open place, text, and so on; it begins and ends with text."""
        cut = _OPEN.split(self.text)
        found: list[str | Opening] = [cut[0]]
        for kind, number, text in zip(cut[1::3], cut[2::3], cut[3::3], strict=True):
            found += [Opening(Kind(kind), int(number)), text]
        return found

    def filled(self) -> str:
        """The page with its charts drawn.

        Raises:
            NotDrawn: the charts cannot be drawn.
        """
        fillings = {Kind.DRAWING: draw(self.drawings), Kind.BLOCK: self.blocks}
        return "".join(
            part if isinstance(part, str) else fillings[part.kind][part.number]
            for part in self.parts()
        )


@dataclass
class Canvas:
    """Takes note of what belongs into a page, and gives templates a place to put it."""

    drawings: list[dict[str, Any]] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)

    def place(self, chart: Chart, rows: Sequence[Row]) -> Markup:
        """Ask for a chart of these rows."""
        self.drawings.append(chart.drawn_with(rows))
        return _opening(Kind.DRAWING, len(self.drawings) - 1)

    def place_block(self, block: str) -> Markup:
        """Hold packed numbers."""
        self.blocks.append(block)
        return _opening(Kind.BLOCK, len(self.blocks) - 1)

    def outline(self, text: str) -> Outline:
        """The page that was made with these places."""
        return Outline(text, tuple(self.drawings), tuple(self.blocks))


def _opening(kind: Kind, number: int) -> Markup:
    from markupsafe import Markup

    return Markup("<!--open {} {}-->").format(kind, number)
