"""The few statements a block of a token may hold; whatever else it holds, the token is refused.

    user("alice");  group("ops");  scope("runs:read");                 in the first block only
    check if time($t), $t < 2030-01-01T00:00:00Z;
    check if operation("runs.read") or operation("runs.list");
    check if resource("lead_processing");

A holder may append blocks of any Datalog, and evaluating some of it takes minutes: a join of four
predicates over thirty facts took 80 times the time limit it was given. So it is read before it is
evaluated, and what passes costs next to nothing.

The library prints texts without escaping them. A block whose texts hold a quote could therefore print as
statements that it does not hold; `check_symbols` refuses it, and then what is printed is what is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from turnline.errors import Unauthenticated
from turnline.server.auth.operations import is_scope
from turnline.server.auth.principal import Bound

MAX_CHECKS: Final = 4
"""In one block."""
MAX_ALTERNATIVES: Final = 16
"""In one check."""
MAX_NAME_CHARACTERS: Final = 128
MAX_SOURCE_CHARACTERS: Final = 8_192
"""Of one block. A token of 2 KiB that says one long text many times prints as more."""

_TEXT: Final = rf'"([^"\\]{{1,{MAX_NAME_CHARACTERS}}})"'
_FACT: Final = re.compile(rf"(user|group|scope)\({_TEXT}\);")
_EXPIRY: Final = re.compile(
    r"check if time\(\$(\w{1,32})\), \$\1 (?:<|<=) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ);", re.ASCII
)
_BOUND: Final = re.compile(
    rf"check if (operation|resource)\({_TEXT}\)(?: or \1\({_TEXT}\)){{0,{MAX_ALTERNATIVES - 1}}};"
)
_ALLOWED: Final = re.compile(_TEXT)
_SYMBOLS: Final = re.compile(r'Biscuit \{\n    symbols: \[(?:"[^"\\\n]*"(?:, "[^"\\\n]*")*)?\]\n')


class Block(Struct, frozen=True, kw_only=True):
    """What one block says."""

    facts: tuple[tuple[str, str], ...]
    expiries: tuple[datetime, ...]
    bounds: tuple[Bound, ...]


class Grant(Struct, frozen=True, kw_only=True):
    """What all blocks of a token say together."""

    user_id: str
    groups: tuple[str, ...]
    scopes: tuple[str, ...]
    expires_at: datetime
    bounds: tuple[Bound, ...]


def check_symbols(shown: str) -> None:
    """Refuse a token, shown as the library shows it, with a text that could pass for something else."""
    if _SYMBOLS.match(shown) is None:
        raise Unauthenticated("the token holds a text with a quote, a backslash or an invisible character")


def read_block(source: str) -> Block:
    """Return what the block says. Raises `Unauthenticated` at the first statement that is not allowed."""
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise Unauthenticated("a block of the token is too long")
    facts, expiries, bounds = list[tuple[str, str]](), list[datetime](), list[Bound]()
    for statement in source.removesuffix("\n").split("\n"):
        if found := _FACT.fullmatch(statement):
            facts.append((found[1], found[2]))
        elif found := _EXPIRY.fullmatch(statement):
            expiries.append(_time(found[2]))
        elif found := _BOUND.fullmatch(statement):
            bounds.append(_bound(found))
        else:
            raise Unauthenticated(f"the token holds something else than {_MAY_HOLD}")
    if len(expiries) + len(bounds) > MAX_CHECKS:
        raise Unauthenticated(f"a block of the token has more than {MAX_CHECKS} checks")
    return Block(facts=tuple(facts), expiries=tuple(expiries), bounds=tuple(bounds))


def combine(blocks: Sequence[Block]) -> Grant:
    """Return what the blocks say together: the first one grants, every other one only narrows."""
    authority, *later = blocks
    if any(block.facts for block in later):
        raise Unauthenticated("a block after the token's first holds facts; only the first one grants")
    users = _said(authority, "user")
    scopes = _said(authority, "scope")
    if len(users) != 1:
        raise Unauthenticated(f"the token names {len(users)} users; expected one")
    if not authority.expiries:
        raise Unauthenticated("the token has no expiry")
    if not all(map(is_scope, scopes)):
        raise Unauthenticated("the token holds a scope that is none")
    return Grant(
        user_id=users[0],
        groups=_said(authority, "group"),
        scopes=scopes,
        expires_at=min(moment for block in blocks for moment in block.expiries),
        bounds=tuple(bound for block in blocks for bound in block.bounds),
    )


_MAY_HOLD: Final = "facts about its user and simple checks of time, operation and resource"


def _said(block: Block, name: str) -> tuple[str, ...]:
    return tuple(value for fact, value in block.facts if fact == name)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Unauthenticated("the token expires at a time that is none") from None


def _bound(found: re.Match[str]) -> Bound:
    kind: Literal["operation", "resource"] = "operation" if found[1] == "operation" else "resource"
    return Bound(kind, tuple(_ALLOWED.findall(found[0])))
