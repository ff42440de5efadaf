"""Deriving a report again: what a dishonest publisher could have put into a page is found."""

from __future__ import annotations

import base64
import html
import json
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from tasks.bundles import FolderBundle
from tasks.publication.report import verification
from tasks.publication.report.drawings import is_mere_drawing
from tasks.publication.report.page import PLAIN_FORM, REPORT_FORM
from tasks.publication.report.verification import check_report
from tests.pages.packed import release_of
from tests.tasks.test_publication_bundle import build, example_facts

META = f'<meta name="pgsr-report" content="{REPORT_FORM}">'


@pytest.fixture(scope="module")
def files(bundle: Path) -> dict[str, bytes]:
    """A real, signed bundle in memory; tables in one format, to be read quickly."""
    return {path.name: path.read_bytes() for path in bundle.iterdir()}


def page_of(files: dict[str, bytes]) -> str:
    return files["report.html"].decode()


def with_page(files: dict[str, bytes], page: str) -> dict[str, bytes]:
    return {**files, "report.html": page.encode()}


def edited(files: dict[str, bytes], before: str, after: str) -> dict[str, bytes]:
    page = page_of(files)
    assert before in page, "nothing to forge"
    return with_page(files, page.replace(before, after))


def test_the_report_of_a_real_release_follows_from_its_bundle(bundle: Path) -> None:
    outcome = check_report(FolderBundle(bundle))
    assert outcome.holds is True
    assert outcome.command is None
    assert "Every word and number" in outcome.sentence


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_either_format_of_the_tables_will_do(files: dict[str, bytes], form: str) -> None:
    assert check_report({name: files[name] for name in files if not name.endswith(form)}).holds


FORGERIES = {
    "another epsilon in words": ("ε = 1/2 (0.5)", "ε = 1/200 (0.005)", "Privacy"),
    "another epsilon in numbers": ("<td>1/2 (0.5)</td>", "<td>1/200 (0.005)</td>", "Privacy"),
    "another epsilon on top": ("<dd>0.5<small>", "<dd>0.005<small>", "What was released"),
    "another unit of privacy": ("The unit of privacy is: person", "… is: household", "Privacy"),
    "assumptions out of sight": (
        "<h3>What is taken for granted</h3>\n<ul>",
        "<h3>What is taken for granted</h3>\n<ul hidden>",
        "Privacy",
    ),
    "another noise of a level": ('<td class="number">8</td>', '<td class="number">80</td>', "tree"),
    "a check that was made up": ('<td class="pass">', '<td class="pass"></td><td>', "Checks"),
    "another digest": ("Digest of group_sizes", "Digest of something", "Provenance"),
    "a link elsewhere": ("</h1>", '</h1><a href="https://example.org/">more</a>', "its head"),
    "a hidden sentence": ("</body>", '<p class="note">ε = 0.005</p></body>', "footer"),
    "a word in an attribute": ('lang="en"', 'lang="en" title="ε = 0.005"', "its head"),
    "a style that covers the page": ("<style>", "<style>main{display:none}", "its head"),
    "another policy": ("default-src &#39;none&#39;", "default-src *", "its head"),
    "a script of its own": ("<script>", "<script>alert(1);", "embedded data or scripts"),
    "something after the end": ("</html>", "</html><p>ε = 0.005</p>", "footer"),
    "another title": ("<title>", "<title>Best ", "its head"),
    "another reading of the numbers": ('"cumulative": true', '"cumulative": false', "embedded"),
}


@pytest.mark.parametrize(("before", "after", "place"), FORGERIES.values(), ids=FORGERIES)
def test_a_page_that_says_anything_else_is_refused(
    files: dict[str, bytes], before: str, after: str, place: str
) -> None:
    outcome = check_report(edited(files, before, after))
    assert outcome.holds is False
    assert place in outcome.sentence


def test_an_assumption_left_out_is_found(files: dict[str, bytes]) -> None:
    for assumption in json.loads(files["privacy.json"])["assumptions"]:
        outcome = check_report(edited(files, f"<li>{html.escape(assumption)}</li>\n", ""))
        assert outcome.holds is False
        assert "Privacy" in outcome.sentence


def test_a_word_changed_anywhere_is_found(files: dict[str, bytes]) -> None:
    page = page_of(files)
    rng = np.random.default_rng(7)
    drawn = [(at, page.index("</svg>", at)) for at in _starts(page, "<svg xmlns")]
    for _ in range(150):
        at = int(rng.integers(len(page)))
        if any(first <= at <= last for first, last in drawn):
            continue
        forged = page[:at] + chr(ord(page[at]) ^ 1) + page[at + 1 :]
        # Of a form that is not known nothing can be said; else every letter counts.
        assert check_report(with_page(files, forged)).holds is not True


def _starts(page: str, text: str) -> list[int]:
    found, at = [], page.find(text)
    while at >= 0:
        found.append(at)
        at = page.find(text, at + 1)
    return found


