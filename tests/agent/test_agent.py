"""A1, A2, V1, V4, H1: an agent that is asked, outside of any channel."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from turnline.agent.agent import Agent, Reply
from turnline.agent.context import Context
from turnline.agent.inject import Inject, Variable
from turnline.agent.messages import Message, ModelReply, ToolMessage, Usage, UserMessage
from turnline.agent.performer import TextDelta, ToolFinished, ToolStarted
from turnline.errors import BadOutput, BadTool, NobodyToAsk, NoModel, ScriptExhausted, ToolRoundsExceeded
from turnline.testing import ScriptedModel, call


class City(BaseModel):
    name: str
    people: int


def look(where: str) -> str:
    """Look somewhere.

    Args:
        where: A place.
    """
    return f"a lamp is {where}"


async def keep(context: Context) -> str:
    return "kept"


def told(model: ScriptedModel, request: int = -1) -> list[str]:
    """What the tools answered, as the model was told it."""
    return [one.text for one in model.requests[request].messages if isinstance(one, ToolMessage)]


# --- A1: what an agent is made of ---


async def test_a1_without_a_model_the_error_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNLINE_MODEL", raising=False)

    with pytest.raises(NoModel, match=r"config=.*TURNLINE_MODEL.*ScriptedModel") as refused:
        await Agent("ada").ask("hello")
    assert refused.value.agent == "ada"


async def test_a1_the_calls_config_goes_before_the_agents() -> None:
    agent = Agent("ada", config=ScriptedModel("the agent's"))

    assert (await agent.ask("hello", config=ScriptedModel("the call's"))).body == "the call's"
    assert (await agent.ask("hello")).body == "the agent's"


async def test_a1_an_agents_tools_are_given_by_list_and_by_decorator() -> None:
    model = ScriptedModel("hello")
    agent = Agent("ada", tools=[look], config=model)

    @agent.tool
    def take(what: str) -> str:
        return what

    @agent.tool(name="put_down", approval=True)
    def put(what: str) -> str:
        return what

    await agent.ask("hello")

    assert [spec.name for spec in model.requests[0].tools] == ["look", "take", "put_down"]
    assert (take("lamp"), agent.tools.get("put_down")) == ("lamp", put)
    assert repr(agent) == "Agent('ada', tools=['look', 'take', 'put_down'])"


async def test_a2_a_calls_tools_are_there_for_that_conversation_only() -> None:
    model = ScriptedModel("one", "two", "three")
    agent = Agent("ada", tools=[look], config=model)

    reply = await agent.ask("hello", tools=[keep])
    await reply.ask("and?")
    await agent.ask("hello")

    names = [[spec.name for spec in request.tools] for request in model.requests]
    assert names == [["look", "keep"], ["look", "keep"], ["look"]]


async def test_a_name_of_a_tool_is_given_once() -> None:
    agent = Agent("ada", tools=[look], config=ScriptedModel("hello"))

    with pytest.raises(BadTool):
        agent.tool(look)
    with pytest.raises(BadTool):
        await agent.ask("hello", tools=[look])


# --- A2: asking ---


async def test_a2_the_model_is_told_the_prompt_the_message_and_the_tools() -> None:
    model = ScriptedModel("hi")
    reply = await Agent("ada", "Be brief.", tools=[look], config=model).ask("hello")

    (request,) = model.requests
    (spec,) = request.tools
    assert (request.agent, request.instructions) == ("ada", "Be brief.")
    assert request.messages == (UserMessage(text="hello"),)
    assert (spec.name, spec.description) == ("look", "Look somewhere.")
    assert (reply.body, await reply.content(), repr(reply)) == ("hi", "hi", "Reply('hi')")


async def test_a2_tools_are_called_until_the_model_answers() -> None:
    model = ScriptedModel(call("look", where="here"), call("look", where="there"), "two lamps")
    reply = await Agent("ada", tools=[look], config=model).ask("how many?")

    assert reply.body == "two lamps"
    assert told(model) == ["a lamp is here", "a lamp is there"]
    assert reply.usage == Usage(requests=3)
    assert [one.tool for one in reply.outcome.outcomes] == ["look", "look"]


async def test_a2_reply_ask_goes_on_with_everything_that_was_said() -> None:
    model = ScriptedModel(call("look", where="here"), "one lamp", "yes, one")
    first = await Agent("ada", tools=[look], config=model).ask("how many?")
    second = await first.ask("sure?")

    assert second.body == "yes, one"
    assert model.requests[-1].messages == (*first.messages, UserMessage(text="sure?"))
    assert second.messages[: len(first.messages)] == first.messages


async def test_a2_a_reply_can_be_gone_on_from_twice() -> None:
    """A reply is a place in a conversation; nobody's next words are in another's."""
    model = ScriptedModel("one", "two", "three")
    first = await Agent("ada", config=model).ask("hello")
    await first.ask("left?")
    await first.ask("right?")

    texts = [one.text for one in model.requests[-1].messages]
    assert texts == ["hello", "one", "right?"]


async def test_a2_two_asks_know_nothing_of_each_other() -> None:
    model = ScriptedModel("one", "two")
    agent = Agent("ada", config=model)
    await asyncio.gather(agent.ask("hello"), agent.ask("goodbye"))

    assert [len(request.messages) for request in model.requests] == [1, 1]


async def test_a2_a_cap_ends_a_model_that_never_stops_calling_tools() -> None:
    def again(messages: tuple[Message, ...]) -> Any:
        return call("look", where="here")

    with pytest.raises(ToolRoundsExceeded) as stopped:
        await Agent("ada", tools=[look], config=ScriptedModel(again)).ask("go")
    assert stopped.value.rounds == 25
    with pytest.raises(ToolRoundsExceeded):
        await Agent("ada", tools=[look], config=ScriptedModel(again), max_tool_rounds=1).ask("go")


async def test_m2_a_script_that_has_ended_names_the_agent() -> None:
    agent = Agent("ada", config=ScriptedModel("only this"))
    await agent.ask("hello")

    with pytest.raises(ScriptExhausted) as ended:
        await agent.ask("hello")
    assert (ended.value.agent, ended.value.turn) == ("ada", 2)


# --- A2: structured output ---


async def test_a2_content_is_the_answer_as_the_type_asked_for() -> None:
    model = ScriptedModel('{"name": "Bern", "people": 134000}')
    reply = await Agent("ada", config=model, response_schema=City).ask("which?")

    assert await reply.content() == City(name="Bern", people=134000)
    assert model.requests[0].schema == City.model_json_schema()


async def test_a2_an_answer_of_the_wrong_form_is_repaired_once() -> None:
    model = ScriptedModel('{"name": "Bern"}', '{"name": "Bern", "people": 134000}')
    reply = await Agent("ada", config=model, response_schema=City).ask("which?")

    assert (await reply.content()).people == 134000
    assert "people: Field required" in model.requests[1].messages[-1].text
    assert reply.usage == Usage(requests=2)


async def test_a2_an_answer_of_the_wrong_form_twice_is_an_error() -> None:
    agent = Agent("ada", config=ScriptedModel("no JSON", "none again"), response_schema=City)

    with pytest.raises(BadOutput) as refused:
        await agent.ask("which?")
    assert refused.value.agent == "ada"


async def test_a2_the_calls_schema_goes_before_the_agents_and_is_kept() -> None:
    model = ScriptedModel("[1, 2]", "[3]", "4")
    agent = Agent("ada", config=model, response_schema=City)
    first = await agent.ask("which?", response_schema=list[int])
    second = await first.ask("and?")
    third = await second.ask("and?", response_schema=int)

    assert [await one.content() for one in (first, second, third)] == [[1, 2], [3], 4]


# --- V1, V4: variables ---


async def test_v1_the_calls_variables_win_over_the_agents() -> None:
    seen: list[dict[str, Any]] = []

    def note(context: Context) -> str:
        seen.append(dict(context.variables))
        return "noted"

    agent = Agent("ada", tools=[note], config=ScriptedModel(call("note"), "ok"), variables={"a": 1, "b": 1})
    await agent.ask("hello", variables={"b": 2, "c": 2})

    assert seen == [{"a": 1, "b": 2, "c": 2}]


async def test_v1_nobodys_dict_is_written_to_and_nested_values_are_not_shared() -> None:
    seen: list[list[int]] = []

    def write(context: Context) -> str:
        context.variables["new"] = 1
        for key in ("of_agent", "of_call"):
            context.variables[key].append(1)
        seen.append(context.variables["of_agent"])
        return "written"

    of_agent: dict[str, Any] = {"of_agent": []}
    of_call: dict[str, Any] = {"of_call": []}
    model = ScriptedModel(call("write"), "ok", call("write"), "ok")
    agent = Agent("ada", tools=[write], config=model, variables=of_agent)
    for _ in range(2):
        await agent.ask("hello", variables=of_call)

    assert (of_agent, of_call) == ({"of_agent": []}, {"of_call": []})
    assert seen == [[1], [1]]


async def test_v1_dependencies_are_the_callers_own_objects_and_its_dict_is_not() -> None:
    database = object()
    seen: list[object] = []

    def use(context: Context, base: Annotated[object, Inject()]) -> str:
        seen.append(base)
        context.dependencies["new"] = 1
        return "used"

    given: dict[str, Any] = {"base": database}
    agent = Agent("ada", tools=[use], config=ScriptedModel(call("use"), "ok"), dependencies={"base": None})
    await agent.ask("hello", dependencies=given)

    assert seen == [database]
    assert given == {"base": database}


async def test_v4_what_a_tool_writes_is_there_for_the_next_tool_and_for_reply_ask() -> None:
    def log_in(context: Context) -> str:
        context.variables["token"] = "abc-123"
        return "welcome"

    def fetch(token: Annotated[str | None, Variable(default=None)]) -> str:
        return "the data" if token == "abc-123" else "not logged in"

    model = ScriptedModel(call("log_in"), call("fetch"), "ok", call("fetch"), "ok", call("fetch"), "ok")
    agent = Agent("ada", tools=[log_in, fetch], config=model)
    reply = await agent.ask("hello")
    again = await reply.ask("again")

    assert told(model) == ["welcome", "the data", "the data"]
    assert again.variables == {"token": "abc-123"}
    assert "abc-123" not in f"{again.variables!r} {again!r}"
    await agent.ask("a stranger")
    assert told(model) == ["not logged in"]


# --- H1: a person is asked ---


async def sure(context: Context) -> str:
    return await context.input("sure?", timeout=5)


def a_sync_hook(prompt: str) -> str:
    return f"yes to {prompt}"


async def an_async_hook(prompt: str) -> str:
    await asyncio.sleep(0)
    return f"yes to {prompt}"


@pytest.mark.parametrize("hook", [a_sync_hook, an_async_hook])
async def test_h1_a_hook_is_asked_sync_or_async(hook: Any) -> None:
    model = ScriptedModel(call("sure"), "ok")
    await Agent("ada", tools=[sure], config=model, hitl_hook=hook).ask("go")

    assert told(model) == ["yes to sure?"]


async def test_h1_where_nobody_can_be_asked_the_developer_is_told() -> None:
    with pytest.raises(NobodyToAsk):
        await Agent("ada", tools=[sure], config=ScriptedModel(call("sure"))).ask("go")


async def test_h1_a_person_who_does_not_answer_in_time_is_told_to_the_model() -> None:
    async def never(prompt: str) -> str:
        await asyncio.Event().wait()
        return "unreachable"

    async def hurry(context: Context) -> str:
        return await context.input("sure?", timeout=0)

    model = ScriptedModel(call("hurry"), "ok")
    await Agent("ada", tools=[hurry], config=model, hitl_hook=never).ask("go")

    assert told(model) == ["TimeoutError: no person has answered within 0 s"]


# --- A2: streaming ---


async def test_a2_run_tells_what_happens_in_order_and_the_reply_last() -> None:
    model = ScriptedModel(ModelReply(text="let me see", calls=[call("look", where="here")]), "one lamp")
    agent = Agent("ada", tools=[look], config=model)

    events = [event async for event in agent.run("how many?")]

    reply = events.pop()
    assert isinstance(reply, Reply)
    assert reply.body == "one lamp"
    assert [one.text for one in events if isinstance(one, TextDelta)] == [
        "let",
        " me",
        " see",
        "one",
        " lamp",
    ]
    assert [type(one) for one in events] == [*[TextDelta] * 3, ToolStarted, ToolFinished, *[TextDelta] * 2]
    started, finished = events[3], events[4]
    assert isinstance(started, ToolStarted)
    assert isinstance(finished, ToolFinished)
    assert (started.call.tool, finished.answer.text) == ("look", "a lamp is here")


async def test_a2_run_raises_what_ask_would_raise_after_what_happened_before() -> None:
    events = Agent("ada", tools=[look], config=ScriptedModel(call("look", where="here"))).run("how many?")

    assert [type(await anext(events)) for _ in range(2)] == [ToolStarted, ToolFinished]
    with pytest.raises(ScriptExhausted):
        await anext(events)


async def test_a2_run_takes_what_ask_takes() -> None:
    agent = Agent("ada")
    events = [event async for event in agent.run("hi", config=ScriptedModel("7"), response_schema=int)]

    reply = events[-1]
    assert isinstance(reply, Reply)
    assert await reply.content() == 7


async def test_h1_a_plain_hook_that_waits_for_a_keyboard_holds_up_nobody() -> None:
    """It runs in a thread: here it waits for something that only the event loop can do."""
    released = threading.Event()

    def hook(prompt: str) -> str:
        return "yes" if released.wait(timeout=60) else "nobody came"

    async def ask(context: Context) -> str:
        return await context.input("sure?")

    agent = Agent("ada", config=ScriptedModel(call("ask"), "done"), tools=[ask], hitl_hook=hook)
    asking = asyncio.ensure_future(agent.ask("go"))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(released.set)
    reply = await asking

    assert [one.text for one in reply.messages if isinstance(one, ToolMessage)] == ["yes"]
