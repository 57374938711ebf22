"""How the types of fields are kept in a database: the same value comes back from every one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import JSON, BigInteger, Boolean, Date, DateTime, Double, Numeric, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from turnwise.flow.data.field import DataField
from turnwise.flow.data.values import DataType, plain, scaled


class UtcDateTime(TypeDecorator[datetime]):
    """A moment. SQLite keeps no zone, so it is kept in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal number. SQLite keeps a float, which is exact for as many digits as a field takes."""

    impl = Numeric
    cache_ok = True

    def __init__(self, scale: int | None = None) -> None:
        super().__init__()
        self.scale = scale

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return Numeric() if dialect.supports_native_decimal else Numeric(asdecimal=False)

    def process_result_value(self, value: float | Decimal | None, dialect: Dialect) -> Decimal | None:
        if value is None:
            return None
        number = plain(Decimal(str(value)))
        return number if self.scale is None else scaled(number, self.scale)


def column_type(field: DataField) -> TypeEngine[Any]:
    """The type of a field's column. Lengths and scales are the field's affair, so that they can change."""
    return ExactDecimal(field.scale) if field.type == "decimal" else _TYPES[field.type]()


_TYPES: Final[Mapping[DataType, Callable[[], TypeEngine[Any]]]] = {
    "string": String,
    "text": Text,
    "integer": BigInteger,
    "number": Double,
    "boolean": Boolean,
    "date": Date,
    "datetime": UtcDateTime,
    "uuid": lambda: String(36),
    "json": lambda: JSON(none_as_null=True),
}
