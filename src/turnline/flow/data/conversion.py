"""Values of a column whose field has another type now.

    convert("7", "integer") -> 7        keeps("7", 7, "string") -> True

A value that the new type cannot hold raises `Unfit`. A value that the new type holds only in part,
1.5 as an integer, say, is lost too: `keeps` finds it. Text that is read as what it says is kept,
also where it would be written in another way: `2030-01-01T12:00:00Z` as a datetime.
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from sqlalchemy import JSON, BigInteger, Boolean, Date, DateTime, Float, Integer, Numeric, String
from sqlalchemy.types import TypeEngine

from turnline.flow.data.values import DataType, Unfit, Value, given, taken

_KINDS: Final[tuple[tuple[type[TypeEngine[Any]], DataType], ...]] = (
    (Boolean, "boolean"),
    (BigInteger, "integer"),
    (Integer, "integer"),
    (Float, "number"),
    (Numeric, "decimal"),
    (DateTime, "datetime"),
    (Date, "date"),
    (JSON, "json"),
    (String, "string"),
)
"""What the database says of a column -> the field it was made for. A float is also numeric to SQLAlchemy."""
_NUMBERS: Final = frozenset({"integer", "number", "boolean"})


def kind_of(found: TypeEngine[Any]) -> DataType | None:
    """Return the type of field that a column was made for; None if it is none of ours."""
    return next((kind for type_, kind in _KINDS if isinstance(found, type_)), None)


def convert(value: Value, kind: DataType) -> Value:
    """Return a value as a field of type `kind` keeps it. Raises `Unfit`."""
    if value is None:
        return None
    if isinstance(value, datetime) and kind == "date":
        return value.date()
    plain = given(value)
    if isinstance(plain, float) and plain.is_integer() and kind not in ("number", "json"):
        plain = int(plain)
    if kind in ("string", "text"):
        return taken(kind, plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False))
    if isinstance(plain, str) and kind in _NUMBERS:
        return convert(_read(plain), kind)
    if isinstance(value, str) and kind == "json":
        return taken(kind, _read_json(value))
    if isinstance(plain, bool) and kind in ("integer", "number", "decimal"):
        plain = int(plain)
    return taken(kind, bool(plain) if kind == "boolean" and plain in (0, 1) else plain)


def keeps(value: Value, new: Value, kind: DataType) -> bool:
    """Return whether `new` says all that `value`, of a field of type `kind`, said."""
    if isinstance(value, str):
        return not isinstance(new, float) or _as_decimal(value) == Decimal(repr(new))
    try:
        return convert(new, kind) == value
    except Unfit:
        return False


def _read(text: str) -> Value:
    try:
        found: Value = json.loads(text)
    except ValueError:
        raise Unfit("a text that is a number") from None
    if isinstance(found, str | dict | list):
        raise Unfit("a text that is a number")
    return found


def _read_json(text: str) -> Value:
    """Return what an object or a list in a text says; any other text stays one."""
    try:
        found: Value = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict | list) else text


def _as_decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return None
