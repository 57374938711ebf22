"""What the processes of a world keep in memory: for channels that are over, and for turns that wait."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from turnline.client.participant import ParticipantClient
from turnline.flow.driver import Driver
from turnline.hub.hub import Hub
from turnline.turns.engine import Engine


def engines_of(hub: Hub) -> Iterator[tuple[str, Engine, ParticipantClient | None]]:
    """Yield the engines that are attached to a hub, by participant, with their clients."""
    for agent_id, receiver in hub._delivery._receivers.items():
        if isinstance(receiver, Engine):
            yield agent_id, receiver, None
            continue
        client = getattr(receiver.wake, "__self__", None)
        if isinstance(client, ParticipantClient) and client._engine is not None:
            yield agent_id, client._engine, client


def busy_with(engine: Engine) -> set[str]:
    """Return the channels for which an engine has a task."""
    return set(engine._tasks)


def left_over(hub: Hub, driver: Driver | None) -> Iterator[str]:
    """Yield what a process keeps although all channels are over."""
    for agent_id, engine, client in engines_of(hub):
        for problem in _left_in(engine, None if client is None else client._turns_at_once):
            yield f"{agent_id}: {problem}"
        if client is not None:
            for problem in _left_in_client(client):
                yield f"{agent_id}: {problem}"
    lane = hub.turns.lane
    yield from _not_empty(lane, "_running", "_held")
    if lane._suspect != ("", ""):
        yield f"the lane has the suspect {lane._suspect}"
    if hub.turns.remembered:
        yield f"{hub.turns.remembered} turns are remembered"
    waited_for = {name: list(found) for name, found in hub._delivery._waited_for.items() if found}
    if waited_for:
        yield f"waited for: {waited_for}"
    yield from _not_empty(hub.tree, "open_children")
    yield from _not_empty(hub._timers, "_ahead", "_since", "_pauses", "_rest")
    if driver is not None:
        yield from _not_empty(driver, "_took", "_errands")


def _left_in(engine: Engine, places: int | None) -> Iterator[str]:
    yield from _not_empty(engine, "_tasks", "_waiting", "_performing", "_offered")
    if engine._free != (inf if places is None else places):
        yield f"{engine._free} of {places} places are free"


def _left_in_client(client: ParticipantClient) -> Iterator[str]:
    yield from _not_empty(client, "_answering", "_notices")
    yield from _not_empty(client._inbox, "_read_to", "_news", "_feeding")
    turns = getattr(client, "_agent_turns", None)
    if turns is not None:
        yield from _not_empty(turns, "_conversations")


def _not_empty(owner: object, *names: str) -> Iterator[str]:
    for name in names:
        if found := getattr(owner, name):
            yield f"{type(owner).__name__}.{name} keeps {sorted(map(str, found))}"
