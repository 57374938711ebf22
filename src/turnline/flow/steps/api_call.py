"""`api_call`: one HTTP request to another system, and what becomes of its answer (F11).

Rule 1: `_api_status_code` is that of the last call, always; a call that got no answer sets
it to None. So a call that fails is returned, with what an exception would have set. What
is refused before anything is sent is raised: it was no call.

Rule 2: a status from 400 on is the signal `http_<status>` where the step has a route for
it, else `error`. Nothing of such an answer goes into the context. `retry` decides by the status.

Rule 3: headers are rendered for the wire and go nowhere else. What comes back of their
secrets (some systems repeat what they were sent) is masked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
import msgspec

from turnline.agent.variables import masked
from turnline.errors import BadStepValue, CallFailed, ParseFailed
from turnline.flow.definition.steps import ApiCallStep
from turnline.flow.exchange import HttpAnswer, HttpRequest, Limits, address_of, checked_headers, exchange
from turnline.flow.output import Written, parsed, read, wants_json, written
from turnline.flow.values import filled, headers, render, secrets_of, without
from turnline.flow.work import StepResult, StepWork

TIMEOUT_SECONDS: Final = 30.0
"""For all of it, redirects included, where the step has no timeout of its own."""
FIRST_FAILURE: Final = 400
_UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


async def perform(work: StepWork[ApiCallStep]) -> StepResult:
    asked, services = _request(work), work.services
    block = work.step.api_call
    limits = Limits(
        max_bytes=block.max_bytes,
        allow_private=block.allow_private or services.allow_private,
        resolve=services.resolve_host,
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS if work.step.timeout is None else None):
            answer = await exchange(asked, limits, services.http_transport)
    except TimeoutError:
        return _failed("timeout", f"{asked.called} failed: no answer in {TIMEOUT_SECONDS:g} s.", None)
    except CallFailed as failed:
        return _failed("error", str(failed), failed.status)
    if answer.status >= FIRST_FAILURE:
        named = f"http_{answer.status}"
        signal = named if named in work.step.routes else "error"
        return _failed("error", f"{asked.called} answered {answer.status}.", answer.status, signal=signal)
    return _answered(work, asked, answer)


def _failed(kind: str, message: str, status: int | None, *, signal: str = "") -> StepResult:
    return StepResult(
        signal=signal or kind,
        private={"_api_status_code": status, "_last_error": message, "_last_error_type": kind},
        body=message,
        status=status if status is not None and status >= FIRST_FAILURE else None,
    )


def _answered(work: StepWork[ApiCallStep], asked: HttpRequest, answer: HttpAnswer) -> StepResult:
    try:
        kept = _written(work, answer)
    except ParseFailed as failed:
        return _failed("parse_error", str(failed), answer.status)
    if kept.dropped:
        work.dropped("api_call", kept.dropped)
    return StepResult(
        signal=kept.signal,
        updates=kept.updates,
        private={"_api_status_code": answer.status},
        body=f"{asked.called} answered {answer.status}.",
    )


# --- the request ---


def _request(work: StepWork[ApiCallStep]) -> HttpRequest:
    block = work.step.api_call
    url = address_of(render(block.url, work.public, at="api_call.url"), at="api_call.url")
    given = headers(block.headers, work.public, work.services.secret, at="api_call.headers")
    content, kind = _content(work)
    added = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "turnline", **kind}
    if block.method in _UNSAFE:
        added["Idempotency-Key"] = work.key
    named = {name.lower() for name in given}
    ours = {name: value for name, value in added.items() if name.lower() not in named}
    return HttpRequest(
        method=block.method,
        url=_with_query(url, filled(block.query, work.public, at="api_call.query")),
        headers=checked_headers({**ours, **given}, at="api_call.headers"),
        content=content,
    )


def _content(work: StepWork[ApiCallStep]) -> tuple[bytes, dict[str, str]]:
    """The body, and the header that says what it is."""
    block = work.step.api_call
    if block.json_ is not None:
        value = filled(block.json_, work.public, at="api_call.json")
        return msgspec.json.encode(value), {"Content-Type": "application/json"}
    if block.body is not None:
        text = render(block.body, work.public, at="api_call.body")
        return text.encode(), {"Content-Type": "text/plain; charset=utf-8"}
    return b"", {}


def _with_query(url: httpx2.URL, query: Mapping[str, Any]) -> httpx2.URL:
    pairs = [pair for name, value in query.items() for pair in _pairs(name, value)]
    if not pairs:
        return url
    return url.copy_with(query=b"&".join(filter(None, (url.query, urlencode(pairs).encode()))))


def _pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A parameter's values as text: a list is several, and None is none."""
    at = f"api_call.query.{name}"
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, list | dict):
            raise BadStepValue(at, found="with a list or an object inside", expected="texts and numbers")
        if one is None:
            continue
        text = one if isinstance(one, str) else msgspec.json.encode(one).decode()
        if any(mark in name + text for mark in "\r\n\0"):
            raise BadStepValue(at, found="with a line break", expected="one line")
        yield name, text


# --- the answer ---


def _written(work: StepWork[ApiCallStep], answer: HttpAnswer) -> Written:
    output, step = work.step.api_call.output, work.step.id
    if not answer.body and not wants_json(output):
        return Written()
    secrets = secrets_of(work.step.api_call.headers, work.services.secret)
    text = masked(_text(answer), *secrets)
    as_json = output.format is None and "json" in answer.headers.get("content-type", "").lower()
    found = parsed(text, step=step) if as_json else read(output, text, step=step)
    return written(output, without(found, secrets), step=step)


def _text(answer: HttpAnswer) -> str:
    """The body as text. Whatever is no text of its encoding is replaced: JSON refuses that, text shows it."""
    kind = answer.headers.get("content-type", "").lower()
    _, _, charset = kind.partition("charset=")
    try:
        return answer.body.decode(charset.split(";")[0].strip("\"' ") or "utf-8", errors="replace")
    except (LookupError, UnicodeError):
        return answer.body.decode(errors="replace")
