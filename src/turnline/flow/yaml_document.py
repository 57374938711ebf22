"""YAML documents: text -> plain JSON data, and where each part of it stands.

PyYAML lends its parser only; what its events mean is decided here.

Rule 1: what comes out is JSON. Scalars are those of YAML 1.2 (`yaml_scalar`); there
are no tags, and no keys that are not texts.

Rule 2: a value stands in one place. Anchors, aliases, merge keys and a key that is
written twice are refused.

Rule 3: no text does harm. Size, depth and the number of values are limited; whatever
is wrong is a finding with its place, and nothing is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from turnline.core.study.finding import Severity
from turnline.errors import MissingExtra
from turnline.errors.base import short
from turnline.flow.definition.base import Json
from turnline.flow.finding import Finding
from turnline.flow.yaml_scalar import NotJson, Scalar, scalar_of

try:
    import yaml
    from yaml import events as ev
except ModuleNotFoundError:
    raise MissingExtra("flows", extra="flow") from None

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 50_000
"""In one file. Each has a path of its own in memory."""
MAX_FINDINGS: Final = 200
"""Of one file; whoever made more mistakes mends these first."""

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Without libyaml: the same events, slower."""
_NOT_PRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

SYNTAX: Final = "TL001"
NOT_TEXT: Final = "TL002"
TOO_LARGE: Final = "TL003"
TWICE: Final = "TL004"
NOT_PLAIN: Final = "TL005"
BAD_KEY: Final = "TL006"
NOT_JSON: Final = "TL007"

Path = tuple[str | int, ...]
"""The way to a value: keys and indexes."""


class Position(NamedTuple):
    """A place in a file, both numbers from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


START: Final = Position(1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """One document of a file."""

    file: str
    data: Json = field(repr=False)
    values: Mapping[Path, Position] = field(repr=False)
    """Where each value begins."""
    keys: Mapping[Path, Position] = field(repr=False)
    """Where the key of each value of a mapping begins."""
    bare: frozenset[Path] = field(default=frozenset(), repr=False)
    """Keys without a value inside `{}`: often the second half of a text with a comma in it."""
    refused: frozenset[Path] = field(default=frozenset(), repr=False)
    """Values that have a finding already; what stands there in `data` means nothing."""
    written: Mapping[Path, str] = field(default_factory=dict, repr=False)
    """Texts as their author wrote them, where `data` has them with variables filled in."""

    def position(self, path: Path) -> Position:
        """Return where a value begins, or the nearest thing around it that stands in the document."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, START)

    def key_position(self, path: Path) -> Position:
        """Return where a value's key begins."""
        return self.keys[path] if path in self.keys else self.position(path)

    def as_written(self, text: str, path: Path) -> str:
        """Return `text` with the value at `path` as its author wrote it, `${VARIABLES}` and all."""
        if path not in self.written:
            return text
        value = self.data
        for key in path:
            value = value[key]
        return text.replace(value, self.written[path]) if value else text

    def finding(
        self,
        code: str,
        message: str,
        path: Path,
        *,
        found: str = "",
        expected: str = "",
        fix: str = "",
        severity: Severity = "error",
        of_key: bool = False,
    ) -> Finding:
        """Return a finding about the value at `path`, or about its key."""
        at = self.key_position(path) if of_key else self.position(path)
        return Finding(
            code=code,
            message=message,
            file=self.file,
            line=at.line,
            column=at.column,
            found=found,
            expected=expected,
            fix=fix,
            severity=severity,
        )


@dataclass(frozen=True, slots=True)
class YamlFile:
    """What was read from a file, and what is wrong with it."""

    documents: tuple[YamlDocument, ...]
    findings: tuple[Finding, ...]


def read_yaml(content: bytes | str, *, file: str) -> YamlFile:
    """Return the documents in `content`; those before a mistake that ends the reading are among them."""
    reader = _Reader(file)
    documents = list[YamlDocument]()
    with suppress(_Unreadable):  # A finding says why.
        for document in reader.documents(reader.text(content)):
            documents.append(document)
    return YamlFile(tuple(documents), tuple(reader.findings))


