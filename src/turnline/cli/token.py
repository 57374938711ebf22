"""`turnline token`: make, narrow, look at and revoke tokens (F13).

A token goes to standard output and nowhere else, and is taken from standard input for `-`; a private key
goes nowhere.
"""

# The parts that verify tokens are installed on request, and cost their imports only when a verb is called.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from turnline.cli.plain import plain
from turnline.errors import LogUnavailable

if TYPE_CHECKING:
    from turnline.server.auth.biscuit import Seen

DEFAULT_LOG: Final = Path(".turnline") / "log.db"
_MAX_INPUT_CHARACTERS: Final = 8_192

app = typer.Typer(
    name="token",
    help="Make, narrow, inspect and revoke a server's tokens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Token = Annotated[str, typer.Argument(metavar="TOKEN", help="The token; `-` reads it from standard input.")]
Folder = Annotated[Path, typer.Option("--dir", help="The project's folder, where `.turnline/auth.key` is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.command(
    epilog="Example: turnline token mint --user alice --group ops --scope 'runs:start:*' --expires 1h"
)
def mint(
    *,
    user: Annotated[str, typer.Option(help="Whom the token stands for.")],
    expires: Annotated[str, typer.Option(help="How long it is good for: 30s, 5m, 2h, 1d.")],
    group: Annotated[
        list[str] | None, typer.Option(help="A group of the user's. Repeat for several.")
    ] = None,
    scope: Annotated[list[str] | None, typer.Option(help="What it allows. Repeat for several.")] = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a token, signed by the project's key. Without one, a key is made first."""
    from turnline.server.auth import biscuit, keys

    now, lifetime = _now(), _lifetime(expires)
    key = keys.ensure_root_key(os.environ, directory)
    for one in scope or ():
        _note_if_unneeded(one)
    token = biscuit.mint(
        key, user_id=user, groups=group or (), scopes=scope or (), expires_at=now + lifetime, now=now
    )
    _print_token(token, as_json)


@app.command(epilog="Example: turnline token attenuate TOKEN --expires 5m --operation runs.read")
def attenuate(
    token: Token,
    *,
    expires: Annotated[str | None, typer.Option(help="How long it is good for, at most.")] = None,
    operation: Annotated[
        list[str] | None, typer.Option(help="An operation it is good for. Repeat for several.")
    ] = None,
    resource: Annotated[
        list[str] | None, typer.Option(help="A flow, run or channel it is good for. Repeat for several.")
    ] = None,
    directory: Folder = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a token from another that can do less. Needs only the project's public key."""
    from turnline.server.auth import biscuit, keys

    now = _now()
    narrower = biscuit.attenuate(
        _given(token),
        public_key=keys.verifying_key(os.environ, directory),
        expires_at=None if expires is None else now + _lifetime(expires),
        operations=operation or (),
        resources=resource or (),
        now=now,
    )
    _print_token(narrower, as_json)


@app.command(epilog="Example: turnline token mint --user alice --expires 1h | turnline token inspect -")
def inspect(token: Token, directory: Folder = Path(), as_json: AsJson = False) -> None:
    """Show what a token says, and whether a server would accept it. Exits with 1 if not."""
    from turnline.server.auth import biscuit

    seen = biscuit.look(_given(token), public_key=_public_key(directory), now=_now())
    typer.echo(json.dumps(_facts(seen), indent=2) if as_json else _shown(seen))
    if seen.problem:
        raise typer.Exit(1)


@app.command(epilog="Example: turnline token revoke TOKEN --dir leads --reason 'lost laptop'")
def revoke(
    token: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN", help="The token, `-` for standard input, or an id that `inspect` shows."
        ),
    ],
    *,
    directory: Annotated[
        Path, typer.Option("--dir", help="The project's folder, where its log is.")
    ] = Path(),
    log: Annotated[str | None, typer.Option(help="The log's address, if it is elsewhere.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for whoever reads the log.")] = "",
    by: Annotated[str, typer.Option(help="Who revokes it.")] = "operator",
    as_json: AsJson = False,
) -> None:
    """Revoke a token and every token made from it. On the log that its servers share."""
    import asyncio

    from turnline.server.auth.revocation import is_revocation_id

    given = _given(token)
    revocation_id = given if is_revocation_id(given) else _last_id(given)
    address = log or _default_log(directory)
    asyncio.run(_revoke(address, revocation_id, reason, by))
    told = {"revoked": revocation_id, "log": address}
    typer.echo(json.dumps(told) if as_json else f"revoked {revocation_id}")


@app.command(epilog="Example: turnline token key --dir leads")
def key(directory: Folder = Path(), as_json: AsJson = False) -> None:
    """Show the public half of the project's key. It verifies tokens; makes the key if there is none."""
    from turnline.server.auth import keys

    found = keys.ensure_root_key(os.environ, directory)
    where = keys.KEY_VARIABLE if os.environ.get(keys.KEY_VARIABLE) else str(directory / keys.KEY_FILE)
    told = {"public_key": found.public, "private_key_in": where}
    typer.echo(json.dumps(told) if as_json else f"{keys.PUBLIC_KEY_VARIABLE}={found.public}")


def _note_if_unneeded(scope: str) -> None:
    from turnline.server.auth.operations import check_scope, is_needed

    check_scope(scope)
    if not is_needed(scope):
        typer.echo(f"note: {scope!r} counts only for flows whose trigger asks for it", err=True)


def _now() -> datetime:
    from turnline.hub.timers import SystemClock

    return SystemClock().now().replace(microsecond=0)


def _lifetime(text: str) -> timedelta:
    from turnline.flow.definition.base import MAX_DURATION_SECONDS, seconds

    try:
        found = seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--expires") from None
    if not isinstance(found, float) or not 1 <= found <= MAX_DURATION_SECONDS:
        raise typer.BadParameter("expected between a second and ten years", param_hint="--expires")
    return timedelta(seconds=found)


def _given(token: str) -> str:
    return sys.stdin.read(_MAX_INPUT_CHARACTERS).strip() if token == "-" else token


def _public_key(directory: Path) -> str | None:
    """The project's, if there is one to check a signature with."""
    from turnline.server.auth import keys

    if not keys.has_key(os.environ, directory):
        return None
    return keys.verifying_key(os.environ, directory)


def _default_log(directory: Path) -> str:
    path = directory / DEFAULT_LOG
    if not path.exists():  # A new log in the wrong folder would be a token that is not revoked.
        raise LogUnavailable(f"sqlite:///{path}", because="there is none; name it with --dir or --log")
    return f"sqlite:///{path}"


async def _revoke(address: str, revocation_id: str, reason: str, by: str) -> None:
    from turnline.hub.timers import SystemClock, sortable_ids
    from turnline.log.address import open_log
    from turnline.server.auth.revocation import Revocations

    log, clock = open_log(address), SystemClock()
    try:
        await Revocations(log, clock, sortable_ids(clock)).revoke([revocation_id], reason=reason, by=by)
    finally:
        await log.close()


def _last_id(token: str) -> str:
    """Return the id that revokes the token. An earlier id would revoke the token it was made from, too."""
    from turnline.server.auth.biscuit import unverified

    return unverified(token).revocation_ids[-1]


def _print_token(token: str, as_json: bool) -> None:
    told = {"token": token, "revocation_id": _last_id(token)}
    typer.echo(json.dumps(told) if as_json else token)


def _facts(seen: Seen) -> dict[str, object]:
    grant = seen.grant
    said: dict[str, object] = {}
    if grant is not None:
        said = {
            "user": grant.user_id,
            "groups": grant.groups,
            "scopes": grant.scopes,
            "expires_at": grant.expires_at.isoformat(),
            "checks": [{"kind": bound.kind, "allowed": bound.allowed} for bound in grant.bounds],
        }
    return said | {
        "signature": seen.signature,
        "accepted": not seen.problem,
        "problem": seen.problem,
        "blocks": seen.blocks,
        "revocation_ids": seen.revocation_ids,
    }


def _shown(seen: Seen) -> str:
    lines = []
    if seen.grant is not None:
        lines += [
            f"user        {seen.grant.user_id}",
            f"groups      {', '.join(seen.grant.groups) or 'none'}",
            f"scopes      {', '.join(seen.grant.scopes) or 'none'}",
            f"expires     {seen.grant.expires_at.isoformat()}",
        ]
    lines += [
        f"signature   {seen.signature}",
        f"accepted    {'no: ' + seen.problem if seen.problem else 'yes'}",
    ]
    for index, (source, revocation_id) in enumerate(zip(seen.blocks, seen.revocation_ids, strict=True)):
        lines += [f"block {index}", f"    id  {revocation_id}"]
        lines += [f"    {plain(statement)}" for statement in source.splitlines()]
    return "\n".join(map(plain, lines))
