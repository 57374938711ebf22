"""Starting a run for a caller: checked input, once for each idempotency key (F1, F6).

A key belongs to its caller: the same key of another caller is another key. A token says who the caller is.
Without one, the caller is the address that the request came from together with what it sent
(docs/decisions/anonymous-keys.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

from starlette.requests import Request

from turnline.core.envelope import JsonObject
from turnline.core.json import size_of
from turnline.errors import BadDraft, BadSpec, UnknownRun
from turnline.flow.body import checked_body
from turnline.flow.definition.flow import Flow, digest
from turnline.flow.fields import Problem
from turnline.server.auth.principal import Principal
from turnline.server.house import House
from turnline.server.problems import BAD_REQUEST, TOO_LARGE, RequestRefused, invalid
from turnline.threads import off_the_loop

KEY_HEADER: Final = "Idempotency-Key"
_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")
_PREFIX: Final = "key-"


async def checked(
    flow: Flow, data: JsonObject, *, within: Sequence[str], in_path: Collection[str] = ()
) -> JsonObject:
    """Return the input with its defaults, as the trigger says. Reserved keys pass: `start` drops them."""
    clean, problems = await off_the_loop(partial(checked_body, flow), data, size=size_of(data))
    if problems:
        raise invalid([_placed(one, within, in_path) for one in problems])
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


async def start(
    house: House,
    flow: Flow,
    data: JsonObject,
    principal: Principal,
    *,
    key: str = "",
    peer: str = "",
    labels: Mapping[str, str] | None = None,
) -> str:
    """Start a run, or find the one that its caller started with this key.

    `peer` is the address of the caller. Raises `RunConflict` for other input of the same user.
    """
    runs = house.runtime.runs
    user_id = principal.user_id or None
    try:
        if not key:
            with house.runtime.open_runs.starting(flow.name, principal.user_id):
                return await runs.start(flow, data, user_id=user_id, labels=labels)
        caller = (peer, digest(data)) if principal.is_anonymous else (principal.user_id,)
        run_id = run_id_for(flow.name, key, *caller)
        if await _is_there(house, run_id):
            return await runs.start(flow, data, run_id=run_id, user_id=user_id, labels=labels)
        with house.runtime.open_runs.starting(flow.name, principal.user_id):
            return await runs.start(flow, data, run_id=run_id, user_id=user_id, labels=labels)
    except (BadDraft, BadSpec) as error:
        # It was good JSON; what is left is a size or a depth that no line of the log holds.
        message = f"the input is {error.found}, with what the run adds to it; expected {error.expected}."
        raise RequestRefused(TOO_LARGE, "too_large", message) from None


def _placed(problem: Problem, within: Sequence[str], in_path: Collection[str]) -> Problem:
    place = ["path"] if problem.location and problem.location[0] in in_path else within
    return Problem((*place, *problem.location), problem.message)


async def _is_there(house: House, run_id: str) -> bool:
    try:
        await house.runtime.runs.state(run_id)
    except UnknownRun:
        return False
    return True
