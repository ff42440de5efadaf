"""Many products at once against a budget that is enough for some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from benchmarks.torture.commands import Office, ended
from benchmarks.torture.rows import Effort, Row, Torture
from tasks.ledger.ledger import Ledger

FAULT = "ignore_the_budget"
EPSILON = Fraction(1, 2)
PUBLISHED, REFUSED, TRY_AGAIN = 0, 1, 3
MOST_ATTEMPTS = 4


def crowd(office: Office, *, products: int, fit: int) -> Iterator[str]:
    """Start all products at the same moment; say what is wrong in the end."""
    text = office.configuration.read_text()
    names = [f"product-{number}" for number in range(products)]
    for name in names:
        own = text.replace("product: household-sizes", f"product: {name}")
        own = own.replace("budget: '4'", f"budget: '{fit * EPSILON}'")
        (office.folder / f"{name}.yaml").write_text(own)
    codes: dict[str, int] = dict.fromkeys(names, TRY_AGAIN)
    for _ in range(MOST_ATTEMPTS):
        again = [name for name, code in codes.items() if code == TRY_AGAIN]
        started = {name: office.start("release", f"{name}.yaml") for name in again}
        for name, process in started.items():
            done = ended(process)
            codes[name] = done.code
            if "Traceback" in done.said:
                yield f"{name}: a traceback"
            if done.code not in {PUBLISHED, REFUSED, TRY_AGAIN}:
                yield f"{name}: exit code {done.code}"
    counted = Counter(codes.values())
    if counted != Counter({PUBLISHED: fit, REFUSED: products - fit}):
        yield f"exit codes {dict(counted)}"
    [account] = Ledger(f"sqlite:///{office.home / 'ledger.sqlite'}").accounts()
    if account.spent != fit * EPSILON or account.spent > account.budget:
        yield f"{account.spent} of {account.budget} was spent"
    if len(office.statements()) != fit:
        yield f"{len(office.statements())} bundles"


def run(effort: Effort) -> Iterator[Row]:
    products, fit = effort.times(20, 3), effort.times(15, 2)
    wrong = list(crowd(Office.open(effort.folder / "sound"), products=products, fit=fit))
    broken = Office.open(effort.folder / "broken", fault=FAULT)
    caught = list(crowd(broken, products=3, fit=2))
    yield Row(
        f"{products} products at once, a budget for {fit}",
        f"{len(wrong)} violations",
        f"{fit} published, {products - fit} refused, none crashed or lost",
        not wrong,
        f"every charge fits: {len(caught)} violations",
        bool(caught),
        wrong,
    )


TORTURE = Torture("crowd", run)
