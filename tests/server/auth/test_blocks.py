"""The few statements a block may hold, as text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnline.errors import Unauthenticated
from turnline.server.auth.blocks import MAX_ALTERNATIVES, MAX_CHECKS, check_symbols, combine, read_block
from turnline.server.auth.principal import Bound

from .scenes import EXPIRY

FIRST = f'user("alice");\ngroup("ops");\nscope("runs:read");\n{EXPIRY}\n'


def test_each_statement_is_read() -> None:
    block = read_block(f'{FIRST}check if operation("a") or operation("b");\ncheck if resource("r");\n')

    assert block.facts == (("user", "alice"), ("group", "ops"), ("scope", "runs:read"))
    assert block.expiries == (datetime(2030, 1, 1, 13, tzinfo=UTC),)
    assert block.bounds == (Bound("operation", ("a", "b")), Bound("resource", ("r",)))


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "check if true;",
        'user("alice")',
        'user("alice"); scope("admin");',
        'user("");',
        'user("al"ice");',
        'user("al\\"ice");',
        "user(1);",
        'user("a", "b");',
        "dev(true);",
        'dev("true");',
        'admin("alice");',
        'scope($x) <- group($x);',
        'check if user("alice");',
        'check if operation("a"), resource("r");',
        'check if operation("a") or resource("r");',
        'check if operation($o), ["a"].contains($o);',
        'check if operation($o), $o.matches("a.*");',
        'check if operation($o);',
        'check all operation("a");',
        'reject if operation("a");',
        'check if operation("a") trusting authority;',
        'trusting previous;',
        "check if time($t), $u < 2030-01-01T13:00:00Z;",
        "check if time($t), $t > 2030-01-01T13:00:00Z;",
        "check if time($t), $t < 2030-01-01T13:00:00Z, $t < 2030-01-01T13:00:00Z;",
        "check if time($t), $t < 2030-01-01T13:00:00Z or true;",
        "check if time($t), $t < 2030-02-31T13:00:00Z;",
        "check if time($t), $t < 2030-01-01T25:00:00Z;",
        "check if time($t), $t < 0000-01-01T00:00:00Z;",
        "check if time($t), $t < +12030-01-01T13:00:00Z;",
        "check if time($t), $t < \u0662\u0660\u0663\u0660-01-01T13:00:00Z;",
        "\u2028" + EXPIRY,
    ],
)  # fmt: skip
def test_anything_else_is_refused(statement: str) -> None:
    with pytest.raises(Unauthenticated):
        read_block(f"{FIRST}{statement}\n")


def test_a_block_has_few_checks_and_a_check_few_alternatives() -> None:
    either = " or ".join(['operation("a")'] * MAX_ALTERNATIVES)

    read_block(f"check if {either};\n" * MAX_CHECKS)
    with pytest.raises(Unauthenticated, match="checks"):
        read_block(f"{EXPIRY}\n" * (MAX_CHECKS + 1))
    with pytest.raises(Unauthenticated):
        read_block(f'check if {either} or operation("a");\n')


def test_a_block_that_prints_as_too_much_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="too long"):
        read_block('group("a");\n' * 1_000)


def test_only_the_first_block_grants() -> None:
    first = read_block(FIRST)

    for fact in ('scope("admin");', 'group("root");', 'user("root");'):
        with pytest.raises(Unauthenticated, match="only the first one grants"):
            combine([first, read_block(f"{EXPIRY}\n{fact}\n")])


def test_the_earliest_expiry_counts_and_every_bound_holds() -> None:
    later = 'check if time($x), $x <= 2030-01-01T12:05:00Z;\ncheck if operation("a");\n'
    grant = combine([read_block(FIRST), read_block(later), read_block('check if operation("b");\n')])

    assert grant.expires_at == datetime(2030, 1, 1, 12, 5, tzinfo=UTC)
    assert grant.bounds == (Bound("operation", ("a",)), Bound("operation", ("b",)))


@pytest.mark.parametrize(
    ("first", "because"),
    [
        ('user("alice");\n', "no expiry"),
        (f"{EXPIRY}\n", "0 users"),
        (f'user("a");\nuser("b");\n{EXPIRY}\n', "2 users"),
        (f'user("a");\nscope("a b");\n{EXPIRY}\n', "scope"),
    ],
)
def test_the_first_block_names_one_user_and_ends(first: str, because: str) -> None:
    with pytest.raises(Unauthenticated, match=because):
        combine([read_block(first)])


def test_an_expiry_in_a_later_block_is_not_enough() -> None:
    with pytest.raises(Unauthenticated, match="no expiry"):
        combine([read_block('user("alice");\n'), read_block(f"{EXPIRY}\n")])


@pytest.mark.parametrize(
    "shown", ["", "Biscuit {", 'Biscuit {\n    symbols: ["a\\"b"]\n', "Token {\n    symbols: []\n"]
)
def test_a_token_that_is_shown_in_another_way_is_refused(shown: str) -> None:
    """So that a change in how the library shows tokens closes the door, and does not open it."""
    with pytest.raises(Unauthenticated):
        check_symbols(shown)
