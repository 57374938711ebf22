"""`agent`: one round of an agent, and what becomes of its answer.

The agent is the project's that `agent.name` names, or is made of what the block says; a
step without a block is the project's agent of the step's name, if there is one. It is
told the step's prompt, or else the public context, and what form its answer has to have. It is shown the
files of the run's input that the prompt names; without a prompt, all that the context refers to (Y6).

Rule 1: the model sees public context only, and what it answers is from outside (F1).

Rule 2: an answer that cannot be used gets one chance to be repaired, in the same round,
so nothing that is recorded of a killed attempt is paid twice (T3). Then it is `ParseFailed`.

Rule 3: the floor is the step's. A tool that hands it off is refused.

Rule 4: a tool that asks a person asks the group of `agent.ask`; without it, `NobodyToAsk` is raised. The step
pauses until there is an answer, and resumes with what it has recorded (N1, N7).

Rule 5: with `agent.recent_n` the model is shown the last answers of the agent steps of this run before its
prompt: its own as its replies, the others with the names of their steps. Nothing else that steps wrote is
shown. An agent with `summarise` gets what came before them as a summary, as on a channel (N7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, cast

import msgspec

from turnline.agent.agent import Agent, Config, Surroundings
from turnline.agent.messages import Usage, UserMessage
from turnline.agent.output import Output as Form
from turnline.agent.tool import Tool
from turnline.agent.tool_result import ToolOutput, failure
from turnline.core.envelope import JsonObject
from turnline.core.views import Message
from turnline.errors import AgentError, BadOutput, BadStepValue, ParseFailed, TurnlineError, UnknownName
from turnline.flow.compile import ERRORS
from turnline.flow.definition.steps import AgentBlock, AgentStep
from turnline.flow.fields import json_schema
from turnline.flow.output import Written, read, wants_json, written
from turnline.flow.values import names_in, render
from turnline.flow.work import DEFAULT, StepResult, StepWork
from turnline.turns.files import name_files
from turnline.turns.views import spoken

_NO_BLOCK: Final = AgentBlock()


async def perform(work: StepWork[AgentStep]) -> StepResult:
    """Do the round, and return what becomes of the answer. Raises `CallPaused` for what it waits for."""
    agent, people = _agent(work), work.people
    talk = agent.conversation(config=_config(work, agent), tools=_tools(work, agent), key=work.key)
    wanted = _Wanted(work.step, talk.output)
    shown, spent = await _show_answers(work, agent)
    talk = replace(
        talk,
        messages=(*spoken(shown), await _message(work, wanted)),
        # A round asks its output for the schema, and for what is wrong with an answer: this one knows both.
        output=cast("Form[Any]", wanted),
    )
    around = Surroundings(
        journal=work.journal,
        recorded=work.recorded,
        context_vars=work.public,
        once=work.journal.once_for,
        ask_person=None if people is None else people.ask,
        require_answer=None if people is None else people.require,
        sleep=work.sleep,
        on_progress=work.words,
        review=_review,
    )
    try:
        outcome = await agent.perform(talk, around)
    except BadOutput as bad:
        found = f"not usable, even after it was asked for again ({bad.because.rstrip('.')})"
        raise ParseFailed(work.step.id, found=found, expected="the form the step asks for") from None
    except (TurnlineError, TimeoutError):
        raise
    except Exception as error:  # A prompt's, a hook's or a model's of the user's own. It goes on the log.
        raise AgentError(failure(error, talk.variables, talk.dependencies).text) from None
    answer = wanted.written(outcome.text)
    if answer.dropped:
        work.dropped("model", answer.dropped)
    return StepResult(
        signal=answer.signal,
        updates={**outcome.context, **answer.updates},
        body=outcome.text,
        usage=msgspec.to_builtins(outcome.usage + spent),
        files=outcome.files,
    )


async def _show_answers(work: StepWork[AgentStep], agent: Agent) -> tuple[list[Message], Usage]:
    recent_n = work.step.agent.recent_n
    if work.show_answers is None or not recent_n:
        return [], Usage()
    return await work.show_answers(agent, recent_n, _config(work, agent))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the answer has to be: what the step says, and the agent's own form, if it has one."""

    step: AgentStep
    form: Form[Any] | None

    @property
    def schema(self) -> JsonObject | None:
        fields = self.step.agent.output.schema_
        if fields is not None:
            return json_schema(fields, extra=False)
        return None if self.form is None else self.form.schema

    def written(self, text: str) -> Written:
        output, step = self.step.agent.output, self.step.id
        return written(output, read(output, text, step=step), step=step, signals=self._signals())

    def wrong(self, text: str) -> str:
        """Say in one line what is wrong with the answer; empty if nothing is."""
        try:
            self.written(text)
        except ParseFailed as failed:
            return f"it is {failed.found}; expected {failed.expected}."
        return "" if self.form is None else self.form.wrong(text)

    def told(self) -> str:
        """What the model is told of it, where no schema tells it."""
        output = self.step.agent.output
        if output.format == "signal" and self._signals():
            return f"Answer with one of these words and nothing else: {', '.join(self._signals())}."
        if self.schema is not None or not wants_json(output):
            return ""
        keys = dict.fromkeys([*output.map, *([output.signal_from] if output.signal_from else [])])
        if not keys:
            return "Answer with JSON and write nothing else."
        return f"Answer with one JSON object that has {', '.join(keys)}, and write nothing else."

    def _signals(self) -> tuple[str, ...]:
        """The signals it may say; with a route for whatever else it says, any."""
        routes = self.step.routes
        return () if DEFAULT in routes else tuple(signal for signal in routes if signal not in ERRORS)


