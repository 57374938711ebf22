"""What the verbs of `turnline channels` do. Imported when one is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from turnline.cli import answering, lines, tables
from turnline.cli.bulk import OPERATOR, do_and_tell, filter_for, gather_pages, tell_next
from turnline.cli.open_log import looking_at, usage_of
from turnline.cli.options import Asked
from turnline.cli.plain import count_of, moment, one_line, print_json, public
from turnline.client.embedded import Hub
from turnline.client.fixture import export_channel
from turnline.core.channel import ChannelMetadata, ChannelRow
from turnline.core.envelope import JsonObject
from turnline.core.event_types import EV_TURN_FAILED
from turnline.core.state import WAITS, State, metadata_of
from turnline.core.study.wording import turns_told
from turnline.errors import BadSpec
from turnline.log.walks import EVERY, STATUSES, has_status, narrow, read_page

_VALUE_CHARACTERS: Final = 200
_NOT_RETRIED: Final = "Nothing was retried."


class Verbs:
    """The verbs, on one log."""

    def __init__(self, log: str | None, folder: Path, *, as_json: bool = False) -> None:
        self._log = log
        self._folder = folder
        self._as_json = as_json

    async def list_channels(self, asked: Asked) -> None:
        status = asked.status or ""

        async def fits(row: ChannelRow) -> bool:
            return has_status(row, status)

        async with looking_at(self._log, self._folder) as hub:
            where = narrow(await filter_for(hub, asked), STATUSES.get(status, EVERY))

            async def read(after: str, limit: int) -> tuple[list[ChannelRow], str | None]:
                page = await read_page(hub.lines, where, after=after, limit=limit, fits=fits)
                return page.rows, page.next

            rows, next_ = await gather_pages(asked, read)
            found = [listed(row, hub) for row in rows]
        if self._as_json:
            print_json({"channels": found, "next": next_})
            return
        tables.show(
            ("id", "type", "status", "turns", "lines", "created", "floor", "participants"), map(_row, found)
        )
        tell_next(next_)
        if not found:
            typer.echo("no channel is there.", err=True)

    async def close(self, channel_ids: list[str], reason: str) -> int:
        """Return the exit code: 0, 1 if a channel could not be closed."""
        async with looking_at(self._log, self._folder) as hub:

            async def close_one(channel_id: str) -> JsonObject:
                if "flow" in (await hub.state(channel_id)).spec.knobs:
                    found, expected = f"the run {channel_id!r}", "a channel; use `turnline runs cancel`"
                    raise BadSpec("channel", found=found, expected=expected, outcome="It was not closed.")
                await hub.tree.end(channel_id, reason=reason, by=OPERATOR)
                return {"result": "closed"}

            return await do_and_tell(channel_ids, close_one, as_json=self._as_json)

    async def show(self, channel_id: str, *, at: int | None, last: int, every: bool) -> None:
        async with looking_at(self._log, self._folder) as hub:
            now = await hub.state(channel_id)
            state = now if at is None else await hub.state_at(channel_id, at)
            wal = [one for one in await hub.read_wal(channel_id) if one.seq <= state.seq]
            usage, used = await usage_of(hub, channel_id)
        if self._as_json:
            told = [lines.as_json(one, state.spec) for one in (wal[-last:] if last else [])]
            context = public(state.context_vars)
            about = {**summary(metadata_of(state)), **_origin(state), "usage": usage}
            print_json({**about, "context": context, "lines": told})
            return
        for text in _told(state):
            typer.echo(text)
        typer.echo(f"used: {used}")
        teller = lines.Teller(state.spec, every=every)
        shown = [one for one in map(teller.tell, wal) if one]
        for one in shown[-last:] if last else []:
            tables.say(one)

    async def tail(self, channel_id: str, *, since: int, every: bool) -> None:
        async with looking_at(self._log, self._folder, follow=True) as hub:
            then = await hub.state_at(channel_id, max(since, 1))
            seq, spec = since, then.spec
            teller = lines.Teller(spec, floor=then.expected_next_speaker, every=every)
            while True:
                for line in await hub.read_recent(channel_id, seq):
                    seq, shown = line.seq, teller.tell(line)
                    if self._as_json:
                        typer.echo(msgspec.json.encode(lines.as_json(line, spec)).decode())
                    elif shown is not None:
                        tables.say(shown)
                if not await hub.wait_beyond(channel_id, seq):
                    return

    async def why(self, channel_id: str, seq: int | None) -> None:
        async with looking_at(self._log, self._folder) as hub:
            told = await hub.why(channel_id, seq or await last_turn(hub, channel_id))
        print_json(public(msgspec.to_builtins(told))) if self._as_json else tables.paragraph(str(told))

    async def fork(self, channel_id: str, *, at: int, by: str | None) -> None:
        async with looking_at(self._log, self._folder) as hub:
            fork_id = await hub.fork(channel_id, at=at, by=by)
            state = await hub.state(fork_id)
        self._tell_floor(state)

    def _tell_floor(self, state: State) -> None:
        """Print the channel and who has its floor."""
        if self._as_json:
            print_json({**summary(metadata_of(state)), **_origin(state)})
            return
        typer.echo(state.channel_id)
        if state.expected_next_speaker is not None:
            speaker = one_line(state.spec.name_of(state.expected_next_speaker), _VALUE_CHARACTERS)
            typer.echo(f"{speaker} has the floor; it goes on wherever {speaker} is attached.", err=True)

    async def retry(self, channel_id: str) -> None:
        async with looking_at(self._log, self._folder) as hub:
            state = await hub.state(channel_id)
            if state.is_stuck:
                await hub.turns.retry(channel_id)
                self._tell_floor(await hub.state(channel_id))
                return
            at = await before_failure(hub, channel_id)
        await self.fork(channel_id, at=at, by=None)

    async def diff(self, a: str, b: str) -> None:
        async with looking_at(self._log, self._folder) as hub:
            told = await hub.history.diff(a, b)
        if self._as_json:
            print_json({"is_same": told.is_same, **_object(public(msgspec.to_builtins(told)))})
        else:
            tables.paragraph(str(told))

    async def export(self, channel_id: str, output: Path | None) -> None:
        async with looking_at(self._log, self._folder) as hub:
            fixture = await export_channel(hub, channel_id)
        print_json(fixture, output)

    async def answer(self, channel_id: str, text: str | None, name: str | None, question: str | None) -> None:
        async with looking_at(self._log, self._folder) as hub:
            waiting = await answering.waiting(hub, channel_id, name, question)
            said = text if text is not None else answering.ask(waiting)
            line = await answering.answer(hub, waiting, said)
            state = await hub.state(channel_id)
        if self._as_json:
            print_json(lines.as_json(line, state.spec))
        elif (shown := lines.Teller(state.spec).tell(line)) is not None:
            tables.say(shown)


async def last_turn(hub: Hub, channel_id: str) -> int:
    """The last line that moved the floor; the last line, if none did."""
    wal = await hub.read_wal(channel_id)
    return next((one.seq for one in reversed(wal) if one.decision is not None), wal[-1].seq)


async def before_failure(hub: Hub, channel_id: str) -> int:
    """The line that gave the last turn which failed. Raises `BadSpec` if there is none, or it is a run's."""
    if "flow" in (await hub.state(channel_id)).spec.knobs:
        expected = "a channel; use `turnline runs retry`"
        raise BadSpec("channel", found=f"the run {channel_id!r}", expected=expected, outcome=_NOT_RETRIED)
    floor, found = 0, None
    async for line, state in hub.history.states(channel_id):
        found = floor if line.event_type == EV_TURN_FAILED else found
        floor = state.floor_seq
    if found is None:
        expected = "one with a turn that failed; `fork --at SEQ` goes on from any line"
        raise BadSpec("channel", found=repr(channel_id), expected=expected, outcome=_NOT_RETRIED)
    return found