def test_numbers_that_the_page_holds_are_compared(files: dict[str, bytes]) -> None:
    page = page_of(files)
    totals = json.dumps(release_of(page)["regions"]["totals"])[:-1]
    forged = page.replace(totals, totals[:-1] + str((int(totals[-1]) + 1) % 10))
    assert forged != page
    assert check_report(with_page(files, forged)).holds is False
    # Of the tables: the page is as it was, and its bundle says something else.
    others = dict(files)
    del others["group_sizes.parquet"]
    text = others["group_sizes.csv"].decode().splitlines()
    level, region, size, count = text[1].split(",")
    text[1] = f"{level},{region},{size},{int(count) + 1}"
    others["group_sizes.csv"] = ("\n".join(text) + "\n").encode()
    assert check_report(others).holds is False


def block_of(page: str) -> tuple[str, bytes]:
    start = page.index('id="block-0">') + len('id="block-0">')
    block = page[start : page.index("</script>", start)]
    return block, zlib.decompress(base64.b64decode(block), -zlib.MAX_WBITS)


def packed(content: bytes, *, level: int = 6) -> str:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(compressor.compress(content) + compressor.flush()).decode()


def test_packed_numbers_are_compared_however_they_were_compressed(files: dict[str, bytes]) -> None:
    page = page_of(files)
    block, content = block_of(page)
    other = packed(content, level=1)
    assert other != block
    assert check_report(edited(files, block, other)).holds is True
    changed = bytearray(content)
    changed[len(content) // 2] ^= 2
    bomb = packed(bytes(1 << 28), level=9)
    trailing = base64.b64encode(base64.b64decode(block) + b"more").decode()
    for forged in (packed(bytes(changed)), packed(content + b"1"), bomb, trailing, "", "~"):
        outcome = check_report(edited(files, block, forged))
        assert outcome.holds is False
        assert "block" in outcome.sentence


DRAWINGS = {
    "a script": ("</g></svg>", "<script>alert(1)</script></g></svg>"),
    "another page inside": (
        "</g></svg>",
        "<foreignObject><p>ε = 0.005</p></foreignObject></g></svg>",
    ),
    "an event": ("<g fill", '<g onload="alert(1)" fill'),
    "a link": ("</g></svg>", '<a href="https://example.org"><text>1</text></a></g></svg>'),
    "a picture": ("</g></svg>", '<image href="https://example.org/x.png"/></g></svg>'),
    "something fetched": ('fill="var(--bar)"', 'fill="url(https://example.org/#x)"'),
    "a style": ("<g fill", '<g style="position:fixed" fill'),
    "a style sheet": ("</g></svg>", "<style>main{display:none}</style></g></svg>"),
    "a comment": ("</g></svg>", "<!-- ε = 0.005 --></g></svg>"),
    "an instruction": ("</g></svg>", "<?php 1 ?></g></svg>"),
    "a sentence": (">Size of the group</text>", ">Here ε = 0.005</text>"),
    "a sentence beside": ("</g></svg>", "</g>ε is 0.005</svg>"),
    "a sentence read aloud": ("<g fill", '<g aria-label="ε is 0.005" fill'),
    "a size that covers the page": ('width="456"', 'width="4560"'),
    "broken markup": ("</g></svg>", "</svg>"),
    "html": ("</g></svg>", "<p>1</p></g></svg>"),
    "letters of its own size": ('font-size="12px"', 'font-size="90px"'),
}


@pytest.mark.parametrize(("before", "after"), DRAWINGS.values(), ids=DRAWINGS)
def test_a_drawing_is_no_place_to_hide_anything(
    files: dict[str, bytes], before: str, after: str
) -> None:
    page = page_of(files)
    first = page.index("<svg xmlns")
    at = page.index(before, first)
    assert at < page.index("</svg>", first) + 6
    forged = page[:at] + after + page[at + len(before) :]
    outcome = check_report(with_page(files, forged))
    assert outcome.holds is False
    assert "Group sizes by level" in outcome.sentence


def test_a_drawing_that_is_drawn_otherwise_is_accepted(files: dict[str, bytes]) -> None:
    page = page_of(files)
    at = page.index(' d="M', page.index("<svg xmlns")) + len(' d="M')
    assert check_report(with_page(files, f"{page[:at]}1{page[at:]}")).holds is True
    assert not is_mere_drawing("<svg " + "x" * 5_000_000, {"axes": [], "data": []})


def test_a_page_without_a_drawing_is_another_page(files: dict[str, bytes]) -> None:
    page = page_of(files)
    first = page.index("<svg xmlns")
    end = page.index("</svg>", first) + 6
    assert check_report(with_page(files, page[:first] + page[end:])).holds is False
    assert check_report(with_page(files, page[:first])).holds is False


def made_by(files: dict[str, bytes], version: str) -> dict[str, bytes]:
    package = json.loads(files["datapackage.json"])
    package["generator"] = f"pgsr {version}"
    return {**files, "datapackage.json": json.dumps(package).encode()}


@pytest.mark.parametrize("meta", ["", '<meta name="pgsr-report" content="99">'])
def test_a_page_in_another_form_is_not_compared_and_says_what_would_compare_it(
    files: dict[str, bytes], meta: str
) -> None:
    outcome = check_report(made_by(edited(files, META, meta), "9.8.7"))
    assert outcome.holds is None
    assert "another form" in outcome.sentence
    assert outcome.command == "pip install pgsr==9.8.7"


def test_a_bundle_of_this_version_has_a_page_of_this_form(files: dict[str, bytes]) -> None:
    outcome = check_report(edited(files, META, '<meta name="pgsr-report" content="99">'))
    assert outcome.holds is False
    numbered = {"wording": 2, **json.loads(files["privacy.json"])}
    without = {**edited(files, META, ""), "privacy.json": json.dumps(numbered).encode()}
    assert check_report(without).holds is False


def test_a_page_from_before_pages_had_forms_is_not_compared(tmp_path: Path) -> None:
    archive = Path(__file__).parents[1] / "fixtures" / "version-0.1.0" / "office.tar.xz"
    with tarfile.open(archive) as packed_office:
        packed_office.extractall(tmp_path, filter="data")
    found = [path.parent for path in tmp_path.rglob("datapackage.json")]
    assert found
    for folder in found:
        outcome = check_report(FolderBundle(folder))
        assert outcome.holds is None
        assert "install pgsr 0.1.0" in outcome.sentence


def test_what_a_stranger_calls_a_version_is_not_to_be_pasted(files: dict[str, bytes]) -> None:
    outcome = check_report(made_by(edited(files, META, ""), "1; rm -rf ~\x1b[2J"))
    assert outcome.holds is None
    assert outcome.command is None
    assert outcome.sentence.isprintable()
    assert "rm -rf" not in outcome.sentence


def test_a_form_that_stands_elsewhere_than_in_the_head_counts_for_nothing(
    files: dict[str, bytes],
) -> None:
    forged = made_by(edited(files, META, ""), "9.8.7")
    assert check_report(edited(forged, "<main", f"{META}<main")).holds is None
    assert check_report(edited(files, META, META * 2)).holds is False


def test_a_page_that_is_too_large_or_no_text_is_refused(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_report({**files, "report.html": b"\xff" + files["report.html"]}).holds is False
    monkeypatch.setattr(verification, "MOST_BYTES", 1000)
    assert check_report(files).holds is False


def test_a_bundle_from_which_nothing_follows_is_refused_in_one_sentence(
    files: dict[str, bytes],
) -> None:
    rng = np.random.default_rng(3)
    for name in sorted(set(files) - {"provenance.dsse.json", "report.html"}):
        without = {key: files[key] for key in files if key != name}
        if not name.endswith((".csv", ".parquet")):
            assert check_report(without).holds is False
        for content in (b"", b"{}", rng.bytes(200), files[name][: len(files[name]) // 2]):
            outcome = check_report({**files, name: content})
            # A table is read in one of its formats; that both agree is asked elsewhere.
            assert outcome.holds is False or name.endswith(".csv")
            assert outcome.sentence.isprintable()
    assert check_report({"report.html": b""}).holds is False
    assert check_report({}).holds is False


def test_another_key_than_the_one_that_signed_is_found(files: dict[str, bytes]) -> None:
    unsigned = {name: files[name] for name in files if name != "provenance.dsse.json"}
    outcome = check_report(unsigned)
    assert outcome.holds is False
    assert "Provenance" in outcome.sentence


def test_the_plain_page_is_compared_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tasks.publication.bundle.render_report", fail)
    made = build(tmp_path, example_facts(margin_repetitions=0))
    plain = {path.name: path.read_bytes() for path in made.iterdir()}
    assert f'content="{PLAIN_FORM}"' in page_of(plain)
    assert check_report(plain).holds is True
    assert check_report(edited(plain, "1/2 (0.5)", "1/200 (0.005)")).holds is False
    assert check_report(edited(plain, PLAIN_FORM, REPORT_FORM)).holds is False


def test_a_simulation_and_a_replaced_release_follow_from_their_bundles(tmp_path: Path) -> None:
    facts = example_facts(simulation=True, margin_repetitions=0, units_from_data=True)
    assert check_report(FolderBundle(build(tmp_path / "simulated", facts))).holds is True


def test_whoever_verifies_needs_neither_prefect_nor_great_expectations(bundle: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tasks.bundles import FolderBundle; "
        "from tasks.publication.report.verification import check_report; "
        "assert check_report(FolderBundle(Path(sys.argv[1]))).holds; "
        "print(sorted({'prefect', 'great_expectations', 'altair', 'vl_convert'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
