"""Moving a log: ids, seqs, hashes and bytes stay, nothing is doubled, nothing is overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from io import BytesIO

import msgspec
import pytest

from turnline.core.channel import ChannelRow
from turnline.core.codec import NO_HASH, SALT_BYTES, Kept, seal, unseal
from turnline.core.envelope import Envelope
from turnline.core.event_types import EV_CHANNEL_INVITE
from turnline.errors import BadExport, ChannelGuarded, LogUnavailable, UnknownChannel
from turnline.log.base import MARK_PREFIX, Blobs, Erases, Head, Log
from turnline.log.chain import Chain
from turnline.log.export_file import PART_BYTES, ExportWriter, LeftOut, read_export
from turnline.log.memory import MemoryLog
from turnline.log.origin import LOG_NAMES, list_of
from turnline.log.records import MemoryRecords
from turnline.log.transfer import Exported, Imported, check_export, export_log, import_log
from turnline.testing import Damage, drop_payload, flip_head, flip_payload
from turnline.testing.blob_contract import file_data, read, write
from turnline.testing.damage import written_longer
from turnline.testing.lines import closing_line, erased_line, line, lines

from .backends import KEPT_KINDS, KINDS, MakePlace, Place

AT = "2030-01-01T12:00:00+00:00"


async def fill(log: Log) -> None:
    await log.append("a", [line("a", 1), line("a", 2)], after=0)
    await log.append("a", [line("a", 3)], after=2)
    await log.append("b", [line("b", 1), closing_line("b", 2)], after=0)
    long = {"text": "ä" * (PART_BYTES // 5)}
    for seq in range(1, 8):  # More than one part.
        await log.append("long", [line("long", seq, data=long)], after=seq - 1)


async def exported(place: Place, *channels: str) -> tuple[bytes, Exported]:
    file = BytesIO()
    async with place.records() as records:
        done = await export_log(records, file.write, exported_at=AT, channels=channels)
    return file.getvalue(), done


async def imported(content: bytes, place: Place, *, is_trusted: bool = False) -> Imported:
    async with place.log() as log:
        await log.channels(limit=1)
        async with place.records() as there:
            return await import_log(BytesIO(content), log, there, is_trusted=is_trusted)


async def heads(place: Place) -> list[Head]:
    async with place.log() as log:
        return await log.channels()


@pytest.fixture
async def source(make_place: MakePlace) -> Place:
    place = make_place("memory")
    async with place.log() as log:
        await fill(log)
    return place


@pytest.mark.parametrize("kind", KINDS)
async def test_r5_what_is_moved_keeps_ids_seqs_hashes_and_bytes(source: Place, place: Place) -> None:
    content, done = await exported(source)

    result = await imported(content, place)
    again, _ = await exported(place)

    assert (done.channels, done.records, result.written) == (3, 12, 12)
    assert await place.kept() == await source.kept()
    assert again.splitlines()[1:-1] == content.splitlines()[1:-1]


@pytest.mark.parametrize("kind", KINDS)
async def test_importing_twice_doubles_nothing(source: Place, place: Place) -> None:
    content, _ = await exported(source)
    await imported(content, place)

    result = await imported(content, place)

    assert (result.written, result.known) == (0, 12)
    assert await place.kept() == await source.kept()


async def test_a_mark_of_trust_is_in_no_export_and_no_import_takes_one() -> None:
    log, target, name = MemoryLog(), MemoryLog(), f"{MARK_PREFIX}0123"
    await log.append(name, [line(name, 1)], after=0)
    await log.append("_flow-0123", [line("_flow-0123", 1)], after=0)
    plain, forged = BytesIO(), BytesIO()
    writer = ExportWriter(forged.write)
    writer.begin(source="memory:", exported_at=AT)
    for channel_id, [record] in log.records.items():
        writer.channel(channel_id, records=1, hash_=record.hash)
        writer.record(channel_id, record)
    writer.end()

    done = await export_log(MemoryRecords(log), plain.write, exported_at=AT)
    result = await import_log(BytesIO(forged.getvalue()), target, MemoryRecords(target))

    assert (done.channels, result.channels, result.own) == (1, 1, ["_flow-0123"])
    assert [head.channel_id for head in await target.channels()] == ["_flow-0123"]


def opening(channel_id: str, **data: object) -> Envelope:
    first = line(channel_id, 1, data={"channel_id": channel_id, **data})
    return msgspec.structs.replace(first, event_type=EV_CHANNEL_INVITE)


async def named(place: Place) -> None:
    """Give the log the names `old` and `new`, list the channel `listed`, and begin two runs on it."""
    async with place.log() as log:
        for seq, name in enumerate(("old", "new"), 1):
            await log.append(LOG_NAMES, [line(LOG_NAMES, seq, data={"log": name})], after=seq - 1)
        trusted = line(list_of("listed"), 1, data={"channels": ["listed"]})
        await log.append(list_of("listed"), [trusted], after=0)
        for channel_id, name in (("ours", "old"), ("listed", "theirs"), ("plain", "")):
            await log.append(channel_id, [opening(channel_id, log=name)], after=0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_that_is_not_trusted_adds_nothing_to_channels_of_this_log(
    place: Place, make_place: MakePlace
) -> None:
    await named(place)
    source = make_place("memory")
    async with source.log() as log:
        for channel_id, name in (("ours", "old"), ("listed", "theirs"), ("plain", "")):
            await log.append(channel_id, [opening(channel_id, log=name), line(channel_id, 2)], after=0)
        await log.append("claims", [opening("claims", log="new")], after=0)
        await log.append("as-fork", [opening("as-fork", forked_from={"log": "new"})], after=0)
        await log.append("theirs", [opening("theirs", log="theirs")], after=0)
    content, _ = await exported(source)

    result = await imported(content, place)
    taken = {head.channel_id: head.seq for head in await heads(place)}
    trusted = await imported(content, place, is_trusted=True)

    assert {(one.channel_id, one.seq) for one in result.refused} == {
        ("ours", 2),
        ("listed", 2),
        ("claims", 1),
        ("as-fork", 1),
    }
    assert {type(one) for one in result.refused} == {ChannelGuarded}
    assert (taken["ours"], taken["listed"], taken["plain"], taken["theirs"]) == (1, 1, 2, 1)
    assert not {"claims", "as-fork"} & taken.keys()
    assert (trusted.refused, trusted.written) == ([], 4)


async def test_an_import_names_the_runs_of_a_file_and_how_much_of_each_it_has() -> None:
    log, target = MemoryLog(), MemoryLog()
    await log.append("run", [opening("run", knobs={"flow": {}}), line("run", 2)], after=0)
    await log.append("below", [opening("below", parent_id="run")], after=0)
    await log.append("talk", [opening("talk")], after=0)
    await log.append("other", [opening("other", knobs={"flow": {}})], after=0)
    await target.append("other", [line("other", 1, envelope_id="mine")], after=0)
    content = BytesIO()
    await export_log(MemoryRecords(log), content.write, exported_at=AT)

    result = await import_log(BytesIO(content.getvalue()), target, MemoryRecords(target))

    assert result.runs == {"run": 2, "below": 1}
    assert [one.channel_id for one in result.refused] == ["other"]


class Failing(MemoryLog):
    """A log whose storage fails after some appends, as a crash would end an import there."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self.appends = appends

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        if self.appends == 0 and envelopes:
            raise LogUnavailable(self.address, because="it failed on purpose")
        self.appends -= bool(envelopes)
        await super().append(channel_id, envelopes, after=after, row=row)


