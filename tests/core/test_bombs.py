"""Small files that stand for gigabytes: refused by what they declare, before they are unpacked."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgsr_core.verification import verify_bundle
from pgsr_core.verification.parquet_shape import TooLarge, read_page_header, refuse_by_shape
from tests.core.example_bundle import KEY, REGIONS, Draft, example

ROOT = Path(__file__).parents[2]
MOST_MEMORY = 1_500_000_000
MEGABYTE = 1_000_000
_VERIFY = """
import json, re, sys
from pathlib import Path
from pgsr_core.verification import verify_bundle
from tasks.bundles import FolderBundle
from tasks.keys import read_public_key
found = verify_bundle(FolderBundle(Path(sys.argv[1])), read_public_key(Path(sys.argv[2])))
# Not ru_maxrss: a process begins with that of the one which it was forked from.
status = open("/proc/self/status").read()
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024
print(json.dumps({"failed": [item.name for item in found.failed], "peak": peak}))
"""


def regions_table(rows: int, name: str) -> pa.Table:
    """The regions of the example, with one name repeated."""
    columns = list(zip(*REGIONS, strict=True))
    return pa.table(
        {
            "region": pa.array(columns[0][:rows], pa.string()),
            "parent": pa.array(columns[1][:rows], pa.string()),
            "level": pa.array(columns[2][:rows], pa.int32()),
            "name": pa.array([name] * rows, pa.string()),
            "groups": pa.array(columns[4][:rows], pa.int64()),
        }
    )


def written(*tables: pa.Table, **options: Any) -> bytes:
    """One row group a table, compressed as well as can be."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, tables[0].schema, compression="zstd", **{"use_dictionary": False, **options}
    ) as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue()


