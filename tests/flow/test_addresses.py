"""F11: which addresses `api_call` may reach."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest

from turnline.errors import AddressRefused, CallFailed
from turnline.flow.addresses import MOST_ADDRESSES, Resolve, is_literal, reachable, system_resolve

PUBLIC = "93.184.215.14"
PUBLIC_V6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"


def knows(**addresses: Sequence[str]) -> Resolve:
    """A resolver that knows `name_tld` as `name.tld`."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = addresses.get(host.removesuffix(".").replace(".", "_"))
        if found is None:
            raise socket.gaierror(host)
        return found

    return resolve


async def nobody(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was looked up")


INSIDE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:93.184.215.14",
    "::ffff:0:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::10.0.0.1",
    "100::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
]


@pytest.mark.parametrize("address", INSIDE)
async def test_f11_an_address_inside_is_refused_written_out_or_behind_a_name(address: str) -> None:
    with pytest.raises(AddressRefused) as written:
        await reachable(address, 80, allow_private=False, resolve=nobody)
    with pytest.raises(AddressRefused) as named:
        await reachable("evil.example", 80, allow_private=False, resolve=knows(evil_example=[address]))

    assert written.value.host == address
    assert named.value.host == "evil.example"
    assert "allow_private" in str(written.value)


ODD = [
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.1",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "127.1",
    "127.0.1",
    "0",
    "0x",
    "127.0.0.1.",
    "127.0.0.01",
    "00000127.0.0.1",
    "1.2.3.4.5",
    "256.256.256.256",
    "1.1",
    "16843009",
    "example.0x1",
    "127.0.0.0x1",
]


@pytest.mark.parametrize("host", ODD)
async def test_f11_an_address_in_an_odd_spelling_is_refused_before_it_is_looked_up(host: str) -> None:
    with pytest.raises(AddressRefused, match="odd spelling"):
        await reachable(host, 80, allow_private=False, resolve=nobody)


@pytest.mark.parametrize("host", ["fe80::1%eth0", "::1%1", "fe80::1%25eth0"])
@pytest.mark.parametrize("allow_private", [True, False])
async def test_f11_an_interface_of_this_machine_is_refused(host: str, allow_private: bool) -> None:
    with pytest.raises(AddressRefused, match="interface"):
        await reachable(host, 80, allow_private=allow_private, resolve=nobody)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "a..b",
        "exa%20mple.com",
        "%31%32%37.0.0.1",
        "a b",
        "x" * 64 + ".com",
        "a." * 130,
        "ü.de",
        "[::1]",
    ],
)
async def test_f11_what_is_no_host_is_not_looked_up(host: str) -> None:
    with pytest.raises(CallFailed, match="no name and no address"):
        await reachable(host, 80, allow_private=False, resolve=nobody)


@pytest.mark.parametrize(
    "address", [PUBLIC, PUBLIC_V6, "1.1.1.1", "172.32.0.1", "100.63.0.1", "2a00:1450::1"]
)
async def test_f11_an_address_of_the_public_internet_may_be_reached(address: str) -> None:
    assert await reachable(address, 443, allow_private=False, resolve=nobody) == [address]
    assert await reachable("a.example", 443, allow_private=False, resolve=knows(a_example=[address])) == [
        address
    ]


async def test_f11_of_several_addresses_only_the_public_ones_are_given_in_their_order() -> None:
    resolve = knows(a_example=["::1", PUBLIC_V6, "10.0.0.1", PUBLIC, PUBLIC_V6])

    assert await reachable("a.example", 443, allow_private=False, resolve=resolve) == [PUBLIC_V6, PUBLIC]


async def test_f11_of_many_addresses_some_are_tried() -> None:
    resolve = knows(a_example=[f"8.8.8.{n}" for n in range(100)])

    assert len(await reachable("a.example", 443, allow_private=False, resolve=resolve)) == MOST_ADDRESSES


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"])
async def test_f11_where_it_is_allowed_private_addresses_may_be_reached(host: str) -> None:
    assert await reachable(host, 80, allow_private=True, resolve=nobody) == [host]
    assert await reachable("db.internal", 80, allow_private=True, resolve=knows(db_internal=[host])) == [host]


@pytest.mark.parametrize("found", [[], ["not an address"]])
async def test_f11_a_name_that_leads_nowhere_is_refused(found: list[str]) -> None:
    with pytest.raises(AddressRefused, match=r"'a\.example' may not be called: the name is unknown"):
        await reachable("a.example", 80, allow_private=False, resolve=knows(a_example=found))
    with pytest.raises(AddressRefused, match=r"'b\.example' may not be called: the name is unknown"):
        await reachable("b.example", 80, allow_private=False, resolve=knows(a_example=found))


async def test_f11_an_error_does_not_tell_what_an_internal_name_leads_to_and_the_servers_log_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inside = knows(db_internal=["10.1.2.3"], meta_internal=["169.254.169.254"])
    said = []
    for host in ("db.internal", "meta.internal", "nothing.internal"):
        with pytest.raises(AddressRefused) as refused:
            await reachable(host, 80, allow_private=False, resolve=inside)
        said.append(str(refused.value).replace(host, "HOST"))

    assert len(set(said)) == 1
    assert "10.1.2.3 is a private network" in caplog.text
    assert "'nothing.internal': the name has no address" in caplog.text


async def test_f11_a_name_server_that_does_not_answer_is_an_error_of_the_call() -> None:
    async def silent(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(CallFailed, match="cannot be looked up now"):
        await reachable("a.example", 80, allow_private=False, resolve=silent)


async def test_f11_the_systems_own_name_for_itself_is_refused() -> None:
    assert set(await system_resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
    with pytest.raises(AddressRefused):
        await reachable("localhost", 80, allow_private=False)


def test_a_literal_is_an_address_and_no_name() -> None:
    assert is_literal("127.0.0.1")
    assert is_literal("::1")
    assert not is_literal("127.1")
    assert not is_literal("example.com")
