"""Passports and rules: every field of a rule is enforced, and one left out allows everything."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.channel import MAX_DEPTH, ChannelSpec, Participant
from turnline.core.governance import (
    Allowance,
    Passport,
    Registration,
    Rule,
    check_invited,
    check_open,
    check_passport,
    may_address,
)
from turnline.errors import BadDraft, Denied

BOB = Registration(agent_id="id-b", passport=Passport(name="bob"))


def alice(**rule: Any) -> Registration:
    return Registration(agent_id="id-a", passport=Passport(name="alice"), rule=Rule(**rule))


def spec(**given: Any) -> ChannelSpec:
    people = [Participant("id-a", "alice"), Participant("id-b", "bob")]
    known: dict[str, Any] = {"type": "workflow", "participants": people, "ttl_seconds": 60.0}
    return ChannelSpec(**(known | given))


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 129, None])
def test_a_passport_has_a_name_somebody_can_be_addressed_by(name: Any) -> None:
    with pytest.raises(BadDraft, match=r"passport\.name"):
        check_passport(Passport(name=name))


def test_a_passports_kind_is_one_of_three() -> None:
    for kind in ("agent", "human", "remote_agent"):
        check_passport(Passport(name="alice", kind=kind))
    with pytest.raises(BadDraft, match=r"passport\.kind"):
        check_passport(Passport(name="alice", kind="robot"))


def test_an_empty_rule_allows_everything() -> None:
    check_open(alice(), spec(ttl_seconds=None, depth=MAX_DEPTH))
    check_invited(BOB, alice(), waited_for=10_000)


@pytest.mark.parametrize(
    ("rule", "allowed", "denied"),
    [
        (
            {"may_address": ["bob"]},
            {},
            {"participants": [Participant("id-a", "alice"), Participant("id-z", "zoe")]},
        ),
        ({"channel_types": ["workflow"]}, {}, {"type": "discussion"}),
        ({"channel_types": []}, None, {}),
        ({"ttl_seconds": 60}, {}, {"ttl_seconds": 61}),
        ({"ttl_seconds": 60}, {}, {"ttl_seconds": None}),
        ({"delegation_depth": 1}, {"depth": 1}, {"depth": 2}),
        ({"delegation_depth": 0}, {}, {"depth": 1}),
    ],
)
def test_what_somebody_opens_is_within_its_rule(rule: Any, allowed: Any, denied: Any) -> None:
    if allowed is not None:
        check_open(alice(**rule), spec(**allowed))
    with pytest.raises(Denied) as refused:
        check_open(alice(**rule), spec(**denied))

    assert refused.value.who == "alice"


@pytest.mark.parametrize(("rule", "waited_for"), [({"addressable_by": ["zoe"]}, 0), ({"inbox": 2}, 2)])
def test_an_invitation_is_within_the_invitees_rule(rule: Any, waited_for: int) -> None:
    with pytest.raises(Denied):
        check_invited(alice(**rule), BOB, waited_for)


def test_an_invitation_the_rule_allows_is_allowed() -> None:
    check_invited(alice(addressable_by=["bob"], inbox=2), BOB, waited_for=1)


def test_an_allowance_is_spent_one_by_one_and_refilled_by_time() -> None:
    full: Allowance | None = Allowance(left=2, at=0)
    for _ in range(2):
        assert full is not None
        full = full.spent(2, now=0)
    assert full is not None
    assert full.spent(2, now=29) is None
    assert full.spent(2, now=30) == Allowance(0, 30)


def test_an_allowance_never_holds_more_than_a_minutes_worth() -> None:
    assert Allowance(left=2, at=0).spent(2, now=10_000) == Allowance(1, 10_000)


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        ("team-*", "team-bob", True),
        ("team-*", "teambob", False),
        ("b?b", "bob", True),
        ("[ab]ob", "bob", True),
        ("*", "anyone at all", True),
        ("BOB", "bob", False),
        ("a[b", "a[b", True),
        ("bob", "bobby", False),
    ],
)
def test_a_rule_names_others_by_patterns(pattern: str, name: str, *, allowed: bool) -> None:
    other = Registration(agent_id="id-b", passport=Passport(name=name))

    assert may_address(alice(may_address=[pattern]), other) is allowed
    assert may_address(other, alice(addressable_by=[pattern])) is allowed
    opened = spec(participants=[Participant("id-a", "alice"), Participant("id-b", name)])
    if allowed:
        check_open(alice(may_address=[pattern]), opened)
        check_invited(alice(addressable_by=[pattern]), other, waited_for=0)
    else:
        with pytest.raises(Denied):
            check_open(alice(may_address=[pattern]), opened)
        with pytest.raises(Denied):
            check_invited(alice(addressable_by=[pattern]), other, waited_for=0)


def test_a_refused_opener_is_not_shown_whom_the_rule_of_another_allows() -> None:
    with pytest.raises(Denied) as refused:
        check_invited(alice(addressable_by=["secret-boss"]), BOB, waited_for=0)

    assert "secret-boss" not in str(refused.value)
