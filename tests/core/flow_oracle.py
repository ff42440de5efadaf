"""A general minimum-cost-flow solver on the network of row totals, in a process of its own.

``python -m tests.core.flow_oracle`` reads problems as JSON from its input and writes the least
objectives: OR-tools cannot be loaded beside HiGHS, which other tests use.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

Problem = dict[str, Any]


def as_problem(tree, noisy, totals, weights) -> Problem:
    return {
        "parent": tree.parent.tolist(),
        "level": tree.level.tolist(),
        "leaf": tree.is_leaf.tolist(),
        "noisy": noisy.tolist(),
        "totals": totals.tolist(),
        "weights": list(weights),
    }


def least_objectives(problems: list[Problem]) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.core.flow_oracle"],
        input=json.dumps(problems),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[int] = json.loads(done.stdout)
    return found


def _least(problem: Problem) -> int:
    """One arc of unit capacity for each marginal cost: they grow, so units fill in order."""
    from ortools.graph.python import min_cost_flow

    noisy, totals, parent = problem["noisy"], problem["totals"], problem["parent"]
    regions, sizes = len(noisy), len(noisy[0])
    sink, flow, constant = regions * (sizes + 1), min_cost_flow.SimpleMinCostFlow(), 0
    for region in range(regions):
        weight = problem["weights"][problem["level"][region]]
        for s in range(sizes):
            n = noisy[region][s]
            constant += weight * n * n
            tail = region * (sizes + 1) + (sizes if problem["leaf"][region] else s)
            head = parent[region] * (sizes + 1) + s if region else sink
            for unit in range(totals[region]):
                flow.add_arc_with_capacity_and_unit_cost(
                    tail, head, 1, weight * (2 * (unit - n) + 1)
                )
        if problem["leaf"][region]:
            flow.set_node_supply(region * (sizes + 1) + sizes, totals[region])
    flow.set_node_supply(sink, -totals[0])
    if totals[0] == 0:
        return constant
    assert flow.solve() == flow.OPTIMAL
    return constant + flow.optimal_cost()


if __name__ == "__main__":
    json.dump([_least(problem) for problem in json.load(sys.stdin)], sys.stdout)
