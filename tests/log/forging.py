"""Exports as an attacker writes them: chosen lines below valid hashes, counts and digests.

forgery = Forgery(content)                  an export as it is
forgery.channels["run"].append(...)         anything changed
forgery.content()                           the file, valid again
"""

from __future__ import annotations

from io import BytesIO

from msgspec.structs import replace

from turnline.core.codec import NO_HASH, SALT_BYTES, seal_all
from turnline.core.envelope import Envelope, JsonObject
from turnline.log.export_file import ExportWriter, Part, read_export


class Forgery:
    """The channels of an export, to change."""

    def __init__(self, content: bytes) -> None:
        self.channels: dict[str, list[Envelope]] = {}
        self._kept: dict[tuple[str, int], Envelope] = {}
        """The lines with their bytes: one that is not changed keeps them, its salt included."""
        for piece in read_export(BytesIO(content)):
            if isinstance(piece, Part):
                lines = self.channels.setdefault(piece.channel_id, [])
                lines += [plain(one) for one in piece.envelopes]
                self._kept |= {(one.channel_id, one.seq): one for one in piece.envelopes}

    def rename(self, channel_id: str, name: str) -> None:
        """Give a channel another id, also in its first line."""
        first, *rest = self.channels.pop(channel_id)
        first = replace(first, event_data={**first.event_data, "channel_id": name})
        self.channels[name] = [replace(one, channel_id=name) for one in (first, *rest)]

    def change_first(self, channel_id: str, **data: object) -> None:
        """Change the data of a channel's first line."""
        lines = self.channels[channel_id]
        lines[0] = replace(lines[0], event_data={**lines[0].event_data, **data})

    def change_context(self, channel_id: str, **values: object) -> None:
        """Change the context that a run begins with."""
        knobs: JsonObject = self.channels[channel_id][0].event_data["knobs"]
        context = {**knobs["context_vars"], **values}
        self.change_first(channel_id, knobs={**knobs, "context_vars": context})

    def content(self) -> bytes:
        """Return the file."""
        file = BytesIO()
        writer = ExportWriter(file.write)
        writer.begin(source="memory:", exported_at="2030-01-01T12:00:00+00:00")
        for channel_id, lines in self.channels.items():
            records = seal_all(map(self._own, lines), NO_HASH, salt=bytes(SALT_BYTES))
            writer.channel(channel_id, records=len(records), hash_=records[-1].hash)
            for record in records:
                writer.record(channel_id, record)
        writer.end()
        return file.getvalue()

    def _own(self, line: Envelope) -> Envelope:
        kept = self._kept.get((line.channel_id, line.seq))
        return line if kept is None or plain(kept) != line else kept


def plain(line: Envelope) -> Envelope:
    """Return a line without its bytes: it is sealed again."""
    return Envelope(**{name: getattr(line, name) for name in Envelope.__struct_fields__})
