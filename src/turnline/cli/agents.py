"""`turnline agents`: who is registered on a log."""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnline.cli.options import AsJson, Folder, LogAddress, run

if TYPE_CHECKING:
    from turnline.core.envelope import JsonObject

EXAMPLE: Final = "Example: turnline agents --record --log story.db"

Record = Annotated[
    bool, typer.Option("--record", help="Also count turns and tasks, which reads the whole log.")
]


def agents(
    *, record: Record = False, log: LogAddress = None, directory: Folder = Path(), as_json: AsJson = False
) -> None:
    """List the agents and people that are registered on a log. In the order they came."""
    run(_list(log, directory, record=record, as_json=as_json))


async def _list(log: str | None, folder: Path, *, record: bool, as_json: bool) -> None:
    import msgspec

    from turnline.cli import tables
    from turnline.cli.open_log import looking_at
    from turnline.cli.plain import one_line, print_json

    told: list[JsonObject] = []
    async with looking_at(log, folder) as hub:
        for one in hub.participants():
            shown: JsonObject = {
                "id": one.agent_id,
                "name": one.name,
                "kind": one.passport.kind,
                "capabilities": list(one.resume.capabilities),
                "summary": one.resume.summary,
            }
            if record:
                shown["observed"] = msgspec.to_builtins(await hub.observed(one.agent_id))
            told.append(shown)
    if as_json:
        print_json(told)
        return
    head = ("name", "kind", "id", "capabilities", "summary", *(["observed"] if record else []))
    tables.show(head, [[one_line(_text(one.get(key, "")), _CHARACTERS) for key in head] for one in told])
    if not told:
        typer.echo("nobody is registered.", err=True)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items() if one)
    return str(value)


_CHARACTERS: Final = 80
