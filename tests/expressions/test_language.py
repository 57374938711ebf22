"""F10: one safe expression language, one rule per test. Nothing here awaits.

`test_functions` has what the operators and functions compute, and
`test_hostile` what an attacker may write; here is what can be said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from turnline.errors import BadExpression
from turnline.expressions.functions import Json
from turnline.expressions.language import compile_expression

LEAD: dict[str, Json] = {
    "priority": "urgent",
    "lead_score": 90,
    "name": "Jane",
    "tags": ["new", "eu"],
    "order": {"lines": [{"sku": "a", "price": 2.5}, {"sku": "b", "price": 4}], "paid": True, "_id": 7},
}


def value(text: str, names: Mapping[str, object] = LEAD) -> Json:
    return compile_expression(text).evaluate(names)


def refusal(text: str) -> str:
    with pytest.raises(BadExpression) as refused:
        compile_expression(text)
    return refused.value.because


def same(found: object, expected: object) -> bool:
    """Equal and of one kind: Python's `==` takes True for 1."""
    return repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("priority == 'urgent'", {"priority": "urgent"}, True),
        ("priority == 'urgent'", {"priority": "low"}, False),
        ("priority == 'urgent'", {}, False),
        ("lead_score > 80", {"lead_score": 81}, True),
        ("lead_score > 80", {"lead_score": 80}, False),
        ("lead_score > 80", {"lead_score": "81"}, False),
        ("lead_score > 80", {}, False),
    ],
)
def test_the_seeds_router_conditions_hold_as_written(
    text: str, names: dict[str, Json], expected: bool
) -> None:
    assert compile_expression(text).holds(names) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name", "Jane"),
        ("missing", None),
        ("missing.deeper.still", None),
        ("order.paid", True),
        ("order['paid']", True),
        ("order.lines[1].sku", "b"),
        ("order.lines.0.sku", "a"),
        ("tags[0]", "new"),
        ("tags[-1]", "eu"),
        ("tags[2]", None),
        ("tags[-3]", None),
        ("tags['0']", None),
        ("tags[true]", None),
        ("name[0]", None),
        ("name.upper", None),
        ("order.keys", None),
        ("order._id", 7),
        ("order['_id']", 7),
    ],
)
def test_a_path_reads_mappings_and_lists_and_is_none_anywhere_else(text: str, expected: Json) -> None:
    assert same(value(text), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("50 <= lead_score < 100", True),
        ("100 > lead_score >= 90 == 90", True),
        ("'n' in name in ['Jane']", True),
        ("1 < missing < 3", False),
        ("missing <= missing", False),
        ("missing != 'urgent'", True),
        ("'x' not in missing", True),
    ],
)
def test_comparisons_chain_and_missing_is_none(text: str, expected: bool) -> None:
    assert value(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name and lead_score", 90),
        ("missing and name", None),
        ("missing or 'unknown'", "unknown"),
        ("0 or '' or [] or {}", {}),
        ("true or false and false", True),
        ("not missing", True),
        ("not not name", True),
        ("not name == 'Jane'", False),
        ("'hot' if lead_score > 80 else 'cold'", "hot"),
        ("'hot' if missing", None),
        ("'a' if missing else 'b' if name else 'c'", "b"),
    ],
)
def test_logic_gives_back_an_operand(text: str, expected: Json) -> None:
    assert same(value(text), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3 - 8 / 4", 5.0),
        ("7 // 2 % 2", 1),
        ("-lead_score", -90),
        ("+name", None),
        ("'n' ~ 1 ~ true ~ 2.5", "n1true2.5"),
        ("'n' ~ missing", None),
        ("0x1f + 1_000", 1031),
        ("1.5e3", 1500.0),
        (r"'a\n\t\\\'\u00e9' 'b'", "a\n\t\\'éb"),
        ("[true, false, none, True, False, None]", [True, False, None, True, False, None]),
        ("(1, 'a')", [1, "a"]),
        ("()", []),
        ("{'a': [name], 'b': {}}", {"a": ["Jane"], "b": {}}),
        ("name\n  and\n  true\n", True),
    ],
)
def test_literals_are_json_and_tuples_are_lists(text: str, expected: Json) -> None:
    assert same(value(text), expected)


