"""Documents: what a file says, recognised by `kind`, wherever it lies.

    contents = read_file(text, file="workflows/lead.yaml", environment=os.environ)
    contents.flows[0].position("spec", "steps", 3, "routes")

A workflow may also be a bare list of steps, or `steps:` alone; it is named after its
file then. Data models, tests and graphs are handed on as they are: `mistake.parsed` and
`check.graphs` read them.

Rule 1: every mistake of every document is found, and none is found twice. Whatever the
definition refuses as a whole (two steps of one id, a route to nowhere) is looked for in
the data first, where it has a place.

Rule 2: a path in a definition leads to a line, whatever shape the document has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from turnline.core.study.finding import Severity
from turnline.flow.check.problem import Problem
from turnline.flow.definition.base import NAME, Json
from turnline.flow.definition.flow import END, FAIL, Flow, spelled_out
from turnline.flow.definition.steps import KINDS as STEP_KINDS, canonical_kind
from turnline.flow.environment import filled_in, secrets_filled_in
from turnline.flow.finding import Finding, listed, nearest
from turnline.flow.mistake import BAD_STEPS, Spelling, parsed
from turnline.flow.yaml_document import Path, Position, YamlDocument, read_yaml

WORKFLOW: Final = "Workflow"
MODEL: Final = "ModelDefinition"
TEST: Final = "Test"
GRAPH: Final = "TransitionGraph"
"""Recognised by its shape alone: `to_dict` gives no kind."""
KINDS: Final = (WORKFLOW, MODEL, TEST)

UNKNOWN_DOCUMENT: Final = "TL009"
UNNAMED_FLOW: Final = "TL010"
NOWHERE: Final = "TL017"
SAME_NAME: Final = "TL018"
SAME_TRIGGER: Final = "TL019"
TWO_KINDS: Final = "TL024"
EMPTY: Final = "TL025"

UNNAMED: Final = "unnamed"
"""What a workflow is called until it has a name."""

_PLAIN: Final = {kind.lower(): kind for kind in KINDS}
_STEP_KEYS: Final = frozenset({"id", "runner"})
_BLOCK_OF: Final = {"functional": "runner"}
_BLOCKS: Final = frozenset(_BLOCK_OF.get(kind, kind) for kind in STEP_KINDS)
"""The keys of a step that say what it does."""
_CASE_KEYS: Final = frozenset({"flow", "expect"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFlow:
    """A flow, and where it stands."""

    flow: Flow
    document: YamlDocument
    spelling: Spelling = field(repr=False)

    @property
    def name(self) -> str:
        return self.flow.name

    @property
    def file(self) -> str:
        return self.document.file

    def position(self, *path: str | int) -> Position:
        """Return where a part of the definition stands, or else the nearest thing around it."""
        return self.document.position(self.spelling.path(path))

    def finding(self, problem: Problem) -> Finding:
        """Return a problem of the definition, with its place; variables as they were written."""
        path = self.spelling.path(problem.path)
        texts = problem.message, problem.found, problem.expected, problem.fix
        message, found, expected, fix = (self.document.as_written(text, path) for text in texts)
        return self.document.finding(
            problem.code,
            message,
            path,
            found=found,
            expected=expected,
            fix=fix,
            severity=problem.severity,
            of_key=problem.of_key,
        )


@dataclass(frozen=True, slots=True)
class Contents:
    """What one file holds."""

    flows: list[LoadedFlow] = field(default_factory=list)
    models: list[YamlDocument] = field(default_factory=list)
    tests: list[YamlDocument] = field(default_factory=list)
    graphs: list[YamlDocument] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """What its workflows are called, also those with mistakes."""
    findings: list[Finding] = field(default_factory=list)


def read_file(
    content: bytes | str, *, file: str, environment: Mapping[str, str], stray: Severity = "error"
) -> Contents:
    """Return what a file holds; `stray` is what a document is that is none of ours."""
    read = read_yaml(content, file=file)
    contents = Contents(findings=list(read.findings))
    for document in read.documents:
        filled, findings = filled_in(document, environment)
        contents.findings.extend(findings)
        _read(filled, contents, stray)
    if not read.findings and all(document.data is None for document in read.documents):
        fix = "write a workflow into it, for example: steps: [{id: greet, runner: greet}]"
        message = "the file has no document" if content.strip() else "the file is empty"
        contents.findings.append(Finding(code=EMPTY, message=message, file=file, fix=fix, severity=stray))
    return contents


def clashes(flows: Iterable[LoadedFlow]) -> Iterator[Finding]:
    """Two workflows of one name, or for one request: told of the later one."""
    names, triggers = dict[str, LoadedFlow](), dict[tuple[str, str], LoadedFlow]()
    for loaded in flows:
        first = names.setdefault(loaded.name, loaded)
        if first is not loaded:
            message = f"two workflows are called {loaded.name!r}; the other one is {_seat(first, 'metadata')}"
            yield _clash(SAME_NAME, message, loaded, ("metadata", "name"), "give it another name")
        trigger = loaded.flow.spec.trigger
        if trigger is not None:
            asked = triggers.setdefault((trigger.method, _pattern(trigger.path)), loaded)
            if asked is not loaded:
                there = _seat(asked, "spec", "trigger")
                message = (
                    f"two workflows are started by {trigger.method} {trigger.path}; the other is {there}"
                )
                yield _clash(
                    SAME_TRIGGER, message, loaded, ("spec", "trigger", "path"), "give it another path"
                )


def document_kind(data: Json) -> str | None:
    """Which kind of document `data` is, by what it says or else by its shape; None for none of ours."""
    match data:
        case {"kind": str() as kind}:
            return _PLAIN.get(kind.lower().replace("_", "").replace("-", ""))
        case {"kind": _}:
            return None
        case {"initial_speaker": _, "transitions": _}:
            return GRAPH
        case {"steps": _} | {"spec": {"steps": _}}:
            return WORKFLOW
        case [*items]:
            keys = {key for item in items if isinstance(item, dict) for key in item}
            return WORKFLOW if keys & _STEP_KEYS else TEST if keys & _CASE_KEYS else None
    return None


def _read(document: YamlDocument, contents: Contents, stray: Severity) -> None:
    kind = document_kind(document.data)
    if kind is None:
        contents.findings.extend(_unknown(document, stray))
        return
    if isinstance(document.data, dict) and "kind" in document.data:
        document = replace(document, data={**document.data, "kind": kind})
    match kind:
        case "ModelDefinition":
            contents.models.append(document)
        case "Test":
            contents.tests.append(document)
        case "TransitionGraph":
            contents.graphs.append(document)
        case _:
            _read_flow(document, contents)


def _read_flow(document: YamlDocument, contents: Contents) -> None:
    spelling = _spelling(document)
    mixed, document = _mixed_kinds(document, spelling)
    wrong = [*_wrong_name(document, spelling), *_wrong_steps(document, spelling)]
    flow, mistakes = parsed(Flow, document, spelling)
    contents.findings.extend(mixed + wrong + secrets_filled_in(document))
    contents.findings.extend(one for one in mistakes if not (wrong and one.code == BAD_STEPS))
    name = _get(spelling.data, "metadata", "name")
    if isinstance(name, str):
        contents.names.add(name)
    if flow is not None:
        contents.flows.append(LoadedFlow(flow=flow, document=document, spelling=spelling))


def _spelling(document: YamlDocument) -> Spelling:
    """The document in its long shape, and the way back from there."""
    data = document.data

    def path(long: Path) -> Path:
        if isinstance(data, list):
            return long[2:] if long[:2] == ("spec", "steps") else ()
        if "spec" not in data and "steps" in data and long[:1] == ("spec",):
            return long[1:]
        if "metadata" not in data and long[:1] == ("metadata",):
            return long[1:]
        return long

    return Spelling(spelled_out(data, name=_stem(document)), path)


def _stem(document: YamlDocument) -> str:
    """What a workflow without a name is called."""
    stem = PurePath(document.file).stem
    return stem if re.fullmatch(NAME, stem) else UNNAMED


def _wrong_name(document: YamlDocument, spelling: Spelling) -> Iterator[Finding]:
    place = spelling.path(("metadata", "name"))
    has_name = "metadata" in document.data or (place and place in document.values)
    if not has_name and _stem(document) == UNNAMED:
        message = "the workflow has no name, and cannot have that of its file"
        yield document.finding(UNNAMED_FLOW, message, (), fix="add metadata: {name: ...}, or rename the file")


def _wrong_steps(document: YamlDocument, spelling: Spelling) -> Iterator[Finding]:
    for path, scope in _scopes(_get(spelling.data, "spec", "steps"), ("spec", "steps")):
        yield from _same_ids(document, spelling, path, scope)
        yield from _to_nowhere(document, spelling, path, scope)


def _mixed_kinds(document: YamlDocument, spelling: Spelling) -> tuple[list[Finding], YamlDocument]:
    """Find steps with the blocks of two kinds, or of another kind than they say: one finding each."""
    findings, refused = list[Finding](), set(document.refused)
    for path, scope in _scopes(_get(spelling.data, "spec", "steps"), ("spec", "steps")):
        for place, step in enumerate(scope):
            blocks, missing = _blocks(step)
            if blocks and len(blocks) + len(missing) > 1:
                here = (*path, place)
                refused |= {spelling.path((*here, key)) for key in (*blocks, *missing)}
                message, fix = _mixed(blocks, missing)
                at = spelling.path((*here, blocks[-1]))
                findings.append(document.finding(TWO_KINDS, message, at, fix=fix, of_key=True))
    return findings, replace(document, refused=frozenset(refused))


def _blocks(step: Json) -> tuple[list[str], list[str]]:
    """Return the blocks that a step has, and the block that its kind asks for if it lacks that."""
    blocks = [key for key in step if key in _BLOCKS] if isinstance(step, dict) else []
    kind = canonical_kind(_get(step, "kind"))
    asked = [_block_of(kind)] if isinstance(kind, str) and kind in STEP_KINDS else []
    return blocks, [key for key in asked if key not in blocks]


def _mixed(blocks: list[str], missing: list[str]) -> tuple[str, str]:
    if missing:
        message = f"the step is of kind {_kind_of(missing[0])}, and its block is `{blocks[-1]}:`"
        return message, f"write kind: {_kind_of(blocks[-1])}, or the block `{missing[0]}:`"
    named = " and ".join(f"`{key}:`" for key in blocks)
    return f"a step has one kind, and this one has {named}", "make a step of each"


def _block_of(kind: str) -> str:
    """The key that says what a step of this kind does."""
    return _BLOCK_OF.get(kind, kind)


def _kind_of(block: str) -> str:
    return next((kind for kind, key in _BLOCK_OF.items() if key == block), block)


def _same_ids(document: YamlDocument, spelling: Spelling, path: Path, scope: list[Json]) -> Iterator[Finding]:
    first = dict[str, Position]()
    for place, step in enumerate(scope):
        name, there = _get(step, "id"), spelling.path((*path, place, "id"))
        if not isinstance(name, str):
            continue
        found = document.written.get(there, name)
        if name in (END, FAIL):
            message = f"no step can have the id {found!r}: it is where a run ends"
            yield document.finding(BAD_STEPS, message, there, fix="give it another id")
        elif name in first:
            message = f"two steps have the id {found!r}; the first is at {first[name]}"
            yield document.finding(BAD_STEPS, message, there, fix="give it another id")
        first.setdefault(name, document.position(there))


def _to_nowhere(
    document: YamlDocument, spelling: Spelling, path: Path, scope: list[Json]
) -> Iterator[Finding]:
    named = [(_get(step, "id"), spelling.path((*path, place, "id"))) for place, step in enumerate(scope)]
    ids = {name: document.written.get(there, name) for name, there in named if isinstance(name, str)}
    known = [*ids.values(), END, FAIL]
    for place, step in enumerate(scope):
        routes = _get(step, "routes")
        for signal, target in routes.items() if isinstance(routes, dict) else ():
            if not isinstance(target, str) or target in ids or target in (END, FAIL):
                continue
            there = spelling.path((*path, place, "routes", signal))
            found = document.written.get(there, target)
            yield document.finding(
                NOWHERE,
                f"the signal {signal!r} leads to {found!r}, and no step here is called so",
                there,
                found=found,
                expected=listed(known),
                fix=nearest(found, known) or "name a step of the same list",
            )


def _scopes(steps: Json, path: Path) -> Iterator[tuple[Path, list[Json]]]:
    """Every list of steps, as far as the data has lists where they belong."""
    if not isinstance(steps, list):
        return
    yield path, steps
    for place, step in enumerate(steps):
        here = (*path, place)
        yield from _scopes(_get(step, "for_each", "steps"), (*here, "for_each", "steps"))
        branches = _get(step, "parallel", "branches")
        for name, inner in branches.items() if isinstance(branches, dict) else ():
            yield from _scopes(inner, (*here, "parallel", "branches", name))


def _unknown(document: YamlDocument, stray: Severity) -> Iterator[Finding]:
    data, expected = document.data, f"kind: {', '.join(KINDS)}"
    if data is None:
        return
    kind = _get(data, "kind")
    if kind is None:
        message, fix = "this is none of the documents we know", "say what it is, or move the file elsewhere"
        yield document.finding(UNKNOWN_DOCUMENT, message, (), expected=expected, fix=fix, severity=stray)
        return
    found = document.written.get(("kind",), str(kind))
    fix = nearest(found, KINDS)
    # A manifest of somebody else's (Kubernetes has such) is no mistake in the middle of a project.
    is_other = not fix and "apiVersion" in data
    yield document.finding(
        UNKNOWN_DOCUMENT,
        f"no kind of document is called {found!r}",
        ("kind",),
        found=found,
        expected=expected,
        fix=fix or "use one of these kinds, or move the file elsewhere",
        severity=stray if is_other else "error",
    )


def _get(data: Json, *keys: str) -> Json:
    """What stands there, or None."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _clash(code: str, message: str, loaded: LoadedFlow, path: Path, fix: str) -> Finding:
    place = loaded.spelling.path(path)
    return loaded.document.finding(code, loaded.document.as_written(message, place), place, fix=fix)


def _seat(loaded: LoadedFlow, *path: str) -> str:
    return f"{loaded.file}:{loaded.position(*path)}"


def _pattern(path: str) -> str:
    """A path without the names of its parameters: `/leads/{id}` and `/leads/{lead}` are the same."""
    pieces = path.split("/")
    return "/".join("{}" if piece.startswith("{") and piece.endswith("}") else piece for piece in pieces)
