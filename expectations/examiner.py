"""Great Expectations, kept on a short lead: in memory, silent, and answering yes or no only.

Its default results quote offending values, and its exceptions quote whatever they met. Here a
suite is validated with BOOLEAN_ONLY and of each result nothing is kept but a name and a
boolean.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations.suites import Check

if TYPE_CHECKING:
    import pandas as pd

ABOVE_EVERY_LEVEL = logging.CRITICAL + 1
ROWS = "no row left out"


@dataclass(frozen=True)
class Verdict:
    """Which expectations ran on a frame, and whether all that ran held."""

    ran: frozenset[str] = frozenset()
    held: bool = False


COULD_NOT_RUN = Verdict()


class Examiner:
    """Judges frames by suites; owns a throw-away context without stores on disk."""

    def __init__(self) -> None:
        import great_expectations as gx
        from great_expectations.data_context.types.base import (
            DataContextConfig,
            InMemoryStoreBackendDefaults,
            ProgressBarsConfig,
        )

        # The default ephemeral context would plan a documentation site in a temporary folder.
        context = gx.get_context(
            mode="ephemeral",
            project_config=DataContextConfig(
                store_backend_defaults=InMemoryStoreBackendDefaults(),
                analytics_enabled=False,
                progress_bars=ProgressBarsConfig(globally=False),
            ),
        )
        asset = context.data_sources.add_pandas("gate").add_dataframe_asset("frame")
        self._batch_definition = asset.add_batch_definition_whole_dataframe("all rows")

    def examine(
        self, frame: pd.DataFrame, checks: tuple[Check, ...], *, rows: int
    ) -> tuple[Verdict, ...]:
        """Judge one frame by several checks, which also demand that it has so many rows."""
        batch = self._batch_definition.get_batch({"dataframe": frame})
        return tuple(_validate(batch, check, rows=rows) for check in checks)


def _validate(batch: Any, check: Check, *, rows: int) -> Verdict:
    import great_expectations as gx
    import great_expectations.expectations as gxe

    expectations = [
        getattr(gxe, assertion.kind)(**assertion.arguments, meta={"assertion": assertion.name})
        for assertion in check.assertions
    ]
    if expectations:
        # Expectations on the rows of an empty frame hold; the number of rows is public.
        expectations.append(gxe.ExpectTableRowCountToEqual(value=rows, meta={"assertion": ROWS}))
    suite = gx.ExpectationSuite(name=check.name, expectations=expectations)
    outcome = batch.validate(suite, result_format="BOOLEAN_ONLY")
    ran = [
        str(result.expectation_config.meta["assertion"])
        for result in outcome.results
        # After an exception the flag is missing or set, depending on where it was raised.
        if result.exception_info.get("raised_exception") is False
    ]
    if len(ran) != len(set(ran)):
        return COULD_NOT_RUN
    held = bool(outcome.success) and all(bool(result.success) for result in outcome.results)
    return Verdict(ran=frozenset(ran), held=held and len(ran) == len(outcome.results))


@contextmanager
def silence() -> Iterator[None]:
    """Keep Great Expectations from logging or warning: its messages may quote values."""
    logger = logging.getLogger("great_expectations")
    previous = logger.level
    logger.setLevel(ABOVE_EVERY_LEVEL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(previous)
