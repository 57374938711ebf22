"""How a `NatsLog`'s servers are: copies, limits, what fits into a message, their clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, TypeVar

from msgspec import Struct

from turnline.log.checkup import Checkup, Finding, Watch, skew
from turnline.log.nats_address import NatsAddress
from turnline.log.nats_connection import Answer, Connection, Refused, server_version
from turnline.log.nats_records import StreamFacts
from turnline.log.nats_stream import (
    INDEX,
    KEYS,
    LOG,
    NO_STREAM,
    REPLICAS,
    UNLIMITED,
    index_of,
    index_subjects_of,
    keys_of,
    keys_subjects_of,
    subjects_of,
    unlike,
)

PATIENCE_SECONDS: Final = 10.0
"""Less than a hub has: whoever asks whether the servers answer wants to know soon."""
MIN_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
"""An append is one message; a packet may be a megabyte, and several may be appended together."""
UNSEEN: Final = (
    "Whether a server syncs a message before it answers cannot be seen by a client. Set "
    "`jetstream { sync_interval: always }` in the configuration of each server; without it, loss of power of "
    "all its servers at once may undo the last two minutes."
)


A = TypeVar("A", bound=Answer)


class _Fixed(Struct, frozen=True):
    deny_delete: bool = False


class _More(Answer, frozen=True):
    """What `StreamFacts` leaves out."""

    config: _Fixed = _Fixed()
    ts: datetime | None = None


class _Limits(Struct, frozen=True):
    max_storage: int = UNLIMITED


class _Account(Answer, frozen=True):
    storage: int = 0
    limits: _Limits = _Limits()


class _Found(Struct, frozen=True, kw_only=True):
    name: str
    stream: StreamFacts | None
    """None: there is none yet."""
    index: StreamFacts | None
    keys: StreamFacts | None
    fixed: _Fixed
    account: _Account
    version: str
    max_payload: int
    took: float

    @property
    def replicas(self) -> int:
        return self.stream.config.num_replicas if self.stream and self.stream.config else 0

    @property
    def is_clustered(self) -> bool:
        return self.stream is not None and bool(self.stream.cluster.name)


async def check_up_nats(address: str, watch: Watch, *, patience_seconds: float = PATIENCE_SECONDS) -> Checkup:
    """Ask the servers. Raises `LogUnavailable`."""
    connection = Connection(NatsAddress(address), patience_seconds=patience_seconds)
    try:
        name = connection.address.stream
        stream = await _asked(connection, name, StreamFacts)
        index = await _asked(connection, index_of(name), StreamFacts)
        keys = await _asked(connection, keys_of(name), StreamFacts)
        more = await _asked(connection, name, _More) or _More()
        here, begun = watch.now(), watch.seconds()
        account = await connection.ask("INFO", {}, _Account)
        took = watch.seconds() - begun
        client = await connection.client()
        version, max_payload = server_version(client), client.max_payload
    except Refused as refused:
        raise connection.unavailable(str(refused)) from None
    finally:
        await connection.close()
    found = _Found(
        name=name,
        stream=stream,
        index=index,
        keys=keys,
        fixed=more.config,
        account=account,
        version=version,
        max_payload=max_payload,
        took=took,
    )
    return Checkup(
        address=connection.address.text,
        facts=_facts(found),
        means=list(_means(found)),
        findings=[
            *_settings(found),
            *_copies(found),
            *_room(found),
            *(skew(here, more.ts) if more.ts is not None else ()),
        ],
    )


async def _asked(connection: Connection, stream: str, answer: type[A]) -> A | None:
    """What the servers say of a stream; None if there is none."""
    try:
        return await connection.ask(f"STREAM.INFO.{stream}", {}, answer)
    except Refused as refused:
        if refused.err_code != NO_STREAM:
            raise
        return None


def _facts(found: _Found) -> dict[str, str]:
    limit = found.account.limits.max_storage
    return {
        "NATS server": found.version,
        **_stream_facts(found.stream),
        "storage limit of the account": "none" if limit == UNLIMITED else str(limit),
        "max_payload": str(found.max_payload),
        "sync_interval": "cannot be seen by a client",
        "one question and its answer": f"{found.took * 1000:.1f} ms",
    }


def _stream_facts(stream: StreamFacts | None) -> dict[str, str]:
    if stream is None:
        return {"stream": "not there yet; whoever opens the log first makes it"}
    cluster = stream.cluster
    servers = f"{cluster.name!r}, led by {cluster.leader!r}" if cluster.name else "none: one server"
    replicas = str(stream.config.num_replicas if stream.config else 1)
    return {"cluster": servers, "replicas": replicas, "stream bytes": str(stream.state.bytes)}


def _means(found: _Found) -> Iterator[str]:
    if not found.replicas:
        yield f"In a cluster, an append will be acknowledged with {REPLICAS} copies; on one server, with one."
    elif found.replicas > 1:
        lost, majority = (found.replicas - 1) // 2, found.replicas // 2 + 1
        yield (
            f"An acknowledged append is with {majority} of {found.replicas} servers: it survives a crash of "
            f"the hub, and loss of {lost} of them."
        )
    else:
        yield "An acknowledged append is with one server: it survives a crash of the hub, not its loss."
    yield UNSEEN


def _settings(found: _Found) -> Iterator[Finding]:
    do = "Edit the stream: as it is, it may lose records or refuse them, and no hub will open it."
    if found.index is not None:
        for name, value, expected in unlike(found.index.config, INDEX, index_subjects_of(found.name)):
            yield Finding(f"index stream setting {name}", repr(value), repr(expected), do)
    if found.keys is not None:
        for name, value, expected in unlike(found.keys.config, KEYS, keys_subjects_of(found.name)):
            yield Finding(f"key stream setting {name}", repr(value), repr(expected), do)
    if found.stream is None:
        return
    for name, value, expected in unlike(found.stream.config, LOG, subjects_of(found.name)):
        yield Finding(f"stream setting {name}", repr(value), repr(expected), do)
    for name in _Fixed.__struct_fields__:
        if not getattr(found.fixed, name):
            do = "Export the log, and import it into a stream that turnline makes; it cannot be set later."
            yield Finding(f"stream setting {name}", "false: anybody may delete records", "true", do)


def _copies(found: _Found) -> Iterator[Finding]:
    if found.stream is None:
        return
    if found.is_clustered and found.replicas < REPLICAS:
        do = f"Edit the stream: {REPLICAS} replicas."
        yield Finding("replicas", f"{found.replicas}, in a cluster", f"{REPLICAS}", do)
    behind = [peer.name for peer in found.stream.cluster.replicas if peer.offline or not peer.current]
    if behind:
        do = "Start these servers, or wait until they have caught up: until then fewer may be lost."
        yield Finding("copies", f"away or behind: {', '.join(behind)}", "every copy up to date", do)


def _room(found: _Found) -> Iterator[Finding]:
    if found.max_payload < MIN_PAYLOAD_BYTES:
        do = "Set `max_payload: 8MB` in the configuration of each server: a larger append is refused."
        yield Finding("max_payload", str(found.max_payload), f"at least {MIN_PAYLOAD_BYTES}", do)
    limit, used = found.account.limits.max_storage, found.account.storage
    if limit != UNLIMITED and used > limit * 0.9:
        yield Finding("storage of the account", f"{used} of {limit} bytes", "room", "Raise the limit.")
