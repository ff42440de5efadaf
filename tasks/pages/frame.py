"""Frames for pages: a template filled in, with style and scripts inside and nothing from outside.

A page's policy names the scripts that may run by their SHA-256, so text that slipped into a page
could never run, and lets nothing be fetched: what the page needs is in the page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

STYLE = "style.css"
THEME = "theme.js"
SEARCH = "search.js"
VEGA = "vega.js"
LEAST_SHOWN = 0.01


@cache
def asset(package: str, name: str) -> str:
    """Read a style or script that is part of the software."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


def render_page(
    template: str,
    context: dict[str, Any],
    *,
    package: str,
    scripts: Sequence[str] = (),
    style: str = "",
    frames: bool = False,
) -> str:
    """Fill in a template that extends `page.html.jinja`; every value is escaped.

    Args:
        template: its name, in `templates` of the package or of this one.
        context: what it is filled in with.
        package: that holds the template.
        scripts: run in this order at the end of the page, after the one for light and dark.
        style: of this page, besides that of all pages.
        frames: whether it may show another page that stands beside it.
    """
    from markupsafe import Markup

    texts = [asset(__package__, THEME), *scripts]
    return (
        _environment(package)
        .get_template(template)
        .render(
            **context,
            policy=content_policy(texts, frames=frames),
            # Part of the software, not of the data: the only text that is not escaped.
            style=Markup(asset(__package__, STYLE) + style),  # noqa: S704
            scripts=[Markup(text) for text in texts],  # noqa: S704
        )
    )


def content_policy(scripts: Sequence[str], *, frames: bool = False) -> str:
    """What a page may do: run these very scripts, and load nothing, or only pages of its own."""
    # Vega turns the expressions of a chart into functions.
    also = " 'unsafe-eval'" if asset(__package__, VEGA) in scripts else ""
    allowed = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in scripts
    )
    beside = "frame-src 'self'; " if frames else ""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; {beside}"
        f"script-src {allowed}{also}; base-uri 'none'; form-action 'none'"
    )


@cache
def _environment(package: str) -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package), jinja2.PackageLoader(__package__)]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["thousands"] = thousands
    return environment


def thousands(number: float) -> str:
    """Write a number for a table: a whole one as it is, another with about three digits."""
    if number == int(number):
        return f"{int(number):,}"
    size = abs(number)
    decimals = 2 - sum(size >= bound for bound in (10, 100))
    return f"{number:,.{decimals}f}" if size >= LEAST_SHOWN else f"< {LEAST_SHOWN}"
