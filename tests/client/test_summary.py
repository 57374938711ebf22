"""Summaries (W10): what fell out of an agent's window, summed up by its own model, paid once."""

from __future__ import annotations

from tests.client.stage import played, stage
from tests.hub.scenes import House
from turnline.agent.agent import Agent
from turnline.agent.messages import ModelReply, Usage
from turnline.agent.model import ModelRequest, OnText
from turnline.agent.scripted import ScriptedModel
from turnline.client.channel import Channel
from turnline.core.graph import round_robin
from turnline.core.routing import packet
from turnline.log.memory import MemoryLog

WINDOW = 6
"""Of three participants."""
TURNS = 40


class Writer(ScriptedModel):
    """Sums up where it is asked to, and otherwise says how often it has spoken."""

    def __init__(self, word: str = "line") -> None:
        super().__init__("unused")
        self.word = word
        self.summaries = 0
        self.summed_up: list[str] = []
        self.asked: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        if request.instructions.startswith("Sum up"):
            self.summaries += 1
            self.summed_up += texts(request)
            return ModelReply(text=f"summary {self.summaries}", usage=Usage(requests=1, cost=1.0))
        self.asked.append(request)
        return ModelReply(text=f"{self.word} {len(self.asked)}", usage=Usage(requests=1, cost=0.5))


def texts(request: ModelRequest) -> list[str]:
    return [getattr(message, "text", "") for message in request.messages]


def two(model: Writer, *, summarise: bool = True) -> list[Agent]:
    return [Agent("ada", config=model, summarise=summarise), Agent("bob", config=Writer())]


async def talked(model: Writer, *, summarise: bool = True, turns: int = TURNS) -> tuple[House, Channel]:
    async with stage(*two(model, summarise=summarise)) as home:
        return home, await played(home, round_robin(["ada", "bob"], max_turns=turns))


async def test_w10_an_agent_that_asks_for_it_is_shown_a_summary_of_what_it_does_not_see() -> None:
    model = Writer()
    await talked(model)
    last = texts(model.asked[-1])

    assert last[0] == f"What was said before, in short: summary {model.summaries}"
    assert WINDOW <= len(last) - 1 <= 2 * WINDOW + 1


async def test_w10_without_asking_nobody_pays_for_one() -> None:
    model = Writer()
    await talked(model, summarise=False)

    assert model.summaries == 0
    assert texts(model.asked[-1])[0].startswith("Earlier, not shown")


async def test_a_summary_is_made_anew_only_when_a_window_has_gathered_behind_the_last() -> None:
    model = Writer()
    await talked(model)

    assert 1 < model.summaries <= TURNS // WINDOW


async def test_nothing_is_left_out_between_the_summary_and_what_is_shown() -> None:
    """What is shown goes on, line by line, right behind where the summary ends."""
    log, model = MemoryLog(), Writer()
    async with stage(
        Agent("ada", config=model, summarise=True), Agent("bob", config=Writer()), log=log
    ) as home:
        channel = await played(home, round_robin(["ada", "bob"], max_turns=TURNS))
        lines = await home.wal(channel)
    upto = [one.event_data["summary"]["upto"] for one in lines if "summary" in one.event_data][-1]
    said = [one for one in lines if one.event_type in ("text", "packet") and one.seq > upto]
    shown = [text for text in texts(model.asked[-1])[1:] if text != "(It is your turn.)"]

    assert shown == [one.event_data["body"] for one in said][: len(shown)]
    assert len(shown) >= WINDOW


async def test_t2_a_summary_is_on_the_log_before_the_round_it_is_for_and_its_cost_is_the_turns() -> None:
    model, log = Writer(), MemoryLog()
    async with stage(
        Agent("ada", config=model, summarise=True), Agent("bob", config=Writer()), log=log
    ) as home:
        channel = await played(home, round_robin(["ada", "bob"], max_turns=TURNS))
        lines = await home.wal(channel)
        summed = [one for one in lines if "summary" in one.event_data]
        result = await channel.result()

        assert [one.event_type for one in summed] == ["turn.model"] * model.summaries
        assert all(one.audience == [] for one in summed)
        assert result.usage.cost == model.summaries * 1.0 + TURNS * 0.5


async def test_t3_after_a_restart_summing_up_goes_on_from_the_summary_on_the_log() -> None:
    """What was paid for is not summed up again."""
    log, first, second = MemoryLog(), Writer(), Writer("later line")
    graph = round_robin(["ada", "user"], max_turns=TURNS)
    async with stage(Agent("ada", config=first, summarise=True), log=log) as home:
        channel = await home.open(graph, by="user", message="go", channel_id="story")
        await _answered(home, channel, 20)
    async with stage(Agent("ada", config=second, summarise=True), log=log) as home:
        await _answered(home, home.handle("user", channel), 34)

    assert first.summaries > 0
    assert second.summed_up[0].startswith(f"summary {first.summaries}\n")
    assert "ada: line 1\n" not in second.summed_up[0]


async def _answered(home: House, channel: Channel, turns: int) -> None:
    """The user answers until there have been so many turns."""
    me = home.people["user"].agent_id
    while (state := await home.hub.state("story")).turn_count < turns:
        if state.expected_next_speaker == me:
            await channel.send(event_type="packet", event_data=packet("and?"))
        else:
            await home.hub.wait_beyond("story", state.seq)
