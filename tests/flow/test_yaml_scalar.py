"""What a plain scalar means: YAML 1.2, as far as it is JSON."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from turnline.flow.yaml_scalar import MAX_DIGITS, NotJson, Scalar, scalar_of


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "false", "False", "FALSE"])
def test_true_and_false_are_the_booleans(text: str) -> None:
    assert scalar_of(text) is (text.lower() == "true")


@pytest.mark.parametrize("text", ["on", "off", "yes", "no", "On", "YES", "y", "n", "tRUE"])
def test_no_other_word_is_a_boolean(text: str) -> None:
    assert scalar_of(text) == text


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_nothing_is_null(text: str) -> None:
    assert scalar_of(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-12", -12), ("+7", 7), ("007", 7), ("0x1F", 31), ("0o17", 15), ("1.5", 1.5), (".5", 0.5),
     ("-1.", -1.0), ("1e3", 1000.0), ("2.5E-1", 0.25)],
)  # fmt: skip
def test_numbers_are_decimal_hexadecimal_or_octal(text: str, number: Scalar) -> None:
    meant = scalar_of(text)

    assert meant == number
    assert type(meant) is type(number)


@pytest.mark.parametrize(
    "text",
    ["2026-01-31", "2026-01-31T10:00:00Z", "12:30", "190:20:30", "1_000", "0b101", "-0x1F", "1e", "0x", "٣"],
)
def test_dates_sexagesimals_and_underscores_are_texts(text: str) -> None:
    assert scalar_of(text) == text


@pytest.mark.parametrize("text", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e999", "9" * (MAX_DIGITS + 1)])
def test_a_number_that_json_has_not_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        scalar_of(text)


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back(number: float) -> None:
    assert scalar_of(str(number)) == number
