"""Channels that wait, one for each kind of wait: who is on them, and what a person does about them.

    await join(client, "approval", note)        register everybody, as each process does
    await begin(user, "approval", "c1")         open the channel, or find it
    await help_out(hub, people)                 answer every question, say a word where a person has the floor

`note` is called with each request to a model and each run of a tool, so a repetition is seen. The first word
that is said is the channel's id, so a model knows it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.messages import Message, ModelReply, ToolCall, ToolMessage
from turnline.agent.tool import tool
from turnline.client.channel import Channel
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.turn import Turn, TurnHandler
from turnline.core.channel import CHILD_MARK
from turnline.core.claims import Paused
from turnline.core.event_types import EV_HUMAN_ANSWERED, EV_TIMER_FIRED
from turnline.core.governance import Passport
from turnline.core.graph import Transition, TransitionGraph, sequence
from turnline.core.state import State
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.hub.hub import Hub
from turnline.testing import ScriptedModel, call

Note = Callable[[str, str], None]
"""Takes the id of the channel, and what is done there."""
USER_ADA: Final = sequence(["user", "ada"])
PEOPLE: Final = ("user", "ann")
PAUSE_SECONDS: Final = 30 * 86_400.0
"""How long a handler waits for a time, unless it is told otherwise."""
SecondsOf = Callable[[str], float]


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A kind of wait."""

    done: Mapping[str, int]
    """What is noted when the channel has closed: each of these so often."""
    text: str
    """What is said last."""
    graph: TransitionGraph = USER_ADA
    agents: tuple[str, ...] = ("ada",)
    reason: str = "sequence_complete"


def _after_user(target: FanOutTarget | NestedTarget) -> TransitionGraph:
    return TransitionGraph("user", [Transition(FromSpeaker("user"), target)], TerminateTarget("done"))


_TWICE: Final = {"ada 0": 1, "ada 1": 1}
WAITS: Final[dict[str, Wait]] = {
    "approval": Wait(done={**_TWICE, "pay 5": 1}, text="paid 5"),
    "two approvals": Wait(done={**_TWICE, "pay 5": 1, "pay 7": 1}, text="paid 5, paid 7"),
    "question": Wait(done={**_TWICE, "sure began": 2, "sure ended": 1}, text="yes"),
    "time": Wait(done={"handler began": 2, "handler ended": 1}, text="it is time"),
    "fan-out": Wait(
        done={},
        text="ann: yes",
        agents=(),
        reason="done",
        graph=_after_user(FanOutTarget(["ann"], step="ask")),
    ),
    "nested": Wait(
        done={"ada 0": 1},
        text="yes",
        reason="done",
        graph=_after_user(NestedTarget(sequence(["ada", "ann"]), step="inner")),
    ),
    "delegation": Wait(done={**_TWICE, "bob 0": 1, "bob 1": 1}, text="yes"),
    "peer's approval": Wait(done={**_TWICE, "bob 0": 1, "bob 1": 1, "pay 5": 1}, text="paid 5"),
}


async def join(
    client: HubClient, kind: str, note: Note, *, seconds: SecondsOf = lambda _: PAUSE_SECONDS
) -> dict[str, HumanClient]:
    """Register everybody who is on channels of this kind; return the people.

    `seconds` says how long the handler of a channel waits for a time.
    """
    if kind == "time":
        (await client.register(None, Passport(name="ada"))).on_turn(_waits_for_a_time(note, seconds))
    else:
        for agent in _agents(kind, note):
            await client.register(agent)
    people = (Passport(name=name, kind="human") for name in PEOPLE)
    return {one.name: await client.register_human(one) for one in people}


async def begin(user: HumanClient, kind: str, channel_id: str) -> Channel:
    """Open the channel of this kind, or find it."""
    wait = WAITS[kind]
    target = [*wait.agents, "ann"]
    return await user.open(
        "workflow", target, {"graph": wait.graph.to_dict()}, message=channel_id, channel_id=channel_id
    )


async def help_out(hub: Hub, people: Iterable[HumanClient], *, most: int | None = None, but: str = "") -> int:
    """Answer questions with "yes" and say "yes" where a person has the floor; return how often.

    Channels below the one that `but` names are left alone.
    """
    done, by_id = 0, {one.agent_id: one for one in people}
    for one in await hub.list_channels():
        state = await hub.state(one.channel_id)
        if not state.is_over and await hub.tree.top(one.channel_id) != but:
            done += await _help_out_on(state, by_id, None if most is None else most - done)
    return done


async def _help_out_on(state: State, people: Mapping[str, HumanClient], most: int | None) -> int:
    asked = [(key, one) for key, one in state.questions.items() if one.people and not one.answer_seq]
    for request_id, question in asked[:most]:
        person = people[question.people[-1]].channel(state.channel_id)
        data = {"request_id": request_id, "answer": "yes"}
        await person.send(event_type=EV_HUMAN_ANSWERED, event_data=data)
    speaker = people.get(state.expected_next_speaker or "")
    if asked or speaker is None or state.pause is not None:
        return len(asked[:most])
    await speaker.channel(state.channel_id).send("yes")
    return 1


def _agents(kind: str, note: Note) -> list[Agent]:
    @tool(approval=True)
    async def pay(amount: int, context: Context) -> str:
        note(_channel_of(context), f"pay {amount}")
        return f"paid {amount}"

    @tool(restarts=True)
    async def sure(context: Context) -> str:
        note(_channel_of(context), "sure began")
        answer = await context.input("sure?")
        note(_channel_of(context), "sure ended")
        return answer

    def agent(name: str, calls: Any, *tools: Any) -> Agent:
        return Agent(name, config=ScriptedModel(_script(name, calls, note)), tools=tools)

    agents = {
        "approval": [agent("ada", call("pay", amount=5), pay)],
        "two approvals": [agent("ada", [call("pay", amount=5), call("pay", amount=7)], pay)],
        "question": [agent("ada", call("sure"), sure)],
        "fan-out": [],
        "nested": [agent("ada", "over to you")],
        "delegation": [agent("ada", _ask("bob")), agent("bob", _ask("ann"))],
        "peer's approval": [agent("ada", _ask("bob")), agent("bob", call("pay", amount=5), pay)],
    }
    return agents[kind]


def _ask(peer: str) -> Callable[[str], ToolCall]:
    return lambda channel_id: call("delegate", to=peer, task=channel_id)


def _channel_of(context: Context) -> str:
    """Return the channel that a person opened: the id of one below starts with it."""
    return context.idempotency_key.partition(":")[0].partition(CHILD_MARK)[0]


def _script(name: str, first: Any, note: Note) -> Callable[[tuple[Message, ...]], Any]:
    """Make the calls first, then say what the tools answered."""

    def reply(messages: tuple[Message, ...]) -> Any:
        answers = [one.text for one in messages if isinstance(one, ToolMessage)]
        channel_id = messages[0].text
        note(channel_id, f"{name} {sum(isinstance(one, ModelReply) for one in messages)}")
        if answers:
            return ", ".join(answers)
        return first(channel_id) if callable(first) else first

    return reply


def _waits_for_a_time(note: Note, seconds: SecondsOf) -> TurnHandler:
    async def handler(turn: Turn) -> str | Paused:
        here = turn.channel.channel_id
        note(here, "handler began")
        if not any(one.event_type == EV_TIMER_FIRED for one in turn.lines):
            return Paused(reason="time", seconds=seconds(here))
        note(here, "handler ended")
        return "it is time"

    return handler
