"""Our messages in pydantic-ai's form and back: whatever they hold, nothing is lost or changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, strategies as st
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from turnline.agent.messages import Message, ModelReply, ToolCall, ToolMessage, UserMessage
from turnline.agent.model import ModelRequest
from turnline.agent.models.conversion import (
    ANSWER_TOOL,
    answer_form,
    conversation,
    reply_from,
    without_raw,
)
from turnline.agent.storable import MAX_MALFORMED
from turnline.core.json import normalised

letters = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(letters, max_size=30)
names = st.text(letters, min_size=1, max_size=10)
anything = st.text(st.characters() | st.sampled_from("\0\ud83d"), max_size=30)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(
    ToolCall, call_id=names, tool=names, arguments=st.dictionaries(texts, values, max_size=3)
) | st.builds(ToolCall, call_id=names, tool=names, malformed=st.sampled_from(["{", "[1]", "nope", '"text"']))
replies = st.builds(ModelReply, text=texts, calls=st.lists(calls, max_size=3), model=texts)
messages = (
    st.builds(UserMessage, text=texts, name=texts)
    | st.builds(ToolMessage, call_id=names, tool=names, text=texts, failed=st.booleans())
    | replies
)
conversations = st.lists(messages, max_size=8)


def told(*said: Message, instructions: str = "") -> list[Any]:
    """What pydantic-ai makes of a request."""
    request = ModelRequest(agent="ada", instructions=instructions, messages=said)
    return ModelMessagesTypeAdapter.validate_python(conversation(request))


def raw_of(response: ModelResponse) -> dict[str, Any]:
    raw: dict[str, Any] = ModelMessagesTypeAdapter.dump_python([response], mode="json", exclude_none=True)[0]
    return raw


@given(replies)
def test_a_reply_survives_the_way_there_and_back(reply: ModelReply) -> None:
    (response,) = told(reply)
    back = reply_from(raw_of(response))

    assert (back.text, back.calls, back.model) == (reply.text, reply.calls, reply.model)


@given(replies)
def test_a_raw_reply_goes_back_as_it_came_after_any_number_of_journeys(reply: ModelReply) -> None:
    (response,) = told(reply)
    raw = raw_of(response)
    written = msgspec.json.decode(msgspec.json.encode(reply_from(raw)), type=ModelReply)
    (again,) = told(written)

    assert raw_of(again) == raw


@given(conversations)
def test_everything_said_is_told(said: list[Message]) -> None:
    parts = [part for message in told(*said) for part in message.parts]
    users = [part.content for part in parts if isinstance(part, UserPromptPart)]
    results = [(part.tool_call_id, part.content) for part in parts if isinstance(part, ToolReturnPart)]

    heard = [f"{m.name}: {m.text}" if m.name else m.text for m in said if isinstance(m, UserMessage)]
    assert users == heard
    assert results == [(m.call_id, m.text) for m in said if isinstance(m, ToolMessage)]


@given(conversations)
def test_results_stand_before_whatever_else_was_said_since_the_reply(said: list[Message]) -> None:
    for message in told(*said):
        kinds = [isinstance(part, ToolReturnPart) for part in message.parts]
        assert kinds == sorted(kinds, reverse=True)


@given(conversations, names)
def test_instructions_are_told_once(said: list[Message], instructions: str) -> None:
    found = [getattr(message, "instructions", None) for message in told(*said, instructions=instructions)]

    assert list(filter(None, found)) == [instructions]


def test_what_the_provider_adds_of_its_own_is_kept() -> None:
    thought = ThinkingPart(content="hm", signature="signed", provider_name="anthropic")
    raw = raw_of(ModelResponse(parts=[thought, TextPart("hi")], provider_name="anthropic"))

    reply = reply_from(raw)
    (response,) = told(reply)

    assert reply.text == "hi"
    assert response.parts[0] == thought
    assert without_raw(ModelRequest(agent="a", instructions="", messages=(reply,))).messages[0].raw is None  # type: ignore[union-attr]


def test_arguments_that_do_not_fit_on_a_log_are_malformed() -> None:
    deep = json.loads('{"a":' * 70 + "1" + "}" * 70)
    huge = "[" * 5_000
    raw = raw_of(ModelResponse(parts=[ToolCallPart("t", deep, "1"), ToolCallPart("t", huge, "2")]))

    first, second = reply_from(raw).calls

    assert first.arguments == second.arguments == {}
    assert first.malformed
    assert len(second.malformed) == MAX_MALFORMED


@given(anything, st.dictionaries(anything, anything, max_size=3), anything)
def test_a_reply_fits_on_a_log_whatever_the_model_sent(
    text: str, arguments: dict[str, str], sent: str
) -> None:
    parts: list[ModelResponsePart] = [
        TextPart(text),
        ToolCallPart("t", arguments, "1"),
        ToolCallPart("t", sent, "2"),
    ]

    reply = reply_from(raw_of(ModelResponse(parts=parts)))

    assert normalised(msgspec.to_builtins(reply))["type"] == "model"


def test_no_arguments_are_none() -> None:
    raw = raw_of(ModelResponse(parts=[ToolCallPart("t", "", "1"), ToolCallPart("t", None, "2")]))

    assert [(each.arguments, each.malformed) for each in reply_from(raw).calls] == [({}, ""), ({}, "")]


@given(values)
def test_an_answer_comes_out_of_its_box_as_it_went_in(value: Any) -> None:
    form = answer_form({"type": ["array", "string", "null"]})
    raw = raw_of(ModelResponse(parts=[ToolCallPart(ANSWER_TOOL, {"response": value}, "1")]))

    assert json.loads(reply_from(raw, form=form).text) == value


def test_definitions_stay_at_the_root_of_a_boxed_schema() -> None:
    form = answer_form({"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "object"}}})

    assert form.schema["$defs"] == {"Node": {"type": "object"}}
    assert form.schema["properties"] == {"response": {"$ref": "#/$defs/Node"}}


def test_an_answer_that_has_not_the_form_is_left_as_it_is() -> None:
    form = answer_form({"type": "array"})

    for said in ("sorry, no", "[1]", '{"other": 1}'):
        assert reply_from(raw_of(ModelResponse(parts=[TextPart(said)])), form=form).text == said
