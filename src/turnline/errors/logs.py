"""A log that did not do what it was asked."""

from __future__ import annotations

from turnline.errors.base import TurnlineError


class LogError(TurnlineError):
    """The log did not do what it was asked."""


class LogConflict(LogError):
    """Somebody appended to the channel first; read, fold and decide again."""

    def __init__(self, channel_id: str, *, after: int, found: int) -> None:
        self.channel_id = channel_id
        self.after = after
        self.found = found
        super().__init__(f"channel {channel_id!r} is at seq {found}, not {after}.")


class DuplicateEnvelope(LogError):
    """The channel has an envelope with this id already; nothing was written."""

    def __init__(self, channel_id: str, *, envelope_id: str) -> None:
        self.channel_id = channel_id
        self.envelope_id = envelope_id
        super().__init__(f"channel {channel_id!r} has an envelope {envelope_id!r} already.")


class CorruptRecord(LogError):
    """Bytes on the log are not what was written."""

    def __init__(self, channel_id: str, *, seq: int, because: str) -> None:
        self.channel_id = channel_id
        self.seq = seq
        self.because = because
        super().__init__(
            f"record {seq} of channel {channel_id!r} is damaged: {because}. Restore it from a backup."
        )


class LogUnavailable(LogError):
    """The storage failed; nothing is known to be written."""

    what = "log"

    def __init__(self, address: str, *, because: str) -> None:
        self.address = address
        self.because = because
        super().__init__(f"the {self.what} at {address} cannot be used: {because}.")


class BadExport(LogError):
    """A file is not an export of a log, or not all of one."""

    def __init__(self, line: int, *, because: str) -> None:
        self.line = line
        self.because = because
        super().__init__(f"line {line} of the export is damaged: {because}. Export the log again.")


class OriginInUse(LogError):
    """A fork reads lines of a channel that was to be pruned; nothing was pruned."""

    def __init__(self, channel_id: str, *, fork: str) -> None:
        self.channel_id = channel_id
        self.fork = fork
        super().__init__(f"channel {channel_id!r} stays: its fork {fork!r} reads its lines.")


class PruneRefused(LogError):
    """A prune cannot be done as it was asked; nothing was deleted."""

    def __init__(self, because: str) -> None:
        self.because = because
        super().__init__(f"nothing was pruned: {because}.")


class ImportRefused(LogError):
    """An import cannot take a channel, or the rest of one."""

    def __init__(self, message: str, *, channel_id: str, seq: int) -> None:
        self.channel_id = channel_id
        self.seq = seq
        """The first record that was not written."""
        super().__init__(message)


class ChannelDiffers(ImportRefused):
    """The log has the channel already, with something else on it; nothing was written."""

    def __init__(self, channel_id: str, *, seq: int, found: str, expected: str) -> None:
        super().__init__(
            f"channel {channel_id!r} is there already, and differs at seq {seq}: found {found}, expected "
            f"{expected}. Import into an empty log, or leave this channel out with --channel.",
            channel_id=channel_id,
            seq=seq,
        )


class ArchiveDiffers(ImportRefused):
    """A file has other lines of a pruned channel than those that were pruned; nothing was written."""

    def __init__(self, channel_id: str, *, seq: int, found: str, expected: str) -> None:
        super().__init__(
            f"channel {channel_id!r} was pruned from this log, and the file does not have it as it was: "
            f"found {found}, expected {expected}. Import the archive that was written when it was pruned.",
            channel_id=channel_id,
            seq=seq,
        )


class ChannelGuarded(ImportRefused):
    """The channel is of this log, or says so, and the file is not trusted; nothing was written."""

    def __init__(self, channel_id: str, *, seq: int) -> None:
        super().__init__(
            f"channel {channel_id!r} belongs to this log or to a run that is trusted here. The log does not "
            f"have record {seq} of the file. If you trust the file, import it with --trust --dir PROJECT.",
            channel_id=channel_id,
            seq=seq,
        )
