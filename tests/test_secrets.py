"""V3, V4: what is given to tools reaches nobody else: no model, no log, no error, no line of logging.

Every canary begins alike, so that one search finds them all. The tools use them,
fail with them and show them as clumsily as tools do.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from tests.client.stage import begun, played, stage
from tests.hub.scenes import House
from turnline import Agent, Context, Depends, Inject, Variable, tool
from turnline.config import OpenAIConfig
from turnline.core.graph import sequence
from turnline.errors import TurnlineError
from turnline.log.sqlite import SqliteLog
from turnline.testing import ModelServer, ScriptedModel, call

CANARY = "canary-5f0c2e"
VARIABLES: dict[str, Any] = {"api_key": f"{CANARY}-key", "nested": {"list": [f"{CANARY}-nested"]}}
SEQUENCE = sequence(["user", "ada", "ada"])


class Base:
    """A dependency that shows its password."""

    def __init__(self) -> None:
        self.password = f"{CANARY}-password"

    def __repr__(self) -> str:
        return f"Base({self.password})"


DEPENDENCIES: dict[str, Any] = {"base": Base(), "dsn": f"{CANARY}-dsn"}


def connected(dsn: Annotated[str, Inject()]) -> str:
    return f"{dsn}/connected"


def made_default() -> str:
    return f"{CANARY}-factory"


@tool
def use(
    user_id: str,
    *,
    api_key: Annotated[str, Variable()],
    default: Annotated[str, Variable(default=f"{CANARY}-default")],
    factory: Annotated[str, Variable(default_factory=made_default)],
    base: Annotated[Base, Inject()],
    connection: Annotated[str, Depends(connected)],
    context: Context,
    signature: Annotated[str, Variable()] = f"{CANARY}-signature",
) -> str:
    """Use everything that is injected."""
    given = (api_key, default, factory, base.password, connection, signature)
    assert all(one.startswith(CANARY) for one in given)
    context.variables["token"] = f"{CANARY}-token"
    return f"used for {user_id}"


@tool
def clumsy(context: Context, default: Annotated[str, Variable(default=f"{CANARY}-default")]) -> str:
    raise LookupError(f"no {context.variables} at {context.dependencies['dsn']} with {default} in {context}")


@tool
def clumsier(nested: Annotated[dict[str, list[str]], Variable()], dsn: Annotated[str, Inject()]) -> str:
    raise ValueError(nested, [dsn], nested["list"][0])


@tool
def chained(api_key: Annotated[str, Variable()]) -> str:
    try:
        return str(int(api_key))
    except ValueError as error:  # Its message has the key in it.
        raise RuntimeError("no luck") from error


TOOLS = [use, clumsy, clumsier, chained]
CALLS = [call("use", user_id="u1"), call("clumsy"), call("clumsier"), call("chained")]


def ada(config: Any, **given: Any) -> Agent:
    given = {"variables": VARIABLES, "dependencies": DEPENDENCIES, "tools": TOOLS, **given}
    return Agent("ada", "Be careful.", config=config, **given)


def sent(model: ScriptedModel) -> str:
    """Everything the model was told."""
    return str(msgspec.to_builtins(model.requests))


class Everywhere:
    """A house on a file, and all that anybody could read of it."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.folder = folder
        self._caplog = caplog
        caplog.set_level(logging.DEBUG)

    @asynccontextmanager
    async def stage(self, *agents: Agent) -> AsyncIterator[House]:
        async with stage(*agents, log=SqliteLog(self.folder / "log.db", durability="process")) as home:
            yield home
            assert CANARY.encode() not in self._bytes()  # As a thief of the open file would find it.

    def said(self) -> str:
        """The bytes of every file, and every line of logging with its traceback."""
        formatter = logging.Formatter()
        return repr(self._bytes()) + "".join(formatter.format(record) for record in self._caplog.records)

    def _bytes(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.folder.iterdir())


@pytest.fixture
def everywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Everywhere:
    return Everywhere(tmp_path, caplog)


async def test_v4_the_canaries_are_found_where_they_are_written(everywhere: Everywhere) -> None:
    """Else the tests below would prove nothing."""
    async with everywhere.stage(ada(ScriptedModel("hello", "hello"))) as home:
        await played(home, SEQUENCE, knobs={"context_vars": {"harmless": "harmless-5f0c2e"}})

    assert "harmless-5f0c2e" in everywhere.said()


async def test_v4_nothing_of_it_is_on_the_log_or_told_to_the_model(everywhere: Everywhere) -> None:
    model = ScriptedModel(CALLS, *CALLS, "one", call("use", user_id="u2"), "two")
    async with everywhere.stage(ada(model)) as home:
        channel = await played(home, SEQUENCE)
        assert (await channel.result()).reason == "sequence_complete"

    assert "used for u2" in sent(model)
    assert CANARY not in sent(model)
    assert CANARY not in everywhere.said()


