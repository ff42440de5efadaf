"""`pgsr metrics`: what an installation does, for a monitor inside the house."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.homes import HomeFolder, home_at


def metrics(
    save: Annotated[
        bool, typer.Option("--save", help="Write them to metrics.prom in the state folder.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Write them to this file, at once; a new one is 0600."),
    ] = None,
    rows: Annotated[
        bool,
        typer.Option("--rows", help="Also rows read, which depend on confidential data."),
    ] = False,
    home: HomeFolder = None,
) -> None:
    """Show stage durations, memory, states and spend as Prometheus text. Internal only.

    Example: pgsr metrics --output /var/lib/node_exporter/textfile/pgsr.prom
    """
    from flows.cli.screen import out
    from tasks.ledger.ledger import Ledger
    from tasks.metrics import FILE, refuse_rows_outside, render, write

    place = home_at(home)
    confidential = place.root / "confidential"
    files = [output.absolute()] if output is not None else []
    if save:
        files.append((confidential if rows else place.root) / FILE)
    if rows:
        for file in files:
            refuse_rows_outside(place, file)
    ledger = Ledger.existing(place.ledger_url, witness=place.witness)
    text = render(place, ledger, rows=rows)
    for file in files:
        write(file, text)
    if not files:
        out.file.write(text.decode())
