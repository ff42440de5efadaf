"""Margins in whole releases: published by default, left out on demand, and behind a gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pgsr_core.margins import Margins
from tasks.replay import replay_folder
from tasks.stages.validate import GateFailed

BUNDLE = Path("public/household-sizes/synthetic-1")


def test_margins_that_do_not_hold_their_counts_stop_publication(
    virginia: Path, release_in_process: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.stages import margins as stage

    sound = stage.margins_of

    def beside_the_counts(*arguments: object, **options: object) -> Margins:
        made = sound(*arguments, **options)  # type: ignore[arg-type]
        bounds = made.bounds.copy()
        bounds[0, 0, 0] = bounds[1, 0, 0] + 1
        return replace(made, bounds=bounds)

    monkeypatch.setattr(stage, "margins_of", beside_the_counts)
    with pytest.raises(GateFailed) as refused:
        release_in_process(virginia / "product.yaml")
    assert refused.value.failed == ("margins-hold-the-count",)
    assert not (virginia / BUNDLE).exists()


def test_a_release_may_state_no_margins_and_still_replays(
    virginia: Path, release_in_process: Callable[[Path], None]
) -> None:
    configuration = virginia / "product.yaml"
    configuration.write_text(configuration.read_text() + "margins: {repetitions: 0}\n")
    release_in_process(configuration)
    published = {path.name for path in (virginia / BUNDLE).iterdir()}
    assert "group_sizes.csv" in published
    assert not [name for name in published if name.startswith("margins")]
    assert replay_folder(virginia / BUNDLE).equal
