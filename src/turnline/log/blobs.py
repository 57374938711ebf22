"""Files beside a log: written in chunks, hashed as they come, deduplicated inside their tree (Y6).

    write_blob    chunks of 256 KB -> a blob, complete; a copy that the tree has already is used instead
    read_blob     its bytes, compared with its digest
    find_blob     the blob of a tree with this digest

Rule 1: a blob belongs to a tree of channels, by the id of its root. No tree sees what another one has, so
nothing can be learned from what is stored already.

Rule 2: a blob is complete before a line refers to it. One that no line refers to is deleted a day after it
was made (`sweep_blobs`). The lines decide: `is_kept` only says that they were looked at, so that each blob
costs one look.

Rule 3: a copy that is about to be deleted is not used again. So between the upload and the line there is
time: `REUSE_SECONDS` less than a day.

Rule 4: the quotas of a tree and of a user also count uploads that are under way in this process. Uploads of
other processes count when they are complete. A refused upload uses the disk until its last piece has come.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from typing import Any, Final, Self

from msgspec import ValidationError, convert
from msgspec.structs import replace

from turnline.core.channel import ChannelFilter
from turnline.core.event_types import EV_CHANNEL_CHILD
from turnline.core.parts import files_of
from turnline.errors import CorruptRecord, FileTooLarge, LogError, LogUnavailable
from turnline.log.base import Blob, Blobs, Chunks, Log
from turnline.log.joined import SqlValue
from turnline.log.listing import micros

CHUNK_BYTES: Final = 256 * 1024
MAX_FILE_BYTES: Final = 20 * 1024 * 1024
"""Of one file, unless the hub is opened with another number."""
MAX_TREE_BYTES: Final = 1024 * 1024 * 1024
"""Of all files of one tree of channels, unless the hub is opened with another number."""
MAX_USER_BYTES: Final = 10 * 1024 * 1024 * 1024
"""Of all files that one user has uploaded, unless the hub is opened with another number."""
MAX_USER_FILES: Final = 100_000
"""Files that one user has uploaded. So counting them has an end."""
UNUSED_SECONDS: Final = 24 * 3600
"""After which a blob goes that no line refers to."""
REUSE_SECONDS: Final = 12 * 3600
"""How old a copy may be that a second upload uses, unless a line is known to refer to it."""
MAX_TREE_CHANNELS: Final = 100_000
"""Channels of a tree that are read for what they refer to. The files of a larger tree are kept."""
SWEEP_BLOBS: Final = 256
"""Blobs that one look of the sweep takes."""

_PAGE: Final = 256

UnderWay = Counter[str]
"""Bytes of uploads under way in a process, by tree and by user."""

logger = logging.getLogger(__name__)

_COLUMNS: Final = "root, id, digest, size, created, user_key, kept"
_ONE: Final = "root = ? AND id = ?"
ADD: Final = f"INSERT INTO turnline_blobs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
HAS: Final = f"SELECT 1 FROM turnline_blobs WHERE {_ONE}"
SET: Final = f"UPDATE turnline_blobs SET digest = ?, size = ?, kept = ? WHERE {_ONE}"
HAS_SET: Final = f"SELECT 1 FROM turnline_blobs WHERE digest = ? AND size = ? AND kept = ? AND {_ONE}"
OF_ROOT: Final = f"SELECT {_COLUMNS} FROM turnline_blobs WHERE root = ? ORDER BY blob"
OF_USER: Final = """
SELECT count(*), coalesce(sum(size), 0) FROM
    (SELECT size FROM turnline_blobs WHERE user_key = ? AND user_key <> '' LIMIT ?) AS found
