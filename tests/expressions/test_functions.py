"""F10: what expressions compute, one rule per test. Python values in, Python values out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnline.expressions import functions
from turnline.expressions.functions import (
    CHARACTERS_PER_STEP,
    FUNCTIONS,
    MAX_DATA_DEPTH,
    MAX_INTEGER_BITS,
    MAX_RESULT_CHARACTERS,
    TESTS,
    Json,
    OutOfSteps,
    Steps,
)

LARGEST = 2**MAX_INTEGER_BITS - 1
KINDS: list[Json] = [None, True, 1, 1.5, "a", [1], {"a": 1}]


def same(found: object, expected: object) -> bool:
    """Equal and of one kind: Python's `==` takes True for 1."""
    return repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (False, 0, False),
        (None, False, False),
        (None, None, True),
        ("1", 1, False),
        ([1, [True]], [1.0, [True]], True),
        ([1], [True], False),
        ([1, 2], [1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": None}, {}, False),
        ([], {}, False),
        ([[]], [{}], False),
    ],
)
def test_equality_is_jsons_by_kind_and_then_by_value(left: Json, right: Json, expected: bool) -> None:
    assert functions.equal(left, right, Steps()) is expected
    assert functions.equal(right, left, Steps()) is expected


def test_only_two_numbers_or_two_texts_have_an_order() -> None:
    pairs = [(left, right) for left in KINDS for right in KINDS]

    strictly = [pair for pair in pairs if functions.before(*pair, Steps())]
    at_most = [pair for pair in pairs if functions.before_or_at(*pair, Steps())]

    assert same(strictly, [(1, 1.5)])
    assert same(at_most, [(1, 1), (1, 1.5), (1.5, 1.5), ("a", "a")])


@pytest.mark.parametrize(
    ("whole", "piece", "expected"),
    [
        (["new", "eu"], "eu", True),
        (["new", "eu"], "us", False),
        ([True], 1, False),
        ([[1.0]], [1], True),
        ({"paid": None}, "paid", True),
        ({"paid": None}, None, False),
        ("Jane", "an", True),
        ("Jane", 1, False),
        (None, "x", False),
        (5, "x", False),
    ],
)
def test_contains_looks_into_lists_keys_and_text(whole: Json, piece: Json, expected: bool) -> None:
    assert functions.contains(whole, piece, Steps()) is expected


Operator = Callable[[Json, Json, Steps], Json]


@pytest.mark.parametrize(
    ("compute", "left", "right", "expected"),
    [
        (functions.add, 1, 0.5, 1.5),
        (functions.add, "a", "b", "ab"),
        (functions.subtract, 1, 2, -1),
        (functions.multiply, 3, 4, 12),
        (functions.divide, 7, 2, 3.5),
        (functions.divide_down, -7, 2, -4),
        (functions.remainder, 7, 3, 1),
    ],
)
def test_arithmetic_is_pythons_on_numbers(compute: Operator, left: Json, right: Json, expected: Json) -> None:
    assert same(compute(left, right, Steps()), expected)


@pytest.mark.parametrize(
    ("compute", "left", "right"),
    [
        (functions.divide, 1, 0),
        (functions.divide_down, 1, 0.0),
        (functions.remainder, 1, 0),
        (functions.add, None, 1),
        (functions.add, "a", 1),
        (functions.add, True, 1),
        (functions.add, [1], [2]),
        (functions.multiply, "a", 3),
        (functions.multiply, [1], 3),
        (functions.remainder, "%s", "a"),
        (functions.multiply, LARGEST, 2),
        (functions.add, LARGEST, 1),
        (functions.multiply, 1e308, 10),
        (functions.subtract, -1e308, 1e308),
        (functions.divide, 1e308, 1e-308),
        (functions.divide_down, 1e308, 1e-308),
        (functions.add, "a" * MAX_RESULT_CHARACTERS, "b"),
    ],
)
def test_arithmetic_without_an_answer_is_none(compute: Operator, left: Json, right: Json) -> None:
    assert compute(left, right, Steps()) is None


@pytest.mark.parametrize("compute", [functions.subtract, functions.multiply, functions.divide])
def test_the_largest_integer_still_counts_against_a_float(compute: Operator) -> None:
    assert isinstance(compute(LARGEST, 0.5, Steps()), float)


