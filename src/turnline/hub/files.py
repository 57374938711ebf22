"""The files of a hub's channels (Y6): who may add one, refer to one, read one; and when they go.

Rule 1: a file belongs to the tree of its channel: the channel at the top, all below it and their forks.

Rule 2: a line may refer only to what its sender has uploaded to the tree a moment ago, to what a tool of
the same turn returned, or, the first line of a channel, to what its parent begins with. So to know a digest
gives nothing: neither the bytes, nor whether the tree has them.

Rule 3: a file is read through a line that the reader may see (`Seat.read_chunk`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterable, Sequence
from typing import TYPE_CHECKING, Final

from turnline.core.channel import ChannelSpec, user_key_of
from turnline.core.envelope import Draft, Envelope
from turnline.core.event_types import EV_TURN_TOOL, HUB
from turnline.core.parts import MAX_PARTS, FilePart, check_file, files_of
from turnline.errors import BadDraft, ChannelClosed, LogUnavailable, UnknownFile
from turnline.hub.options import HubOptions
from turnline.log import blobs
from turnline.log.base import Blob, Blobs

if TYPE_CHECKING:
    from turnline.hub.hub import Hub

UPLOAD_SECONDS: Final = 3600.0
"""For so long a line may refer to an upload."""
MAX_UPLOADS: Final = 10_000
"""Uploads that a hub remembers."""
SWEEP_SECONDS: Final = 3600.0


class Files:
    """The files on the log of one hub."""

    def __init__(self, hub: Hub, options: HubOptions) -> None:
        self._hub = hub
        self._file_bytes = options.get("file_bytes", blobs.MAX_FILE_BYTES)
        self._tree_bytes = options.get("tree_bytes", blobs.MAX_TREE_BYTES)
        self._user_bytes = options.get("file_bytes_per_user", blobs.MAX_USER_BYTES)
        self._uploads: OrderedDict[tuple[str, str, str], tuple[int, float]] = OrderedDict()
        """Participant, tree and digest -> the size, and when it was uploaded."""
        self._under_way = blobs.UnderWay()
        self._next_sweep = 0.0

    @property
    def log(self) -> Blobs:
        """Where they are kept. Raises `LogUnavailable` for a log that keeps no files."""
        if not isinstance(self._hub.log, Blobs):
            raise LogUnavailable(self._hub.log.address, because="it keeps no files")
        return self._hub.log

    async def root(self, channel_id: str) -> str:
        """Return the top of the tree that a channel belongs to; a fork belongs to its origin's."""
        top = await self._hub.tree.top(channel_id)
        origin = await self._hub.lines.origin(top) or await self._hub.lines.origin(channel_id)
        return top if origin is None else await self.root(origin.channel)

    async def add(self, channel_id: str, agent_id: str, pieces: AsyncIterable[bytes], user: str = "") -> Blob:
        """Keep a file for a participant, who may refer to it. It counts for a user. Raises `FileTooLarge`."""
        state, root = await self._hub.state(channel_id), await self.root(channel_id)
        if state.is_over:
            raise ChannelClosed(channel_id, reason=state.pending_close_reason)
        return await self.add_before(root, agent_id, pieces, user)

    async def add_before(
        self, root: str, agent_id: str, pieces: AsyncIterable[bytes], user: str = ""
    ) -> Blob:
        """Keep a file for a channel that the participant opens under this id just after."""
        blob = await blobs.write_blob(
            self.log,
            root,
            pieces,
            blob_id=self._hub.new_id(),
            now=self._hub.clock.now(),
            most_bytes=self._file_bytes,
            tree_bytes=self._tree_bytes,
            user_key=user_key_of(user),
            user_bytes=self._user_bytes,
            under_way=self._under_way,
        )
        self._uploads[agent_id, root, blob.digest] = blob.size, self._hub.clock.monotonic()
        self._uploads.move_to_end((agent_id, root, blob.digest))
        if len(self._uploads) > MAX_UPLOADS:
            self._uploads.popitem(last=False)
        return blob

    async def check(self, channel_id: str, draft: Draft) -> None:
        """Refuse a draft that refers to a file that its sender has not uploaded. Raises `BadDraft`."""
        files = files_of(draft.event_type, draft.event_data)
        if not files or await self._hub.lines.find(channel_id, draft.envelope_id) is not None:
            return
        state, sender = await self._hub.state(channel_id), draft.sender_id
        if sender == HUB or state.spec.is_played(sender):
            sender = draft.claimant
        known = list[FilePart]()
        if state.claim is not None and state.claim.agent_id == draft.sender_id:
            # A turn that was resumed after a restart sends what its tools returned before.
            lines = await self._hub.read_recent(channel_id, state.floor_seq)
            units = (one for one in lines if one.event_type == EV_TURN_TOOL)
            known = [file for one in units for file in files_of(one.event_type, one.event_data)]
        await self._check(files, await self.root(channel_id), sender, known)

    async def check_opening(self, spec: ChannelSpec) -> ChannelSpec:
        """Return the spec, unless the channel begins with a file of another one. Raises `BadDraft`."""
        if not spec.files:
            return spec
        parent = None if spec.parent_id is None else await self._hub.state(spec.parent_id)
        root = spec.channel_id if parent is None else await self.root(parent.channel_id)
        await self._check(spec.files, root, spec.creator_id, [] if parent is None else parent.spec.files)
        return spec

    async def _check(
        self, files: Sequence[FilePart], root: str, sender: str, known: Sequence[FilePart]
    ) -> None:
        if len(files) > MAX_PARTS:
            raise BadDraft("files", found=f"{len(files)} of them", expected=f"at most {MAX_PARTS}")
        for index, file in enumerate(files):
            check_file(file, f"file {index}")
            size, at = self._uploads.get((sender, root, file.digest), (None, 0.0))
            if size is None or self._hub.clock.monotonic() - at >= UPLOAD_SECONDS:
                size = next((one.size for one in known if one.digest == file.digest), None)
            if size is None or await blobs.find_blob(self.log, root, file.digest) is None:
                expected = "the digest of a file that its sender uploaded to this conversation just before"
                raise BadDraft(f"file {index}.digest", found="another one", expected=expected)
            if size != file.size:
                raise BadDraft(f"file {index}.size", found=str(file.size), expected=str(size))

    async def find(self, line: Envelope, index: int) -> tuple[FilePart, Blob]:
        """Return a file of a line that the caller may see. Raises `UnknownFile`."""
        files = files_of(line.event_type, line.event_data)
        if 0 <= index < len(files):
            blob = await blobs.find_blob(self.log, await self.root(line.channel_id), files[index].digest)
            if blob is not None:
                return files[index], blob
        raise UnknownFile(line.channel_id, seq=line.seq, index=index)

    async def sweep(self) -> None:
        """Delete files that no line refers to, once an hour."""
        now = self._hub.clock.monotonic()
        if now >= self._next_sweep and isinstance(self._hub.log, Blobs):
            self._next_sweep = now + SWEEP_SECONDS
            await blobs.sweep_blobs(self._hub.log, now=self._hub.clock.now())