"""
COMPLETE: Final = f"SELECT {_COLUMNS} FROM turnline_blobs WHERE digest <> '' ORDER BY blob"
OLD: Final = f"SELECT {_COLUMNS} FROM turnline_blobs WHERE NOT kept AND created < ? ORDER BY created LIMIT ?"
ADD_CHUNK: Final = f"""
INSERT INTO turnline_chunks (blob, number, data) SELECT blob, ?, ? FROM turnline_blobs WHERE {_ONE}
"""
CHUNK: Final = f"""
SELECT data FROM turnline_chunks
WHERE number = ? AND blob = (SELECT blob FROM turnline_blobs WHERE {_ONE})
"""
DELETE: Final = (
    f"DELETE FROM turnline_chunks WHERE blob IN (SELECT blob FROM turnline_blobs WHERE {_ONE})",
    f"DELETE FROM turnline_blobs WHERE {_ONE}",
)
"""The statements of SQLite and, with %s for ?, of PostgreSQL."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def write_blob(
    log: Blobs,
    root: str,
    pieces: AsyncIterable[bytes],
    *,
    blob_id: str,
    now: datetime,
    most_bytes: int = MAX_FILE_BYTES,
    tree_bytes: int = MAX_TREE_BYTES,
    user_key: str = "",
    user_bytes: int = MAX_USER_BYTES,
    under_way: UnderWay | None = None,
) -> Blob:
    """Keep the bytes of a file; return it once it is complete.

    Raises `FileTooLarge` if it, or all files of the tree or of the user, are too large; nothing of it is kept
    then, nor if `pieces` raises. A user who has no room left is refused before the first piece is read.
    """
    blob = Blob(root=root, blob_id=blob_id, created_at=now, user_key=user_key)
    with _Upload(blob, UnderWay() if under_way is None else under_way) as upload:
        await _check_user(log, user_key, user_bytes - 1, adding=upload.user_bytes)
        await log.add_blob(blob)
        try:
            digest = await _write_chunks(log, upload, pieces, most_bytes)
        except BaseException:
            await log.delete_blobs([blob])
            raise
        done = replace(blob, size=upload.size, digest=digest)
        for other in await log.blobs(root):
            is_new = now - other.created_at < timedelta(seconds=REUSE_SECONDS)
            if other.digest == digest and (other.is_kept or is_new):
                await log.delete_blobs([blob])
                return other
        try:  # Before it is complete: from then on, others of the tree may have been given this copy.
            await _check_user(log, user_key, user_bytes, adding=upload.user_bytes)
            await _check_tree(log, root, tree_bytes, adding=upload.tree_bytes)
        except FileTooLarge:
            await log.delete_blobs([blob])
            raise
        await log.set_blob(done)
        if done not in await log.blobs(root):
            because = "the file was deleted before all of it was there; send it again"
            raise LogUnavailable(log.address, because=because)
        return done


class _Upload:
    """A file of which bytes still come, and what it adds to the bytes that are under way."""

    def __init__(self, blob: Blob, under_way: UnderWay) -> None:
        self.blob, self.size = blob, 0
        self._under_way, self._places = under_way, (f"tree {blob.root}", f"user {blob.user_key}")

    @property
    def tree_bytes(self) -> int:
        """Bytes under way for the same tree, this file included."""
        return self._under_way[self._places[0]]

    @property
    def user_bytes(self) -> int:
        """Bytes under way of the same user, this file included."""
        return self._under_way[self._places[1]]

    def add(self, size: int) -> None:
        self.size += size
        for place in self._places:
            self._under_way[place] += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for place in self._places:
            self._under_way[place] -= self.size
            if not self._under_way[place]:
                del self._under_way[place]


async def _check_tree(log: Blobs, root: str, most_bytes: int, *, adding: int) -> None:
    total = adding + sum(other.size for other in await log.blobs(root))
    if total > most_bytes:
        expected = f"at most {most_bytes} in one conversation (tree_bytes)"
        raise FileTooLarge("the file", found=f"too much: {total} bytes with it", expected=expected)


async def _check_user(log: Blobs, user_key: str, most_bytes: int, *, adding: int = 0) -> None:
    """Refuse a user whose files have more bytes. The log is counted: a restart changes nothing."""
    if not user_key:
        return
    files, size = await log.count_blobs(user_key, limit=MAX_USER_FILES + 1)
    if size + adding > most_bytes or files > MAX_USER_FILES:
        expected = f"at most {most_bytes} bytes (file_bytes_per_user) in {MAX_USER_FILES} files of one user"
        found = f"too much: {size + adding} bytes in {files} files with it"
        raise FileTooLarge("the file", found=found, expected=expected)


async def _write_chunks(log: Blobs, upload: _Upload, pieces: AsyncIterable[bytes], most_bytes: int) -> str:
    """Write the bytes as they come; return their digest."""
    hashing = sha256()
    async for number, chunk in _chunks(pieces):
        upload.add(len(chunk))
        if upload.size > most_bytes:
            raise FileTooLarge(
                "the file", found="larger", expected=f"at most {most_bytes} bytes (file_bytes)"
            )
        hashing.update(chunk)
        await log.add_chunk(upload.blob, number, chunk)
    return hashing.hexdigest()


