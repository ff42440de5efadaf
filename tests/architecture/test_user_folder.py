"""No test finds or writes the state folder of the person who runs it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.storage.places import user_place

REAL = Path(pwd.getpwuid(os.geteuid()).pw_dir)
FOUND = "from tasks.storage.places import user_place; print(user_place())"


@pytest.fixture(scope="module")
def of_a_module() -> Path:
    """What a fixture finds that is made before the environment of a test is."""
    return user_place()


def test_tests_and_their_processes_have_a_user_folder_of_their_own(
    of_a_module: Path, tmp_path: Path
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", FOUND], capture_output=True, text=True, check=True
    )
    places = [user_place(), of_a_module, Path(process.stdout.strip())]
    assert user_place().is_relative_to(tmp_path.parent)
    for place in places:
        assert not place.is_relative_to(REAL / ".local")
        assert not place.is_relative_to(REAL / "Library")
