"""Replay as a part of verification: the release follows from its measurements, or nobody looked."""

from __future__ import annotations

from collections.abc import Mapping

from pgsr_core.documents.names import CHECKS_FILE, PRIVACY_FILE
from pgsr_core.errors import PgsrError
from pgsr_core.margins import MARGINS
from pgsr_core.mechanisms import MECHANISMS
from pgsr_core.postprocessing.protocol import Fact
from pgsr_core.replay import PublishedOrigin, read_published, replay
from pgsr_core.verification.documents import Malformed, read_checks, read_privacy
from pgsr_core.verification.files import BundleFiles, BundleReader, FileProblem
from pgsr_core.verification.report import Item, NotChecked, Verification

MOST_CELLS = 10_000_000
MOST_WORK = 500_000_000
"""Cells, and cells times simulations, that are computed again without being asked: a minute or two,
and about a gigabyte."""

_WHAT = "that the released tables and margins follow from the measurements"


def with_replay(
    found: Verification,
    bundle: Mapping[str, bytes] | BundleReader,
    *,
    wanted: bool | None,
    command: str,
) -> Verification:
    """Add a replay to a verification, or the reason why there is none.

    Args:
        found: what was verified; the files of a bundle that failed are not computed with.
        bundle: the same files.
        wanted: True whatever it costs; None: where it takes no longer than a minute or two.
        command: that replays the bundle.
    """
    if not found.verified or found.provenance is None:
        return found.also(not_checked=[NotChecked(f"{_WHAT}, as the above does not hold", command)])
    mechanism = MECHANISMS[found.provenance.mechanism]
    if wanted is False:
        return found.also(not_checked=[NotChecked(_WHAT, command)])
    if mechanism.requires is not None and wanted is None:
        why = f"{_WHAT}: the exact program of {mechanism.name} may take half an hour"
        return found.also(not_checked=[NotChecked(why, command)])
    files = BundleFiles(bundle)
    try:
        cells = sum(level.cells for level in read_privacy(files.document(PRIVACY_FILE)).levels)
        checks = read_checks(files.document(CHECKS_FILE))
        work = cells * (1 + checks.margin_repetitions)
        if wanted is None and (cells > MOST_CELLS or work > MOST_WORK):
            why = f"{_WHAT}, which takes long with {cells:,} cells"
            return found.also(not_checked=[NotChecked(why, command)])
        mechanism.refuse_if_out_of_reach(cells=cells)
        published = read_published(bundle)
    except (PgsrError, Malformed, FileProblem) as error:
        return found.also(not_checked=[NotChecked(f"{_WHAT}: {error}", command)])
    return found.also(_replayed(published, checks.document["certificates"]))


def _replayed(
    published: PublishedOrigin, stated: Mapping[str, Mapping[str, Fact]]
) -> tuple[Item, ...]:
    """Compute the release again and compare tables, digests and certificates."""
    again = replay(published.origin, published.witnesses)
    differ = [step for step, proof in again.certificates.items() if not _alike(step, proof, stated)]
    sentence = (
        f"{CHECKS_FILE} has other certificates than the stages give: {', '.join(differ)}."
        if differ
        else f"The certificates in {CHECKS_FILE} are those that the stages give again."
    )
    return (
        *(Item(f"replay:{item.name}", item.passed, item.sentence) for item in again.items),
        Item("replay:certificates", not differ, sentence),
    )


def _alike(step: str, proof: Mapping[str, Fact], stated: Mapping[str, Mapping[str, Fact]]) -> bool:
    """Truths and exact numbers are the same everywhere; floating-point ones need not be."""
    if step.startswith(MARGINS):  # their certificate is how often they were simulated
        return stated[MARGINS].keys() == {"repetitions"}
    said = stated.get(step, {})
    return said.keys() == proof.keys() and all(
        said[name] == fact for name, fact in proof.items() if isinstance(fact, bool | str)
    )
