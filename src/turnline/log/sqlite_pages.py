"""The rows in the pages of an SQLite file, whatever has become of its schema and its trees.

    pages = read_pages(path)           the file, with what its -wal file has committed
    for row in rows_in(pages): ...     every row of every leaf that can be read

SQLite finds a row by going down a tree, so one damaged page can hide thousands of rows. Here each page is
read for itself (https://sqlite.org/fileformat2.html). Nothing says which table a row belongs to, and it may
be an old one: the caller has to know its own rows, as a log does by their hashes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from turnline.log.sqlite_file import FILE_PAGE_BYTES

MAGIC: Final = b"SQLite format 3\0"
HEADER_BYTES: Final = 100
WAL_HEADER: Final = 32
FRAME_HEADER: Final = 24
WAL_MAGIC: Final = (0x377F0682, 0x377F0683)
MAX_CELL_BYTES: Final = 256 * 1024 * 1024
"""A longer row is taken for a damaged one."""
_INDEX, _INDEX_LEAF, _TABLE_LEAF = 0x02, 0x0A, 0x0D

Value = int | float | str | bytes | None
_BAD: Final = (IndexError, ValueError, struct.error)


class Row(Struct, frozen=True):
    """One row of a table, or one entry of an index."""

    rowid: int | None
    """None: an entry of an index."""
    values: list[Value]


class Pages(Struct, frozen=True):
    """The pages of a file, from 1."""

    size: int
    usable: int
    content: list[bytes]

    def page(self, number: int) -> bytes:
        if not 1 <= number <= len(self.content):
            raise IndexError(number)
        return self.content[number - 1]


def read_pages(path: Path, wal: Path) -> Pages:
    """Return the pages of the file, those of committed frames of its -wal file included. Raises `OSError`."""
    main, log = path.read_bytes(), wal.read_bytes() if wal.exists() else b""
    size, reserved = _page_size(main, log)
    content = [main[at : at + size] for at in range(0, len(main), size)]
    if content and len(content[-1]) < size:
        content[-1] = content[-1].ljust(size, b"\0")
    for number, page in _committed(log, size):
        content += [bytes(size)] * (number - len(content))
        content[number - 1] = page
    return Pages(size, size - reserved, content)


def rows_in(pages: Pages) -> Iterator[Row]:
    """Yield the rows of each page that is a leaf of a table, and the entries of each page of an index."""
    for number, page in enumerate(pages.content, 1):
        start = HEADER_BYTES if number == 1 else 0
        kind = page[start]
        if kind not in {_INDEX, _INDEX_LEAF, _TABLE_LEAF}:
            continue
        header = start + (12 if kind == _INDEX else 8)
        (count,) = struct.unpack_from(">H", page, start + 3)
        for cell in range(min(count, (len(page) - header) // 2)):
            try:
                (at,) = struct.unpack_from(">H", page, header + 2 * cell)
                yield _cell(pages, page, kind, at)
            except _BAD:
                continue


def _cell(pages: Pages, page: bytes, kind: int, at: int) -> Row:
    if kind == _INDEX:
        at += 4  # The page of smaller keys.
    length, at = _varint(page, at)
    rowid = None
    if kind == _TABLE_LEAF:
        rowid, at = _varint(page, at)
        rowid = rowid - (1 << 64) if rowid >> 63 else rowid
    if length > MAX_CELL_BYTES:
        raise ValueError(length)
    return Row(rowid, _record(_payload(pages, page, at, length, is_table=kind == _TABLE_LEAF)))


def _payload(pages: Pages, page: bytes, at: int, length: int, *, is_table: bool) -> bytes:
    """Return the bytes of a cell, those on overflow pages included."""
    usable = pages.usable
    most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
    if length <= most:
        found = page[at : at + length]
    else:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        found = page[at : at + local]
        (following,) = struct.unpack_from(">I", page, at + local)
        while len(found) < length:
            more = pages.page(following)
            found += more[4 : 4 + min(usable - 4, length - len(found))]
            (following,) = struct.unpack_from(">I", more, 0)
    if len(found) != length:
        raise ValueError(length)
    return found


def _record(payload: bytes) -> list[Value]:
    end, at = _varint(payload, 0)
    kinds = list[int]()
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    at, values = end, list[Value]()
    for kind in kinds:
        value, at = _value(payload, kind, at)
        values.append(value)
    return values


_INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _value(payload: bytes, kind: int, at: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in {8, 9}:
        return kind - 8, at
    size = _INTEGER_BYTES.get(kind, 8 if kind == 7 else (kind - 12) // 2)  # noqa: PLR2004  As the format has it.
    found = payload[at : at + size]
    if size < 0 or len(found) != size or kind in {10, 11}:
        raise ValueError(kind)
    if kind in _INTEGER_BYTES:
        return int.from_bytes(found, signed=True), at + size
    if kind == 7:  # noqa: PLR2004
        return float(struct.unpack(">d", found)[0]), at + size
    return found.decode() if kind % 2 else found, at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(8):
        byte = data[at + place]
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, at + place + 1
    return value << 8 | data[at + 8], at + 9


def _page_size(main: bytes, wal: bytes) -> tuple[int, int]:
    """Return the size of a page and how much of it is reserved at its end."""
    if main.startswith(MAGIC):
        (size,) = struct.unpack_from(">H", main, 16)
        size = 65536 if size == 1 else size
        if 512 <= size <= 65536 and size & (size - 1) == 0:  # noqa: PLR2004
            return size, main[20]
    if len(wal) >= WAL_HEADER:
        (size,) = struct.unpack_from(">I", wal, 8)
        if 512 <= size <= 65536 and size & (size - 1) == 0:  # noqa: PLR2004
            return size, 0
    return FILE_PAGE_BYTES, 0


def count_hidden(wal: bytes) -> int:
    """Return how many frames of a -wal file follow the place at which SQLite takes it for ended."""
    size, _ = _page_size(b"", wal)
    end = WAL_HEADER + sum(FRAME_HEADER + size for _ in _frames(wal, size))
    places = range(end, len(wal) - FRAME_HEADER - size + 1, FRAME_HEADER + size)
    return sum(wal[at + 8 : at + 16] == wal[16:24] for at in places)


def _committed(wal: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the pages that a -wal file has committed."""
    waiting = list[tuple[int, bytes]]()
    for number, commits, page in _frames(wal, size):
        waiting.append((number, page))
        if commits:
            yield from waiting
            waiting.clear()


def _frames(wal: bytes, size: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number and the content of each page, and whether it commits.

    As in SQLite, a frame with a wrong checksum ends it.
    """
    if len(wal) < WAL_HEADER or struct.unpack_from(">I", wal)[0] not in WAL_MAGIC:
        return
    order = ">" if struct.unpack_from(">I", wal)[0] & 1 else "<"
    salts, sums = wal[16:24], _checksum(order, wal[:24], (0, 0))
    if sums != struct.unpack_from(">II", wal, 24):
        return
    for at in range(WAL_HEADER, len(wal) - FRAME_HEADER - size + 1, FRAME_HEADER + size):
        number, commits = struct.unpack_from(">II", wal, at)
        page = wal[at + FRAME_HEADER : at + FRAME_HEADER + size]
        sums = _checksum(order, page, _checksum(order, wal[at : at + 8], sums))
        if wal[at + 8 : at + 16] != salts or sums != struct.unpack_from(">II", wal, at + 16):
            return
        yield number, commits, page


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = first + even + second & 0xFFFFFFFF
        second = second + odd + first & 0xFFFFFFFF
    return first, second
