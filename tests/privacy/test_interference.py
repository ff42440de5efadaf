"""Everything published follows from the measurements: given these, neighbours look alike.

The attackers judge numbers over many runs. Here every byte of a bundle is judged, once for each
neighbour: a sampler that forgets the truth gives all of them the same measurements.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from benchmarks.privacy_audit import products
from benchmarks.privacy_audit.products import Product
from benchmarks.privacy_audit.stages import Measured, measure, post_processed
from pgsr_core.attestation.keys import PrivateKey
from pgsr_core.attestation.provenance import PROVENANCE_FILE
from pgsr_core.noise.catalogue import ReleaseSampler
from pgsr_core.noise.opendp import OpenDPSampler
from pgsr_core.noise.seeded import SeededSampler
from tasks.stages import publish as publish_stage
from tasks.stages.margins import margins
from tasks.stages.publish import publish
from tasks.stages.validate import validate
from tasks.storage.zones import write_private

KEY = PrivateKey.generate().to_pem(passphrase=None)
NEIGHBOURS = products.neighbours(ReleaseSampler.OPENDP)


@contextmanager
def measurements_without_truth() -> Iterator[None]:
    """OpenDP's place is taken by one that measures an empty table, always with the same noise."""

    def add_noise(_self, values, *, scale: Fraction, progress=None):
        seeded = SeededSampler(np.random.default_rng(8))
        return seeded.add_noise(np.zeros_like(values), scale=scale, progress=progress) + 2

    with mock.patch.object(OpenDPSampler, "add_noise", add_noise):
        yield


def bundle(product: Product, folder: Path) -> dict[str, bytes]:
    """Every file of the bundle of a product; the neighbours have one name and one date."""
    folder.mkdir()
    product = dataclasses.replace(product, name="neighbour")
    product.write(folder)
    noon = mock.Mock(now=lambda _zone: datetime(2026, 7, 1, 12, tzinfo=UTC))
    with (
        measurements_without_truth(),
        mock.patch("benchmarks.privacy_audit.stages._numbers", iter([1])),
        mock.patch.object(publish_stage, "datetime", noon),
    ):
        measured: Measured = measure(product, folder)
        table = post_processed(measured)
        ref = measured.run.ref
        uncertainty = margins.fn(ref, measured.table, table)
        checks = validate.fn(ref, table, uncertainty)
        write_private(ref.installation.signing_key, KEY)
        published = Path(publish.fn(ref, table, uncertainty, checks))
    files = {path.name: path.read_bytes() for path in published.iterdir()}
    return {**files, PROVENANCE_FILE: without_ledger_head(files[PROVENANCE_FILE])}


def without_ledger_head(envelope: bytes) -> bytes:
    """What is signed but for the head of the ledger, whose events carry times and a secret's marks.

    The head is a hash over the log; what the log holds of raw data is keyed with a secret.
    """
    statement = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    assert statement["predicate"].pop("ledger_head")
    return json.dumps(statement, sort_keys=True).encode()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return bundle(NEIGHBOURS[products.BASE], tmp_path_factory.mktemp("neighbours") / "base")


@pytest.mark.parametrize("change", products.CHANGES)
def test_with_equal_measurements_the_bundles_of_neighbours_are_equal(
    change: str, base: dict[str, bytes], tmp_path: Path
) -> None:
    other = bundle(NEIGHBOURS[change], tmp_path / "other")
    assert {"privacy.json", "checks.json", "report.html", "margins.csv", "measurements.csv"} <= set(
        other
    )
    assert [name for name in base.keys() | other.keys() if base.get(name) != other.get(name)] == []


def test_a_statement_that_says_how_many_records_there_are_is_noticed(
    base: dict[str, bytes], tmp_path: Path
) -> None:
    sound = publish_stage._bundle_facts

    def talkative(run, store, checks, digests):
        with run.confidential() as (_, confidential):
            record = confidential.record("ingest")
            counts = confidential.read(record.output, sizes=run.plan.sizes)
        records = int((counts[0] * np.arange(counts.shape[1])).sum())
        facts = sound(run, store, checks, digests)
        return dataclasses.replace(facts, unit_of_privacy=f"one of {records} persons")

    with mock.patch.object(publish_stage, "_bundle_facts", talkative):
        one, other = (
            bundle(NEIGHBOURS[change], tmp_path / str(number))
            for number, change in enumerate((products.BASE, "1 to gone"))
        )
    assert one["privacy.json"] != other["privacy.json"]
    assert one["measurements.csv"] == other["measurements.csv"] == base["measurements.csv"]
