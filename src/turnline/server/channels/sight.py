"""Sight: what whoever asks may see of a channel, and as whom they may speak.

Rule 1: a principal is the person of its own name, never an agent: a user whose id is `flows`
is not the driver. It sees what that person is shown (`core.envelope.shown_to`) of the channels
it is on; of any other it is told what it would be told if there were none.

Rule 2: `admin` sees every channel whole, and may speak for the people on it.

Rule 3: nobody is shown what is private to the engine: keys with `_`, and a provider's own
form of a model's reply (F2).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.requests import Request

from turnline.core import event_types as ev
from turnline.core.channel import ID_PATTERN, ChannelSpec, Participant
from turnline.core.envelope import Envelope, JsonObject, shown_to
from turnline.core.questions import shown_questions
from turnline.core.state import Question, State
from turnline.core.views import context_for
from turnline.errors import ChannelQuarantined, Forbidden, UnknownChannel
from turnline.flow.context import public
from turnline.hub.texts import TurnText, is_for
from turnline.server.auth.principal import Principal
from turnline.server.house import House
from turnline.server.problems import CONFLICT, RequestRefused, not_found

_PRIVATE: Final = frozenset({"private_updates", "private_deletes"})
_MAX_ID_CHARACTERS: Final = 80


class Sight(Struct, frozen=True, kw_only=True):
    """The eyes of one principal."""

    principal: Principal
    sees_all: bool

    def may_know(self, participants: list[Participant]) -> bool:
        """Whether a channel of these participants is any business of whoever asks."""
        return self.sees_all or self._member(participants) is not None

    def shown(self, envelope: Envelope, participants: list[Participant]) -> JsonObject | None:
        """The envelope as JSON, or None if it is not for whoever asks."""
        seen = self.view(envelope, participants)
        return None if seen is None else told(seen)

    def view(self, envelope: Envelope, participants: list[Participant]) -> Envelope | None:
        """What whoever asks gets of the envelope: all, nothing, or only that they have the floor now."""
        if self.sees_all:
            return envelope
        member = self._member(participants)
        return None if member is None else shown_to(envelope, member.agent_id)

    def person(self, spec: ChannelSpec, name: str) -> Participant:
        """The person as whom to speak. Raises `Forbidden` for anybody else's name."""
        one = spec.participant(spec.names().get(name, name))
        is_own = name == self.principal.user_id or self.sees_all
        if one is None or not one.is_person or not is_own:
            because = f"on this channel they may not speak as {name[:_MAX_ID_CHARACTERS]!r}"
            raise Forbidden(
                self.principal.user_id, operation="channels.post", resource=spec.channel_id, because=because
            )
        return one

    def may_hear(self, participants: list[Participant], words: TurnText) -> bool:
        """Return whether words of a turn in flight are for the caller: the packet would be."""
        member = self._member(participants)
        return self.sees_all or (member is not None and is_for(member.agent_id, words))

    def context(self, state: State) -> JsonObject:
        """Return the context variables that the caller may see."""
        if self.sees_all:
            return public(state.context_vars)
        member = self._member(state.spec.participants)
        return {} if member is None else public(context_for(member.agent_id, state))

    def questions(self, state: State) -> dict[str, Question]:
        """Return the questions of the turn in progress that the caller may know of."""
        if self.sees_all:
            return state.questions
        member = self._member(state.spec.participants)
        return {} if member is None else shown_questions(state, member.agent_id)

    def people(self, spec: ChannelSpec) -> list[str]:
        """The names that whoever asks may speak as."""
        human = [one.name for one in spec.participants if one.is_person]
        return [name for name in human if self.sees_all or name == self.principal.user_id]

    def _member(self, participants: list[Participant]) -> Participant | None:
        named = (one for one in participants if one.name == self.principal.user_id)
        return next((one for one in named if one.is_person), None)


async def sight_of(house: House, request: Request, operation: str) -> Sight:
    """Who asks, and how much they see."""
    channel_id = request.path_params.get("channel_id", "")
    principal = await house.access.admit(request, operation, channel_id)
    return Sight(principal=principal, sees_all=_oversees(house, principal, channel_id))


async def seen(house: House, request: Request, operation: str) -> tuple[State, Sight]:
    """The channel that the path names, as it stands, and who asks for it, who may know of it."""
    sight = await sight_of(house, request, operation)
    channel_id = request.path_params["channel_id"]
    if ID_PATTERN.fullmatch(channel_id) is None:
        raise no_channel(channel_id)
    try:
        state = await house.runtime.hub.state(channel_id)
    except UnknownChannel:
        raise no_channel(channel_id) from None
    except ChannelQuarantined:
        if not sight.sees_all:
            raise no_channel(channel_id) from None
        message = f"channel {channel_id!r} cannot be read; the server's health says why."
        raise RequestRefused(CONFLICT, "quarantined", message) from None
    if not sight.may_know(state.spec.participants):
        raise no_channel(channel_id)
    return state, sight


def no_channel(channel_id: str) -> RequestRefused:
    return not_found(f"there is no channel {channel_id[:_MAX_ID_CHARACTERS]!r}.")


def told(envelope: Envelope) -> JsonObject:
    """An envelope as JSON, without what is private."""
    data: JsonObject = msgspec.to_builtins(envelope)
    data.pop("v", None)
    data.pop("traceparent", None)
    data["event_data"] = _public_data(envelope.event_type, data.get("event_data", {}))
    return data


def public_knobs(knobs: JsonObject) -> JsonObject:
    """The knobs without what a run keeps in them for itself."""
    shown = public(knobs)
    if isinstance(shown.get("flow"), dict):
        shown["flow"] = {key: shown["flow"][key] for key in ("name", "retry_of") if key in shown["flow"]}
    return shown


def _public_data(event_type: str, data: JsonObject) -> JsonObject:
    shown = {key: value for key, value in public(data).items() if key not in _PRIVATE}
    if event_type == ev.EV_CHANNEL_INVITE and isinstance(shown.get("knobs"), dict):
        shown["knobs"] = public_knobs(shown["knobs"])
    if event_type == ev.EV_TURN_MODEL and isinstance(shown.get("entry"), dict):
        shown["entry"] = {key: value for key, value in shown["entry"].items() if key != "raw"}
    for key in ("context_updates", "set"):
        value: Any = shown.get(key)
        if isinstance(value, dict):
            shown[key] = public(value)
    return shown


def _oversees(house: House, principal: Principal, channel_id: str) -> bool:
    try:
        house.access.check(principal, "channels.oversee", channel_id)
    except Forbidden:
        return False
    return True
