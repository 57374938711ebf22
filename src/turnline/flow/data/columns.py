"""How the types of fields are kept in a database: the same value comes back from every one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import JSON, BigInteger, Boolean, Date, DateTime, Double, Numeric, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeDecorator, TypeEngine

from turnline.flow.data.field import DataField
from turnline.flow.data.values import DataType, plain, scaled


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


class JsonValue(TypeDecorator[Any]):
    """JSON, or null: never the `null` of JSON."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        kind = JSONB if dialect.name == "postgresql" else JSON
        return dialect.type_descriptor(kind(none_as_null=True))

    def coerce_compared_value(self, op: OperatorType | None, value: Any) -> TypeEngine[Any]:
        # What is found inside, `details["name"]`, is compared as the plain type does.
        return self.impl_instance.coerce_compared_value(op, value)


def column_type(field: DataField) -> TypeEngine[Any]:
    """The type of a field's column. Lengths and scales are the field's affair, so that they can change."""
    kind = ExactDecimal(field.scale) if field.type == "decimal" else _TYPES[field.type]()
    # A null that somebody gives is one; to the ORM it would mean that nothing was given.
    return kind.evaluates_none()


def _text(kind: type[String], length: int | None = None) -> TypeEngine[Any]:
    """A text. PostgreSQL orders it as its database was told to, unless a column says how."""
    return kind(length).with_variant(kind(length, collation="C"), "postgresql")


_TYPES: Final[Mapping[DataType, Callable[[], TypeEngine[Any]]]] = {
    "string": lambda: _text(String),
    "text": lambda: _text(Text),
    "integer": BigInteger,
    "number": Double,
    "boolean": Boolean,
    "date": Date,
    "datetime": UtcDateTime,
    "uuid": lambda: _text(String, 36),
    "json": JsonValue,
}
