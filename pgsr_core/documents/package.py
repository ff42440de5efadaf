"""datapackage.json (Data Package v2): what is in a bundle, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pgsr_core.documents.names import CHECKS_FILE, PRIVACY_FILE, REPORT_FILE
from pgsr_core.documents.stated import SIMULATION_NOTICE, Stated
from pgsr_core.documents.tables import Column, Table, published_tables

# Addresses that name the Data Package v2 standard; nothing is ever fetched from them.
_STANDARD = "https://datapackage.org/profiles/2.0"
_MEDIATYPES = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv"}
_DOCUMENTS = (
    (PRIVACY_FILE, "json", "application/json", "The privacy statement, in words and in fields."),
    (CHECKS_FILE, "json", "application/json", "Every check, certificates and table digests."),
    (REPORT_FILE, "html", "text/html", "The release on one page, for people."),
)


class ListedFile(Protocol):
    """A file as it is listed."""

    @property
    def sha256(self) -> str: ...
    @property
    def size(self) -> int: ...


def datapackage_document(
    files: Mapping[str, ListedFile], facts: Stated, *, formats: Sequence[str]
) -> dict[str, Any]:
    """Return datapackage.json (Data Package v2): every other file, with size and checksum.

    Args:
        files: the others, by name.
        facts: what the release states.
        formats: of the tables, in order.
    """
    tables = published_tables(facts)
    resources = [_table_resource(files, table, name) for table in tables for name in formats] + [
        _document_resource(files, *document) for document in _DOCUMENTS
    ]
    title = f"{facts.product}, release {facts.release}"
    description = (
        "How many groups of each size there are in each region, under differential privacy; "
        f"see {PRIVACY_FILE} for what is promised."
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


def _table_resource(files: Mapping[str, ListedFile], table: Table, form: str) -> dict[str, Any]:
    path = f"{table.name}.{form}"
    resource: dict[str, Any] = {
        "name": f"{table.name}-{form}",
        "type": "table",
        "path": path,
        "title": table.title,
        "description": table.description,
        "format": form,
        "mediatype": _MEDIATYPES[form],
    }
    if form == "csv":
        resource["encoding"] = "utf-8"
        resource["dialect"] = {"delimiter": ",", "lineTerminator": "\n", "quoteChar": '"'}
    return {**resource, **_size_and_checksum(files[path]), "schema": _schema(table, form)}


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
    files: Mapping[str, ListedFile], file: str, form: str, mediatype: str, description: str
) -> dict[str, Any]:
    return {
        "name": file.partition(".")[0],
        "path": file,
        "description": description,
        "format": form,
        "mediatype": mediatype,
        "encoding": "utf-8",
        **_size_and_checksum(files[file]),
    }


def _size_and_checksum(file: ListedFile) -> dict[str, Any]:
    return {"bytes": file.size, "hash": f"sha256:{file.sha256}"}
