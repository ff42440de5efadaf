"""Without a browser the tests that need one are skipped with a reason; in CI they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import browsing


@pytest.mark.parametrize(
    ("required", "outcome"), [(False, pytest.skip.Exception), (True, pytest.fail.Exception)]
)
def test_a_missing_browser_is_told_with_the_remedy(
    required: bool,
    outcome: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(browsing, "CHROMIUM", tmp_path / "chromium")
    monkeypatch.setattr(browsing, "REQUIRED", required)
    with pytest.raises(outcome, match="install-browser"), browsing.chromium():
        pass


def test_ci_installs_a_browser_and_requires_it() -> None:
    run = (Path(__file__).parents[2] / ".ci" / "run").read_text()
    assert run.index("\n.ci/install-browser\n") < run.index("\nmake test\n")
    assert "\nexport PGSR_BROWSER=required\n" in run
