"""Whatever would stop a publication stops the release before anything is charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.torture.commands import NAME, PRODUCT, RELEASE, Office
from benchmarks.torture.rows import Effort, Row, Torture, Trials
from tasks.ledger.ledger import Ledger

FAULT = "ask_nothing_before_the_draw"
TOLD = {1, 2, 3}


def place_is_taken(office: Office) -> None:
    (office.folder / "public" / NAME).mkdir(parents=True)


def place_is_a_dangling_link(office: Office) -> None:
    (office.folder / "public" / PRODUCT).mkdir(parents=True)
    (office.folder / "public" / NAME).symlink_to("nowhere")


def product_folder_is_a_file(office: Office) -> None:
    (office.folder / "public").mkdir()
    (office.folder / "public" / PRODUCT).write_text("")


def notice_of_withdrawal_is_there(office: Office) -> None:
    (office.folder / "public" / PRODUCT).mkdir(parents=True)
    (office.folder / "public" / PRODUCT / f"{RELEASE}.withdrawn.dsse.json").write_text("{}")


def own_key_is_open_to_others(office: Office) -> None:
    office.home.mkdir(mode=0o700)
    (office.home / "signing.key").write_text("a key")
    (office.home / "signing.key").chmod(0o644)


OBSTACLES: tuple[Callable[[Office], None], ...] = (
    place_is_taken,
    place_is_a_dangling_link,
    product_folder_is_a_file,
    notice_of_withdrawal_is_there,
    own_key_is_open_to_others,
)


def meet(office: Office, obstacle: Callable[[Office], None]) -> Iterator[str]:
    """Release in spite of an obstacle; say what is wrong in the end."""
    obstacle(office)
    done = office.run("release", "product.yaml")
    if done.code not in TOLD or "Remedy" not in done.said or "Traceback" in done.said:
        yield f"exit code {done.code} without a clear word"
    ledger = Ledger.existing(f"sqlite:///{office.home / 'ledger.sqlite'}")
    accounts = () if ledger is None else ledger.accounts()
    if any(account.spent + account.reserved for account in accounts):
        yield "it was charged"


def all_of_them(effort: Effort, *, fault: str | None) -> Trials:
    trials = Trials()
    for obstacle in OBSTACLES[: effort.times(len(OBSTACLES), 1)]:
        folder = effort.folder / f"{fault or 'sound'}-{obstacle.__name__}"
        trials.note(obstacle.__name__, meet(Office.open(folder, fault=fault), obstacle))
        if fault is not None and trials.violations:
            break  # it is caught
    return trials


def run(effort: Effort) -> Iterator[Row]:
    trials = all_of_them(effort, fault=None)
    mutant = all_of_them(effort, fault=FAULT)
    yield Row(
        "obstacles to publication, met before the draw",
        trials.count("obstacles"),
        "0 violations: told, and nothing charged",
        not trials.violations,
        f"nothing is asked before the draw: {mutant.count('obstacles')}",
        bool(mutant.violations),
        trials.violations,
    )


TORTURE = Torture("obstacles", run)
