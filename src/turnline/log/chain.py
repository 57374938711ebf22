"""The chain of one channel, followed record by record.

Rule: a record that comes out of here is the one that was written: at its place, behind its
predecessor, under its own name, and only once.
"""

from __future__ import annotations

from turnline.core.codec import NO_HASH, Kept, Record, unseal
from turnline.core.envelope import Envelope
from turnline.errors import CorruptRecord


class Chain:
    """A channel as far as it was followed."""

    def __init__(self, channel_id: str) -> None:
        self.channel_id = channel_id
        self.seq = 0
        self.hash = NO_HASH
        self._ids: set[str] = set()

    def add(self, record: Record) -> Envelope:
        """Return the envelope of the next record. Raises `CorruptRecord` if it is not the next one."""
        envelope = unseal(self.channel_id, record, previous=self.hash, seq=self.seq + 1)
        found = (envelope.channel_id, envelope.seq, envelope.envelope_id)
        expected = (self.channel_id, record.seq, record.envelope_id)
        if found != expected:
            raise self._damage(f"found the envelope {found}, expected {expected}")
        if record.envelope_id in self._ids:
            raise self._damage(f"found the id {record.envelope_id!r}, which an earlier one has")
        self._ids.add(record.envelope_id)
        self.seq, self.hash = record.seq, record.hash
        return envelope

    def keep(self, record: Record) -> Kept:
        """The same, with the bytes, to be appended elsewhere."""
        envelope = self.add(record)
        fields = {name: getattr(envelope, name) for name in Envelope.__struct_fields__}
        return Kept(**fields, body=record.body)

    def _damage(self, because: str) -> CorruptRecord:
        return CorruptRecord(self.channel_id, seq=self.seq + 1, because=because)
