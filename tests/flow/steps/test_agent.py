"""`agent`: one round, and what becomes of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.journal import Entry
from turnline.agent.messages import ModelReply, ToolCall, UserMessage
from turnline.agent.round import ToolAnswer
from turnline.agent.tool import Tool, tool
from turnline.agent.tool_result import ToolResult
from turnline.core.envelope import JsonObject
from turnline.core.routing import Handoff
from turnline.errors import (
    AgentError,
    BadStepValue,
    ModelError,
    NobodyToAsk,
    NoModel,
    ParseFailed,
    TemplateFailed,
    UnknownName,
)
from turnline.flow.steps import agent
from turnline.flow.work import Services, StepResult, StepWork
from turnline.testing import ScriptedModel, call

from ..scenes import Notes, work_on

LEAD: JsonObject = {"name": "Jane", "company": "Acme"}


def services(
    model: Any = None, *, agents: Sequence[Agent] = (), tools: Sequence[Tool[..., Any]] = ()
) -> Services:
    return Services(
        model=model, agents={one.name: one for one in agents}, tools={one.name: one for one in tools}
    )


async def perform(work: StepWork[Any]) -> StepResult:
    """Perform a step that waits for nobody."""
    done = await agent.perform(work)
    assert isinstance(done, StepResult)
    return done


async def asked(
    model: ScriptedModel, *, public: JsonObject = LEAD, notes: Notes | None = None, **block: Any
) -> StepResult:
    """PerformStep the step `classify` with this block."""
    routes = block.pop("routes", {})
    tools = block.pop("functions", ())
    step = {"id": "classify", "agent": block, "routes": routes}
    return await perform(work_on(step, public=public, services=services(model, tools=tools), notes=notes))


def told(model: ScriptedModel) -> str:
    """The message that the model was asked first."""
    first = model.requests[0].messages[0]
    assert isinstance(first, UserMessage)
    return first.text


# --- what it is asked ---


async def test_f9_the_prompt_is_the_steps_template_over_the_public_context() -> None:
    model = ScriptedModel("hot")

    done = await asked(model, system="You rate leads of {{ company }}.", prompt="Customer: {{ name }}\n")

    assert told(model) == "Customer: Jane"
    assert model.requests[0].instructions == "You rate leads of Acme."
    assert model.requests[0].agent == "classify"
    assert done.updates == {"classify": "hot"}
    assert done.body == "hot"
    assert done.signal == "default"
    assert done.usage["requests"] == 1


async def test_f9_a_key_the_prompt_reads_and_nobody_set_is_an_error_before_the_model_is_asked() -> None:
    model = ScriptedModel("hot")

    with pytest.raises(TemplateFailed, match=r"agent\.prompt cannot be filled in: there is no 'phone'"):
        await asked(model, prompt="{{ phone }}")
    with pytest.raises(TemplateFailed, match=r"agent\.system"):
        await asked(model, prompt="x", system="{{ phone }}")
    assert model.requests == []


async def test_f9_what_the_context_holds_is_never_rendered_again() -> None:
    model = ScriptedModel("ok")
    public: JsonObject = {"name": "{{ company }}{% for %}", "company": "Acme"}

    await asked(model, public=public, prompt="{{ name }}", system="{{ name }}")

    assert told(model) == "{{ company }}{% for %}"
    assert model.requests[0].instructions == "{{ company }}{% for %}"


async def test_without_a_prompt_the_agent_is_told_the_public_context() -> None:
    model = ScriptedModel("ok")

    await asked(model, system="Sum it up.")

    assert told(model) == '{"name":"Jane","company":"Acme"}'


async def test_f2_private_keys_reach_neither_the_prompt_nor_the_agents_own_template() -> None:
    model = ScriptedModel("ok")
    known = Agent("classify", "About {{ name }}.", config=model, context_keys=["name", "_user_id"])
    work = work_on(
        {"agent": {"name": "classify"}},
        public=LEAD,
        private={"_user_id": "canary-1"},
        services=services(agents=[known]),
    )

    await perform(work)

    assert "canary" not in str(model.requests)
    assert "About Jane." in model.requests[0].instructions


# --- which agent ---


async def test_an_agent_of_the_project_is_named_and_the_steps_prompt_is_what_it_is_told() -> None:
    model = ScriptedModel("ok")
    known = Agent("rater", "You rate for {{ company }}.", config=model)
    work = work_on(
        {"agent": {"name": "rater", "prompt": "Rate {{ name }}."}},
        public=LEAD,
        services=services(agents=[known]),
    )

    await perform(work)

    assert told(model) == "Rate Jane."
    assert model.requests[0].instructions == "You rate for Acme."
    assert model.requests[0].agent == "rater"


async def test_an_agent_nobody_wrote_is_an_error_that_names_the_known_ones() -> None:
    known = Agent("rater", config=ScriptedModel("ok"))

    with pytest.raises(UnknownName, match=r"no agent is known as 'ratr'.*Did you mean 'rater'"):
        await perform(work_on({"agent": {"name": "ratr"}}, services=services(agents=[known])))


async def test_an_agent_of_the_project_keeps_its_own_prompt() -> None:
    known = Agent("rater", config=ScriptedModel("ok"))
    work = work_on({"agent": {"name": "rater", "system": "Be kind."}}, services=services(agents=[known]))

    with pytest.raises(BadStepValue, match=r"agent\.system is a text; expected none"):
        await perform(work)


async def test_a_step_without_a_block_is_the_projects_agent_of_its_name() -> None:
    mine, other = ScriptedModel("mine"), ScriptedModel("other")
    known = Agent("it", config=mine)

    done = await perform(work_on({"kind": "agent"}, public=LEAD, services=services(other, agents=[known])))

    assert done.updates == {"it": "mine"}
    assert told(mine) == '{"name":"Jane","company":"Acme"}'


async def test_a_step_without_a_block_and_without_such_an_agent_makes_one() -> None:
    model = ScriptedModel("made")

    done = await perform(work_on({"kind": "agent"}, public=LEAD, services=services(model)))

    assert done.updates == {"it": "made"}
    assert told(model) == '{"name":"Jane","company":"Acme"}'


async def test_a_block_without_a_name_makes_an_agent_even_where_one_has_the_steps_name() -> None:
    made = ScriptedModel("made")
    known = Agent("it", config=ScriptedModel("known"))
    work = work_on({"agent": {"prompt": "hello"}}, services=services(made, agents=[known]))

    assert (await perform(work)).updates == {"it": "made"}


async def test_an_agent_without_a_model_of_its_own_has_the_projects() -> None:
    model = ScriptedModel("ok")
    work = work_on({"agent": {"name": "rater"}}, services=services(model, agents=[Agent("rater")]))

    await perform(work)

    assert len(model.requests) == 1


async def test_the_steps_model_goes_before_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    other = ScriptedModel("ok")

    with pytest.raises(ModelError, match="openai:gpt-none"):
        await perform(
            work_on({"agent": {"model": "openai:gpt-none", "prompt": "x"}}, services=services(other))
        )
    assert other.requests == []


async def test_without_any_model_the_error_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNLINE_MODEL", raising=False)

    with pytest.raises(NoModel, match="agent 'it' has no model"):
        await perform(work_on({"agent": {"prompt": "x"}}))


# --- its answer ---


async def test_a_map_writes_what_it_names_and_the_model_is_told_what_to_answer() -> None:
    model = ScriptedModel('{"potential": "high", "score": 90, "why": "x"}')

    done = await asked(
        model, prompt="Classify.", output={"map": {"potential": "lead_potential", "score": "lead_score"}}
    )

    assert done.updates == {"lead_potential": "high", "lead_score": 90}
    assert (
        told(model)
        == "Classify.\n\nAnswer with one JSON object that has potential, score, and write nothing else."
    )


async def test_f5_an_answer_that_is_no_json_gets_one_chance_to_be_repaired() -> None:
    model = ScriptedModel("I think it is high.", '{"potential": "high"}')

    done = await asked(model, prompt="Classify.", output={"map": {"potential": "lead_potential"}})

    assert done.updates == {"lead_potential": "high"}
    assert "does not parse" in model.requests[1].messages[-1].text
    assert done.usage["requests"] == 2


async def test_f5_an_answer_that_stays_useless_is_a_parse_error() -> None:
    model = ScriptedModel("no", "no", "never asked for")

    with pytest.raises(ParseFailed, match="step 'classify' is not usable, even after it was asked for again"):
        await asked(model, prompt="Classify.", output={"format": "json"})
    assert len(model.requests) == 2


async def test_f5_an_answer_without_a_key_of_the_map_is_repaired_too() -> None:
    model = ScriptedModel('{"score": 1}', '{"potential": "low"}')

    done = await asked(model, prompt="Classify.", output={"map": {"potential": "p"}})

    assert done.updates == {"p": "low"}
    assert "expected one with 'potential'" in model.requests[1].messages[-1].text


async def test_a_schema_goes_to_the_model_and_is_what_its_answer_has_to_be() -> None:
    model = ScriptedModel('{"score": "many"}', '{"score": 90}')

    done = await asked(
        model, prompt="Rate.", output={"schema": {"score": {"type": "integer", "required": True}}}
    )

    assert done.updates == {"score": 90}
    assert told(model) == "Rate."
    assert model.requests[0].schema == {
        "type": "object",
        "properties": {"score": {"type": "integer"}},
        "required": ["score"],
        "additionalProperties": False,
    }
    assert "score: expected an integer, found text" in model.requests[1].messages[-1].text


class Rating(BaseModel):
    score: int


async def test_an_agents_own_form_holds_for_its_step() -> None:
    model = ScriptedModel('{"points": 1}', '{"score": 5}')
    known = Agent("rater", config=model, response_schema=Rating)
    work = work_on({"agent": {"name": "rater", "prompt": "Rate."}}, services=services(agents=[known]))

    done = await perform(work)

    assert done.updates == {"score": 5}
    assert model.requests[0].schema == Rating.model_json_schema()


async def test_f1_reserved_keys_of_a_reply_are_dropped_and_noted() -> None:
    notes = Notes()

    done = await asked(ScriptedModel('{"_db": 1, "score": 2, "_user_id": "root"}'), prompt="x", notes=notes)

    assert done.updates == {"score": 2}
    assert done.private == {}
    assert notes.dropped == [("model", ["_db", "_user_id"])]


async def test_f4_the_answer_can_be_the_signal() -> None:
    model = ScriptedModel("Perhaps", "Approve.")

    done = await asked(
        model,
        prompt="Ok?",
        output={"format": "signal"},
        routes={"approve": "late", "reject": "END", "error": "late"},
    )

    assert done.signal == "approve"
    assert done.updates == {}
    assert told(model) == "Ok?\n\nAnswer with one of these words and nothing else: approve, reject."
    assert "expected one of approve, reject" in model.requests[1].messages[-1].text


async def test_f4_with_a_default_route_any_word_is_a_signal() -> None:
    model = ScriptedModel("perhaps")

    done = await asked(
        model, prompt="Ok?", output={"format": "signal"}, routes={"yes": "END", "default": "late"}
    )

    assert done.signal == "perhaps"
    assert told(model) == "Ok?"


async def test_f4_a_key_of_the_answer_can_be_the_signal() -> None:
    done = await asked(
        ScriptedModel('{"verdict": "reject"}'), prompt="Ok?", output={"signal_from": "verdict"}
    )

    assert done.signal == "reject"
    assert done.updates == {"verdict": "reject"}


# --- its tools ---


@tool
def look_up(name: str) -> ToolResult:
    """Look somebody up."""
    return ToolResult(f"{name} is known", context={"known": True, "score": 1})


@tool
def give_away() -> Handoff:
    """Hand off."""
    return Handoff("somebody")


@tool(approval=True)
def pay() -> str:
    """Pay."""
    raise AssertionError("nobody approved")


@tool
async def ask_person(context: Context) -> str:
    """Ask."""
    return await context.input("Well?")


async def test_what_tools_set_becomes_updates_and_the_answer_goes_over_it() -> None:
    notes = Notes()
    model = ScriptedModel(call("look_up", name="Jane"), '{"score": 9}')

    done = await asked(model, prompt="x", tools=["look_up"], functions=[look_up], notes=notes)

    assert done.updates == {"known": True, "score": 9}
    assert [type(entry) for entry in notes.entries] == [ModelReply, ToolAnswer]
    assert [spec.name for spec in model.requests[0].tools] == ["look_up"]


async def test_t3_what_a_killed_attempt_recorded_is_not_done_again_and_its_context_counts() -> None:
    recorded: list[Entry] = [
        ModelReply(calls=[ToolCall(call_id="c1", tool="look_up", arguments={"name": "Jane"})]),
        ToolAnswer(call_id="c1", tool="look_up", text="known", context={"known": True}),
    ]
    notes, model = Notes(), ScriptedModel("done")
    step = {"agent": {"prompt": "x", "tools": ["look_up"]}}

    done = await perform(
        work_on(step, services=services(model, tools=[look_up]), recorded=recorded, notes=notes)
    )

    assert done.updates == {"known": True, "it": "done"}
    assert len(model.requests) == 1
    assert notes.entries == []


async def test_t3_an_answer_that_was_asked_for_again_is_not_asked_for_a_third_time() -> None:
    recorded = [ModelReply(text="no json")]
    model = ScriptedModel("still none", "never asked for")
    step = {"agent": {"prompt": "x", "output": {"format": "json"}}}

    with pytest.raises(ParseFailed):
        await perform(work_on(step, services=services(model), recorded=recorded))
    assert len(model.requests) == 1


async def test_a_tools_idempotency_key_is_the_turns() -> None:
    keys: list[str] = []

    @tool
    def note(context: Context) -> str:
        keys.append(context.idempotency_key)
        return "noted"

    await asked(ScriptedModel(call("note"), "ok"), prompt="x", tools=["note"], functions=[note])

    assert keys == ["run-1:3:call-1:note"]


async def test_a_tool_nobody_wrote_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="no tool is known as 'look'"):
        await asked(ScriptedModel("ok"), prompt="x", tools=["look"], functions=[look_up])


async def test_a_tool_the_named_agent_has_already_is_given_once() -> None:
    model = ScriptedModel("ok")
    known = Agent("rater", config=model, tools=[look_up])
    step = {"agent": {"name": "rater", "tools": ["look_up", "give_away"]}}

    await perform(work_on(step, services=services(agents=[known], tools=[look_up, give_away])))

    assert [spec.name for spec in model.requests[0].tools] == ["look_up", "give_away"]


async def test_a_tool_that_hands_off_is_refused_and_the_model_is_told() -> None:
    model = ScriptedModel(call("give_away"), "then I answer")

    done = await asked(model, prompt="x", tools=["give_away"], functions=[give_away])

    assert done.updates == {"classify": "then I answer"}
    assert "nobody else takes part" in model.requests[1].messages[-1].text


@pytest.mark.parametrize("function", [pay, ask_person])
async def test_a_tool_that_asks_a_person_is_an_error(function: Tool[..., Any]) -> None:
    with pytest.raises(NobodyToAsk):
        await asked(
            ScriptedModel(call(function.name), "never"),
            prompt="x",
            tools=[function.name],
            functions=[function],
        )


# --- what goes wrong ---


async def test_f5_a_model_that_fails_is_an_error_of_the_step() -> None:
    failed = ModelError("m", because="no credit", transient=False)

    with pytest.raises(ModelError, match="no credit"):
        await asked(ScriptedModel(failed), prompt="x")


async def test_f5_a_timeout_stays_one() -> None:
    with pytest.raises(TimeoutError):
        await asked(ScriptedModel(TimeoutError("late")), prompt="x")


async def test_f5_what_else_goes_wrong_is_told_without_the_agents_variables() -> None:
    def prompt() -> str:
        raise RuntimeError("the key canary-0123456789 was refused")

    known = Agent("rater", prompt, config=ScriptedModel("ok"), variables={"key": "canary-0123456789"})

    with pytest.raises(AgentError, match=r"RuntimeError: the key \*\*\* was refused"):
        await perform(work_on({"agent": {"name": "rater"}}, services=services(agents=[known])))
