"""Y6: a message is a list of parts, and all of a part is content."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.codec import without_content
from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.parts import MAX_PARTS, FilePart, TextPart, files_of, message_data
from turnline.errors import BadDraft

FILE = FilePart(media_type="image/png", name="plan.png", size=3, digest="a" * 64)


def part(**changes: Any) -> JsonObject:
    return {
        "type": "file",
        "media_type": "image/png",
        "name": "plan.png",
        "size": 3,
        "digest": "a" * 64,
    } | changes


def test_a_message_of_one_text_keeps_text_and_any_other_has_parts() -> None:
    assert message_data([TextPart("hello")]) == {"text": "hello"}
    assert message_data([FILE]) == {"parts": [part()]}
    assert message_data([TextPart("a"), TextPart("b")])["parts"][1] == {"type": "text", "text": "b"}


def test_texts_are_read_and_files_are_found() -> None:
    data = message_data([TextPart("look"), FILE, TextPart("here")])

    ev.check_text(data)
    ev.check_packet(data)
    assert ev.body_of("text", data) == ev.body_of("packet", data) == "look\nhere"
    assert files_of("text", data) == files_of("packet", data) == [FILE]
    assert files_of("turn.tool", {"entry": data}) == [FILE]


def test_no_other_line_has_files() -> None:
    data = message_data([FILE])

    assert files_of("acme.note", data) == files_of("context.set", data) == files_of("turn.tool", data) == []
    assert files_of("text", {"parts": [part(size="3"), {"type": "file"}, 7]}) == []
    assert files_of("text", {"parts": "x"}) == files_of("text", {}) == []


@pytest.mark.parametrize(
    "data",
    [
        {"parts": []},
        {"parts": "text"},
        {"parts": [{"type": "text", "text": "alone"}]},
        {"parts": [part()], "text": "twice"},
        {"parts": [part()] * (MAX_PARTS + 1)},
        {"parts": [{"type": "video"}]},
        {"parts": [part(more=1)]},
        {"parts": [part(media_type="png")]},
        {"parts": [part(media_type="Image/PNG")]},
        {"parts": [part(media_type="text/html; charset=utf-8")]},
        {"parts": [part(media_type="text/html\r\nX-Evil: 1")]},
        {"parts": [part(name="")]},
        {"parts": [part(name="../secret")]},
        {"parts": [part(name="..")]},
        {"parts": [part(name="a\\b")]},
        {"parts": [part(name="a\r\nb")]},
        {"parts": [part(name="a\u202egnp.exe")]},
        {"parts": [part(name="x" * 256)]},
        {"parts": [part(size=-1)]},
        {"parts": [part(size=True)]},
        {"parts": [part(digest="A" * 64)]},
        {"parts": [part(digest="a" * 63)]},
    ],
)
def test_parts_that_are_not_parts_are_refused(data: JsonObject) -> None:
    with pytest.raises(BadDraft):
        ev.check_text(data)
    with pytest.raises(BadDraft):
        ev.check_packet({"body" if key == "text" else key: value for key, value in data.items()})


@pytest.mark.parametrize(("event_type", "data"), [("text", {}), ("packet", {}), ("turn.tool", {"entry": {}})])
def test_nothing_of_a_file_stays_when_a_line_is_erased(event_type: str, data: JsonObject) -> None:
    place = data.get("entry", data)
    place |= message_data([FILE])
    line = Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id="e1",
        channel_id="c",
        seq=1,
        sender_id="alice",
        event_type=event_type,
        event_data=data,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )

    left = without_content(line)

    assert left.is_erased
    assert "plan" not in repr(left.event_data)
    assert FILE.digest not in repr(left.event_data)
