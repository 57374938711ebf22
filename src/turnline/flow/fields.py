"""Fields, checked: what a body, a form or an answer has to be, and the same as JSON Schema.

    clean, problems = check(fields, data, extra=False)
    json_schema(fields)

Rule 1: JSON's types and no others. `"5"` is no integer and `true` is no number; `5.0` is
the integer 5. Dates, UUIDs and addresses stay the texts they are.

Rule 2: a problem says where and what was expected. It names the kind of what was found,
never the value: that may be a password.

Rule 3: a file is a `FilePart` that was uploaded for this input. JSON that looks like one is refused, so that
to know the digest of a file gives nothing (Y6). What comes out is its JSON.

Rule 4: patterns are matched in linear time, whoever wrote them and whatever they meet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import Any, Final
from uuid import UUID

from msgspec import to_builtins
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from turnline.core.envelope import JsonObject
from turnline.core.parts import FilePart
from turnline.errors import BadExpression
from turnline.errors.base import short
from turnline.flow.definition.fields import Fields, FieldSpec

MOST_PROBLEMS: Final = 50
"""After so many mistakes the check ends."""
MOST_DEFAULTS: Final = 100_000
"""Fields that one check fills in: an item of two bytes may have many fields with defaults."""
MAX_EMAIL_CHARACTERS: Final = 320
_PATTERNS: Final = 256
_COMPARED: Final = 100
"""Keys that are compared with the name of a missing field."""
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where."""

    location: Location
    message: str

    def __str__(self) -> str:
        where = ".".join(map(str, self.location))
        return f"{where}: {self.message}" if where else self.message


def check(fields: Fields, data: object, *, extra: bool) -> tuple[JsonObject, list[Problem]]:
    """Return what `data` comes to, defaults included, and everything that is wrong with it.

    With `extra`, keys that no field names are kept; without it, they are problems, at
    every level that names its fields.
    """
    found = _Check(extra=extra)
    try:
        clean = found.mapping(fields, data, ())
    except _Enough:
        clean = {}
    return clean if isinstance(clean, dict) else {}, found.problems


def json_schema(fields: Fields, *, extra: bool = True) -> JsonObject:
    """Return the same as JSON Schema: for OpenAPI, forms and models."""
    schema: JsonObject = {
        "type": "object",
        "properties": {name: _schema(spec, extra) for name, spec in fields.items()},
    }
    required = [name for name, spec in fields.items() if spec.required]
    if required:
        schema["required"] = required
    return schema if extra else schema | {"additionalProperties": False}


class _Enough(Exception):
    """The check found `MOST_PROBLEMS`, or more values than there may be."""


class _Check:
    """One check: what was found wrong so far."""

    def __init__(self, *, extra: bool) -> None:
        self.problems: list[Problem] = []
        self._extra = extra
        self._defaults = 0

    def mapping(self, fields: Fields, data: object, at: Location) -> Any:
        if not isinstance(data, Mapping):
            return self._wrong(at, f"expected an object, found {_kind(data)}")
        clean = {name: value for name, value in data.items() if name not in fields}
        if not self._extra:
            for name in clean:
                self._wrong((*at, str(name)), "no such field")
        for name, spec in fields.items():
            if name in data:
                clean[name] = self.value(spec, data[name], (*at, name))
            elif _has_default(spec):
                clean[name] = self._default(spec, (*at, name))
            elif spec.required:
                typo = _typo(name, islice((key for key in data if key not in fields), _COMPARED))
                self._wrong((*at, name), f"it is missing; expected {_TYPES[spec.type][0]}{typo}")
        return clean

    def _default(self, spec: FieldSpec, at: Location) -> Any:
        self._defaults += 1
        if self._defaults > MOST_DEFAULTS:
            self._wrong(at, f"expected at most {MOST_DEFAULTS} fields that are left to their defaults")
            raise _Enough
        return deepcopy(spec.default)

    def value(self, spec: FieldSpec, value: object, at: Location) -> Any:
        if value is None and (spec.nullable or spec.type == "any"):
            return None
        typed = self._typed(spec, value, at)
        if typed is not None:
            self._constrain(spec, typed, at)
        return to_builtins(typed) if isinstance(typed, FilePart) else typed

    def _typed(self, spec: FieldSpec, value: object, at: Location) -> Any:
        """`value` as its type has it; None once a problem is noted."""
        if spec.type == "object" and spec.properties is not None:
            return self.mapping(spec.properties, value, at)
        expected, fits = _TYPES[spec.type]
        typed = fits(value)
        if typed is None:
            return self._wrong(at, f"expected {expected}, found {_kind(value)}")
        if isinstance(typed, list) and spec.items is not None:
            return [self.value(spec.items, item, (*at, place)) for place, item in enumerate(typed)]
        return typed

    def _constrain(self, spec: FieldSpec, value: Any, at: Location) -> None:
        size, unit = _size(value)
        if size is not None and spec.min is not None and size < spec.min:
            self._wrong(at, f"expected at least {written(spec.min)}{unit}")
        if size is not None and spec.max is not None and size > spec.max:
            self._wrong(at, f"expected at most {written(spec.max)}{unit}")
        if spec.enum is not None and not any(_same(value, one) for one in spec.enum):
            self._wrong(at, f"expected one of {short(spec.enum)}")
        if isinstance(value, FilePart) and not allows_media_type(spec, value.media_type):
            self._wrong(at, f"expected a file of type {' or '.join(spec.media_types or ())}")
        if spec.pattern is not None and isinstance(value, str) and not _matches(spec.pattern, value):
            self._wrong(at, f"expected text that matches {spec.pattern!r}")

    def _wrong(self, at: Location, message: str) -> None:
        self.problems.append(Problem(at, message))
        if len(self.problems) >= MOST_PROBLEMS:
            raise _Enough


