"""Whether a Prefect server obeys its owner only; nothing is changed there."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

SERVER_SECONDS = 5.0
# Reserved for examples: nobody's pages.
FOREIGN = "https://foreign.example"


class NoAnswer(Exception):
    """The server did not answer at all, or its address is none of the web."""


def what_is_open(address: str) -> Iterator[tuple[str, str]]:
    """What somebody without the secret, or a foreign page in a browser, may do; with the remedy.

    The address is not repeated: it may hold a password.

    Args:
        address: of the server's interface, as in PREFECT_API_URL.

    Raises:
        NoAnswer: nothing is known.
    """
    if not address.startswith(("http://", "https://")):
        raise NoAnswer
    listing = f"{address.rstrip('/')}/flow_runs/filter"
    if _ask(listing, "POST", {"Content-Type": "application/json"}, b'{"limit": 1}')[0]:
        yield (
            "the Prefect server answers without a secret: whoever reaches it decides what is run",
            "start it with PREFECT_SERVER_API_AUTH_STRING, and set PREFECT_API_AUTH_STRING for "
            "those who may ask (docs/operations.md)",
        )
    asking = {"Origin": FOREIGN, "Access-Control-Request-Method": "POST"}
    if _ask(listing, "OPTIONS", asking, None)[1] in {"*", FOREIGN}:
        yield (
            "the Prefect server answers pages of any other site",
            "start it with PREFECT_SERVER_CORS_ALLOWED_ORIGINS, the address of its own pages "
            "(docs/operations.md)",
        )


def _ask(url: str, method: str, headers: dict[str, str], body: bytes | None) -> tuple[bool, str]:
    """Whether a request was obeyed, and which origin the answer is for."""
    request = urllib.request.Request(url, method=method, headers=headers, data=body)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=SERVER_SECONDS) as answer:  # noqa: S310
            return True, answer.headers.get("Access-Control-Allow-Origin", "")
    except urllib.error.HTTPError as refused:
        return False, refused.headers.get("Access-Control-Allow-Origin", "")
    except (OSError, ValueError):
        raise NoAnswer from None
