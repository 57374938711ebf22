"""The hub's directory: registrations, on a channel of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from turnline.client.channel import Channel
from turnline.core.envelope import JsonObject
from turnline.core.governance import Passport, Registrar, Registration, Resume, Rule
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import AgentTarget, FromSpeaker, TerminateTarget, TurnFailed
from turnline.errors import BadDraft, Denied, InviteRejected, LogUnavailable, NameTaken, UnknownParticipant
from turnline.hub.directory import HubDirectory
from turnline.hub.timers import sortable_ids
from turnline.log.base import Log
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock

from ..logs import OpenLog
from .scenes import (
    A_B_A,
    SAFETY_SECONDS,
    FailingLog,
    House,
    begin,
    bob_is_away,
    draft,
    house,
    refused,
    sqlite,
    two_houses,
    until,
)


async def directory(log: Log, **options: Any) -> HubDirectory:
    clock = ManualClock()
    found = HubDirectory(log, clock, sortable_ids(clock), **options)
    await found.hydrate()
    return found


async def register(
    known: HubDirectory,
    passport: Passport,
    resume: Resume | None = None,
    rule: Rule | None = None,
    **given: Any,
) -> Registration:
    user = given.pop("user", None)
    by = None if user is None else Registrar(user)
    return (await known.register(passport, resume, rule, by=by, **given)).registration


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


# --- names ---

ROUNDS = 30


async def raced(one: HubDirectory, two: HubDirectory, name: str, **given: Any) -> list[object]:
    """What ann and ben get who register one new name at the same moment, each at a hub of their own."""
    tries = (
        register(where, Passport(name=name, owner=user), user=user, **given)
        for where, user in ((one, "ann"), (two, "ben"))
    )
    return list(await asyncio.gather(*tries, return_exceptions=True))


async def test_of_two_hubs_that_register_one_new_name_at_once_one_gets_it(open_log: OpenLog) -> None:
    logs = open_log(), open_log()
    one, two = await directory(logs[0]), await directory(logs[1])
    for number in range(ROUNDS):
        got = await raced(one, two, f"new-{number}")
        [winner] = [found for found in got if isinstance(found, Registration)]
        [loser] = [found for found in got if not isinstance(found, Registration)]
        read_again = (await directory(logs[number % 2])).known.resolve(f"new-{number}")

        assert isinstance(loser, NameTaken)
        assert read_again == winner


async def test_of_two_look_alikes_that_are_registered_at_once_one_is(open_log: OpenLog) -> None:
    logs = open_log(), open_log()
    one, two = await directory(logs[0]), await directory(logs[1])
    for number in range(ROUNDS):
        tries = (
            register(one, Passport(name=f"bot {number}", owner="ann"), user="ann"),
            register(two, Passport(name=f"BOT {number}", owner="ben"), user="ben"),
        )
        got = await asyncio.gather(*tries, return_exceptions=True)

        assert sorted(type(found).__name__ for found in got) == ["NameTaken", "Registration"]


async def test_two_processes_of_one_owner_share_a_participant(open_log: OpenLog) -> None:
    """`serve --workers`, and a program that is started again: the same agent in several processes."""
    logs = open_log(), open_log()
    one, two = await directory(logs[0]), await directory(logs[1])
    for owner in ("", "ann"):
        user = owner or None
        passport = Passport(name=f"worker of {owner or 'nobody'}", owner=owner)
        first, second = await asyncio.gather(
            register(one, passport, user=user), register(two, passport, user=user)
        )

        assert first == second


async def test_a_registration_is_decided_on_the_log_and_not_on_what_a_hub_remembers() -> None:
    log = MemoryLog()
    one, two = await directory(log), await directory(log)
    first = await register(one, Passport(name="alice", owner="ann"), user="ann")
    await two.hydrate()
    await one.remove(first.agent_id)
    second = await register(one, Passport(name="alice", owner="ben"), user="ben")

    await refused(NameTaken, register(two, Passport(name="alice", owner="ann"), user="ann"))
    assert two.known.resolve("alice") == second


async def test_readings_that_overlap_bring_nobody_back() -> None:
    log = MemoryLog()
    known = await directory(log)
    first = await register(known, Passport(name="alice"))
    lines = [line async for line in log.read("_directory")]
    await known.remove(first.agent_id)

    class Late(MemoryLog):
        """Gives the reading that began first its lines last."""

        async def read(self, channel_id: str, *, after: int = 0) -> Any:
            found = [line async for line in log.read(channel_id, after=after)]
            self.asked += 1
            if self.asked == 1:
                await asyncio.sleep(0)
                found = lines
            for line in found:
                yield line

        asked = 0

    late = HubDirectory(Late(), ManualClock(), sortable_ids(ManualClock()))
    await asyncio.gather(late.hydrate(), late.hydrate())

    assert (late.known.seq, late.known.find("alice")) == (2, None)


async def test_an_agent_of_the_project_takes_its_name_from_a_squatter() -> None:
    log = MemoryLog()
    async with house(log, "bob") as home:
        squatter = await home.hub.enrol(
            Passport(name="Ann", owner="mallory"), None, None, by=Registrar("mallory")
        )
    async with house(log, "ann", "bob") as home:
        ann = home["ann"]
        channel = await home.talk(by="bob", to="ann")

        assert ann.agent_id != squatter.agent_id
        assert home.hub.find_participant(squatter.agent_id) is None
        assert [one.name for one in (await channel.info()).participants] == ["bob", "ann"]
        assert (await home.audited("removed"))[0] == {
            "agent_id": squatter.agent_id,
            "reason": "name_reclaimed",
        }


async def test_a_hub_asks_the_log_before_it_refuses_a_name(open_log: OpenLog) -> None:
    """This hub does not even follow the log; what refuses is the rule of those whom it has found there."""
    log = open_log()
    async with house(log, "alice", "bob") as here:
        channel = await here.talk()
        there = await directory(log)
        for name in ("carl", "dora", "ed"):
            await register(there, Passport(name=name), None, Rule(addressable_by=["nobody"]))
            below = channel.channel_id if name == "carl" else None
            await refused(Denied, here.talk(to=name, parent=below))

        await refused(UnknownParticipant, here.talk(to="fay"))
        assert (await here.hub.lookup("ed")).name == "ed"


async def test_an_agent_of_another_process_can_be_invited_the_moment_it_is_registered(tmp_path: Path) -> None:
    async with two_houses(sqlite(tmp_path), "alice") as (here, there):
        for number in range(ROUNDS):
            name = f"bot-{number}"
            await there.agent(name)
            channel = await here.talk(to=name)

            assert (await channel.info()).participants[1].name == name


async def test_a_name_that_another_process_gave_up_or_took_over_is_not_addressed_as_before(
    tmp_path: Path,
) -> None:
    async with two_houses(sqlite(tmp_path), "alice") as (here, there):
        for number in range(ROUNDS):
            name = f"bot-{number}"
            before = await there.agent(name)
            await here.talk(to=name)
            await there.door.unregister(name)
            await refused(UnknownParticipant, here.talk(to=name))
            after = await there.agent(name)
            channel = await here.talk(to=name)

            assert (await channel.info()).participants[1].agent_id == after.agent_id != before.agent_id


# --- leaving ---


async def test_an_unregistered_participant_cannot_be_addressed_and_its_channels_keep_its_name() -> None:
    async with house(MemoryLog(), "alice", "bob", "carl") as home:
        graph = A_B_A.to_dict()
        channel = await home["alice"].open("workflow", ["bob"], {"graph": graph})
        await home.hub.unregister("bob")
        error = await refused(UnknownParticipant, home.talk(to="bob"))

        assert error.known == ("alice", "carl")
        assert [one.name for one in (await channel.info()).participants] == ["alice", "bob"]
        assert (await channel.send("are you there?")).decision is not None
        assert (await home.audited("removed"))[0]["reason"] == "unregistered"
        assert [one.name for one in await home["alice"].seat.peers()] == ["carl"]


async def test_a_name_that_was_unregistered_is_another_participant_when_it_comes_again() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        first = home["bob"].agent_id
        await home.door.unregister("bob")
        second = await home.hub.enrol(Passport(name="bob", owner="ben"), None, None, by=Registrar("ben"))

        assert second.agent_id != first
        assert [one.agent_id for one in (await channel.info()).participants][1] == first


async def failed_turn(home: House, channel: Channel) -> JsonObject:
    """Return the data of the channel's one failed turn."""
    (found,) = [one for one in await home.wal(channel) if one.event_type == "turn.failed"]
    return found.event_data


