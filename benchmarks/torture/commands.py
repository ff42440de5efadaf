"""A small office that uses the command line as it is, in processes that can be stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgsr_core.synthesis.options import Shape
from pgsr_core.synthesis.shapes import draw_population
from tasks.failpoints import STOPS, VARIABLE
from tasks.storage.places import HOME_VARIABLE
from tasks.synthesis import Product, write_population

PRODUCT, RELEASE = "household-sizes", "synthetic-1"
NAME = f"{PRODUCT}/{RELEASE}"
PEOPLE = 300
SECONDS = 900.0


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str


@dataclass(frozen=True)
class Office:
    """A folder with a population and its configuration, and a home of its own.

    Attributes:
        folder: holds `product.yaml`.
        fault: what is broken in its command line, as in `broken.FAULTS`.
    """

    folder: Path
    fault: str | None = None

    @classmethod
    def open(cls, folder: Path, *, fault: str | None = None) -> Office:
        population = draw_population(
            Shape.CUSTOM, people=PEOPLE, seed=1, fan_out=(2, 2), max_size=6
        )
        write_population(population, folder, product=Product(PRODUCT, "people", "person"))
        return cls(folder, fault)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def configuration(self) -> Path:
        return self.folder / "product.yaml"

    def start(
        self, *arguments: str, point: str | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command; at a named point it stops until it is let go."""
        module = ["flows"] if self.fault is None else ["benchmarks.torture.broken", self.fault]
        stops = {} if point is None else {VARIABLE: f"{point}{STOPS}"}
        place = {HOME_VARIABLE: str(self.home), "XDG_DATA_HOME": str(self.folder / "data")}
        said = self.folder / f"said-{time.monotonic_ns()}.txt"
        with said.open("w") as sink:
            process = subprocess.Popen(  # noqa: S603 (our own interpreter)
                [sys.executable, "-m", *module, *arguments],
                cwd=self.folder,
                env={**os.environ, **place, **stops, **environment},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
            )
        process.args = said  # where to read what it said
        return process

    def run(self, *arguments: str, **environment: str) -> Ended:
        return ended(self.start(*arguments, **environment))

    @contextmanager
    def stopped(self, point: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that stands still at a point; killed on leaving if it still does."""
        process = self.start(*arguments, point=point)
        try:
            end = time.monotonic() + SECONDS
            while process.poll() is None and state_of(process.pid) != "T":
                if time.monotonic() > end:
                    raise TimeoutError(point)
                time.sleep(0.05)
            yield process
        finally:
            process.kill()
            process.wait()

    def statements(self) -> list[dict[str, Any]]:
        """The privacy statements of all published bundles."""
        return [
            json.loads(file.read_text())
            for file in sorted((self.folder / "public").glob("*/*/privacy.json"))
        ]


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for a command."""
    process.wait(timeout=SECONDS)
    return Ended(process.returncode, Path(str(process.args)).read_text())


def state_of(process: int) -> str:
    """The state of a process, as the kernel tells it: T is stopped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
