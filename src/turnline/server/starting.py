"""Starting a run for a caller: checked input, once for each idempotency key (F1, F6).

A key belongs to its caller: the same key of another caller is another key. A token says who the caller is.
Without one, the caller is the address that the request came from together with what it sent
(docs/decisions/http.md).

A flow whose input has files takes a form (multipart/form-data), too. Its fields come before its files: they
are checked before a file is read, and each file goes to the tree of the run that is to be started (Y6). If
the run of the key is there already, files are only compared with those it began with.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b, sha256
from typing import Any, Final

from msgspec.structs import replace
from starlette.requests import Request

from turnline.agent.files import File
from turnline.core.envelope import JsonObject
from turnline.core.json import size_of
from turnline.core.parts import MAX_PARTS, FilePart
from turnline.errors import BadDraft, BadSpec, UnknownRun
from turnline.flow.body import checked_body
from turnline.flow.definition.fields import FieldSpec
from turnline.flow.definition.flow import Flow, digest
from turnline.flow.fields import Problem, allows_media_type, written
from turnline.server.auth.principal import Principal
from turnline.server.house import House
from turnline.server.multipart import FormPart, is_form, open_form
from turnline.server.problems import BAD_REQUEST, TOO_LARGE, RequestRefused, invalid
from turnline.threads import off_the_loop
from turnline.turns.files import describe

KEY_HEADER: Final = "Idempotency-Key"
STRANGERS: Final = "\0"
"""Whom the files of callers without a token count for: they are one user together."""
MAX_NAME_SHOWN: Final = 80
"""Characters of the name of a part in an error."""
_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")
_PREFIX: Final = "key-"
_SEND_A_FORM: Final = "; send the body as multipart/form-data"

FormFields = Sequence[tuple[str, str]]
"""The fields of a form, by name, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a request gives a run to begin with, before it is checked."""

    data: JsonObject
    within: Sequence[str]
    """Where problems of the input are said to be."""
    in_path: Collection[str] = ()
    """The fields that stand in the path."""
    labels: Mapping[str, str] = field(default_factory=dict)


def takes_form(request: Request, flow: Flow) -> bool:
    """Return whether the body is a form, and the flow has files."""
    trigger = flow.spec.trigger
    return trigger is not None and bool(trigger.files) and is_form(request)


async def checked(flow: Flow, given: Given, *, without: Collection[str] = ()) -> JsonObject:
    """Return the input with its defaults, as the trigger says. Reserved keys pass: `start` drops them.

    Problems of the fields in `without` are left out: those of files that have not come yet.
    """
    data, trigger = given.data, flow.spec.trigger
    clean, problems = await off_the_loop(partial(checked_body, flow), data, size=size_of(data))
    problems = [one for one in problems if not one.location or one.location[0] not in without]
    if problems:
        files = {} if trigger is None else trigger.files
        raise invalid([_placed(one, given, files) for one in problems])
    return clean


def idempotency_key(request: Request) -> str:
    """Return the request's key; empty if it has none."""
    keys = request.headers.getlist(KEY_HEADER)
    if not keys:
        return ""
    if len(keys) > 1 or _KEY.fullmatch(keys[0]) is None:
        expected = "one of 1 to 255 printable ASCII characters"
        raise RequestRefused(BAD_REQUEST, "bad_request", f"{KEY_HEADER} cannot be used; expected {expected}.")
    return keys[0]


