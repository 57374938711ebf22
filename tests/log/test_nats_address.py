from __future__ import annotations

import sys

import pytest

from turnline.errors import LogUnavailable, MissingExtra
from turnline.log.address import open_log
from turnline.log.nats import NatsLog
from turnline.log.nats_address import NatsAddress


@pytest.mark.parametrize(
    ("address", "hosts", "stream", "replicas"),
    [
        ("nats://a:4222", ("a:4222",), "turnline", None),
        ("nats://a", ("a",), "turnline", None),
        ("nats://a:1,b:2,c/orders", ("a:1", "b:2", "c"), "orders", None),
        ("nats://[::1]:4222/x", ("[::1]:4222",), "x", None),
        ("nats://a/orders?replicas=1", ("a",), "orders", 1),
    ],
)
def test_an_address_names_servers_a_stream_and_how_many_copies(
    address: str, hosts: tuple[str, ...], stream: str, replicas: int | None
) -> None:
    found = NatsAddress(address)

    assert (found.hosts, found.stream, found.replicas) == (hosts, stream, replicas)
    assert (found.user, found.password, found.token) == (None, None, None)


def test_credentials_are_taken_and_not_shown() -> None:
    named, token = NatsAddress("nats://me:p%40ss@a,b/x"), NatsAddress("nats://t0ken@a/x")

    assert (named.user, named.password, named.token) == ("me", "p@ss", None)
    assert (token.user, token.password, token.token) == (None, None, "t0ken")
    assert (named.text, repr(token)) == ("nats://a,b/x", "NatsAddress('nats://a/x')")
    assert named.servers == ["nats://a", "nats://b"]


@pytest.mark.parametrize(
    "address",
    [
        "nats:",
        "nats://",
        "nats://a,,b",
        "nats://a:x",
        "nats://secret@",
        "nats://me:secret@a/two.words",
        "nats://me:secret@a/x/y",
        "nats://me:secret@a?replicas=2",
        "nats://me:secret@a?replicas=1&replicas=3",
        "nats://me:secret@a?password=secret",
        "nats://me:secret/word@a/x",
        "nats://me:secret?word@a/x",
        "nats://secret/word@a/x",
    ],
)
def test_an_address_that_says_too_little_or_too_much_is_refused_without_showing_who(address: str) -> None:
    with pytest.raises(LogUnavailable) as refused:
        open_log(address)
    assert "secret" not in str(refused.value)


def test_opening_by_address_connects_to_nothing_yet() -> None:
    log = open_log("nats://nowhere.invalid/x")

    assert isinstance(log, NatsLog)
    assert log.address == "nats://nowhere.invalid/x"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("turnline.log.nats")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)

    with pytest.raises(MissingExtra, match=r"\[nats\]"):
        open_log("nats://a/x")
