"""Which parts of a line are structure, and which can be erased (Y1)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from turnline.core import event_types as ev
from turnline.core.codec import STRUCTURE, erased_lines, is_code, is_id, join, split
from turnline.core.directory import EV_PARTICIPANT_REGISTERED, EV_PARTICIPANT_REMOVED, EV_USER_SEEN
from turnline.core.envelope import JsonObject
from turnline.testing.lines import erased_line, line

SECRET = "Anna Miller"
"""Stands in every place of a line that can be erased."""

FORK = {"channel": "c0", "seq": 4, "log": "l1"}
FLOW = {"name": "refund", "digest": "d1", "at": [["each", "steps"]], "pins": {"refund": "d1"}}
MEMBER = {"agent_id": "a-1", "kind": "human", "takes_turns": False, "played_by": "a-2", "asks": "support"}
USAGE = {"requests": 1, "input_tokens": 10, "output_tokens": 2, "cost": 0.5}
TURN = {"agent_id": "a-1", "turn": 3}
TASK: tuple[JsonObject, JsonObject] = ({"task_id": "t"}, {"title": SECRET, "note": SECRET})

LINES: dict[str, tuple[JsonObject, JsonObject]] = {
    ev.EV_CHANNEL_INVITE: (
        {
            **{"channel_id": "c1", "type": "workflow", "creator_id": "a-1", "invited": ["a-2"]},
            **{"expectations": [{"name": "turn_within", "seconds": 9.0, "handler": "warn"}]},
            **{"ttl_seconds": 60.0, "ack_timeout_seconds": 3.0, "parent_id": "c0", "depth": 1},
            **{"max_depth": 3, "max_runs": 7, "forked_from": FORK, "traceparent": "00-1-2-01", "log": "l1"},
            "participants": [MEMBER],
            "knobs": {"flow": {**FLOW, "retry_of": "c9", "is_untrusted": True}},
        },
        {
            **{"labels": {"customer": SECRET}, "message": SECRET},
            "participants": [{"name": SECRET}],
            "knobs": {
                **{"flow": {"private": {"_user_id": SECRET}, "input": SECRET}},
                **{"graph": {"initial_speaker": SECRET}, "context_vars": {"who": SECRET}, "own": SECRET},
            },
        },
    ),
    ev.EV_CHANNEL_INVITE_ACK: ({"agent_id": "a-1"}, {"note": SECRET}),
    ev.EV_CHANNEL_INVITE_REJECT: ({"agent_id": "a-1"}, {"reason": SECRET}),
    ev.EV_CHANNEL_OPENED: ({}, {"note": SECRET}),
    ev.EV_CHANNEL_FORKED: (
        {"forked_from": FORK, "by": "operator", "for": "u1"},
        {"private_updates": {"_user_id": SECRET}},
    ),
    ev.EV_CHANNEL_CHILD: ({"child": "c2", "parent": "c1", "run": True, "by": "a-1"}, {"note": SECRET}),
    ev.EV_CHANNEL_CLOSED: ({"by": "a-1", "awaiting": ["a-2"]}, {"reason": SECRET}),
    ev.EV_CHANNEL_EXPIRED: ({"reason": "ttl_expired"}, {"note": SECRET}),
    ev.EV_TURN_CLAIMED: (
        {**TURN, "worker": "vm:1/a-1", "lease_seconds": 60.0, "alone": True, "replaces": 4, "heard": 5},
        {"note": SECRET},
    ),
    ev.EV_TURN_RELEASED: ({}, {"note": SECRET}),
    ev.EV_TURN_RENEWED: ({}, {"note": SECRET}),
    ev.EV_TURN_MODEL: (
        {
            "entry": {"type": "model", "usage": USAGE},
            **{"usage": USAGE, "summary": {"agent_id": "a-1", "upto": 9}},
        },
        {
            "entry": {
                "text": SECRET,
                **{
                    "calls": [{"call_id": "1", "tool": "pay", "arguments": {"to": SECRET}}],
                    "raw": {"a": SECRET},
                },
            },
            "summary": {"text": SECRET},
        },
    ),
    ev.EV_TURN_TOOL: (
        {"entry": {"type": "attempt", "call_id": "1", "attempt": 2}},
        {"entry": {"tool": "pay", "text": SECRET, "context": {"to": SECRET}, "reason": SECRET}},
    ),
    ev.EV_TURN_ONCE: ({"call": "1.1"}, {"key": SECRET, "result": SECRET}),
    ev.EV_TURN_PAUSED: (
        {
            **TURN,
            **{"reason": "person", "key": "t-1", "seconds": 5.0, "until": "2030-01-01T00:00:00+00:00"},
            **{"times_out": True, "questions": ["q"], "children": ["c2"]},
        },
        {"data": {"title": SECRET, "error": {"type": "X", "message": SECRET}}},
    ),
    ev.EV_TURN_RESUMED: ({"pause": 9, "by": "operator", "event": "paid"}, {"data": {"who": SECRET}}),
    ev.EV_TURN_ABANDONED: (TURN, {"note": SECRET}),
    ev.EV_TURN_FAILED: (
        {**TURN, "claims": 2, "absent": ["a-2"], "error": {"type": "ValueError"}},
        {"error": {"message": SECRET}, "private_updates": {"_last_error": SECRET}},
    ),
    ev.EV_EXPECTATION_VIOLATED: (
        {"expectation": 0, "name": "turn_within", "seconds": 9.0, "handler": "warn", "since": 3},
        {"note": SECRET},
    ),
    ev.EV_TIMER_FIRED: ({"pause": 9}, {"note": SECRET}),
    ev.EV_TASK_STARTED: TASK,
    ev.EV_TASK_PROGRESS: TASK,
    ev.EV_TASK_COMPLETED: TASK,
    ev.EV_TASK_FAILED: TASK,
    ev.EV_HUMAN_REQUESTED: (
        {"request_id": "q", "turn": 3, "call": "1.1", "position": 1, "group": "support", "expires": 60.0},
        {"question": SECRET, "about": {"who": SECRET}},
    ),
    ev.EV_HUMAN_ANSWERED: (
        {"request_id": "q", "pause": 9, "by": "u1", "for": "a-1", "group": "support"},
        {"answer": {"name": SECRET}},
    ),
    ev.EV_PACKET: (
        {"format": "json", "routing": {"kind": "handoff"}, "usage": USAGE},
        {
            **{"body": SECRET, "context_updates": {"who": SECRET}, "context_deletes": [SECRET]},
            **{"private_updates": {"_who": SECRET}, "private_deletes": [SECRET]},
            "routing": {key: SECRET for key in ("target", "tool", "reason", "signal", "summary")},
        },
    ),
    ev.EV_PAYLOAD_ERASED: ({"lines": [[1, 2]], "by": "operator", "reason": "requested"}, {}),
    ev.EV_LOG_SEALED: ({"log": "l-1", "upto": 9, "ends": [["c1", 3, "ab"]]}, {}),
    ev.EV_LOG_REPAIRED: ({"first": 2, "lost": [[2, 3]]}, {}),
    ev.EV_LINE_LOST: ({}, {}),
    EV_PARTICIPANT_REGISTERED: (
        {"agent_id": "a-1"},
        {"passport": {"name": SECRET}, "resume": {"summary": SECRET}, "rule": {"a": SECRET}, "user": SECRET},
    ),
    EV_PARTICIPANT_REMOVED: ({"agent_id": "a-1", "reason": "name_reclaimed"}, {"note": SECRET}),
    "audit.channel_closed": (
        {
            **{"channel_id": "c1", "seq": 9, "agent_id": "a-1", "turn": 3, "forked_from": FORK},
            **{"handler": "warn", "by": "a-1", "count": 2, "seconds": 0.5, "source": "event"},
        },
        {
            "reason": SECRET,
            "name": SECRET,
            "who": SECRET,
            "because": SECRET,
            "error": SECRET,
            "keys": [SECRET],
        },
    ),
}
"""Event type -> all that is structure, all that is content."""


def test_every_type_with_structure_has_a_row_here() -> None:
    assert LINES.keys() == {*STRUCTURE, "audit.channel_closed"}


@pytest.mark.parametrize("event_type", LINES)
def test_after_erasing_only_the_structure_remains(event_type: str) -> None:
    structure, content = LINES[event_type]

    assert split(event_type, join(structure, content)) == (structure, content)
    assert SECRET.encode() not in msgspec.json.encode(structure)


@pytest.mark.parametrize(
    "event_type", [ev.EV_TEXT, ev.EV_CONTEXT_SET, EV_USER_SEEN, "acme.note", "flow.defined"]
)
def test_a_type_without_a_row_is_all_content(event_type: str) -> None:
    data = {"text": SECRET, "agent_id": "a-1", "turn": 3, "reason": "done"}

    assert split(event_type, data) == ({}, data)


@pytest.mark.parametrize(
    "reason",
    ["turn_failed", "completed", "expectation_violated:turn_within", "ttl_expired", "x2"],
)
def test_a_reason_that_is_a_code_is_structure(reason: str) -> None:
    assert is_code(reason)
    assert split(ev.EV_CHANNEL_CLOSED, {"reason": reason}) == ({"reason": reason}, {})


@pytest.mark.parametrize(
    "reason",
    [
        *("Anna is happy", "Anna", "done.", "", "a b", "done\n", "näher", "a:b:c", ":a", "a:", "x" * 65),
        *(None, 7, ["done"], {"done": 1}),
    ],
)
def test_a_reason_that_is_not_a_code_is_content(reason: object) -> None:
    assert not is_code(reason)
    assert split(ev.EV_CHANNEL_CLOSED, {"reason": reason}) == ({}, {"reason": reason})


@pytest.mark.parametrize("who", ["Anna Miller", "anna@example.com", "", "x" * 65, "an\n", 7, None, ["a"]])
def test_a_person_that_is_not_named_by_an_id_is_content(who: object) -> None:
    assert not is_id(who)
    assert split(ev.EV_HUMAN_ANSWERED, {"by": who}) == ({}, {"by": who})


def test_usage_is_structure_as_far_as_it_is_numbers() -> None:
    usage = {"requests": 1, "cost": SECRET, "note": SECRET}

    assert split(ev.EV_PACKET, {"usage": usage}) == (
        {"usage": {"requests": 1}},
        {"usage": {"cost": SECRET, "note": SECRET}},
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def _keys_in(value: object) -> set[str]:
    if isinstance(value, list):
        return {key for one in value for key in _keys_in(one)}
    if isinstance(value, dict):
        return {*value, *(key for one in value.values() for key in _keys_in(one))}
    return set()


KEYS = sorted({key for pair in LINES.values() for one in pair for key in _keys_in(one)})
"""Every key that a line has somewhere."""

objects = st.recursive(
    st.dictionaries(st.sampled_from(KEYS), values, max_size=4),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYS), inner | st.lists(inner | values, max_size=3) | values, max_size=5
    ),
    max_leaves=12,
)


@given(event_type=st.sampled_from([*LINES, ev.EV_TEXT]), data=objects)
def test_any_data_is_whole_again_when_joined(event_type: str, data: JsonObject) -> None:
    """Also where a key of the structure has a value of an unexpected kind."""
    assert join(*split(event_type, data)) == data


@pytest.mark.parametrize(
    "odd", [None, 7, "text", [], {}, [1], [{}], [{}, 1], [[]], {"flow": 1}, [{"name": 1}, {}]]
)
@pytest.mark.parametrize("event_type", LINES)
def test_an_unexpected_kind_at_any_known_key_is_whole_again_when_joined(event_type: str, odd: object) -> None:
    for key in KEYS:
        assert join(*split(event_type, {key: odd, "rest": 1})) == {key: odd, "rest": 1}


@pytest.mark.parametrize("event_type", LINES)
def test_splitting_and_joining_leave_the_data_alone(event_type: str) -> None:
    data = join(*LINES[event_type])
    before = msgspec.json.encode(data)
    structure, content = split(event_type, data)
    halves = msgspec.json.encode((structure, content))

    join(structure, content)

    assert (msgspec.json.encode(data), msgspec.json.encode((structure, content))) == (before, halves)


def test_a_line_about_erased_content_names_ranges() -> None:
    assert erased_lines(erased_line("c", 9, (1, 2), (5, 5))) == [(1, 2), (5, 5)]


@pytest.mark.parametrize("lines", [None, 3, "1-2", [], [1], [[1]], [[1, "2"]], [[1, 2, 3]], [None]])
def test_what_is_not_a_range_names_no_line(lines: object) -> None:
    assert erased_lines(line("c", 1, data={"lines": lines})) == []
