"""What a request brings: one bearer token, and the address it came from."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from turnline.errors import Unauthenticated
from turnline.server.auth.credentials import MAX_HEADER_CHARACTERS, credentials_of, is_loopback


def test_a_bearer_token_is_taken_as_it_is() -> None:
    found = credentials_of(["Bearer EtcB_-x=="], peer="10.0.0.7")

    assert (found.token, found.peer) == ("EtcB_-x==", "10.0.0.7")


def test_the_scheme_is_read_without_case() -> None:
    assert credentials_of(["bEARER abc"], peer="").token == "abc"


def test_no_header_is_no_token() -> None:
    assert credentials_of([], peer="").token == ""


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer  two-spaces",
        "Bearer a b",
        "Bearer a\r\nX-Admin: 1",
        "Bearer a\n",
        "\nBearer a",
        "Bearer a\x00",
        "Bearer ä",
        "Basic YTpi",
        "Token abc",
        "abc",
        "Bearer =",
    ],
)
def test_whatever_is_not_one_bearer_token_is_refused(header: str) -> None:
    with pytest.raises(Unauthenticated):
        credentials_of([header], peer="127.0.0.1")


def test_two_headers_are_refused_even_if_they_are_equal() -> None:
    with pytest.raises(Unauthenticated, match="more than one"):
        credentials_of(["Bearer a", "Bearer a"], peer="127.0.0.1")


def test_a_long_header_is_refused_before_it_is_looked_at() -> None:
    header = "Bearer " + "a" * (MAX_HEADER_CHARACTERS - len("Bearer "))

    assert len(credentials_of([header], peer="").token) == len(header) - 7
    with pytest.raises(Unauthenticated, match="characters"):
        credentials_of([header + "a"], peer="")


@given(st.text())
def test_any_text_is_a_token_or_the_typed_error(header: str) -> None:
    try:
        token = credentials_of([header], peer="").token
    except Unauthenticated:
        return

    assert token
    assert token.isascii()
    assert token.isprintable()


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_the_machines_own_addresses_are_loopback(peer: str) -> None:
    assert is_loopback(peer)


@pytest.mark.parametrize(
    "peer",
    ["", "localhost", "0.0.0.0", "::", "10.0.0.1", "192.168.0.2", "::ffff:10.0.0.1", "fe80::1",
     "127.0.0.1.evil.com", "127.1", "2130706433", "0x7f000001", "127.0.0.1:80", " 127.0.0.1", "testclient"],
)  # fmt: skip
def test_nothing_else_is(peer: str) -> None:
    assert not is_loopback(peer)


def test_the_token_is_never_shown() -> None:
    found = credentials_of(["Bearer canary-3f1c"], peer="10.0.0.7")

    assert "canary" not in repr(found)
    assert "canary" not in f"{found} {[found]}"
    assert "10.0.0.7" in repr(found)
