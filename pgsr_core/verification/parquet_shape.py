"""What a Parquet file declares about its own size, looked at before anything is unpacked.

A megabyte of Parquet can stand for gigabytes: pages are compressed, strings are repeated by number
or continue the one before. The reader allocates what page headers ask for, whatever the footer
says, so both are read here: the footer by pyarrow, once it is known to be small, and the header of
every page by hand (Apache Parquet format 2.10, PageHeader in Thrift's compact protocol).
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow.parquet as pq

_TRAILER = 8  # length of the footer, then "PAR1"
_SMALL_FOOTER = 1 << 18
_ROWS_A_FOOTER_BYTE = 16
_LARGEST_CHUNK = 1 << 26
"""Bytes that a column of one row group may unpack to; a million numbers take an eighth of it."""

_LONGEST_HEADER = 1 << 16
_FEW_PAGES = 16  # beside one for each row
# PLAIN, PLAIN_DICTIONARY, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY. In the other encodings of text
# a string continues the one before, so that a page of kilobytes holds gigabytes.
_ENCODINGS = frozenset({0, 2, 3, 5, 8})
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
# Field numbers in PageHeader, and of the encoding in the header for each type of page.
_TYPE, _UNPACKED, _PACKED = 1, 2, 3
_DETAILS = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}
_LEAST_VALUE = 4  # bytes of a value in a dictionary


class TooLarge(Exception):
    """The file declares more than its table has room for; the sentence says what."""


def refuse_by_shape(
    stream: BinaryIO, *, rows: int, exactly: bool, unpacked: int | None = None, file: str
) -> None:
    """Refuse a Parquet file that would unpack to more than a table of so many rows.

    Args:
        stream: the file, seekable; it is left at its start.
        rows: that the table has.
        exactly: whether it must have as many, or may have fewer.
        unpacked: bytes that all of it may unpack to, where all of it is kept.
        file: its name.

    Raises:
        TooLarge: by the footer, or by the header of a page.
        OSError, ValueError: it is no Parquet file; pyarrow's errors are among these.
    """
    size = stream.seek(0, io.SEEK_END)
    if size < _TRAILER:
        raise ValueError("too short for Parquet")
    stream.seek(size - _TRAILER)
    footer = int.from_bytes(stream.read(4), "little")
    if footer > min(size, _SMALL_FOOTER + rows // _ROWS_A_FOOTER_BYTE):
        raise TooLarge(f"{file} has a footer that is too long for its rows")
    stream.seek(0)
    # Not closed: that would close the stream.
    metadata = pq.ParquetFile(stream).metadata
    if metadata.num_rows > rows or (exactly and metadata.num_rows != rows):
        raise TooLarge(f"{file} does not declare as many rows as it should have")
    declared = total = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        declared += group.num_rows
        for column in range(group.num_columns):
            chunk = group.column(column)
            total += chunk.total_uncompressed_size
            _refuse_chunk(stream, chunk, rows=group.num_rows, size=size, file=file)
    if unpacked is not None and total > unpacked:
        raise TooLarge(f"{file} unpacks to more than it should")
    if declared != metadata.num_rows:
        raise TooLarge(f"{file} declares other rows in its groups than in all")
    stream.seek(0)


def _refuse_chunk(stream: BinaryIO, chunk: Any, *, rows: int, size: int, file: str) -> None:
    """Walk through the pages of one column of a row group."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        start = min(start, chunk.dictionary_page_offset)
    end, unpacked, pages = start + chunk.total_compressed_size, 0, 0
    most = min(_LARGEST_CHUNK, chunk.total_uncompressed_size)
    if not 0 <= start <= end <= size or chunk.num_values != rows:
        raise TooLarge(f"{file} declares a column that does not fit into it")
    # Invariant: the pages before `start` unpack to `unpacked` bytes, which is not too much.
    while start < end:
        stream.seek(start)
        page = read_page_header(stream.read(min(_LONGEST_HEADER, end - start)))
        unpacked, pages = unpacked + page.unpacked, pages + 1
        if pages > rows + _FEW_PAGES or unpacked > most:
            raise TooLarge(f"{file} has more pages, or larger ones, than it should")
        if page.encoding not in _ENCODINGS or page.values * _LEAST_VALUE > max(
            page.unpacked, rows * _LEAST_VALUE
        ):
            raise TooLarge(f"{file} has a page of other values or encodings than a table has")
        start += page.length + page.packed


@dataclass(frozen=True)
class PageHeader:
    """What is read of a page's header.

    Attributes:
        length: of the header itself, in bytes.
        packed: bytes of the page in the file.
        unpacked: bytes that the reader allocates for it.
        values: how many it holds.
        encoding: of its values.
    """

    length: int
    packed: int
    unpacked: int
    values: int
    encoding: int


def read_page_header(data: bytes) -> PageHeader:
    """Read a page's header.

    Raises:
        ValueError: it is none.
    """
    reader = _Compact(data)
    try:
        fields = reader.struct()
        details, encoding = _DETAILS[fields[_TYPE]]
        header = PageHeader(
            length=reader.place,
            packed=fields[_PACKED],
            unpacked=fields[_UNPACKED],
            values=fields[details][1],
            encoding=fields[details][encoding],
        )
    except (LookupError, TypeError, RecursionError):
        raise ValueError("a page of Parquet has no header that can be read") from None
    if min(header.packed, header.unpacked, header.values) < 0:
        raise ValueError("a page of Parquet has a negative size")
    return header


class _Compact:
    """Reads structs in Thrift's compact protocol: field number → integer, struct or None."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in {1, 2}:  # true and false are types of their own
            return kind == 1
        if kind == 3:  # noqa: PLR2004 (a byte)
            return self._byte()
        if kind in {4, 5, 6}:
            return self._signed()
        if kind == 8:  # noqa: PLR2004 (bytes: smallest and largest values, which nobody needs)
            length = self._varint()
            self.place += length
            return None
        if kind == 12:  # noqa: PLR2004 (a struct)
            return self.struct()
        raise ValueError("a page of Parquet has an unknown field")

    def _byte(self) -> int:
        byte = self._data[self.place]
        self.place += 1
        return byte

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:  # noqa: PLR2004 (the last byte has its highest bit clear)
                return value
            shift += 7
            if shift > 63:  # noqa: PLR2004 (no integer here is longer)
                raise ValueError("a number in a page of Parquet is too long")
