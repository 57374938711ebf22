"""E2: what may stand in an envelope's data is JSON, exactly, and the error names the place."""

from __future__ import annotations

import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from types import FrameType
from typing import Final

import msgspec
import pytest
from hypothesis import given, strategies as st

from turnline.core.channel import ChannelState
from turnline.core.envelope import JsonObject
from turnline.core.json import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_INTEGER_BITS,
    MAX_KEY_CHARACTERS,
    MAX_VALUES,
    Flaw,
    flaw_in,
    is_number,
    normalised,
)
from turnline.errors import BadDraft


def nested(levels: int) -> object:
    """A value that is `levels` lists deep."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def refused(data: object) -> BadDraft:
    with pytest.raises(BadDraft) as refusal:
        normalised(data)
    return refusal.value


def test_json_is_returned_as_a_restart_would_read_it() -> None:
    data = {"text": "ü 🦊", "n": 1, "x": -0.5, "yes": True, "none": None, "list": [{}, [], ""], "": 2**53}

    assert normalised(data) == data


def test_what_is_returned_shares_nothing_with_what_was_given() -> None:
    inner = [1]
    data = {"inner": inner}
    mine = normalised(data)
    inner.append(2)
    data["more"] = []

    assert mine == {"inner": [1]}


@pytest.mark.parametrize("data", [None, [], "text", 1, [("a", 1)]])
def test_only_an_object_is_data(data: object) -> None:
    assert refused(data).field == "event_data"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(value: float) -> None:
    error = refused({"a": [0, value]})

    assert error.field == "event_data.a[1]"
    assert "NaN" in error.expected


@pytest.mark.parametrize(
    "value", [(1, 2), {1}, b"bytes", datetime(2030, 1, 1, tzinfo=UTC), Decimal(1), object(), Ellipsis]
)
def test_what_would_read_back_as_something_else_is_refused(value: object) -> None:
    error = refused({"deep": {"list": [value]}})

    assert error.field == "event_data.deep.list[0]"
    assert type(value).__name__ in error.found


@pytest.mark.parametrize("key", [1, None, True, ("a",), b"a"])
def test_keys_are_text(key: object) -> None:
    error = refused({"deep": {key: 1}})

    assert error.field == "event_data.deep"
    assert "string keys" in error.expected


def test_a_long_key_is_refused() -> None:
    assert normalised({"k" * MAX_KEY_CHARACTERS: 1})
    assert refused({"k" * (MAX_KEY_CHARACTERS + 1): 1}).field == "event_data"


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\0", "a\0", "ü\0"])
@pytest.mark.parametrize("place", ["value", "key"])
def test_text_that_is_not_text_everywhere_is_refused(text: str, place: str) -> None:
    """Lone surrogates have no bytes; PostgreSQL has no NUL."""
    data = {"a": {text: 1}} if place == "key" else {"a": {"b": text}}

    assert refused(data).field == ("event_data.a" if place == "key" else "event_data.a.b")


def test_depth_has_a_limit() -> None:
    assert normalised({"a": nested(MAX_DEPTH - 1)})
    assert "deeper" in refused({"a": nested(MAX_DEPTH)}).found


def test_an_endless_object_is_refused_not_followed() -> None:
    endless: dict[str, object] = {}
    endless["self"] = endless

    assert "deeper" in refused(endless).found


def test_size_has_a_limit() -> None:
    frame = len(b'{"a":""}')
    assert normalised({"a": "x" * (MAX_BYTES - frame)})
    error = refused({"a": "x" * (MAX_BYTES - frame + 1)})

    assert (error.field, error.found) == ("event_data", f"{MAX_BYTES + 1} bytes of JSON")


def test_size_is_counted_in_bytes_not_characters() -> None:
    assert "bytes" in refused({"a": "ü" * (MAX_BYTES // 2)}).found


def test_another_field_and_limit_may_be_named() -> None:
    with pytest.raises(BadDraft) as refusal:
        normalised({"a": 1}, field="knobs", max_bytes=3)

    assert refusal.value.field == "knobs"


def test_subclasses_read_back_as_the_plain_thing() -> None:
    class Color(IntEnum):
        RED = 1

    mine = normalised(OrderedDict(color=Color.RED, name="red"))

    assert mine == {"color": 1, "name": "red"}
    assert type(mine) is dict
    assert type(mine["color"]) is int


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(data=st.dictionaries(st.text(max_size=4), anything, max_size=4))
def test_data_is_refused_or_reads_back_equal(data: dict[str, object]) -> None:
    try:
        mine = normalised(data)
    except BadDraft:
        return

    assert mine == data
    assert msgspec.json.decode(msgspec.json.encode(mine)) == mine


class Shout(str):
    pass


class Level(int):
    pass


class Share(float):
    pass


def test_e2_subclasses_of_text_and_numbers_become_plain_ones() -> None:
    """A numpy float or a string enum must not break the append, nor read back as something else."""
    plain = normalised({Shout("key"): [Shout("text"), Level(3), Share(0.5), ChannelState.CLOSED]})

    assert plain == {"key": ["text", 3, 0.5, "closed"]}
    assert [type(item) for item in plain["key"]] == [str, int, float, str]
    assert type(next(iter(plain))) is str


def test_e2_an_integer_no_reader_could_hold_is_refused() -> None:
    with pytest.raises(BadDraft) as refused:
        normalised({"n": 10**5000})
    assert refused.value.field == "event_data.n"


def test_data_of_more_than_the_most_values_is_refused_and_of_exactly_as_many_taken() -> None:
    most: JsonObject = {"a": [[]] * (MAX_VALUES - 2)}
    refused({"a": ["x"] * (MAX_VALUES - 1)})
    error = refused({"a": [[]] * (MAX_VALUES - 1)})

    assert normalised(most) == most
    assert (error.field, error.found) == ("event_data", f"JSON of more than {MAX_VALUES} values")


MANY_VALUES: Final = {f"k{number}": [number] for number in range(200)}
"""Enough short values that the check reads their bytes."""


@pytest.mark.parametrize(
    ("data", "is_good"),
    [
        ({"a": nested(MAX_DEPTH - 1)}, True),
        ({"a": nested(MAX_DEPTH)}, False),
        ({"]": "]", "a": nested(MAX_DEPTH)}, False),
        ({"a": "[" * 200}, True),
        ({"k" * MAX_KEY_CHARACTERS: 1}, True),
        ({"k" * (MAX_KEY_CHARACTERS + 1): 1}, False),
        ({'":' * (MAX_KEY_CHARACTERS // 2) + "k": 1}, False),
        ({"\\" * (MAX_KEY_CHARACTERS + 1): 1}, False),
        ({"n": 2**MAX_INTEGER_BITS - 1}, True),
        ({"n": 2**MAX_INTEGER_BITS}, False),
        ({"n": -(2**MAX_INTEGER_BITS)}, False),
        ({"n": "0" * 400}, True),
        ({"t": "\\u0000"}, True),
        ({"t": "\0"}, False),
        ({"t": (1,)}, False),
        ({"t": {1: 1}}, False),
        ({"t": float("nan")}, False),
    ],
)
def test_limits_hold_among_many_values_as_they_do_among_few(data: JsonObject, is_good: bool) -> None:
    for one in (data, MANY_VALUES | data):
        if is_good:
            assert normalised(one) == one
        else:
            refused(one)


def test_the_calls_of_a_check_do_not_grow_with_the_values() -> None:
    """A stranger's data costs a few calls a level, not some for each value."""

    def calls_for(count: int) -> int:
        data = {"a": [[1, "x", 1.5, {"k": None}] for _ in range(count)]}
        return calls_while(lambda: normalised(data))

    assert calls_for(10_000) == calls_for(10)