@pytest.mark.parametrize("appends", range(4))
async def test_an_import_that_broke_off_is_completed_by_another(source: Place, appends: int) -> None:
    content, _ = await exported(source)
    log = Failing(appends)
    with pytest.raises(LogUnavailable):
        await import_log(BytesIO(content), log, MemoryRecords(log))
    before = sum(map(len, log.records.values()))

    log.appends = 100
    result = await import_log(BytesIO(content), log, MemoryRecords(log))

    assert result.written == 12 - before
    assert log.records == await source.kept()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_with_other_content_is_refused_at_its_first_difference(
    source: Place, place: Place
) -> None:
    content, _ = await exported(source)
    async with place.log() as log:
        first = Chain("a").keep((await source.kept())["a"][0])
        await log.append("a", [first, line("a", 2, envelope_id="mine"), line("a", 3)], after=0)
    mine = (await place.kept())["a"]

    result = await imported(content, place)

    assert [(refused.channel_id, refused.seq) for refused in result.refused] == [("a", 2)]
    assert "'mine'" in str(result.refused[0])
    assert "'a-2'" in str(result.refused[0])
    assert await place.kept() == await source.kept() | {"a": mine}


async def test_a_long_channel_that_differs_is_refused_once_and_gets_no_part(make_place: MakePlace) -> None:
    source, target = make_place("memory"), make_place("memory")
    async with source.log() as log:
        await fill(log)
    async with target.log() as log:
        await log.append("long", [line("long", 1)], after=0)
    content, _ = await exported(source, "long")

    result = await imported(content, target)

    assert [refused.seq for refused in result.refused] == [1]
    assert len((await target.kept())["long"]) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_that_went_on_since_is_left_as_it_is(source: Place, place: Place) -> None:
    content, _ = await exported(source)
    await imported(content, place)
    async with place.log() as log:
        await log.append("a", [line("a", 4)], after=3)

    result = await imported(content, place)

    assert (result.written, result.refused) == (0, [])
    assert len((await place.kept())["a"]) == 4


