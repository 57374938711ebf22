"""What a disk may hold after a power cut: a disk that forgets sectors which were not synced.

    a run's record -> events -> Disk, up to a moment -> one of the images it may leave

Rule 1: what was synced is there. Of what was not, any sectors may be, some in part; a file may
have grown without what made it grow.

Rule 2: a file is under its name, or no longer, for certain only once its folder was synced.

Rule 3: a sync that returned an error has written whatever it likes, and no later one makes up for it.

Rule 4: the `-shm` file is mapped memory. It is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, Generic, TypeVar

from msgspec import Struct

from tests.faults.record import Cut, Event, Made, NotSynced, Removed, Said, Synced, Wrote

SECTORS: Final = (512, 4096)
KEPT: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
"""How much of what was not synced a disk has written all the same."""
TORN: Final = 0.1
"""Of the sectors that were being written."""
T = TypeVar("T")


class Image(Struct, frozen=True, kw_only=True):
    """What is found when power is back, and what was said before it was gone."""

    files: dict[str, bytes]
    said: list[str]


class _Luck:
    """What the disk did with all that it was not told to sync."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._sector = random.choice(SECTORS)
        self._kept = random.choice(KEPT)
        self._grows = random.random() < 0.5
        self._garbage = random.random() < 0.5

    def keeps(self) -> bool:
        return self._random.random() < self._kept

    def write(self, content: bytearray, change: Wrote) -> None:
        for offset, data in self._pieces(change):
            if self.keeps():
                self._put(content, offset, data)
            elif self._grows:
                self._fill(content, offset + len(data))

    def _put(self, content: bytearray, offset: int, data: bytes) -> None:
        if self._random.random() < TORN:
            torn = self._random.randrange(len(data))
            offset, data = self._random.choice(((offset, data[:torn]), (offset + torn, data[torn:])))
        self._fill(content, offset)
        content[offset : offset + len(data)] = data

    def _fill(self, content: bytearray, size: int) -> None:
        missing = max(0, size - len(content))
        content += self._random.randbytes(missing) if self._garbage else bytes(missing)

    def _pieces(self, change: Wrote) -> Iterator[tuple[int, bytes]]:
        start, end = change.offset, change.offset + len(change.data)
        while start < end:
            stop = min(end, (start // self._sector + 1) * self._sector)
            yield start, change.data[start - change.offset : stop - change.offset]
            start = stop


class _Changes(Generic[T]):
    """Changes in their order: those that are certain, and those that luck decides on."""

    def __init__(self) -> None:
        self._all: list[tuple[T, bool]] = []
        self._settled = 0

    def add(self, change: T) -> None:
        self._all.append((change, False))

    def settle(self, *, certain: bool) -> None:
        """A sync has ended; it speaks for what is new since the last one."""
        for place in range(self._settled, len(self._all)):
            self._all[place] = (self._all[place][0], certain)
        self._settled = len(self._all)

    def __iter__(self) -> Iterator[tuple[T, bool]]:
        return iter(self._all)


_File = _Changes[Wrote | Cut]
_Name = tuple[str, _File | None]
"""A path, and the file it is a name of from now on."""


class Disk:
    """A disk up to some moment."""

    def __init__(self) -> None:
        self._now: dict[str, _File] = {}
        self._folders: defaultdict[str, _Changes[_Name]] = defaultdict(_Changes)

    def happen(self, event: Event) -> None:
        match event:
            case Made(path) if path not in self._now:
                self._name(path, _File())
            case Removed(path):
                self._name(path, None)
            case Wrote(path) | Cut(path):
                self._now[path].add(event)
            case Synced(path) | NotSynced(path):
                for changes in (self._now.get(path), self._folders.get(path)):
                    if changes is not None:
                        changes.settle(certain=isinstance(event, Synced))

    def after_a_power_cut(self, random: Random) -> dict[str, bytes]:
        luck = _Luck(random)
        names: dict[str, _File] = {}
        for changes in self._folders.values():
            for (path, file), certain in changes:
                if certain or luck.keeps():
                    names.pop(path, None)
                    names |= {path: file} if file is not None else {}
        gone = self._folders.keys() & self._now.keys() - names.keys()
        return {
            path: _content(file, luck)
            for path, file in names.items()
            if path not in self._folders and str(Path(path).parent) not in gone and not path.endswith("-shm")
        }

    def _name(self, path: str, file: _File | None) -> None:
        self._folders[str(Path(path).parent)].add((path, file))
        if file is None:
            del self._now[path]
        else:
            self._now[path] = file


def _content(file: _File, luck: _Luck) -> bytes:
    content = bytearray()
    for change, certain in file:
        if isinstance(change, Wrote):
            (put if certain else luck.write)(content, change)
        elif certain or luck.keeps():
            content[change.size :] = bytes(max(0, change.size - len(content)))
    return bytes(content)


def put(content: bytearray, change: Wrote) -> None:
    content += bytes(max(0, change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


def image(happened: Sequence[Event], seed: int) -> Image:
    """Return what may be left after a power cut at some moment; the same for the same seed."""
    random = Random(seed)
    moment = random.randint(0, len(happened))
    disk = Disk()
    for event in happened[:moment]:
        disk.happen(event)
    said = [event.text for event in happened[:moment] if isinstance(event, Said)]
    return Image(files=disk.after_a_power_cut(random), said=said)


def lay_out(found: Image, folder: Path) -> None:
    """Put the files of an image into a new folder, all in one."""
    folder.mkdir()
    for path, content in found.files.items():
        (folder / Path(path).name).write_bytes(content)
