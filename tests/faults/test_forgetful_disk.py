"""The disk of X4 keeps what it must, forgets what it may, and takes no failed sync back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.faults.power import Disk
from tests.faults.record import Cut, Event, Made, NotSynced, Removed, Synced, Wrote, events

FILE = "/disk/file"
NAMED: list[Event] = [Made(FILE), Synced("/disk")]
OLD, NEW = b"o" * 4096, b"n" * 4096


def left(happened: Sequence[Event]) -> set[bytes | None]:
    """Return what the file may be after a power cut; None where it is not there."""
    disk = Disk()
    for event in happened:
        disk.happen(event)
    return {disk.after_a_power_cut(Random(seed)).get(FILE) for seed in range(200)}


def test_what_was_synced_is_there() -> None:
    assert left([*NAMED, Wrote(FILE, 0, OLD), Synced(FILE)]) == {OLD}
    assert left([*NAMED, Wrote(FILE, 0, OLD), Cut(FILE, 7), Synced(FILE)]) == {OLD[:7]}


def test_of_what_was_not_synced_any_part_may_be_there() -> None:
    found = left([*NAMED, Wrote(FILE, 0, OLD), Synced(FILE), Wrote(FILE, 0, NEW)])

    assert found > {OLD, NEW}
    assert all(content is not None and set(content) <= set(OLD + NEW) for content in found)
    assert any(
        content is not None and content[:512] == NEW[:512] and OLD[:512] in content for content in found
    )


def test_a_name_is_certain_when_its_folder_was_synced() -> None:
    written: list[Event] = [Wrote(FILE, 0, OLD), Synced(FILE)]

    assert left([Made(FILE), *written]) == {OLD, None}
    assert left([*NAMED, *written, Removed(FILE)]) == {OLD, None}
    assert left([*NAMED, *written, Removed(FILE), Synced("/disk")]) == {None}


def test_no_later_sync_makes_up_for_one_that_failed() -> None:
    failed: list[Event] = [*NAMED, Wrote(FILE, 0, OLD), Synced(FILE), Wrote(FILE, 0, NEW), NotSynced(FILE)]

    assert OLD in left([*failed, Synced(FILE)])
    assert left([*failed, Wrote(FILE, 0, NEW), Synced(FILE)]) == {NEW}


def test_a_record_is_read_whichever_thread_interrupts_another(tmp_path: Path) -> None:
    def quoted(text: str) -> str:
        return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'

    path = f"{tmp_path}/log.db"
    record = tmp_path / "record"
    record.write_text(
        f"10 openat(AT_FDCWD, {quoted(path)}, O_RDWR|O_CREAT, 0644) = 7\n"
        f"10 openat(AT_FDCWD, {quoted('/elsewhere')}, O_RDWR|O_CREAT, 0644) = 8\n"
        f"11 pwrite64(7, {quoted('one')}, 3, 5 <unfinished ...>\n"
        f"10 pwrite64(8, {quoted('two')}, 3, 0) = 3\n"
        "11 <... pwrite64 resumed>) = 3\n"
        "11 fdatasync(7) = -1 EIO (Input/output error) (INJECTED)\n"
        "11 fdatasync(7) = 0\n"
        f"10 unlink({quoted(path)}) = 0\n"
    )

    assert events(record) == [
        Made(path),
        Wrote(path, 5, b"one"),
        NotSynced(path),
        Synced(path),
        Removed(path),
    ]
