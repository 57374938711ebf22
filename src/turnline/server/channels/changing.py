"""Taking part in a channel as a person, and what an operator does to one.

POST /channels/{id}/messages {"text", "as", "id"}          say something; the floor decides what it is
POST /channels/{id}/messages as a form, with `file` parts   the same, with files
POST /channels/{id}/answers  {"request_id", "answer", "as"} answer what an agent asked
POST /channels/{id}/fork     {"at"}                         a new channel with this past
POST /channels/{id}/close    {"reason"}
POST /channels/close?status=open&...  {"reason"}            those of a page of the list
POST /channels/{id}/erase    {"lines", "reason"}            the content of a closed channel; the chain stays
POST /people/{name}/forget   {"reason"}                     a person, in the directory and the audit

A message that is sent again with the same `id` is said once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnline.core import event_types as ev
from turnline.core.channel import ID_PATTERN, Participant
from turnline.core.envelope import Draft, Envelope, JsonObject
from turnline.core.state import Question, State
from turnline.errors import UnknownParticipant
from turnline.flow.fields import Problem
from turnline.server.answers import change_each, success
from turnline.server.body import json_body
from turnline.server.channels import documents
from turnline.server.channels.files import AddFile, read_message
from turnline.server.channels.listing import OPEN_WORDS, Listing, wanted
from turnline.server.channels.sight import Sight, seen, sight_of
from turnline.server.house import House
from turnline.server.limits import busy
from turnline.server.multipart import is_form
from turnline.server.operation import Operation
from turnline.server.problems import CONFLICT, CREATED, RequestRefused, invalid, not_found

WAIT_SECONDS: Final = 10.0
"""How long an interjection waits for the packet in flight."""
MAX_REASON_CHARACTERS: Final = 200
MAX_NAME_CHARACTERS: Final = 128
"""Of a person's name, as far as an answer repeats it."""
MAX_RANGES: Final = 1_000
"""Ranges of lines that one request erases."""


