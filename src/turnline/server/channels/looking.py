"""Looking at channels: the list, one of them, its lines, and how it stood at any of them.

GET /channels?status=&since=&until=&label=&participant=&flow=&type=&kind=&text=&after=&limit=
GET /channels/{id}                       GET /channels/{id}/envelopes?after=|before=&limit=&text=
GET /channels/{id}/state?seq=            GET /channels/{id}/envelopes/{seq}/why
GET /channels/{id}/usage                 GET /channels/{id}/stream?after=
GET /channels/{id}/envelopes/{seq}/files/{index}
GET /channels/{id}/children?limit=
GET /channels/events                     what happens on any of them, to know when to look again
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnline.core import event_types as ev
from turnline.core.envelope import JsonObject
from turnline.core.state import State
from turnline.flow.context import public
from turnline.server.answers import success
from turnline.server.channels import documents
from turnline.server.channels.files import serve_file
from turnline.server.channels.listing import Listing, wanted
from turnline.server.channels.picture import channel_picture
from turnline.server.channels.reading import found_lines, lines_wanted, page_of, seq_of
from turnline.server.channels.shown import at_line, whole
from turnline.server.channels.sight import Sight, seen, sight_of
from turnline.server.channels.stream import ChannelStreams
from turnline.server.channels.usage import usage_of
from turnline.server.house import House
from turnline.server.operation import Operation
from turnline.server.parameters import page_size
from turnline.server.problems import not_found

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Of the lines in one answer, about; at least one line is given, and `last` says how far they go."""


class ChannelRoutes:
    """The operations that only look."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._listing = Listing(house)
        self._streams = ChannelStreams(house)

    async def list_channels(self, request: Request) -> Response:
        sight = await sight_of(self._house, request, "channels.list")
        page = await self._listing.page(await wanted(request, self._house.runtime.hub), sight)
        return success({"channels": page.rows, "next": page.next})

    async def search(self, request: Request) -> Response:
        sight = await sight_of(self._house, request, "channels.list")
        page = await self._listing.search(await wanted(request, self._house.runtime.hub), sight)
        return success({"found": page.rows, "next": page.next})

    async def read(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.read")
        told = whole(state, sight)
        told["graph"] = (await channel_picture(state, self._house.runtime.runs)).to_dict()
        told["questions"] = await self._questions(state, sight)
        told["speaks_as"] = sight.people(state.spec)
        told["error"] = told["error"] or await self._error(state, sight)
        return success(told)

    async def children(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.read")
        rows = await self._listing.children(state.channel_id, sight, page_size(request))
        return success({"channels": rows, "count": state.children})

    async def envelopes(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.read")
        asked = lines_wanted(request, state.seq)
        hub = self._house.runtime.hub
        if asked.text:
            members = state.spec.participants
            found, last = await found_lines(hub, state.channel_id, members, sight, asked)
            page = {"envelopes": found, "first": asked.after + 1, "last": last, "head": state.seq}
        else:
            lines = await hub.read_page(state.channel_id, asked.after, asked.limit, most_bytes=ANSWER_BYTES)
            page = page_of(lines, state, sight, asked.after)
        return success(page)

    async def state(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.read")
        seq = seq_of(request.query_params.get("seq", str(state.seq)), "query", state.seq)
        if seq == state.seq:
            return success(at_line(state, sight))
        return success(at_line(await self._house.runtime.hub.state_at(state.channel_id, seq), sight))

    async def why(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.read")
        seq = seq_of(request.path_params["seq"], "path", state.seq)
        hub = self._house.runtime.hub
        shows_rules = await self._check_line(state, sight, seq)
        told: JsonObject = msgspec.to_builtins(await hub.why(state.channel_id, seq))
        return success(told if shows_rules else {**told, "rules": [], "differs": ""})

    async def read_file(self, request: Request) -> Response:
        return await serve_file(self._house, request)

    async def usage(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.read")
        return success(await usage_of(self._house.runtime.hub, state, sight))

    async def stream(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.stream")
        return self._streams.of_channel(request, state, sight)

    async def events(self, request: Request) -> Response:
        sight = await sight_of(self._house, request, "channels.stream")
        return await self._streams.of_all(request, sight)

    async def _check_line(self, state: State, sight: Sight, seq: int) -> bool:
        """Refuse a line that is not for the caller as if it were not there.

        Return whether they may see all that decided: the whole line, and every context variable.
        """
        hub = self._house.runtime.hub
        lines = await hub.read_page(state.channel_id, seq - 1, 1)
        view = sight.view(lines[0], state.spec.participants) if lines else None
        if view is None:
            raise not_found(f"there is no line {seq} on channel {state.channel_id!r}.")
        if sight.sees_all or view != lines[0]:
            return sight.sees_all
        then = await hub.state_at(state.channel_id, seq)
        return sight.context(then) == public(then.context_vars)

    async def _error(self, state: State, sight: Sight) -> JsonObject | None:
        """Return why the last turn failed, where that ended the channel or let it rest."""
        if not (state.is_over or state.is_resting) or state.last_envelope_id is None:
            return None
        line = await self._house.runtime.hub.lines.find(state.channel_id, state.last_envelope_id)
        if line is None or line.event_type != ev.EV_TURN_FAILED:
            return None
        shown = sight.view(line, state.spec.participants)
        error = None if shown is None else shown.event_data.get("error")
        speaker = state.spec.name_of(str(line.event_data.get("agent_id", "")))
        return {**error, "speaker": speaker} if isinstance(error, dict) else None

    async def _questions(self, state: State, sight: Sight) -> Sequence[JsonObject]:
        """Return what people were asked in the turn in progress, and have not answered."""
        asked = sight.questions(state)
        open_ = {one.seq: key for key, one in asked.items() if not one.answer_seq}
        if not open_:
            return []
        lines = await self._house.runtime.hub.read_recent(state.channel_id, min(open_) - 1)
        return [
            {
                "request_id": open_[line.seq],
                "question": str(line.event_data.get("question", "")),
                "seq": line.seq,
                "agent_id": line.sender_id,
                "group": asked[open_[line.seq]].group,
            }
            for line in lines
            if line.seq in open_
        ]

    def operations(self) -> list[Operation]:
        return documents.to_look(self)
