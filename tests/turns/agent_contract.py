"""What an agent can do, whoever runs it: on a channel, and as a step of a flow (N7).

A subclass says how the agent is run (`stage`). Everything else is the same: the agent, its model, its tools,
the questions and what the model is told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.hub.scenes import Wrapped, quiet
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import Message, ModelReply, ToolCall, ToolMessage, Usage
from turnline.agent.model import ModelRequest, OnText
from turnline.agent.tool import ToolRetry, tool
from turnline.core import event_types as ev
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.state import State
from turnline.errors import LogUnavailable, ModelError
from turnline.hub.hub import Hub
from turnline.hub.retry import RETRY_SECONDS
from turnline.hub.texts import Listening
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call
from turnline.testing.manual_clock import ManualClock

STORY: Final = "story"
"""The id of the channel, or of the run."""
RESTARTS: Final = 10
SAID: Final = "one two three"
WINDOW: Final = 4
TURNS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An open question, as a person sees it."""

    key: str
    about: str
    """The question, or the tool and arguments of an approval."""
    is_approval: bool


class Play(ABC):
    """One process in which the agent runs."""

    hub: Hub
    clock: ManualClock

    @abstractmethod
    async def begin(self) -> None:
        """Give the agent its turn."""

    @abstractmethod
    async def begin_loop(self, turns: int) -> None:
        """Let ada and bob speak by turns until they had so many. Each is shown the last `WINDOW` things."""

    @abstractmethod
    async def asked(self, count: int = 1) -> Sequence[Asked]:
        """Wait until so many questions are open, and return them in their order."""

    @abstractmethod
    async def answer(self, question: Asked, said: str) -> None:
        """Answer as a person who may: `yes` or `no` to an approval, a text to another question."""

    @abstractmethod
    async def answer_is_refused(self, question: Asked) -> bool:
        """Return whether a person who was not asked is refused."""

    @abstractmethod
    async def end(self) -> str:
        """Wait until the agent's turn is over; return what it said."""

    async def state(self) -> State:
        return await self.hub.state(STORY)

    async def lines(self) -> list[Envelope]:
        return await self.hub.read_wal(STORY)

    async def pause(self, *, after: int = 0) -> int:
        """Wait until the turn is paused after a line; return the line of the pause."""
        while (pause := (state := await self.state()).pause) is None or pause.seq <= after:
            await self.hub.wait_beyond(STORY, state.seq)
        return pause.seq


class Away(Wrapped):
    """A log that is away when a line of this type is to be written for the first time."""

    def __init__(self, event_type: str) -> None:
        super().__init__()
        self.has_failed = False
        self._event_type = event_type

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if not self.has_failed and any(one.event_type == self._event_type for one in envelopes):
            self.has_failed = True
            raise LogUnavailable("memory:", because="it is away")
        await super().append(channel_id, envelopes, after=after, row=row)


