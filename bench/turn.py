"""What does an agent's turn cost, without its model? Two agents answer each other 200 times.

    Turnline, memory     `MemoryLog`
    Turnline, disk       `SqliteLog`: each turn is synced
    AG2, memory          `MemoryKnowledgeStore`
    AG2, disk            `SqliteKnowledgeStore`, which does not sync
    DBOS                 a workflow of steps on its SQLite database: a durable step without an agent

Turnline and AG2 run the same program, in the words that both packages have.

    python bench/turn.py [PYTHON]        PYTHON: an interpreter with `ag2` and `dbos`
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import peers

TURNS: Final = 200
"""Of one conversation, as in `bench/storage.py`."""
WARM_UP: Final = 10
NAMES: Final = ("writer", "editor")

Store = Callable[[Path], Any]
Program = Callable[[Any, Any, list[Any], int], Coroutine[Any, Any, None]]
"""Takes the network's package, a person, the agents, and how many units of work to do."""


async def converse(net: Any, user: Any, agents: list[Any], turns: int) -> None:
    """Let two agents answer each other."""
    writer, editor = (one.agent_id for one in agents)
    graph = net.TransitionGraph(
        initial_speaker=user.agent_id,
        transitions=[
            net.Transition(when=net.FromSpeaker(user.agent_id), then=net.AgentTarget(writer)),
            net.Transition(when=net.FromSpeaker(writer), then=net.AgentTarget(editor)),
            net.Transition(when=net.FromSpeaker(editor), then=net.AgentTarget(writer)),
        ],
        default_target=net.TerminateTarget("never"),
        max_turns=turns + 1,
    )
    channel = await user.open(type="workflow", target=[writer, editor], knobs={"graph": graph.to_dict()})
    await channel.send("go")
    while (await user.next_envelope()).event_type != net.EV_CHANNEL_CLOSED:
        pass


def ours(store: Store, names: Sequence[str], program: Program, *, units: int, warm_up: int) -> peers.Side:
    def side(folder: Path) -> peers.Taken:
        import turnline  # noqa: PLC0415  The peers' interpreter does not have it.
        from turnline.agent.messages import ModelReply  # noqa: PLC0415
        from turnline.agent.model import ModelRequest, OnText  # noqa: PLC0415

        class Model:
            name = "says ok"

            def create(self) -> Model:
                return self

            async def reply(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
                return ModelReply(text="ok")

        agents = [turnline.Agent(name, config=Model()) for name in names]
        return measure("turnline.network", store(folder), agents, program, units=units, warm_up=warm_up)

    return side


def theirs(store: Store, names: Sequence[str], program: Program, *, units: int, warm_up: int) -> peers.Side:
    def side(folder: Path) -> peers.Taken:
        from ag2 import Agent  # type: ignore  # noqa: PLC0415  The peers have it.
        from ag2.testing import TestConfig  # type: ignore  # noqa: PLC0415

        agents = [Agent(name, config=TestConfig(*["ok"] * units)) for name in names]
        return measure("ag2.network", store(folder), agents, program, units=units, warm_up=warm_up)

    return side


def measure(
    package: str, store: Any, agents: Sequence[Any], program: Program, *, units: int, warm_up: int
) -> peers.Taken:
    net = importlib.import_module(package)

    async def begin() -> tuple[Any, Any, list[Any]]:
        hub = await net.Hub.open(store)
        link = net.LocalLink(hub)
        user = await net.HubClient(link, hub=hub).register_human(net.Passport(name="user", kind="human"))
        registered = []
        for agent in agents:
            client, passport = net.HubClient(link, hub=hub), net.Passport(name=agent.name)
            registered.append(await client.register(agent, passport, net.Resume(), attach_plugin=False))
        return hub, user, registered

    with asyncio.Runner() as runner:
        hub, user, registered = runner.run(begin())
        found = peers.measure(
            lambda count: runner.run(program(net, user, registered, count)), units=units, warm_up=warm_up
        )
        runner.run(hub.close())
    return found


def memory(_: Path) -> Any:
    from turnline.log.memory import MemoryLog  # noqa: PLC0415

    return MemoryLog()


def disk(folder: Path) -> Any:
    from turnline.log.sqlite import SqliteLog  # noqa: PLC0415

    return SqliteLog(folder / "log.db")


def ag2_memory(_: Path) -> Any:
    from ag2.knowledge import MemoryKnowledgeStore  # type: ignore  # noqa: PLC0415

    return MemoryKnowledgeStore()


def ag2_disk(folder: Path) -> Any:
    from ag2.knowledge import SqliteKnowledgeStore  # noqa: PLC0415

    return SqliteKnowledgeStore(str(folder / "ag2.db"))


def dbos(folder: Path) -> peers.Taken:
    from dbos import DBOS  # type: ignore  # noqa: PLC0415

    address = f"sqlite:///{folder / 'dbos.db'}"
    DBOS(config={"name": "bench", "system_database_url": address, "log_level": "ERROR"})

    @DBOS.step()  # type: ignore[untyped-decorator]
    def step(number: int) -> int:
        return number + 1

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def workflow(steps: int) -> int:
        number = 0
        while number < steps:
            number = step(number)
        return number

    DBOS.launch()
    try:
        return peers.measure(workflow, units=TURNS, warm_up=WARM_UP)
    finally:
        DBOS.destroy()


SIDES: Final = {
    "Turnline, memory": ours(memory, NAMES, converse, units=TURNS, warm_up=WARM_UP),
    "AG2, memory": theirs(ag2_memory, NAMES, converse, units=TURNS, warm_up=WARM_UP),
    "Turnline, disk": ours(disk, NAMES, converse, units=TURNS, warm_up=WARM_UP),
    "AG2, disk": theirs(ag2_disk, NAMES, converse, units=TURNS, warm_up=WARM_UP),
    "DBOS": dbos,
}

if __name__ == "__main__":
    peers.compare(__file__, SIDES, unit="turn", aim="aim: 30 times AG2 on memory, 25 times on disk, by CPU")