@pytest.mark.parametrize("has_claim", [False, True])
async def test_the_turn_of_a_participant_that_is_unregistered_fails_and_the_graph_closes(
    *, has_claim: bool
) -> None:
    """Also without a sweep that is due: the hub looks at its channels at once."""
    async with house(MemoryLog(), "alice", "bob", ttl_sweep_interval=3600) as home:
        channel = await home.open(A_B_A, message="go")
        bob = home["bob"].agent_id
        if has_claim:
            await home.hub.turns.claim(channel.channel_id, bob, worker="w", turn=2)
        await home.hub.unregister("bob")
        result = await channel.result(SAFETY_SECONDS)

        assert result.reason == "turn_failed"
        assert (await failed_turn(home, channel))["error"]["type"] == "ParticipantRemoved"


async def test_a_rule_for_failed_turns_takes_the_turn_of_an_unregistered_participant() -> None:
    takes = [
        Transition(TurnFailed(), AgentTarget("carl")),
        Transition(FromSpeaker("alice"), AgentTarget("bob")),
    ]
    graph = TransitionGraph("alice", takes, TerminateTarget("done"))
    async with house(MemoryLog(), "alice", "bob", "carl") as home:
        channel = await home.open(graph, message="go")
        await home.hub.unregister("bob")
        await home.hub.tick()

        assert (await channel.state()).expected_next_speaker == home["carl"].agent_id


