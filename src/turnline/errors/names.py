"""A name nobody knows, or that somebody has already."""

from __future__ import annotations

from collections.abc import Iterable

from turnline.errors.base import TurnlineError, hint


class UnknownName(TurnlineError):
    """A registry was asked for a name nobody registered."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, do: str = "") -> None:
        self.what = what
        self.name = name
        self.known = tuple(sorted(known))
        listed = ", ".join(self.known) or "none"
        told = f"no {what} is known as {name!r}; known: {listed}.{hint(name, self.known)}"
        super().__init__(f"{told} {do}".rstrip())


class UnknownParticipant(UnknownName):
    """Nobody is registered under this id or name."""

    def __init__(self, name: str, known: Iterable[str], *, what: str = "participant") -> None:
        super().__init__(what, name, known, do="Register it first, or use one of these.")


class UnknownChannel(UnknownName):
    """No channel has this id."""

    def __init__(self, channel_id: str) -> None:
        TurnlineError.__init__(
            self,
            f"no channel {channel_id!r} is on this log; `turnline channels list` or `hub.list_channels()` "
            "lists them.",
        )
        self.what, self.name, self.known = "channel", channel_id, ()


class UnknownFile(TurnlineError):
    """A line has no such file."""

    def __init__(self, channel_id: str, *, seq: int, index: int) -> None:
        self.channel_id = channel_id
        self.seq = seq
        self.index = index
        super().__init__(f"line {seq} of channel {channel_id!r} has no file {index}. It may be erased.")


class ChannelPruned(UnknownChannel):
    """The channel was on this log and was pruned. Its id is never used again."""

    def __init__(self, channel_id: str) -> None:
        TurnlineError.__init__(
            self,
            f"Channel {channel_id!r} was pruned: only its id is left on this log, and it cannot be opened "
            "again. Import its archive with `turnline log import`, or choose another id.",
        )
        self.what, self.name, self.known = "channel", channel_id, ()


class NameTaken(TurnlineError):
    """A name that is registered or attached already."""

    def __init__(self, what: str, name: str, *, do: str, taken: str = "") -> None:
        self.what = what
        self.name = name
        self.taken = taken or name
        """The registered name: `name` itself, or the one that it looks like."""
        super().__init__(f"the {what} {name!r} is taken. {do}")
