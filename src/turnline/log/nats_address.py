"""Where a `NatsLog` is: its servers, its stream, and who asks.

    nats://host:4222                            the stream `turnline` of one server
    nats://a:4222,b:4222,c:4222/orders          the stream `orders` of a cluster
    nats://user:password@a:4222,b:4222/orders   as this user on each of them; nats://token@a:4222 with a token
    nats://a:4222/orders?replicas=1             one copy, though the cluster could keep three

Rule: credentials are handed to the servers and to nobody else. What people are shown, `text`, has none.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs, unquote

from turnline.errors import LogUnavailable

DEFAULT_STREAM: Final = "turnline"
SCHEME: Final = "nats://"

_STREAM_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOST: Final = re.compile(r"[^\s,/@?#:]+|\[[0-9A-Fa-f:.]+\]")
_REPLICAS: Final = {"1", "3", "5"}


class NatsAddress:
    """An address taken apart. Raises `LogUnavailable` for one that says too little or too much."""

    def __init__(self, address: str) -> None:
        rest, _, query = address.removeprefix(SCHEME).partition("?")
        authority, _, stream = rest.partition("/")
        who, _, hosts = authority.rpartition("@")
        self.hosts = tuple(hosts.split(","))
        self.stream = stream or DEFAULT_STREAM
        self.text = "nats:"
        if "@" in f"{stream}{query}":  # Then what looks like a host is a part of a password.
            raise self._refusal("expected every `@`, `:`, `/` and `?` of a password as %40, %3A, %2F, %3F")
        self.text = f"{SCHEME}{hosts}/{self.stream}"
        if not address.startswith(SCHEME) or not all(map(_is_host, self.hosts)):
            raise self._refusal(f"expected `{SCHEME}` and hosts with commas between them")
        if not _STREAM_NAME.fullmatch(self.stream):
            raise self._refusal("a stream's name has 1 to 64 letters, digits, `_` and `-`")
        self.replicas = self._asked_replicas(query)
        user, colon, password = who.partition(":")
        self.user = unquote(user) if colon else None
        self.password = unquote(password) if colon else None
        self.token = unquote(user) if user and not colon else None

    @property
    def servers(self) -> list[str]:
        return [f"{SCHEME}{host}" for host in self.hosts]

    def __repr__(self) -> str:
        return f"NatsAddress({self.text!r})"

    def _asked_replicas(self, query: str) -> int | None:
        asked = parse_qs(query, keep_blank_values=True)
        values = asked.pop("replicas", [])
        if asked or len(values) > 1 or not set(values) <= _REPLICAS:
            raise self._refusal("the only setting behind `?` is `replicas`, which is 1, 3 or 5")
        return int(values[0]) if values else None

    def _refusal(self, because: str) -> LogUnavailable:
        return LogUnavailable(self.text, because=because)


def _is_host(text: str) -> bool:
    host, colon, port = text, "", ""
    if not text.endswith("]"):
        host, colon, port = text.rpartition(":") if ":" in text else (text, "", "")
    return _HOST.fullmatch(host) is not None and (not colon or port.isdecimal())