def is_storable(text: str) -> bool:
    """Whether a text can go on a log: no NUL, nothing that is not Unicode."""
    return "\0" not in text and (text.isascii() or _SURROGATE.search(text) is None)


class _Unreadable(Exception):
    """The rest of the file is not read."""


class _Reader:
    """Reads one file."""

    def __init__(self, file: str) -> None:
        self.findings = list[Finding]()
        self._file = file
        self._count = 0
        self._events: Iterator[ev.Event] = iter(())
        self._start_document()

    def text(self, content: bytes | str) -> str:
        """The content as text that may be parsed."""
        size = len(content if isinstance(content, bytes) else content.encode(errors="replace"))
        if size > MAX_FILE_BYTES:
            limit = f"at most {MAX_FILE_BYTES} bytes"
            self._stop(TOO_LARGE, START, "the file is too large", found=f"{size} bytes", expected=limit)
        text = self._decoded(content).removeprefix("\ufeff")
        bad = _NOT_PRINTABLE.search(text)
        if bad is not None:
            at = _end_of(text[: bad.start()])
            self._stop(NOT_TEXT, at, "a control character", found=repr(bad[0]), fix="take it out")
        return text

    def documents(self, text: str) -> Iterator[YamlDocument]:
        try:
            self._events = yaml.parse(text, Loader=_Loader)
            for event in self._events:
                if isinstance(event, ev.DocumentStartEvent):
                    yield self._document()
        except yaml.YAMLError as error:
            self._stop(SYNTAX, *_syntax(error, text))

    def _document(self) -> YamlDocument:
        self._start_document()
        data = self._value(next(self._events), ())
        return YamlDocument(
            file=self._file,
            data=data,
            values=self._values,
            keys=self._keys,
            bare=frozenset(self._bare),
            refused=frozenset(self._refused),
        )

    def _start_document(self) -> None:
        self._values = dict[Path, Position]()
        self._keys = dict[Path, Position]()
        self._bare = set[Path]()
        self._refused = set[Path]()

    def _decoded(self, content: bytes | str) -> str:
        if isinstance(content, str):
            return content
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            at = _end_of(content[: error.start].decode())
            self._stop(NOT_TEXT, at, "the file is not UTF-8", fix="save it as UTF-8")

    def _value(self, event: ev.Event, path: Path) -> Json:
        self._values[path] = _begin(event)
        self._check_limits(event, len(path) + isinstance(event, ev.CollectionStartEvent))
        if not self._is_bare(event):
            self._refused.add(path)
        match event:
            case ev.ScalarEvent():
                return self._scalar(event, path)
            case ev.SequenceStartEvent():
                return self._sequence(path)
            case ev.MappingStartEvent():
                return self._mapping(event, path)
        return None  # An alias, which is refused.

    def _sequence(self, path: Path) -> list[Json]:
        items = list[Json]()
        while not isinstance(event := next(self._events), ev.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, mapping: ev.MappingStartEvent, path: Path) -> dict[str, Json]:
        pairs = dict[str, Json]()
        while not isinstance(event := next(self._events), ev.MappingEndEvent):
            key = self._key(event, path)
            value = next(self._events)
            if key is None:  # Its value has no place.
                self._pass_over(value, path)
                continue
            place = (*path, key)
            self._keys[place] = _begin(event)
            if mapping.flow_style and isinstance(value, ev.ScalarEvent) and not value.value:
                self._bare.add(place)
            pairs[key] = self._value(value, place)
        return pairs

    def _key(self, event: ev.Event, path: Path) -> str | None:
        """The key, or None for what cannot be one."""
        bare = self._is_bare(event)
        if not isinstance(event, ev.ScalarEvent):
            self._pass_over(event, path)
            if bare:
                fix = (
                    "put a text with {{ }} in it in quotes" if isinstance(event, ev.MappingStartEvent) else ""
                )
                self._found(BAD_KEY, _begin(event), "a key has to be a text", fix=fix)
            return None
        return event.value if bare and self._is_good_key(event, (*path, event.value)) else None

    def _is_good_key(self, event: ev.ScalarEvent, place: Path) -> bool:
        text, at, before = event.value, _begin(event), len(self.findings)
        if not event.style and text == "<<":
            self._found(NOT_PLAIN, at, "merge keys are not allowed", fix="write the values out")
        elif not isinstance(self._meaning(event), str):
            fix = f"put it in quotes: '{text}'"
            self._found(BAD_KEY, at, "a key has to be a text", found=short(text), fix=fix)
        elif place in self._keys:
            first = self._keys[place]
            message = f"the key {short(text)} stands here twice; first at {first}"
            self._found(TWICE, at, message, fix="keep one of them")
        return len(self.findings) == before

    def _pass_over(self, event: ev.Event, path: Path) -> None:
        depth = 0
        while True:
            depth += isinstance(event, ev.CollectionStartEvent)
            depth -= isinstance(event, ev.CollectionEndEvent)
            if not depth:
                return
            self._check_limits(event, len(path) + depth)
            event = next(self._events)

    def _scalar(self, event: ev.ScalarEvent, path: Path) -> Scalar:
        before = len(self.findings)
        meaning = self._meaning(event)
        if len(self.findings) > before:
            self._refused.add(path)
        return meaning

    def _meaning(self, event: ev.ScalarEvent) -> Scalar:
        text, at = event.value, _begin(event)
        if not is_storable(text):
            self._found(NOT_TEXT, at, "the text has a character that cannot be stored", found=short(text))
        if event.style:
            return text
        try:
            return scalar_of(text)
        except NotJson as error:
            fix = "put it in quotes if it is a text"
            self._found(NOT_JSON, at, str(error), found=short(text), fix=fix)
            return text

    def _is_bare(self, event: ev.Event) -> bool:
        """Whether the value is what it says, and nothing more; a finding if not."""
        anchor, tag, at = getattr(event, "anchor", None), getattr(event, "tag", None), _begin(event)
        if isinstance(event, ev.AliasEvent):
            fix = "write the value out"
            self._found(NOT_PLAIN, at, "aliases are not allowed", found=f"*{anchor}", fix=fix)
        elif anchor is not None:
            self._found(NOT_PLAIN, at, "anchors are not allowed", found=f"&{anchor}", fix="take it out")
        elif tag is not None:
            self._found(NOT_PLAIN, at, "tags are not allowed", found=short(tag), fix="take it out")
        return anchor is None and tag is None

    def _check_limits(self, event: ev.Event, depth: int) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            limit = f"at most {MAX_VALUES} in a file"
            self._stop(TOO_LARGE, _begin(event), "there are too many values", expected=limit)
        if depth > MAX_DEPTH:
            limit = f"at most {MAX_DEPTH} levels"
            self._stop(TOO_LARGE, _begin(event), "it is nested too deeply", expected=limit)

    def _found(
        self, code: str, at: Position, message: str, *, found: str = "", expected: str = "", fix: str = ""
    ) -> None:
        if len(self.findings) >= MAX_FINDINGS:
            raise _Unreadable
        self.findings.append(
            Finding(
                code=code,
                message=message,
                file=self._file,
                line=at.line,
                column=at.column,
                found=found,
                expected=expected,
                fix=fix,
            )
        )

    def _stop(
        self, code: str, at: Position, message: str, fix: str = "", *, found: str = "", expected: str = ""
    ) -> NoReturn:
        self._found(code, at, message, found=found, expected=expected, fix=fix)
        raise _Unreadable


def _begin(event: ev.Event) -> Position:
    mark = event.start_mark
    return START if mark is None else Position(mark.line + 1, mark.column + 1)


def _end_of(text: str) -> Position:
    lines = f"{text}.".splitlines()
    return Position(len(lines), len(lines[-1]))


def _syntax(error: yaml.YAMLError, text: str) -> tuple[Position, str, str]:
    """Where the text is not YAML, what the parser says, and what to do."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    problem = str(getattr(error, "problem", None) or "this is not YAML")
    if mark is None:
        return START, problem, ""
    at, lines = Position(mark.line + 1, mark.column + 1), text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1] and not line[: mark.column].strip():
        return at, "a tab cannot indent", "indent with spaces"
    if "${" in line or "{{" in line:
        return at, problem, "put a text with { in it in quotes"
    return at, problem, "put a text with `: ` in it in quotes" if problem.startswith("mapping values") else ""
