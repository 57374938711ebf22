"""M1: the wire formats over real sockets: what is sent, what comes back, and every way it can fail."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import permutations
from typing import Any

import pytest

from turnline.agent.messages import Message, MessageFile, ModelReply, ToolCall, ToolMessage, UserMessage
from turnline.agent.model import Model, ModelRequest, ToolSpec
from turnline.agent.models.conversion import ANSWER_TOOL
from turnline.config import AnthropicConfig, GeminiConfig, OpenAIConfig
from turnline.errors import ModelError
from turnline.testing import ModelServer, call
from turnline.testing.model_server import Cut, Fail, Garbage, Received, ServerItem, Silence, Unfinished
from turnline.testing.model_wire import INPUT_TOKENS, OUTPUT_TOKENS

KEY = "canary-3f9c-never-shown"
HELLO = UserMessage(text="hello")
LOOK = ToolSpec(
    name="look",
    description="Looks at something.",
    schema={"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
)
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

Choose = Callable[[ModelServer], Model]


def openai(server: ModelServer) -> Model:
    return OpenAIConfig("gpt-4o-mini", api_key=KEY, base_url=server.url).create()


def anthropic(server: ModelServer) -> Model:
    # Without a limit this small, pydantic-ai streams from Anthropic even where nobody listens.
    config = AnthropicConfig("claude-sonnet-4-6", api_key=KEY, base_url=server.url, max_tokens=1000)
    return config.create()


def anthropic_without_limit(server: ModelServer) -> Model:
    return AnthropicConfig("claude-sonnet-4-6", api_key=KEY, base_url=server.url).create()


def google(server: ModelServer) -> Model:
    return GeminiConfig("gemini-2.5-flash", api_key=KEY, base_url=server.url).create()


@pytest.fixture(params=[openai, anthropic, google])
def choose(request: pytest.FixtureRequest) -> Choose:
    chosen: Choose = request.param
    return chosen


def asks(
    *messages: Message, instructions: str = "", tools: tuple[ToolSpec, ...] = (), schema: Any = None
) -> ModelRequest:
    said = messages or (HELLO,)
    return ModelRequest(agent="ada", instructions=instructions, messages=said, tools=tools, schema=schema)


async def failure(choose: Choose, item: ServerItem, *, streamed: bool = False) -> ModelError:
    """How a request fails that the server answers with `item`; it must have been one request."""
    with ModelServer(item) as server:
        with pytest.raises(ModelError) as failed:
            await choose(server).reply(asks(), (lambda piece: None) if streamed else None)
        assert len(server.requests) == 1
    return failed.value


# What comes back


async def test_a_reply_is_the_text_the_server_sent(choose: Choose) -> None:
    with ModelServer("good morning") as server:
        reply = await choose(server).reply(asks())

    assert reply.text == "good morning"
    assert reply.calls == []


async def test_usage_is_counted_and_priced(choose: Choose) -> None:
    with ModelServer("good morning") as server:
        reply = await choose(server).reply(asks())

    assert reply.usage.requests == 1
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)
    assert 0 < reply.usage.cost < 0.01


async def test_a_model_nobody_knows_the_price_of_costs_nothing() -> None:
    with ModelServer("hi") as server:
        reply = await OpenAIConfig("home-made", api_key=KEY, base_url=server.url).create().reply(asks())

    assert reply.usage.cost == 0.0


@pytest.mark.parametrize("streamed", [False, True])
async def test_several_calls_of_one_reply_keep_their_order(choose: Choose, streamed: bool) -> None:
    with ModelServer([call("look", where="up"), call("look", where="down")]) as server:
        reply = await choose(server).reply(asks(tools=(LOOK,)), (lambda piece: None) if streamed else None)

    assert [(each.call_id, each.arguments) for each in reply.calls] == [
        ("call_1", {"where": "up"}),
        ("call_2", {"where": "down"}),
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_arguments_that_are_no_json_object_are_kept_as_they_came(streamed: bool) -> None:
    broken = ToolCall(call_id="", tool="look", malformed='{"where": ')
    with ModelServer(broken) as server:
        reply = await openai(server).reply(asks(tools=(LOOK,)), (lambda piece: None) if streamed else None)

    assert reply.calls[0].malformed == '{"where": '
    assert reply.calls[0].arguments == {}


async def test_streamed_pieces_add_up_to_the_text(choose: Choose) -> None:
    pieces: list[str] = []
    with ModelServer("a reply that comes in several pieces") as server:
        reply = await choose(server).reply(asks(), pieces.append)

    assert len(pieces) > 1
    assert "".join(pieces) == reply.text == "a reply that comes in several pieces"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)


async def test_a_streamed_reply_and_a_whole_one_are_alike(choose: Choose) -> None:
    said = ModelReply(text="let me look", calls=[call("look", where="here")])
    with ModelServer(said, said) as server:
        model = choose(server)
        whole = await model.reply(asks(tools=(LOOK,)))
        streamed = await model.reply(asks(tools=(LOOK,)), lambda piece: None)

    assert (whole.text, whole.calls[0].arguments) == (streamed.text, streamed.calls[0].arguments)


async def test_a_reply_is_json(choose: Choose) -> None:
    """It is written down as it is, and another process goes on from it."""
    with ModelServer(call("look", where="here")) as server:
        reply = await choose(server).reply(asks(tools=(LOOK,)))

    assert json.loads(json.dumps(reply.raw)) == reply.raw


# What is sent


async def test_openai_is_told_instructions_names_and_tools() -> None:
    with ModelServer("hi") as server:
        said = (UserMessage(text="hello", name="bob"), UserMessage(text="and I am here too"))
        await openai(server).reply(asks(*said, instructions="Be short.", tools=(LOOK,)))

    sent = server.requests[0].json
    assert [(each["role"], each["content"]) for each in sent["messages"]] == [
        ("system", "Be short."),
        ("user", "bob: hello"),
        ("user", "and I am here too"),
    ]
    assert sent["tools"][0]["function"]["name"] == "look"
    assert sent["tools"][0]["function"]["description"] == "Looks at something."


async def test_anthropic_is_told_instructions_names_and_tools() -> None:
    with ModelServer("hi") as server:
        await anthropic(server).reply(
            asks(UserMessage(text="hello", name="bob"), instructions="Be short.", tools=(LOOK,))
        )

    sent = server.requests[0].json
    assert "Be short." in json.dumps(sent["system"])
    assert "bob: hello" in json.dumps(sent["messages"])
    assert sent["tools"][0]["name"] == "look"


async def test_google_is_told_instructions_names_and_tools() -> None:
    with ModelServer("hi") as server:
        said = (UserMessage(text="hello", name="bob"), UserMessage(text="and I am here too"))
        await google(server).reply(asks(*said, instructions="Be short.", tools=(LOOK,)))

    received = server.requests[0]
    assert received.path.endswith("/models/gemini-2.5-flash:generateContent")
    assert received.headers["x-goog-api-key"] == KEY
    assert received.json["systemInstruction"]["parts"] == [{"text": "Be short."}]
    (message,) = received.json["contents"]
    assert message == {"role": "user", "parts": [{"text": "bob: hello"}, {"text": "and I am here too"}]}
    (declared,) = received.json["tools"][0]["functionDeclarations"]
    assert (declared["name"], declared["description"]) == ("look", "Looks at something.")


async def called_and_answered(choose: Choose, *, keep_raw: bool, failed: bool = False) -> Received:
    """What a server is sent that called a tool and gets the result, with a remark that came in between."""
    with ModelServer(call("look", where="here"), "a lamp") as server:
        model = choose(server)
        first = await model.reply(asks(tools=(LOOK,)))
        if not keep_raw:
            first = ModelReply(text=first.text, calls=first.calls)
        remark = UserMessage(text="hurry", name="bob")
        result = ToolMessage(call_id=first.calls[0].call_id, tool="look", text="it shines", failed=failed)
        await model.reply(asks(HELLO, first, remark, result, tools=(LOOK,)))
        return server.requests[1]


@pytest.mark.parametrize("keep_raw", [True, False])
async def test_a_result_goes_back_to_openai_right_behind_its_call(keep_raw: bool) -> None:
    sent = await called_and_answered(openai, keep_raw=keep_raw)

    _, called, result, remark = sent.json["messages"]
    assert called["tool_calls"][0]["id"] == result["tool_call_id"] == "call_1"
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"where": "here"}
    assert (result["role"], result["content"]) == ("tool", "it shines")
    assert remark["content"] == "bob: hurry"


@pytest.mark.parametrize("keep_raw", [True, False])
async def test_a_result_goes_back_to_anthropic_right_behind_its_call(keep_raw: bool) -> None:
    sent = await called_and_answered(anthropic, keep_raw=keep_raw, failed=True)

    _, called, told = sent.json["messages"]
    assert called["content"][0]["id"] == told["content"][0]["tool_use_id"] == "call_1"
    assert called["content"][0]["input"] == {"where": "here"}
    assert told["content"][0]["is_error"] is True
    assert "bob: hurry" in json.dumps(told["content"][1])


@pytest.mark.parametrize("keep_raw", [True, False])
async def test_a_result_goes_back_to_google_right_behind_its_call(keep_raw: bool) -> None:
    sent = await called_and_answered(google, keep_raw=keep_raw)

    _, called, result, remark = sent.json["contents"]
    assert called["role"] == "model"
    assert called["parts"][0]["functionCall"] == {"id": "call_1", "name": "look", "args": {"where": "here"}}
    (returned,) = [part["functionResponse"] for part in result["parts"]]
    assert (returned["id"], returned["name"]) == ("call_1", "look")
    assert "it shines" in json.dumps(returned["response"])
    assert remark == {"role": "user", "parts": [{"text": "bob: hurry"}]}


@pytest.mark.parametrize(("one", "other"), [*permutations([openai, anthropic, google], 2)])
async def test_a_conversation_goes_on_at_another_provider(one: Choose, other: Choose) -> None:
    with ModelServer(call("look", where="here"), "a lamp") as server:
        first = await one(server).reply(asks(tools=(LOOK,)))
        result = ToolMessage(call_id=first.calls[0].call_id, tool="look", text="it shines")
        second = await other(server).reply(asks(HELLO, first, result, tools=(LOOK,)))

    assert second.text == "a lamp"


@pytest.mark.parametrize("raw", [{"kind": "response", "parts": "?"}, {"from": "another library"}])
async def test_a_raw_form_nobody_can_read_is_left_out(choose: Choose, raw: dict[str, Any]) -> None:
    with ModelServer("again") as server:
        earlier = ModelReply(text="I said this", raw=raw)
        await choose(server).reply(asks(HELLO, earlier, HELLO))

    assert "I said this" in json.dumps(server.requests[0].json)


# Answers in a form


async def test_openai_answers_in_its_json_mode_and_streams_it() -> None:
    pieces: list[str] = []
    with ModelServer('{"x": 3}') as server:
        reply = await openai(server).reply(asks(schema=POINT), pieces.append)

    assert reply.text == "".join(pieces) == '{"x": 3}'
    assert len(pieces) > 1
    assert server.requests[0].json["response_format"]["type"] == "json_schema"


async def test_google_answers_in_its_json_mode_and_streams_it() -> None:
    pieces: list[str] = []
    with ModelServer('{"x": 3}') as server:
        reply = await google(server).reply(asks(schema=POINT), pieces.append)

    assert reply.text == "".join(pieces) == '{"x": 3}'
    assert len(pieces) > 1
    asked = server.requests[0].json["generationConfig"]
    assert asked["responseMimeType"] == "application/json"
    assert asked["responseJsonSchema"]["required"] == ["x"]


async def test_google_answers_through_a_tool_where_there_are_other_tools() -> None:
    with ModelServer(call(ANSWER_TOOL, x=3)) as server:
        answer = await google(server).reply(asks(tools=(LOOK,), schema=POINT))

    assert json.loads(answer.text) == {"x": 3}
    assert "responseJsonSchema" not in server.requests[0].json["generationConfig"]


async def test_anthropic_answers_through_a_tool_and_the_answer_is_kept_as_text() -> None:
    pieces: list[str] = []
    with ModelServer(call(ANSWER_TOOL, x=3), "fine") as server:
        model = anthropic(server)
        answer = await model.reply(asks(schema=POINT), pieces.append)
        await model.reply(asks(HELLO, answer, HELLO))

    assert json.loads(answer.text) == {"x": 3}
    assert pieces == [answer.text]
    assert answer.calls == []
    assert answer.raw is None
    assert "tool_use" not in json.dumps(server.requests[1].json["messages"])


async def test_tools_come_before_the_answer() -> None:
    """What was answered before the tools have was a guess."""
    with ModelServer([call("look", where="here"), call(ANSWER_TOOL, x=3)]) as server:
        reply = await anthropic(server).reply(asks(tools=(LOOK,), schema=POINT))

    assert [each.tool for each in reply.calls] == ["look"]
    assert reply.text == ""


@pytest.mark.parametrize("said", ['{"response": [1, 2]}', call(ANSWER_TOOL, response=[1, 2])])
async def test_an_answer_that_is_no_object_is_unboxed(said: str | ToolCall) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    with ModelServer(said) as server:
        reply = await (openai if isinstance(said, str) else anthropic)(server).reply(asks(schema=numbers))

    assert reply.text == "[1,2]"


# Every way it can fail


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
async def test_these_are_worth_another_attempt(choose: Choose, status: int) -> None:
    failed = await failure(choose, Fail(status))

    assert (failed.status, failed.transient) == (status, True)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_these_are_not(choose: Choose, status: int) -> None:
    failed = await failure(choose, Fail(status, message="the field is wrong"))

    assert (failed.status, failed.transient) == (status, False)
    assert "the field is wrong" in str(failed)


async def test_retry_after_in_seconds(choose: Choose) -> None:
    assert (await failure(choose, Fail(429, retry_after="7"))).retry_after_seconds == 7.0


async def test_retry_after_as_a_date(choose: Choose) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)

    seconds = (await failure(choose, Fail(429, retry_after=at))).retry_after_seconds

    assert seconds is not None
    assert 50 < seconds <= 60


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cut_connection_is_transient(choose: Choose, streamed: bool) -> None:
    failed = await failure(choose, Cut(), streamed=streamed)

    assert (failed.status, failed.transient) == (None, True)


async def test_a_stream_that_ends_before_the_reply_does_is_no_reply(choose: Choose) -> None:
    """It would look like a short one, and be on the log for ever."""
    failed = await failure(choose, Unfinished(), streamed=True)

    assert failed.transient
    assert "ended before the reply" in str(failed)


@pytest.mark.parametrize("item", [Cut(), Unfinished(), Garbage()])
async def test_a_stream_behind_the_scenes_is_watched_as_well(item: ServerItem) -> None:
    assert (await failure(anthropic_without_limit, item)).transient


async def test_bytes_that_are_no_json_are_transient(choose: Choose) -> None:
    assert (await failure(choose, Garbage())).transient


async def test_json_that_is_no_reply_is_not_transient(choose: Choose) -> None:
    assert not (await failure(choose, Garbage(b'{"weather": "fine"}'))).transient


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_a_log_refuses_is_replaced(choose: Choose, streamed: bool) -> None:
    """Half a character or a NUL would fail the turn when it is written down, after it was paid for."""
    pieces: list[str] = []
    with ModelServer("half \ud83d and \0.") as server:
        reply = await choose(server).reply(asks(), pieces.append if streamed else None)

    assert reply.text == "half \ufffd and \ufffd."
    assert reply.raw is None
    assert "".join(pieces) == (reply.text if streamed else "")


@pytest.mark.parametrize("config", [OpenAIConfig, GeminiConfig])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_server_that_says_nothing_is_not_waited_for(
    config: type[OpenAIConfig | GeminiConfig], streamed: bool
) -> None:
    with ModelServer(Silence()) as server:
        model = config("m", api_key=KEY, base_url=server.url, timeout=0.05).create()
        with pytest.raises(ModelError) as failed:
            await model.reply(asks(), (lambda piece: None) if streamed else None)

    assert failed.value.transient


async def test_a_server_that_is_not_there_is_transient(choose: Choose) -> None:
    with ModelServer() as server:
        gone = choose(server)

    with pytest.raises(ModelError) as failed:
        await gone.reply(asks())
    assert failed.value.transient


async def test_what_the_listener_raises_is_not_the_models_failure(choose: Choose) -> None:
    def fail(piece: str) -> None:
        raise LookupError(piece)

    with ModelServer("hello") as server, pytest.raises(LookupError, match="hell"):
        await choose(server).reply(asks(), fail)


async def test_a_request_can_be_cancelled(choose: Choose) -> None:
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    def silent(received: Received) -> Silence:
        loop.call_soon_threadsafe(arrived.set)
        return Silence()

    with ModelServer(silent) as server:
        asked = asyncio.create_task(choose(server).reply(asks()))
        await arrived.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked


# Secrets


def echoes(received: Received) -> Fail:
    """A server so careless that it tells the client its own key."""
    shown = [value.removeprefix("Bearer ") for value in received.headers.values() if KEY in value]
    assert shown == [KEY]
    return Fail(401, message=f"refused: {shown}")


@pytest.fixture
def every_log_line(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog


async def test_the_key_is_in_no_error_traceback_repr_or_log_line(
    choose: Choose, every_log_line: pytest.LogCaptureFixture
) -> None:
    with ModelServer(echoes) as server:
        model = choose(server)
        with pytest.raises(ModelError) as failed:
            await model.reply(asks())

    shown = [repr(model), repr(failed.value), *traceback.format_exception(failed.value), every_log_line.text]
    assert KEY not in "\n".join(shown)
    assert "[secret]" in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None


async def test_a_key_in_the_environment_is_taken_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_OTHER_API_KEY", "another-canary")

    failed = await failure(openai, Fail(400, message="what is another-canary or sk-proj-123456789?"))

    assert "canary" not in str(failed)
    assert "sk-proj" not in str(failed)


async def test_the_key_is_not_in_what_goes_on_the_log(choose: Choose) -> None:
    with ModelServer("hi") as server:
        reply = await choose(server).reply(asks())

    assert KEY not in repr(reply)


# Clients


async def test_many_requests_share_one_model(choose: Choose) -> None:
    with ModelServer(lambda received: "hi") as server:
        model = choose(server)
        replies = await asyncio.gather(*(model.reply(asks()) for _ in range(8)))

    assert [reply.text for reply in replies] == ["hi"] * 8


def test_a_model_works_on_one_event_loop_after_another() -> None:
    with ModelServer(lambda received: "hi") as server:
        model = openai(server)
        replies = [asyncio.run(model.reply(asks())) for _ in range(3)]

    assert [reply.text for reply in replies] == ["hi"] * 3


# Files


async def test_y6_an_image_and_a_pdf_go_to_openai_in_its_form() -> None:
    files = [
        MessageFile(name="a.png", media_type="image/png", data=b"\x89PNG"),
        MessageFile(name="b.pdf", media_type="application/pdf", data=b"%PDF"),
    ]
    with ModelServer("nice") as server:
        await openai(server).reply(asks(UserMessage(text="look", name="ann", files=files)))
        (message,) = [one for one in server.requests[0].json["messages"] if one["role"] == "user"]

    text, image, document = message["content"]
    assert text == {"type": "text", "text": "ann: look"}
    assert image["type"] == "image_url"
    assert image["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert document["type"] == "file"
    assert document["file"]["file_data"] == "data:application/pdf;base64,JVBERg=="


async def test_y6_an_image_and_a_pdf_go_to_anthropic_in_its_form() -> None:
    files = [
        MessageFile(name="a.png", media_type="image/png", data=b"\x89PNG"),
        MessageFile(name="b.pdf", media_type="application/pdf", data=b"%PDF"),
    ]
    with ModelServer("nice") as server:
        await anthropic(server).reply(asks(UserMessage(text="look", files=files)))
        (message,) = server.requests[0].json["messages"]

    text, image, document = message["content"]
    assert text["text"] == "look"
    assert (image["type"], document["type"]) == ("image", "document")
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    assert document["source"] == {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}


async def test_y6_an_image_and_a_pdf_go_to_google_as_inline_data() -> None:
    files = [
        MessageFile(name="a.png", media_type="image/png", data=b"\x89PNG"),
        MessageFile(name="b.pdf", media_type="application/pdf", data=b"%PDF"),
        MessageFile(name="c.txt", media_type="text/plain", data=b"plain"),
    ]
    with ModelServer("nice") as server:
        await google(server).reply(asks(UserMessage(text="look", name="ann", files=files)))
        (message,) = server.requests[0].json["contents"]

    text, *shown = message["parts"]
    assert text == {"text": "ann: look"}
    assert [tuple(part["inlineData"].values()) for part in shown] == [
        ("iVBORw==", "image/png"),
        ("JVBERg==", "application/pdf"),
        ("cGxhaW4=", "text/plain"),
    ]
