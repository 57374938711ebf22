"""What a field of a data model holds: taken from a step, given back as JSON.

    taken("datetime", "2030-01-01T12:00:00Z") -> datetime        given(datetime) -> text

`taken` takes what JSON or Python says and returns what the database keeps; whatever it
does not take, it raises as an `Unfit` that says what was expected, never what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, Literal
from uuid import UUID

from turnline.core.json import normalised
from turnline.errors import BadDraft

DataType = Literal[
    "string", "text", "integer", "number", "boolean", "date", "datetime", "uuid", "json", "decimal"
]
MAX_INTEGER: Final = 2**63 - 1
MAX_DIGITS: Final = 15
"""Of a decimal: what every database keeps exactly."""

Value = str | int | float | bool | date | datetime | Decimal | dict[str, Any] | list[Any] | None


class Unfit(ValueError):
    """A value is not what the field holds. The message says what was expected."""


def taken(kind: DataType, value: object) -> Value:
    """Return `value` as the database keeps it, or raise `Unfit` with what was expected."""
    return _TAKEN[kind](value)


def given(value: Any) -> Any:
    """Return a value of the database as JSON."""
    if isinstance(value, date):  # A datetime is one, too.
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit("text")
    return str(_json(value))


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise Unfit("a whole number of at most 64 bits")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise Unfit("a finite number")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unfit("true or false")
    return value


def _date(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    expected = "a date such as 2030-01-31"
    if not isinstance(value, str):
        raise Unfit(expected)
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise Unfit(expected) from None


def _datetime(value: object) -> datetime:
    """A time without a zone is one in UTC."""
    expected = "a time such as 2030-01-31T12:00:00Z"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Unfit(expected) from None
    if not isinstance(value, datetime):
        raise Unfit(expected)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _uuid(value: object) -> str:
    try:
        return str(value if isinstance(value, UUID) else UUID(_text(value)))
    except ValueError:
        raise Unfit("a UUID") from None


def _decimal(value: object) -> Decimal:
    expected = f"a decimal number of at most {MAX_DIGITS} digits"
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise Unfit(expected)
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):  # The second for an integer that is too long to be written out.
        raise Unfit(expected) from None
    if not number.is_finite() or not is_short(number):
        raise Unfit(expected)
    return plain(number)


def plain(number: Decimal) -> Decimal:
    """The one way to write a decimal: 12.5 for 12.50, 1200 for 1.2e3, 0 for -0."""
    shortest = (number + 0).normalize()
    return shortest.quantize(Decimal(1)) if shortest == shortest.to_integral_value() else shortest


def scaled(number: Decimal, scale: int) -> Decimal:
    """The same number, or the nearest, with so many digits behind the point."""
    return number.quantize(Decimal(1).scaleb(-scale))


def is_short(number: Decimal) -> bool:
    """Whether it is written with few digits, the zeros in front and behind included."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    before, behind = max(len(digits) + exponent, 0), max(-exponent, 0)
    return before + behind <= MAX_DIGITS


def _json(value: object) -> Any:
    try:
        return normalised({"value": value})["value"]
    except BadDraft as error:
        raise Unfit(error.expected) from None


_TAKEN: Final[Mapping[DataType, Callable[[object], Value]]] = {
    "string": _text,
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
    "datetime": _datetime,
    "uuid": _uuid,
    "json": _json,
    "decimal": _decimal,
}
