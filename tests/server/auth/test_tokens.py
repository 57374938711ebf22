"""Tokens as credentials: read, not expired, not revoked."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from turnline.errors import LogUnavailable, Unauthenticated
from turnline.hub.timers import sortable_ids
from turnline.log.memory import MemoryLog
from turnline.server.auth.biscuit import attenuate
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.operations import authorise
from turnline.server.auth.revocation import Revocations
from turnline.server.auth.tokens import MAX_REMEMBERED, TokenAuthenticator
from turnline.testing import ManualClock

from .scenes import HOUR, KEY, NOW, OTHER_KEY, InlineReader, minted, reading


class Stage:
    """An authenticator with everything it needs."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.reader = InlineReader()
        self.revocations = Revocations(MemoryLog(), self.clock, sortable_ids(self.clock))
        self.authenticator = TokenAuthenticator(self.reader, self.revocations, self.clock)

    async def refusal(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as refused:
            await self.authenticator.authenticate(Credentials(token))
        return refused.value.because


async def test_f13_a_good_token_is_a_principal() -> None:
    text = minted()
    principal = await Stage().authenticator.authenticate(Credentials(text))

    assert (principal.user_id, principal.groups) == ("alice", frozenset({"ops"}))
    assert principal.scopes == frozenset({"runs:start:*", "runs:read"})
    assert principal.expires_at == NOW + HOUR
    assert principal.token_id == reading(text).revocation_ids[-1]
    assert text not in repr(principal)


async def test_f13_a_narrowed_token_is_a_principal_that_may_do_less() -> None:
    narrow = attenuate(minted(), public_key=KEY.public, operations=["runs.read"], now=NOW)
    principal = await Stage().authenticator.authenticate(Credentials(narrow))
    authorise(principal, "runs.read", now=NOW)

    with pytest.raises(Exception, match="narrowed"):
        authorise(principal, "runs.start", resource="leads", now=NOW)


async def test_f13_a_forged_token_is_refused() -> None:
    assert "another key" in await Stage().refusal(minted(OTHER_KEY))


async def test_f13_a_token_that_was_good_expires() -> None:
    stage, credentials = Stage(), Credentials(minted())
    await stage.authenticator.authenticate(credentials)
    stage.clock.advance(HOUR.total_seconds())

    assert await stage.refusal(credentials.token) == "the token has expired"


async def test_f13_a_token_that_was_good_is_revoked() -> None:
    stage, credentials = Stage(), Credentials(minted())
    principal = await stage.authenticator.authenticate(credentials)
    await stage.revocations.revoke([principal.token_id], reason="", by="root")

    assert await stage.refusal(credentials.token) == "the token was revoked"
    assert (await stage.authenticator.authenticate(Credentials(minted()))).user_id == "alice"


async def test_f13_revoking_a_token_revokes_those_made_from_it_and_not_the_one_it_was_made_from() -> None:
    stage, parent = Stage(), minted()
    child = attenuate(parent, public_key=KEY.public, operations=["runs.read"], now=NOW)
    grandchild = attenuate(child, public_key=KEY.public, resources=["leads"], now=NOW)
    await stage.revocations.revoke([reading(child).revocation_ids[-1]], reason="", by="root")

    assert "revoked" in await stage.refusal(child)
    assert "revoked" in await stage.refusal(grandchild)
    assert (await stage.authenticator.authenticate(Credentials(parent))).user_id == "alice"

    await stage.revocations.revoke([reading(parent).revocation_ids[-1]], reason="", by="root")
    assert "revoked" in await stage.refusal(parent)


async def test_a_token_is_read_once() -> None:
    stage, credentials = Stage(), Credentials(minted())
    for _ in range(5):
        await stage.authenticator.authenticate(credentials)

    assert stage.reader.count == 1


async def test_a_bad_token_is_not_remembered_as_good() -> None:
    stage = Stage()
    for _ in range(2):
        await stage.refusal(minted(OTHER_KEY))

    assert stage.reader.count == 2


async def test_only_so_many_tokens_are_remembered_and_the_oldest_goes_first() -> None:
    stage = Stage()
    texts = [minted(user_id=f"user-{index}") for index in range(MAX_REMEMBERED + 1)]
    for text in texts:
        await stage.authenticator.authenticate(Credentials(text))
    await stage.authenticator.authenticate(Credentials(texts[-1]))
    assert stage.reader.count == len(texts)

    await stage.authenticator.authenticate(Credentials(texts[0]))
    assert stage.reader.count == len(texts) + 1


async def test_without_the_list_of_revocations_nobody_gets_in() -> None:
    class Unreadable:
        async def is_revoked(self, revocation_ids: object) -> bool:
            raise LogUnavailable("memory:", because="a test says so")

    authenticator = TokenAuthenticator(InlineReader(), Unreadable(), ManualClock())
    with pytest.raises(LogUnavailable):
        await authenticator.authenticate(Credentials(minted()))


@given(st.text())
async def test_any_text_is_refused_with_the_typed_error(token: str) -> None:
    await Stage().refusal(token)
