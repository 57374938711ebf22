"""Making tokens, narrowing them, and looking at them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from turnline.errors import BadToken
from turnline.server.auth.biscuit import attenuate, look, unverified
from turnline.server.auth.blocks import MAX_ALTERNATIVES
from turnline.server.auth.reading import MAX_BLOCKS

from .scenes import EXPIRY, HOUR, KEY, NOW, OTHER_KEY, appended, minted, reading, signed


@pytest.mark.parametrize("user_id", ["", 'a"b', "a\\b", "a\nb", "x" * 129, "\ud800", "a\x00"])
def test_a_user_that_no_server_would_accept_gets_no_token(user_id: str) -> None:
    with pytest.raises(BadToken):
        minted(user_id=user_id)


def test_a_token_too_long_to_be_accepted_is_not_made() -> None:
    with pytest.raises(BadToken, match="bytes"):
        minted(groups=[f"group-{index}-{'x' * 80}" for index in range(30)])


def test_a_token_that_has_expired_already_is_not_made() -> None:
    with pytest.raises(BadToken, match="expired"):
        minted(expires_at=NOW)


def test_a_time_of_another_zone_is_refused() -> None:
    with pytest.raises(BadToken, match="UTC"):
        minted(expires_at=datetime(2030, 2, 1, tzinfo=timezone(timedelta(hours=2))))


def test_a_misspelled_scope_is_not_minted() -> None:
    with pytest.raises(BadToken, match="did you mean"):
        minted(scopes=["runs:raed"])


def test_a_token_is_narrowed_without_the_private_key() -> None:
    narrow = attenuate(minted(), public_key=KEY.public, operations=["runs.read", "runs.list"], now=NOW)

    assert reading(narrow).grant.bounds[0].allowed == ("runs.read", "runs.list")


def test_a_narrowed_token_is_narrowed_again() -> None:
    once = attenuate(minted(), public_key=KEY.public, operations=["runs.read", "runs.list"], now=NOW)
    twice = attenuate(once, public_key=KEY.public, operations=["runs.read"], now=NOW)

    assert [bound.allowed for bound in reading(twice).grant.bounds] == [
        ("runs.read", "runs.list"),
        ("runs.read",),
    ]


def test_narrowing_to_the_same_is_a_mistake() -> None:
    with pytest.raises(BadToken, match="as wide"):
        attenuate(minted(), public_key=KEY.public, now=NOW)


def test_an_operation_nobody_knows_is_a_mistake() -> None:
    with pytest.raises(BadToken, match=r"did you mean 'runs\.read'"):
        attenuate(minted(), public_key=KEY.public, operations=["runs.raed"], now=NOW)


@pytest.mark.parametrize("resource", ['a"b', "a\nb", "x" * 129, ""])
def test_a_resource_that_no_server_would_accept_is_a_mistake(resource: str) -> None:
    with pytest.raises(BadToken):
        attenuate(minted(), public_key=KEY.public, resources=[resource], now=NOW)


def test_there_is_an_end_to_alternatives_and_to_blocks() -> None:
    most = [f"r{index}" for index in range(MAX_ALTERNATIVES)]
    text = attenuate(minted(), public_key=KEY.public, resources=most, now=NOW)
    with pytest.raises(BadToken, match="at most"):
        attenuate(minted(), public_key=KEY.public, resources=[*most, "r"], now=NOW)

    for _ in range(MAX_BLOCKS - 2):
        text = attenuate(text, public_key=KEY.public, expires_at=NOW + HOUR, now=NOW)
    with pytest.raises(BadToken, match="blocks"):
        attenuate(text, public_key=KEY.public, expires_at=NOW + HOUR, now=NOW)


def test_a_bad_token_is_not_narrowed() -> None:
    for bad in (minted(OTHER_KEY), "garbage", "", signed('user("alice");')):
        with pytest.raises(BadToken):
            attenuate(bad, public_key=KEY.public, operations=["runs.read"], now=NOW)


def test_a_good_token_shows_what_it_says() -> None:
    text = minted()
    seen = look(text, public_key=KEY.public, now=NOW)

    assert (seen.signature, seen.problem, seen.grant) == ("valid", "", reading(text).grant)
    assert seen.revocation_ids == reading(text).revocation_ids
    assert 'user("alice");' in seen.blocks[0]


def test_without_a_key_the_signature_is_not_checked_and_the_rest_is_shown() -> None:
    seen = look(minted(OTHER_KEY), public_key=None, now=NOW)

    assert (seen.signature, seen.problem) == ("not checked", "")
    assert seen.grant is not None
    assert look(minted(), public_key=None, now=NOW + HOUR).problem == "the token has expired"


def test_a_forged_token_shows_that_it_is_one() -> None:
    seen = look(minted(OTHER_KEY), public_key=KEY.public, now=NOW)

    assert seen.signature == "not valid"
    assert "another key" in seen.problem


def test_a_signed_token_that_is_refused_shows_why() -> None:
    expired = look(minted(), public_key=KEY.public, now=NOW + HOUR)
    hostile = look(appended(minted(), "f(1);"), public_key=KEY.public, now=NOW)

    assert (expired.signature, expired.problem) == ("valid", "the token has expired")
    assert (hostile.signature, hostile.grant) == ("valid", None)
    assert "f(1);" in hostile.blocks[1]
    assert hostile.problem


@pytest.mark.parametrize("text", ["", "garbage", "a" * 100_000, "\ud800"])
def test_what_is_no_token_cannot_be_looked_at(text: str) -> None:
    with pytest.raises(BadToken):
        look(text, public_key=None, now=NOW)
    with pytest.raises(BadToken):
        unverified(text)


def test_a_token_may_be_looked_at_whoever_made_it() -> None:
    assert len(unverified(appended(minted(), EXPIRY)).revocation_ids) == 2