async def test_v4_asking_an_agent_tells_its_model_nothing_of_it() -> None:
    model = ScriptedModel(CALLS, "one", *CALLS, "two")
    agent = ada(model, variables={}, dependencies={})
    reply = await agent.ask("go", variables=VARIABLES, dependencies=DEPENDENCIES)
    again = await reply.ask("again")

    assert sent(model).count("used for u1") >= 2
    assert CANARY not in sent(model)
    assert CANARY not in f"{agent!r} {reply!r} {again.variables!r} {again.outcome!r} {again.messages!r}"


@pytest.mark.parametrize("streams", [False, True])
async def test_v4_nothing_of_it_goes_over_the_wire(streams: bool) -> None:
    with ModelServer(CALLS, "one") as server:
        agent = ada(OpenAIConfig("any", api_key="none", base_url=server.url))
        if streams:
            events = [repr(event) async for event in agent.run("go")]
        else:
            events = [repr(await agent.ask("go"))]

    received = json.dumps([[one.path, one.headers, one.json] for one in server.requests])
    assert "used for u1" in received
    assert CANARY not in received
    assert CANARY not in "".join(events)


# --- errors ---


def prompt_that_fails(api_key: Annotated[str, Variable()]) -> str:
    raise LookupError(f"nobody has the key {api_key}")


def hook_that_fails(prompt: str) -> str:
    raise ConnectionError(f"no terminal at {CANARY}-key")


@tool
def lacks(missing: Annotated[str, Variable()], api_key: Annotated[str, Variable()]) -> str:
    return "unreachable"


@tool(approval=True)
def pays() -> str:
    return "unreachable"


class Clumsy(ScriptedModel):
    """A model of the user's own."""

    async def reply(self, request: Any, on_text: Any = None) -> Any:
        raise ConnectionError(f"401 for {CANARY}-key")


FAILING: dict[str, tuple[str, Callable[[], Agent]]] = {
    "a variable": ("MissingVariable", lambda: ada(ScriptedModel(call("lacks")), tools=[lacks])),
    "a script": ("ScriptExhausted", lambda: ada(ScriptedModel(call("use", user_id="u1")))),
    "an output": ("BadOutput", lambda: ada(ScriptedModel("x", "y"), response_schema=int)),
    "a hook": (
        "AgentError",
        lambda: ada(ScriptedModel(call("pays")), tools=[pays], hitl_hook=hook_that_fails),
    ),
    "a prompt": (
        "AgentError",
        lambda: Agent("ada", prompt_that_fails, config=ScriptedModel("x"), variables=VARIABLES),
    ),
    "a model": ("AgentError", lambda: ada(Clumsy("x"))),
}
"""What fails -> the error's name on the log, and an agent that fails so."""


@pytest.mark.parametrize("what", FAILING)
async def test_v4_a_turn_that_fails_says_nothing_of_it(what: str, everywhere: Everywhere) -> None:
    kind, agent = FAILING[what]
    async with everywhere.stage(agent()) as home:
        channel = await played(home, SEQUENCE)
        (failed,) = [one for one in await home.wal(channel) if one.event_type == "turn.failed"]
        assert failed.event_data["error"]["type"] == kind

    assert CANARY not in everywhere.said()


@pytest.mark.parametrize("what", ["a variable", "a script", "an output"])
async def test_v4_no_error_of_ours_says_anything_of_it(what: str) -> None:
    kind, agent = FAILING[what]
    with pytest.raises(TurnlineError) as raised:
        await agent().ask("go")

    assert type(raised.value).__name__ == kind
    assert CANARY not in f"{raised.value} {raised.value!r} {vars(raised.value)}"


# --- V3: injected is injected ---


@pytest.mark.parametrize(
    "name", ["api_key", "default", "factory", "base", "connection", "context", "signature"]
)
async def test_v3_a_model_that_sends_an_injected_argument_does_not_get_it_through(name: str) -> None:
    model = ScriptedModel(call("use", user_id="u1", **{name: "forged"}), "ok")
    await ada(model).ask("go")

    assert "used for u1" in sent(model)
    assert list(model.requests[0].tools[0].schema["properties"]) == ["user_id"]


async def test_v3_a_missing_variable_is_not_the_models_to_fill(everywhere: Everywhere) -> None:
    model = ScriptedModel(call("lacks", missing="forged"), "ok")
    async with everywhere.stage(ada(model, tools=[lacks])) as home:
        channel = await begun(home, SEQUENCE)
        assert (await channel.result()).reason == "turn_failed"
