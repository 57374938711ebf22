"""V2-V5: where an injected parameter's value comes from."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest

from turnline.agent.context import Context
from turnline.agent.inject import Depends, Inject, Injected, Variable, Wanted
from turnline.agent.tool import Tool, tool
from turnline.client.injection import ChannelInject, ChannelStateInject
from turnline.core.envelope import JsonObject
from turnline.errors import MissingVariable

CANARY = "canary-51f0c2"


async def said(made: Tool[..., Any], context: Context | None = None, /, **sent: object) -> str:
    """What the model is told when it calls the tool with `sent`."""
    output = await made.call(sent, Context() if context is None else context)
    assert not output.failed, output.text
    return output.text


def given(**variables: Any) -> Context:
    return Context(variables=variables)


def names(made: Tool[..., Any]) -> list[str]:
    properties: JsonObject = made.schema["properties"]
    return list(properties)


@tool
def orders(user_id: str, api_key: Annotated[str, Variable()]) -> str:
    return f"orders of {user_id}, key {api_key}"


@tool
def renamed(user_id: str, key: Annotated[str, Variable("api_key")]) -> str:
    return f"orders of {user_id}, key {key}"


async def test_v2_a_variable_is_injected_by_the_parameters_name() -> None:
    assert await said(orders, given(api_key="k1"), user_id="ada") == "orders of ada, key k1"


async def test_v2_a_variable_is_injected_by_its_key() -> None:
    assert await said(renamed, given(api_key="k1", key="no"), user_id="ada") == "orders of ada, key k1"


async def test_v2_the_context_comes_under_any_name_in_any_place() -> None:
    @tool
    def first(ctx: Context, city: str) -> str:
        return f"{city} {ctx.variables['n']}"

    @tool
    async def between(city: str, whatever: Context, *, country: str) -> str:
        return f"{city} {country} {whatever.variables['n']}"

    @tool
    def last(city: str, c: Context | None = None) -> str:
        return f"{city} {c.variables['n'] if c else 'nothing'}"

    assert await said(first, given(n=1), city="Bern") == "Bern 1"
    assert await said(between, given(n=2), city="Bern", country="CH") == "Bern CH 2"
    assert await said(last, given(n=3), city="Bern") == "Bern 3"
    assert [names(first), names(between), names(last)] == [["city"], ["city", "country"], ["city"]]


async def test_v2_a_variable_that_is_none_is_there() -> None:
    @tool
    def show(user: Annotated[str | None, Variable(default="nobody")]) -> str:
        return repr(user)

    assert await said(show, given(user=None)) == "None"


async def test_v2_a_default_stands_in_and_stays_out_of_the_variables() -> None:
    @tool
    def show(theme: Annotated[str, Variable(default="dark")]) -> str:
        return theme

    context = Context()

    assert await said(show, context) == "dark"
    assert await said(show, given(theme="light")) == "light"
    assert context.variables == {}


async def test_v2_the_default_of_the_signature_is_a_default() -> None:
    @tool
    def show(theme: Annotated[str, Variable()] = "dark") -> str:
        return theme

    assert await said(show) == "dark"


async def test_v1_a_default_that_can_be_changed_is_each_calls_own() -> None:
    @tool
    def add(seen: Annotated[list[str], Variable(default=[])]) -> str:
        seen.append("x")
        return str(len(seen))

    assert [await said(add), await said(add)] == ["1", "1"]


async def test_v2_a_default_factory_is_called_once_per_conversation() -> None:
    made: list[dict[str, int]] = []

    def fresh() -> dict[str, int]:
        made.append({"n": 0})
        return made[-1]

    @tool
    def count(state: Annotated[dict[str, int], Variable(default_factory=fresh)]) -> int:
        state["n"] += 1
        return state["n"]

    context = Context()
    told = [await said(count, context.for_call(key)) for key in "123"]

    assert told == ["1", "2", "3"]
    assert context.variables["state"] is made[0]
    assert len(made) == 1
    assert await said(count) == "1"


async def test_v2_of_two_calls_at_once_one_makes_the_default() -> None:
    made = list[object]()

    def fresh() -> list[object]:
        made.append(object())
        return made

    @tool
    async def one(state: Annotated[list[object], Variable("s", default_factory=fresh)]) -> int:
        return len(state)

    context = Context()
    told = await asyncio.gather(*(said(one, context) for _ in range(5)))

    assert told == ["1"] * 5


async def test_v2_a_default_factory_does_not_replace_what_is_there() -> None:
    @tool
    def show(state: Annotated[list[int], Variable(default_factory=list)]) -> list[int]:
        return state

    assert await said(show, given(state=[7])) == "[7]"


@pytest.mark.parametrize("made", [orders, renamed])
def test_v3_an_injected_parameter_is_not_in_the_schema(made: Tool[..., Any]) -> None:
    assert names(made) == ["user_id"]
    assert made.schema["required"] == ["user_id"]
    assert "key" not in str(made.spec())


async def test_v3_what_the_model_supplies_for_an_injected_parameter_is_ignored() -> None:
    assert await said(orders, given(api_key="k1"), user_id="ada", api_key="evil") == "orders of ada, key k1"
    assert await said(renamed, given(api_key="k1"), user_id="ada", key="evil") == "orders of ada, key k1"


async def test_v3_it_is_ignored_too_where_the_variable_does_not_exist() -> None:
    @tool
    def show(theme: Annotated[str, Variable(default="dark")], channel: ChannelInject, ctx: Context) -> str:
        return f"{theme} {channel} {type(ctx).__name__}"

    with pytest.raises(MissingVariable):
        await orders.call({"user_id": "ada", "api_key": "evil"}, Context())
    assert await said(show, theme="evil", channel="evil", ctx={"variables": {}}) == "dark None Context"


async def test_v3_a_missing_variable_is_an_error_to_the_developer() -> None:
    with pytest.raises(MissingVariable, match=r"variables=\{'api_key': \.\.\.\}") as raised:
        await renamed.call({"user_id": "ada"}, given(other=CANARY))

    assert (raised.value.tool, raised.value.kind, raised.value.key) == ("renamed", "variable", "api_key")
    assert CANARY not in str(raised.value)


async def test_v4_what_a_tool_writes_is_there_for_the_next() -> None:
    @tool
    def sign_in(context: Context) -> str:
        context.variables["token"] = "t-1"
        return "signed in"

    @tool
    def fetch(token: Annotated[str | None, Variable(default=None)]) -> str:
        return f"with {token}"

    context = Context()
    told = [await said(made, context) for made in (fetch, sign_in, fetch)]

    assert told == ["with None", "signed in", "with t-1"]


def test_v4_a_marker_shows_no_default() -> None:
    assert repr(Variable("key", default=CANARY)) == "Variable('key', default=***)"
    assert repr(Inject(default_factory=lambda: CANARY)) == "Inject(default_factory=***)"


async def test_v5_inject_is_the_same_over_dependencies() -> None:
    @tool
    def query(
        db: Annotated[dict[str, str], Inject()],
        log: Annotated[list[str], Inject("logger", default_factory=list)],
        flavour: Annotated[str, Inject(default="plain")],
    ) -> str:
        log.append("asked")
        return f"{db['name']} {len(log)} {flavour}"

    context = Context(variables={"db": "not this one"}, dependencies={"db": {"name": "orders"}})

    assert [await said(query, context), await said(query, context)] == ["orders 1 plain", "orders 2 plain"]
    assert context.dependencies["logger"] == ["asked", "asked"]
    assert names(query) == []


async def test_v5_a_missing_dependency_is_an_error_to_the_developer() -> None:
    @tool
    def query(db: Annotated[object, Inject()]) -> str:
        return "never"

    with pytest.raises(MissingVariable, match=r"dependencies=\{'db'") as raised:
        await query.call({}, given(db=1))

    assert raised.value.kind == "dependency"


def greeting(name: Annotated[str, Variable()]) -> str:
    return f"hello {name}"


async def loud(text: Annotated[str, Depends(greeting)]) -> str:
    return text.upper()


async def test_v5_depends_gives_a_functions_result_sync_or_async_and_nested() -> None:
    @tool
    def greet(
        quiet: Annotated[str, Depends(greeting)], shout: Annotated[str, Depends(loud)], mark: str
    ) -> str:
        return f"{quiet} {shout}{mark}"

    assert (
        await said(greet, given(name="ada"), mark="!", quiet="evil", shout="evil") == "hello ada HELLO ADA!"
    )
    assert names(greet) == ["mark"]


async def test_v5_a_dependency_is_resolved_once_per_call() -> None:
    opened = list[str]()

    def connect(ctx: Context) -> str:
        opened.append(ctx.idempotency_key)
        return f"connection {len(opened)}"

    def users(connection: Annotated[str, Depends(connect)]) -> str:
        return f"users on {connection}"

    @tool
    async def count(one: Annotated[str, Depends(connect)], other: Annotated[str, Depends(users)]) -> str:
        return f"{one}, {other}"

    told = [await said(count, Context(idempotency_key=key)) for key in "ab"]

    assert opened == ["a", "b"]
    assert told == ["connection 1, users on connection 1", "connection 2, users on connection 2"]


async def test_v5_a_class_can_be_depended_on() -> None:
    class Client:
        def __init__(self, api_key: Annotated[str, Variable()], retries: int = 3) -> None:
            self.shown = f"{api_key} {retries}"

    def show(client: Annotated[Any, Depends(Client)]) -> str:
        return str(client.shown)

    assert await said(Tool(show), given(api_key="k1")) == "k1 3"


async def test_v3_a_missing_variable_of_a_dependency_is_an_error_to_the_developer() -> None:
    @tool
    def greet(text: Annotated[str, Depends(loud)]) -> str:
        return text

    with pytest.raises(MissingVariable) as raised:
        await greet.call({}, Context())

    assert (raised.value.tool, raised.value.key) == ("greet", "name")


async def test_v5_a_dependency_that_raises_fails_the_call_and_shows_no_value() -> None:
    def connect(password: Annotated[str, Variable(default=CANARY)]) -> str:
        raise ConnectionError(f"no entry with {password}")

    @tool
    def query(db: Annotated[str, Depends(connect)]) -> str:
        return db

    output = await query.call({}, Context())

    assert (output.failed, output.text) == (True, "ConnectionError: no entry with ***")


async def test_a_layer_above_adds_its_own_marker() -> None:
    class FromRequest(Injected):
        def resolve(self, wanted: Wanted, context: Context) -> object:
            return f"{wanted.tool}/{wanted.parameter}/{context.extras['request']}"

    marker = FromRequest()

    def show(path: Any) -> str:
        return str(path)

    show.__annotations__["path"] = Annotated[str, marker]

    assert await said(Tool(show), Context(extras={"request": "r1"}), path="evil") == "show/path/r1"


async def test_the_channel_of_a_turn_is_found_in_the_extras_and_is_none_outside_of_one() -> None:
    @tool
    def show(channel: ChannelInject, state: ChannelStateInject) -> str:
        return f"{channel} {state}"

    assert await said(show) == "None None"
    assert await said(show, Context(extras={"channel": "c1", "state": "s1"})) == "c1 s1"
    assert names(show) == []


def test_default_and_factory_together_are_refused() -> None:
    with pytest.raises(TypeError, match="give one of them"):
        Variable(default=1, default_factory=list)


def test_an_async_factory_is_refused() -> None:
    async def later() -> int:
        return 1

    with pytest.raises(TypeError, match="Use Depends"):
        Inject(default_factory=later)
