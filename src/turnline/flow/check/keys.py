"""Which context keys there can be at each step, and the texts that read others (F15).

Rule 1: a key is there if some path to a step can produce it. What a step writes is counted
on every way out of it, an error's too.

Rule 2: where anything may have been written (a Python function, an agent whose output
nothing is said about), and where a run begins with anything (no `trigger.input`), every
key may be there, and nothing is said. A trigger that names its input is taken at its word,
unless `extra: true` is written beside it.

Rule 3: `mapping: {status: shipped}` more likely means the text. A bare word is a key only if the project
names it: a step, a Python file, another text of the flow, or a flow that starts this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from turnline.core.study.finding import Path
from turnline.errors import BadExpression
from turnline.flow.check.names import Known
from turnline.flow.check.paths import edges_of
from turnline.flow.check.problem import Problem, Scope, every_step, inside, outermost
from turnline.flow.check.texts import Text, read, texts_of
from turnline.flow.check.writes import ANYTHING, NOTHING, Keys, union, writes
from turnline.flow.context import is_private
from turnline.flow.definition import steps as define
from turnline.flow.definition.flow import Flow, Trigger
from turnline.flow.definition.steps import Step
from turnline.flow.finding import listed, nearest

NEVER_WRITTEN: Final = "TL201"


def keys_never_written(flow: Flow, known: Known) -> Iterator[Problem]:
    """Find texts that read a key which no path produces."""
    named = replace(known, node_keys=known.words)
    if_named = {path: there for path, _, there in steps_with_keys(flow, named, _named_input(flow, known))}
    for path, step, there in steps_with_keys(flow, known):
        for text in texts_of(step):
            is_word = _is_word(text)
            keys = Keys(there.names) if is_word else there
            if not (is_word and text.text in if_named[path]):
                yield from _never_written((*path, *text.path), text, keys)


def steps_with_keys(flow: Flow, known: Known, first: Keys | None = None) -> Iterator[tuple[Path, Step, Keys]]:
    """Return every step that a path leads to, with the keys that may be there before it."""
    pending = [(outermost(flow), beginning(flow) if first is None else first)]
    while pending:
        scope, first = pending.pop(0)
        for place, there in known_at(scope, first, known).items():
            step = scope.steps[place]
            yield scope.at(place), step, there
            pending += [(inner, there | _given(step)) for inner in inside(scope, place)]


def beginning(flow: Flow) -> Keys:
    """Return the keys that a run begins with."""
    return _body(flow.spec.trigger) | Keys.of(*flow.spec.context.defaults)


def _named_input(flow: Flow, known: Known) -> Keys:
    """Return the keys that a run begins with. Where the input is not declared: those that the project names.

    These are the keys that other texts of the flow read, and those that other flows give it.
    """
    trigger = flow.spec.trigger
    is_declared = trigger is not None and (trigger.input is not None or "extra" in trigger.model_fields_set)
    if is_declared or known.words is None:
        return beginning(flow)
    texts = [text for _, step in every_step(flow) for text in texts_of(step)]
    in_path = () if trigger is None else trigger.parameters
    named = Keys.of(*known.words, *flow.spec.context.defaults, *in_path)
    named |= union(_reads(text) for text in texts if not _is_word(text) or text.path[-1] == text.text)
    return named | union(_given_by(caller, flow.name) for caller in known.definitions.values())


def _given_by(caller: Flow, name: str) -> Keys:
    """Return the keys that a flow gives to the flow called `name`."""
    calls = [one.workflow for _, one in every_step(caller) if isinstance(one, define.WorkflowStep)]
    inputs = [one.input for one in calls if one.name == name]
    return union(ANYTHING if one is None else Keys.of(*one) for one in inputs)


def _reads(text: Text) -> Keys:
    try:
        return Keys(read(text).keys)
    except BadExpression:
        return NOTHING


def _is_word(text: Text) -> bool:
    return text.sort == "mapped" and text.text.isidentifier()


def known_at(scope: Scope, first: Keys, known: Known) -> dict[int, Keys]:
    """Return the keys that may be there before each step that a path leads to, by its place."""
    places = {step.id: place for place, step in enumerate(scope.steps)}
    edges = edges_of(scope.steps)
    written = [writes(step, known) for step in scope.steps]
    there, pending = {0: first}, [0]
    while pending:
        place = pending.pop()
        after = there[place] | written[place]
        for target in edges[scope.steps[place].id] & places.keys():
            there_before = there.get(places[target])
            there_now = (there_before or NOTHING) | after
            if there_now != there_before:
                there[places[target]] = there_now
                pending.append(places[target])
    return there


def _body(trigger: Trigger | None) -> Keys:
    if trigger is None or trigger.input is None:
        return ANYTHING
    if "extra" in trigger.model_fields_set and trigger.extra:
        return ANYTHING
    return Keys.of(*trigger.input, *trigger.parameters)


def _given(step: Step) -> Keys:
    """What inner steps find beside the context."""
    if isinstance(step, define.ForEachStep):
        return Keys.of(step.for_each.as_, step.for_each.index)
    return NOTHING


def _never_written(path: Path, text: Text, there: Keys) -> Iterator[Problem]:
    if text.sort == "mapped" and text.text in there:
        return  # A key as it is, whatever it would be as an expression.
    names = _reads(text).names  # `bad_texts` reports a text that cannot be read.
    for name in sorted(name for name in names if name not in there and not is_private(name)):
        yield Problem(
            code=NEVER_WRITTEN,
            path=path,
            message=f"{name!r} is read here, and no path to this step produces it",
            found=name,
            expected=listed(there.names),
            fix=_fix(name, text, there),
            severity="warning",
        )


def _fix(name: str, text: Text, there: Keys) -> str:
    near = nearest(name, there.names)
    if near:
        return near
    write = f"add {name!r} to trigger.input, to defaults, or write it before"
    return f"""write "'{name}'" if you mean the text; or {write}""" if _is_word(text) else write
