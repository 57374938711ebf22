"""Ten mistakes that everybody makes once: each error says what was found, what was expected, what to do."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import httpx2
import pytest

from tests.cli.projects import call as command, project
from turnline import Agent, Variable, run, tool
from turnline.core.envelope import Envelope
from turnline.core.state import State
from turnline.errors import (
    BadTool,
    LogUnavailable,
    MissingVariable,
    ModelError,
    NameTaken,
    NoModel,
    OutOfTurn,
    UnknownName,
    UnknownParticipant,
)
from turnline.flow.project import load_project
from turnline.knowledge import MemoryKnowledgeStore
from turnline.log.sqlite import SqliteLog
from turnline.network import (
    AgentTarget,
    FromSpeaker,
    Hub,
    HubClient,
    LocalLink,
    Passport,
    TerminateTarget,
    Transition,
    TransitionCondition,
    TransitionGraph,
    sequence,
    serve_ws,
)
from turnline.server.access import development
from turnline.server.app import create_app
from turnline.server.auth.api_keys import new_api_key
from turnline.server.runtime import runtime_of
from turnline.testing import ScriptedModel, call

END = TerminateTarget("done")
GREET = """
kind: Workflow
metadata: {name: greet}
spec:
  trigger: {path: /api/greet, input: {email: {type: email, required: true}}}
  steps:
    - {id: greet, runner: greet}
    - {id: ask, kind: human, human: {title: "Hello TITLE", form: {ok: boolean}}}
"""
NODES = """
from turnline import node

@node("greet")
def greet(ctx):
    ctx["said"] = f"hello {ctx['KEY']}"
    return ctx
