"""The chain of authenticators, and who gets in without a token."""

from __future__ import annotations

import pytest

from turnline.errors import Unauthenticated
from turnline.server.auth.authenticator import Authenticator, ByShape, OnlyLoopback, authenticate_public
from turnline.server.auth.credentials import Credentials
from turnline.server.auth.principal import ANONYMOUS, Principal


class Knows:
    """Lets one token in."""

    def __init__(self, token: str, user_id: str) -> None:
        self._token = token
        self._user_id = user_id

    async def authenticate(self, credentials: Credentials) -> Principal:
        if credentials.token != self._token:
            raise Unauthenticated(f"{self._user_id} does not know it")
        return Principal(user_id=self._user_id)


CHAIN: Authenticator = ByShape({"tlk_": Knows("tlk_1", "keys")}, otherwise=Knows("E1", "tokens"))


async def test_the_beginning_of_a_token_says_whose_it_is() -> None:
    assert (await CHAIN.authenticate(Credentials("tlk_1"))).user_id == "keys"
    assert (await CHAIN.authenticate(Credentials("E1"))).user_id == "tokens"


async def test_what_one_refuses_no_other_is_asked_about() -> None:
    with pytest.raises(Unauthenticated, match="keys does not know it"):
        await CHAIN.authenticate(Credentials("tlk_2"))


async def test_f13_without_a_token_nobody_gets_in() -> None:
    with pytest.raises(Unauthenticated, match="no token was sent"):
        await CHAIN.authenticate(Credentials(peer="127.0.0.1"))


async def test_without_tokens_only_the_machine_itself_is_served() -> None:
    local = OnlyLoopback(Principal(user_id="local", scopes=frozenset({"*"})))

    assert (await local.authenticate(Credentials(peer="::1"))).user_id == "local"
    for peer in ("", "10.0.0.1", "localhost"):
        with pytest.raises(Unauthenticated):
            await local.authenticate(Credentials(peer=peer))


async def test_f13_a_public_trigger_is_open_to_the_anonymous() -> None:
    assert await authenticate_public(CHAIN, Credentials(peer="10.0.0.1")) is ANONYMOUS
    assert ANONYMOUS.is_anonymous
    assert ANONYMOUS.scopes == frozenset()


async def test_a_public_trigger_knows_who_sends_a_good_token_and_refuses_a_bad_one() -> None:
    assert (await authenticate_public(CHAIN, Credentials("E1"))).user_id == "tokens"
    with pytest.raises(Unauthenticated):
        await authenticate_public(CHAIN, Credentials("E2"))
