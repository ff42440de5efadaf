"""`make privacy-audit` says yes only if every bug was always caught and nothing else ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.privacy_audit import __main__ as command
from benchmarks.privacy_audit.bugs import BUGS
from benchmarks.privacy_audit.matrix import Row, Subject, idle_tests, subjects
from benchmarks.privacy_audit.rounds import TESTS
from benchmarks.privacy_audit.verdicts import ALARM, Verdict

CALM = dict.fromkeys(TESTS, Verdict(ALARM, "nowhere"))
SOUND = Subject("sound", "as it is")


def alarmed(*tests: str) -> dict[str, Verdict]:
    return {**CALM, **dict.fromkeys(tests, Verdict(ALARM / 2, "somewhere"))}


def row(subject: Subject, *rounds: dict[str, Verdict]) -> Row:
    noted = Row(subject)
    for verdicts in rounds:
        noted.note(verdicts)
    return noted


def bug(name: str = "a bug") -> Subject:
    return Subject(name, "planted", bug=name)


def everything_caught() -> list[Row]:
    return [row(SOUND, CALM, CALM), row(bug(), alarmed(*TESTS), alarmed(*TESTS))]


@pytest.mark.parametrize(
    ("rows", "exit_code"),
    [
        (everything_caught(), 0),
        ([row(SOUND, CALM, alarmed("integers")), *everything_caught()[1:]], 1),
        ([*everything_caught(), row(bug("missed"), alarmed("integers"), CALM)], 1),
        ([row(SOUND, CALM), row(bug(), alarmed("integers"))], 1),
    ],
    ids=["all is well", "false alarm", "bug missed once", "tests without power"],
)
def test_the_exit_code_says_whether_the_bar_is_met(
    rows: list[Row], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_run", lambda *_arguments, **_options: rows)
    output = tmp_path / "audit.json"
    assert command.main(["--output", str(output)]) == exit_code
    written = json.loads(output.read_text())
    assert written["holds"] is (exit_code == 0)
    assert [entry["name"] for entry in written["rows"]] == [row.subject.name for row in rows]


def test_a_test_that_catches_a_bug_only_now_and_then_has_no_power() -> None:
    rows = [row(bug(), alarmed("integers"), CALM), row(bug("b"), alarmed("independence"))]
    assert set(TESTS) - set(idle_tests(rows)) == {"independence"}


def test_the_matrix_has_a_row_for_the_sound_product_and_for_every_bug() -> None:
    names = [subject.name for subject in subjects()]
    assert [subject.bug for subject in subjects() if subject.bug] == list(BUGS)
    assert len(set(names)) == len(names)


def test_a_pattern_that_matches_nothing_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "audit.json"
    assert command.main(["--only", "no-such-*", "--output", str(output)]) == 2
    assert not output.exists()
