"""Lists in pages, and one verb done to many: what `turnline channels` and `turnline runs` share.

Rule: a verb that is given many does each by itself. What fails is reported, the others are done, and the exit
code says that something failed. So the same command can be given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import typer

from turnline.cli.options import Asked
from turnline.cli.plain import one_line, print_json
from turnline.client.embedded import Hub
from turnline.core.channel import ChannelFilter
from turnline.core.envelope import JsonObject
from turnline.errors import TurnlineError
from turnline.log.walks import filter_of

OPERATOR: Final = "operator"
"""Who acts on the log from the command line."""
FAILED: Final = 1
_CHARACTERS: Final = 400
AT_ONCE: Final = 8
"""Channels that something is done to at the same time."""
T = TypeVar("T")

Act = Callable[[str], Awaitable[JsonObject]]
"""Do something to a channel; return its `result`, and an `error` if that is none that was wished for."""

ReadPage = Callable[[str, int], Awaitable[tuple[list[T], str | None]]]
"""Read a page: what it comes after, and at most how many -> what is on it, and what the next comes after."""


async def filter_for(hub: Hub, asked: Asked) -> ChannelFilter:
    """Return what the options of a list ask the index for. Raises `BadQuery`."""
    return filter_of(
        since=asked.since or "",
        until=asked.until or "",
        labels=asked.labels or (),
        participants=await hub.find_ids(one for one in [asked.participant] if one),
        flow=asked.flow or "",
        now=hub.clock.now(),
    )


async def gather_pages(asked: Asked, read: ReadPage[T]) -> tuple[list[T], str | None]:
    """Return as many as were asked for, and what the next page comes after. A page may be short."""
    found, after = await read(asked.after or "", asked.limit)
    while after is not None and len(found) < asked.limit:
        more, after = await read(after, asked.limit - len(found))
        found += more
    return found, after


def tell_next(after: str | None) -> None:
    """Say how the next page is asked for, if there is one."""
    if after is not None:
        typer.echo(f"there are more: --after {after}", err=True)


async def do_each(ids: Iterable[str], act: Act, *, as_json: bool) -> int:
    """Do something to each, AT_ONCE at a time, and say what became of it. Return the exit code."""
    results, left = list[JsonObject](), list(dict.fromkeys(ids))
    while left:
        batch, left = left[:AT_ONCE], left[AT_ONCE:]
        done = await asyncio.gather(*(_do(one, act) for one in batch))
        results += done
        for one in () if as_json else done:
            _tell(one)
    if as_json:
        print_json(results)
    return FAILED if any("error" in one for one in results) else 0


async def _do(one: str, act: Act) -> JsonObject:
    try:
        return {"id": one, **await act(one)}
    except TurnlineError as error:
        return {"id": one, "error": {"type": type(error).__name__, "message": str(error)}}


def _tell(done: JsonObject) -> None:
    if "result" in done:
        typer.echo(one_line(f"{done['id']} {done['result']}", _CHARACTERS))
    if "error" in done:
        typer.echo(one_line(f"{done['id']}: {done['error']['message']}", _CHARACTERS), err=True)