"""


def greeting(folder: Path, *, key: str = "email", title: str = "{{ email }}", runner: str = "runner") -> str:
    """A project that greets; returns the path of its flow."""
    text = GREET.replace("TITLE", title).replace("runner:", f"{runner}:")
    project(folder, workflows__greet_yaml=text, nodes__greet_py=NODES.replace("KEY", key))
    return str(folder / "workflows" / "greet.yaml")


def told(error: pytest.ExceptionInfo[BaseException]) -> str:
    return str(error.value)


@asynccontextmanager
async def clients() -> AsyncIterator[HubClient]:
    hub = await Hub.open(MemoryKnowledgeStore())
    client = HubClient(LocalLink(hub), hub=hub)
    try:
        yield client
    finally:
        await client.close()
        await hub.close()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        yield somebody.getsockname()[1]


# 1. A typo in a participant's name.


@pytest.mark.parametrize(
    "graph",
    [
        sequence(["writter"]),
        TransitionGraph("user", [Transition(FromSpeaker("user"), AgentTarget("writter"))], END),
        TransitionGraph("user", [Transition(FromSpeaker("writter"), END)], END),
    ],
    ids=["initial speaker", "target", "condition"],
)
async def test_1_a_typo_in_a_participants_name(graph: TransitionGraph) -> None:
    writer = Agent("writer", config=ScriptedModel("never said"))

    with pytest.raises(UnknownParticipant) as error:
        await run(graph, agents=[writer], message="go")

    assert told(error) == (
        "no participant is known as 'writter'; known: user, writer. Did you mean 'writer'? "
        "Register it first, or use one of these."
    )


async def test_1_a_typo_in_the_name_of_whom_a_channel_is_opened_with() -> None:
    async with clients() as client:
        user = await client.register_human(Passport(name="user", kind="human"))
        await client.register(passport=Passport(name="writer"))
        with pytest.raises(UnknownParticipant, match="'writter'; known: user, writer"):
            await user.open("consulting", "writter", message="go")


# 2. A typo in a YAML key.


def test_2_a_typo_in_a_yaml_key(tmp_path: Path) -> None:
    flow = greeting(tmp_path, runner="runer")

    done = command("check", flow)

    assert done.code == 1
    assert "greet.yaml:7:19: TL011 no key 'runer' is known here" in done.out
    assert "found: runer" in done.out
    assert "do: did you mean 'runner'?" in done.out


# 3. A mistake in a tool's argument type.


class Invoice:
    """No JSON has it."""


def test_3_an_argument_that_no_model_can_send_is_told_when_the_tool_is_made() -> None:
    def refund(invoice: Invoice) -> str:
        return "paid"

    with pytest.raises(BadTool) as error:
        tool(refund)

    assert told(error) == (
        "'refund' cannot be a tool: the type of its parameter 'invoice' has no JSON form, so no model can "
        "send it; mark it with Inject(), Variable() or Depends(...) if it is not the model's."
    )


async def test_3_an_argument_of_the_wrong_type_is_told_to_the_model() -> None:
    @tool
    def refund(amount: float) -> str:
        """Pay an amount back."""
        return "paid"

    model = ScriptedModel(call("refund", amount="lots"), "Sorry.")
    await Agent("billing", config=model, tools=[refund]).ask("pay")

    assert cast("Any", model.requests[-1].messages[-1]).text == (
        "wrong arguments for 'refund': amount is 'lots', expected a valid number, unable to parse string as "
        "a number. Call it again."
    )


# 4. A missing key.


def test_4_an_input_that_lacks_what_is_required(tmp_path: Path) -> None:
    done = command("run", greeting(tmp_path), "-i", "emial=ann@example.com")

    assert done.code == 1
    expected = (
        "email: it is missing; expected an e-mail address; 'emial' is no field, did you mean 'email' by it?"
    )
    assert done.err == f"failed: invalid_input: {expected}\n"


def test_4_a_node_that_reads_what_is_not_in_the_context(tmp_path: Path) -> None:
    done = command("run", greeting(tmp_path, key="emial"), "-i", "email=ann@example.com")

    assert done.code == 1
    assert done.err == (
        "failed at step greet: error: ctx has no 'emial'; it has: email. Did you mean 'email'? Take it in "
        "with `trigger.input`, write it in an earlier step, or read it with ctx.get('emial').\n"
    )


def test_4_a_template_that_reads_what_is_not_in_the_context(tmp_path: Path) -> None:
    done = command("run", greeting(tmp_path, title="{{ emial }}"), "-i", "email=ann@example.com")

    assert done.code == 1
    assert done.err == (
        "failed at step ask: error: human.title cannot be filled in: there is no 'emial'. "
        "Did you mean 'email'? Or write default(emial, ...) if it may be absent.\n"
    )


async def test_4_a_variable_that_nobody_gave() -> None:
    @tool
    def refund(account: Annotated[str, Variable()]) -> str:
        """Pay back."""
        return account

    with pytest.raises(MissingVariable) as error:
        await Agent("billing", config=ScriptedModel(call("refund"), "Done."), tools=[refund]).ask("pay")

    assert told(error) == (
        "tool 'refund' asks for the variable 'account', which nobody gave; pass variables={'account': ...} "
        "to the agent or to ask(), or give it a default."
    )


# 5. A missing API key, or no model at all.


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-6", "ANTHROPIC_API_KEY"),
        ("google:gemini-2.5-flash", "GOOGLE_API_KEY"),
    ],
)
async def test_5_a_missing_api_key(model: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "GEMINI_API_KEY", variable):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ModelError) as error:
        await Agent("writer", config=model).ask("go")

    assert told(error).startswith(f"model {model!r} failed: ")
    assert variable in told(error)
    assert not error.value.transient


async def test_5_no_model_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNLINE_MODEL", raising=False)

    with pytest.raises(NoModel, match=r"'writer' has no model. Give it one.* or set TURNLINE_MODEL"):
        await Agent("writer").ask("go")


async def test_5_a_typo_in_the_providers_name() -> None:
    with pytest.raises(ModelError, match=r"Did you mean 'openai:gpt-5-mini'\?$"):
        await Agent("writer", config="opnai:gpt-5-mini").ask("go")


# 6. The port is taken.


def test_6_the_port_is_taken(tmp_path: Path, taken_port: int) -> None:
    greeting(tmp_path)

    with pytest.raises(NameTaken) as error:
        command("serve", str(tmp_path), "--dev", "--port", str(taken_port))

    assert told(error) == (
        f"the address '127.0.0.1:{taken_port}' is taken. "
        "Choose another with --port, or stop whoever listens there."
    )


async def test_6_the_port_of_a_hub_is_taken(taken_port: int) -> None:
    async with clients() as client:
        assert client.hub is not None
        with pytest.raises(NameTaken) as error:
            async with serve_ws(client.hub, port=taken_port):
                pass

    assert told(error) == (
        f"the address '127.0.0.1:{taken_port}' is taken. Choose another port, or stop whoever listens there."
    )


# 7. The log's file is locked.


async def test_7_the_logs_file_is_locked(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db", busy_timeout_seconds=0.05)
    hub = await Hub.open(log)
    client = HubClient(LocalLink(hub), hub=hub)
    with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogUnavailable) as error:
            await client.register(passport=Passport(name="writer"))
    await client.close()
    await hub.close()
    await log.close()

    assert told(error) == (
        f"the log at sqlite:///{tmp_path}/log.db cannot be used: database is locked (SQLITE_BUSY); another "
        "program keeps it to itself, where it should hold it for moments only. End its transaction, or the "
        "program."
    )


# 8. A wrong token.


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, "no token was sent"),
        ({"Authorization": "token-of-mine"}, "the Authorization header is not 'Bearer TOKEN'"),
        (
            {"Authorization": "Bearer EpsBCjEKBGxlYWQ"},
            "the token is damaged, or another key has signed it; make one with `turnline token mint`, "
            "or take the key that `turnline serve --dev` has printed",
        ),
    ],
)
async def test_8_a_wrong_token(headers: dict[str, str], found: str, tmp_path: Path) -> None:
    greeting(tmp_path)
    runtime = runtime_of(load_project(tmp_path), log_address="memory:", grace_seconds=0)
    signing = {"TURNLINE_AUTH_KEY": "11" * 32}
    app = create_app(runtime, authenticator=development(new_api_key(), tmp_path, signing))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client,
    ):
        answer = await client.post("/api/greet", json={"email": "ann@example.com"}, headers=headers)

    assert answer.status_code == 401
    expected = f"not authenticated: {found}. Send 'Authorization: Bearer TOKEN'."
    assert json.loads(answer.text)["error"]["message"] == expected


# 9. A condition that is not registered.


@dataclass(frozen=True)
class IsVip(TransitionCondition):
    """Nobody registers it."""

    name: ClassVar[str] = "is_vip"

    def evaluate(self, state: State, envelope: Envelope) -> bool:
        return True


def test_9_a_condition_that_is_not_registered() -> None:
    graph = TransitionGraph("user", [Transition(IsVip(), AgentTarget("writer"))], END)

    with pytest.raises(UnknownName) as error:
        graph.to_dict()

    assert told(error).startswith("no condition is known as 'IsVip'; known: all_of, always, ")
    assert told(error).endswith("Call register_condition(...) before the graph is used.")


def test_9_a_graph_that_names_a_condition_that_is_not_registered_here() -> None:
    data = TransitionGraph("user", [Transition(FromSpeaker("user"), END)], END).to_dict()
    data["transitions"][0]["when"]["name"] = "from_speakr"

    with pytest.raises(UnknownName, match=r"'from_speakr'; known: .* Did you mean 'from_speaker'"):
        TransitionGraph.loads(data)


# 10. Somebody speaks out of turn.


async def test_10_somebody_speaks_out_of_turn() -> None:
    async with clients() as client:
        user = await client.register_human(Passport(name="user", kind="human"))
        first = await client.register(passport=Passport(name="writer"))
        second = await client.register(passport=Passport(name="editor"))
        knobs = {"graph": sequence(["user", "writer", "editor"]).to_dict()}
        channel = await user.open("workflow", ["writer", "editor"], knobs, message="go", channel_id="story")
        with pytest.raises(OutOfTurn) as error:
            await second.channel(channel.channel_id).send("Me first!")

    assert told(error) == (
        f"{second.agent_id!r} spoke on channel 'story', but the floor belongs to {first.agent_id!r}. "
        "Wait for the turn, or send with interject=True, which does not move the floor."
    )
