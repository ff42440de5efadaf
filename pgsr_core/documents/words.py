"""The privacy statement in words: every sentence follows from the numbers that are stated.

A sentence is never edited here once releases were published with it: a verifier derives the
words of a bundle again and compares them. Other words are another wording, see wordings.py.
"""

from __future__ import annotations

import math
from fractions import Fraction

from pgsr_core.documents.stated import SIMULATION_NOTICE, Stated
from pgsr_core.postprocessing.protocol import Query
from pgsr_core.sensitivity import Neighbours

NEIGHBOURS_IN_WORDS = {
    Neighbours.ADD_REMOVE: "one of them is the other with one record added or removed",
    Neighbours.REPLACE: "one of them is the other with one record replaced by another",
}
# By the name that the ledger keeps; nothing right of the barrier may import a sampler.
PRIVATE_SAMPLERS = {
    "opendp": "the discrete Laplace sampler of the OpenDP library, exact on integers, with "
    "randomness from the operating system",
    "fast-exact": "pgsr's compiled form of the discrete Laplace sampler of Canonne, Kamath and "
    "Steinke (2020), exact on integers, with randomness from AES-256 in counter mode under keys "
    "from the operating system",
}
SAMPLERS_IN_WORDS = {
    **PRIVATE_SAMPLERS,
    "seeded-simulation": "a seeded generator, which gives no privacy",
}
PROVISO = (
    "ε holds between neighbours with equal G, and whether the only member of a unit is in the "
    "data is not protected by it; the measurements alone are ε-differentially private without "
    "that proviso."
)


def in_words(value: Fraction) -> str:
    """Spell a fraction: ``2``, ``1/2 (0.5)``, ``1/6 (about 0.166667)``."""
    if value.denominator == 1:
        return str(value)
    decimal = f"{float(value):.6g}"
    about = "" if Fraction(decimal) == value else "about "
    return f"{value} ({about}{decimal})"


def sensitivity_formula(facts: Stated) -> str:
    """Say where the sensitivity comes from."""
    factor = "" if facts.neighbours == Neighbours.ADD_REMOVE else "2 · "
    if facts.query == Query.COUNTS:
        return f"{factor}{min(2, len(facts.sizes))} = {facts.sensitivity}"
    contribution, size = facts.largest_contribution, facts.largest_size
    return f"{factor}min(Z, N) = {factor}min({contribution}, {size}) = {facts.sensitivity}"


def invariants(facts: Stated) -> tuple[str, ...]:
    """List what is public or kept exactly, and therefore not protected."""
    tree = "the region tree"
    sizes = (
        f"the set of sizes, {facts.smallest_size} to {facts.largest_size} "
        f"(larger groups count as {facts.largest_size})"
    )
    if facts.units_from_data:
        return (
            tree,
            sizes,
            f"the number of groups in all, G = {facts.groups}, taken from the data",
        )
    return (
        tree,
        sizes,
        "the public table of units, and hence the number of groups in each region "
        f"(G = {facts.groups} in all)",
    )


def assumptions(facts: Stated) -> tuple[str, ...]:
    """List what the guarantee takes for granted about the data."""
    found = (
        "The number of groups in all is the same in both of two neighbours (see the proviso)."
        if facts.units_from_data
        else "The public table of units was made without looking at the records."
    )
    return (
        "Each record belongs to one unit of privacy, which has no other record; it adds a whole "
        f"number from 0 to Z = {facts.largest_contribution} to the size of exactly one group.",
        "Each group lies in exactly one region without further division.",
        found,
        "Input that breaks these rules stops a run before anything is measured; that a run may "
        "stop on malformed input is outside the guarantee.",
    )


def not_protected(facts: Stated) -> tuple[str, ...]:
    """List what the guarantee does not cover."""
    groups = (
        "The number of groups in all, G, which was taken from the data."
        if facts.units_from_data
        else "The number of groups in each region, which is public."
    )
    return (groups, "Timing: when a run started, how long it took and when it was published.")


def assumptions_on_inputs(facts: Stated) -> tuple[str, ...]:
    """List the same since the second wording: what an input is, and what stops a run."""
    if facts.units_from_data:
        regions = (
            "Each group lies in exactly one region without further division, which is the same "
            "in both of two neighbours: records of one group that name different regions are not "
            "an input."
        )
        groups = (
            "The number of groups in all is the same in both of two neighbours (see the proviso)."
        )
    else:
        regions = (
            "Each record names a group of the public table of units, and the region without "
            "further division in which that table has it."
        )
        groups = "The public table of units was made without looking at the records."
    return (
        "An input is a table of records that keeps these rules; no records at all are one. "
        "Neighbours are taken among inputs.",
        "Each record belongs to one unit of privacy, which has no other record; it adds a whole "
        f"number from 0 to Z = {facts.largest_contribution} to the size of exactly one group.",
        regions,
        groups,
        "A table that is not an input, or that is too large for the machine, stops a run before "
        "anything is measured. Whether, when and how often a run stopped depends on the data, "
        "and is outside the guarantee.",
    )


