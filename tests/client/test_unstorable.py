"""What a model or a tool says and a log does not take costs one call, never the channel (E2)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from turnline.agent.agent import Agent
from turnline.agent.messages import ModelReply, ToolCall, ToolMessage, Usage
from turnline.agent.scripted import ScriptedModel
from turnline.agent.storable import MAX_CALLS, MAX_TEXT_CHARACTERS
from turnline.agent.tool_result import ToolResult
from turnline.core.json import MAX_BYTES, MAX_DEPTH
from turnline.core.routing import Finish
from turnline.log.memory import MemoryLog
from turnline.network import Hub, HubClient, LocalLink, Passport, sequence


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


ARGUMENTS: Final[dict[str, tuple[Any, str]]] = {
    "NUL": ("a\0b", "NUL"),
    "half a character": ("a\ud800b", "surrogate"),
    "NaN": (float("nan"), "finite"),
    "infinity": (float("inf"), "finite"),
    "too large": ("x" * (MAX_BYTES + 1), f"at most {MAX_BYTES}"),
    "too deep for a line": (nested(MAX_DEPTH - 2), "nested deeper"),
    "a huge integer": (2**5000, "huge integer"),
    "not JSON": (object(), "JSON"),
}


async def talk(model: ScriptedModel, *tools: Any) -> tuple[str, str]:
    """Let an agent take one turn; return how the channel closed, and its last text."""
    hub = await Hub.open(MemoryLog(), ttl_sweep_interval=0)
    client = HubClient(LocalLink(hub))
    try:
        await client.register(Agent("clerk", config=model, tools=tools), Passport(name="clerk"))
        user = await client.register_human(Passport(name="user", kind="human"))
        knobs = {"graph": sequence(["clerk"]).to_dict()}
        channel = await user.open("workflow", ["clerk"], knobs, message="go")
        result = await channel.result(timeout=60)
        return result.reason, result.text
    finally:
        await client.close()
        await hub.close()


def calls(*arguments: Any) -> ModelReply:
    return ModelReply(
        calls=[
            ToolCall(call_id=f"c{number}", tool="note", arguments={"text": one})
            for number, one in enumerate(arguments)
        ]
    )


def told(model: ScriptedModel) -> list[ToolMessage]:
    """What the last request told the model of its calls."""
    return [one for one in model.requests[-1].messages if isinstance(one, ToolMessage)]


@pytest.mark.parametrize(("argument", "why"), ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_that_cannot_be_stored_go_back_to_the_model(argument: Any, why: str) -> None:
    noted = list[str]()

    def note(text: str) -> str:
        noted.append(text)
        return "noted"

    model = ScriptedModel(calls(argument, "fine"), calls("better"), "done")

    assert await talk(model, note) == ("sequence_complete", "done")
    first = [one for one in model.requests[1].messages if isinstance(one, ToolMessage)]
    assert [one.failed for one in first] == [True, False]
    assert "cannot be stored" in first[0].text
    assert why in first[0].text
    assert noted == ["fine", "better"]


async def test_calls_that_do_not_fit_on_the_log_together_cost_the_largest_ones() -> None:
    noted = list[str]()

    def note(text: str) -> None:
        noted.append(text[:1])

    model = ScriptedModel(calls("a" * 700_000, "b" * 600_000, "c" * 10), "done")

    assert await talk(model, note) == ("sequence_complete", "done")
    assert sorted(noted) == ["b", "c"]
    assert [one.failed for one in told(model)] == [True, False, False]


async def test_more_calls_than_fit_on_the_log_are_cut_and_the_model_can_go_on() -> None:
    noted = list[str]()

    def note(text: str) -> None:
        noted.append(text)

    model = ScriptedModel(calls(*["x" * 4_000] * (2 * MAX_CALLS)), "done")

    assert await talk(model, note) == ("sequence_complete", "done")
    assert len(told(model)) == MAX_CALLS
    assert 200 < len(noted) < MAX_CALLS


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
async def test_a_reply_with_characters_that_a_log_refuses_is_stored_without_them(text: str) -> None:
    assert await talk(ScriptedModel(text)) == ("sequence_complete", "a\N{REPLACEMENT CHARACTER}b")


async def test_a_reply_that_is_too_large_is_cut() -> None:
    reason, text = await talk(ScriptedModel("x" * (MAX_BYTES + 1)))

    assert reason == "sequence_complete"
    assert text.startswith("x" * MAX_TEXT_CHARACTERS)
    assert f"{MAX_BYTES + 1} characters in all" in text


async def test_a_name_an_id_and_a_price_that_cannot_be_stored_end_nothing() -> None:
    bad = ModelReply(
        text="hm\0",
        calls=[ToolCall(call_id="c\0", tool="n\ud800", arguments={})],
        usage=Usage(cost=float("nan")),
        model="m\0",
        raw={"x": float("nan")},
    )
    model = ScriptedModel(bad, "done")

    assert await talk(model) == ("sequence_complete", "done")
    assert "there is no tool" in told(model)[0].text


RESULTS: Final = {
    "control characters": "\x01" * MAX_TEXT_CHARACTERS,
    "text and context": ToolResult("y" * MAX_TEXT_CHARACTERS, context={"a": "x" * (MAX_BYTES - 100_000)}),
    "a routing with a NUL": Finish("over\0"),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
async def test_a_result_that_cannot_be_stored_is_a_failed_call(result: Any) -> None:
    def note(text: str) -> Any:
        return result

    model = ScriptedModel(calls("go"), "done")

    assert await talk(model, note) == ("sequence_complete", "done")
    (answer,) = told(model)
    assert answer.failed
    assert "cannot be stored" in answer.text or "refused" in answer.text


async def test_a_person_is_not_asked_about_a_call_that_cannot_be_made() -> None:
    asked = list[str]()

    def note(text: str) -> str:
        return "noted"

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "yes"

    model = ScriptedModel(calls("a\0b"), calls("fine"), "done")
    agent = Agent("clerk", config=model, hitl_hook=ask)
    agent.tool(approval=True)(note)
    reply = await agent.ask("go")

    assert reply.body == "done"
    assert len(asked) == 1
