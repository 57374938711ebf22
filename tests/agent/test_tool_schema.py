"""K1: the schema from the type hints; what the model sent wrong is told in one line."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import AfterValidator, BaseModel, Field

from tests.core.strategies import json_values
from turnline.agent.context import Context
from turnline.agent.inject import Variable
from turnline.agent.tool import Tool, tool

CANARY = "canary-51f0c2"


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Line(BaseModel):
    article: str
    price: float


@dataclass
class Address:
    city: str


def even(n: int) -> int:
    if n % 2:
        raise ValueError("odd\nnumbers are not sold")
    return n


@tool
def order(
    lines: list[Line],
    to: Address,
    on: date,
    *,
    size: Size = Size.SMALL,
    how: Literal["post", "courier"] = "post",
    pieces: Annotated[int, Field(ge=1, description="How many."), AfterValidator(even)] = 2,
    secret: Annotated[str, Variable()] = CANARY,
) -> str:
    """Order.

    Args:
        lines: What.
        pieces: Not this one.
        secret: Not for the model.
    """
    return f"{lines[0].price} {to.city} {on:%j} {size.name} {how} {pieces}"


RIGHT: dict[str, Any] = {
    "lines": [{"article": "tea", "price": "2.5"}],
    "to": {"city": "Bern"},
    "on": "2030-02-01",
    "size": "l",
}


async def told(**changed: object) -> str:
    """What the model is told of a call that is right but for `changed`."""
    output = await order.call(RIGHT | changed, Context(variables={"secret": CANARY}))
    assert output.failed
    assert CANARY not in output.text
    assert "\n" not in output.text
    assert "http" not in output.text
    return output.text


def test_k1_the_schema_comes_from_the_hints() -> None:
    properties = order.schema["properties"]

    assert order.schema["required"] == ["lines", "to", "on"]
    assert order.schema["additionalProperties"] is False
    assert properties["lines"] == {"type": "array", "items": {"$ref": "#/$defs/Line"}, "description": "What."}
    assert properties["on"] == {"type": "string", "format": "date"}
    assert properties["how"] == {"type": "string", "enum": ["post", "courier"], "default": "post"}
    assert properties["pieces"]["description"] == "How many."


def test_v3_the_schema_says_nothing_of_what_is_injected() -> None:
    assert "secret" not in order.schema["properties"]
    assert CANARY not in str(order.spec())
    assert "Not for the model" not in str(order.spec())


async def test_k1_arguments_arrive_as_the_hints_say() -> None:
    output = await order.call(RIGHT, Context())

    assert output.text == "2.5 Bern 032 LARGE post 2"


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"pieces": "many"},
            "pieces is 'many', expected a valid integer, unable to parse string as an integer",
        ),
        ({"pieces": 0}, "pieces is 0, expected greater than or equal to 1"),
        ({"pieces": 3}, "pieces is 3, refused: Value error, odd numbers are not sold"),
        ({"how": "owl"}, "how is 'owl', expected 'post' or 'courier'"),
        ({"to": {}}, "to.city is missing, expected a value"),
        ({"lines": [{"article": "tea", "price": "x"}]}, "lines[0].price is 'x', expected a valid number"),
        ({"colour": "red"}, "colour is no argument of it, expected only lines, to, on, size, how, pieces"),
        ({"lines": 7, "secret": "evil"}, "lines is 7, expected a valid list"),
    ],
)
async def test_k1_what_is_wrong_is_told_with_field_found_and_expected(changed: Any, line: str) -> None:
    assert (await told(**changed)).startswith(f"wrong arguments for 'order': {line}")


async def test_k1_a_missing_argument_is_named_with_its_kind() -> None:
    output = await order.call({}, Context())

    assert output.text == (
        "wrong arguments for 'order': lines is missing, expected array; to is missing, expected a value; "
        "on is missing, expected string. Call it again."
    )


async def test_k1_of_many_mistakes_the_first_are_told() -> None:
    text = await told(lines=[{"article": 1, "price": "x"} for _ in range(500)])

    assert "and 995 more" in text
    assert len(text) < 1000


async def test_k1_what_the_model_sent_is_quoted_in_short() -> None:
    assert len(await told(pieces="9\n" * 100_000, **{"x" * 100_000: 1})) < 1_200


def test_k1_a_parameter_may_have_any_name() -> None:
    def odd(json: str, copy: int, schema: str, *, model_config: str, _id: int, title: str) -> Any: ...

    assert list(tool(odd).schema["properties"]) == [*odd.__annotations__][:-1]


async def test_k1_such_names_arrive_too() -> None:
    @tool
    def odd(json: str, _id: int, field_0: str = "mine") -> str:
        return f"{json} {_id} {field_0}"

    assert (await odd.call({"json": "{}", "_id": "7"}, Context())).text == "{} 7 mine"


async def test_k1_a_default_is_the_functions_own_object_and_need_not_be_json() -> None:
    default, kept = [object()], list[object]()

    def look(x: Any = default) -> str:
        kept.append(x)
        return "looked"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = Tool(look)
    await made.call({}, Context())

    assert kept[0] is default


def test_k1_a_tool_without_arguments_has_an_empty_object_schema() -> None:
    assert tool(lambda: "now", name="now").schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


@given(json_values(), st.text(), st.integers(), st.lists(st.booleans()))
async def test_k1_what_fits_arrives_unchanged(
    anything: Any, text: str, number: int, flags: list[bool]
) -> None:
    kept = list[object]()

    async def keep(anything: Any, text: str, number: int, flags: list[bool]) -> None:
        kept.extend([anything, text, number, flags])

    await Tool(keep).call({"anything": anything, "text": text, "number": number, "flags": flags}, Context())

    assert kept == [anything, text, number, flags]


@given(json_values())
async def test_k1_whatever_is_sent_the_answer_is_one_line_or_the_result(sent: Any) -> None:
    output = await order.call({"lines": sent, "to": sent, "on": sent}, Context())

    assert output.failed
    assert "\n" not in output.text