def run_id_for(flow: str, key: str, *caller: str) -> str:
    """Return the id of the run that a key stands for: one for each flow and caller."""
    parts = (part.encode() for part in (flow, key, *caller))
    told = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return _PREFIX + blake2b(told, digest_size=16, person=b"turnline-run-key").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """One request to start a run."""

    house: House
    flow: Flow
    principal: Principal
    key: str = ""
    peer: str = ""
    """The address of the caller."""
    is_awaited: bool = False
    """Whether the caller is told nothing before the run has ended (see `Runs.held_id`)."""

    async def start(self, given: Given) -> str:
        """Start a run, or find the one that its caller started with this key.

        Raises `RunConflict` for other input of the same user.
        """
        data = await checked(self.flow, given)
        if not self.key:
            held_id = self.house.runtime.runs.held_id(self.flow) if self.is_awaited else ""
            return await self._start("", data, given.labels, held_id=held_id)
        run_id = self._run_id(data)
        return await self._start(run_id, data, given.labels, is_there=await self._is_there(run_id))

    async def start_form(self, request: Request, read: Callable[[FormFields], Given]) -> str:
        """Do the same for a form. `read` gets its fields, before the first file."""
        settings, fields, form = self.house.settings, list[tuple[str, str]](), None
        left = settings.body_bytes
        async with open_form(request, settings) as parts:
            async for part in parts:
                if part.filename:
                    form = form or await self._begin(read(fields))
                    await form.take(part)
                elif form is not None:
                    raise invalid([_problem(part, "expected before the first file")])
                else:
                    fields.append((part.name, await part.text(left)))
                    left -= len(fields[-1][1].encode())
        form = form or await self._begin(read(fields))
        given = form.given
        data = await checked(self.flow, dataclasses.replace(given, data={**given.data, **form.files}))
        return await self._start(form.run_id, data, given.labels, is_there=form.is_there)

    async def _begin(self, given: Given) -> _Form:
        trigger = self.flow.spec.trigger
        fields = {} if trigger is None else trigger.files
        clean = await checked(self.flow, given, without=fields)
        run_id = self._run_id(clean)
        is_there = await self._is_there(run_id)
        with nullcontext() if is_there else self._place():
            pass  # A run that cannot be started is refused before its files are read.
        return _Form(self, fields=fields, given=given, run_id=run_id, is_there=is_there)

    def _run_id(self, data: JsonObject) -> str:
        if not self.key:
            return self.house.runtime.hub.new_id()
        is_anonymous = self.principal.is_anonymous
        caller = (self.peer, digest(data)) if is_anonymous else (self.principal.user_id,)
        return run_id_for(self.flow.name, self.key, *caller)

    async def _is_there(self, run_id: str) -> bool:
        if not self.key:
            return False
        try:
            await self.house.runtime.runs.state(run_id)
        except UnknownRun:
            return False
        return True

    def _place(self, held_id: str = "") -> AbstractContextManager[None]:
        return self.house.runtime.open_runs.starting(self.flow.name, self.principal.user_id, run_id=held_id)

    async def _start(
        self,
        run_id: str,
        data: JsonObject,
        labels: Mapping[str, str],
        *,
        is_there: bool = False,
        held_id: str = "",
    ) -> str:
        start = partial(self.house.runtime.runs.start, self.flow, data, labels=labels)
        user_id = self.principal.user_id or None
        try:
            with nullcontext() if is_there else self._place(held_id):
                return await start(run_id=run_id or None, held_id=held_id, user_id=user_id)
        except (BadDraft, BadSpec) as error:
            # It was good JSON; what is left is a size or a depth that no line of the log holds.
            message = f"the input is {error.found}, with what the run adds to it; expected {error.expected}."
            raise RequestRefused(TOO_LARGE, "too_large", message) from None


class _Form:
    """A form whose fields are known and whose files come."""

    def __init__(
        self,
        starting: Starting,
        *,
        fields: Mapping[str, FieldSpec],
        given: Given,
        run_id: str,
        is_there: bool,
    ) -> None:
        self.files: dict[str, Any] = {}
        """Field -> its file, or its list of files."""
        self.given = given
        self.run_id = run_id
        self.is_there = is_there
        self._starting = starting
        self._fields = fields
        self._count = 0

    async def take(self, part: FormPart) -> None:
        """Keep a file of the input. Raises `RequestRefused` and `BadDraft`."""
        spec = self._fields.get(part.name)
        if spec is None or self._count >= MAX_PARTS:
            expected = f"expected {', '.join(self._fields)}, and at most {MAX_PARTS} files"
            raise invalid([_problem(part, f"no such file; {expected}")])
        self._count += 1
        is_list = spec.type == "array"
        one = spec.items if is_list and spec.items is not None else spec
        if not is_list and part.name in self.files:
            raise invalid([_problem(part, "it is given more than once")])
        file = await self._keep(part, one)
        self.files[part.name] = [*self.files.get(part.name, ()), file] if is_list else file

    async def _keep(self, part: FormPart, spec: FieldSpec) -> FilePart:
        file = File(b"", part.filename, part.media_type)
        wanted = describe(file, f"body.{part.name}")
        if not allows_media_type(spec, wanted.media_type):
            raise invalid([_problem(part, f"expected a file of type {' or '.join(spec.media_types or ())}")])
        pieces = _at_most(part, spec.max)
        if not self.is_there:
            runs, user = self._starting.house.runtime.runs, self._starting.principal.user_id or STRANGERS
            return await runs.add_file(self.run_id, file, pieces=pieces, user=user)
        size, hashing = 0, sha256()
        async for piece in pieces:
            size += len(piece)
            hashing.update(piece)
        return replace(wanted, size=size, digest=hashing.hexdigest())


async def _at_most(part: FormPart, most_bytes: float | None) -> AsyncIterator[bytes]:
    size = 0
    async for piece in part.pieces:
        size += len(piece)
        if most_bytes is not None and size > most_bytes:
            raise invalid([_problem(part, f"expected at most {written(most_bytes)} bytes")])
        yield piece


def _problem(part: FormPart, message: str) -> Problem:
    return Problem(("body", part.name[:MAX_NAME_SHOWN]), message)


def _placed(problem: Problem, given: Given, files: Collection[str]) -> Problem:
    name = problem.location[0] if problem.location else ""
    place = ["path"] if name in given.in_path else given.within
    hint = _SEND_A_FORM if name in files and "expected a file" in problem.message else ""
    return Problem((*place, *problem.location), problem.message + hint)