async def test_a_rule_that_gives_the_floor_to_an_unregistered_participant_again_makes_no_circle() -> None:
    again = [
        Transition(TurnFailed(), AgentTarget("bob")),
        Transition(FromSpeaker("alice"), AgentTarget("bob")),
    ]
    graph = TransitionGraph("alice", again, TerminateTarget("done"))
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.open(graph, message="go")
        await home.hub.unregister("bob")
        await home.hub.tick()

        assert (await channel.result(SAFETY_SECONDS)).reason == "turn_failed"
        await failed_turn(home, channel)


async def test_a_turn_that_an_unregistered_participant_gets_later_fails_and_a_conversation_stays_open() -> (
    None
):
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        await home.hub.unregister("bob")
        await channel.send("are you there?")
        await home.hub.tick()

        assert (await channel.state()).is_resting
        await failed_turn(home, channel)


async def test_an_invitation_of_a_participant_that_is_unregistered_counts_as_rejected() -> None:
    async with bob_is_away() as home:
        opening = begin(home.talk())
        await until(lambda: home.hub.health().open_channels == 1)
        await home.hub.unregister("bob")
        await home.hub.tick()
        error = await refused(InviteRejected, opening)

        assert "unregistered" in str(error)


async def test_a_turn_fails_when_another_hub_unregisters_its_agent() -> None:
    log = MemoryLog()
    async with two_houses(log, "alice", "bob") as (home, other):
        channel = await home.talk(message="go")
        bob = home["bob"].agent_id
        await other.hub.unregister("bob")
        await until(lambda: home.hub.find_participant(bob) is None)
        await home.hub.tick()

        assert (await home.handle("alice", channel).state()).is_resting


async def test_a_hub_that_starts_fails_the_turns_of_participants_that_were_unregistered() -> None:
    log = MemoryLog()
    async with house(log, "alice", "bob") as home:
        channel = await home.talk(message="go")
        await home.hub.unregister("bob")
    async with house(log, "alice") as home:
        await home.hub.tick()

        assert (await home.handle("alice", channel).state()).is_resting


async def test_an_unregistered_participant_posts_nothing_more() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        bob = home["bob"]
        await home.hub.unregister("bob")

        await refused(Denied, home.hub.post(channel.channel_id, draft(bob, interject=True)))


async def test_a_channel_of_an_unregistered_participant_can_be_forked() -> None:
    async with house(MemoryLog(), "alice", "bob") as home:
        channel = await home.talk()
        await home.hub.unregister("bob")

        assert await home.hub.fork(channel.channel_id, at=2, by="alice")


