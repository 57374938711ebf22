"""The file of an export: whatever is changed in it, or missing from it, is told with its line."""

from __future__ import annotations

from io import BytesIO

import pytest

from turnline.errors import BadExport
from turnline.log.export_file import PART_RECORDS, VERSION, End, ExportWriter, Header, Part, read_export
from turnline.log.memory import MemoryLog
from turnline.log.records import MemoryRecords
from turnline.log.transfer import check_export, export_log
from turnline.testing.damage import drop_payload, flip_byte
from turnline.testing.lines import erased_line, line


async def exported(**channels: int) -> bytes:
    log, written = MemoryLog(), BytesIO()
    for channel_id, number in channels.items():
        envelopes = [line(channel_id, seq, data={"text": 'ä "quoted"\n'}) for seq in range(1, number + 1)]
        await log.append(channel_id, envelopes, after=0)
    await export_log(MemoryRecords(log), written.write, exported_at="2030-01-01T12:00:00+00:00")
    return written.getvalue()


def bad_line(content: bytes) -> int:
    with pytest.raises(BadExport) as told:
        check_export(BytesIO(content))
    return told.value.line


async def test_a_whole_file_is_read_to_its_end() -> None:
    content = await exported(a=3, b=2)

    pieces = list(read_export(BytesIO(content)))

    assert [type(piece) for piece in pieces] == [Header, Part, Part, End]
    assert pieces[-1] == check_export(BytesIO(content))


async def test_content_that_is_missing_and_was_not_erased_is_refused_before_its_part_is_given() -> None:
    log, written = MemoryLog(), BytesIO()
    await log.append("a", [line("a", 1), line("a", 2), erased_line("a", 3, (1, 1))], after=0)
    writer = ExportWriter(written.write)
    writer.begin(source="memory:", exported_at="2030-01-01T12:00:00+00:00")
    writer.channel("a", records=3, hash_=log.records["a"][-1].hash)
    for record in log.records["a"]:
        writer.record("a", drop_payload(record))
    writer.end()
    pieces = read_export(BytesIO(written.getvalue()))

    assert isinstance(next(pieces), Header)
    with pytest.raises(BadExport, match="record 2 of channel 'a': its content is missing"):
        next(pieces)


async def test_a_file_cut_at_any_byte_is_refused_with_its_last_line() -> None:
    content = await exported(a=2, b=1)

    for cut in range(len(content)):
        assert bad_line(content[:cut]) == content[:cut].count(b"\n") + 1


async def test_a_changed_byte_is_noticed_wherever_it_is() -> None:
    content = await exported(a=2, b=1)

    lines = [bad_line(flip_byte(content, index)) for index in range(len(content))]

    of_records = {number for number, text in enumerate(content.splitlines(), 1) if b'"record"' in text}
    assert of_records == {3, 4, 6}
    # A record is refused where it stands; the digest covers what has no hash of its own.
    assert of_records <= set(lines)


@pytest.mark.parametrize(("index", "line_"), [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)])
async def test_a_line_that_is_gone_is_noticed_at_its_place(index: int, line_: int) -> None:
    lines = (await exported(a=2, b=1)).splitlines(keepends=True)
    del lines[index]

    assert bad_line(b"".join(lines)) == line_


async def test_a_line_twice_a_swap_and_something_behind_the_end_are_refused() -> None:
    lines = (await exported(a=2, b=1)).splitlines(keepends=True)
    swapped = [*lines[:2], lines[3], lines[2], *lines[4:]]

    assert bad_line(b"".join([*lines[:3], *lines[2:]])) == 4
    assert bad_line(b"".join(swapped)) == 3
    assert bad_line(b"".join([*lines, b"\n"])) == len(lines) + 1
    assert bad_line(b"".join([*lines[:-1], *lines[1:4], lines[-1]])) == len(lines)


async def test_a_channel_that_ends_with_another_hash_is_told_with_its_last_record() -> None:
    lines = (await exported(a=2, b=1)).splitlines(keepends=True)
    lines[1] = lines[1].replace(lines[1][-6:-3], b"000")

    assert bad_line(b"".join(lines)) == 4


async def test_a_channel_that_was_left_away_as_a_whole_is_noticed_at_the_end() -> None:
    lines = (await exported(a=2, b=1)).splitlines(keepends=True)

    assert bad_line(b"".join([lines[0], *lines[4:]])) == 4


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"hello\n", b'{"line":"end"}\n', b"\xff\n"])
def test_what_is_no_export_is_refused_at_its_first_line(content: bytes) -> None:
    assert bad_line(content) == 1


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
async def test_an_export_of_another_version_is_refused(version: int) -> None:
    other = (await exported(a=1)).replace(b'"version":%d' % VERSION, b'"version":%d' % version, 1)

    with pytest.raises(BadExport, match=f"its version is {version}, this program reads {VERSION}"):
        check_export(BytesIO(other))


async def test_a_long_channel_comes_in_parts() -> None:
    content = await exported(a=PART_RECORDS + 5)

    parts = [piece for piece in read_export(BytesIO(content)) if isinstance(piece, Part)]

    assert [len(part.records) for part in parts] == [PART_RECORDS, 5]