class Effects:
    """What tools have done, for all processes of a test."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def tools(self) -> list[Any]:
        @tool(approval=True)
        async def pay(amount: int) -> str:
            self.done.append(f"paid {amount}")
            return f"paid {amount}"

        @tool
        async def look() -> str:
            self.done.append("looked")
            return "seen"

        @tool
        async def sure(context: Context) -> str:
            return await context.input("sure?")

        @tool(restarts=True)
        async def order(context: Context) -> str:
            number = await context.once("number", self._take_number)
            return f"{number}: {await context.input('which size?')}, {await context.input('which colour?')}"

        @tool(retry=ToolRetry(attempts=3, backoff_seconds=0))
        async def flaky() -> str:
            self.done.append("tried")
            if len(self.done) < 3:
                raise ConnectionError("not yet")
            return "at last"

        return [pay, look, sure, order, flaky]

    def _take_number(self) -> str:
        self.done.append("took a number")
        return "no. 1"


def told(messages: Sequence[Message]) -> list[str]:
    """What the tools answered, as the model was told it."""
    return [one.text for one in messages if isinstance(one, ToolMessage)]


class Storyteller(ScriptedModel):
    """Sums up where it is asked to. Otherwise it numbers what it says; at `pays_at` it calls `pay`."""

    def __init__(self, word: str = "line", *, pays_at: int = 0) -> None:
        super().__init__("unused")
        self.word = word
        self.pays_at = pays_at
        self.summed_up: list[str] = []
        """What it was shown to sum up."""
        self.asked: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        if request.instructions.startswith("Sum up"):
            self.summed_up += texts(request)
            return ModelReply(text=f"summary {len(self.summed_up)}", usage=Usage(requests=1, cost=1.0))
        self.asked.append(request)
        if len(self.asked) == self.pays_at:
            return ModelReply(
                calls=[ToolCall(call_id="c1", tool="pay", arguments={"amount": 5})],
                usage=Usage(requests=1, cost=0.5),
            )
        return ModelReply(text=f"{self.word} {len(self.asked)}", usage=Usage(requests=1, cost=0.5))

    @property
    def summaries(self) -> int:
        return len(self.summed_up)


def texts(request: ModelRequest) -> list[str]:
    """What a model was shown of what was said: without what only asks it to speak."""
    shown = [getattr(one, "text", "") for one in request.messages if not isinstance(one, ToolMessage)]
    return [one for one in shown if one not in ("go", "(It is your turn.)", "")]


class Scenario:
    """An agent whose model calls the given tools in its first reply, and then repeats what they answered."""

    def __init__(self, *calls: Any) -> None:
        self.effects = Effects()
        self.log: Log = MemoryLog()
        self._calls = calls

    def agent(self) -> Agent:
        """Return the agent as a process makes it when it starts: nothing of an earlier one is in it."""

        def reply(messages: tuple[Message, ...]) -> Any:
            answers = told(messages)
            return "; ".join(answers) if answers else list(self._calls)

        return Agent("ada", config=ScriptedModel(reply), tools=self.effects.tools)


class AgentContract:
    """Run by each half."""

    def stage(self, agent: Agent, log: Log, *others: Agent) -> AbstractAsyncContextManager[Play]:
        """Return a process on `log` in which the agent runs, and beside it others."""
        raise NotImplementedError

    def tell(
        self, model: Storyteller, *, log: Log | None = None, summarise: bool = True
    ) -> AbstractAsyncContextManager[Play]:
        """Return a process with ada, who asks for summaries, and bob, who does not."""
        ada = Agent("ada", config=model, tools=Effects().tools, summarise=summarise)
        return self.stage(ada, log or MemoryLog(), Agent("bob", config=Storyteller("word")))

    async def tell_in_two_processes(
        self, first: Storyteller, second: Storyteller, *, turns: int = TURNS, summarise: bool = True
    ) -> None:
        """Let the first process tell until ada's call of `pay` waits, and the next one after that."""
        log = MemoryLog()
        async with self.tell(first, log=log, summarise=summarise) as play:
            await play.begin_loop(turns)
            await play.asked()
        async with self.tell(second, log=log) as play:
            (question,) = await play.asked()
            await play.answer(question, "no")
            await play.end()

    def play(self, scenario: Scenario) -> AbstractAsyncContextManager[Play]:
        return self.stage(scenario.agent(), scenario.log)

    # Approvals.

    async def test_a_call_runs_after_a_person_has_approved_it(self) -> None:
        scenario = Scenario(call("pay", amount=5))
        async with self.play(scenario) as play:
            await play.begin()
            (question,) = await play.asked()
            assert scenario.effects.done == []
            await play.answer(question, "yes")

            assert await play.end() == "paid 5"
        assert question.is_approval
        assert "pay" in question.about
        assert "5" in question.about

    async def test_a_declined_call_does_not_run_and_the_model_is_told(self) -> None:
        scenario = Scenario(call("pay", amount=5))
        async with self.play(scenario) as play:
            await play.begin()
            (question,) = await play.asked()
            await play.answer(question, "no")

            assert await play.end() == "a person declined this call of 'pay'."
        assert scenario.effects.done == []

    async def test_the_approvals_of_one_reply_are_asked_at_once_and_answered_one_by_one(self) -> None:
        scenario = Scenario(call("pay", amount=5), call("pay", amount=7))
        async with self.play(scenario) as play:
            await play.begin()
            first, second = await play.asked(2)
            await play.answer(second, "yes")
            await play.answer(first, "no")

            assert await play.end() == "a person declined this call of 'pay'.; paid 7"
        assert scenario.effects.done == ["paid 7"]

    async def test_a_call_that_needs_no_approval_runs_while_another_waits(self) -> None:
        scenario = Scenario(call("pay", amount=5), call("look"))
        async with self.play(scenario) as play:
            await play.begin()
            (question,) = await play.asked()
            await play.pause()
            recorded = [one for one in await play.lines() if one.event_type == ev.EV_TURN_TOOL]
            assert (len(recorded), scenario.effects.done) == (1, ["looked"])
            await play.answer(question, "yes")

            assert await play.end() == "paid 5; seen"
        assert scenario.effects.done == ["looked", "paid 5"]

    async def test_a_person_who_was_not_asked_cannot_approve(self) -> None:
        scenario = Scenario(call("pay", amount=5))
        async with self.play(scenario) as play:
            await play.begin()
            (question,) = await play.asked()

            assert await play.answer_is_refused(question)
            assert scenario.effects.done == []
            await play.answer(question, "no")
            await play.end()

    # Questions.

    async def test_a_tool_gets_the_answer_to_its_question(self) -> None:
        scenario = Scenario(call("sure"))
        async with self.play(scenario) as play:
            await play.begin()
            (question,) = await play.asked()
            await play.answer(question, "quite")

            assert await play.end() == "quite"
        assert (question.about, question.is_approval) == ("sure?", False)

    async def test_a_tool_that_restarts_runs_again_with_the_answer_and_its_results_of_once(self) -> None:
        scenario = Scenario(call("order"))
        async with self.play(scenario) as play:
            await play.begin()
            (size,) = await play.asked()
            await play.answer(size, "large")
            (colour,) = await play.asked()
            await play.answer(colour, "red")

            assert await play.end() == "no. 1: large, red"
        assert scenario.effects.done == ["took a number"]

    # Waiting.

    @pytest.mark.parametrize(
        "tools", [[call("pay", amount=5)], [call("order")]], ids=["approval", "restarts"]
    )
    async def test_a_turn_that_waits_holds_no_claim_and_restarts_write_nothing(
        self, tools: list[Any]
    ) -> None:
        scenario = Scenario(*tools)
        async with self.play(scenario) as play:
            await play.begin()
            await play.pause()
            before = await play.state()
        for _ in range(RESTARTS):
            async with self.play(scenario) as play:
                await play.asked()
                await quiet()
                state = await play.state()
                assert (state.claim, state.seq) == (None, before.seq)
        async with self.play(scenario) as play:
            for said in ("yes", "red")[: 1 + (tools[0].tool == "order")]:
                (question,) = await play.asked()
                await play.answer(question, said)

            assert await play.end() in ("paid 5", "no. 1: yes, red")
        assert scenario.effects.done in (["paid 5"], ["took a number"])

    async def test_a_restart_between_two_answers_loses_neither(self) -> None:
        scenario = Scenario(call("pay", amount=5), call("pay", amount=7))
        async with self.play(scenario) as play:
            await play.begin()
            first, _ = await play.asked(2)
            paused = await play.pause()
            await play.answer(first, "yes")
            await play.pause(after=paused)
        async with self.play(scenario) as play:
            (second,) = await play.asked()
            await play.answer(second, "no")

            assert await play.end() == "paid 5; a person declined this call of 'pay'."
        assert scenario.effects.done == ["paid 5"]

    async def test_a_plain_tool_asks_once_however_often_its_process_restarts(self) -> None:
        scenario = Scenario(call("sure"))
        async with self.play(scenario) as play:
            await play.begin()
            await play.asked()
        for _ in range(RESTARTS):
            async with self.play(scenario) as play:
                await play.asked()
                await quiet()
        async with self.play(scenario) as play:
            (question,) = await play.asked()
            await play.answer(question, "still")

            assert await play.end() == "still"
            requested = [one for one in await play.lines() if one.event_type == ev.EV_HUMAN_REQUESTED]
            assert len(requested) == 1

    @pytest.mark.parametrize("away_at", [ev.EV_HUMAN_REQUESTED, ev.EV_TURN_ONCE, ev.EV_TURN_PAUSED])
    async def test_a_log_that_is_away_is_not_the_answer_of_a_tool(self, away_at: str) -> None:
        scenario, log = Scenario(call("order")), Away(away_at)
        async with self.stage(scenario.agent(), log) as play:
            await play.begin()
            while not log.has_failed:
                await quiet()
            await quiet()
            play.clock.advance(RETRY_SECONDS)
            for said in ("large", "red"):
                (question,) = await play.asked()
                await play.answer(question, said)

            assert await play.end() == "no. 1: large, red"

    # The model and the other tools.

    async def test_the_words_of_the_model_are_told_to_listeners(self) -> None:
        agent = Agent("ada", config=ScriptedModel(SAID))
        async with self.stage(agent, MemoryLog()) as play:
            with Listening(play.hub.texts, STORY, lambda words: True) as listening:
                await play.begin()

                assert await play.end() == SAID
                assert "".join(one.text for one in listening.take()) == SAID

    async def test_words_that_were_streamed_before_a_pause_are_not_told_again(self) -> None:
        scenario = Scenario(call("pay", amount=5))
        async with self.play(scenario) as play:
            with Listening(play.hub.texts, STORY, lambda words: True) as listening:
                await play.begin()
                (question,) = await play.asked()
                await play.answer(question, "yes")
                await play.end()

                assert "".join(one.text for one in listening.take()) == "paid 5"

    async def test_a_model_that_fails_for_a_moment_is_asked_again(self) -> None:
        busy = ModelError("scripted", because="busy", transient=True)
        model = ScriptedModel(busy, busy, "ready")
        async with self.stage(Agent("ada", config=model, backoff_seconds=0), MemoryLog()) as play:
            await play.begin()

            assert await play.end() == "ready"
        assert len(model.requests) == 3

    async def test_a_tool_with_a_retry_is_tried_again_and_each_attempt_is_recorded(self) -> None:
        scenario = Scenario(call("flaky"))
        async with self.play(scenario) as play:
            await play.begin()

            assert await play.end() == "at last"
            recorded = [one for one in await play.lines() if one.event_type == ev.EV_TURN_TOOL]
            assert len(recorded) == 3

    # Summaries.

    async def test_an_agent_that_asks_for_it_is_shown_a_summary_of_what_fell_out_of_its_window(self) -> None:
        model = Storyteller()
        async with self.tell(model) as play:
            await play.begin_loop(TURNS)
            await play.end()
        last = texts(model.asked[-1])

        assert last[0] == f"What was said before, in short: summary {model.summaries}"
        assert WINDOW <= len(last) - 1 <= 2 * WINDOW

    async def test_an_agent_that_does_not_ask_for_a_summary_pays_for_none(self) -> None:
        model = Storyteller()
        async with self.tell(model, summarise=False) as play:
            await play.begin_loop(TURNS)
            await play.end()
        counted, *shown = texts(model.asked[-1])

        assert model.summaries == 0
        assert counted.startswith("Earlier, not shown: ")
        assert shown == ["line 18", "word 18", "line 19", "word 19"]

    async def test_a_summary_is_made_again_only_when_a_window_has_gathered_after_the_last(self) -> None:
        model = Storyteller()
        async with self.tell(model) as play:
            await play.begin_loop(TURNS)
            await play.end()

        assert 1 < model.summaries <= TURNS // WINDOW

    async def test_nothing_is_left_out_between_a_summary_and_what_is_shown(self) -> None:
        model = Storyteller()
        async with self.tell(model) as play:
            await play.begin_loop(TURNS)
            await play.end()
        told = [f"{name} {number}" for number in range(1, TURNS // 2 + 1) for name in ("line", "word")]
        summed_up = [
            one for text in model.summed_up for one in told if one in text.replace(": ", "\n").split("\n")
        ]
        shown = [one for one in texts(model.asked[-1]) if one in told]

        assert summed_up + shown == told[: TURNS - 2]

    async def test_a_summary_is_recorded_before_its_round_and_its_cost_is_the_turns(self) -> None:
        model = Storyteller()
        async with self.tell(model) as play:
            await play.begin_loop(TURNS)
            await play.end()
            lines = await play.lines()
        summed_up = [place for place, one in enumerate(lines) if "summary" in one.event_data]
        after = [next(one for one in lines[place + 1 :] if one.sender_id != ev.HUB) for place in summed_up]

        assert len(summed_up) == model.summaries
        assert all(lines[place].audience == [] for place in summed_up)
        assert [one.event_data["usage"]["cost"] for one in after] == [1.5] * model.summaries

    async def test_a_restarted_process_sums_up_from_the_summary_on_the_log(self) -> None:
        first, second = Storyteller(pays_at=12), Storyteller("later line")
        await self.tell_in_two_processes(first, second)

        assert first.summaries > 1
        assert second.summed_up[0].startswith(f"summary {first.summaries}\n")
        assert "ada: line 1\n" not in second.summed_up[0]

    async def test_a_turn_that_resumes_is_shown_what_it_was_shown_before_and_makes_no_summary(self) -> None:
        first, second = Storyteller(pays_at=6), Storyteller()
        await self.tell_in_two_processes(first, second)
        before, resumed = texts(first.asked[-1]), texts(second.asked[0])

        assert before[0] == "What was said before, in short: summary 1"
        assert resumed == before
        assert "summary 1" in second.summed_up[0]

    async def test_no_summary_is_made_after_the_first_unit_of_a_turn(self) -> None:
        first, second = Storyteller(pays_at=6), Storyteller()
        await self.tell_in_two_processes(first, second, turns=12, summarise=False)

        assert (first.summaries, second.summaries) == (0, 0)
