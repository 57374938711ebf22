"""K1: the tools of a round by name, and what the model is told when it calls none of them."""

from __future__ import annotations

from typing import Annotated

import pytest

from turnline.agent.context import Context
from turnline.agent.inject import Variable
from turnline.agent.messages import ToolCall
from turnline.agent.tool import tool
from turnline.agent.toolbox import Toolbox
from turnline.errors import BadTool


@tool
def look_up(name: str, key: Annotated[str, Variable()]) -> str:
    """Look somebody up."""
    return f"{name} {key}"


async def plain(n: int) -> int:
    """Count."""
    return n


BOX = Toolbox([look_up, plain])
CONTEXT = Context(variables={"key": "k1"})


async def failed(call: ToolCall) -> str:
    output = await BOX.call(call, CONTEXT)
    assert output.failed
    assert "\n" not in output.text
    return output.text


def test_k1_tools_and_plain_functions_are_offered_in_order() -> None:
    assert [(spec.name, spec.description) for spec in BOX.specs()] == [
        ("look_up", "Look somebody up."),
        ("plain", "Count."),
    ]
    assert [made.name for made in BOX] == ["look_up", "plain"]
    assert (len(BOX), BOX.get("look_up"), BOX.get("nothing")) == (2, look_up, None)


async def test_k1_a_call_reaches_its_tool() -> None:
    output = await BOX.call(ToolCall(call_id="1", tool="look_up", arguments={"name": "ada"}), CONTEXT)

    assert output.text == "ada k1"


def test_k1_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BadTool, match="another tool has that name"):
        BOX.joined([tool(plain, name="look_up")])


def test_k1_joined_tools_come_after() -> None:
    joined = BOX.joined([tool(plain, name="count")])

    assert [spec.name for spec in joined.specs()] == ["look_up", "plain", "count"]
    assert len(BOX) == 2


async def test_k1_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    assert await failed(ToolCall(call_id="1", tool="lookup")) == (
        "there is no tool 'lookup'; known: look_up, plain. Did you mean 'look_up'?"
    )


async def test_k1_an_unknown_name_without_end_is_cut() -> None:
    assert len(await failed(ToolCall(call_id="1", tool="look\nup" * 10**5))) < 200


async def test_k1_arguments_that_are_no_object_are_told_back() -> None:
    call = ToolCall(call_id="1", tool="look_up", malformed='{"name": "a\n')

    assert await failed(call) == (
        "wrong arguments for 'look_up': found '{\"name\": \"a\\n', expected a JSON object. Call it again."
    )
