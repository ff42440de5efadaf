"""The JSON documents of a bundle: how they are written, checks.json and datapackage.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.publication.facts import SIMULATION_NOTICE, BundleFacts
from tasks.publication.tables import FORMATS, Column, Table, published_tables

CHECKS = "checks.json"
DATAPACKAGE = "datapackage.json"
PRIVACY = "privacy.json"
REPORT = "report.html"

# Addresses that name the Data Package v2 standard; nothing is ever fetched from them.
_STANDARD = "https://datapackage.org/profiles/2.0"
_DOCUMENTS = (
    (PRIVACY, "json", "application/json", "The privacy statement, in words and in fields."),
    (CHECKS, "json", "application/json", "Every check, certificates and table digests."),
    (REPORT, "html", "text/html", "The release on one page, for people."),
)


def write_json(path: Path, document: Mapping[str, Any], *, simulation: bool) -> None:
    """Write a document; a simulation says so in its first field."""
    notice = {"notice": SIMULATION_NOTICE} if simulation else {}
    marked = {**notice, "simulation": simulation, **document}
    text = json.dumps(marked, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def file_digest(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checks_document(facts: BundleFacts) -> dict[str, Any]:
    """Return checks.json: every gate, the solvers' certificates and the tables' digests."""
    return {
        "product": facts.product,
        "release": facts.release,
        "published_on": facts.published_on.isoformat(),
        "passed": all(check.passed for check in facts.checks),
        "checks": [
            {
                "name": check.name,
                "suite": check.suite,
                "statement": check.statement,
                "passed": check.passed,
                "expectations": check.expectations,
            }
            for check in facts.checks
        ],
        "certificates": {step: dict(proof) for step, proof in facts.certificates.items()},
        "table_digests": dict(sorted(facts.digests.items())),
    }


def datapackage_document(
    folder: Path, facts: BundleFacts, *, formats: Sequence[str]
) -> dict[str, Any]:
    """Return datapackage.json (Data Package v2): every other file, with size and checksum."""
    tables = published_tables(facts)
    resources = [_table_resource(folder, table, name) for table in tables for name in formats] + [
        _document_resource(folder, *document) for document in _DOCUMENTS
    ]
    title = f"{facts.product}, release {facts.release}"
    description = (
        "How many groups of each size there are in each region, under differential privacy; "
        f"see {PRIVACY} for what is promised."
    )
    if facts.simulation:
        title, description = (f"{SIMULATION_NOTICE}: {text}" for text in (title, description))
    return {
        "$schema": f"{_STANDARD}/datapackage.json",
        "name": f"{facts.product}-{facts.release}",
        "title": title,
        "description": description,
        "version": facts.release,
        "published_on": facts.published_on.isoformat(),
        "generator": f"pgsr {facts.code_version}",
        **{name: value for name, value in facts.lineage.to_json().items() if value is not None},
        "keywords": ["differential privacy", "group sizes", "official statistics"],
        "resources": resources,
    }


def _table_resource(folder: Path, table: Table, form: str) -> dict[str, Any]:
    path = folder / f"{table.name}.{form}"
    resource: dict[str, Any] = {
        "name": f"{table.name}-{form}",
        "type": "table",
        "path": path.name,
        "title": table.title,
        "description": table.description,
        "format": form,
        "mediatype": FORMATS[form].mediatype,
    }
    if form == "csv":
        resource["encoding"] = "utf-8"
        resource["dialect"] = {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"'}
    return {**resource, **_size_and_checksum(path), "schema": _schema(table, form)}


def _schema(table: Table, form: str) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "fields": [_field(column) for column in table.columns],
        "primaryKey": list(table.key),
    }
    if "region" not in table.key:
        return schema
    column = "parent" if table.name == "regions" else "region"
    reference: dict[str, Any] = {"fields": ["region"]}
    if table.name != "regions":
        reference = {"resource": f"regions-{form}", **reference}
    return {**schema, "foreignKeys": [{"fields": [column], "reference": reference}]}


def _field(column: Column) -> dict[str, Any]:
    constraints: dict[str, Any] = {"required": column.required}
    if column.minimum is not None:
        constraints["minimum"] = column.minimum
    return {
        "name": column.name,
        "type": column.type,
        "description": column.description,
        "constraints": constraints,
    }


def _document_resource(
    folder: Path, file: str, form: str, mediatype: str, description: str
) -> dict[str, Any]:
    path = folder / file
    return {
        "name": path.stem,
        "path": path.name,
        "description": description,
        "format": form,
        "mediatype": mediatype,
        "encoding": "utf-8",
        **_size_and_checksum(path),
    }


def _size_and_checksum(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "hash": f"sha256:{file_digest(path)}"}
