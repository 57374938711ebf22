"""The streams of a `NatsLog`: what they have to be, made or checked when it connects.

    <stream>          the log. A subject for each channel, a message for each append
    <stream>_index    which channels are open, and folded states; one message for each subject
    <stream>_keys     the keys of the content; the only stream whose messages are deleted for good
    <stream>_blobs    files of trees of channels (Y6); one message for each chunk

Rule 1: a stream that could forget, drop or overwrite a message is refused,
naming the setting. How many copies are kept is a choice, and told.

Rule 2: three copies wherever there is a cluster, one where there is none.

Rule 3: the log's stream is made with the number of its format; one of another number is refused. A stream
that was made by hand has none: there each message says its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from turnline.log.nats_connection import Answer, Connection, Refused
from turnline.log.nats_message import FORMAT

NO_STREAM: Final = 10059
NO_CLUSTER: Final = 10074
REPLICAS: Final = 3

UNLIMITED: Final = -1
KEPT: Final[dict[str, object]] = {
    "retention": "limits",
    "storage": "file",
    "discard": "new",
    "max_msgs": UNLIMITED,
    "max_bytes": UNLIMITED,
    "max_age": 0,
    "max_msg_size": UNLIMITED,
    "allow_direct": False,
    "no_ack": False,
    "sealed": False,
}
LOG: Final = KEPT | {"max_msgs_per_subject": UNLIMITED}
INDEX: Final = KEPT | {"max_msgs_per_subject": 1}
KEYS: Final = KEPT | {"max_msgs_per_subject": UNLIMITED, "compression": "none", "deny_delete": False}
"""Not compressed: bytes of a compressed block cannot be overwritten in place."""
FORMAT_KEY: Final = "turnline-format"
FIXED: Final[dict[str, object]] = {"deny_delete": True, "metadata": {FORMAT_KEY: str(FORMAT)}}
"""What the log is made with besides; nobody can take it back. It can be purged: `log prune` does (Y3)."""


class StreamConfig(Struct, frozen=True):
    """The settings of a stream that matter here."""

    retention: str
    storage: str
    discard: str
    max_msgs: int
    max_bytes: int
    max_age: int
    max_msg_size: int
    max_msgs_per_subject: int
    num_replicas: int
    subjects: list[str] = []
    allow_direct: bool = False
    no_ack: bool = False
    sealed: bool = False
    compression: str = "none"
    deny_delete: bool = False
    metadata: dict[str, str] | None = None
    mirror: object = None
    sources: object = None
    subject_transform: object = None


class _Cluster(Struct, frozen=True):
    name: str = ""


class _State(Struct, frozen=True):
    messages: int = 0


class _Stream(Answer, frozen=True):
    config: StreamConfig | None = None
    state: _State = _State()
    cluster: _Cluster = _Cluster()


async def open_streams(connection: Connection) -> str:
    """Make or check the streams; return what an append survives, for people. Raises `LogUnavailable`."""
    name = connection.address.stream
    try:
        found = await _open(connection, name, subjects_of(name), LOG, fixed=FIXED)
        refuse_format(connection, found.config)
        await _open(connection, index_of(name), index_subjects_of(name), INDEX, fixed={})
        if found.state.messages:
            await _refuse_without_keys(connection, keys_of(name))
        await _open(connection, keys_of(name), keys_subjects_of(name), KEYS, fixed={})
        await _open(connection, blobs_of(name), [f"{blobs_of(name)}.>"], INDEX, fixed={})
    except Refused as refused:
        raise connection.unavailable(str(refused)) from refused
    return durability_of(found.config, found.cluster.name)


def index_of(stream: str) -> str:
    return f"{stream}_index"


def keys_of(stream: str) -> str:
    return f"{stream}_keys"


def blobs_of(stream: str) -> str:
    return f"{stream}_blobs"


def subjects_of(stream: str) -> list[str]:
    return [f"{stream}.*"]


def index_subjects_of(stream: str) -> list[str]:
    return [f"{index_of(stream)}.>"]


def keys_subjects_of(stream: str) -> list[str]:
    return [f"{keys_of(stream)}.*.*"]


def durability_of(config: StreamConfig | None, cluster: str) -> str:
    """Say what an append survives. Whether a server syncs before it answers, no client can see."""
    replicas = config.num_replicas if config else 1
    power = "; loss of power if they run with `sync_interval: always`, which no client can see"
    if replicas > 1:
        return f"loss of {(replicas - 1) // 2} of {replicas} servers{power}"
    alone = f"process{power.replace('they run', 'its server runs')}"
    return f"{alone}; one copy, though its cluster could keep three" if cluster else alone


def refuse_format(connection: Connection, config: StreamConfig | None) -> None:
    """Raise `LogUnavailable` for a log of another format (Y12)."""
    found = ((config and config.metadata) or {}).get(FORMAT_KEY, str(FORMAT))
    if found != str(FORMAT):
        because = (
            f"its format is {found}, this program reads {FORMAT}; use the version of turnline that wrote it"
        )
        raise connection.unavailable(because)


def unlike(
    config: StreamConfig | None, wanted: dict[str, object], subjects: list[str]
) -> Iterator[tuple[str, object, object]]:
    """Yield what a stream has to be and is not: the setting, what was found, what is expected."""
    expected = wanted | {"subjects": subjects, "mirror": None, "sources": None, "subject_transform": None}
    for setting, value in expected.items():
        found = getattr(config, setting)
        if found != value:
            yield setting, found, value


async def _open(
    connection: Connection,
    name: str,
    subjects: list[str],
    wanted: dict[str, object],
    *,
    fixed: dict[str, object],
) -> _Stream:
    try:
        found = await connection.ask(f"STREAM.INFO.{name}", {}, _Stream)
    except Refused as refused:
        if refused.err_code != NO_STREAM:
            raise
        found = await _create(connection, {"name": name, "subjects": subjects, **wanted, **fixed})
    _check(connection, name, subjects, wanted, found.config)
    return found


async def _refuse_without_keys(connection: Connection, name: str) -> None:
    """Refuse a log that lost its keys: with new ones, all of its content would count as damaged."""
    try:
        await connection.ask(f"STREAM.INFO.{name}", {}, _Stream)
    except Refused as refused:
        if refused.err_code != NO_STREAM:
            raise
        because = (
            f"its stream {name!r} is gone, and with it the keys of its content; restore it from a backup"
        )
        raise connection.unavailable(because) from None


async def _create(connection: Connection, config: dict[str, object]) -> _Stream:
    asked = connection.address.replicas
    what = f"STREAM.CREATE.{config['name']}"
    try:
        return await connection.ask(what, config | {"num_replicas": asked or REPLICAS}, _Stream)
    except Refused as refused:
        if refused.err_code != NO_CLUSTER or asked:
            raise
    return await connection.ask(what, config | {"num_replicas": 1}, _Stream)


def _check(
    connection: Connection,
    name: str,
    subjects: list[str],
    wanted: dict[str, object],
    config: StreamConfig | None,
) -> None:
    for setting, found, value in unlike(config, wanted, subjects):
        because = f"its stream {name!r} has {setting} {found!r}, a log needs {value!r}; change it there"
        raise connection.unavailable(because)