async def _chunks(pieces: AsyncIterable[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    number, rest = 0, bytearray()
    async for piece in pieces:
        rest += piece
        while len(rest) >= CHUNK_BYTES:
            yield number, bytes(rest[:CHUNK_BYTES])
            number += 1
            del rest[:CHUNK_BYTES]
    if rest:
        yield number, bytes(rest)


async def find_blob(log: Blobs, root: str, digest: str) -> Blob | None:
    """Return the complete blob of the tree that has this digest."""
    return choose_blob(await log.blobs(root), digest)


def choose_blob(blobs: Iterable[Blob], digest: str) -> Blob | None:
    """Return the blob among those of a tree that is read for a digest; None if there is none."""
    found = (blob for blob in blobs if blob.digest == digest and digest)
    return max(found, key=lambda blob: (blob.is_kept, blob.created_at), default=None)


async def read_blob(log: Chunks, blob: Blob) -> AsyncIterator[bytes]:
    """Yield the bytes of a complete blob. Raises `CorruptRecord` where they are not what was written."""
    hashing, left = sha256(), blob.size
    for number in count():
        if left <= 0:
            break
        chunk = await log.read_chunk(blob, number)
        if chunk is None or len(chunk) != min(left, CHUNK_BYTES):
            raise CorruptRecord(blob.root, seq=0, because=f"chunk {number} of a file is missing or damaged")
        hashing.update(chunk)
        left -= len(chunk)
        if left <= 0 and hashing.hexdigest() != blob.digest:
            break
        yield chunk
    if hashing.hexdigest() != blob.digest:
        raise CorruptRecord(blob.root, seq=0, because="the bytes of a file do not match its digest")


async def count_uses(log: Log, root: str) -> Counter[str]:
    """Return how often the lines of a tree refer to each digest: of the channel, those below, their forks.

    Raises `LogError` if one of them cannot be read.
    """
    uses, seen, pending = Counter[str](), set[str](), [root]
    while pending:
        one = pending.pop()
        if one in seen:
            continue
        seen.add(one)
        if len(seen) > MAX_TREE_CHANNELS:
            raise LogError(f"the conversation {root!r} has more than {MAX_TREE_CHANNELS} channels")
        async for line in log.read(one):
            uses.update(file.digest for file in files_of(line.event_type, line.event_data))
            if line.event_type == EV_CHANNEL_CHILD:
                pending.append(str(line.event_data.get("child", "")))
        pending += await list_forks(log, one)
    return uses


async def list_forks(log: Log, channel_id: str) -> list[str]:
    """Return the forks of a channel."""
    found, last = list[str](), None
    where = ChannelFilter(origin=channel_id)
    while page := await log.rows(where, after=last, limit=_PAGE):
        found += [row.channel_id for row in page]
        last = page[-1]
    return found


async def sweep_blobs(log: Log, *, now: datetime) -> int:
    """Delete blobs that are old and that no line refers to; return how many.

    What lines refer to is marked as kept. A tree that cannot be read keeps its blobs.
    """
    if not isinstance(log, Blobs):
        return 0
    deleted = 0
    old = await log.old_blobs(before=now - timedelta(seconds=UNUSED_SECONDS), limit=SWEEP_BLOBS)
    for root in dict.fromkeys(blob.root for blob in old):
        try:
            uses = await count_uses(log, root)
        except LogUnavailable:
            raise
        except LogError:
            logger.exception("the files of %s are kept", root)
            uses = Counter(blob.digest for blob in old)
        for blob in (one for one in old if one.root == root):
            if blob.digest and uses[blob.digest]:
                await log.set_blob(replace(blob, is_kept=True))
            else:
                await log.delete_blobs([blob])
                deleted += 1
    return deleted


def values_of(blob: Blob) -> tuple[SqlValue, ...]:
    """Return a blob as the columns of a table."""
    created = micros(blob.created_at)
    return (blob.root, blob.blob_id, blob.digest, blob.size, created, blob.user_key, int(blob.is_kept))


def blob_of(row: Sequence[Any]) -> Blob:
    """Return the blob in the columns of a table. Raises `CorruptRecord` if they are not those of one."""
    root, blob_id, digest, size, created, user_key, kept = row
    try:
        found = {"root": root, "blob_id": blob_id, "digest": digest, "size": size, "is_kept": bool(kept)}
        found |= {"created_at": _EPOCH + timedelta(microseconds=created), "user_key": user_key}
        return convert(found, Blob)
    except (ValidationError, TypeError, OverflowError) as error:
        raise CorruptRecord(str(root), seq=0, because="the row of a file is damaged") from error