def _agent(work: StepWork[AgentStep]) -> Agent:
    step, known = work.step, work.services.agents
    if step.agent.name is None:
        if step.agent == _NO_BLOCK and step.id in known:
            return known[step.id]
        system = render(step.agent.system, work.public, at="agent.system")
        return Agent(step.id, lambda: system)  # A function: what was filled in is no template.
    if step.agent.name not in known:
        do = "Write it in agents/, or leave out `name`: then the step makes its own."
        raise UnknownName("agent", step.agent.name, known, do=do)
    if step.agent.system:
        expected = f"none: agent {step.agent.name!r} has its own prompt"
        raise BadStepValue("agent.system", found="a text", expected=expected)
    return known[step.agent.name]


def _config(work: StepWork[AgentStep], agent: Agent) -> Config:
    """The step's model, else the agent's, else the project's."""
    if work.step.agent.model is not None:
        return work.step.agent.model
    return work.services.model if agent.config is None else None


def _tools(work: StepWork[AgentStep], agent: Agent) -> list[Tool[..., Any]]:
    known = work.services.tools
    for name in work.step.agent.tools:
        if name not in known:
            raise UnknownName("tool", name, known, do="Write it with @tool in the project.")
    return [known[name] for name in work.step.agent.tools if agent.tools.get(known[name].name) is None]


async def _message(work: StepWork[AgentStep], wanted: _Wanted) -> UserMessage:
    """Return what the model is told, with the files that it refers to."""
    prompt, public = work.step.agent.prompt, work.public
    if prompt is None:
        asked, read = msgspec.json.encode(public).decode(), public
    else:
        asked = render(prompt, public, at="agent.prompt")
        read = {key: value for key, value in public.items() if key in names_in(prompt)}
    files = work.files.find(read)
    text = "\n\n".join(text for text in (asked.rstrip("\n"), wanted.told()) if text)
    return UserMessage(text=name_files(text, files), files=await work.files.load(files))


def _review(output: ToolOutput) -> ToolOutput:
    """Refuse a handoff."""
    if output.returned is None:
        return output
    text = "nobody else takes part in this step, so the floor cannot be given away; answer yourself."
    return ToolOutput(text=text, failed=True)
