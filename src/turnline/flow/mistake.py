"""Mistakes: what pydantic has against a document, told to the one who wrote it.

    flow, findings = parsed(Flow, document)

Pydantic says where in its own terms: with the tag of a union and the index of a list
that the document has not. `_Walk` goes the same way through the definition and through
the data, and knows at its end which key of which part is meant.

Rule 1: every mistake has a finding, in the order pydantic has them.

Rule 2: no finding holds what a `${VARIABLE}` stands for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from turnline.errors.base import short
from turnline.flow.definition import base
from turnline.flow.definition.base import Json
from turnline.flow.definition.flow import PATH
from turnline.flow.definition.steps import KINDS, FunctionalStep
from turnline.flow.finding import Finding, listed, nearest
from turnline.flow.yaml_document import MAX_FINDINGS, Path, YamlDocument

UNKNOWN_KEY: Final = "TL011"
MISSING_KEY: Final = "TL012"
UNKNOWN_KIND: Final = "TL013"
BAD_VALUE: Final = "TL014"
BAD_DURATION: Final = "TL015"
BAD_STEPS: Final = "TL016"
BAD_TEXT: Final = "TL204"
"""The same as in `flow.check.texts`, which looks at the texts inside JSON."""

_TYPES: Final = {
    "string_type": "a text",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_PATTERNS: Final = {
    base.NAME: "a letter, then letters, digits, `_` and `-`; at most 59 of them",
    base.KEY: "a name of letters, digits and `_` that does not begin with `_`",
    PATH: "a path that begins with `/`, such as /api/leads/{id}",
}
_OPTIONS: Final = re.compile(r"'([^']*)'")

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Spelling:
    """A document's data in its long shape, and the way back: a path in it -> the path in the document."""

    data: Json
    path: Callable[[Path], Path] = lambda path: path


def parsed(
    model: type[M], document: YamlDocument, spelling: Spelling | None = None
) -> tuple[M | None, list[Finding]]:
    """Return what a document says, or else everything that is wrong with it."""
    long = spelling or Spelling(document.data)
    try:
        return model.model_validate(long.data, context=base.AUTHORED, by_alias=True, by_name=False), []
    except ValidationError as error:
        mistakes = error.errors(include_url=False)[:MAX_FINDINGS]
        found = [_Mistake(one, _Walk(model, long.data, one["loc"]), document, long) for one in mistakes]
        return None, [one.finding() for one in found if not one.is_known]


class _Walk:
    """From a definition and some data to what an error is about."""

    def __init__(self, model: type[BaseModel], data: Json, location: Sequence[str | int]) -> None:
        self.path: Path = ()
        self.of_key = False
        self.around: type[BaseModel] | None = None
        """The part that has, or lacks, the last key of the path."""
        self.data = data
        """What stands around the last key."""
        hint: Any = model
        for place, element in enumerate(location):
            options = _tagged(hint)
            if options:
                hint = options.get(str(element))
            elif element == "[key]" and place == len(location) - 1:
                self.of_key = True
            else:
                hint = self._step(hint, element)

    def _step(self, hint: Any, element: str | int) -> Any:
        inside = self._inside() if self.path else self.data
        if isinstance(element, int) and not isinstance(inside, list):
            return _item(hint)  # A single value that was read as a list of one.
        self.data = inside
        self.path = (*self.path, element)
        self.around = _model(hint)
        if self.around is not None:
            return _fields(self.around).get(str(element))
        return _item(hint)

    def _inside(self) -> Json:
        last = self.path[-1]
        if isinstance(self.data, dict):
            return self.data.get(last)
        if isinstance(self.data, list) and isinstance(last, int):
            return self.data[last]
        return None


