"""Drawing in a process of its own, so that a chart library that dies takes nothing with it.

V8 ends its process when it runs out of memory, which no `except` survives. This file is also the
program of that process: specifications come in on standard input, drawings go out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

MOST_SECONDS = 300


class NotDrawn(Exception):
    """The charts could not be drawn; the sentence says how the drawing process ended."""


def draw(specifications: Sequence[Mapping[str, Any]]) -> list[str]:
    """Draw Vega specifications that hold their data, as SVG; the same ones give the same bytes.

    Raises:
        NotDrawn: the process that draws failed, died or took too long.
    """
    if not specifications:
        return []
    try:
        done = subprocess.run(  # noqa: S603 (this very file, by the interpreter that runs it)
            [sys.executable, "-P", __file__],
            input=json.dumps(specifications),
            capture_output=True,
            encoding="utf-8",
            timeout=MOST_SECONDS,
            check=True,
            # A Ctrl-C is for those who can tell it from a crash.
            start_new_session=True,
        )
        drawn = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        raise NotDrawn(f"the drawing process ended with {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise NotDrawn(f"the drawing process took more than {MOST_SECONDS} s") from None
    except (OSError, ValueError) as error:
        raise NotDrawn(f"the drawing process gave no answer ({type(error).__name__})") from None
    if len(drawn) != len(specifications):
        raise NotDrawn("the drawing process left charts out")
    return [str(svg) for svg in drawn]


def main() -> None:
    """Draw what standard input asks for."""
    import vl_convert

    specifications = json.load(sys.stdin)
    json.dump([vl_convert.vega_to_svg(each) for each in specifications], sys.stdout)


if __name__ == "__main__":
    main()
