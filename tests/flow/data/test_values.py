"""What a field holds: taken from a step, given back as JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from turnline.flow.data.field import DataField
from turnline.flow.data.values import DataType, Unfit, given, taken

UUID_TEXT = "2a57f7ee-b13b-4639-b6a4-016d3ea39e11"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        ("string", "é", "é"),
        ("text", "", ""),
        ("integer", -3, -3),
        ("number", 3, 3.0),
        ("boolean", False, False),
        ("date", "2030-01-31", date(2030, 1, 31)),
        ("date", date(2030, 1, 31), date(2030, 1, 31)),
        ("datetime", "2030-01-01T12:00:00Z", NOON),
        ("datetime", "2030-01-01T14:00:00+02:00", NOON),
        ("datetime", "2030-01-01T12:00:00", NOON),
        ("datetime", datetime(2030, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))), NOON),
        ("uuid", UUID_TEXT.upper(), UUID_TEXT),
        ("uuid", UUID(UUID_TEXT), UUID_TEXT),
        ("json", {"a": [1, None]}, {"a": [1, None]}),
        ("decimal", "12.50", Decimal("12.5")),
        ("decimal", 0.1, Decimal("0.1")),
        ("decimal", Decimal("1.2E3"), Decimal(1200)),
        ("decimal", "-0", Decimal(0)),
    ],
)
def test_what_a_field_takes(kind: DataType, value: object, kept: object) -> None:
    found = taken(kind, value)

    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 3),
        ("string", "\ud800"),
        ("string", "a\0b"),
        ("string", b"bytes"),
        ("integer", True),
        ("integer", 1.0),
        ("integer", "1"),
        ("integer", 2**63),
        ("number", float("nan")),
        ("number", float("inf")),
        ("number", True),
        ("number", 10**400),
        ("boolean", 1),
        ("date", "tomorrow"),
        ("date", NOON),
        ("datetime", "noon"),
        ("datetime", date(2030, 1, 1)),
        ("datetime", 1_900_000_000),
        ("uuid", "not one"),
        ("uuid", 5),
        ("json", {"a": object()}),
        ("json", float("nan")),
        ("decimal", "1.2345678901234567"),
        ("decimal", "1e999999999"),
        ("decimal", "1e-999999999"),
        ("decimal", "NaN"),
        ("decimal", "twelve"),
        ("decimal", True),
    ],
)
def test_what_a_field_does_not_take_is_told_without_the_value(kind: DataType, value: object) -> None:
    with pytest.raises(Unfit) as error:
        taken(kind, value)

    assert str(error.value)
    assert repr(value) not in str(error.value)


def test_a_number_too_long_to_be_written_out_is_no_decimal() -> None:
    with pytest.raises(Unfit):
        taken("decimal", 10**5000)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (NOON, "2030-01-01T12:00:00+00:00"),
        (date(2030, 1, 31), "2030-01-31"),
        (Decimal("12.50"), "12.50"),
        (Decimal(1200), "1200"),
        ({"a": 1}, {"a": 1}),
        (None, None),
        (True, True),
    ],
)
def test_what_is_given_back_is_json(value: object, json: object) -> None:
    assert given(value) == json


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        (DataField(required=True), None, "required"),
        (DataField(required=True, nullable=True), None, ""),
        (DataField(nullable=False), None, "required"),
        (DataField(), None, ""),
        (DataField(enum=["new", "won"]), "lost", "one of 'new', 'won'"),
        (DataField(enum=["new", "won"]), "won", ""),
        (DataField(max_length=3), "four", "at most 3 characters"),
        (DataField(max_length=4), "four", ""),
        (DataField(type="decimal", scale=2), "1.234", "at most 2 digits"),
        (DataField(type="decimal", scale=2), "1.2", ""),
        (DataField(type="decimal", scale=6), "1234567890123", "15 in all"),
    ],
)
def test_what_else_holds_for_a_field(field: DataField, value: object, told: str) -> None:
    if not told:
        field.accept(value)
        return
    with pytest.raises(Unfit, match=told):
        field.accept(value)


def test_a_decimal_keeps_its_scale() -> None:
    assert given(DataField(type="decimal", scale=2).accept("7")) == "7.00"
