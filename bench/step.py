"""What does a durable step cost? Three functions in a loop, five context updates a step, each on the disk.

Turnline     three participants on one channel, `SqliteLog` (`synchronous=FULL`): one sync a step
LangGraph    three nodes of one graph, its `SqliteSaver` at `synchronous=FULL`, `durability="sync"`: two

python bench/step.py [PYTHON]        PYTHON: an interpreter with `langgraph-checkpoint-sqlite`
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypedDict

import peers

STEPS: Final = 600
WARM_UP: Final = 60
NAMES: Final = ("a", "b", "c")


def update(step: int) -> dict[str, int]:
    """Return the five updates of a step."""
    return {f"k{key}": step * 10 + key for key in range(5)}


def turnline(folder: Path) -> peers.Taken:
    from turnline.core.event_types import EV_CHANNEL_CLOSED  # noqa: PLC0415  A peer's Python has none of it.
    from turnline.core.routing import packet  # noqa: PLC0415
    from turnline.log.sqlite import SqliteLog  # noqa: PLC0415
    from turnline.network import (  # noqa: PLC0415
        AgentTarget,
        FromSpeaker,
        Hub,
        HubClient,
        LocalLink,
        Passport,
        TerminateTarget,
        Transition,
        TransitionGraph,
    )

    def graph(steps: int) -> TransitionGraph:
        following = zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)
        return TransitionGraph(
            initial_speaker=NAMES[0],
            transitions=[Transition(when=FromSpeaker(one), then=AgentTarget(to)) for one, to in following],
            default_target=TerminateTarget(),
            max_turns=steps,
        )

    with asyncio.Runner() as runner:
        done, most, ended = 0, 0, asyncio.Event()

        async def take_turn(_: Any) -> Any:
            nonlocal done
            done += 1
            if done == most:
                ended.set()
            return packet("", context_updates={"n": done, **update(done)})

        async def begin() -> tuple[Hub, HubClient, Any]:
            hub = await Hub.open(SqliteLog(folder / "turnline.db"))
            client = HubClient(LocalLink(hub))
            for name in NAMES:
                participant = await client.register(passport=Passport(name=name))
                participant.on_turn(take_turn)
            return hub, client, await client.register_human(Passport(name="user", kind="human"))

        async def go(steps: int) -> None:
            nonlocal done, most
            done, most = 0, steps
            ended.clear()
            channel = await user.open("workflow", list(NAMES), {"graph": graph(steps).to_dict()})
            await channel.send("go")
            await ended.wait()
            last = (await channel.info()).seq
            await channel.wait_for(lambda line: line.event_type == EV_CHANNEL_CLOSED, since=last - 1)

        async def end() -> None:
            await client.close()
            await hub.close()

        hub, client, user = runner.run(begin())
        found = peers.measure(lambda steps: runner.run(go(steps)), units=STEPS, warm_up=WARM_UP)
        runner.run(end())
    return found


def langgraph(folder: Path) -> peers.Taken:
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore  # noqa: PLC0415
    from langgraph.graph import END, START, StateGraph  # type: ignore  # noqa: PLC0415

    class State(TypedDict):
        n: int
        most: int
        k0: int
        k1: int
        k2: int
        k3: int
        k4: int

    def take_turn(state: State) -> dict[str, int]:
        return {"n": state["n"] + 1, **update(state["n"] + 1)}

    graph = StateGraph(State)
    for name in NAMES:
        graph.add_node(name, take_turn)
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", "c")
    graph.add_conditional_edges("c", lambda state: END if state["n"] >= state["most"] else "a")
    with closing(sqlite3.connect(folder / "langgraph.db", check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        connection.execute("PRAGMA synchronous = FULL")
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        app = graph.compile(checkpointer=saver)

        def go(steps: int) -> None:
            config = {"configurable": {"thread_id": str(steps)}, "recursion_limit": 2 * steps + 10}
            found = app.invoke({"n": 0, "most": steps}, config, durability="sync")
            assert found["n"] == steps, found

        return peers.measure(go, units=STEPS, warm_up=WARM_UP)


SIDES: Final = {"Turnline": turnline, "LangGraph": langgraph}

if __name__ == "__main__":
    peers.compare(__file__, SIDES, unit="step", aim="aim: 1.5 times or more")
