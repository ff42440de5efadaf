"""The privacy promise for readers who have never heard of it, and its numbers in a table."""

from __future__ import annotations

from pgsr_core.documents.words import (
    NEIGHBOURS_IN_WORDS,
    PROVISO,
    in_words,
    privacy_factor,
    sensitivity_formula,
)
from pgsr_core.sensitivity import Neighbours
from tasks.publication.facts import BundleFacts


def plain_words(facts: BundleFacts) -> tuple[str, ...]:
    """Say what the release promises, without a formula."""
    said = [_promise(facts), _how(facts)]
    if facts.simulation:
        said.insert(
            0,
            "This is a simulation: its noise can be repeated by anyone who knows the seed, so "
            "it protects nobody. Do not publish it.",
        )
    if facts.units_from_data:
        said.append(f"The number of groups was taken from the data: {PROVISO}")
    return tuple(said)


def _promise(facts: BundleFacts) -> str:
    promises = "would promise" if facts.simulation else "promises"
    added = facts.neighbours == Neighbours.ADD_REMOVE
    change = "is in the data or not" if added else "says one thing or another"
    return (
        f"This release {promises} that what anyone can learn from it hardly depends on whether the "
        f"record of any one {facts.unit_of_privacy} {change}: no result is more than "
        f"{privacy_factor(facts)} times as likely in the one case as in the other."
    )


def _how(facts: BundleFacts) -> str:
    source = (
        ""
        if facts.simulation
        else "The noise is drawn once, from a source that nobody can predict or repeat, and is "
        "not kept. "
    )
    return (
        "That is achieved by adding random noise to the counts before anything else is done with "
        f"them. {source}What follows works on the noisy numbers alone and cannot undo the noise."
    )


def privacy_numbers(facts: BundleFacts) -> tuple[tuple[str, str], ...]:
    """List the promise in numbers, each with its name."""
    spent, budget = in_words(facts.spent_on_population), in_words(facts.budget)
    return (
        ("Privacy loss ε", in_words(facts.epsilon)),
        ("Most that one record changes the odds", f"exp(ε) = {privacy_factor(facts)} times"),
        ("Unit of privacy", facts.unit_of_privacy),
        ("Neighbours", NEIGHBOURS_IN_WORDS[facts.neighbours]),
        ("Sensitivity of a level (L1)", f"Δ = {sensitivity_formula(facts)}"),
        ("Mechanism", f"{facts.mechanism} ({facts.notation})"),
        ("Noise", f"double-geometric, drawn by {facts.sampler}"),
        ("Spent on this population", f"ε = {spent} of {budget}"),
    )
