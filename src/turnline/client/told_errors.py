"""Errors that cross a link: the hub's own, with their facts, as the class they are.

Rule 1: only what stands in the table crosses, and of it only the facts that are listed. Of
anything else the other side is told that something failed, without its text.

Rule 2: what is said of the log and of the code around the hub has a fixed text: paths,
addresses and other people's exceptions are nobody's business outside.
"""

from __future__ import annotations

from typing import Final

from turnline import errors as e
from turnline.client.frames import Told
from turnline.errors import LogError, RemoteFailed, TurnlineError

_Listed = tuple[str, ...]

_DRAFT: Final = ("field", "found", "expected")
_FLOOR: Final = ("channel_id", "sender", "speaker")
_OPEN: Final = ("channel_id", "reason")
_NAME: Final = ("what", "name", "known")

_FACTS: Final[dict[type[TurnlineError], _Listed]] = {
    e.BadDraft: _DRAFT,
    e.FileTooLarge: _DRAFT,
    e.ReservedEventType: ("event_type", "sender"),
    e.NotParticipant: ("channel_id", "sender", "participants"),
    e.ChannelPending: ("channel_id", "awaiting"),
    e.ChannelClosed: _OPEN,
    e.PastErased: ("channel_id", "at"),
    e.ChannelBusy: ("channel_id", "waiting"),
    e.OutOfTurn: _FLOOR,
    e.NotYet: _FLOOR,
    e.TurnTaken: ("channel_id", "turn", "worker"),
    e.ClaimLost: ("channel_id", "claim", "live"),
    e.ContextMismatch: ("channel_id", "key", "expected", "found"),
    e.BadTarget: ("target", "named", "participants"),
    e.RoutingFailed: ("what", "index"),
    e.NotDue: ("channel_id", "timer"),
    e.NotStuck: ("channel_id",),
    e.TurnStuck: ("channel_id", "speaker"),
    e.AlreadyAsked: ("channel_id", "call", "position"),
    e.TooManyQuestions: ("channel_id", "limit"),
    e.TooManyPauses: ("channel_id", "limit"),
    e.UnknownQuestion: ("channel_id", "request_id"),
    e.NotAsked: ("channel_id", "sender"),
    e.AlreadyAnswered: ("channel_id", "request_id"),
    e.QuestionExpired: ("channel_id", "request_id"),
    e.EnvelopeIdReused: ("channel_id", "envelope_id", "seq"),
    e.Denied: ("who", "what", "because"),
    e.NestedTooDeep: ("channel_id", "depth", "limit"),
    e.TooManyRuns: ("channel_id", "limit"),
    e.OpenFailed: _OPEN,
    e.InviteRejected: (*_OPEN, "agent_id", "name", "because"),
    e.InviteTimeout: (*_OPEN, "awaiting", "names", "seconds"),
    e.BadSpec: _DRAFT,
    e.BadGraph: _DRAFT,
    e.BadExpression: ("text", "because"),
    e.UnknownName: _NAME,
    e.UnknownParticipant: _NAME,
    e.UnknownChannel: _NAME,
    e.UnknownFile: ("channel_id", "seq", "index"),
    e.ChannelPruned: _NAME,
    e.NameTaken: ("what", "name", "taken"),
    e.ChannelQuarantined: ("channel_id",),
    e.ClientClosed: ("name",),
    e.HubClosed: (),
    e.DelegationCycle: ("cycle",),
    e.Unauthenticated: ("because",),
    e.Forbidden: ("user_id", "operation", "resource", "because"),
    e.AccessBusy: ("because",),
    e.LinkLost: ("because",),
    e.BadFrame: ("because",),
    e.RemoteFailed: ("because",),
    e.LogConflict: ("channel_id", "after", "found"),
    e.LogUnavailable: (),
    e.LogError: (),
}
"""Class -> the facts of it that cross."""

FIXED_TEXTS: Final[dict[type[TurnlineError], str]] = {
    e.RoutingFailed: "a condition or target of the channel's graph raised. The turn was not accepted.",
    e.ChannelQuarantined: "the channel cannot be read; the hub's own log says why. Others are not affected.",
    e.LogUnavailable: "the hub's log cannot be used at the moment; try again.",
    e.LogError: "the hub's log did not do what it was asked; try again.",
}
"""Class -> what callers outside of the process read instead of its own text."""
_SEQUENCES: Final = frozenset({"participants", "awaiting", "names", "known", "cycle"})
"""Facts that are tuples, which JSON has not."""
_BY_NAME: Final = {kind.__name__: kind for kind in _FACTS}
_GIVE_TOKEN: Final = "Give the link a valid token: WsLink(URL, token=TOKEN)."
_SOMETHING: Final = "its own log says what is wrong"


def told(error: BaseException) -> Told:
    """Return what the other side is told of `error`."""
    if isinstance(error, e.Unauthenticated):  # Its own text is for callers over HTTP.
        error = e.Unauthenticated(error.because, do=_GIVE_TOKEN)
    kind = next((one for one in type(error).__mro__ if one in _FACTS), None)
    if kind is None:
        return told(RemoteFailed(_SOMETHING))
    facts = {name: getattr(error, name, None) for name in _FACTS[kind]}
    return Told(type=kind.__name__, message=FIXED_TEXTS.get(kind, str(error)), facts=facts)


def raised(said: Told) -> TurnlineError:
    """Return the error that the other side told of, to be raised here."""
    kind = _BY_NAME.get(said.type)
    if kind is None:
        return RemoteFailed(_SOMETHING)
    error = kind.__new__(kind, said.message)
    for name in _FACTS[kind]:
        fact = said.facts.get(name)
        setattr(error, name, tuple(fact) if name in _SEQUENCES and isinstance(fact, list) else fact)
    if isinstance(error, e.ChannelQuarantined):
        error.cause = LogError("the hub's own log says why")
    if isinstance(error, e.LogUnavailable):
        error.address, error.because = "the hub's log", "it cannot be used at the moment"
    return error
