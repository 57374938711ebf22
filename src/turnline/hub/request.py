"""What `open` was asked for -> the spec of a channel."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from math import isfinite
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnline.core.channel import (
    ACK_TIMEOUT_SECONDS,
    CHILD_MARK,
    MAX_DEPTH,
    MAX_RUNS,
    MOST_DEPTH,
    MOST_RUNS,
    ChannelSpec,
    Expectation,
    Participant,
    check_id,
    is_child_id,
    turn_of,
)
from turnline.core.directory import Directory
from turnline.core.envelope import JsonObject
from turnline.core.governance import Registration
from turnline.core.json import MAX_BYTES, normalised, size_of
from turnline.core.parts import FilePart
from turnline.core.questions import can_relay
from turnline.core.state import State
from turnline.core.step_targets import step_participants
from turnline.errors import BadDraft, BadSpec


class OpenRequest(Struct, frozen=True, kw_only=True):
    """What somebody asks to open."""

    type: str
    target: list[str] = []
    """Whom to invite, by id or name."""
    knobs: JsonObject = {}
    ttl_seconds: float | None = None
    message: str | None = None
    files: list[FilePart] = []
    """What the channel begins with: uploaded just before (`Files.add_before`), or the parent's."""
    labels: dict[str, str] = {}
    expectations: list[Expectation] | None = None
    ack_timeout_seconds: float = ACK_TIMEOUT_SECONDS
    channel_id: str | None = None
    """Chosen by the opener: opening the same id again gives the channel that is there."""
    parent_id: str | None = None
    opener_takes_turns: bool = True
    """False: the opener only passes the message, and round robin skips it (N8)."""
    max_depth: int = MAX_DEPTH
    max_runs: int = MAX_RUNS
    """The limits of the tree below this channel. A channel with a parent has its parent's."""
    steps: list[Participant] = []
    """Participants that are not in the directory and are not invited: the opener plays them."""


def spec_of(
    request: OpenRequest,
    opener: Registration,
    directory: Directory,
    *,
    channel_id: str,
    parent: State | None,
    traceparent: str | None = None,
    log_name: str = "",
) -> ChannelSpec:
    """Return the spec of the channel that a `checked` request asks for, with its names looked up."""
    invited = [directory.resolve(name, asked_by=opener) for name in request.target]
    first = replace(_member(opener), takes_turns=request.opener_takes_turns)
    members = [first, *(_member(one) for one in invited)]
    members += [replace(one, played_by=opener.agent_id) for one in request.steps]
    members += step_participants(request.knobs.get("graph"), opener.agent_id)
    return ChannelSpec(
        channel_id=channel_id,
        type=request.type,
        creator_id=opener.agent_id,
        participants=members,
        invited=[one.agent_id for one in invited],
        knobs=request.knobs,
        expectations=request.expectations,
        labels=request.labels,
        ttl_seconds=opener.rule.ttl_seconds if request.ttl_seconds is None else request.ttl_seconds,
        ack_timeout_seconds=request.ack_timeout_seconds,
        message=request.message,
        files=request.files,
        parent_id=request.parent_id,
        depth=0 if parent is None else parent.spec.depth + 1,
        max_depth=request.max_depth if parent is None else parent.spec.max_depth,
        max_runs=request.max_runs if parent is None else parent.spec.max_runs,
        asks_above=_asks_above(channel_id, members, parent),
        traceparent=traceparent,
        log=log_name,
    )


def _asks_above(channel_id: str, members: Iterable[Participant], parent: State | None) -> bool:
    """Return whether its questions go up: a turn opens it, it has no people, and that turn can ask."""
    if parent is None or any(one.is_person for one in members):
        return False
    return turn_of(channel_id, parent.channel_id) == parent.turn and can_relay(parent)


def checked(request: OpenRequest) -> OpenRequest:
    """Return the request as it would read back. Raises `BadSpec` where it would not, whoever is asked."""
    rest = _check_types(request)
    _check(request)
    return replace(request, knobs=_knobs(request, rest))


def names(target: str | Iterable[str] | None) -> list[str]:
    """One name, several, or none."""
    if target is None:
        return []
    return [target] if isinstance(target, str) else list(target)


def _member(one: Registration) -> Participant:
    return Participant(one.agent_id, one.name, one.passport.kind)


def _check_types(request: OpenRequest) -> JsonObject:
    """Return all but the knobs as data. Refuse what would not read back as it was given (E2)."""
    try:
        plain: JsonObject = msgspec.to_builtins(replace(request, knobs={}))
        msgspec.convert(plain, OpenRequest)
    except (msgspec.ValidationError, TypeError) as error:
        what, _, where = str(error).partition(" - at `$.")
        expected = what.removeprefix("Expected ")
        raise BadSpec(where.rstrip("`") or "open", found="of another type", expected=expected) from error
    return plain


def _check(request: OpenRequest) -> None:
    if request.channel_id is not None:
        _check_channel_id(request.channel_id, request.parent_id)
    limits = (("max_depth", request.max_depth, MOST_DEPTH), ("max_runs", request.max_runs, MOST_RUNS))
    for field, limit, most in limits:
        if not 0 <= limit <= most:
            raise BadSpec(field, found=str(limit), expected=f"a whole number up to {most}")
    for field, seconds in (("ttl", request.ttl_seconds), ("ack_timeout", request.ack_timeout_seconds)):
        if seconds is not None and not (isfinite(seconds) and seconds > 0):
            raise BadSpec(field, found=repr(seconds), expected="seconds above 0")


def _check_channel_id(channel_id: str, parent_id: str | None) -> None:
    check_id(channel_id, "channel_id")
    expected = ""
    if channel_id.startswith("_"):
        expected = "one that does not start with '_'"
    elif is_child_id(channel_id) and parent_id is None:
        expected = f"one without {CHILD_MARK!r}: such ids are for channels that a turn opens below its own"
    if expected:
        raise BadSpec("channel_id", found=repr(channel_id), expected=expected)


def _knobs(request: OpenRequest, rest: JsonObject) -> JsonObject:
    """Return the knobs as they would read back. `rest` of the request is checked with them."""
    knobs, most = request.knobs, MAX_BYTES
    graph = knobs.get("graph") if isinstance(knobs, dict) else None
    kept = _kept_graphs.get(id(graph))
    if kept is not None and kept[0] is graph:
        knobs, most = without_graph(knobs), MAX_BYTES - kept[1]
    try:
        found: JsonObject = normalised({**rest, "knobs": knobs}, field="", max_bytes=most)["knobs"]
    except BadDraft as error:
        field = error.field.lstrip(".") or "knobs"
        raise BadSpec(field, found=error.found, expected=error.expected) from error
    return found if knobs is request.knobs else {**found, "graph": graph}


MAX_KEPT_GRAPHS: Final = 1024
_kept_graphs: Final[OrderedDict[int, tuple[JsonObject, int]]] = OrderedDict()
"""Identity of a graph that was checked -> the graph, and its size. While it is kept, no other has its id."""


def keep_graph(graph: JsonObject) -> JsonObject:
    """Check a graph that many channels are opened with. `checked` does not look at the returned object again.

    Its caller does not change it.
    """
    kept: JsonObject = normalised({"graph": graph}, field="knobs")["graph"]
    _kept_graphs[id(kept)] = kept, size_of(kept)
    if len(_kept_graphs) > MAX_KEPT_GRAPHS:
        _kept_graphs.popitem(last=False)
    return kept


def without_graph(knobs: JsonObject) -> JsonObject:
    return {key: value for key, value in knobs.items() if key != "graph"}
