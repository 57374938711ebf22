"""Traces: one tree from the request to the last tool, in whichever process; nothing of what was said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.client.stage import played, stage
from tests.hub.scenes import closed
from tests.server.stage import served
from turnline import Agent, tool, tracing
from turnline.agent.scripted import ScriptItem
from turnline.core.graph import sequence
from turnline.errors import MissingExtra, ModelError
from turnline.log.memory import MemoryLog
from turnline.testing import ScriptedModel, call

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ABOVE = f"00-{TRACE}-00f067aa0ba902b7-01"
SECRET = "canary-71c"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield exporter
    tracing.use(None)
    provider.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    [found] = [one for one in spans.get_finished_spans() if one.name == name]
    return found


def trace_ids(spans: InMemorySpanExporter) -> set[str]:
    return {f"{one.context.trace_id:032x}" for one in spans.get_finished_spans() if one.context is not None}


def above(spans: InMemorySpanExporter, span: ReadableSpan) -> str:
    """The name of the span that it is below."""
    parent = None if span.parent is None else span.parent.span_id
    names = [one.name for one in spans.get_finished_spans() if one.context and one.context.span_id == parent]
    return names[0] if names else ""


@tool
def lookup(order: str) -> str:
    """Look an order up."""
    return f"{order}: {SECRET}"


@tool
def broken(order: str) -> str:
    """Fail."""
    raise LookupError(f"{order} {SECRET}")


def ada(*script: ScriptItem) -> Agent:
    return Agent("ada", f"Never say {SECRET}.", config=ScriptedModel(*script), tools=[lookup, broken])


# --- The tree ---


async def test_a_turn_is_below_its_channel_and_holds_its_model_calls_and_tools(
    spans: InMemorySpanExporter,
) -> None:
    async with stage(ada(call("lookup", order="7"), "it is on its way")) as home:
        channel = await played(home)

    turn = named(spans, "invoke_agent ada")
    assert above(spans, turn) == "open_channel workflow"
    assert above(spans, named(spans, "execute_tool lookup")) == "invoke_agent ada"
    chats = [one for one in spans.get_finished_spans() if one.name.startswith("chat ")]
    assert [above(spans, one) for one in chats] == ["invoke_agent ada"] * 2
    assert turn.attributes is not None
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["gen_ai.agent.name"] == "ada"
    assert turn.attributes["gen_ai.conversation.id"] == channel.channel_id


async def test_spans_of_model_calls_and_tools_have_the_names_of_the_genai_conventions(
    spans: InMemorySpanExporter,
) -> None:
    async with stage(ada(call("lookup", order="7"), "done")) as home:
        await played(home)

    chats = (one for one in spans.get_finished_spans() if one.name.startswith("chat "))
    model = next(chats).attributes or {}
    assert model["gen_ai.operation.name"] == "chat"
    assert model["gen_ai.request.model"]
    assert "gen_ai.usage.input_tokens" in model
    called = named(spans, "execute_tool lookup").attributes or {}
    assert called["gen_ai.operation.name"] == "execute_tool"
    assert called["gen_ai.tool.name"] == "lookup"
    assert called["gen_ai.tool.call.id"]


async def test_a_request_its_run_its_steps_and_their_tools_are_one_trace(spans: InMemorySpanExporter) -> None:
    flow = "{trigger: {path: /hello}, steps: [{id: greet, runner: greet}, {id: over, runner: greet}]}"
    async with served(flow, greet=lambda ctx: {"greeting": "hi"}) as server:
        answer = await server.post("/hello", {"name": "Ann"}, traceparent=ABOVE)

    assert answer.status_code == 200, answer.text
    assert trace_ids(spans) == {TRACE}
    request = named(spans, "POST /hello")
    assert above(spans, named(spans, "open_channel workflow")) == "POST /hello"
    assert above(spans, named(spans, "step greet")) == "open_channel workflow"
    assert (request.attributes or {})["http.response.status_code"] == 200


async def test_whoever_goes_on_after_a_restart_goes_on_in_the_same_trace(spans: InMemorySpanExporter) -> None:
    log = MemoryLog()
    async with stage(log=log) as home:
        await home.agent("ada")  # She is there, and does nothing yet.
        channel = await home.open(sequence(["user", "ada"]), by="user", message="go")
        channel_id = channel.channel_id
    before = trace_ids(spans)

    async with stage(ada("hello"), log=log) as home:
        await closed(home.agents["ada"].channel(channel_id))

    assert above(spans, named(spans, "invoke_agent ada")) == "open_channel workflow"
    assert trace_ids(spans) == before


async def test_two_conversations_are_two_traces(spans: InMemorySpanExporter) -> None:
    async with stage(ada("one", "two")) as home:
        await played(home)
        await played(home)

    assert len(trace_ids(spans)) == 2


def test_what_has_no_trace_of_its_own_is_not_below_whatever_is_current(spans: InMemorySpanExporter) -> None:
    with tracing.span("outside"), tracing.span_below(None, "own"):
        pass

    assert named(spans, "own").parent is None


async def test_the_lines_of_a_turn_name_its_span(spans: InMemorySpanExporter) -> None:
    async with stage(ada("hello")) as home:
        channel = await played(home)
        [line] = [one for one in await home.wal(channel) if one.event_type == "packet"]

    turn = named(spans, "invoke_agent ada").context
    assert turn is not None
    assert (line.traceparent or "").startswith(f"00-{turn.trace_id:032x}-{turn.span_id:016x}-")


# --- What is not in it ---


async def test_nothing_that_was_said_given_or_raised_is_in_a_span(spans: InMemorySpanExporter) -> None:
    script = (call("lookup", order=SECRET), call("broken", order="7"), f"it is {SECRET}")
    async with stage(ada(*script)) as home:
        await played(home, knobs={"context_vars": {"note": SECRET}})

    assert len(spans.get_finished_spans()) > 4
    assert SECRET not in "".join(one.to_json() for one in spans.get_finished_spans())
    failed = named(spans, "execute_tool broken")
    assert not failed.status.is_ok
    assert (failed.attributes or {})["error.type"] == "tool_failed"


async def test_a_turn_that_failed_says_so_by_the_name_of_the_error(spans: InMemorySpanExporter) -> None:
    failure = ModelError("scripted", because=SECRET, transient=False)
    async with stage(Agent("ada", config=ScriptedModel(failure))) as home:
        await played(home)

    turn = named(spans, "invoke_agent ada")
    assert not turn.status.is_ok
    assert (turn.attributes or {})["error.type"] == "ModelError"
    assert SECRET not in "".join(one.to_json() for one in spans.get_finished_spans())


# --- Off, unless it is set up ---


async def test_without_a_provider_nothing_is_recorded_and_no_line_carries_a_trace() -> None:
    async with stage(ada("hello")) as home:
        channel = await played(home)
        lines = await home.wal(channel)

    assert tracing.current() is None
    assert [one.traceparent for one in lines] == [None] * len(lines)
    assert "traceparent" not in lines[0].event_data


def test_opentelemetry_is_not_even_imported_by_a_program_that_does_not_use_it() -> None:
    program = "import sys, turnline, turnline.network; sys.exit('opentelemetry.trace' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_nothing_is_exported_where_the_environment_names_no_endpoint() -> None:
    assert tracing.export({"OTEL_SERVICE_NAME": "shop"}) is None


def test_exporting_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    with pytest.raises(MissingExtra, match=r"\[otel\]"):
        tracing.export({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
