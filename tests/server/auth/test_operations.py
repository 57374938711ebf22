"""The table of operations and scopes: what is not in it is denied."""

from __future__ import annotations

from datetime import timedelta

import pytest

from turnline.errors import BadToken, Forbidden, Unauthenticated
from turnline.server.auth.operations import (
    OPERATIONS,
    SCOPES,
    authorise,
    check_operation,
    check_scope,
    covers,
    is_needed,
)
from turnline.server.auth.principal import ANONYMOUS, Bound, Principal

from .scenes import NOW


def alice(*scopes: str, bounds: tuple[Bound, ...] = ()) -> Principal:
    return Principal(user_id="alice", scopes=frozenset(scopes), bounds=bounds)


def may(principal: Principal, operation: str, resource: str = "") -> bool:
    try:
        authorise(principal, operation, resource=resource, now=NOW)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("operation", OPERATIONS)
def test_f13_without_a_scope_every_operation_is_denied(operation: str) -> None:
    assert not may(alice(), operation, "leads")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_f13_the_scope_of_the_table_is_enough_and_every_other_one_is_not(operation: str) -> None:
    needed = OPERATIONS[operation]

    assert may(alice(needed.replace("<flow>", "leads")), operation, "leads")
    assert not may(alice(*(scope for scope in SCOPES if scope != needed)), operation, "leads")


@pytest.mark.parametrize("operation", ["", "runs", "runs.*", "runs.delete", "RUNS.READ", "admin", "*"])
def test_f13_an_unknown_operation_is_denied_even_to_who_may_do_everything(operation: str) -> None:
    assert not may(alice("*", "admin"), operation, "leads")


def test_every_scope_of_the_design_is_needed_by_some_operation() -> None:
    assert set(SCOPES) == {
        "runs:start:<flow>",
        "runs:read",
        "runs:write",
        "tasks:read",
        "tasks:answer",
        "channels:read",
        "channels:write",
        "channels:erase",
        "admin",
    }


@pytest.mark.parametrize(
    ("granted", "needed", "enough"),
    [
        ("runs:read", "runs:read", True),
        ("runs:read", "runs:write", False),
        ("runs:start:*", "runs:start:leads", True),
        ("runs:start:leads", "runs:start:leads2", False),
        ("runs:start:lead*", "runs:start:leads", False),
        ("runs:*", "runs:read", True),
        ("runs:*", "runs:start:leads", True),
        ("*:read", "tasks:read", True),
        ("*:read", "tasks:answer", False),
        ("*:start:leads", "runs:start:leads", True),
        ("*", "admin", True),
        ("*", "runs:start:leads", True),
        ("runs", "runs:read", False),
        ("runs:start", "runs:start:leads", False),
        ("runs:start:leads", "runs:start", False),
        ("runs:read", "runs:*", False),
        ("runs:start:leads", "runs:start:*", False),
        ("", "admin", False),
    ],
)
def test_a_star_is_one_segment_and_as_the_last_one_all_that_follow(
    granted: str, needed: str, enough: bool
) -> None:
    assert covers(granted, needed) is enough


@pytest.mark.parametrize("flow", ["", "*", "a:b", "a/b", "../x", "a b", "x" * 65, "leads\n"])
def test_a_flow_that_cannot_be_one_is_denied_whatever_was_granted(flow: str) -> None:
    assert not may(alice("*", "runs:start:*", f"runs:start:{flow}"), "runs.start", flow)


def test_a_bound_narrows_what_a_scope_grants() -> None:
    narrow = alice("runs:*", bounds=(Bound("operation", ("runs.start",)), Bound("resource", ("a", "b"))))

    assert may(narrow, "runs.start", "a")
    assert may(narrow, "runs.start", "b")
    assert not may(narrow, "runs.start", "c")
    assert not may(narrow, "runs.read", "a")


def test_a_bound_grants_nothing_itself() -> None:
    assert not may(alice(bounds=(Bound("operation", ("runs.read",)),)), "runs.read")


def test_two_bounds_of_one_kind_both_hold() -> None:
    narrow = alice("runs:read", bounds=(Bound("resource", ("a", "b")), Bound("resource", ("b", "c"))))

    assert [one for one in ("a", "b", "c") if may(narrow, "runs.read", one)] == ["b"]


def test_f13_the_anonymous_principal_is_asked_for_a_token_whatever_it_asks_for() -> None:
    for operation in (*OPERATIONS, "unknown"):
        with pytest.raises(Unauthenticated, match="no token was sent"):
            authorise(ANONYMOUS, operation, resource="leads", now=NOW)


def test_what_was_granted_ends_when_the_token_expires() -> None:
    principal = Principal(user_id="alice", scopes=frozenset({"runs:read"}), expires_at=NOW)

    authorise(principal, "runs.read", now=NOW - timedelta(seconds=1))
    with pytest.raises(Unauthenticated, match="expired"):
        authorise(principal, "runs.read", now=NOW)


def test_a_refusal_says_who_what_and_what_is_missing() -> None:
    with pytest.raises(Forbidden) as refused:
        authorise(alice("runs:read"), "runs.start", resource="leads", now=NOW)

    assert (refused.value.user_id, refused.value.operation, refused.value.resource) == (
        "alice",
        "runs.start",
        "leads",
    )
    assert (
        str(refused.value)
        == "'alice' may not do 'runs.start' on 'leads': it needs the scope 'runs:start:leads'."
    )


@pytest.mark.parametrize(
    "scope", ["runs:read", "runs:start:leads", "runs:start:*", "runs:*", "*", "*:read", "admin"]
)
def test_a_scope_that_some_operation_needs_may_be_granted(scope: str) -> None:
    check_scope(scope)

    assert is_needed(scope)


@pytest.mark.parametrize("scope", ["sales", "leads:write", "leads.write", "run:read"])
def test_a_scope_of_the_applications_own_may_be_granted(scope: str) -> None:
    """A trigger may ask for it."""
    check_scope(scope)

    assert not is_needed(scope)


@pytest.mark.parametrize(
    "scope",
    ["", "runs", "runs:reads", "runs::read", "admin:x", "a b", '"', "x" * 200, "runs:start:a:b", "sales:"],
)
def test_what_is_no_scope_or_one_of_the_servers_that_nothing_needs_is_a_mistake(scope: str) -> None:
    with pytest.raises(BadToken):
        check_scope(scope)


def test_a_misspelled_scope_or_operation_gets_a_hint() -> None:
    with pytest.raises(BadToken, match="did you mean 'runs:read'"):
        check_scope("runs:raed")
    with pytest.raises(BadToken, match=r"did you mean 'runs\.read'"):
        check_operation("run.read")
