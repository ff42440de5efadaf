"""Whether a bundle's report says what its bundle says, to the letter.

The page is derived again from the other files and compared whole: every word and number, the
embedded data, scripts, style and links. Drawings, which depend on the library that drew them,
are not derived; they may hold nothing but shapes, numbers and the names of their axes.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from pgsr_core.attestation.dsse import claimed_keyid
from pgsr_core.attestation.provenance import PROVENANCE_FILE
from pgsr_core.documents.names import PRIVACY_FILE
from pgsr_core.verification.documents import Malformed, read_privacy
from pgsr_core.verification.files import BundleFiles, BundleReader, FileProblem
from pgsr_core.verification.report import Item, NotChecked, Verification
from pgsr_core.verification.tables import TableProblem
from tasks.publication.documents import REPORT
from tasks.publication.report.drawings import is_mere_drawing
from tasks.publication.report.outline import Kind, Opening, Outline
from tasks.publication.report.page import (
    PLAIN_FORM,
    REPORT_FORM,
    SECTIONS,
    outline_plain_report,
    outline_report,
)
from tasks.publication.report.published import read_facts, read_tables

MOST_BYTES = 64 * 1024 * 1024
_HEAD = 8_192
_FORM = re.compile(r'<meta name="pgsr-report" content="([0-9a-z.-]{1,20})">')
_VERSION = re.compile(r"[0-9][0-9a-z.+]{0,30}")
_HEADING = re.compile(r'<h2 id="([a-z]+)">')
_ENDS = {Kind.DRAWING: "</svg>", Kind.BLOCK: "</script>"}


@dataclass(frozen=True)
class ReportOutcome:
    """What came of it.

    Attributes:
        holds: None where the report was not compared.
        sentence: for people.
        command: that would lead to an answer, where it was not compared.
    """

    holds: bool | None
    sentence: str
    command: str | None = None


class _Different(Exception):
    """A page is not the derived one; the sentence says where."""


def with_report(found: Verification, bundle: Mapping[str, bytes] | BundleReader) -> Verification:
    """Add the report's check to a verification, or the reason why there is none.

    Args:
        found: what was verified; the report of a bundle that failed is not looked into.
        bundle: the same files.
    """
    if not found.verified:
        what = f"that {REPORT} says what the bundle says, as the above does not hold"
        return found.also(not_checked=[NotChecked(what)])
    outcome = check_report(bundle)
    if outcome.holds is None:
        what = f"that {REPORT} says what the bundle says: {outcome.sentence.rstrip('.')}"
        return found.also(not_checked=[NotChecked(what, outcome.command)])
    return found.also([Item("report", outcome.holds, outcome.sentence)])


def check_report(bundle: Mapping[str, bytes] | BundleReader) -> ReportOutcome:
    """Derive the report of a bundle again and compare.

    Reads nothing but the bundle, and runs nothing of it. Whether its documents are true is
    another question: see pgsr_core.verification.
    """
    files = BundleFiles(bundle)
    try:
        page = _page(files)
        form = _FORM.search(page, 0, _HEAD)
        if form is None or form[1] not in {REPORT_FORM, PLAIN_FORM}:
            return _in_another_form(files, None if form is None else form[1])
        _compare(page, _derived(files, plain=form[1] == PLAIN_FORM))
    except _Different as difference:
        return ReportOutcome(False, f"{REPORT} does not say what the bundle says: {difference}.")
    except (Malformed, FileProblem, TableProblem) as problem:
        return ReportOutcome(False, f"{REPORT} cannot be derived from the bundle: {problem}.")
    except MemoryError:
        return ReportOutcome(None, "The tables do not fit into this machine's memory.")
    except Exception:
        # Whatever a stranger's contradictions cause: it is not quoted, and nothing is accepted.
        return ReportOutcome(False, f"{REPORT} cannot be derived from the bundle's other files.")
    return ReportOutcome(
        True,
        f"Every word and number of {REPORT} follows from the bundle; how its charts are drawn was "
        "not compared.",
    )


def _page(files: BundleFiles) -> str:
    with files.open(REPORT) as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise _Different(f"it is larger than {MOST_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise _Different("it is no text in UTF-8") from None


def _in_another_form(files: BundleFiles, form: str | None) -> ReportOutcome:
    """A page of another version cannot be derived; a bundle of this one has a page of this form."""
    made_by = read_facts(files).facts.code_version
    if made_by == version("pgsr") and (form is not None or _says_its_wording(files)):
        raise _Different("its form is not the one of the version that the bundle names")
    known = _VERSION.fullmatch(made_by) is not None
    install = f"pgsr {made_by}" if known else "the version of pgsr that made the bundle"
    return ReportOutcome(
        None,
        "It is in another form than this version of pgsr writes. To compare it, install "
        f"{install}, as it was when the release was published.",
        f"pip install pgsr=={made_by}" if known and made_by != version("pgsr") else None,
    )


def _says_its_wording(files: BundleFiles) -> bool:
    """Say whether its words are numbered: such a bundle is no older than the forms of pages."""
    return "wording" in read_privacy(files.document(PRIVACY_FILE)).document


def _derived(files: BundleFiles, *, plain: bool) -> Outline:
    published = read_facts(files)
    facts = published.facts
    signed = PROVENANCE_FILE in files.names
    keyid = claimed_keyid(files.document(PROVENANCE_FILE)) if signed else None
    if plain:
        return outline_plain_report(facts, formats=published.formats, keyid=keyid)
    tables = read_tables(files, facts)
    return outline_report(facts, tables, formats=published.formats, keyid=keyid)


def _compare(page: str, derived: Outline) -> None:
    """Walk through both; an open place of the derived page holds what is allowed there."""
    at = 0
    before = ""
    for part in derived.parts():
        if isinstance(part, Opening):
            end = page.find(_ENDS[part.kind], at)
            if part.kind is Kind.DRAWING:
                end += len(_ENDS[part.kind])
            if end < at or not _is_allowed(page[at:end], part, derived):
                raise _Different(f"a {part.kind} in {_place(before)}")
            at = end
        elif page.startswith(part, at):
            at += len(part)
            before += part
        else:
            raise _Different(_place(before + _common(part, page[at : at + len(part)])))
    if at != len(page):
        raise _Different("something follows its end")


def _is_allowed(text: str, opening: Opening, derived: Outline) -> bool:
    if opening.kind is Kind.DRAWING:
        return is_mere_drawing(text, derived.drawings[opening.number])
    return _has_numbers(text, derived.blocks[opening.number])


def _has_numbers(block: str, expected: str) -> bool:
    """Say whether a block holds the expected numbers, however they were compressed."""
    wanted = zlib.decompress(b64decode(expected), -zlib.MAX_WBITS)
    inflating = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = inflating.decompress(b64decode(block, validate=True), len(wanted) + 1)
    except (ValueError, zlib.error):
        return False
    whole = inflating.eof and not inflating.unused_data and not inflating.unconsumed_tail
    return found == wanted and whole


def _common(ours: str, theirs: str) -> str:
    """How far two texts are alike."""
    pairs = zip(ours, theirs, strict=False)
    alike = next((place for place, (a, b) in enumerate(pairs) if a != b), len(theirs))
    return ours[:alike]


def _place(derived: str) -> str:
    """Name the part of a page at which its derived text ends."""
    if "</main>" in derived:
        return "its footer, embedded data or scripts"
    headings = _HEADING.findall(derived)
    return f'the section "{dict(SECTIONS)[headings[-1]]}"' if headings else "its head"
