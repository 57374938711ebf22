"""What must not grow: a post against what is there already, and what must grow no more than it has to.

    post, channel of N lines         the same for every N
    post, N other open channels      the same
    post, N context variables        the same
    turn after N messages            the same: an agent is shown a window of the conversation
    FullTranscript of N messages     linear, for an agent that is shown all of it

All of it is CPU time, on a log in memory. The smallest and the largest N are measured in turn; each figure is
the median of the rounds, and each ratio is that of the largest N to the smallest one.

    python bench/growth.py [--all]       also a channel of 100,000 lines, and 10,000 open channels
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple

from walk import open_hub

from turnline.agent.agent import Agent
from turnline.client.channel import Channel
from turnline.core.views import FullTranscript, views
from turnline.network import (
    AgentTarget,
    FromSpeaker,
    HumanClient,
    Passport,
    RevertToInitiatorTarget,
    Transition,
    TransitionGraph,
)
from turnline.testing import ScriptedModel

ROUNDS: Final = 5
TIMES: Final = 30
"""Units of each round."""
AT_ONCE: Final = 200
FEW: Final = 50
"""Messages that are sent at once, where a turn costs more the more of them there are."""

Unit = Callable[[], Awaitable[object]]


class Growth(NamedTuple):
    """A unit of work, with so many of something there already."""

    prepare: Callable[[int], Any]
    sizes: tuple[int, int]
    most: int
    """The larger size, with `--all`."""
    wanted: float
    """The ratio that is wanted at most, for each time that the size grows; 0: none at all."""


@asynccontextmanager
async def conversation(**knobs: Any) -> AsyncIterator[tuple[HumanClient, Channel]]:
    """Open a conversation between a person and a participant that says nothing."""
    async with open_hub() as (_, client):
        ann = await client.register_human(Passport(name="ann", kind="human"))
        await client.register(passport=Passport(name="ben"))
        yield ann, await ann.open("conversation", "ben", knobs)


@asynccontextmanager
async def post_to_lines(count: int) -> AsyncIterator[Unit]:
    async with conversation() as (_, channel):
        for _ in range(count // AT_ONCE):
            await asyncio.gather(*(channel.send("filling up") for _ in range(AT_ONCE)))
        yield lambda: channel.send("what does this cost?")


@asynccontextmanager
async def post_among_channels(count: int) -> AsyncIterator[Unit]:
    async with conversation() as (ann, channel):
        for _ in range(max(1, count // AT_ONCE)):
            await asyncio.gather(*(ann.open("conversation", "ben") for _ in range(min(count, AT_ONCE))))
        yield lambda: channel.send("what does this cost?")


@asynccontextmanager
async def post_with_variables(count: int) -> AsyncIterator[Unit]:
    async with conversation(context_vars={f"variable_{n}": n for n in range(count)}) as (_, channel):
        yield lambda: channel.send("what does this cost?")


@asynccontextmanager
async def turn_after_messages(count: int, **knobs: Any) -> AsyncIterator[Unit]:
    async with open_hub() as (hub, client):
        ann = await client.register_human(Passport(name="ann", kind="human"))
        await client.register(Agent("clerk", config=ScriptedModel(*["I see."] * 10_000)))
        graph = TransitionGraph(
            initial_speaker="ann",
            transitions=[Transition(FromSpeaker("ann"), AgentTarget("clerk"))],
            default_target=RevertToInitiatorTarget(),
        )
        channel = await ann.open("workflow", "clerk", {"graph": graph.to_dict(), **knobs})

        async def turn() -> None:
            seq = (await channel.send("and now?")).seq
            while (await hub.state(channel.channel_id)).expected_next_speaker != ann.agent_id:
                await hub.wait_beyond(channel.channel_id, seq)
                seq = (await hub.state(channel.channel_id)).seq

        for _ in range(count // FEW):
            await asyncio.gather(*(channel.send("by the way", interject=True) for _ in range(FEW)))
        yield turn


GROWTHS: Final = {
    "post, channel of N lines": Growth(post_to_lines, (200, 10_000), 100_000, 1.25),
    "post, N other open channels": Growth(post_among_channels, (1, 1_000), 10_000, 1.25),
    "post, N context variables": Growth(post_with_variables, (1, 1_000), 1_000, 1.25),
    "turn after N messages": Growth(turn_after_messages, (100, 1_000), 10_000, 1.25),
    "FullTranscript of N messages": Growth(
        partial(turn_after_messages, view=views.to_dict(FullTranscript())), (200, 1_000), 10_000, 0.0
    ),
}


async def cpu_seconds(unit: Unit) -> float:
    start = time.process_time()
    for _ in range(TIMES):
        await unit()
    return (time.process_time() - start) / TIMES


async def measure(name: str, growth: Growth, *, is_all: bool) -> str:
    """Measure both sizes in turn; print them and return the line with the ratio."""
    few, many = growth.sizes[0], growth.most if is_all else growth.sizes[1]
    took: dict[int, list[float]] = {few: [], many: []}
    async with AsyncExitStack() as stack:
        units = {size: await stack.enter_async_context(growth.prepare(size)) for size in took}
        for unit in units.values():
            await cpu_seconds(unit)
        for _ in range(ROUNDS):
            for size, unit in units.items():
                took[size].append(await cpu_seconds(unit))
    figures = {size: median(times) for size, times in took.items()}
    for size, seconds in figures.items():
        print(f"{name:30} N = {size:>7,}{seconds * 1e6:10,.0f} us", flush=True)
    ratio = figures[many] / figures[few]
    if not growth.wanted:
        return f"{name}: {ratio:.1f} for {many / few:g} times as many (linear: {many / few:g})"
    return f"{name}: {ratio:.2f} from {few:,} to {many:,} (wanted: at most {growth.wanted})"


async def main(*, is_all: bool) -> None:
    lines = [await measure(name, growth, is_all=is_all) for name, growth in GROWTHS.items()]
    print("\n".join(lines))


if __name__ == "__main__":
    asyncio.run(main(is_all="--all" in sys.argv[1:]))