def many_long_names(megabytes: int) -> Callable[[Draft], None]:
    """Regions with names of so many megabytes each, 1.7 GB in all."""

    def forge(draft: Draft) -> None:
        one = regions_table(1, "x" * (megabytes * MEGABYTE))
        draft.edits["regions.parquet"] = lambda _: written(*[one] * (1_700 // megabytes))

    return forge


def too_many_rows(draft: Draft) -> None:
    """Forty million rows, each column a repeated number."""
    rows = 10_000_000
    again = pa.DictionaryArray.from_arrays(
        pa.array(memoryview(bytes(4 * rows)).cast("i"), pa.int32()), pa.array(["country"])
    )
    zeros = pa.array(memoryview(bytes(8 * rows)).cast("q"), pa.int64())
    table = pa.table({"level": zeros, "region": again, "size": zeros, "count": zeros})
    bomb = written(*[table] * 4, use_dictionary=True)
    draft.edits["group_sizes.parquet"] = lambda _: bomb


def sizes_without_end(largest: int) -> Callable[[Draft], None]:
    """A privacy statement that declares so many sizes everywhere."""

    def forge(draft: Draft) -> None:
        document = draft.documents["privacy.json"]
        document["sizes"]["largest"] = document["sensitivity"]["largest_size"] = largest
        for level in document["levels"]:
            level["cells"] = level["regions"] * largest

    return forge


def wide_csv(draft: Draft) -> None:
    """Twenty million columns in one line."""
    draft.edits["group_sizes.csv"] = lambda content: b"," * (20 * MEGABYTE) + content


def long_cell(draft: Draft) -> None:
    """A cell of 100 MB."""
    draft.edits["regions.csv"] = lambda content: content.replace(
        b"The Country", b"x" * (100 * MEGABYTE)
    )


BOMBS: dict[str, tuple[Callable[[Draft], None], str]] = {
    "names of 70 MB": (many_long_names(70), "regions"),
    "names that fit one by one": (many_long_names(50), "regions"),
    "forty million rows": (too_many_rows, "completeness:group_sizes.parquet"),
    "two billion sizes": (sizes_without_end(2 * 10**9), "completeness:group_sizes"),
    "thirty million sizes": (sizes_without_end(3 * 10**7), "completeness:group_sizes"),
    "twenty million columns": (wide_csv, "integrality:group_sizes.csv"),
    "a cell of 100 MB": (long_cell, "regions"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_and_costs_little(bomb: str, tmp_path: Path) -> None:
    forge, item = BOMBS[bomb]
    draft = example()
    forge(draft)
    folder = tmp_path / "bundle"
    folder.mkdir()
    for name, content in draft.signed().items():
        (folder / name).write_bytes(content)
    key = tmp_path / "key.pub"
    key.write_bytes(KEY.public.to_pem())
    done = subprocess.run(
        [sys.executable, "-c", _VERIFY, folder, key],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    assert any(failed.startswith(item) for failed in said["failed"])
    assert "signature" not in said["failed"]
    assert said["peak"] < MOST_MEMORY


def refuse(content: bytes, rows: int = 4, *, exactly: bool = True) -> None:
    refuse_by_shape(io.BytesIO(content), rows=rows, exactly=exactly, file="x.parquet")


def test_a_footer_that_tells_less_than_the_pages_is_refused() -> None:
    honest = written(regions_table(4, "x" * (20 * MEGABYTE)))
    column = pq.ParquetFile(io.BytesIO(honest)).metadata.row_group(0).column(3)
    assert column.path_in_schema == "name"
    declared = _varint(2 * column.total_uncompressed_size)
    lie = _varint(2 * 1000, length=len(declared))
    start = len(honest) - 8 - int.from_bytes(honest[-8:-4], "little")
    footer = honest[start:]
    assert footer.count(declared) >= 1
    forged = honest[:start] + footer.replace(declared, lie)
    read = pq.ParquetFile(io.BytesIO(forged)).metadata.row_group(0).column(3)
    assert read.total_uncompressed_size == 1000
    with pytest.raises(TooLarge, match="page"):
        refuse(forged)


def _varint(value: int, *, length: int = 1) -> bytes:
    digits = []
    while value or len(digits) < length:
        digits.append(value & 127)
        value >>= 7
    return bytes([digit | 128 for digit in digits[:-1]] + [digits[-1]])


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_text_that_continues_the_text_before_is_refused(encoding: str) -> None:
    bomb = written(regions_table(4, "x" * MEGABYTE), column_encoding={"name": encoding})
    with pytest.raises(TooLarge, match="encodings"):
        refuse(bomb)


def test_other_rows_than_the_table_has_are_refused() -> None:
    content = written(regions_table(4, "x"))
    refuse(content)
    refuse(content, rows=9, exactly=False)
    for rows, exactly in ((3, True), (3, False), (9, True)):
        with pytest.raises(TooLarge):
            refuse(content, rows=rows, exactly=exactly)


def test_a_footer_that_is_longer_than_its_rows_need_is_refused() -> None:
    content = written(regions_table(4, "x"))
    schema = regions_table(4, "x").schema.with_metadata({"note": "x" * (1 << 19)})
    sink = io.BytesIO()
    pq.write_table(regions_table(4, "x").cast(schema), sink)
    refuse(content)
    with pytest.raises(TooLarge, match="footer"):
        refuse(sink.getvalue())


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"use_dictionary": True}])
def test_what_writers_write_is_read(options: dict[str, Any]) -> None:
    refuse(written(regions_table(4, "somewhere"), **options))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x00",
        b"\xff" * 50,
        b"\x15" * 50,
        b"\x1c" * 5_000,  # a struct in a struct, without end
        b"\x18\xff\xff\xff\xff\x0f",
    ],
)
def test_nonsense_in_place_of_a_page_is_a_typed_error(header: bytes) -> None:
    with pytest.raises(ValueError, match="Parquet"):
        read_page_header(header)


def test_damage_anywhere_in_a_file_is_a_finding() -> None:
    draft = example(forms=("parquet",))
    content = draft.unsigned()["regions.parquet"]
    for place in range(0, len(content), 29):
        damaged = content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]
        draft.edits["regions.parquet"] = lambda _, damaged=damaged: damaged
        verify_bundle(draft.signed(), KEY.public)  # whatever it says, it says it