def _typo(name: str, found: Iterable[object]) -> str:
    """Which of the keys that were found may have been meant as `name`."""
    near = get_close_matches(name, [key for key in found if isinstance(key, str)], n=1)
    return f"; {near[0]!r} is no field, did you mean {name!r} by it?" if near else ""


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    known = _number(value)
    return None if known is None or known != int(known) else int(known)


def _number(value: object) -> int | float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if isinstance(value, int) or isfinite(value) else None


def _text_that(reads: Callable[[str], object]) -> Callable[[object], str | None]:
    """A text that `reads` has an answer for, as it is."""

    def fits(value: object) -> str | None:
        try:
            return value if isinstance(value, str) and reads(value) else None
        except ValueError:
            return None

    return fits


def _date(text: str) -> object:
    return _DATE.fullmatch(text) and date.fromisoformat(text)


def _datetime(text: str) -> object:
    return _DATE.match(text) and text[10:11] in {"T", "t", " "} and datetime.fromisoformat(text)


def _uuid(text: str) -> object:
    return str(UUID(text)) == text.lower()


def _email(text: str) -> object:
    return len(text) <= MAX_EMAIL_CHARACTERS and _EMAIL.fullmatch(text)


_TYPES: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "any": ("anything", lambda value: value),
    "string": ("text", _text),
    "integer": ("an integer", _integer),
    "number": ("a number", _number),
    "boolean": ("true or false", lambda value: value if isinstance(value, bool) else None),
    "object": ("an object", lambda value: value if isinstance(value, dict) else None),
    "array": ("a list", lambda value: value if isinstance(value, list) else None),
    "date": ("a date such as 2026-12-24", _text_that(_date)),
    "datetime": ("a time such as 2026-12-24T18:00:00Z", _text_that(_datetime)),
    "uuid": ("a UUID", _text_that(_uuid)),
    "email": ("an e-mail address", _text_that(_email)),
    "file": ("a file", lambda value: value if isinstance(value, FilePart) else None),
}
"""A field's type -> what to call it, and its reader: the value, or None if it is of another type."""

_KINDS: Final[Mapping[type, str]] = {
    FilePart: "a file",
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
"""What a wrong value is called."""
_SCHEMAS: Final[Mapping[str, JsonObject]] = {
    "any": {},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "email": {"type": "string", "format": "email"},
    "file": {"type": "string", "format": "binary"},
}
_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
}


def _schema(spec: FieldSpec, extra: bool) -> JsonObject:
    if spec.properties is not None and spec.type == "object":
        schema = json_schema(spec.properties, extra=extra)
    else:
        schema = dict(_SCHEMAS.get(spec.type, {"type": spec.type}))
    if spec.items is not None and spec.type == "array":
        schema["items"] = _schema(spec.items, extra)
    if spec.media_types is not None:
        schema["x-media-types"] = spec.media_types
    for word, limit in zip(
        _LIMITS.get(schema.get("type", "") if spec.type != "file" else "", ()),
        (spec.min, spec.max),
        strict=False,
    ):
        if limit is not None:
            schema[word] = int(limit) if limit == int(limit) else limit
    said = {"description": spec.description, "pattern": spec.pattern, "enum": spec.enum}
    schema |= {word: value for word, value in said.items() if value}
    if spec.nullable and "type" in schema:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return schema | {"default": spec.default} if _has_default(spec) else schema


def _has_default(spec: FieldSpec) -> bool:
    return "default" in spec.model_fields_set


def written(number: float) -> str:
    """Return a limit as a person writes it: 5000000, not 5e+06."""
    return str(int(number)) if float(number).is_integer() else f"{number:g}"


def _size(value: Any) -> tuple[float | None, str]:
    match value:
        case bool():
            return None, ""
        case int() | float():
            return value, ""
        case str():
            return len(value), " characters"
        case list():
            return len(value), " items"
        case FilePart():
            return value.size, " bytes"
    return None, ""


def allows_media_type(spec: FieldSpec, media_type: str) -> bool:
    """Return whether a file of this type fits the field."""
    allowed, kind = spec.media_types, media_type.partition("/")[0]
    return allowed is None or media_type in allowed or f"{kind}/*" in allowed


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


@lru_cache(maxsize=_PATTERNS)
def _pattern(pattern: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        raise BadExpression(pattern, because="it is no regular expression of linear time") from error


def _matches(pattern: str, text: str) -> bool:
    try:
        _pattern(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


def _kind(value: object) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")
