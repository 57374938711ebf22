"""One request to another system, and its answer (F11).

    exchange(asked, limits) -> HttpAnswer

Rule 1: every connection goes to an address that `addresses` has checked, under the name
that was asked for: the name is in the Host header and in TLS, the address on the wire.
No proxy of the environment is between.

Rule 2: a redirect is followed on the same host only, three times at most, and never from
https to http; each is checked like the first request. Headers may hold secrets, and a
redirect is the other side's text.

Rule 3: an answer is read up to its limit, compressed or not.

Rule 4: an error says what was called and how it failed. It holds no header, and no address that a
name led to: a caller who chose the name reads it. The server's log has the address.
"""

from __future__ import annotations

import logging
import re
import ssl
import zlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

import httpx2

from turnline.errors import BadAddress, BadStepValue, CallFailed
from turnline.flow.addresses import Resolve, is_literal, reachable

logger = logging.getLogger(__name__)

MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD: Final = frozenset({307, 308})
_PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65_535
_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade"})
"""Headers that say where a request goes and where it ends."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_ANY_PACKING: Final = 32 + zlib.MAX_WBITS
"""gzip or deflate, whichever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What is asked, of whom."""

    method: str
    url: httpx2.URL
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    content: bytes = field(default=b"", repr=False)

    @property
    def called(self) -> str:
        """The request as errors and the log name it: without its query, which is data."""
        return f"{self.method} {self.url.copy_with(query=None, fragment=None)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What came back."""

    status: int
    headers: httpx2.Headers = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an exchange may reach and read."""

    max_bytes: int
    allow_private: bool = False
    resolve: Resolve | None = None


def address_of(text: str, *, at: str) -> httpx2.URL:
    """Return the address that `text` is, or raise `BadAddress` saying what is wrong with it."""
    if not text.isprintable() or "\\" in text:
        raise BadAddress(at, found="with a control character or a backslash", expected="an address")
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        raise BadAddress(at, found="no address", expected="http://... or https://...") from None
    if url.scheme not in _PORTS or not url.raw_host:
        raise BadAddress(at, found=f"of scheme {url.scheme!r}", expected="http://... or https://...")
    if url.userinfo:
        raise BadAddress(at, found="with a name or password in it", expected="those in a header")
    if url.port is not None and not 0 < url.port <= _MAX_PORT:
        raise BadAddress(at, found=f"of port {url.port}", expected="a port up to 65535")
    return url.copy_with(fragment=None)


def checked_headers(given: Mapping[str, str], *, at: str) -> tuple[tuple[str, str], ...]:
    """Refuse what could end a header and begin another. A value may be a secret, so none is shown."""
    for name, value in given.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            found = "a name that no request may set"
            raise BadStepValue(f"{at}.{name}", found=found, expected="the name of another header")
        if not _HEADER_VALUE.fullmatch(value):
            found = "with a line break, or not ASCII"
            raise BadStepValue(f"{at}.{name}", found=found, expected="one line of ASCII")
    return tuple((name, value.strip()) for name, value in given.items())


async def exchange(
    asked: HttpRequest, limits: Limits, transport: httpx2.AsyncBaseTransport | None = None
) -> HttpAnswer:
    """Send `asked` and return the answer, after at most three redirects.

    Raises `AddressRefused` before anything is sent, `CallFailed` for everything later.
    """
    async with AsyncExitStack() as stack:
        if transport is None:
            transport = await stack.enter_async_context(
                httpx2.AsyncHTTPTransport(verify=_tls(), trust_env=False)
            )
        for _ in range(MAX_REDIRECTS + 1):
            answer = await _sent(asked, limits, transport)
            onward = _redirected(asked, answer)
            if onward is None:
                return answer
            asked = onward
        because = f"it was redirected more than {MAX_REDIRECTS} times"
        raise CallFailed(asked.called, because=because, status=answer.status)


async def _sent(asked: HttpRequest, limits: Limits, transport: httpx2.AsyncBaseTransport) -> HttpAnswer:
    host = asked.url.raw_host.decode("ascii")
    port = asked.url.port or _PORTS[asked.url.scheme]
    addresses = await reachable(host, port, allow_private=limits.allow_private, resolve=limits.resolve)
    refused = ""
    for address in addresses:
        try:
            return await _sent_to(address, host, asked, limits, transport)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:  # Nothing was sent.
            logger.warning("%s: no connection to %s: %s", asked.called, address, error)
            refused = _reason(error)
        except (httpx2.TransportError, httpx2.StreamError) as error:
            # Its text may quote what was sent.
            because = f"the connection broke ({type(error).__name__})"
            raise CallFailed(asked.called, because=because) from None
    raise CallFailed(asked.called, because=f"it could not be reached ({refused})")


def _reason(error: httpx2.TransportError) -> str:
    """Return why there is no connection, without the address. What TLS says names only the host."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return str(error)
        cause = cause.__cause__ or cause.__context__
    return "no connection in time" if isinstance(error, httpx2.ConnectTimeout) else "no connection"