class _Mistake:
    """One of pydantic's errors."""

    def __init__(self, error: ErrorDetails, walk: _Walk, document: YamlDocument, long: Spelling) -> None:
        self._error = error
        self._walk = walk
        self._document = document
        self._long = long
        self._path = long.path(walk.path)
        self._context = error.get("ctx", {})
        self._key = next((key for key in reversed(walk.path) if isinstance(key, str)), "")

    @property
    def is_known(self) -> bool:
        """Whether the value has a finding already."""
        return self._path in self._document.refused

    def finding(self) -> Finding:
        return _TOLD.get(self._error["type"], _Mistake._bad_value)(self)

    def _unknown_key(self) -> Finding:
        key, around = str(self._walk.path[-1]), self._walk.around
        known = set(_fields(around)) if around is not None else set[str]()
        if around is FunctionalStep and "kind" not in self._walk.data:
            known |= set(KINDS)
        if self._path in self._document.bare:
            fix = "put a text with a comma in it in quotes"
        else:
            fix = _home(key, around) or nearest(key, known)
        expected = listed(known)
        return self._at(
            UNKNOWN_KEY,
            f"no key {short(key)} is known here",
            found=key,
            expected=expected,
            fix=fix,
            of_key=True,
        )

    def _missing_key(self) -> Finding:
        key = str(self._walk.path[-1])
        expected, fix = "", f"add `{key}:`"
        if self._walk.around is FunctionalStep and "kind" not in self._walk.data:
            expected, fix = f"`runner`, or a kind: {', '.join(KINDS)}", "say what the step does"
        return self._at(MISSING_KEY, f"the key {key!r} is missing", found="", expected=expected, fix=fix)

    def _unknown_kind(self) -> Finding:
        path = self._long.path((*self._walk.path, "kind"))
        found = self._document.written.get(path, str(self._context.get("tag", "")))
        options = _OPTIONS.findall(str(self._context.get("expected_tags", "")))
        return self._at(
            UNKNOWN_KIND,
            f"no kind of step is called {short(found)}",
            found=found,
            expected=", ".join(options),
            fix=nearest(found, options),
            path=path,
        )

    def _no_kind(self) -> Finding:
        if isinstance(self._error["input"], dict):  # Its kind is no text.
            path = self._long.path((*self._walk.path, "kind"))
            found, expected = _shown(self._error["input"].get("kind")), ", ".join(KINDS)
            return self._at(UNKNOWN_KIND, "this is no kind", found=found, expected=expected, path=path)
        return self._at(BAD_VALUE, "this is no step", expected="a mapping with an id and a kind")

    def _bad_duration(self) -> Finding:
        return self._at(BAD_DURATION, "this is no duration", expected="30s, 5m, 2h, 1d, or seconds")

    def _bad_steps(self) -> Finding:
        return self._at(BAD_STEPS, self._error["msg"], found="")

    def _bad_expression(self) -> Finding:
        return self._bad_text("expression")

    def _bad_template(self) -> Finding:
        return self._bad_text("template")

    def _bad_text(self, what: str) -> Finding:
        is_filled = self._path in self._document.written
        because = "" if is_filled else f": {str(self._context.get('because')).rstrip('.')}"
        fix = "a text in an expression stands in 'quotes'" if what == "expression" else ""
        return self._at(BAD_TEXT, f"this is no {what} that can be read{because}", fix=fix)

    def _bad_value(self) -> Finding:
        kind, of_key = self._error["type"], self._walk.of_key
        if kind == "value_error":
            return self._at(BAD_VALUE, str(self._context.get("error", "")), found="")
        options = _OPTIONS.findall(str(self._context.get("expected", ""))) if kind == "literal_error" else []
        fix = nearest(self._found().strip("'"), options)
        if kind == "string_type" and _is_scalar(self._error["input"]):
            fix = f"put it in quotes: '{self._found()}'"
        message = "this cannot be a name here" if of_key else f"{self._key!r} cannot be this"
        expected = ", ".join(options) or self._expected()
        return self._at(BAD_VALUE, message, expected=expected, fix=fix, of_key=of_key)

    def _expected(self) -> str:
        kind, said = self._error["type"], self._error["msg"]
        if kind == "string_pattern_mismatch":
            pattern = str(self._context.get("pattern"))
            return _PATTERNS.get(pattern, f"a text that matches {pattern}")
        if kind == "literal_error":
            return str(self._context.get("expected")).lower()
        plain = re.sub(r"^(Input|String|List|Dictionary|Value) should (be|have) (a valid )?", "", said)
        return _TYPES.get(kind) or plain.replace(" after validation", "")

    def _found(self) -> str:
        """The value as its author wrote it."""
        return self._document.written.get(self._path) or _shown(self._error["input"])

    def _at(
        self,
        code: str,
        message: str,
        *,
        found: str | None = None,
        expected: str = "",
        fix: str = "",
        path: Path | None = None,
        of_key: bool = False,
    ) -> Finding:
        return self._document.finding(
            code,
            message,
            self._path if path is None else path,
            found=self._found() if found is None else found,
            expected=expected,
            fix=fix,
            of_key=of_key,
        )


_TOLD: Final[dict[str, Callable[[_Mistake], Finding]]] = {
    "extra_forbidden": _Mistake._unknown_key,
    "missing": _Mistake._missing_key,
    "union_tag_invalid": _Mistake._unknown_kind,
    "union_tag_not_found": _Mistake._no_kind,
    base.BAD_DURATION: _Mistake._bad_duration,
    base.BAD_STEPS: _Mistake._bad_steps,
    base.BAD_EXPRESSION: _Mistake._bad_expression,
    base.BAD_TEMPLATE: _Mistake._bad_template,
}


def _home(key: str, around: type[BaseModel] | None) -> str:
    """The block that the key belongs into, if it is known one level deeper."""
    for name, hint in _fields(around).items() if around is not None else ():
        block = _model(hint)
        if block is not None and key in _fields(block):
            return f"write it inside `{name}:`"
    return ""


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """The keys that a part knows, as documents spell them, and what each of them is."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _members(hint: Any) -> Iterable[Any]:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    is_union = get_origin(hint) in (Union, UnionType)
    return [one for one in get_args(hint) if one is not NoneType] if is_union else [hint]


def _tagged(hint: Any) -> dict[str, Any]:
    """The choices of a union whose error location holds a tag."""
    members = [one for one in _members(hint) if get_origin(one) is Annotated]
    tags = [(meta.tag, one) for one in members for meta in get_args(one)[1:] if isinstance(meta, Tag)]
    return dict(tags)


def _model(hint: Any) -> type[BaseModel] | None:
    for member in _members(hint):
        plain = next(iter(_members(member)))
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            return plain
    return None


def _item(hint: Any) -> Any:
    """What a list or a mapping holds."""
    for member in _members(hint):
        plain = next(iter(_members(member)))
        if get_origin(plain) in (list, dict):
            return get_args(plain)[-1]
    return None


def _is_scalar(value: object) -> bool:
    return isinstance(value, bool | int | float)


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
    return short(value)
