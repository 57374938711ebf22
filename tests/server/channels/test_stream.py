"""Channels as they go on: lines and words of one, the heads of all."""

from __future__ import annotations

import asyncio
import json

from tests.server.stage import PEOPLE, Listening
from turnline.client.turn import Turn
from turnline.core.envelope import JsonObject
from turnline.core.governance import Passport
from turnline.core.graph import TransitionGraph
from turnline.core.routing import packet
from turnline.core.transitions import TerminateTarget
from turnline.server.auth.principal import Principal

from .scene import Scene, scene


def told(pieces: list[str]) -> list[tuple[str, JsonObject]]:
    """The events of a stream: their names and data."""
    found = []
    for piece in pieces:
        fields = dict(line.split(": ", 1) for line in piece.strip().splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


async def followed(stage: Scene, channel: str, *, token: str = "root", **headers: str) -> Listening:
    listening = Listening(stage.server.app, f"/channels/{channel}/stream", token=token, **headers)
    assert (await listening.next()).startswith(":")
    return listening


async def test_lines_come_as_they_are_written_and_the_stream_ends_with_the_channel() -> None:
    async with scene("Hello.") as stage:
        channel = await stage.open()
        stream = await followed(stage, channel)
        await stage.server.post(f"/channels/{channel}/messages", {"text": "Hi"}, token="carol")
        await stage.until(channel, lambda state: state.turn_count == 2)
        await stage.server.post(f"/channels/{channel}/close", {})
        events = told(await stream.rest())
        lines = await stage.lines(channel)

    envelopes = [data for name, data in events if name == "envelope"]
    assert envelopes == lines
    assert "".join(data["text"] for name, data in events if name == "words") == "Hello."


async def test_words_come_before_the_packet_that_holds_them() -> None:
    async with scene("One two three.") as stage:
        channel = await stage.open()
        stream = await followed(stage, channel)
        await stage.server.post(f"/channels/{channel}/messages", {"text": "Hi"}, token="carol")
        events: list[tuple[str, JsonObject]] = []
        while not events or events[-1][1].get("event_type") != "packet":
            events += told([await stream.next()])
        await stream.close()

    names = [name for name, _ in events]
    assert names.index("words") < len(names) - 1


async def test_words_of_a_packet_are_streamed_to_its_audience_only() -> None:
    graph = TransitionGraph("whisperer", [], TerminateTarget("done"))
    let = asyncio.Event()

    async def whisper(turn: Turn) -> JsonObject:
        turn.audience = ["carol"]
        await let.wait()
        await turn.tell("psst")
        return packet("psst")

    async with scene() as stage:
        whisperer = await stage.hub.register(None, Passport(name="whisperer"))
        whisperer.on_turn(whisper)
        knobs = {"graph": graph.to_dict()}
        channel = (await stage.people["carol"].open("workflow", ["whisperer", "dave"], knobs)).channel_id
        streams = {who: await followed(stage, channel, token=who) for who in ("root", "carol", "dave")}
        let.set()
        heard = {who: told(await stream.rest()) for who, stream in streams.items()}

    words = {who: [data["text"] for name, data in events if name == "words"] for who, events in heard.items()}
    assert words == {"root": ["psst"], "carol": ["psst"], "dave": []}
    assert "psst" not in str(heard["dave"])


async def test_a_stream_goes_on_behind_the_last_line_seen() -> None:
    async with scene("Hello.") as stage:
        channel = await stage.open("Hi")
        await stage.server.post(f"/channels/{channel}/close", {})
        head = (await stage.hub.state(channel)).seq
        stream = await followed(stage, channel, Last_Event_ID=str(head - 1))
        events = told(await stream.rest())
        over = await stage.server.get(f"/channels/{channel}/stream", Last_Event_ID=str(head))

    assert [data["seq"] for _, data in events] == [head]
    assert over.status_code == 204


async def test_a_member_is_told_of_a_line_that_is_not_for_it_only_that_it_was_written() -> None:
    async with scene("Hello.") as stage:
        channel = await stage.open(target=["helper", "dave"])
        carol = stage.people["carol"].channel(channel)
        await carol.send("between us", audience=["helper"], interject=True)
        await stage.server.post(f"/channels/{channel}/close", {})
        stream = await followed(stage, channel, token="dave")
        events = told(await stream.rest())
        head = (await stage.hub.state(channel)).seq

    assert "between us" not in str(events)
    assert [data["seq"] for _, data in events] == list(range(1, head + 1))
    assert all(data.keys() == {"seq"} for name, data in events if name == "passed")


async def test_a_stream_ends_when_the_token_does() -> None:
    async with scene("Hello.") as stage:
        channel = await stage.open()
        now = stage.server.clock.now()
        PEOPLE["brief"] = Principal(
            user_id="brief", scopes=frozenset({"*"}), expires_at=now.replace(year=2031)
        )
        try:
            stream = await followed(stage, channel, token="brief")
            while told([await stream.next()])[0][1]["event_type"] != "channel.opened":
                pass
            stage.server.clock.advance(400 * 24 * 3600)
            await stage.people["carol"].channel(channel).send("too late")
            rest = [piece for piece in await stream.rest() if "too late" in piece]
        finally:
            del PEOPLE["brief"]

    assert rest == []


async def test_the_stream_of_all_tells_which_channel_something_happened_on() -> None:
    async with scene("Hello.") as stage:
        before = await stage.open()
        root = Listening(stage.server.app, "/channels/events")
        dave = Listening(stage.server.app, "/channels/events", token="dave")
        assert (await root.next()).startswith(":")
        assert (await dave.next()).startswith(":")
        hers = await stage.open()
        shared = (await stage.people["carol"].open(type="conversation", target="dave")).channel_id
        to_dave = told([await dave.next()])[0][1]["channel_id"]
        to_root = set[str]()
        while not {hers, shared} <= to_root:
            to_root |= {data["channel_id"] for _, data in told([await root.next()])}
        await asyncio.gather(root.close(), dave.close())

    assert to_dave == shared
    assert before not in to_root