async def _sent_to(
    address: str, host: str, asked: HttpRequest, limits: Limits, transport: httpx2.AsyncBaseTransport
) -> HttpAnswer:
    named: dict[str, str] = {} if is_literal(host) else {"sni_hostname": host}
    request = httpx2.Request(
        asked.method,
        asked.url.copy_with(host=address),
        headers=[("Host", asked.url.netloc.decode("ascii")), *asked.headers],
        content=asked.content,
        extensions=named,
    )
    response = await transport.handle_async_request(request)
    try:
        body = await _read(response, asked, limits.max_bytes)
    finally:
        await response.aclose()
    return HttpAnswer(status=response.status_code, headers=response.headers, body=body)


async def _read(response: httpx2.Response, asked: HttpRequest, most: int) -> bytes:
    read = bytearray()
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    async for piece in response.stream:
        read += piece
        if len(read) > most:
            raise _too_long(response, asked, most)
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing in {"identity", ""} or not read:
        return bytes(read)
    if packing not in {"gzip", "x-gzip", "deflate"}:
        raise CallFailed(
            asked.called, because=f"its answer is packed as {packing!r}", status=response.status_code
        )
    return _unpacked(bytes(read), response, asked, most)


def _unpacked(packed: bytes, response: httpx2.Response, asked: HttpRequest, most: int) -> bytes:
    unpacking = zlib.decompressobj(_ANY_PACKING)
    try:
        body = unpacking.decompress(packed, most + 1)
    except zlib.error:
        raise CallFailed(
            asked.called, because="its answer does not unpack", status=response.status_code
        ) from None
    if len(body) > most:
        raise _too_long(response, asked, most)
    return body


def _too_long(response: httpx2.Response, asked: HttpRequest, most: int) -> CallFailed:
    because = f"its answer has more than {most} bytes; raise max_bytes, or ask for less"
    return CallFailed(asked.called, because=because, status=response.status_code)


def _redirected(asked: HttpRequest, answer: HttpAnswer) -> HttpRequest | None:
    """The request that a redirect asks for, or None for an answer that is none."""
    location = answer.headers.get("location")
    if answer.status not in _REDIRECTS or not location:
        return None
    try:
        url = address_of(str(asked.url.join(location)), at="the redirect")
    except (BadAddress, httpx2.InvalidURL):
        raise CallFailed(asked.called, because="it redirects to no address", status=answer.status) from None
    if not _stays(asked.url, url):
        because = f"it redirects to another host ({url.host!r}), which is not followed"
        raise CallFailed(asked.called, because=because, status=answer.status)
    if answer.status in _KEEP_METHOD or asked.method in {"GET", "HEAD"}:
        return replace(asked, url=url)
    kept = tuple(header for header in asked.headers if not header[0].lower().startswith("content-"))
    return replace(asked, url=url, method="GET", headers=kept, content=b"")


def _stays(before: httpx2.URL, after: httpx2.URL) -> bool:
    """Whether it is the same host: scheme and port too, unless http becomes https."""
    if before.raw_host != after.raw_host:
        return False
    same = (before.scheme, before.port) == (after.scheme, after.port)
    return same or (before.scheme == "http" and after.scheme == "https" and before.port is after.port is None)


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than most requests."""
    return httpx2.create_ssl_context(trust_env=False)
