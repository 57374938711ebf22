"""What a token grants: forged, expired, narrowed, hostile and damaged ones."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from turnline.errors import Unauthenticated
from turnline.server.auth.biscuit import attenuate
from turnline.server.auth.library import Biscuit, BiscuitBuilder, BlockBuilder, KeyPair, PrivateKey, PublicKey
from turnline.server.auth.principal import Bound
from turnline.server.auth.reading import (
    MAX_BLOCKS,
    MAX_TOKEN_BYTES,
    MAX_TOKEN_CHARACTERS,
    evaluate,
    grant_of,
    verified,
)

from .scenes import EXPIRY, HOUR, KEY, NOW, OTHER_KEY, appended, minted, reading, refusal, signed

SECOND = timedelta(seconds=1)


def narrowed(text: str, **limits: object) -> str:
    return attenuate(text, public_key=KEY.public, now=NOW, **limits)  # type: ignore[arg-type]


def test_f13_a_token_grants_what_its_first_block_says() -> None:
    grant = reading(minted()).grant

    assert (grant.user_id, grant.groups, grant.scopes) == ("alice", ("ops",), ("runs:start:*", "runs:read"))
    assert (grant.expires_at, grant.bounds) == (NOW + HOUR, ())


@pytest.mark.parametrize("user_id", ["alice@example.com", "Łukasz Żółw", "李", "a(b), c;", "$x", "x" * 128])
def test_a_user_is_called_whatever_they_are_called(user_id: str) -> None:
    assert reading(minted(user_id=user_id)).grant.user_id == user_id


def test_f13_a_token_that_another_key_signed_is_refused() -> None:
    assert "another key" in refusal(minted(OTHER_KEY))


def test_f13_a_token_is_good_until_it_expires() -> None:
    assert reading(minted(), now=NOW + HOUR - SECOND).grant.user_id == "alice"
    assert "expired" in refusal(minted(), now=NOW + HOUR)


def test_f13_a_token_without_an_expiry_is_refused() -> None:
    assert "no expiry" in refusal(signed('user("alice"); scope("admin");'))
    assert "no expiry" in refusal(appended(signed('user("alice"); scope("admin");'), EXPIRY))


def test_f13_a_narrowed_token_is_narrower() -> None:
    narrow = narrowed(minted(), expires_at=NOW + 60 * SECOND, operations=["runs.start"], resources=["a", "b"])

    assert reading(narrow).grant.bounds == (
        Bound("operation", ("runs.start",)),
        Bound("resource", ("a", "b")),
    )
    assert reading(narrow).grant.scopes == reading(minted()).grant.scopes
    assert "expired" in refusal(narrow, now=NOW + 60 * SECOND)


def test_f13_a_later_expiry_does_not_make_a_token_last_longer() -> None:
    assert "expired" in refusal(narrowed(minted(), expires_at=NOW + 9 * HOUR), now=NOW + HOUR)


@pytest.mark.parametrize(
    "code",
    ['scope("admin");', 'user("root");', 'group("root");', "dev(true);",
     'scope("admin"); check if operation("a");', 'scope($s) <- group($s);', 'scope("admin") <- user($u);',
     'note("x");'],
)  # fmt: skip
def test_f13_facts_and_rules_of_later_blocks_grant_nothing(code: str) -> None:
    refusal(appended(minted(), code))


def test_f13_a_token_made_from_another_holds_its_revocation_ids() -> None:
    parent = minted()
    child = narrowed(parent, operations=["runs.read"])

    assert reading(child).revocation_ids[:1] == reading(parent).revocation_ids
    assert len(set(reading(child).revocation_ids)) == 2


def test_two_tokens_that_say_the_same_have_two_ids() -> None:
    assert reading(minted()).revocation_ids != reading(minted()).revocation_ids


def test_a_token_has_at_most_so_many_blocks() -> None:
    text = minted()
    for _ in range(MAX_BLOCKS - 1):
        text = appended(text, EXPIRY)

    assert reading(text).grant.user_id == "alice"
    assert f"{MAX_BLOCKS + 1} blocks" in refusal(appended(text, EXPIRY))


def test_a_token_has_at_most_so_many_bytes() -> None:
    values = [f"resource-{index:03}-{'x' * 90}" for index in range(12)]
    either = " or ".join(f'resource("{value}")' for value in values)
    text = appended(minted(), f"check if {either};")
    assert reading(text).grant.bounds[0].allowed == tuple(values)

    text = appended(text, 'check if resource("' + "y" * 120 + '");')
    text = appended(text, 'check if resource("' + "z" * 120 + '");')
    assert len(text) > MAX_TOKEN_CHARACTERS
    assert f"{MAX_TOKEN_BYTES} bytes" in refusal(text)


FACTS = "".join(f"f({index});" for index in range(30))
JOIN = ", ".join(f"f($x{index})" for index in range(8))


@pytest.mark.parametrize(
    "code",
    [
        f"{FACTS} check if {JOIN}, $x0 > 100;",
        f"{FACTS} r($x0) <- {JOIN}, $x0 > 100;",
        f"{FACTS} reject if {JOIN}, $x0 > 100;",
        f"{FACTS} check all {JOIN}, $x0 > 100;",
        "f(0); f(1); g($x, $y) <- f($x), f($y); h($x, $y, $z) <- g($x, $y), g($y, $z);",
        "check if " + " or ".join(["operation($a), operation($b), operation($c)"] * 20) + ";",
        'check if resource($r), $r.matches("(a+)+$");',
        'check if "' + "a" * 100 + '".matches("(a|a)*b");',
        "check if [1, 2, 3].all($a -> [1, 2, 3].all($b -> $a * $b > 0));",
        'check if operation("a");' * 40,
        "check if " + " && ".join(["true"] * 100) + ";",
        "check if 1 + " + " + ".join(["9223372036854775807"] * 20) + " > 0;",
        "check if {1, 2}.union({3}).length() > 1;",
        "check if user($u) trusting authority;",
        "check if true trusting previous;",
    ],
)
def test_a_hostile_block_is_refused_without_being_evaluated(code: str) -> None:
    """The first four would take years: 30 facts, eight at a time. The test ends, so nobody evaluated them."""
    because = refusal(appended(minted(), code))

    assert "checks" in because


def test_a_hostile_first_block_is_refused_too() -> None:
    assert "simple checks" in refusal(signed(f'user("alice"); {EXPIRY} {FACTS} check if {JOIN}, $x0 > 100;'))


@pytest.mark.parametrize(
    "text",
    [
        'alice");\nscope("admin',
        'alice"',
        "a\\",
        "a\nb",
        "a\x00b",
        "a\x1b[31mb",
        "a\u2028b",
        "a\u202eb",
        "a\u0301",
    ],
)
def test_a_text_that_would_print_as_something_else_is_refused(text: str) -> None:
    """The library prints texts unescaped: the first of these prints as a user and a scope."""
    because = refusal(signed(f"user({{text}}); {EXPIRY}", {"text": text}))

    assert "quote" in because


def test_a_resource_cannot_smuggle_an_alternative_in() -> None:
    """Printed, it reads: check if resource("mine") or resource("yours")."""
    block = ("check if resource({text});", {"text": 'mine") or resource("yours'})

    assert "quote" in refusal(appended(minted(), *block))


def test_a_block_that_somebody_else_signed_is_refused() -> None:
    token = Biscuit.from_base64(minted(), PublicKey(f"ed25519/{KEY.public}"))
    third = KeyPair()
    block = token.third_party_request().create_block(third.private_key, BlockBuilder(EXPIRY))

    assert "somebody else" in refusal(token.append_third_party(third.public_key, block).to_base64())


def test_a_block_with_a_signature_that_can_be_spelled_in_two_ways_is_refused() -> None:
    """Its id would change with the spelling, and a revoked token would be good again."""
    key = PrivateKey("secp256r1-private/" + "11" * 32)
    token = BiscuitBuilder(f'user("alice"); {EXPIRY}').build(key)

    with pytest.raises(Unauthenticated, match="Ed25519"):
        grant_of(token)


def test_the_library_has_to_agree_with_what_was_read() -> None:
    token = verified(narrowed(minted(), operations=["runs.read"]), public_key=KEY.public)
    grant = grant_of(token)
    evaluate(token, grant, NOW)

    for wrong in (replace(grant, user_id="bob"), replace(grant, bounds=())):
        with pytest.raises(Unauthenticated, match="do not hold"):
            evaluate(token, wrong, NOW)
    with pytest.raises(Unauthenticated, match="do not hold"):
        evaluate(token, grant, NOW + HOUR)


@pytest.mark.parametrize(
    "text", ["", "E", "=", "a" * MAX_TOKEN_CHARACTERS, "a" * 10_000_000, "é", "\ud800", "\x00"]
)
def test_what_is_no_token_is_the_typed_error(text: str) -> None:
    assert text[:50] not in refusal(text) or not text


@given(st.binary(max_size=600))
def test_garbage_is_the_typed_error(garbage: bytes) -> None:
    refusal(base64.urlsafe_b64encode(garbage).decode())


@given(st.text(max_size=200))
def test_garbled_text_is_the_typed_error(garbage: str) -> None:
    refusal(garbage)


GOOD = appended(minted(), EXPIRY)


@given(st.data())
def test_a_damaged_token_is_refused_or_means_the_same(data: st.DataObject) -> None:
    """What frames the blocks is not signed, and may be written in several ways; what they say is."""
    good = base64.urlsafe_b64decode(GOOD)
    place = data.draw(st.integers(0, len(good) - 1))
    damage = data.draw(st.one_of(st.binary(max_size=4), st.just(good[place : place + 40] * 2)))
    damaged = good[:place] + damage + good[place + data.draw(st.integers(0, 4)) :]
    try:
        found = reading(base64.urlsafe_b64encode(damaged).decode())
    except Unauthenticated:
        return

    assert found == reading(GOOD)


def test_a_token_with_one_bit_turned_over_in_what_it_says_is_refused() -> None:
    good = base64.urlsafe_b64decode(GOOD)
    for place in range(good.index(b"alice"), good.index(b"runs:read")):
        damaged = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        refusal(base64.urlsafe_b64encode(damaged).decode())


STATEMENTS = st.sampled_from(
    [EXPIRY, 'check if operation("runs.read");', 'check if resource("r") or resource("s");',
     'scope("admin");', 'user("root");', "dev(true);", "f(1);", "g($x) <- f($x);", 'scope($x) <- user($x);',
     "check if f($x), f($y);", "check all time($t), $t < 2031-01-01T00:00:00Z;", 'reject if user("alice");',
     "check if true;",
     'check if operation($x), $x.starts_with("runs");', "check if time($t), $t < 2029-01-01T00:00:00Z;"]
)  # fmt: skip


@given(st.lists(st.lists(STATEMENTS, max_size=4), max_size=4))
def test_f13_whatever_is_appended_a_token_never_grants_more(blocks: list[list[str]]) -> None:
    text = parent = minted()
    for statements in blocks:
        text = appended(text, "".join(statements))
    try:
        grant = reading(text).grant
    except Unauthenticated:
        return

    widest = reading(parent).grant
    assert (grant.user_id, grant.groups, grant.scopes) == (widest.user_id, widest.groups, widest.scopes)
    assert grant.expires_at <= widest.expires_at


def test_no_refusal_shows_the_token() -> None:
    text = minted(user_id="canary-user")

    for bad in (text, text[:-8], appended(text, "f(1);")):
        because = refusal(bad, now=datetime(2040, 1, 1, tzinfo=UTC))
        assert text[:24] not in because
        assert "canary" not in because
