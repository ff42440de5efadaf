"""What Prefect's pages show of a run: plan, spend and checks, as a markdown artifact."""

from __future__ import annotations

from typing import Any

from prefect.artifacts import create_markdown_artifact

from pgsr_core.budget import show
from tasks.run import RunRef


def describe_run(ref: RunRef, checks: list[dict[str, Any]]) -> None:
    """Leave a page with public facts only beside the run."""
    plan = ref.open().plan
    population = plan.configuration.population.name
    account = ref.ledger().account(population)
    levels = "\n".join(
        f"| {level.level} | {level.regions:,} | {level.cells:,} | {show(level.epsilon)} "
        f"| {show(level.scale)} | {level.expected_error:.2f} |"
        for level in plan.levels
    )
    marks = "\n".join(
        f"| {check['suite']} | {check['statement']} | {'passed' if check['passed'] else 'FAILED'} |"
        for check in checks
    )
    create_markdown_artifact(
        key="release",
        description=ref.name,
        markdown=f"""# {ref.name}

{"**NOT PRIVATE: a simulation.**" if plan.configuration.simulate else ""}
Mechanism `{plan.mechanism.name}` ({plan.mechanism.notation}), epsilon
{show(plan.configuration.privacy.epsilon)}. Population `{population}`: spent
{show(account.spent)} of {show(account.budget)}, remaining {show(account.remaining)}.

| level | regions | cells | epsilon | scale of noise | expected error of a cell |
|--:|--:|--:|--:|--:|--:|
{levels}

| suite | what holds | check |
|---|---|---|
{marks}
""",
    )
