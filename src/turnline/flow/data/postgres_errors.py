"""What PostgreSQL says when something is wrong, told without anybody's data.

Its messages quote values: `Key (email)=(jane@example.com) already exists`. What is told of a broken
rule is made of names alone, in SQLite's words, so that a step reads the same on both databases.
"""

from __future__ import annotations

import re
from typing import Any, Final

from turnline.errors.base import TurnlineError

_PASSING: Final = ("08", "53", "57P", "58", "40001", "40P01", "55P03", "25006")
"""Beginnings of SQLSTATEs: the connection, the server's resources, its shutdown, its disk, two steps
that were in each other's way, a lock that was not to be had, a standby that takes no writes."""
_QUOTES_NO_VALUES: Final = (*_PASSING, "0A", "25", "28", "3D", "3F", "42", "54", "55", "57", "XX")
_BREAKS_A_RULE: Final = "23"
_USER: Final = re.compile(r'\b(user|role) "[^"]*"')


def is_passing(error: BaseException) -> bool:
    """Whether nothing is wrong with what was asked: it may be asked again."""
    return _state(error).startswith(_PASSING)


def refusal(error: BaseException) -> str | None:
    """Say which rule of the tables a write breaks; None if it is something else."""
    state, diag = _state(error), getattr(error, "diag", None)
    if not state.startswith(_BREAKS_A_RULE) or diag is None:
        return None
    match state:
        case "23505":
            return f"UNIQUE constraint failed: {_place(diag, 'uq')}"
        case "23502":
            return f"NOT NULL constraint failed: {diag.table_name}.{diag.column_name}"
        case "23503" | "23001":
            return f"FOREIGN KEY constraint failed: {_place(diag, 'fk')}"
        case _:
            return f"constraint failed: {diag.constraint_name}"


def reason(error: BaseException) -> str:
    """Say what the server or the driver found, with the server's code for it."""
    if isinstance(error, TurnlineError):
        return str(error)
    state = _state(error)
    if not state:  # The driver's own words: the connection, never a value.
        return _nameless(str(error).strip().partition("\n")[0]) or type(error).__name__
    if told := refusal(error):
        return told
    primary = getattr(error.diag, "message_primary", None)  # type: ignore[attr-defined]
    if primary is None or not state.startswith(_QUOTES_NO_VALUES):
        primary = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    return f"{_nameless(primary)} ({state})"


def clean(error: BaseException) -> None:
    """Leave of an error's text what may be shown: it ends up in logs, by way of its traceback."""
    error.args = (reason(error),)


def _nameless(text: str) -> str:
    return _USER.sub(r'\1 "***"', text)


def _state(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def _place(diag: Any, prefix: str) -> str:
    """The field a constraint is about, by our names for constraints; else the constraint."""
    table, name = diag.table_name, diag.constraint_name or "?"
    if name == f"{table}_pkey":
        return f"{table}.id"
    column = name.removeprefix(f"{prefix}_{table}_")
    return f"{table}.{column}" if column != name else f"{table} ({name})"
