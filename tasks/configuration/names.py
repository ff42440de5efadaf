"""Names that a new product or release cannot have, since something else stands or will stand there.

Asked when a name is chosen, not when it is read back: ledgers and plans of earlier versions may
hold any of these, and are opened as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgsr_core.attestation.withdrawal import NOTICE_SUFFIX
from tasks.configuration.dates import render
from tasks.configuration.model import ANY_DAY, Configuration

# In the public folder, and in a product's: what lists the products or the releases.
_LISTINGS = frozenset({"catalogue.json", "index.html"})
# In the confidential zone, beside the folders of the products.
_OWN_FILES = frozenset({"operator.log", "source-digest.key"})
# Windows takes these for devices, whatever comes after a dot.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def refused_names(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """The key of each name that cannot be chosen, and why."""
    names = {"product": configuration.product, "release": render(configuration.release, ANY_DAY)}
    for key, name in names.items():
        why = why_not_new(name, is_product=key == "product")
        if why is not None:
            yield key, why


def new_release(name: str) -> str:
    """Accept a name for a new release.

    Raises:
        ValueError: why it cannot have that name.
    """
    why = why_not_new(name)
    if why is not None:
        raise ValueError(why)
    return name


def why_not_new(name: str, *, is_product: bool = False) -> str | None:
    """Why nothing new can have a name; None if it can. Upper and lower case are not told apart."""
    folded = name.casefold()
    if folded.endswith(NOTICE_SUFFIX):
        return f"cannot end in {NOTICE_SUFFIX}: a notice of withdrawal would stand there"
    if folded in _LISTINGS or (is_product and folded in _OWN_FILES):
        return "is the name of a file that has its place there"
    if name.endswith(".") or _DEVICES.fullmatch(folded):
        return "cannot be the name of a folder on Windows, where the bundle may be copied to"
    return None
