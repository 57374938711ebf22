"""C1, C4: what a context update may say, and what it does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from turnline.core.envelope import JsonObject
from turnline.core.variables import applied, check, check_size
from turnline.errors import BadDraft, ContextMismatch

from .strategies import json_values

BEFORE: JsonObject = {"n": 1, "name": "Jane", "tags": ["new"], "on": True}


def after(**parts: Any) -> JsonObject:
    check("c1", BEFORE, parts)
    return applied(BEFORE, parts)


def refusal(**parts: Any) -> BadDraft:
    with pytest.raises(BadDraft) as refused:
        check("c1", BEFORE, parts)
    return refused.value


def test_c1_set_and_delete_may_each_be_missing() -> None:
    assert after(set={"n": 2}) == BEFORE | {"n": 2}
    assert after(delete=["n", "unheard of"]) == {"name": "Jane", "tags": ["new"], "on": True}


def test_c1_delete_comes_first_then_set() -> None:
    assert after(delete=["n"], set={"n": 5})["n"] == 5


def test_c1_increment_adds_and_starts_from_nothing() -> None:
    assert after(increment={"n": 2, "fresh": 0.5}) == BEFORE | {"n": 3, "fresh": 0.5}


def test_c1_append_adds_one_item_and_starts_from_nothing() -> None:
    assert after(append={"tags": ["eu"], "fresh": 1}) == BEFORE | {"tags": ["new", ["eu"]], "fresh": [1]}


def test_c1_increment_and_append_see_what_delete_and_set_did() -> None:
    assert after(delete=["n"], set={"m": 10}, increment={"n": 1, "m": 1})["m"] == 11
    assert after(delete=["n"], increment={"n": 1})["n"] == 1
    assert after(delete=["tags"], append={"tags": "eu"})["tags"] == ["eu"]


@pytest.mark.parametrize(("key", "expected"), [("n", 1), ("tags", ["new"]), ("unheard of", None)])
def test_c1_an_update_is_applied_when_expect_holds(key: str, expected: object) -> None:
    assert after(expect={key: expected}, set={"m": 1})["m"] == 1


def test_c1_the_whole_update_is_refused_when_expect_does_not_hold() -> None:
    with pytest.raises(ContextMismatch) as refused:
        check("c1", BEFORE, {"expect": {"name": "Jane", "n": 7}, "set": {"m": 1}})

    assert (refused.value.key, refused.value.expected, refused.value.found) == ("n", 7, 1)


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({}, "event_data"),
        ({"sett": {}}, "event_data"),
        ({"set": []}, "event_data.set"),
        ({"increment": 1}, "event_data.increment"),
        ({"append": "x"}, "event_data.append"),
        ({"expect": []}, "event_data.expect"),
        ({"delete": "n"}, "event_data.delete"),
        ({"delete": [1]}, "event_data.delete"),
        ({"increment": {"n": "1"}}, "event_data.increment.n"),
        ({"increment": {"n": True}}, "event_data.increment.n"),
        ({"increment": {"on": 1}}, "event_data.increment.on"),
        ({"increment": {"name": 1}}, "event_data.increment.name"),
        ({"append": {"n": 1}}, "event_data.append.n"),
        ({"set": {"big": 1e308}, "increment": {"big": 1e308}}, "event_data.increment.big"),
        ({"set": {"big": 10**400}, "increment": {"big": 0.5}}, "event_data.increment.big"),
    ],
)
def test_c1_what_cannot_be_applied_is_refused_and_names_the_field(parts: JsonObject, field: str) -> None:
    assert refusal(**parts).field == field


@pytest.mark.parametrize("part", ["set", "increment", "append", "expect"])
def test_c4_reserved_keys_are_refused_in_every_part(part: str) -> None:
    assert refusal(**{part: {"_secret": 1}}).field == f"event_data.{part}._secret"


def test_c4_reserved_keys_cannot_be_deleted() -> None:
    assert refusal(delete=["_secret"]).field == "event_data.delete._secret"


def test_applying_leaves_the_old_variables_alone() -> None:
    before = {"n": 1, "tags": ["new"]}

    applied(before, {"delete": ["n"], "append": {"tags": "eu"}})

    assert before == {"n": 1, "tags": ["new"]}


@given(
    st.dictionaries(
        st.sampled_from(["expect", "delete", "set", "increment", "append", "odd"]), json_values(st.floats())
    )
)
def test_e2_applying_never_raises_whatever_the_update(update: JsonObject) -> None:
    assert isinstance(applied(BEFORE, update), dict)


def test_an_update_that_makes_the_context_too_large_is_refused_by_name_and_one_that_shrinks_it_taken() -> (
    None
):
    large: JsonObject = {"a": "x" * 100}
    with pytest.raises(BadDraft, match=r"too large with this update; expected at most 50 \(context_bytes\)"):
        check_size({}, large, 50)
    check_size({}, large, 108)
    check_size(large | {"b": 1}, large, 50)


def test_the_error_of_a_full_context_does_not_say_how_large_hidden_variables_are() -> None:
    """A sender that may not see a variable could otherwise subtract its own."""
    with pytest.raises(BadDraft) as small:
        check_size({"hidden": "x" * 100}, {"hidden": "x" * 100, "own": "y" * 10}, 50)
    with pytest.raises(BadDraft) as large:
        check_size({"hidden": "x" * 900}, {"hidden": "x" * 900, "own": "y" * 10}, 50)

    assert str(small.value) == str(large.value)
