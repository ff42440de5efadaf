"""What is said of a failure outside of the confidential zone: to Prefect, ledger, alerts, logs.

Left of the barrier the class of an error is data, too: which rule the records break, or that they
do not fit into memory. So there an error is named only if it is one of pgsr's own and no record
decides whether it is raised: a configuration, the ledger, a budget, a disk that is full, a store in
use. Everything else, unforeseen exceptions included, is one word with one exit code, and is not
tried again, as the number of attempts would tell what the word does not. The operator's terminal
and log have the full story.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgsr_core.errors import InputError, PgsrError

INPUT_STOPPED = "InputStopped"
IN_WORDS = "stopped on its input"
# The stages that read confidential records, or what was made of them.
LEFT_OF_THE_BARRIER = frozenset({"prepare", "ingest", "cumulative", "noise"})


def name_of(stage: str, error: BaseException) -> str:
    """The name of what stopped a stage, as anybody may know it."""
    hidden = stage in LEFT_OF_THE_BARRIER and not _is_public(error)
    return INPUT_STOPPED if hidden else type(error).__name__


def exit_code_of(stage: str, error: BaseException) -> int | None:
    """The exit code that goes with the name; None for what nobody foresaw."""
    if name_of(stage, error) == INPUT_STOPPED:
        return InputError.exit_code
    return error.exit_code if isinstance(error, PgsrError) else None


def recorded_name(stage: str, name: str | None) -> str | None:
    """What may be shown of a name on record: earlier versions recorded every class."""
    if name is None or name == INPUT_STOPPED or stage not in LEFT_OF_THE_BARRIER:
        return name
    return name if name in _public_names() else INPUT_STOPPED


def _is_public(error: BaseException) -> bool:
    return isinstance(error, PgsrError) and not error.depends_on_data


def _public_names() -> frozenset[str]:
    """Names of the errors that those stages may name; some share theirs with one that they may not.

    The stages are imported here, as they bring in whatever they can raise.
    """
    from tasks.stages import cumulative, decide, ingest, noise  # noqa: F401

    known = tuple(_subclasses(PgsrError))
    hidden = {error.__name__ for error in known if error.depends_on_data}
    return frozenset(error.__name__ for error in known) - hidden


def _subclasses(error: type[PgsrError]) -> Iterator[type[PgsrError]]:
    for kind in error.__subclasses__():
        yield kind
        yield from _subclasses(kind)
