"""T2, T3, T5, W10, C6, V4: an agent's turn on a channel, and the log as its journal."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from tests.client.stage import USER_ADA, begun, heard, packets, played, stage, told
from tests.hub.scenes import add_one, closed, quiet, until
from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.inject import Variable
from turnline.agent.messages import Message, ModelReply, Usage
from turnline.agent.tool_result import ToolResult
from turnline.client.channel import Channel, set_context
from turnline.client.injection import ChannelInject, ChannelStateInject
from turnline.core import views
from turnline.core.envelope import Envelope
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.transitions import (
    AgentTarget,
    ContextEquals,
    FromSpeaker,
    StayTarget,
    TerminateTarget,
    TurnFailed,
)
from turnline.errors import ModelError
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call
from turnline.turns.views import spoken

DOWN = ModelError("m", because="the key is wrong", transient=False)
BUSY = ModelError("m", because="it is overloaded", transient=True)


def ada(*script: Any, tools: Any = (), **given: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(*script)
    return Agent("ada", config=model, tools=tools, **given), model


def step(n: int) -> str:
    return f"step {n}"


# --- T2: on the log before the next call ---


async def test_t2_a_round_of_one_reply_adds_only_its_claim_and_its_packet() -> None:
    agent, _ = ada("hello")
    async with stage(agent) as home:
        channel = await played(home)

        types = await home.types(channel)
        assert types[types.index("text") :] == ["text", "turn.claimed", "packet", "channel.closed"]


async def test_t2_replies_and_answers_are_on_the_log_in_order() -> None:
    agent, _ = ada(call("step", n=1), call("step", n=2), "done", tools=[step])
    async with stage(agent) as home:
        channel = await played(home)
        turn = [one for one in await home.wal(channel) if one.event_type.startswith("turn.")]

        assert [one.event_type for one in turn] == [
            "turn.claimed",
            *["turn.model", "turn.tool"] * 2,
        ]
        assert [one.event_data["entry"].get("text") for one in turn[1:]] == [None, "step 1", None, "step 2"]
        assert all(one.audience == [] for one in turn)


async def test_t2_when_a_call_starts_everything_before_it_is_on_the_log() -> None:
    seen: list[list[str]] = []

    async def look(channel: ChannelInject) -> str:
        assert channel is not None
        seen.append(await home.types(channel))
        return "seen"

    def asked(messages: tuple[Message, ...]) -> Any:
        return [call("look"), call("look")] if len(messages) == 1 else "done"

    agent, _ = ada(asked, tools=[look])
    async with stage(agent) as home:
        channel = await played(home)
        types = await home.types(channel)

    assert [one[-1] for one in seen] == ["turn.model", "turn.model"]
    assert types[-5:] == ["turn.model", "turn.tool", "turn.tool", "packet", "channel.closed"]


async def test_t4_the_packet_carries_what_was_said_and_what_it_used() -> None:
    agent, _ = ada(call("step", n=1), "done", tools=[step])
    async with stage(agent) as home:
        (one,) = await packets(home, await played(home))

        usage = one.event_data.pop("usage")
        assert one.event_data == {"body": "done", "routing": {"kind": "text"}}
        assert Usage(**usage) == Usage(requests=2)


async def test_t4_an_empty_reply_still_commits() -> None:
    agent, _ = ada(ModelReply(usage=Usage(requests=1)))
    async with stage(agent) as home:
        channel = await played(home)

        assert [one.event_data["body"] for one in await packets(home, channel)] == [""]
        assert (await channel.result()).reason == "sequence_complete"


# --- T3: taken up after the last recorded entry ---


class Steps:
    """A tool that notes its runs, and stops for ever at one of them, the first time."""

    def __init__(self, stop_at: int) -> None:
        self.ran: list[int] = []
        self.keys: list[str] = []
        self.stopped = asyncio.Event()
        self._stop_at = stop_at

    async def step(self, n: int, context: Context, channel: ChannelInject) -> str:
        assert channel is not None
        self.ran.append(n)
        self.keys.append(context.idempotency_key)
        await add_one(channel)
        if n == self._stop_at and not self.stopped.is_set():
            self.stopped.set()
            await asyncio.Event().wait()
        return f"step {n}"


def three_steps(messages: tuple[Message, ...]) -> Any:
    done = sum(isinstance(one, ModelReply) for one in messages)
    return call("step", n=done + 1) if done < 3 else "done"


async def interrupted(steps: Steps, *models: ScriptedModel) -> list[Envelope]:
    """Play with the first model until the tool stops; drop everything; play on with the second."""
    log = MemoryLog()
    async with stage(Agent("ada", config=models[0], tools=[steps.step]), log=log) as home:
        await begun(home, channel_id="story")
        await steps.stopped.wait()
    async with stage(Agent("ada", config=models[1], tools=[steps.step]), log=log) as home:
        channel = home.people["user"].channel("story")
        await closed(channel)
        return await home.wal(channel)


@pytest.mark.parametrize("stop_at", [1, 2, 3])
async def test_t3_a_dropped_turn_goes_on_after_its_last_entry(stop_at: int) -> None:
    """No recorded reply is paid twice, no recorded tool runs twice; the one in flight does."""
    steps = Steps(stop_at)
    first, second = ScriptedModel(three_steps), ScriptedModel(three_steps)
    wal = await interrupted(steps, first, second)

    assert (len(first.requests), len(second.requests)) == (stop_at, 4 - stop_at)
    assert steps.ran == sorted([1, 2, 3, stop_at])
    assert [one.event_type for one in wal].count("turn.model") == 3
    assert Usage(**wal[-2].event_data["usage"]) == Usage(requests=4)


@pytest.mark.parametrize("stop_at", [1, 2, 3])
async def test_t3_what_the_call_in_flight_wrote_counts_once(stop_at: int) -> None:
    steps = Steps(stop_at)
    log = MemoryLog()
    agent = Agent("ada", config=ScriptedModel(three_steps), tools=[steps.step])
    async with stage(agent, log=log) as home:
        await begun(home, channel_id="story")
        await steps.stopped.wait()
    async with stage(agent, log=log) as home:
        result = await home.people["user"].channel("story").result()

    assert result.context_vars == {"n": 3}


async def test_t3_the_idempotency_key_is_stable_over_retries_and_different_per_call() -> None:
    steps = Steps(2)
    await interrupted(steps, ScriptedModel(three_steps), ScriptedModel(three_steps))

    assert steps.keys == [f"story:2:call-{n}:step" for n in (1, 2, 2, 3)]


async def test_t3_the_next_turns_keys_are_others() -> None:
    steps = Steps(0)
    model = ScriptedModel(call("step", n=1), "done", call("step", n=1), "done")
    async with stage(Agent("ada", config=model, tools=[steps.step])) as home:
        await played(home, sequence(["user", "ada", "ada"]))

    assert len(set(steps.keys)) == 2


async def test_t3_a_turn_that_had_recorded_nothing_begins_anew() -> None:
    asked = asyncio.Event()
    log = MemoryLog()

    class Slow(ScriptedModel):
        async def reply(self, request: Any, on_text: Any = None) -> ModelReply:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    async with stage(Agent("ada", config=Slow("never")), log=log) as home:
        await begun(home, channel_id="story")
        await asked.wait()
    agent, model = ada("hello")
    async with stage(agent, log=log) as home:
        assert (await home.people["user"].channel("story").result()).text == "hello"
    assert len(model.requests) == 1


# --- T5: given up ---


async def write(channel: ChannelInject) -> str:
    assert channel is not None
    await set_context(channel, "written", True)
    return "written"


async def combined() -> ToolResult:
    return ToolResult("written", context={"written": True})


@pytest.mark.parametrize("tool", [write, combined])
async def test_t5_a_model_that_fails_for_good_fails_the_turn_and_undoes_its_writes(tool: Any) -> None:
    agent, _ = ada(call(tool.__name__), DOWN, tools=[tool])
    async with stage(agent) as home:
        channel = await played(home, knobs={"context_vars": {"n": 1}})
        result = await channel.result()
        (failed,) = [one for one in await home.wal(channel) if one.event_type == "turn.failed"]

        assert (result.reason, result.context_vars) == ("turn_failed", {"n": 1})
        assert failed.event_data["error"] == {
            "type": "ModelError",
            "message": "model 'm' failed: the key is wrong.",
        }


async def test_t5_transient_errors_are_retried_on_the_hubs_clock_first() -> None:
    agent, model = ada(BUSY, BUSY, "up again", backoff_seconds=5)
    async with stage(agent) as home:
        channel = await begun(home)
        for asked, pause in ((1, 5), (2, 10)):
            await until(lambda asked=asked: len(model.requests) == asked)  # type: ignore[misc]
            await quiet()
            home.clock.advance(pause)
        assert (await channel.result()).text == "up again"
        assert "turn.failed" not in await home.types(channel)


async def test_t5_the_rule_for_failed_turns_follows() -> None:
    agent, _ = ada(DOWN)
    bob = Agent("bob", config=ScriptedModel("I will do it"))
    graph = TransitionGraph(
        "user",
        [
            Transition(TurnFailed("ada"), AgentTarget("bob")),
            Transition(FromSpeaker("user"), AgentTarget("ada")),
        ],
        TerminateTarget("over"),
    )
    async with stage(agent, bob) as home:
        result = await (await played(home, graph)).result()

        assert (result.reason, result.text) == ("over", "I will do it")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"config": None}, "NoModel"),
        ({"config": ScriptedModel()}, "ScriptExhausted"),
        ({"config": ScriptedModel("x", "y"), "response_schema": int}, "BadOutput"),
    ],
)
async def test_t5_whatever_the_agent_cannot_do_is_said_on_the_log(
    given: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TURNLINE_MODEL", raising=False)
    async with stage(Agent("ada", **given)) as home:
        channel = await played(home)
        (failed,) = [one for one in await home.wal(channel) if one.event_type == "turn.failed"]

        assert failed.event_data["error"]["type"] == kind


# --- W10, C6: what the model is shown ---


async def test_w10_its_own_turns_are_its_own_and_the_others_have_names() -> None:
    agent, model = ada("one", "two")
    bob = Agent("bob", config=ScriptedModel("hm"))
    async with stage(agent, bob) as home:
        await played(home, sequence(["user", "ada", "bob", "ada"]))

    assert heard(model, 0) == [("user", "go")]
    assert heard(model, 1) == [("user", "go"), ("me", "one"), ("bob", "hm")]


async def test_w10_the_inside_of_a_turn_is_not_shown_to_the_next() -> None:
    agent, _ = ada(call("step", n=1), "one", tools=[step])
    listener = ScriptedModel("hm")
    async with stage(agent, Agent("bob", config=listener)) as home:
        await played(home, sequence(["user", "ada", "bob"]))

    assert heard(listener) == [("user", "go"), ("ada", "one")]


async def test_w4_stay_asks_the_same_agent_again_and_tells_it_so() -> None:
    agent, model = ada("one", "two", "three")
    graph = TransitionGraph(
        "user", [Transition(FromSpeaker("user"), AgentTarget("ada"))], StayTarget(), max_turns=4
    )
    async with stage(agent) as home:
        channel = await played(home, graph)

        assert (await channel.result()).reason == "max_turns"
    assert heard(model) == [("user", "go"), ("me", "one"), ("me", "two"), ("", "(It is your turn.)")]


def test_w10_a_note_about_the_channel_has_no_name() -> None:
    note = views.Message("note", "", "Earlier, not shown: 1 messages by bob (1).")

    assert [getattr(one, "name", "me") for one in spoken([note])] == [""]


async def test_c6_the_prompt_shows_context_variables_as_they_are_at_each_turn() -> None:
    async def turn_off(channel: ChannelInject) -> str:
        assert channel is not None
        await set_context(channel, "route", "south")
        return "off we go"

    agent, model = ada(
        call("turn_off"), "one", "two", tools=[turn_off], prompt="Go {{ route }}.", context_keys=["stops"]
    )
    async with stage(agent) as home:
        knobs = {"context_vars": {"route": "north", "stops": [1], "hidden": 1}}
        await played(home, sequence(["user", "ada", "ada"]), knobs=knobs)

    stops = "\n\nContext variables:\nstops = [1]"
    told = [request.instructions for request in model.requests]
    assert told == [f"Go north.{stops}"] * 2 + [f"Go south.{stops}"]


# --- C3, V4: tools on a channel ---


async def test_c3_a_tool_reads_its_own_writes_and_the_graph_sees_them() -> None:
    async def count(channel: ChannelInject, state: ChannelStateInject) -> str:
        assert channel is not None
        assert state is not None
        await set_context(channel, "n", state.context_vars.get("n", 0) + 1)
        return str(state.context_vars["n"])

    agent, model = ada(call("count"), call("count"), "done", tools=[count])
    graph = TransitionGraph(
        "user",
        [
            Transition(ContextEquals("n", 2), TerminateTarget("counted")),
            Transition(FromSpeaker("user"), AgentTarget("ada")),
        ],
        TerminateTarget(),
    )
    async with stage(agent) as home:
        channel = await played(home, graph)

        assert (await channel.result()).reason == "counted"
    assert told(model) == ["1", "2"]


async def test_c3_a_tool_that_changes_the_state_it_is_given_changes_nothing_of_the_channel() -> None:
    async def begin(channel: ChannelInject) -> None:
        assert channel is not None
        await set_context(channel, "stops", [1])

    async def break_rules(state: ChannelStateInject) -> str:
        assert state is not None
        state.context_vars["stops"].append(2)
        return str(state.context_vars["stops"])

    script = (call("begin"), "one", call("break_rules"), "two")
    agent, model = ada(*script, tools=[begin, break_rules])
    async with stage(agent) as home:
        channel = await played(home, sequence(["user", "ada", "ada"]))

        assert (await channel.result()).context_vars == {"stops": [1]}
    assert told(model)[-1] == "[1, 2]"


async def test_v4_variables_are_kept_over_the_turns_of_one_channel_and_never_on_the_log() -> None:
    def log_in(context: Context) -> str:
        context.variables["token"] = "canary-token"
        return "welcome"

    def fetch(token: Annotated[str, Variable(default="")], secret: Annotated[str, Variable()]) -> str:
        return "known" if token and secret else "unknown"

    script = (call("log_in"), "one", call("fetch"), "two", call("fetch"), "three")
    agent, model = ada(*script, tools=[log_in, fetch], variables={"secret": "canary-key"})
    async with stage(agent) as home:
        channel = await played(home, sequence(["user", "ada", "ada"]))
        assert told(model) == ["known"]
        other = await played(home, USER_ADA)
        assert told(model) == ["unknown"]
        on_log = str([*await home.wal(channel), *await home.wal(other), *await home.hub.audit_log.read_all()])

    assert "canary" not in on_log


async def test_outside_of_a_channel_its_tools_are_given_no_channel() -> None:
    async def here(channel: ChannelInject, state: ChannelStateInject) -> bool:
        return isinstance(channel, Channel) or state is not None

    agent, model = ada(call("here"), "ok", tools=[here])
    await agent.ask("go")

    assert told(model) == ["false"]