def not_protected_with_stops(facts: Stated) -> tuple[str, ...]:
    """List the same since the second wording."""
    return (
        *not_protected(facts),
        "Runs that stopped on their input: whether, when and how often they did.",
    )


def paragraphs(facts: Stated) -> tuple[str, ...]:
    """Write the statement in plain words."""
    said = [
        _promise(facts),
        _unit(facts),
        _mechanism(facts),
        _sampler(facts),
        _split(facts),
        _post_processing(facts),
        f"Public, and hence not protected: {'; '.join(invariants(facts))}.",
    ]
    if facts.units_from_data:
        said.append(f"The number of groups comes from the data: {PROVISO}")
    said.append(_spend(facts))
    if facts.lineage.replaces is not None:
        said.append(
            f"This release replaces release {facts.lineage.replaces} of the same product, which "
            "should not be used any more."
        )
    if facts.simulation:
        said.insert(
            0,
            f"{SIMULATION_NOTICE}. This bundle was made as a simulation and carries no privacy "
            "guarantee whatever. What follows describes what a release with these settings "
            "would promise.",
        )
    return tuple(said)


def _promise(facts: Stated) -> str:
    proviso = ", with a proviso given below" if facts.units_from_data else ""
    return (
        f"This release is ε-differentially private with ε = {in_words(facts.epsilon)}{proviso}. "
        "Take any two possible inputs that are neighbours, which means that "
        f"{NEIGHBOURS_IN_WORDS[facts.neighbours]}: any outcome of the release is at most "
        f"exp(ε) times as likely under one as under the other, a factor of {privacy_factor(facts)}."
    )


def privacy_factor(facts: Stated) -> str:
    """Write exp(ε): how many times as likely an outcome may be under one of two neighbours."""
    try:
        return f"{math.exp(facts.epsilon):.4g}"
    except OverflowError:
        return "more than 1e+308"


def _spend(facts: Stated) -> str:
    included = "a simulation is not charged" if facts.simulation else "this release included"
    origin = facts.lineage.reposted_from
    if origin is not None and not facts.simulation:
        included = (
            f"the measurements included: they were made and charged for release {origin}; this "
            "release was computed from the same measurements and costs nothing further, ε = 0"
        )
    return (
        f"Of the budget of ε = {in_words(facts.budget)} that may ever be spent on the population "
        f"{facts.population}, ε = {in_words(facts.spent_on_population)} has been spent "
        f"({included})."
    )


def _unit(facts: Stated) -> str:
    return (
        f"The unit of privacy is: {facts.unit_of_privacy}. Each has one record, which adds at "
        f"most {facts.largest_contribution} to the size of exactly one group."
    )


def _mechanism(facts: Stated) -> str:
    if facts.query == Query.CUMULATIVE:
        what = f"the number of groups of size at least k, for k = 1 to {facts.largest_size},"
    else:
        what = (
            f"the number of groups of each size from {facts.smallest_size} to {facts.largest_size},"
        )
    return (
        f"In each region, {what} was measured once, with double-geometric noise: "
        "P(X = v) = (1 − a)/(1 + a) · a^|v| with a = exp(−1/scale). One record changes the "
        f"measurements of one level by at most Δ = {sensitivity_formula(facts)} in all (L1), so "
        "a scale of Δ divided by the level's ε gives the level that ε."
    )


def _sampler(facts: Stated) -> str:
    words = SAMPLERS_IN_WORDS.get(facts.sampler)
    return f"The noise was drawn by the sampler {facts.sampler}" + (f": {words}." if words else ".")


def _split(facts: Stated) -> str:
    shares = "; ".join(
        f"level {level.level}: ε = {in_words(level.epsilon)}, scale {in_words(level.scale)}"
        for level in facts.levels
    )
    return (
        "Every level of the region tree is measured, and the levels' shares of ε add up to "
        f"exactly {facts.epsilon}. {shares[0].upper()}{shares[1:]}."
    )


def _post_processing(facts: Stated) -> str:
    if facts.keeps_region_totals and not facts.units_from_data:
        total = "in every region to the region's public number of groups"
    else:
        total = f"at every level of the tree to G = {facts.groups}"
    return (
        f"The released counts were computed from the measurements and public facts alone "
        f"(mechanism {facts.mechanism}, {facts.notation}), which reveals nothing further. They "
        f"are whole and non-negative, add up along the region tree, and add up {total}."
    )
