"""Secrets that are written into a document, where everybody who has the file can read them (F15).

It looks at a document as it was written, before `${VARIABLES}` are filled in: those are
how turnline.yaml names a secret without having it, as `{{ secret.NAME }}` does in a header.

Rule 1: a finding never holds the secret: its first characters, and how many there are.

Rule 2: a text is a secret by its look (the keys of well-known providers, a Bearer token),
or by the name it is written under. Under `token` or `api_key` it has to look random, because
names of steps, keys and types are written there, too; under `password` and `secret`, in data
that is sent or stored, any literal is one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import log2
from typing import Final

from turnline.core.study.finding import Path
from turnline.flow.check.problem import Problem
from turnline.flow.definition.base import Json

LITERAL_SECRET: Final = "TL401"

_FILLED_IN: Final = re.compile(r"\{\{[^{}]*\}\}|\{%[^%]*%\}|\$\{[^{}]*\}")
_LOOKS: Final = re.compile(
    r"\b(?:"
    r"sk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, OpenRouter
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|glpat-[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_-]{30,}"  # Google
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|hf_[A-Za-z0-9]{20,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"  # SendGrid
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"  # A JSON Web Token
    r")"
)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL)
_IN_ADDRESS: Final = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/?#:@]*:([^\s/?#]+)@", re.IGNORECASE)
"""user:password@host"""
_IN_CONNECTION: Final = re.compile(r"(?:^|\s)(?:ssl)?password\s*=\s*(\S+)", re.IGNORECASE)
_CONNECTION: Final = re.compile(r"(?:^|\s)(?:host|hostaddr|user|dbname|port)\s*=", re.IGNORECASE)
"""The words of a PostgreSQL connection string: host=db user=app password=..."""
_INTRODUCED: Final = re.compile(
    r"\b(?:bearer\s+|(?:password|passwd|api[_-]?key|secret|token)\s*[:=]\s*[\"']?)([A-Za-z0-9._~+/=!@#%^&*-]{6,})",
    re.IGNORECASE,
)
_MOST_LOOKED_AT: Final = 20_000
"""Characters of one text: what is longer is a prompt or a document, not a key."""
_FEWEST: Final = 16
_LEAST_BITS: Final = 3.0
"""Of entropy in each character: less, and it is a word."""
_SHOWN: Final = 3
_FEWEST_TO_SHOW: Final = 12
_FIX: Final = (
    "write {{ secret.NAME }} in a header, ${NAME} in turnline.yaml, or let a @node read it from its own"
    " environment; then replace the secret itself, it is known now"
)

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_KEYS: Final = frozenset({"key", "token", "apikey", "authorization", "credential", "credentials", "auth"})
_PASSWORDS: Final = frozenset({"password", "passwd", "pwd", "passphrase", "secret"})
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest|apikey)\s+", re.IGNORECASE)
_DATA: Final = frozenset({"headers", "query", "json", "values", "where", "arguments", "defaults", "env"})
_DATA_OF: Final = frozenset({("channel", "context"), ("workflow", "input")})


def literal_secrets(data: Json, written: Mapping[Path, str] | None = None) -> Iterator[Problem]:
    """Secrets in a document's data; `written` has the texts whose variables are filled in, as they were."""
    before = written or {}
    for path, value in _scalars(data, ()):
        secret = secret_in(path, before.get(path, value))
        if secret is not None:
            yield _problem(path, secret)


def _scalars(data: Json, path: Path) -> Iterator[tuple[Path, str]]:
    match data:
        case bool():
            return
        case str() | int():
            yield path, str(data)
        case dict():
            for key, item in data.items():
                yield from _scalars(item, (*path, key))
        case list():
            for place, item in enumerate(data):
                yield from _scalars(item, (*path, place))


def secret_in(path: Path, text: str) -> str | None:
    """Return the secret in a text that stands at `path`, if there is one."""
    literal = _FILLED_IN.sub(" ", text[:_MOST_LOOKED_AT])
    for look in (_LOOKS, _PRIVATE_KEY):
        found = look.search(literal)
        if found is not None:
            return found[0]
    address = _IN_ADDRESS.search(literal) or (_CONNECTION.search(literal) and _IN_CONNECTION.search(literal))
    if address is not None:
        return address[1]
    introduced = next((one[1] for one in _INTRODUCED.finditer(literal) if _is_mixed(one[1])), None)
    return introduced or _by_name(path, literal)


def _by_name(path: Path, literal: str) -> str | None:
    names = [key for key in path if isinstance(key, str)]
    words = _WORD.findall(names[-1]) if names else []
    last = words[-1].lower() if words else ""
    bare = _SCHEME.sub("", literal.strip(), count=1)
    if last in _PASSWORDS and _is_data(names) and _is_meant(bare):
        return bare
    return bare if last in _KEYS | _PASSWORDS and _is_random(bare) else None


def _is_data(names: list[str]) -> bool:
    """Whether a value stands where data stands, and not a type, a key or an expression."""
    around = names[:-1]
    return bool(_DATA.intersection(around)) or any(pair in _DATA_OF for pair in pairwise(around))


def _is_meant(text: str) -> bool:
    """Whether it is more than a placeholder: `***`, `<password>`, `...`."""
    return any(one.isalnum() for one in text) and not (text.startswith("<") and text.endswith(">"))


def _is_random(text: str) -> bool:
    return (
        len(text) >= _FEWEST and not re.search(r"\s", text) and _is_mixed(text) and _bits(text) >= _LEAST_BITS
    )


def _is_mixed(text: str) -> bool:
    return any(one.isdigit() for one in text) and any(one.isalpha() for one in text)


def _bits(text: str) -> float:
    """The entropy of a character of `text`."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * log2(share) for share in shares)


def _problem(path: Path, secret: str) -> Problem:
    begins = f"{secret[:_SHOWN]}…" if len(secret) >= _FEWEST_TO_SHOW else "…"
    return Problem(
        code=LITERAL_SECRET,
        path=path,
        message="a secret is written into the document",
        found=f"{begins} ({len(secret)} characters)",
        expected="the name of a secret",
        fix=_FIX,
    )
