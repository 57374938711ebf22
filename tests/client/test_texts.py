"""The words of a turn in flight (L5): told as they come, kept nowhere."""

from __future__ import annotations

from tests.hub.scenes import A_B, House, begin, house, quiet
from turnline.agent.agent import Agent
from turnline.agent.scripted import ScriptedModel
from turnline.client.channel import Channel
from turnline.core.envelope import Envelope
from turnline.hub.texts import MAX_UNHEARD, Listening, Texts, TurnText
from turnline.log.memory import MemoryLog

SAID = "one two three"


async def bob_says(home: House, model: ScriptedModel) -> Channel:
    """A channel on which bob, an agent, has not been asked yet."""
    await home.door.register(Agent("bob", config=model), attach_plugin=False)
    return await home.open(A_B, target=["bob"])


async def heard(channel: Channel) -> list[str]:
    return [
        one.text if isinstance(one, TurnText) else one.event_type async for one in channel.stream_with_text()
    ]


async def test_l5_the_words_come_before_the_packet_they_become() -> None:
    async with house(MemoryLog(), "alice") as home:
        channel = await bob_says(home, ScriptedModel(SAID))
        listening = begin(heard(channel))
        await quiet()
        await channel.send("count to three")
        told = await listening

        words = [one for one in told if one in SAID and one]
        assert "".join(words) == SAID
        assert told.index(words[-1]) < told.index("packet") < told.index("channel.closed")


async def test_l5_the_words_are_not_on_the_log() -> None:
    async with house(MemoryLog(), "alice") as home:
        channel = await bob_says(home, ScriptedModel(SAID))
        listening = begin(heard(channel))
        await quiet()
        await channel.send("count to three")
        await listening
        log = await home.wal(channel)

        assert all(isinstance(one, Envelope) for one in log)
        assert [one.event_data.get("body") for one in log if one.event_type == "packet"] == [SAID]


async def test_nobody_listens_and_the_model_is_not_made_to_stream() -> None:
    streamed: list[bool] = []

    class Watched(ScriptedModel):
        async def reply(self, request, on_text=None):  # type: ignore[no-untyped-def]
            streamed.append(on_text is not None)
            return await super().reply(request, on_text)

    async with house(MemoryLog(), "alice") as home:
        channel = await bob_says(home, Watched(SAID))
        await channel.send("count to three")
        await channel.result(timeout=60)

        assert streamed == [False]


def test_a_listener_that_does_not_keep_up_misses_the_oldest_words_and_costs_no_more() -> None:
    texts = Texts()
    with Listening(texts, "c", bool) as listening:
        for number in range(MAX_UNHEARD + 5):
            texts.tell(TurnText(channel_id="c", agent_id="bob", text=str(number)))
        taken = listening.take()

    assert [taken[0].text, taken[-1].text] == ["5", str(MAX_UNHEARD + 4)]
    assert not texts.is_heard("c")


def test_words_reach_only_those_who_listen_to_that_channel() -> None:
    texts = Texts()
    with Listening(texts, "here", bool) as here, Listening(texts, "there", bool) as there:
        texts.tell(TurnText(channel_id="here", agent_id="bob", text="hello"))

        assert [one.text for one in here.take()] == ["hello"]
        assert there.take() == []
