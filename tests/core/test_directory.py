"""The directory: who is registered, folded from a channel of its own."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from turnline.core.channel import check_id
from turnline.core.directory import (
    RESERVED_NAMES,
    Directory,
    RegistrationPlan,
    fold_directory,
    plan_registration,
    readable_id,
    skeleton,
)
from turnline.core.envelope import Envelope
from turnline.core.governance import REGISTRATION_BYTES, Passport, Registrar, Registration, Resume, Rule
from turnline.errors import BadDraft, Denied, NameTaken, UnknownParticipant

from .scenes import line


def registered(agent_id: str, name: str, seq: int, *, owner: str = "", **rule: Any) -> Envelope:
    passport = {"name": name, "owner": owner}
    data = {"agent_id": agent_id, "passport": passport, "rule": rule, "user": owner}
    return line("hub", "participant.registered", data, seq=seq)


def plan(
    directory: Directory, name: str, *, user: str | None = None, owner: str | None = None, **given: Any
) -> RegistrationPlan:
    """Plan a registration: of a user over a link, or of a program that opened the log."""
    kind, quota = given.pop("kind", "agent"), given.pop("quota", 10)
    passport = Passport(name=name, owner=(user or "") if owner is None else owner, kind=kind)
    resume, rule = given.pop("resume", None), given.pop("rule", None)
    by = None if user is None else Registrar(user, given.pop("is_admin", False), quota)
    return plan_registration(directory, passport, resume, rule, new_agent_id="id-new", by=by, **given)


def after(*lines: Envelope) -> Directory:
    return reduce(fold_directory, lines, Directory())


def test_l2_somebody_is_found_by_id_and_by_name() -> None:
    directory = after(registered("id-a", "alice", 1), registered("id-b", "bob", 2))

    assert directory.resolve("alice") is directory.resolve("id-a")
    assert directory.resolve("bob").agent_id == "id-b"
    assert directory.seq == 2


def test_l2_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownParticipant) as unknown:
        after(registered("id-a", "alice", 1)).resolve("zoe")

    assert unknown.value.known == ("alice",)


def test_registering_again_replaces() -> None:
    directory = after(registered("id-a", "alice", 1), registered("id-a", "alicia", 2, inbox=3))

    assert directory.resolve("alicia").rule.inbox == 3
    assert directory.named("alice") is None


def test_whoever_is_removed_is_gone() -> None:
    gone = line("hub", "participant.removed", {"agent_id": "id-a"}, seq=2)

    assert after(registered("id-a", "alice", 1), gone).find("alice") is None


def test_other_lines_change_nothing_but_the_seq() -> None:
    directory = after(registered("id-a", "alice", 1), line("hub", "audit.note", {"agent_id": "id-a"}, seq=2))

    assert (directory.seq, list(directory.by_id)) == (2, ["id-a"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Alice", "alice-7x"),
        ("Dr. Zoë  Q!", "dr-zo-q-7x"),
        ("日本", "participant-7x"),
        ("x" * 99, "x" * 40 + "-7x"),
    ],
)
def test_an_id_is_readable_and_safe(name: str, expected: str) -> None:
    assert readable_id(name, "7x") == expected
    check_id(readable_id(name, "7x"), "agent_id")


# --- who may have a name ---


def test_a_name_belongs_to_its_first_owner() -> None:
    directory = after(registered("id-a", "alice", 1, owner="ann"))

    assert plan(directory, "alice", user="ann").registration.agent_id == "id-a"
    with pytest.raises(NameTaken) as refused:
        plan(directory, "alice", user="ben")
    assert (refused.value.name, refused.value.taken) == ("alice", "alice")
    assert "ann" not in str(refused.value)


def test_a_name_of_the_project_is_no_users() -> None:
    with pytest.raises(NameTaken):
        plan(after(registered("id-a", "alice", 1)), "alice", user="alice")


def test_the_project_shares_a_participant_with_the_user_in_its_passport() -> None:
    found = plan(after(registered("id-a", "alice", 1)), "alice", owner="ann")
    shared = Directory(2, {"id-a": found.registration}, {"alice": "id-a"}, {"alice": "id-a"})

    assert (found.registration.agent_id, found.registration.passport.owner) == ("id-a", "ann")
    for again in (
        plan(shared, "alice", user="ann"),
        plan(shared, "alice"),
        plan(shared, "alice", owner="bob"),
    ):
        assert (again.registration.agent_id, again.registration.user) == ("id-a", "")
    with pytest.raises(NameTaken):
        plan(shared, "alice", user="alice")


def test_a_users_registration_is_not_larger_than_its_limit() -> None:
    large = Resume(summary="x" * REGISTRATION_BYTES)

    with pytest.raises(BadDraft, match="at most 65536"):
        plan(Directory(), "alice", user="ann", resume=large)
    assert plan(Directory(), "alice", resume=large).is_change


def test_what_is_not_given_stays_as_it_was_registered() -> None:
    directory = after(registered("id-a", "alice", 1, inbox=3))
    found = plan(directory, "alice", resume=Resume(summary="writes"))

    assert (found.registration.rule, found.registration.resume.summary) == (Rule(inbox=3), "writes")
    assert found.is_change
    assert not plan(directory, "alice").is_change


@pytest.mark.parametrize("name", RESERVED_NAMES)
def test_no_user_takes_a_name_of_the_system(name: str) -> None:
    for spelled in (name, name.upper(), f" {name}", name.replace("o", "\u043e").replace("c", "\u0441")):
        with pytest.raises(NameTaken, match="The system has the names"):
            plan(Directory(), spelled, user=name)


def test_the_project_takes_its_name_from_a_squatter() -> None:
    directory = after(registered("id-m", "Ann", 1, owner="mallory", inbox=1))
    found = plan(directory, "ann", kind="human")
    lines = [line("hub", kind, data, seq=n) for n, (kind, data) in enumerate(found.lines(), start=2)]
    taken = after(registered("id-m", "Ann", 1, owner="mallory"), *lines)

    assert [one.agent_id for one in found.squatters] == ["id-m"]
    assert found.registration == Registration(agent_id="id-new", passport=Passport(name="ann", kind="human"))
    assert list(taken.by_id) == ["id-new"]
    assert taken.find("Ann") is None


def test_a_squatter_of_a_similar_name_gives_way_also_when_nothing_else_changes() -> None:
    directory = after(registered("id-a", "ann", 1), registered("id-m", "Ann", 2, owner="mallory"))
    found = plan(directory, "ann")

    assert found.is_change
    assert (found.registration.agent_id, [one.agent_id for one in found.squatters]) == ("id-a", ["id-m"])


def test_a_user_takes_the_name_of_their_own_id_from_another_user() -> None:
    directory = after(registered("id-m", "carol", 1, owner="mallory"))

    assert [one.agent_id for one in plan(directory, "carol", user="carol").squatters] == ["id-m"]
    with pytest.raises(NameTaken):
        plan(directory, "carol", user="ben")
    with pytest.raises(NameTaken):
        plan(after(registered("id-c", "carol", 1, owner="carol")), "carol", user="mallory")


def test_a_person_over_a_link_has_the_name_of_their_user_id() -> None:
    with pytest.raises(Denied, match="the name of their user id, 'ann'"):
        plan(Directory(), "carol", user="ann", kind="human")
    assert plan(Directory(), "ann", user="ann", kind="human").is_change
    assert plan(Directory(), "carol", user="ann", kind="human", is_admin=True).is_change
    assert plan(Directory(), "carol", kind="human").is_change


@pytest.mark.parametrize("name", ["carol", "Carol", "c\u0430rol"])
def test_the_id_of_a_known_user_is_nobody_elses_name(name: str) -> None:
    users = {"carol": "carol"}

    with pytest.raises(NameTaken, match="the id of another user"):
        plan(Directory(), name, user="mallory", users=users)
    assert plan(Directory(), "carol", user="carol", users=users).is_change
    assert plan(Directory(), "carol", user="root", users=users, is_admin=True).is_change
    own = after(registered("id-m", "carol", 1, owner="mallory"))
    assert plan(own, "carol", user="mallory", users=users).registration.agent_id == "id-m"


def test_of_two_users_whose_ids_look_alike_each_may_have_their_own_name() -> None:
    users = {"Carol": "carol", "carol": "carol"}

    for user in users:
        assert plan(Directory(), user, user=user, users=users).is_change
        with pytest.raises(NameTaken):
            plan(Directory(), "CAROL", user=user, users=users)


def test_a_name_cannot_shadow_an_agent_id() -> None:
    with pytest.raises(NameTaken):
        plan(after(registered("id-a", "alice", 1)), "id-a", user="mallory")


def test_a_user_has_so_many_names_and_the_project_any_number() -> None:
    lines = [registered(f"id-{n}", f"bot-{n}", n, owner="ann") for n in range(1, 4)]
    directory = after(*lines)

    with pytest.raises(Denied, match="allows 3 per user"):
        plan(directory, "bot-4", user="ann", quota=3)
    assert plan(directory, "bot-3", user="ann", quota=3).registration.agent_id == "id-3"
    assert plan(directory, "bot-4", user="ben", quota=3).is_change
    assert plan(directory, "bot-4", quota=0).is_change
    gone = line("hub", "participant.removed", {"agent_id": "id-1"}, seq=4)
    assert plan(after(*lines, gone), "bot-4", user="ann", quota=3).is_change


# --- names that look alike ---

LOOK_ALIKES = {
    "case": "ANN",
    "spaces at the edges": " ann ",
    "compatibility forms": "\uff41\uff4e\uff4e",
    "mathematical letters": "\U0001d41a\U0001d427\U0001d427",
    "a Cyrillic letter": "\u0430nn",
    "a Greek letter": "\u03b1nn",
    "a capital Greek letter": "A\u039d\u039d",
    "a variation selector": "an\ufe0fn",
    "a grapheme joiner": "a\u034fnn",
}


@pytest.mark.parametrize("name", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
@pytest.mark.parametrize("user", [None, "mallory"])
def test_a_name_that_looks_like_a_taken_one_is_refused(name: str, user: str | None) -> None:
    with pytest.raises(NameTaken, match="looks like 'ann'") as refused:
        plan(after(registered("id-a", "ann", 1)), name, user=user)

    assert (refused.value.name, refused.value.taken) == (name, "ann")
    assert ascii(name) in str(refused.value)


@pytest.mark.parametrize("name", ["al\u0131ce", "al\u0131\u0441\u0435"])
def test_a_letter_whose_capital_is_that_of_another_looks_like_it(name: str) -> None:
    with pytest.raises(NameTaken, match="looks like 'alice'"):
        plan(after(registered("id-a", "alice", 1)), name, user="mallory")


def test_a_word_of_another_script_that_looks_like_a_taken_name_is_refused() -> None:
    with pytest.raises(NameTaken, match="looks like 'copy'"):
        plan(after(registered("id-a", "copy", 1)), "\u0441\u043e\u0440\u0443", user="mallory")


@pytest.mark.parametrize(
    "name", ["anne", "\u00e4nn", "ann-2", "an n", "\u0410\u043d\u043d\u0430", "\u65e5\u672cann"]
)
def test_a_name_that_people_can_tell_apart_is_free(name: str) -> None:
    assert plan(after(registered("id-a", "ann", 1)), name, user="ben").is_change


@pytest.mark.parametrize("name", ["p\u0430ypal", "\u0430\u0301nn", "x \u03b1gent", "bot\u0585x", "\u3164"])
def test_a_word_of_two_scripts_is_refused(name: str) -> None:
    with pytest.raises(BadDraft, match=r"passport\.name.*one script in each word"):
        plan(Directory(), name)


@pytest.mark.parametrize(
    "name",
    [
        "Zo\u00eb",
        "\u0410\u043d\u043d\u0430 bot",
        "\u30a2\u30ea\u30b9bot",
        "\u4f50\u3005\u6728",
        "O\u02bcBrien",
        "agent 7",
        "\u0623\u062d\u0645\u062f",
    ],
)
def test_a_name_of_one_script_a_word_is_free(name: str) -> None:
    assert plan(Directory(), name).registration.name == name


def test_a_skeleton_of_a_skeleton_is_itself() -> None:
    for name in (*LOOK_ALIKES.values(), "\u01c4", "\u1e9e", "\ufb03", "\u0130x", "\u03c2"):
        assert skeleton(skeleton(name)) == skeleton(name)


def test_an_unknown_name_lists_nobody_whom_a_rule_hides() -> None:
    directory = after(
        registered("id-a", "alice", 1, may_address=["team-*"]),
        registered("id-b", "team-bob", 2),
        registered("id-c", "team-boss", 3, addressable_by=["ceo"]),
        registered("id-d", "dave", 4),
    )
    with pytest.raises(UnknownParticipant) as unknown:
        directory.resolve("team-bo", asked_by=directory.resolve("alice"))

    assert unknown.value.known == ("team-bob",)
