"""`pgsr check` shows what a split costs and gains, before anything is spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.cli.app import app
from tests.flows.commandline import edit


def checked(folder: Path, *options: str) -> None:
    app(["check", str(folder / "product.yaml"), *options], standalone_mode=False)


def test_an_optimised_split_is_shown_with_the_error_of_each_level_and_with_the_uniform_one(
    virginia: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(virginia, "--json")
    uniform = json.loads(capsys.readouterr().out)
    assert uniform["expected_error"]["split"] == uniform["expected_error"]["uniform"]
    split = "split: {optimise: {weights: [4, 2, 1, 1]}}, sampler: fast-exact"
    edit(virginia / "product.yaml", "split: uniform", split)
    checked(virginia, "--json")
    plan = json.loads(capsys.readouterr().out)
    assert (plan["sampler"], plan["neighbours"]) == ("fast-exact", "add-remove")
    assert plan["split"] == {"optimise": {"weights": ["4", "2", "1", "1"]}}
    assert plan["expected_error"]["split"] < 0.9 * plan["expected_error"]["uniform"]
    for level, even in zip(plan["levels"], uniform["levels"], strict=True):
        assert level["expected_total_error"] == level["expected_error"] * level["cells"]
        assert level["expected_total_error_if_uniform"] == even["expected_total_error"]
    checked(virginia)
    shown = capsys.readouterr().out
    assert "optimised for weights 4, 2, 1, 1: error of all levels 2,690; if uniform 3,128" in shown
    for level, even in zip(plan["levels"], uniform["levels"], strict=True):
        assert f"{level['expected_total_error']:,.0f}" in shown
        assert f"{even['expected_total_error']:,.0f}" in shown


def test_a_uniform_split_is_shown_without_anything_to_compare_it_with(
    virginia: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(virginia)
    shown = capsys.readouterr().out
    assert "error of a cell" in shown
    assert "if uniform" not in shown


def test_a_chosen_mechanism_is_explained_by_the_setting_that_was_measured(
    virginia: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(virginia / "product.yaml", "mechanism: cumulative", "mechanism: auto")
    checked(virginia, "--json")
    plan = json.loads(capsys.readouterr().out)
    assert plan["mechanism"] in {"cumulative", "direct", "global"}
    chosen, because = plan["choice"]
    assert chosen.startswith(f"{plan['mechanism']}: the best in the nearest setting measured, ")
    assert "of cumulative's there" in because
    checked(virginia)
    shown = capsys.readouterr().out
    assert f"Chosen   {chosen};" in shown
    assert because in shown
