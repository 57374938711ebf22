"""Tampering with a SQLite log as a person with rights on the database does it: tables that agree again.

found = tamper(path, random, sealed)      changes lines that a seal covers, and says where
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from sqlite3 import Connection
from typing import NamedTuple

from msgspec.structs import replace

from turnline.core.codec import NO_HASH, SALT_BYTES, Record, pack_id, seal_all, unpack_id
from turnline.core.envelope import Envelope
from turnline.log.base import closes
from turnline.log.chain import Chain
from turnline.log.seals import SEALS_CHANNEL
from turnline.testing.damage import flip_byte

from .forging import plain

Sealed = dict[str, int]
"""Channel -> how many of its lines the seal covers."""


class Tampered(NamedTuple):
    """What was done, and where a seal has to find it."""

    what: str
    channels: set[str]
    """One of them has to be named."""
    first: int
    """No line before this one was changed."""
    last: int


class Tampering:
    """One change of a file, by chance."""

    def __init__(self, connection: Connection, random: Random, sealed: Sealed) -> None:
        self._sql = connection
        self._random = random
        self._sealed = sealed
        self.channel = random.choice(sorted(sealed))
        self.seq = random.randint(1, sealed[self.channel])

    def found_in(self, what: str, *, first: int | None = None, other: str | None = None) -> Tampered:
        channels = {self.channel} if other is None else {self.channel, other}
        last = max(self._sealed[name] for name in channels)
        return Tampered(what, channels, self.seq if first is None else first, last)

    def change_a_bit(self) -> Tampered:
        column = self._random.choice(["head", "hash", "envelope_id", "payload"])
        record = self.records(self.channel)[self.seq - 1]
        if column == "payload" and record.payload is None:
            column = "head"
        if column == "envelope_id":
            self._update(record.seq, "envelope_id", record.envelope_id + "x")
            return self.found_in("change an id")
        kept: bytes = getattr(record, column)
        bit = self._random.randrange(len(kept) * 8)
        self._update(record.seq, column, flip_byte(kept, bit // 8, mask=1 << bit % 8))
        return self.found_in(f"flip a bit of a {column}")

    def change_a_line(self) -> Tampered:
        lines = self.lines(self.channel)
        line = lines[self.seq - 1]
        lines[self.seq - 1] = replace(plain(line), sender_id=f"{line.sender_id}x")
        self.write(self.channel, lines)
        return self.found_in("change a line")

    def drop_a_row(self) -> Tampered:
        number = self.number(self.channel)
        self._sql.execute("DELETE FROM turnline_records WHERE channel = ? AND seq = ?", (number, self.seq))
        return self.found_in("drop a row")

    def drop_a_line(self) -> Tampered:
        lines = self.lines(self.channel)
        if len(lines) == 1:
            return self.delete_a_channel()
        del lines[self.seq - 1]
        self.write(self.channel, lines)
        return self.found_in("drop a line")

    def reorder_lines(self) -> Tampered:
        lines = self.lines(self.channel)
        if len(lines) == 1:
            return self.change_a_line()
        other = self._random.choice([seq for seq in range(1, len(lines) + 1) if seq != self.seq])
        lines[self.seq - 1], lines[other - 1] = lines[other - 1], lines[self.seq - 1]
        self.write(self.channel, lines)
        return self.found_in("reorder lines", first=min(self.seq, other))

    def swap_channels(self) -> Tampered:
        other = self._random.choice(sorted(self._sealed.keys() - {self.channel}))
        mine, its = self.lines(self.channel), self.lines(other)
        self.write(self.channel, its)
        self.write(other, mine)
        return self.found_in("swap channels", first=1, other=other)

    def swap_names(self) -> Tampered:
        other = self._random.choice(sorted(self._sealed.keys() - {self.channel}))
        for old, new in ((self.channel, "?"), (other, self.channel), ("?", other)):
            self._sql.execute("UPDATE turnline_names SET id = ? WHERE id = ?", (new, old))
        return self.found_in("swap names", first=1, other=other)

    def cut_the_end(self) -> Tampered:
        lines = self.lines(self.channel)
        if self.seq == 1:
            return self.delete_a_channel()
        self.write(self.channel, lines[: self.seq - 1])
        return self.found_in("cut the end")

    def replace_a_channel(self) -> Tampered:
        lines = [replace(one, envelope_id=f"{one.envelope_id}-new") for one in self.lines(self.channel)]
        self.write(self.channel, lines)
        return self.found_in("replace a channel", first=1)

    def delete_a_channel(self) -> Tampered:
        self.write(self.channel, [])
        return self.found_in("delete a channel", first=1)

    # What a person with rights can do.

    def number(self, channel_id: str) -> int:
        query = "SELECT channel FROM turnline_names WHERE id = ?"
        return int(self._sql.execute(query, (channel_id,)).fetchone()[0])

    def records(self, channel_id: str) -> list[Record]:
        query = """
            SELECT seq, envelope_id, head, hash, payload FROM turnline_records
            LEFT JOIN turnline_contents USING (position) WHERE channel = ? ORDER BY seq
        """
        rows = self._sql.execute(query, (self.number(channel_id),))
        return [
            Record(seq, unpack_id(id_) if isinstance(id_, bytes) else id_, *rest) for seq, id_, *rest in rows
        ]

    def lines(self, channel_id: str) -> list[Envelope]:
        chain = Chain(channel_id)
        return [chain.keep(record) for record in self.records(channel_id)]

    def write(self, channel_id: str, lines: Sequence[Envelope]) -> None:
        """Write a channel again: numbers, hashes and the index agree."""
        number = self.number(channel_id)
        owned = "SELECT position FROM turnline_records WHERE channel = ?"
        self._sql.execute(f"DELETE FROM turnline_contents WHERE position IN ({owned})", (number,))
        for table in ("records", "heads", "tags"):
            self._sql.execute(f"DELETE FROM turnline_{table} WHERE channel = ?", (number,))
        if not lines:
            self._sql.execute("DELETE FROM turnline_names WHERE channel = ?", (number,))
            return
        named = [replace(one, channel_id=channel_id, seq=seq) for seq, one in enumerate(lines, 1)]
        position = 0
        for record in seal_all(named, NO_HASH, salt=bytes(SALT_BYTES)):
            row = (number, record.seq, pack_id(record.envelope_id), record.hash, record.head)
            query = (
                "INSERT INTO turnline_records (channel, seq, envelope_id, hash, head) VALUES (?, ?, ?, ?, ?)"
            )
            position = self._sql.execute(query, row).lastrowid or 0
            if record.payload is not None:
                self._sql.execute("INSERT INTO turnline_contents VALUES (?, ?)", (position, record.payload))
            last = record
        self._sql.execute(
            "INSERT INTO turnline_heads (channel, seq, hash, closed, position) VALUES (?, ?, ?, ?, ?)",
            (number, last.seq, last.hash, closes(channel_id, named[-1].event_type), position),
        )

    def hide(self, done: Tampered) -> Tampered:
        """Seal the tampered channels again, as if they had always been so."""
        ends = {name: self._hashes(name) for name in done.channels}
        seals = self.lines(SEALS_CHANNEL)
        self.write(SEALS_CHANNEL, [self._hidden(one, ends) for one in seals])
        return done._replace(
            what=f"{done.what}, and seal it", channels=done.channels | {SEALS_CHANNEL}, first=1
        )

    def _hashes(self, channel_id: str) -> dict[int, str]:
        known = self._sql.execute("SELECT 1 FROM turnline_names WHERE id = ?", (channel_id,)).fetchone()
        return {one.seq: one.hash.hex() for one in self.records(channel_id)} if known else {}

    def _hidden(self, line: Envelope, ends: dict[str, dict[int, str]]) -> Envelope:
        kept = [
            [name, seq, ends[name][seq] if name in ends else hash_]
            for name, seq, hash_ in line.event_data.get("ends", [])
            if name not in ends or seq in ends[name]
        ]
        return replace(plain(line), event_data={**line.event_data, "ends": kept})

    def _update(self, seq: int, column: str, value: object) -> None:
        number = self.number(self.channel)
        if column == "payload":
            where = "position = (SELECT position FROM turnline_records WHERE channel = ? AND seq = ?)"
            self._sql.execute(f"UPDATE turnline_contents SET payload = ? WHERE {where}", (value, number, seq))
            return
        query = f"UPDATE turnline_records SET {column} = ? WHERE channel = ? AND seq = ?"
        self._sql.execute(query, (value, number, seq))


WAYS: Sequence[Callable[[Tampering], Tampered]] = (
    Tampering.change_a_bit,
    Tampering.change_a_line,
    Tampering.drop_a_row,
    Tampering.drop_a_line,
    Tampering.reorder_lines,
    Tampering.swap_channels,
    Tampering.swap_names,
    Tampering.cut_the_end,
    Tampering.replace_a_channel,
    Tampering.delete_a_channel,
)
RAW = (Tampering.change_a_bit, Tampering.drop_a_row, Tampering.swap_names)
"""Those that leave the tables in disagreement."""
REPLAYS = 20
"""One of so many tamperings is an old copy of the file."""


def tamper(path: Path, old: Path, random: Random, sealed: Sealed) -> Tampered:
    """Change something that a seal covers, in the file at `path`. `old` is a copy from before the seal."""
    if random.randrange(REPLAYS) == 0:
        shutil.copyfile(old, path)
        return Tampered("replay an old file", {SEALS_CHANNEL}, 1, sealed[SEALS_CHANNEL])
    with closing(sqlite3.connect(path)) as connection, connection:
        tampering = Tampering(connection, random, sealed)
        way = random.choice(WAYS)
        done = way(tampering)
        if way not in RAW and SEALS_CHANNEL not in done.channels and random.random() < 0.5:
            done = tampering.hide(done)
    return done
