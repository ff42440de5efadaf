"""The privacy promise for readers who have never heard of it, and its numbers in a table."""

from __future__ import annotations

from tasks.publication.facts import BundleFacts
from tasks.publication.statement import (
    NEIGHBOURS_IN_WORDS,
    in_words,
    privacy_factor,
    sensitivity_formula,
)


def plain_words(facts: BundleFacts) -> tuple[str, ...]:
    """Say what the release promises, without a formula."""
    unit = facts.unit_of_privacy
    change = "is in the data or not" if facts.neighbours == "add-remove" else "says this or that"
    would = "would promise" if facts.simulation else "promises"
    said = [
        f"This release {would} that what anyone can learn from it hardly depends on whether the "
        f"record of any one {unit} {change}: no result is more than {privacy_factor(facts)} times "
        "as likely in the one case as in the other.",
        "That is achieved by adding random noise to the counts before anything else is done "
        "with them. The noise is drawn once, from a source that cannot be predicted or repeated, "
        "and nobody keeps it. What follows works on the noisy numbers and cannot undo them.",
    ]
    if facts.simulation:
        said.insert(
            0,
            "This is a simulation: its noise can be repeated by anyone who knows the seed, so "
            "it protects nobody. Do not publish it.",
        )
    return tuple(said)


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