# --- users of a server ---


async def test_the_id_of_a_user_is_refused_at_every_hub_of_the_log_and_after_a_restart(
    tmp_path: Path,
) -> None:
    logs = sqlite(tmp_path), sqlite(tmp_path), sqlite(tmp_path)
    one, two = await directory(logs[0]), await directory(logs[1])
    await one.note_user("carol")

    await refused(NameTaken, register(two, Passport(name="carol", owner="mallory"), user="mallory"))
    later = await directory(logs[2])
    await refused(NameTaken, register(later, Passport(name="Carol", owner="mallory"), user="mallory"))
    assert (await register(later, Passport(name="carol", owner="carol"), user="carol")).name == "carol"
    for log in logs:
        await log.close()


async def test_a_user_is_written_down_once(tmp_path: Path) -> None:
    logs = sqlite(tmp_path), sqlite(tmp_path)
    one, two = await directory(logs[0]), await directory(logs[1])
    for _ in range(3):
        await asyncio.gather(*(where.note_user(user) for where in (one, two) for user in ("Ann", "ann")))
    lines = [line.event_data["user"] async for line in logs[0].read("_directory")]

    assert sorted(lines) == ["Ann", "ann"]
    for log in logs:
        await log.close()


async def test_a_user_who_comes_back_after_many_others_is_not_written_down_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemoryLog()
    known = await directory(log, users_remembered=1)
    for user in ("ann", "ben", "ann", "ben"):
        await known.note_user(user)
    lines = [line.event_data["user"] async for line in log.read("_directory")]

    assert lines == ["ann", "ben"]
    assert caplog.text == ""
    await refused(NameTaken, register(known, Passport(name="ben", owner="mallory"), user="mallory"))


async def test_the_line_of_a_user_has_an_id_that_confirms_no_guess() -> None:
    ids = set[str]()
    for _ in range(2):
        log = MemoryLog()
        known = await directory(log)
        await known.note_user("ann")
        ids |= {line.envelope_id async for line in log.read("_directory")}

    assert len(ids) == 2  # The same name has another id on another log.


async def test_a_log_that_takes_no_line_costs_no_user_their_request() -> None:
    log = FailingLog()
    known = await directory(log)
    log.fail_append = LogUnavailable("memory:", because="the disk is full")
    await known.note_user("carol")

    await refused(NameTaken, register(known, Passport(name="carol", owner="mallory"), user="mallory"))


RACER = """
import asyncio, sys
from turnline.client.embedded import Hub
from turnline.core.governance import Passport, Registrar
from turnline.errors import NameTaken

address, user = sys.argv[1:]

async def main() -> None:
    hub = await Hub.open(address)
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        try:
            got = await hub.enrol(Passport(name=name, owner=user), None, None, by=Registrar(user))
            print(got.agent_id, flush=True)
        except NameTaken:
            print("NameTaken", flush=True)
        sys.stdin.readline()
        print((await hub.lookup(name)).agent_id, flush=True)
    await hub.close()

asyncio.run(main())
"""


def asked(racers: list[subprocess.Popen[str]], line: str) -> list[str]:
    """Give every process the line at once; return what each of them says."""
    for one in racers:
        assert one.stdin is not None
        one.stdin.write(line + "\n")
        one.stdin.flush()
    return [said(one) for one in racers]


def said(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_of_two_processes_that_register_one_new_name_at_once_one_gets_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    on_postgres = kind == "postgres"
    address = request.getfixturevalue("postgres").fresh() if on_postgres else f"sqlite:///{tmp_path}/log.db"
    program = [sys.executable, "-c", RACER, address]
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen([*program, user], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for user in ("ann", "mallory")
        ]
        assert [said(one) for one in racers] == ["ready"] * 2
        for number in range(ROUNDS):
            got = asked(racers, f"new-{number}")
            seen = asked(racers, "")

            assert got.count("NameTaken") == 1
            assert set(seen) == set(got) - {"NameTaken"}
        for one in racers:
            assert one.stdin is not None
            one.stdin.close()
        assert [one.wait(timeout=60) for one in racers] == [0, 0]
