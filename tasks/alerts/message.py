"""What an alert says: names, what may be said of an error, links; never a value, path or text.

An alert leaves the house through other people's servers, so it may hold only what the public
folder could: which release, which stage, and where those who may know look further.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tasks.configuration.alerts import Kind
from tasks.outside import IN_WORDS, INPUT_STOPPED

_SENTENCES = {
    Kind.FAILURE: "{release} stopped in stage {stage}: {error}.",
    Kind.GATE: "{release} did not pass its checks in stage {stage}: {error}.",
    Kind.BUDGET: "Little is left of the privacy budget of population {population}.",
    Kind.MISSED: "{release} came due and is not published.",
}
_INPUT_STOPPED = f"{{release}} {IN_WORDS} in stage {{stage}}."
_COMMANDS = {
    Kind.FAILURE: "pgsr status",
    Kind.GATE: "pgsr status",
    Kind.BUDGET: "pgsr budget --population {population}",
    Kind.MISSED: "pgsr status",
}
_TEST = "This is a test of the alerts of {product}; nothing happened."


@dataclass(frozen=True)
class Alert:
    """One occasion to tell somebody.

    Attributes:
        kind: the occasion; None for a test.
        product: name of the product.
        release: name of the release, where it is about one.
        stage: where a run stopped.
        error: what may be said of what stopped it (tasks/outside.py).
        population: whose budget it is about.
        flow_run: Prefect's id of the run.
        link: its page.
    """

    kind: Kind | None
    product: str
    release: str | None = None
    stage: str | None = None
    error: str | None = None
    population: str | None = None
    flow_run: str | None = None
    link: str | None = None

    @property
    def name(self) -> str:
        """What happened, in a word."""
        return "test" if self.kind is None else str(self.kind)

    @property
    def subject(self) -> str:
        """A line for an inbox."""
        return f"[pgsr] {self.name}: {self._about()}"

    @property
    def command(self) -> str:
        """What to run to see more."""
        template = "pgsr status" if self.kind is None else _COMMANDS[self.kind]
        return template.format(population=self.population)

    @property
    def text(self) -> str:
        """The message for people."""
        template = _TEST if self.kind is None else _SENTENCES[self.kind]
        if self.error == INPUT_STOPPED:
            template = _INPUT_STOPPED
        sentence = template.format(
            product=self.product,
            release=self._about(),
            stage=self.stage or "unknown",
            error=self.error or "unknown",
            population=self.population,
        )
        page = f" Run: {self.link}" if self.link else ""
        return f"{sentence} See: {self.command}.{page}"

    def document(self) -> dict[str, str | None]:
        """The message for programs."""
        return {
            "source": "pgsr",
            "alert": self.name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "product": self.product,
            "release": self.release,
            "stage": self.stage,
            "error": self.error,
            "population": self.population,
            "flow_run": self.flow_run,
            "link": self.link,
            "command": self.command,
            "text": self.text,
        }

    def _about(self) -> str:
        return f"{self.product}/{self.release}" if self.release else self.product
