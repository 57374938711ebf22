"""Lists in pages, and one verb done to many: what `turnline channels` and `turnline runs` share.

Rule: a verb that is given filters instead of ids only lists what it would be done to, without `--yes`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import typer

from turnline.cli.options import Asked
from turnline.cli.plain import one_line, print_json
from turnline.client.bulk import Act, do_each
from turnline.client.embedded import Hub
from turnline.core.channel import ChannelFilter
from turnline.core.envelope import JsonObject
from turnline.log.walks import filter_of

OPERATOR: Final = "operator"
"""Who acts on the log from the command line."""
FAILED: Final = 1
_CHARACTERS: Final = 400
T = TypeVar("T")

ReadPage = Callable[[str, int], Awaitable[tuple[list[T], str | None]]]
"""Read a page: what it comes after, and at most how many -> what is on it, and what the next comes after."""


async def filter_for(hub: Hub, asked: Asked) -> ChannelFilter:
    """Return what the options of a list ask the index for. Raises `BadQuery`."""
    return filter_of(
        since=asked.since or "",
        until=asked.until or "",
        labels=asked.label or (),
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


async def do_and_tell(ids: Iterable[str], act: Act, *, as_json: bool) -> int:
    """Do something to each, and say what became of it. Return the exit code."""
    results = list[JsonObject]()
    async for done in do_each(ids, act):
        results.append(done)
        if not as_json:
            _tell(done)
    if as_json:
        print_json(results)
    return FAILED if any("error" in one for one in results) else 0


def _tell(done: JsonObject) -> None:
    if "result" in done:
        typer.echo(one_line(f"{done['id']} {done['result']}", _CHARACTERS))
    if "error" in done:
        typer.echo(one_line(f"{done['id']}: {done['error']['message']}", _CHARACTERS), err=True)