def summary(one: ChannelMetadata) -> JsonObject:
    """What a list tells of a channel."""
    names = {member.agent_id: member.name or member.agent_id for member in one.participants}
    return {
        "channel_id": one.channel_id,
        "type": one.type,
        "status": one.status.value,
        "reason": one.close_reason,
        "turns": one.turn_count,
        "seq": one.seq,
        "floor": names.get(one.speaker_id or ""),
        "participants": list(names.values()),
        "labels": public(one.labels),
        "created_at": one.created_at.isoformat(),
        "parent_id": one.parent_id,
        "waiting_for": one.waiting_for or None,
    }


def listed(row: ChannelRow, hub: Hub) -> JsonObject:
    """Return what a list tells of a channel: what the index has, with the names that are registered."""
    names = {one: _name_of(hub, one) for one in (*row.participants, row.speaker_id) if one}
    return {
        "channel_id": row.channel_id,
        "type": row.type,
        "status": row.status.value,
        "reason": row.close_code or None,
        "turns": row.turn_count,
        "seq": row.seq,
        "floor": names.get(row.speaker_id),
        "participants": [names[one] for one in row.participants],
        "labels": public(row.labels),
        "created_at": row.created_at.isoformat(),
        "parent_id": row.parent_id or None,
        "waiting_for": row.waiting_for or None,
    }


def _name_of(hub: Hub, agent_id: str) -> str:
    known = hub.find_participant(agent_id)
    return agent_id if known is None else known.name


def _waits(told: JsonObject) -> str:
    """Return why a channel of a list has closed, or that it is stuck or rests; else nothing."""
    words = (word for word, what in WAITS.items() if what == told["waiting_for"])
    return str(told["reason"] or next(words, ""))


def _aside(one: ChannelMetadata) -> str:
    """Return why a channel has closed, or that it is stuck or rests; empty for any other open channel."""
    return one.close_reason or next((word for word, what in WAITS.items() if what == one.waiting_for), "")


def _row(told: JsonObject) -> tuple[str, ...]:
    aside = _waits(told)
    status = f"{told['status']} ({aside})" if aside else told["status"]
    created = moment(told["created_at"])
    texts = (told["channel_id"], told["type"], status, str(told["turns"]), str(told["seq"]), created)
    return tuple(
        one_line(text, _VALUE_CHARACTERS)
        for text in (*texts, told["floor"] or "", ", ".join(told["participants"]))
    )


def _origin(state: State) -> JsonObject:
    origin = state.spec.forked_from
    return {} if origin is None else {"forked_from": msgspec.to_builtins(origin)}


def _told(state: State) -> list[str]:
    found = metadata_of(state)
    told, aside = summary(found), _aside(found)
    status = f"{told['status']}: {aside}" if aside else told["status"]
    turns = turns_told(told["turns"])
    texts = [
        f"{told['channel_id']}  {told['type']}, {status}, {turns}, {count_of(told['seq'], 'line')}",
        f"participants: {', '.join(told['participants'])}",
    ]
    origin = state.spec.forked_from
    texts += [f"forked from {origin.channel} at {origin.seq}"] if origin else []
    texts += [f"the floor: {told['floor']}"] if told["floor"] else []
    for key, value in _object(public(state.context_vars)).items():
        texts.append(f"  {key} = {msgspec.json.encode(value).decode()}")
    return [
        one_line(text, _VALUE_CHARACTERS) if not text.startswith(" ") else f"  {one_line(text, 200)}"
        for text in texts
    ]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