@pytest.mark.parametrize(
    ("call", "filtered"),
    [
        ("len(tags)", "tags|length"),
        ("contains(tags, 'eu')", "tags|contains('eu')"),
        ("upper(lower(name))", "name|lower|upper"),
        ("default(missing, 5)", "missing|default(5)"),
        ("round(lead_score / 7, 2)", "(lead_score / 7)|round(2)"),
        ("max(1, lead_score, 3)", "1|max(lead_score, 3)"),
    ],
)
def test_a_function_is_a_call_and_a_filter(call: str, filtered: str) -> None:
    assert value(call) is not None
    assert same(value(call), value(filtered))


@pytest.mark.parametrize(
    "text", ["name is string", "name is not none", "missing is None", "not name is number"]
)
def test_is_asks_for_a_kind(text: str) -> None:
    assert value(text) is True


def test_a_context_key_may_be_named_like_a_function() -> None:
    assert value("len + len([1])", {"len": 2}) == 3


def test_the_names_are_the_context_keys_it_reads() -> None:
    read = compile_expression("order.lines[index].sku == 'a' and len(tags) > 0 or missing is defined")
    assert read.names == {"order", "index", "tags", "missing"}


def test_two_of_the_same_text_are_equal() -> None:
    one, again, other = map(compile_expression, ("a > 1", "a > 1", "a>1"))
    assert one == again
    assert hash(one) == hash(again)
    assert one != other


def test_what_comes_back_shares_nothing_with_the_names() -> None:
    names = {"order": {"lines": [1, 2]}}
    found = compile_expression("order").evaluate(names)
    assert isinstance(found, dict)
    assert found == names["order"]
    assert found["lines"] is not names["order"]["lines"]


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "empty"),
        ("{{ lead_score > 80 }}", "leave out the braces"),
        ("lead_score > 80 }}", "leave out the braces"),
        ("priority = 'urgent'", "write '=='"),
        ("name, tags", "brackets"),
        ("name tags", "should have ended before 'tags'"),
        ("name ==", "does not parse"),
        ("name == and", "beside 'and'"),
        ("name.lower()", "write lower(value)"),
        ("lowercase(name)", "'lowercase' is no function here; known are abs, contains"),
        ("name is shiny", "'shiny' is no test here; known are"),
        ("len(name, tags)", "len has 2 arguments; it takes 1"),
        ("round(1, 2, 3)", "it takes 1 to 2"),
        ("round(1, digits=2)", "by place"),
        ("2 ** 3", "the operator **"),
        ("tags[0:1]", "a slice"),
        ("{name: 1}", "text in quotes"),
        ("_session", "'_session' is reserved"),
        ("order.__id", "'__id' is reserved"),
        ("order['__id']", "'__id' is reserved"),
        ("{'__id': 1}", "'__id' is reserved"),
        (r"'\d'", r"\d is no escape"),
        (r"'\ud800'", "not valid Unicode"),
        ("1e999", "too large"),
    ],
)
def test_a_refusal_says_what_is_not_allowed(text: str, because: str) -> None:
    assert because in refusal(text)


KEYS = ["a", "b", "priority", "lead_score"]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = st.dictionaries(st.sampled_from(KEYS), JSON_VALUES, max_size=4)
ATOMS = st.sampled_from(
    [
        *KEYS,
        "missing",
        "0",
        "1",
        "-2",
        "3.5",
        "1e308",
        "'a'",
        "'urgent'",
        "''",
        "true",
        "none",
        "[]",
        "{'a': 1}",
    ]
)
SHAPES = [
    "({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} // {})", "({} % {})", "({} ~ {})", "({} == {})",
    "({} < {})", "({} >= {} > 1)", "({} in {})", "({} not in {})", "({} and {})", "({} or {})", "({}[{}])",
    "({} if {} else 1)", "[{}, {}]", "contains({}, {})", "min({}, {})", "round({}, {})", "({}|default({}))",
    "startswith({}, {})", "max([{}, {}])", "sum([{}, {}])", "(not {} is number and {})", "({}.a ~ -{})",
    "(int({}) + float({}))", "(lower({}) ~ string({}))", "(len({}) == first({}))",
]  # fmt: skip
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.builds(
        lambda shape, one, other: shape.format(one, other), st.sampled_from(SHAPES), inner, inner
    ),
    max_leaves=8,
)
patiently = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


@patiently
@given(text=EXPRESSIONS, names=NAMES)
def test_whatever_compiles_evaluates_to_json_and_changes_nothing(text: str, names: dict[str, Json]) -> None:
    before = deepcopy(names)
    expression = compile_expression(text)
    found = expression.evaluate(names)

    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert expression.holds(names) is bool(found)
    assert same(expression.evaluate(names), found)
    assert same(names, before)
    assert expression.names <= {*KEYS, "missing"}
