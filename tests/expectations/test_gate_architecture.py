"""The gates see public-safe tables and public facts only, and know nothing of orchestration."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import expectations
from expectations import frames
from tests.expectations.gate_releases import ragged_release

SOURCES = sorted(Path(expectations.__file__).parent.rglob("*.py"))
LIBRARIES = {"duckdb", "great_expectations", "numpy", "pandas", "pyarrow"}
LEFT_OF_THE_BARRIER = ("true_sizes", "true_cumulative", "confidential.duckdb", "persons")


def imported_packages(source: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            packages.add((node.module or "").split(".")[0])
    return packages


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_gates_import_neither_tasks_nor_an_orchestrator(source):
    foreign = imported_packages(source) - set(sys.stdlib_module_names) - LIBRARIES
    assert foreign <= {"expectations", "pgsr_core"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_gates_never_mention_a_confidential_table(source):
    text = source.read_text()
    assert [name for name in LEFT_OF_THE_BARRIER if name in text] == []


def test_the_queries_read_the_published_tables_and_the_public_tree_and_nothing_else():
    facts, _ = ragged_release()
    queries = [part.query for view in frames.View for part in frames.parts(view, facts)]
    read = set()
    for query in queries:
        named_within = set(re.findall(r"(\w+) AS \(", query))
        read |= set(re.findall(r"(?:FROM|JOIN|DESCRIBE)\s+([\w.]+)", query)) - named_within
    tables = {"group_sizes", "regions", "margins", "margins_by_level"}
    assert read == tables | {"temp.promised_regions", "range"}
