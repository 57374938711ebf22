"""An agent on a channel and the same agent as a step of a flow pass one contract (N7)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tests.client import stage as channels
from tests.flow import stage as flows
from tests.hub.scenes import House, closed
from turnline.agent.agent import Agent
from turnline.core import event_types as ev
from turnline.core.envelope import Envelope
from turnline.core.event_types import body_of
from turnline.core.graph import round_robin
from turnline.errors import NotAsked, UnknownName
from turnline.flow.task import Task
from turnline.flow.work import Services
from turnline.log.base import Log
from turnline.log.memory import MemoryLog

from .agent_contract import STORY, WINDOW, AgentContract, Asked, Play, Storyteller

FLOW: Final = """
steps:
  - id: work
    kind: agent
    agent: {name: ada, prompt: go, ask: {group: ops}, output: {format: text, key: said}}
"""

LOOP: Final = f"""
metadata: {{name: loop}}
spec:
  steps:
    - id: ada
      kind: agent
      agent: {{name: ada, prompt: go, recent_n: {WINDOW}, ask: {{group: ops}}, output: {{format: text}}}}
    - id: bob
      kind: agent
      agent: {{name: bob, prompt: go, recent_n: {WINDOW}, output: {{format: text}}}}
    - id: idle
      kind: agent
      when: left < 0
      agent: {{name: bob, prompt: go}}
    - {{id: count, runner: count}}
    - id: again
      router: {{conditions: [{{if: left > 0, signal: more}}]}}
      routes: {{more: ada}}
"""


class ChannelPlay(Play):
    """The agent on a channel with a person."""

    def __init__(self, home: House) -> None:
        self.hub, self.clock = home.hub, home.clock
        self._home = home

    async def begin(self) -> None:
        await channels.begun(self._home, channel_id=STORY)

    async def begin_loop(self, turns: int) -> None:
        knobs = {"view": {"name": "windowed_summary", "args": {"recent_n": WINDOW}}}
        graph = round_robin(["ada", "bob"], max_turns=turns)
        await channels.begun(self._home, graph, channel_id=STORY, knobs=knobs)

    async def asked(self, count: int = 1) -> Sequence[Asked]:
        while True:
            state = await self.state()
            open_ = {one.seq: key for key, one in state.questions.items() if not one.answer_seq}
            if len(open_) == count:
                break
            assert not state.is_over
            await self.hub.wait_beyond(STORY, state.seq)
        texts = {
            line.seq: str(line.event_data["question"]) for line in await self.lines() if line.seq in open_
        }
        return [
            Asked(key=open_[seq], about=text, is_approval=text.startswith("Allow"))
            for seq, text in texts.items()
        ]

    async def answer(self, question: Asked, said: str) -> None:
        await self._answer_as("user", question, said)

    async def answer_is_refused(self, question: Asked) -> bool:
        try:
            await self._answer_as("ada", question, "yes")
        except NotAsked:
            return True
        return False

    async def end(self) -> str:
        await closed(self._home.people["user"].channel(STORY))
        return _last_words(await self.lines())

    async def _answer_as(self, name: str, question: Asked, said: str) -> None:
        client = self._home.people[name] if name in self._home.people else self._home[name]
        data = {"request_id": question.key, "answer": said}
        await client.channel(STORY).send(event_type=ev.EV_HUMAN_ANSWERED, event_data=data)


class FlowPlay(Play):
    """The agent as a step, whose questions are tasks of the group `ops`."""

    def __init__(self, home: flows.Stage) -> None:
        self.hub, self.clock = home.hub, home.clock
        self._home = home

    async def begin(self) -> None:
        await self._home.runs.start("main", {}, run_id=STORY)

    async def begin_loop(self, turns: int) -> None:
        await self._home.runs.start("loop", {"left": turns // 2}, run_id=STORY)

    async def asked(self, count: int = 1) -> Sequence[Asked]:
        while len(found := await self._home.tasks.list(groups=["ops"])) != count:
            state = await self.state()
            assert not state.is_over
            await self.hub.wait_beyond(STORY, state.seq)
        return [_asked(task) for task in found]

    async def answer(self, question: Asked, said: str) -> None:
        answer = {"answer": said == "yes" if question.is_approval else said}
        await self._home.tasks.answer(question.key, answer, by="ann", groups=["ops"])

    async def answer_is_refused(self, question: Asked) -> bool:
        try:
            await self._home.tasks.answer(question.key, {"answer": True}, by="eve", groups=["sales"])
        except UnknownName:
            return True
        return False

    async def end(self) -> str:
        assert (await self._home.ended(STORY)).status == "succeeded"
        return _last_words(await self.lines())


def _asked(task: Task) -> Asked:
    is_approval = task.form["answer"]["type"] == "boolean"
    about = f"{task.title} {task.show}" if is_approval else task.description
    return Asked(key=task.task_id, about=about, is_approval=is_approval)


def _last_words(lines: Sequence[Envelope]) -> str:
    packets = [one for one in lines if one.event_type == ev.EV_PACKET]
    return body_of(packets[-1].event_type, packets[-1].event_data)


class TestAgentOnAChannel(AgentContract):
    @asynccontextmanager
    async def stage(self, agent: Agent, log: Log, *others: Agent) -> AsyncIterator[Play]:
        async with channels.stage(agent, *others, log=log) as home:
            yield ChannelPlay(home)


class TestAgentStepOfAFlow(AgentContract):
    @asynccontextmanager
    async def stage(self, agent: Agent, log: Log, *others: Agent) -> AsyncIterator[Play]:
        services = Services(
            flows=flows.flows_of(FLOW, LOOP),
            agents={one.name: one for one in (agent, *others)},
            nodes={"count": lambda ctx: {"left": ctx["left"] - 1}},
        )
        async with flows.stage(log=log, services=services) as home:
            yield FlowPlay(home)


async def test_an_agent_step_is_shown_the_answers_of_agent_steps_and_nothing_else() -> None:
    model = Storyteller()
    agents = [Agent("ada", config=model), Agent("bob", config=Storyteller("word"))]
    async with TestAgentStepOfAFlow().stage(agents[0], MemoryLog(), agents[1]) as play:
        await play.begin_loop(6)
        await play.end()
        steps = {one.sender_id for one in await play.lines() if one.event_type == ev.EV_PACKET}

    assert steps == {"ada", "bob", "idle", "count", "again"}
    assert [type(one).__name__ for one in model.asked[-1].messages] == ["ModelReply", "UserMessage"] * 2 + [
        "UserMessage"
    ]
    assert [getattr(one, "text", "") for one in model.asked[-1].messages] == [
        "line 1",
        "word 1",
        "line 2",
        "word 2",
        "go",
    ]
