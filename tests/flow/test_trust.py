"""Marks: a definition reads secrets only if the project's own servers loaded it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from turnline.core.envelope import SCHEMA_VERSION, Envelope, JsonObject
from turnline.core.event_types import HUB
from turnline.errors import BadKey, UnknownName
from turnline.flow.definition.flow import Flow, digest, read
from turnline.flow.definitions import EV_FLOW_DEFINED, Definitions
from turnline.flow.trust import (
    KEY_FILE,
    KEY_VARIABLE,
    TrustKey,
    any_reads_secrets,
    ensure_trust_key,
    find_trust_key,
)
from turnline.hub.timers import sortable_ids
from turnline.log.base import DEFINITION_PREFIX, MARK_PREFIX, Log
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

KEY = TrustKey(b"k" * 32)
OTHER_KEY = TrustKey(b"o" * 32)


def a_flow(url: str) -> Flow:
    call = {"url": url, "headers": {"Authorization": "{{ secret.KEY }}"}}
    return read({"steps": [{"id": "a", "kind": "api_call", "api_call": call}]}, name="main")


OURS = a_flow("https://example.com/")
EVIL = a_flow("https://evil.example.com/")


def definitions(log: Log, *own: Flow, key: TrustKey | None = KEY) -> Definitions:
    clock = ManualClock()
    return Definitions(log, clock, sortable_ids(clock), own=own, key=key)


async def append(log: Log, channel_id: str, event_type: str, data: JsonObject) -> None:
    """Write a channel of one line, as someone does who has write access to the log and no key."""
    envelope = Envelope(
        schema_version=SCHEMA_VERSION,
        envelope_id=f"forged-{channel_id}",
        channel_id=channel_id,
        seq=1,
        sender_id=HUB,
        event_type=event_type,
        event_data=data,
        audience=[],
        created_at=ManualClock().now(),
    )
    await log.append(channel_id, [envelope], after=0)


async def forge(log: Log, flow: Flow, *, name: str = "") -> str:
    name = name or digest(flow.pinned())
    await append(log, DEFINITION_PREFIX + name, EV_FLOW_DEFINED, flow.pinned())
    return name


async def test_a_definition_that_is_loaded_now_is_trusted_also_without_a_key() -> None:
    log = MemoryLog()
    name = await forge(log, OURS)

    assert await definitions(log, OURS, key=None).is_trusted(name)


async def test_a_definition_that_was_loaded_earlier_is_trusted_by_every_process_with_the_key() -> None:
    log = MemoryLog()
    name = await definitions(log, OURS).keep(OURS)

    assert await definitions(log).is_trusted(name)
    assert not await definitions(log, key=OTHER_KEY).is_trusted(name)
    assert not await definitions(log, key=None).is_trusted(name)


async def test_a_definition_that_came_otherwise_is_marked_once_a_server_loads_the_same_from_its_files() -> (
    None
):
    log = MemoryLog()
    name = await forge(log, OURS)
    assert not await definitions(log).is_trusted(name)
    await definitions(log, OURS).is_trusted(name)

    assert await definitions(log).is_trusted(name)


async def test_a_definition_line_that_was_written_without_the_key_is_not_trusted() -> None:
    log = MemoryLog()
    await definitions(log, OURS).keep(OURS)
    name = await forge(log, EVIL)

    assert await definitions(log).get(name) == EVIL
    assert not await definitions(log, OURS).is_trusted(name)


async def test_a_mark_of_another_definition_or_of_another_key_does_not_fit() -> None:
    log = MemoryLog()
    await definitions(log, OURS).keep(OURS)
    name = await forge(log, EVIL)
    [mark] = [head.channel_id for head in await log.channels() if head.channel_id.startswith(MARK_PREFIX)]
    [line] = [line async for line in log.read(mark)]
    await append(log, OTHER_KEY.mark_of(name), line.event_type, line.event_data)
    await append(log, MARK_PREFIX + name, line.event_type, {"digest": name})

    assert not await definitions(log).is_trusted(name)


async def test_content_of_another_digest_is_not_the_definition() -> None:
    """Someone replaces the content below a name that has a mark."""
    before, log = MemoryLog(), MemoryLog()
    name = await definitions(before, OURS).keep(OURS)
    await forge(log, EVIL, name=name)
    await append(log, KEY.mark_of(name), "flow.trusted", {"digest": name})

    with pytest.raises(UnknownName):
        await definitions(log).get(name)


async def test_trusting_imported_channels_marks_definitions_and_nothing_else() -> None:
    log = MemoryLog()
    name, wrong = await forge(log, EVIL), await forge(log, OURS, name="0" * 32)
    ids = ["_directory", DEFINITION_PREFIX + name, DEFINITION_PREFIX + wrong]

    assert [flow.name for flow in await definitions(log).trust_channels(ids)] == ["main"]
    assert await definitions(log).is_trusted(name)
    assert not await definitions(log).is_trusted(wrong)


def test_the_key_is_in_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    assert find_trust_key({}, tmp_path) is None
    key = ensure_trust_key({}, tmp_path)

    path = tmp_path / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_trust_key({}, tmp_path).mark_of("a") == key.mark_of("a")
    assert path.read_text().strip() not in repr(key)
    path.chmod(0o644)
    with pytest.raises(BadKey, match="others can read it"):
        find_trust_key({}, tmp_path)


def test_hosts_share_the_key_by_a_variable(tmp_path: Path) -> None:
    environ = {KEY_VARIABLE: "ab" * 32}

    assert ensure_trust_key(environ, tmp_path).mark_of("a") == ensure_trust_key(
        environ, tmp_path / "b"
    ).mark_of("a")
    assert not (tmp_path / KEY_FILE).exists()
    with pytest.raises(BadKey, match="64 hexadecimal digits") as bad:
        ensure_trust_key({KEY_VARIABLE: "canary"}, tmp_path)
    assert "canary" not in str(bad.value)


def test_only_steps_with_headers_and_mcp_servers_read_secrets() -> None:
    plain = read({"steps": [{"id": "a", "runner": "work"}]}, name="plain")
    mcp = read({"steps": [{"id": "a", "kind": "mcp", "mcp": {"server": "s", "tool": "t"}}]}, name="mcp")

    assert [any_reads_secrets([one]) for one in (plain, OURS, mcp)] == [False, True, True]