CALLS: list[tuple[str, tuple[Json, ...], Json]] = [
    ("abs", (-2,), 2),
    ("abs", ("a",), None),
    ("contains", (["a", "b"], "b"), True),
    ("count", ([1, 2],), 2),
    ("default", (None, 5), 5),
    ("default", (0, 5), 0),
    ("endswith", ("abc", "bc"), True),
    ("endswith", (5, "bc"), None),
    ("first", ([4, 5],), 4),
    ("first", ([],), None),
    ("float", (" 1.5 ",), 1.5),
    ("float", (2,), 2.0),
    ("float", (True,), None),
    ("float", ("nan",), None),
    ("float", ("1e999",), None),
    ("float", ("1_0",), None),
    ("int", (" -12 ",), -12),
    ("int", (2.9,), 2),
    ("int", ("2.9",), None),
    ("int", ("9" * 81,), None),
    ("int", ("\u0663",), None),
    ("int", (True,), None),
    ("int", (1e300,), None),
    ("last", ([4, 5],), 5),
    ("last", ("text",), None),
    ("len", ("four",), 4),
    ("len", ({"a": 1},), 1),
    ("len", (None,), None),
    ("length", ([1],), 1),
    ("lower", ("ABC",), "abc"),
    ("lower", (5,), None),
    ("max", (1, 3, 2), 3),
    ("max", (["a", "c", "b"],), "c"),
    ("max", ([1, "a"],), None),
    ("max", (None, 1), None),
    ("min", ([3, 1.5],), 1.5),
    ("min", ([],), None),
    ("min", (7,), None),
    ("round", (2.567, 2), 2.57),
    ("round", (2.5,), 2),
    ("round", (2.5, 99), None),
    ("round", (2.5, True), None),
    ("round", ("2",), None),
    ("startswith", ("abc", "ab"), True),
    ("string", ("a",), "a"),
    ("string", (1.5,), "1.5"),
    ("string", (False,), "false"),
    ("string", (None,), None),
    ("string", ([1],), None),
    ("sum", ([1, 2, 3.5],), 6.5),
    ("sum", ([],), 0),
    ("sum", ([1, "2"],), None),
    ("sum", ([1e308, 1e308],), None),
    ("trim", ("  a ",), "a"),
    ("upper", ("straße",), "STRASSE"),
    ("upper", ("ß" * MAX_RESULT_CHARACTERS,), None),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS)
def test_a_function_answers_or_is_none(name: str, arguments: tuple[Json, ...], expected: Json) -> None:
    assert same(FUNCTIONS[name].compute(Steps(), *arguments), expected)


def test_every_function_is_in_the_table() -> None:
    assert {name for name, _, _ in CALLS} == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_function_is_total(name: str, kind: Json) -> None:
    function = FUNCTIONS[name]
    for arguments in range(function.fewest, min(function.most, 3) + 1):
        function.compute(Steps(), *[kind] * arguments)


@pytest.mark.parametrize(
    ("test", "holds_for"),
    [
        ("defined", [True, 1, 1.5, "a", [1], {"a": 1}]),
        ("undefined", [None]),
        ("none", [None]),
        ("boolean", [True]),
        ("true", [True]),
        ("false", []),
        ("number", [1, 1.5]),
        ("integer", [1]),
        ("float", [1.5]),
        ("string", ["a"]),
        ("list", [[1]]),
        ("mapping", [{"a": 1}]),
    ],
)
def test_a_test_asks_for_a_kind(test: str, holds_for: list[Json]) -> None:
    assert same([kind for kind in KINDS if TESTS[test](kind)], holds_for)


class Bomb:
    """Not JSON; goes off when anything is asked of it."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(f"{name} was read")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it was compared")

    def __hash__(self) -> int:
        raise AssertionError("it was hashed")

    def __bool__(self) -> bool:
        raise AssertionError("its truth was asked")


STRANGERS = [Bomb(), Bomb, float("nan"), float("-inf"), LARGEST + 1, b"a", (1,), {1}, lambda: 1]


@pytest.mark.parametrize("place", range(len(STRANGERS)))
def test_what_is_not_json_reads_as_none_and_is_never_touched(place: int) -> None:
    stranger = STRANGERS[place]
    assert functions.plain(stranger) is None
    assert functions.copied([stranger, {"a": stranger}], Steps()) == [None, {"a": None}]


def test_subclasses_of_the_json_types_are_strangers() -> None:
    """They can carry methods of their own, and none of those may run."""

    class Text(str):
        __slots__ = ()

    assert functions.plain(Text("a")) is None


def test_deep_data_ends_the_evaluation_not_the_stack() -> None:
    deep: Json = 1
    for _ in range(100_000):
        deep = [deep]

    assert functions.equal(deep, deep, Steps(10**6))
    with pytest.raises(OutOfSteps):
        functions.copied(deep, Steps())
    while isinstance(deep, list):  # Taken apart by hand: Python would recurse to free it.
        deep = deep.pop()


def test_data_within_the_depth_is_copied() -> None:
    deep: Json = 1
    for _ in range(MAX_DATA_DEPTH):
        deep = [deep]
    assert functions.copied(deep, Steps()) == deep


@pytest.mark.parametrize(
    ("work", "steps"),
    [
        (lambda steps: functions.contains(list(range(1000)), -1, steps), 1000),
        (lambda steps: functions.equal([0] * 1000, [0] * 1000, steps), 1000),
        (lambda steps: functions.copied([0] * 1000, steps), 1000),
        (lambda steps: FUNCTIONS["sum"].compute(steps, [0] * 1000), 1000),
        (lambda steps: FUNCTIONS["max"].compute(steps, [0] * 1000), 1000),
        (lambda steps: functions.contains("a" * 64_000, "b", steps), 64_000 // CHARACTERS_PER_STEP),
        (lambda steps: functions.equal("a" * 64_000, "b", steps), 64_000 // CHARACTERS_PER_STEP),
        (lambda steps: functions.joined(["a" * 64_000], steps), 64_000 // CHARACTERS_PER_STEP),
        (lambda steps: FUNCTIONS["lower"].compute(steps, "A" * 64_000), 64_000 // CHARACTERS_PER_STEP),
    ],
)
def test_work_that_grows_with_the_data_is_paid_for(work: Callable[[Steps], object], steps: int) -> None:
    budget = Steps()
    before = budget.left
    work(budget)
    assert steps <= before - budget.left <= 2 * steps + 10

    with pytest.raises(OutOfSteps):
        work(Steps(steps - 1))
