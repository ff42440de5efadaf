"""Once through Prefect: the published measurements are the charged draw, with the right noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.privacy_audit import products
from benchmarks.privacy_audit.distribution import NoiseRuns, chi_square, sides
from benchmarks.privacy_audit.independence import independence
from pgsr_core.noise.catalogue import ReleaseSampler
from tasks.run import RunRef


def test_the_flow_publishes_integers_with_the_noise_that_epsilon_calls_for(
    release_in_process: Callable[[Path], None], tmp_path: Path
) -> None:
    product = products.production_scale(ReleaseSampler.OPENDP)
    product.write(tmp_path)
    configuration = product.configuration(tmp_path, "r1")
    release_in_process(configuration)
    table = tmp_path / "public" / product.name / "r1" / "measurements.parquet"
    published = table.read_bytes()
    release_in_process(configuration)
    assert table.read_bytes() == published

    run = RunRef(str(tmp_path / ".pgsr"), product.name, "r1").open()
    assert [charge.epsilon for charge in run.ledger.charges("residents")] == [product.epsilon]
    measured = run.ledger.values(run.measurement())
    with duckdb.connect() as connection:
        columns = connection.sql(f"SELECT value FROM '{table}' ORDER BY level, region, size")
        assert [str(kind) for kind in columns.types] == ["BIGINT"]
        values = columns.fetchnumpy()["value"].reshape(measured.shape)
    assert np.array_equal(values, measured)

    with run.confidential() as (_, store):
        record = store.record("cumulative")
        assert record is not None
        truth = store.read(record.output, sizes=run.plan.measured_sizes)
    runs = NoiseRuns((values - truth)[None], truth, run.tree.level, product.scale())
    for test in (chi_square, sides, independence):
        verdict = test(runs)
        assert not verdict.alarm, verdict
