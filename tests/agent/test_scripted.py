from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnline.agent.messages import Message, ModelReply, ToolCall, Usage, UserMessage
from turnline.agent.model import Model, ModelConfig, ModelRequest
from turnline.errors import ModelError, ScriptExhausted
from turnline.testing import RecordingModel, ScriptedModel, TestConfig, call

HELLO = UserMessage(text="hello")


def asks(*messages: Message, agent: str = "ada") -> ModelRequest:
    return ModelRequest(agent=agent, instructions="", messages=messages or (HELLO,))


async def ids(model: ScriptedModel, *messages: Message) -> list[str]:
    return [each.call_id for each in (await model.reply(asks(*messages))).calls]


def test_it_is_a_model_and_its_own_config() -> None:
    model = ScriptedModel("hi")

    assert isinstance(model, Model)
    assert isinstance(model, ModelConfig)
    assert model.create() is model
    assert TestConfig is ScriptedModel


async def test_it_says_one_item_after_another_over_all_turns() -> None:
    model = ScriptedModel("one", "two")

    assert [(await model.reply(asks())).text for _ in range(2)] == ["one", "two"]


async def test_a_reply_counts_as_one_request() -> None:
    reply = await ScriptedModel("one").reply(asks())

    assert (reply.usage, reply.model) == (Usage(requests=1), "scripted")


async def test_calls_have_ids_of_their_own_in_order() -> None:
    model = ScriptedModel(call("look", where="here"), [call("look"), call("take", tool="lamp")])

    assert await ids(model) == ["call-1"]
    assert await ids(model) == ["call-2", "call-3"]


async def test_an_argument_may_be_called_like_the_parameter() -> None:
    reply = await ScriptedModel(call("use", tool="lamp")).reply(asks())

    assert reply.calls == [ToolCall(call_id="call-1", tool="use", arguments={"tool": "lamp"})]


async def test_an_id_that_was_given_is_kept() -> None:
    model = ScriptedModel(ToolCall(call_id="mine", tool="look"))

    assert await ids(model) == ["mine"]


async def test_a_script_that_begins_anew_gives_no_id_twice_in_a_conversation() -> None:
    first = await ScriptedModel([call("look"), call("take")]).reply(asks())

    assert await ids(ScriptedModel(call("look")), HELLO, first) == ["call-3"]


async def test_a_reply_is_said_as_it_is() -> None:
    reply = ModelReply(text="both", calls=[call("look")], usage=Usage(requests=1, input_tokens=5), model="m")

    said = await ScriptedModel(reply).reply(asks())

    assert (said.text, said.usage, said.model) == (reply.text, reply.usage, "m")
    assert said.calls[0].call_id == "call-1"


async def test_an_exception_is_raised_and_the_script_goes_on() -> None:
    down = ModelError("m", because="it is down", transient=True)
    model = ScriptedModel(down, "up again")

    with pytest.raises(ModelError) as raised:
        await model.reply(asks())
    assert raised.value is down
    assert (await model.reply(asks())).text == "up again"


async def test_a_function_sees_the_messages_so_far() -> None:
    model = ScriptedModel("one", lambda messages: f"{len(messages)} so far")

    await model.reply(asks())
    assert (await model.reply(asks(HELLO, HELLO))).text == "2 so far"


async def test_m2_running_out_names_the_agent_and_the_request() -> None:
    model = ScriptedModel("only this")
    await model.reply(asks())

    with pytest.raises(ScriptExhausted) as ended:
        await model.reply(asks(agent="triage"))
    assert (ended.value.agent, ended.value.turn) == ("triage", 2)


async def test_one_function_alone_answers_every_request() -> None:
    model = ScriptedModel(lambda messages: "always")

    assert [(await model.reply(asks())).text for _ in range(3)] == ["always"] * 3


async def test_one_function_alone_has_no_state() -> None:
    """A process that was killed goes on as one that was not: the same request, the same reply."""

    def play(messages: tuple[Message, ...]) -> Any:
        return call("look") if len(messages) < 3 else "done"

    old = ScriptedModel(play)
    first = await old.reply(asks())
    again = await old.reply(asks(HELLO, first))
    anew = await ScriptedModel(play).reply(asks(HELLO, first))

    assert anew == again
    assert anew.calls[0].call_id == "call-2"


async def test_every_request_is_kept_the_one_that_failed_too() -> None:
    model = ScriptedModel(LookupError("no"))
    with pytest.raises(LookupError):
        await model.reply(asks())

    assert model.requests == [asks()]


@pytest.mark.parametrize("text", ["two words", " a  b\n", "one", "", "  "])
async def test_streamed_pieces_add_up_to_the_text(text: str) -> None:
    pieces: list[str] = []

    reply = await ScriptedModel(text).reply(asks(), pieces.append)

    assert "".join(pieces) == reply.text == text
    assert "" not in pieces


async def test_text_is_streamed_in_more_than_one_piece() -> None:
    pieces: list[str] = []
    await ScriptedModel("in several pieces").reply(asks(), pieces.append)

    assert pieces == ["in", " several", " pieces"]


@pytest.mark.parametrize("item", [3, None, [], ["text"], LookupError, {"text": "hi"}])
def test_what_cannot_be_said_is_refused_at_once(item: Any) -> None:
    with pytest.raises(TypeError, match="cannot be in a script"):
        ScriptedModel(item)


async def test_what_a_function_cannot_say_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be in a script"):
        await ScriptedModel(lambda messages: 3).reply(asks())  # type: ignore[arg-type,return-value]


# Recordings


async def recorded(*script: Any) -> RecordingModel:
    recording = RecordingModel(ScriptedModel(*script))
    for _ in script:
        await recording.reply(asks())
    return recording


async def test_a_recording_keeps_what_was_asked_and_answered() -> None:
    recording = await recorded("one")

    assert isinstance(recording, Model)
    assert recording.create() is recording
    assert [(each.request, each.reply.text) for each in recording.exchanges] == [(asks(), "one")]


async def test_m2_a_recording_is_a_script() -> None:
    recording = await recorded("one", [call("look", where="here")])
    replayed = ScriptedModel(*recording.script())

    assert [await replayed.reply(asks()) for _ in range(2)] == [each.reply for each in recording.exchanges]


async def test_a_recording_comes_back_from_a_file(tmp_path: Path) -> None:
    recording = await recorded("two\nlines", ModelReply(text="x", raw={"kind": "response"}))
    recording.save(tmp_path / "run.jsonl")
    replayed = ScriptedModel.load(tmp_path / "run.jsonl")

    assert [(await replayed.reply(asks())).text for _ in range(2)] == ["two\nlines", "x"]


async def test_nothing_of_the_requests_or_the_provider_is_in_the_file(tmp_path: Path) -> None:
    recording = RecordingModel(ScriptedModel(ModelReply(text="x", raw={"provider_url": "http://canary"})))
    await recording.reply(asks(UserMessage(text="canary")))
    recording.save(tmp_path / "run.jsonl")

    assert b"canary" not in (tmp_path / "run.jsonl").read_bytes()


async def test_a_request_that_failed_is_not_recorded() -> None:
    recording = RecordingModel(ScriptedModel(LookupError("no"), "yes"))
    with pytest.raises(LookupError):
        await recording.reply(asks())
    await recording.reply(asks())

    assert [reply.text for reply in recording.script()] == ["yes"]


def test_a_file_that_is_no_recording_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text('{"type":"model","text":"fine"}\n{"type":"user","text":"x"}\n')

    with pytest.raises(ValueError, match=r"run\.jsonl, line 2"):
        ScriptedModel.load(tmp_path / "run.jsonl")
