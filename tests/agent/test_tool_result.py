"""K2: what a tool may return, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from pydantic import BaseModel, SecretStr

from tests.core.strategies import json_values
from turnline.agent.storable import MAX_TEXT_CHARACTERS
from turnline.agent.tool_result import ToolOutput, ToolResult, output_of
from turnline.core.json import normalised
from turnline.core.routing import Finish, Handoff


class Size(Enum):
    SMALL = "s"


class Colour(str, Enum):  # noqa: UP042  # The older spelling is in use.
    RED = "r"


@dataclass
class Point:
    x: int
    at: datetime


class Line(BaseModel):
    price: Decimal
    key: SecretStr = SecretStr("canary-51f0c2")


class Order(msgspec.Struct):
    lines: list[Line]


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LOOPED: list[Any] = []
LOOPED.append(LOOPED)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ("plain text", "plain text"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ((1, 2), "[1,2]"),
        (NOON, '"2030-01-01T12:00:00Z"'),
        (Size.SMALL, '"s"'),
        (Colour.RED, '"r"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Path("a/b"), '"a/b"'),
        (Point(1, NOON), '{"x":1,"at":"2030-01-01T12:00:00Z"}'),
        (Line(price=Decimal("2.50")), '{"price":"2.50","key":"**********"}'),
        (Order([Line(price=Decimal(1))]), '{"lines":[{"price":"1","key":"**********"}]}'),
        ([Point(1, NOON), {"size": Size.SMALL}], '[{"x":1,"at":"2030-01-01T12:00:00Z"},{"size":"s"}]'),
    ],
)
def test_k2_text_is_told_as_it_is_and_data_as_json(returned: object, text: str) -> None:
    assert output_of(returned) == ToolOutput(text=text)


def test_k2_a_handoff_goes_beside_a_sentence() -> None:
    handoff = Handoff("security", "fraud")

    assert output_of(handoff, "a reason") == ToolOutput(
        text="handed off to 'security': fraud", returned=handoff, reason="a reason"
    )
    assert output_of(Handoff("bob")).text == "handed off to 'bob'"


def test_k2_a_finish_goes_beside_a_sentence() -> None:
    finish = Finish("approved", "all good")

    assert output_of(finish) == ToolOutput(text="finished (approved): all good", returned=finish)
    assert output_of(Finish()).text == "finished (finished)"


def test_k2_a_tool_result_is_message_context_and_routing_in_one() -> None:
    result = ToolResult("routed", context={"route": "security", "n": [1]}, handoff=Handoff("bob"))

    assert output_of(result) == ToolOutput(
        text="routed", context={"route": "security", "n": [1]}, returned=Handoff("bob")
    )


def test_k2_a_tool_result_may_hold_data_finish_or_name_somebody() -> None:
    assert output_of(ToolResult({"n": 1})) == ToolOutput(text='{"n":1}')
    assert output_of(ToolResult("done", handoff=Finish("ok"))).returned == Finish("ok")
    assert output_of(ToolResult("over", handoff="bob")).returned == Handoff("bob")


def test_k2_the_context_of_an_output_is_not_the_tools_dict() -> None:
    context: dict[str, Any] = {"seen": ["a"]}
    output = output_of(ToolResult("", context=context))

    context["seen"].append("b")

    assert output.context == {"seen": ["a"]}


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (object(), "returned a object that has no JSON form"),
        ({"deep": [object()]}, "returned a dict that has no JSON form"),
        ({(1, 2): 3}, "returned a dict"),
        (LOOPED, "returned a list"),
        (ToolResult(object()), "returned a ToolResult"),
        (ToolResult("", context={"_turn": 1}), "context._turn is a reserved key"),
        (ToolResult("", context={"when": NOON}), "context.when is a datetime"),
        (ToolResult("", context=[1]), "context is a list"),  # type: ignore[arg-type]
        (ToolResult("", handoff=7), "handoff is a int"),  # type: ignore[arg-type]
        (Handoff(None), "Handoff is with a NoneType"),  # type: ignore[arg-type]
        (ToolResult("", handoff=Finish(1)), "Finish is with a int"),  # type: ignore[arg-type]
    ],
)
def test_k2_what_cannot_be_told_is_a_failed_call_that_routes_nothing(returned: object, told: str) -> None:
    output = output_of(returned)

    assert told in output.text
    assert (output.failed, output.returned, output.context) == (True, None, {})


def test_k2_a_serialiser_of_the_users_that_breaks_is_a_failed_call() -> None:
    class Broken(BaseModel):
        def model_dump(self, **_: Any) -> dict[str, Any]:
            raise KeyError("canary-51f0c2")

    assert output_of(Broken()) == ToolOutput(
        text="the tool returned a Broken that has no JSON form", failed=True
    )


def test_k2_an_endless_text_is_cut_and_says_so() -> None:
    output = output_of("x" * 10**6)

    assert output.text.endswith("(cut here; 1000000 characters in all)")
    assert len(output.text) < MAX_TEXT_CHARACTERS + 100


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 a pair", "ü \0 \udfff"])
def test_k2_a_text_can_always_be_written_to_the_log(text: str) -> None:
    assert normalised({"text": output_of(text).text})


@given(json_values())
def test_k2_json_reads_back_as_it_was_returned(value: Any) -> None:
    assert msgspec.json.decode(output_of([value]).text) == [value]
