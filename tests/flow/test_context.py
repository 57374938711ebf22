"""F1-F3: reserved keys, and what a step has changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from turnline.core.variables import applied
from turnline.flow.context import difference, from_outside, private, public

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab_"), inner, max_size=2),
    max_leaves=5,
)
CONTEXTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), JSON, max_size=4)


def test_f1_only_top_level_keys_are_reserved() -> None:
    kept, dropped = from_outside({"_db": 1, "a": {"_id": 2}, "_": 3, "b_": 4})

    assert (kept, dropped) == ({"a": {"_id": 2}, "b_": 4}, ["_", "_db"])


def test_f2_public_and_private_are_the_whole_and_do_not_overlap() -> None:
    context = {"a": 1, "_b": 2}

    assert public(context) | private(context) == context
    assert public(context).keys() & private(context).keys() == set()


@given(CONTEXTS, CONTEXTS)
def test_f3_the_difference_applied_to_before_is_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    kept = copy.deepcopy(before)
    updates, deletes = difference(before, after)

    assert repr(applied(before, {"set": updates, "delete": deletes})) == repr(
        {
            key: after[key]
            for key in [*(k for k in before if k in after), *(k for k in after if k not in before)]
        }
    )
    assert before == kept


@pytest.mark.parametrize(
    ("before", "after"), [(1, True), (1, 1.0), (0, False), ([1], [True]), ({"a": 0}, {"a": 0.0})]
)
def test_f3_values_that_python_calls_equal_but_json_does_not_are_a_change(before: Any, after: Any) -> None:
    assert difference({"k": before}, {"k": after})[0] == {"k": after}


def test_f3_what_has_not_changed_is_not_stored() -> None:
    assert difference({"k": [1, {"a": None}]}, {"k": [1, {"a": None}]}) == ({}, [])


@pytest.mark.parametrize(
    ("before", "after"), [(None, float("nan")), ([None], [float("nan")]), ([1], (1,)), ({"1": 2}, {1: 2})]
)
def test_a_value_with_the_text_of_the_one_before_is_a_change_if_it_is_not_json(
    before: Any, after: Any
) -> None:
    """The line that it would go on is refused, and the step fails."""
    assert difference({"key": before}, {"key": after})[0] == {"key": after}
    assert difference({"key": before}, {"key": after})[0]["key"] is after


def test_a_value_that_cannot_be_compared_is_a_change() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("compare me element by element")

        def __hash__(self) -> int:
            return 0

    odd = Odd()

    assert difference({"key": [1]}, {"key": odd}) == ({"key": odd}, [])