def calls_while(work: Callable[[], object]) -> int:
    """The calls of our functions that `work` makes on this thread."""
    calls = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        if "turnline" in frame.f_code.co_filename:
            calls[event] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls["call"]


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        ({"a": "\0"}, Flaw.NUL),
        ({"\0": 1}, Flaw.NUL),
        ({"a": ["\ud800", "\udc00"]}, Flaw.SURROGATE),
        ([[1 << MAX_INTEGER_BITS]], Flaw.LONG_NUMBER),
        ([-math.inf], Flaw.NOT_FINITE),
        ({"k" * (MAX_KEY_CHARACTERS + 1): 1}, Flaw.LONG_KEY),
        ({"a": (1,)}, Flaw.OTHER_TYPE),
        ({1: 1}, Flaw.OTHER_TYPE),
        ([ChannelState.ACTIVE], Flaw.OTHER_TYPE),
        (nested(MAX_DEPTH + 1), Flaw.TOO_DEEP),
        (nested(MAX_DEPTH), None),
        ([True, None, 1, 1.5, "ü", {"": []}], None),
    ],
)
def test_each_flaw_has_a_name(value: object, flaw: Flaw | None) -> None:
    assert flaw_in(value) is flaw


@pytest.mark.parametrize("value", [0, -1, 2**70, 0.5])
def test_numbers_are_numbers(value: object) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 10**400])
def test_everything_else_is_not_a_number(value: object) -> None:
    assert not is_number(value)