async def test_somebody_who_imports_the_same_at_once_is_no_conflict(source: Place) -> None:
    content, _ = await exported(source)
    kept = await source.kept()

    class Overtaken(MemoryLog):
        """Another import is always a moment ahead."""

        async def append(
            self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
        ) -> None:
            if envelopes and await self.head(channel_id) is None:
                await super().append(channel_id, envelopes[:1], after=after, row=row)
            await super().append(channel_id, envelopes, after=after, row=row)

    log = Overtaken()
    result = await import_log(BytesIO(content), log, MemoryRecords(log))

    assert result.refused == []
    assert log.records == kept


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", [flip_head, flip_payload, drop_payload])
async def test_a_damaged_channel_is_left_out_as_a_whole_and_named(
    place: Place, make_place: MakePlace, damage: Damage
) -> None:
    async with place.log() as log:
        await fill(log)
    place.damage("a", 3, damage)

    content, done = await exported(place)
    result = await imported(content, make_place("memory"))

    assert [(error.channel_id, error.seq) for error in done.left_out] == [("a", 3)]
    assert [piece.channel for piece in read_export(BytesIO(content)) if isinstance(piece, LeftOut)] == ["a"]
    assert [left_out.channel for left_out in result.left_out] == ["a"]
    assert result.channels == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_erased_content_stays_erased_in_an_export_and_on_the_log_it_is_imported_to(
    place: Place, make_place: MakePlace
) -> None:
    source = make_place("memory")
    async with source.log() as log:
        await log.append("a", [line("a", 1), line("a", 2), closing_line("a", 3)], after=0)
        await log.append("a", [erased_line("a", 4, (2, 2))], after=3)
    source.damage("a", 2, drop_payload)

    content, done = await exported(source)
    await imported(content, place)

    assert done.left_out == []
    assert await place.kept() == await source.kept()
    async with place.log() as log:
        assert [one.is_erased for one in await lines(log, "a")] == [False, True, False, False]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [1, 4])
async def test_y2_an_export_while_somebody_erases_can_be_imported(
    place: Place, make_place: MakePlace, before: int
) -> None:
    async with place.log() as log:
        assert isinstance(log, Erases)
        erasing: Erases = log
        said = [*(line("a", seq, data={"text": "x" * 1_000}) for seq in range(1, 5)), closing_line("a", 5)]
        await log.append("a", said, after=0)
        async with place.records() as records:

            class Erasing:
                """A channel whose lines are erased while it is read."""

                address, channels, indexed = records.address, records.channels, records.indexed
                damage, facts, close = records.damage, records.facts, records.close
                blobs, read_chunk = records.blobs, records.read_chunk
                tombstones = records.tombstones

                async def read(self, channel_id: str, *, after: int = 0) -> object:
                    async for record in records.read(channel_id, after=after):
                        if record.seq == before:
                            await erasing.erase("a", erased_line("a", 6, (1, 4)), after=5, row=None)
                        yield record

            file = BytesIO()
            done = await export_log(Erasing(), file.write, exported_at=AT)  # type: ignore[arg-type]
    other = make_place("memory")
    taken = await imported(file.getvalue(), other)

    assert (done.left_out, taken.refused) == ([], [])
    async with other.log() as log:
        found = [one.is_erased for one in await lines(log, "a")]
    assert found in ([False] * 5, [True] * 4 + [False] * 2)


@pytest.mark.parametrize("kind", ["nats"])
async def test_y2_an_export_has_no_content_of_an_erase_that_was_interrupted(
    place: Place, make_place: MakePlace
) -> None:
    async with place.log() as log:
        await log.append("a", [line("a", 1), line("a", 2), closing_line("a", 3)], after=0)
        await log.append("a", [erased_line("a", 4, (2, 2))], after=3)

    content, _ = await exported(place)

    other = make_place("memory")
    await imported(content, other)
    async with other.log() as log:
        assert [one.is_erased for one in await lines(log, "a")] == [False, True, False, False]


@pytest.mark.parametrize("kind", KEPT_KINDS)
async def test_an_export_while_somebody_writes_is_a_prefix_of_whole_appends(place: Place) -> None:
    async with place.log() as log:
        for number in range(10):
            await log.append("a", [line("a", 2 * number + 1), line("a", 2 * number + 2)], after=2 * number)
        async with place.records() as records:

            class Busy:
                """A writer appends a pair whenever the channel is read."""

                address, channels, indexed = records.address, records.channels, records.indexed
                damage, facts, close = records.damage, records.facts, records.close
                blobs, read_chunk = records.blobs, records.read_chunk
                tombstones = records.tombstones

                async def read(self, channel_id: str, *, after: int = 0) -> object:
                    async for record in records.read(channel_id, after=after):
                        yield record
                    end = (await log.head("a")).seq  # type: ignore[union-attr]
                    await log.append("a", [line("a", end + 1), line("a", end + 2)], after=end)

            file = BytesIO()
            done = await export_log(Busy(), file.write, exported_at=AT)  # type: ignore[arg-type]
        kept = (await place.kept())["a"]

    target = MemoryLog()
    await import_log(BytesIO(file.getvalue()), target, MemoryRecords(target))
    assert done.records == 20
    assert len(kept) > 20
    assert target.records["a"] == kept[:20]


