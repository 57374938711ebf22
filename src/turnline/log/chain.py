"""The chain of one channel, followed record by record.

Rule 1: a record that comes out of here is the one that was written: at its place, after its
predecessor, under its own name, and only once.

Rule 2: content that is missing was erased, and a later line says so (Y1). Otherwise it is damage.
"""

from __future__ import annotations

from turnline.core.codec import NO_HASH, Kept, Record, keep, unseal
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord
from turnline.log.base import Erasures


class Chain:
    """A channel as far as it was followed."""

    def __init__(self, channel_id: str) -> None:
        self.channel_id = channel_id
        self.seq = 0
        self.hash = NO_HASH
        self.erasures = Erasures(channel_id)
        self._ids: set[str] = set()

    def add(self, record: Record) -> Envelope:
        """Return the envelope of the next record. Raises `CorruptRecord` if it is not the next one."""
        envelope = unseal(self.channel_id, record, previous=self.hash, seq=self.seq + 1)
        if record.envelope_id in self._ids:
            because = f"found the id {record.envelope_id!r}, which an earlier one has"
            raise CorruptRecord(self.channel_id, seq=record.seq, because=because)
        self._ids.add(record.envelope_id)
        self.erasures.add(envelope)
        self.seq, self.hash = record.seq, record.hash
        return envelope

    def keep(self, record: Record) -> Kept:
        """The same, with the bytes, to be appended elsewhere."""
        return keep(self.add(record), record)
