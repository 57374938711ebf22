"""What a request brings to say who is asking: one bearer token, and the address it came from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final

from turnline.errors import Unauthenticated

MAX_HEADER_CHARACTERS: Final = 4_096
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] ([A-Za-z0-9._~+/-]+=*)")


class Credentials:
    """A token, which is never shown, and the address of whoever sent it."""

    __slots__ = ("peer", "token")

    def __init__(self, token: str = "", *, peer: str = "") -> None:
        self.token = token
        """Empty if none was sent."""
        self.peer = peer
        """The address at the other end of the connection. Never what a header says: anybody can write one."""

    def __repr__(self) -> str:
        return f"Credentials({'a token' if self.token else 'no token'}, peer={self.peer!r})"


def credentials_of(headers: Sequence[str], *, peer: str) -> Credentials:
    """Return what the request's `Authorization` headers hold. None of them is allowed, two are not."""
    if not headers:
        return Credentials(peer=peer)
    if len(headers) > 1:
        raise Unauthenticated("there is more than one Authorization header")
    if len(headers[0]) > MAX_HEADER_CHARACTERS:
        raise Unauthenticated(f"the Authorization header has more than {MAX_HEADER_CHARACTERS} characters")
    found = _BEARER.fullmatch(headers[0])
    if found is None:
        raise Unauthenticated("the Authorization header is not 'Bearer TOKEN'")
    return Credentials(found[1], peer=peer)


def is_loopback(peer: str) -> bool:
    """Whether an address is this machine's own. A name is not an address, and is not."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback
