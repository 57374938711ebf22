"""What a step asks for: `where` and `order_by`, checked against the model.

    {"status": "new", "score": {"gt": 80}, "email": {"ends_with": "@acme.com"}}
    "-created_at", ["company_id", "-score"]

All of `where` has to hold. A value is compared as the field keeps it; None is null, and before
every value in an order. Texts are ordered by their code points, and searched for without regard
to the case of A to Z. All this is the same on every database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, UnaryExpression, and_

from turnline.errors import BadField
from turnline.flow.data.definition import ID
from turnline.flow.data.mapped import MappedModel

MAX_VALUES: Final = 1000
"""Of `in` and `not_in`."""

Compare = Callable[[Any, Any], ColumnElement[bool]]
_ONE: Final[Mapping[str, Compare]] = {
    "eq": lambda column, value: column.is_(None) if value is None else column == value,
    "ne": lambda column, value: column.is_distinct_from(value),
    "gt": lambda column, value: column > value,
    "gte": lambda column, value: column >= value,
    "lt": lambda column, value: column < value,
    "lte": lambda column, value: column <= value,
}
_MANY: Final[Mapping[str, Compare]] = {
    "in": lambda column, values: column.in_(values),
    "not_in": lambda column, values: column.not_in(values),
}
_TEXT: Final[Mapping[str, Compare]] = {
    "contains": lambda column, value: column.icontains(value, autoescape=True),
    "starts_with": lambda column, value: column.istartswith(value, autoescape=True),
    "ends_with": lambda column, value: column.iendswith(value, autoescape=True),
}
OPERATORS: Final = (*_ONE, *_MANY, *_TEXT, "is_null")


def condition(model: MappedModel, where: Mapping[str, object]) -> ColumnElement[bool]:
    """Return what `where` means. Raises `BadField`."""
    parts = []
    for name, wanted in model.by_column(where).items():
        operators = wanted if isinstance(wanted, Mapping) else {"eq": wanted}
        parts += [_compared(model, name, operator, value) for operator, value in operators.items()]
    return and_(True, *parts)


def ordering(model: MappedModel, order_by: str | Sequence[str]) -> list[UnaryExpression[Any]]:
    """Return what `order_by` means, down to the id, so that pages neither overlap nor leave gaps."""
    names = [order_by] if isinstance(order_by, str) else list(order_by)
    keys = [*names, *(name for name in ("created_at",) if not names and name in model.columns), ID]
    found = []
    for key in keys:
        name = key.removeprefix("-")
        model.field(name)
        column = getattr(model.record, name)
        found.append(column.desc().nulls_last() if key.startswith("-") else column.asc().nulls_first())
    return found


def _compared(model: MappedModel, name: str, operator: str, value: object) -> ColumnElement[bool]:
    kind = model.field(name).type
    column = getattr(model.record, name)
    if operator == "is_null" and isinstance(value, bool):
        return column.is_(None) if value else column.is_not(None)  # type: ignore[no-any-return]
    if operator in _ONE and (kind != "json" or value is None):
        return _ONE[operator](column, _as_kept(model, name, value))
    if operator in _MANY and kind != "json":
        return _MANY[operator](column, _many(model, name, value))
    if operator in _TEXT and kind in ("string", "text", "uuid") and isinstance(value, str):
        return _TEXT[operator](column, value)
    raise BadField(
        model.name,
        name,
        found=f"compared by {operator!r} with a {type(value).__name__}",
        expected=f"a comparison that fits its type {kind}, of {', '.join(OPERATORS)}",
    )


def _as_kept(model: MappedModel, name: str, value: object) -> object:
    """A value to compare with need not be one that the field would take, but has to be of its type."""
    if value is None:
        return None
    plain = model.field(name).model_copy(update={"enum": None, "max_length": None, "scale": None})
    return model.taken_as(plain, name, value)


def _many(model: MappedModel, name: str, values: object) -> list[object]:
    if not isinstance(values, list | tuple | set | frozenset) or len(values) > MAX_VALUES:
        expected = f"a list of at most {MAX_VALUES} values"
        raise BadField(model.name, name, found=f"a {type(values).__name__}", expected=expected)
    return [_as_kept(model, name, value) for value in values]