async def test_only_the_channels_that_were_asked_for_are_exported(source: Place) -> None:
    _, done = await exported(source, "b")

    assert (done.channels, done.records) == (1, 2)
    with pytest.raises(UnknownChannel):
        await exported(source, "b", "nobody")


async def test_a_structure_that_says_something_else_than_its_head_is_refused(source: Place) -> None:
    content, _ = await exported(source)
    shown = b'"structure":{"from":"'
    assert shown in content

    with pytest.raises(BadExport, match="says something else than its head"):
        check_export(BytesIO(content.replace(shown, shown + b"x", 1)))


@pytest.mark.parametrize("kind", KINDS)
async def test_bytes_that_this_program_would_write_differently_are_moved_as_they_are(
    place: Place, make_place: MakePlace
) -> None:
    """Another writer may use longer numbers: the hash of a line is of its bytes."""
    source = make_place("memory")
    plain = line("a", 1)
    usual = seal(plain, NO_HASH, salt=bytes(SALT_BYTES))
    longer = written_longer(usual.head)
    fields = {name: getattr(plain, name) for name in Envelope.__struct_fields__}
    written = Kept(**fields, head=longer, payload=usual.payload)
    async with source.log() as log:
        await log.append("a", [written, line("a", 2)], after=0)
    content, _ = await exported(source)

    await imported(content, place)

    (first, second) = (await place.kept())["a"]
    assert (first.head, first.payload) == (longer, usual.payload)
    assert unseal("a", first, previous=NO_HASH, seq=1) == plain
    assert first.hash != usual.hash
    assert unseal("a", second, previous=first.hash, seq=2) == line("a", 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_that_breaks_off_brings_only_whole_checked_parts(source: Place, place: Place) -> None:
    content, _ = await exported(source)
    cut = content[: content.index(b'"seq":2', content.index(b'"channel":"b","seq"'))]

    with pytest.raises(BadExport) as told:
        await imported(cut, place)

    assert told.value.line == cut.count(b"\n") + 1
    assert await place.kept() == {"a": (await source.kept())["a"]}
    await imported(content, place)
    assert await place.kept() == await source.kept()


FILE = bytes(range(256)) * 1_200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to", ["memory", "sqlite"])
async def test_files_that_lines_refer_to_move_with_their_channels(
    make_place: MakePlace, kind: str, to: str
) -> None:
    source, target = make_place(kind), make_place(to)
    async with source.log() as log:
        await log.append("a", [line("a", 1, data=file_data(FILE, b""))], after=0)
        await write(log, "a", FILE, blob_id="b1")
        await write(log, "a", b"", blob_id="b2")
        await write(log, "a", b"erased", blob_id="b4")
        await write(log, "elsewhere", b"other", blob_id="b3")

    content, done = await exported(source, "a")
    assert done.files == 3
    first, again = await imported(content, target), await imported(content, target)

    assert (first.files, again.files) == (2, 0)
    async with target.log() as log:
        assert isinstance(log, Blobs)
        assert [(await read(log, blob), blob.is_kept) for blob in await log.blobs("a")] == [
            (FILE, False),
            (b"", False),
        ]


async def test_a_file_for_a_channel_that_is_not_there_is_not_taken(make_place: MakePlace) -> None:
    written: list[bytes] = []
    writer = ExportWriter(written.append)
    writer.begin(source="", exported_at=AT)
    writer.file("gone", digest=sha256(b"x").hexdigest(), size=1)
    writer.chunk(b"x")
    writer.end()

    assert (await imported(b"".join(written), make_place("memory"))).files == 0


@pytest.mark.parametrize("change", [b"x" * 256, b"short"])
async def test_a_file_whose_bytes_were_changed_is_refused(make_place: MakePlace, change: bytes) -> None:
    written: list[bytes] = []
    writer = ExportWriter(written.append)
    writer.begin(source="", exported_at=AT)
    writer.file("a", digest=sha256(b"y" * 256).hexdigest(), size=256)
    writer.chunk(change)
    writer.end()

    with pytest.raises(BadExport, match="bytes of the file"):
        await imported(b"".join(written), make_place("memory"))
