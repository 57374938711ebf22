"""What becomes of an answer: an agent's, another system's, a tool's.

    text -> read -> the answer, JSON or text -> written -> context updates and a signal

`Output` of the definition says how. With `map`, the keys it names; with `key`, all of it
under that one; with neither, an object's keys are merged, and anything else goes under
the step's id.

Rule 1: what is merged has been through `context.from_outside`: reserved keys are dropped,
and `written` says which (F1). What `map` and `key` write goes where the document says,
which is never a reserved key; inside it, keys are the sender's own.

Rule 2: an answer that is not what the output asks for is `ParseFailed`. A path of `map`
that leads nowhere is that, too: take the whole answer with `key` where it may be absent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.errors import BadDraft, ParseFailed
from turnline.errors.base import short
from turnline.flow.context import from_outside
from turnline.flow.definition.steps import Output
from turnline.flow.fields import check
from turnline.flow.work import DEFAULT

MAX_SIGNAL_CHARACTERS: Final = 200
_MOST_PROBLEMS: Final = 3
_ABSENT: Final = object()

Json = Any
"""JSON of whoever answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an answer comes to."""

    updates: JsonObject = field(default_factory=dict)
    signal: str = DEFAULT
    dropped: list[str] = field(default_factory=list)
    """Reserved keys that were in it."""


def wants_json(output: Output) -> bool:
    """Whether nothing but JSON will do."""
    named = output.map or output.schema_ is not None or output.signal_from
    return output.format == "json" or (output.format is None and bool(named))


def read(output: Output, text: str, *, step: str) -> Json:
    """Return the answer in `text`: JSON where it has to be, or where it is an object; else the text."""
    if wants_json(output):
        return parsed(text, step=step)
    if output.format is not None:
        return text
    try:
        found = parsed(text, step=step)
    except ParseFailed:
        return text
    return found if isinstance(found, dict) else text


def parsed(text: str, *, step: str) -> Json:
    """Return the JSON in `text`, with or without the fence that models like to put around it."""
    try:
        return msgspec.json.decode(_bare(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        found = "empty" if not text.strip() else f"{short(text)}, which does not parse ({error})"
        raise ParseFailed(step, found=found, expected="JSON and nothing else") from None


def written(output: Output, answer: Json, *, step: str, signals: Collection[str] = ()) -> Written:
    """Return what `answer` comes to for this step; `signals` are those it may say, if that is limited."""
    if output.format == "signal":
        signal, updates = _spoken(str(answer), signals, step), _under(output.key, answer)
        dropped: list[str] = []
    else:
        answer = _checked(output, answer, step)
        signal = DEFAULT if output.signal_from is None else _signal(output.signal_from, answer, step)
        updates, dropped = _updates(output, answer, step)
    try:
        kept = normalised(updates, field="answer")
    except BadDraft as refused:
        raise ParseFailed(
            step, found=f"not to be kept ({refused})", expected="JSON of limited size"
        ) from None
    return Written(updates=kept, signal=signal, dropped=dropped)


def _checked(output: Output, answer: Json, step: str) -> Json:
    if output.schema_ is None:
        return answer
    clean, problems = check(output.schema_, answer, extra=True)
    if problems:
        found = "; ".join(map(str, problems[:_MOST_PROBLEMS]))
        raise ParseFailed(step, found=f"not what its schema says ({found})", expected="what it says")
    return clean


def _updates(output: Output, answer: Json, step: str) -> tuple[JsonObject, list[str]]:
    merged, dropped = from_outside(answer) if isinstance(answer, dict) else ({step: answer}, [])
    if not output.map and not output.key:
        return merged, dropped
    mapped = {target: _at(answer, path, step) for path, target in output.map.items()}
    unused = [] if output.key else [key for key in dropped if key not in output.map]
    return mapped | _under(output.key, answer), unused


def _under(key: str | None, answer: Json) -> JsonObject:
    return {} if key is None else {key: answer}


def _at(answer: Json, path: str, step: str) -> Json:
    """The value at a key, or at a dotted path of keys and places."""
    found = _one(answer, path)
    if found is _ABSENT:
        found = answer
        for key in path.split("."):
            found = _one(found, key)
    if found is _ABSENT:
        has = f"with {short(sorted(answer))}" if isinstance(answer, dict) else "no object"
        raise ParseFailed(step, found=has, expected=f"one with {path!r}")
    return found


def _one(holder: Json, key: str) -> Json:
    if isinstance(holder, dict):
        return holder.get(key, _ABSENT)
    if isinstance(holder, list) and key.isdecimal() and key.isascii() and int(key) < len(holder):
        return holder[int(key)]
    return _ABSENT


def _signal(path: str, answer: Json, step: str) -> str:
    value = _at(answer, path, step)
    if isinstance(value, bool | int):
        return msgspec.json.encode(value).decode()
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_SIGNAL_CHARACTERS:
        raise ParseFailed(step, found=f"with {short(value)} at {path!r}", expected="a signal there")
    return value.strip()


def _spoken(text: str, signals: Collection[str], step: str) -> str:
    """The signal that a text is: without quotes and full stops, and in the case its route is written in."""
    said = text.strip().strip("`'\".").strip()
    known = {signal.lower(): signal for signal in signals}
    if not said or len(said) > MAX_SIGNAL_CHARACTERS or (known and said.lower() not in known):
        expected = f"one of {', '.join(sorted(signals))}" if signals else "one short signal"
        raise ParseFailed(step, found=short(text), expected=expected)
    return known.get(said.lower(), said)


def _bare(text: str) -> str:
    stripped = text.strip()
    if not stripped.startswith("```"):
        return stripped
    return stripped.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
