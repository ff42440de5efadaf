"""The shortest way through the product, on every supported Python: release, verify, replay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROCESS_SECONDS = 300


@pytest.mark.smoke
def test_a_population_is_made_up_released_verified_and_replayed(tmp_path: Path) -> None:
    environment = {**os.environ, "PGSR_HOME": str(tmp_path / "state")}

    def pgsr(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "flows", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"pgsr {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    pgsr("synth", "office", "--shape", "us", "--people", "5000", "--regions-by-level", "3,9")
    pgsr("release", "office/product.yaml")
    [bundle] = (tmp_path / "office" / "public").glob("*/*/")
    key = tmp_path / "installation.pub"
    key.write_text(pgsr("keys", "public", str(tmp_path / "state" / "signing.key")))
    pgsr("audit", "verify", str(bundle), "--key", str(key))
    assert "Equal:" in pgsr("audit", "replay", str(bundle))