class ChannelChanges:
    """The operations that write."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._listing = Listing(house)

    async def say(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.post")
        settings, hub = self._house.settings, self._house.runtime.hub

        def speaker(body: Mapping[str, str]) -> str:
            _id(body.get("id"))
            return sight.person(state.spec, body.get("as") or _speaker(state, sight)).agent_id

        def begin(body: Mapping[str, str]) -> AddFile:
            return partial(hub.files.add, state.channel_id, speaker(body), user=sight.principal.user_id)

        if is_form(request):
            body, data = await read_message(request, settings, begin)
        else:
            body = dict(_texts(await json_body(request, settings), needed=("text",), more=("as", "id")))
            data = {"text": body["text"]}
        draft = Draft(
            envelope_id=body.get("id") or hub.new_id(),
            sender_id=speaker(body),
            event_type=ev.EV_TEXT,
            event_data=data,
        )
        return success(_landed(await self._post(state, draft)), status=CREATED)

    async def answer(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.post")
        body = _texts(
            await json_body(request, self._house.settings), needed=("request_id", "answer"), more=("as",)
        )
        question = sight.questions(state).get(body["request_id"])
        if question is None:
            return success(_landed((await self._find_answer(state, sight, body),)), status=CREATED)
        if question.group:
            _refuse_run(state, "answer its task with POST /tasks/{id}/answer")
        name = body.get("as") or _answerer(state, sight, question)
        draft = _draft_answer(sight, sight.person(state.spec, name), body)
        return success(_landed(await self._post(state, draft)), status=CREATED)

    async def _find_answer(self, state: State, sight: Sight, body: Mapping[str, str]) -> Envelope:
        """Return an answer of the caller that is on the log, for it was sent again after its turn ended."""
        names = sight.people(state.spec)
        for name in names if "as" not in body else {body["as"]} & set(names):
            draft = _draft_answer(sight, sight.person(state.spec, name), body)
            found = await self._house.runtime.hub.lines.find(state.channel_id, draft.envelope_id)
            if found is not None:
                return found
        asked = body["request_id"][:64]
        raise not_found(f"no question {asked!r} is open on channel {state.channel_id!r}.")

    async def fork(self, request: Request) -> Response:
        """Fork a channel. The fork of a run is of the caller, as if they had started it."""
        state, sight = await seen(self._house, request, "channels.fork")
        at = _line(await json_body(request, self._house.settings), state.seq)
        by = None if sight.sees_all else sight.principal.user_id
        if "flow" in state.spec.knobs:
            made = await self._fork_run(state, at, sight)
        else:
            made = await self._house.runtime.hub.fork(state.channel_id, at=at, by=by, user=by or "")
        return success({"channel_id": made, "forked_from": state.channel_id, "at": at}, status=CREATED)

    async def _fork_run(self, state: State, at: int, sight: Sight) -> str:
        who, runtime = sight.principal, self._house.runtime
        self._house.access.check(who, "runs.fork", state.channel_id)
        flow = await self._house.access.check_start_again(who, state.channel_id)
        with runtime.open_runs.starting(flow.name, who.user_id):
            made = await runtime.hub.fork(state.channel_id, at=at, private={"_user_id": who.user_id})
            row = await runtime.hub.lines.row(made)
            assert row is not None  # It was written with the fork.
            runtime.open_runs.take_over(row)
        return made

    async def close(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.close")
        body = _texts(await json_body(request, self._house.settings), more=("reason",))
        _refuse_run(state, "cancel it with POST /runs/{id}/cancel")
        reason, by = body.get("reason") or "closed", sight.principal.user_id
        lines = await self._house.runtime.hub.tree.end(state.channel_id, reason=reason, by=by)
        return success(_landed(lines))

    async def close_page(self, request: Request) -> Response:
        """Close the open channels of a page: each as `close` does, if the caller may.

        Runs, and channels that another channel opened, are left out: they close with what opened them.
        """
        sight = await sight_of(self._house, request, "channels.list")
        who, hub = sight.principal, self._house.runtime.hub
        self._house.access.check(who, "channels.close")
        asked = await wanted(request, hub)
        if asked.where.is_closed is not False:
            raise invalid([Problem(("query", "status"), f"expected one of {', '.join(OPEN_WORDS)}")])
        body = _texts(await json_body(request, self._house.settings), more=("reason",))

        async def close_one(channel_id: str) -> JsonObject:
            self._house.access.check(who, "channels.close", channel_id)
            reason = body.get("reason") or "closed"
            await hub.tree.end(channel_id, reason=reason, by=who.user_id)
            return {"result": "closed"}

        page = await self._listing.rows(asked, sight)
        ids = [row.channel_id for row in page.rows if not row.flow and not row.parent_id]
        done = await change_each(request, ids, close_one, hub.new_id)
        return success({"channels": done, "next": page.next})

    async def erase(self, request: Request) -> Response:
        state, sight = await seen(self._house, request, "channels.erase")
        body = dict(await json_body(request, self._house.settings))
        lines = _ranges(body.pop("lines", None), state.seq)
        reason = _texts(body, more=("reason",)).get("reason") or "requested"
        by = sight.principal.user_id
        done = await self._house.runtime.hub.erase(state.channel_id, by=by, lines=lines, reason=reason)
        return success({"channels": done.channels})

    async def forget(self, request: Request) -> Response:
        """Forget a person: oneself, or, with the scope of an operator, anybody."""
        name = request.path_params["name"]
        principal = await self._house.access.admit(request, "people.forget", name[:MAX_NAME_CHARACTERS])
        if name != principal.user_id:
            self._house.access.check(principal, "channels.oversee", name[:MAX_NAME_CHARACTERS])
        body = _texts(await json_body(request, self._house.settings), more=("reason",))
        reason = body.get("reason") or "requested"
        try:
            done = await self._house.runtime.hub.forget(name, by=principal.user_id, reason=reason)
        except UnknownParticipant:
            raise not_found(f"no person {name[:MAX_NAME_CHARACTERS]!r} is registered.") from None
        return success({"channels": done.channels})

    async def _post(self, state: State, draft: Draft) -> tuple[Envelope, ...]:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await self._house.runtime.hub.post(state.channel_id, draft)
        except TimeoutError:
            raise busy("somebody is still working on the turn", 1) from None

    def operations(self) -> list[Operation]:
        return documents.to_change(self)


def _draft_answer(sight: Sight, person: Participant, body: Mapping[str, str]) -> Draft:
    """Return the answer. Its id follows from it: sent again it gets the first result, another is refused."""
    sender, data = person.agent_id, {"request_id": body["request_id"], "answer": body["answer"]}
    if person.name != sight.principal.user_id:  # An admin answers for a person: the line names both.
        sender, data = ev.HUB, {**data, "by": sight.principal.user_id, "for": person.agent_id}
    text = msgspec.json.encode([sender, data], order="sorted")
    return Draft(
        envelope_id=f"said-{blake2b(text, digest_size=20).hexdigest()}",
        sender_id=sender,
        event_type=ev.EV_HUMAN_ANSWERED,
        event_data=data,
    )


def _speaker(state: State, sight: Sight) -> str:
    """As whom somebody speaks who does not say: whoever has the floor, else themselves."""
    names = sight.people(state.spec)
    floor = state.spec.participant(state.expected_next_speaker or "")
    if floor is not None and floor.name in names:
        return floor.name
    return names[0] if len(names) == 1 else sight.principal.user_id


def _answerer(state: State, sight: Sight, question: Question) -> str:
    """Return for which person a caller answers who names none: the only one they may be, or themselves."""
    asked = [one.name for one in state.spec.participants if one.agent_id in question.people]
    names = [name for name in sight.people(state.spec) if name in asked]
    return names[0] if len(names) == 1 else sight.principal.user_id


def _landed(lines: tuple[Envelope, ...]) -> JsonObject:
    return {"seq": lines[0].seq, "envelope_id": lines[0].envelope_id, "head": lines[-1].seq}


def _refuse_run(state: State, do: str) -> None:
    if "flow" in state.spec.knobs:
        raise RequestRefused(CONFLICT, "conflict", f"channel {state.channel_id!r} is a run; {do}.")


def _texts(
    body: JsonObject, *, needed: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> Mapping[str, str]:
    """The fields of a body that has texts alone."""
    problems = [Problem(("body", key), "no such field") for key in body if key not in (*needed, *more)]
    for key in (*needed, *more):
        value = body.get(key)
        if not isinstance(value, str) if key in needed else not isinstance(value, str | None):
            problems.append(Problem(("body", key), "expected text"))
    if len(str(body.get("reason") or "")) > MAX_REASON_CHARACTERS:
        problems.append(Problem(("body", "reason"), f"expected at most {MAX_REASON_CHARACTERS} characters"))
    if problems:
        raise invalid(problems)
    return {key: value for key, value in body.items() if isinstance(value, str)}


def _ranges(value: object, head: int) -> list[tuple[int, int]] | None:
    """Return the first and the last line of each range; None: the whole channel."""
    if value is None:
        return None
    found = [(one[0], one[1]) for one in value if _is_range(one)] if isinstance(value, list) else []
    if not isinstance(value, list) or not found or len(found) != len(value) or len(found) > MAX_RANGES:
        expected = f"expected at most {MAX_RANGES} pairs of lines from 1 to {head}, such as [[4, 4], [7, 9]]"
        raise invalid([Problem(("body", "lines"), expected)])
    return found


def _is_range(value: object) -> bool:
    pair = value if isinstance(value, list) and len(value) == 2 else []  # noqa: PLR2004  Its first, its last.
    return bool(pair) and all(isinstance(one, int) and not isinstance(one, bool) for one in pair)


def _line(body: JsonObject, head: int) -> int:
    problems = [Problem(("body", key), "no such field") for key in body if key != "at"]
    at = body.get("at")
    if not isinstance(at, int) or isinstance(at, bool) or not 1 <= at <= head:
        problems.append(Problem(("body", "at"), f"expected the number of a line, from 1 to {head}"))
    if problems or not isinstance(at, int):
        raise invalid(problems)
    return at


def _id(given: str | None) -> str:
    if given and ID_PATTERN.fullmatch(given) is None:
        raise invalid([Problem(("body", "id"), "expected 1 to 64 of A-Z, a-z, 0-9, _ and -")])
    return given or ""
