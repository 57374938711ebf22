"""Which addresses `api_call` may reach (F11).

    reachable("api.example.com", 443, ...) -> the checked addresses, for whoever connects

A flow's address may come from a request body, and the server that runs the flow stands
where its caller does not: beside databases, metadata services and itself.

Rule 1: whoever connects does so to an address from here, never to a name: a name that is
looked up twice may lead somewhere else the second time.

Rule 2: an address is reachable if it is one of the public internet's. Of IPv6 the one
range that is; of IPv4 everything that the special-purpose registry of IANA does not
list. Addresses that carry another inside (mapped, NAT64, 6to4, Teredo) are none.

Rule 3: an IPv4 address is written in one way, four decimal numbers. What only a lenient
reader takes for an address (`127.1`, `0x7f000001`, `2130706433`) is refused, not read.

Rule 4: a caller may have chosen the name, and reads the error. So an unknown name and a
name with private addresses only give the same error. The server's log says which, for operators.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from turnline.errors import AddressRefused, CallFailed

logger = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port -> addresses, in the order to try them."""
Address = IPv4Address | IPv6Address

MAX_HOST_CHARACTERS: Final = 253
MOST_ADDRESSES: Final = 8
"""Of one host, that are tried."""

_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

_NOT_PUBLIC: Final[dict[IPv4Network, str]] = {
    IPv4Network("0.0.0.0/8"): "this host",
    IPv4Network("10.0.0.0/8"): "a private network",
    IPv4Network("100.64.0.0/10"): "a carrier's network",
    IPv4Network("127.0.0.0/8"): "loopback",
    IPv4Network("168.63.129.16/32"): "a cloud's metadata",
    IPv4Network("169.254.0.0/16"): "link-local, metadata among it",
    IPv4Network("172.16.0.0/12"): "a private network",
    IPv4Network("192.0.0.0/24"): "reserved for protocols",
    IPv4Network("192.0.2.0/24"): "for documentation",
    IPv4Network("192.88.99.0/24"): "a relay",
    IPv4Network("192.168.0.0/16"): "a private network",
    IPv4Network("198.18.0.0/15"): "for benchmarks",
    IPv4Network("198.51.100.0/24"): "for documentation",
    IPv4Network("203.0.113.0/24"): "for documentation",
    IPv4Network("224.0.0.0/4"): "multicast",
    IPv4Network("240.0.0.0/4"): "reserved",
}
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_V6: Final[dict[IPv6Network, str]] = {
    IPv6Network("2001::/23"): "reserved for protocols, Teredo among them",
    IPv6Network("2001:db8::/32"): "for documentation",
    IPv6Network("2002::/16"): "6to4",
    IPv6Network("3fff::/20"): "for documentation",
}


async def reachable(
    host: str, port: int, *, allow_private: bool, resolve: Resolve | None = None
) -> list[str]:
    """Return the addresses of `host` that may be connected to; at least one.

    Raises `AddressRefused` where there is none, `CallFailed` where the name cannot be looked up now.
    Proved by `tests/flow/test_addresses.py`.
    """
    literal = _literal(host)
    if literal is None:
        _check_name(host, allow_private=allow_private)
    found = [literal] if literal is not None else await _looked_up(host, port, resolve or system_resolve)
    if not found:
        logger.warning("refused to call %r: the name has no address", host)
        raise _unreachable(host)
    if allow_private:
        return [str(address) for address in found]
    allowed = [str(address) for address in found if not why_not(address)]
    if allowed:
        return allowed
    if literal is not None:
        raise AddressRefused(host, because=f"its address is {why_not(literal)}")
    logger.warning("refused to call %r: its address %s is %s", host, found[0], why_not(found[0]))
    raise _unreachable(host)


def why_not(address: Address) -> str:
    """What an address is that may not be reached; empty for one that may."""
    if isinstance(address, IPv4Address):
        return next((what for network, what in _NOT_PUBLIC.items() if address in network), "")
    if address not in _PUBLIC_V6:
        return "not one of the public internet"
    return next((what for network, what in _NOT_PUBLIC_V6.items() if address in network), "")


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system for a name's addresses."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_literal(host: str) -> bool:
    """Whether a host is an address, and no name."""
    return _literal(host) is not None


def _literal(host: str) -> Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise AddressRefused(host, because="it names an interface of this machine")
    return address


def _check_name(host: str, *, allow_private: bool) -> None:
    if len(host) > MAX_HOST_CHARACTERS or not _NAME.fullmatch(host):
        raise CallFailed("the request", because="its host is no name and no address")
    last = host.removesuffix(".").rpartition(".")[2]
    if _NUMBER.fullmatch(last) and not allow_private:
        raise AddressRefused(host, because="it is an address in an odd spelling; write four decimal numbers")


async def _looked_up(host: str, port: int, resolve: Resolve) -> list[Address]:
    """Return the name's addresses; none if the name is unknown."""
    try:
        found = [ip_address(text) for text in await resolve(host, port)]
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise CallFailed("the request", because=f"{host!r} cannot be looked up now; try again") from None
        return []
    except (OSError, ValueError):  # UnicodeError is a ValueError: a name that DNS cannot have.
        return []
    return list(dict.fromkeys(found))[:MOST_ADDRESSES]


def _unreachable(host: str) -> AddressRefused:
    return AddressRefused(host, because="the name is unknown or has no public address")
