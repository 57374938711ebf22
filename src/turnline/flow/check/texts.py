"""The texts of a step that the engine reads: expressions, templates, keys (F9, F10).

`texts_of` finds them all, wherever they stand; `read` says what one reads. Most texts are
read when a document is; those inside JSON of the user's own are read here for the first time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from turnline.core.study.finding import Path
from turnline.errors import BadExpression
from turnline.expressions import compile_expression
from turnline.expressions.strict import SECRET, compile_strict
from turnline.expressions.template import compile_template
from turnline.flow.check.problem import Problem, every_step
from turnline.flow.definition import steps as define
from turnline.flow.definition.base import Json
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import Step
from turnline.flow.values import is_template

BAD_TEXT: Final = "TL204"
SECRET_OUTSIDE: Final = "TL205"

Sort = Literal["expression", "template", "header", "mapped", "key"]
"""How it is read. `mapped` is a key, an expression or a template; `header` may read secrets."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text, and where in its step it stands."""

    path: Path
    text: str
    sort: Sort


@dataclass(frozen=True, slots=True)
class Reads:
    """What a text reads."""

    keys: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()


def bad_texts(flow: Flow) -> Iterator[Problem]:
    """Texts that cannot be read: no expression, no template, a secret where none is given."""
    for path, step in every_step(flow):
        for text in texts_of(step):
            yield from _bad((*path, *text.path), text)


def read(text: Text) -> Reads:
    """Return what a text reads. Raises `BadExpression` for one that says what cannot be said."""
    match text.sort:
        case "key":
            return Reads(frozenset({text.text}))
        case "expression":
            return _lenient(compile_expression(text.text).names)
        case "mapped" if not is_template(text.text):
            return _lenient(compile_expression(text.text).names)
        case "mapped":
            return _lenient(compile_template(text.text).names)
    if not is_template(text.text):
        return Reads()
    strict = compile_strict(text.text)
    return Reads(strict.names, strict.secrets)


def texts_of(step: Step) -> Iterator[Text]:
    """Every text of the step itself; the steps inside it have their own."""
    if step.when is not None:
        yield Text(("when",), step.when, "expression")
    for text in _own(step):
        yield Text((step.kind, *text.path), text.text, text.sort)


def _lenient(names: frozenset[str]) -> Reads:
    """Where nothing is strict, `secret` looks like a key; it never is one."""
    return Reads(names - {SECRET}, names & {SECRET})


def _own(step: Step) -> Iterator[Text]:
    match step:
        case define.AgentStep(agent=agent):
            yield from _templates({"system": agent.system, "prompt": agent.prompt})
        case define.RouterStep(router=router):
            for place, condition in enumerate(router.conditions):
                if condition.if_ is not None:
                    yield Text(("conditions", place, "if"), condition.if_, "expression")
        case define.ApiCallStep(api_call=call):
            yield from _templates(
                {"url": call.url, "query": call.query, "json": call.json_, "body": call.body}
            )
            yield from _inside(call.headers, ("headers",), "header")
        case define.ModelOpStep(model_op=op):
            yield from _templates({"id": op.id, "values": op.values, "where": op.where})
        case define.ResponseStep(response=response):
            yield from _inside(response.mapping, ("mapping",), "mapped")
        case define.HumanStep(human=human):
            yield from _templates({"title": human.title, "description": human.description})
            yield from _inside(human.show, ("show",), "key")
        case _:
            yield from _of_others(step)


def _of_others(step: Step) -> Iterator[Text]:
    match step:
        case define.McpStep(mcp=mcp):
            yield from _templates({"arguments": mcp.arguments})
        case define.ForEachStep(for_each=each):
            yield Text(("items",), each.items, "expression")
        case define.WorkflowStep(workflow=workflow):
            yield from _templates({"input": workflow.input})
        case define.WaitStep(wait=wait):
            yield from _templates({"until": wait.until})
        case define.ChannelStep(channel=channel):
            yield from _templates({"message": channel.message, "context": channel.context})


def _templates(parts: dict[str, Json]) -> Iterator[Text]:
    yield from _inside(parts, (), "template")


def _inside(data: Json, path: Path, sort: Sort) -> Iterator[Text]:
    """The texts in some JSON; its keys are taken as they are."""
    match data:
        case str():
            yield Text(path, data, sort)
        case dict():
            for key, item in data.items():
                yield from _inside(item, (*path, key), sort)
        case list():
            for place, item in enumerate(data):
                yield from _inside(item, (*path, place), sort)


def _bad(path: Path, text: Text) -> Iterator[Problem]:
    try:
        secrets = read(text).secrets
    except BadExpression as error:
        # Only why: the text itself may be a header's, with a key in it.
        what = "expression" if text.sort in ("expression", "mapped") else "template"
        yield Problem(
            code=BAD_TEXT,
            path=path,
            message=f"this is no {what} that can be read: {error.because}",
            expected=f"{'an' if what == 'expression' else 'a'} {what}",
            fix="write it as the flows reference says; a text in an expression stands in 'quotes'",
        )
        return
    if secrets and text.sort != "header":
        yield Problem(
            code=SECRET_OUTSIDE,
            path=path,
            message="a secret is read here, and secrets are given in headers only",
            expected="secrets in api_call.headers",
            fix="send it in a header, or let a @node read it from its own environment",
        )
