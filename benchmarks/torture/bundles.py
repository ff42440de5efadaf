"""Bits flipped in a signed bundle, which a stranger verifies with the public key alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from benchmarks.torture.rows import Effort, Row, Torture
from pgsr_core.verification import verify_bundle
from tests.core.example_bundle import KEY, example


def accepts(bundle: dict[str, bytes]) -> bool:
    return verify_bundle(bundle, KEY.public).verified


def forgetful_accepts(bundle: dict[str, bytes]) -> bool:
    """The mutant: a good signature is enough, whatever the files are that it speaks of."""
    found = verify_bundle(bundle, KEY.public)
    return "signature" not in {item.name for item in found.failed}


def accepted_flips(
    bundle: dict[str, bytes], accept: Callable[[dict[str, bytes]], bool], flips: int
) -> int:
    """How many bundles with one flipped bit are accepted; every file has its share of the flips."""
    chance = random.Random(2_000)  # noqa: S311 (which bits to flip)
    names = sorted(bundle)
    accepted = 0
    for number in range(flips):
        name = names[number % len(names)]
        damaged = bytearray(bundle[name])
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        accepted += accept({**bundle, name: bytes(damaged)})
    return accepted


def run(effort: Effort) -> Iterator[Row]:
    bundle = example().signed()
    flips = effort.times(2_200, 44)
    accepted = accepted_flips(bundle, accepts, flips)
    missed = accepted_flips(bundle, forgetful_accepts, effort.times(440, 44))
    yield Row(
        "bit flips in a signed bundle",
        f"{flips:,} flips in {len(bundle)} files, {accepted} accepted",
        f"≥ {effort.times(2_000, 44):,}, 0 accepted",
        accepts(bundle) and accepted == 0,
        f"signature without the files: {missed} accepted",
        missed > 0,
    )


TORTURE = Torture("bundles", run)
