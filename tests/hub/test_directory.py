"""The hub's directory: registrations, on a channel of their own."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.governance import Passport, Registration, Resume, Rule
from turnline.errors import BadDraft, NameTaken, UnknownParticipant
from turnline.hub.directory import HubDirectory
from turnline.hub.ids import sortable_ids
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from ..logs import OpenLog
from .scenes import house, refused


async def directory(log: Log) -> HubDirectory:
    clock = ManualClock()
    found = HubDirectory(log, clock, sortable_ids(clock))
    await found.hydrate()
    return found


async def register(
    known: HubDirectory,
    passport: Passport,
    resume: Resume | None = None,
    rule: Rule | None = None,
    **given: Any,
) -> Registration:
    return (await known.register(passport, resume, rule, **given)).registration


async def test_a_registration_is_a_line_on_a_channel_of_its_own(open_log: OpenLog) -> None:
    async with house(open_log(), "alice", people=["user"]) as home:
        lines = await home.hub.read_wal("_directory")

        assert [line.event_type for line in lines] == ["participant.registered"] * 2
        assert [line.event_data["passport"]["name"] for line in lines] == ["alice", "user"]
        assert [one.name for one in home.hub.participants()] == ["alice", "user"]


async def test_registering_the_same_again_writes_nothing() -> None:
    """L6."""
    log = MemoryLog()
    for _ in range(3):
        async with house(log, "alice") as home:
            assert len(await home.hub.read_wal("_directory")) == 1


async def test_what_is_not_given_stays_as_it_was_registered() -> None:
    """L6."""
    known = await directory(MemoryLog())
    first = await register(known, Passport(name="alice"), Resume(summary="writes"), Rule(inbox=3))
    again = await register(known, Passport(name="alice", owner="acme"))

    assert (again.agent_id, again.passport.owner) == (first.agent_id, "acme")
    assert (again.resume, again.rule) == (Resume(summary="writes"), Rule(inbox=3))


async def test_what_is_given_again_replaces(open_log: OpenLog) -> None:
    log = open_log()
    known = await directory(log)
    await known.register(Passport(name="alice"), Resume(summary="writes"), None)
    await known.register(Passport(name="alice"), Resume(summary="edits"), Rule(inbox=1))
    await log.close()
    read_again = await directory(open_log())

    assert read_again.known == known.known
    assert read_again.known.resolve("alice").resume.summary == "edits"


async def test_somebody_is_found_by_id_and_by_name() -> None:
    known = await directory(MemoryLog())
    alice = await register(known, Passport(name="Alice B. Toklas"))

    assert known.known.resolve("Alice B. Toklas") == known.known.resolve(alice.agent_id) == alice
    assert alice.agent_id.startswith("alice-b-toklas-")
    with pytest.raises(UnknownParticipant) as unknown:
        known.known.resolve("Alice")
    assert unknown.value.known == ("Alice B. Toklas",)


async def test_two_hubs_that_register_one_name_register_one_participant() -> None:
    log = MemoryLog()
    one, two = await directory(log), await directory(log)
    first = await register(one, Passport(name="alice"))
    second = await register(two, Passport(name="alice"))

    assert first == second
    assert two.known.seq == 1


async def test_a_name_keeps_its_kind() -> None:
    known = await directory(MemoryLog())
    await known.register(Passport(name="alice"), None, None)
    error = await refused(NameTaken, known.register(Passport(name="alice", kind="human"), None, None))

    assert "another name" in str(error)


async def test_somebody_who_is_removed_is_unknown_and_its_name_free() -> None:
    log = MemoryLog()
    known = await directory(log)
    first = await register(known, Passport(name="alice"))
    await known.remove(first.agent_id)
    assert (await directory(log)).known.find("alice") is None

    second = await register(known, Passport(name="alice"))
    assert second.agent_id != first.agent_id


@pytest.mark.parametrize(
    "passport",
    [Passport(name=""), Passport(name=" "), Passport(name="a\nb"), Passport(name="x", kind="ghost")],
)
async def test_a_passport_nobody_could_be_addressed_by_is_refused(passport: Passport) -> None:
    known = await directory(MemoryLog())
    await refused(BadDraft, known.register(passport, None, None))

    assert known.known.seq == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"passport": Passport(name="carol", owner=5)},  # type: ignore[arg-type]
        {"resume": Resume(capabilities="writing")},  # type: ignore[arg-type]
        {"rule": Rule(inbox="many")},  # type: ignore[arg-type]
    ],
    ids=["passport", "resume", "rule"],
)
async def test_a_registration_that_would_not_read_back_is_refused(
    open_log: OpenLog, fields: dict[str, Any]
) -> None:
    """E2: written down, it would keep every later hub from opening."""
    given = {"passport": Passport(name="carol"), "resume": None, "rule": None} | fields
    async with house(open_log(), "alice") as home:
        await refused(BadDraft, home.hub.enrol(**given))
    async with house(open_log(), "alice", "carol") as home:
        assert [one.name for one in home.hub.participants()] == ["alice", "carol"]
