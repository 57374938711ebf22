"""Making tokens: mint one, narrow one, look at one.

Whatever is made here is read before it is handed out: a token that no server would accept is never made.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from turnline.errors import BadToken, Unauthenticated
from turnline.server.auth.blocks import MAX_ALTERNATIVES, Grant, combine, read_block
from turnline.server.auth.keys import RootKey
from turnline.server.auth.library import (
    LIBRARY_ERRORS,
    BiscuitBuilder,
    BlockBuilder,
    Fact,
    UnverifiedBiscuit,
)
from turnline.server.auth.operations import check_operation, check_scope
from turnline.server.auth.reading import check_text, read, verified

Signature = Literal["valid", "not valid", "not checked"]

_EXPIRY: Final = "check if time($time), $time < {at};"


class Seen(Struct, frozen=True, kw_only=True):
    """What can be told about a token, good or not."""

    signature: Signature
    problem: str
    """Why a server would refuse it; empty if it would not, as far as can be told."""
    blocks: tuple[str, ...]
    revocation_ids: tuple[str, ...]
    grant: Grant | None
    """None if it holds what no token may."""


def mint(
    key: RootKey,
    *,
    user_id: str,
    groups: Sequence[str] = (),
    scopes: Sequence[str] = (),
    expires_at: datetime,
    now: datetime,
) -> str:
    """Return a new token, signed by `key`. Raises `BadToken` if it cannot say this."""
    for scope in scopes:
        check_scope(scope)
    try:
        builder = BiscuitBuilder(_EXPIRY, {"at": expires_at})
        facts = [("user", user_id), *(("group", one) for one in groups), *(("scope", one) for one in scopes)]
        for name, value in facts:
            builder.add_fact(Fact(f"{name}({{value}})", {"value": value}))
        token = key.sign(builder)
    except LIBRARY_ERRORS:
        raise BadToken("the token", found="not expressible", expected="names and a time in UTC") from None
    return _checked(token.to_base64(), public_key=key.public, now=now)


def attenuate(
    text: str,
    *,
    public_key: str,
    expires_at: datetime | None = None,
    operations: Sequence[str] = (),
    resources: Sequence[str] = (),
    now: datetime,
) -> str:
    """Return a token made from `text` that can do less. Needs no private key.

    Raises `BadToken` if `text` is no good one, or cannot be narrowed so.
    """
    _checked(text, public_key=public_key, now=now)
    if expires_at is None and not operations and not resources:
        raise BadToken("the narrower token", found="as wide", expected="an expiry, operations or resources")
    for operation in operations:
        check_operation(operation)
    token = verified(text, public_key=public_key)
    try:
        block = BlockBuilder("")
        if expires_at is not None:
            block.add_code(_EXPIRY, {"at": expires_at})
        _bind(block, "operation", operations)
        _bind(block, "resource", resources)
        narrower = token.append(block).to_base64()
    except LIBRARY_ERRORS:
        raise BadToken("the token", found="not expressible", expected="names and a time in UTC") from None
    return _checked(narrower, public_key=public_key, now=now)


def look(text: str, *, public_key: str | None, now: datetime) -> Seen:
    """Return what can be told about a token. Raises `BadToken` if it is none at all."""
    token = unverified(text)
    try:
        blocks = tuple(token.block_source(index) for index in range(token.block_count()))
    except LIBRARY_ERRORS:
        raise BadToken("the token", found="damaged", expected="what `token mint` prints") from None
    grant, problem = _grant(blocks, now)
    signature: Signature = "not checked"
    if public_key is not None:
        signature, problem = _signature(text, public_key, now)
    return Seen(
        signature=signature,
        problem=problem,
        blocks=blocks,
        revocation_ids=tuple(token.revocation_ids),
        grant=grant,
    )


def unverified(text: str) -> UnverifiedBiscuit:
    """Return a token of which nothing is known but that it is one. Raises `BadToken` if it is none."""
    try:
        check_text(text)
        return UnverifiedBiscuit.from_base64(text)
    except Unauthenticated as error:
        raise _refused(error) from None
    except LIBRARY_ERRORS:
        raise BadToken("the token", found="damaged, or none", expected="what `token mint` prints") from None


def _bind(block: BlockBuilder, kind: str, values: Sequence[str]) -> None:
    if len(values) > MAX_ALTERNATIVES:
        raise BadToken(f"{kind}s", found=f"{len(values)} of them", expected=f"at most {MAX_ALTERNATIVES}")
    if values:
        either = " or ".join(f"{kind}({{v{index}}})" for index in range(len(values)))
        block.add_code(f"check if {either};", {f"v{index}": one for index, one in enumerate(values)})


def _checked(text: str, *, public_key: str, now: datetime) -> str:
    """Return `text`, which a server would accept."""
    try:
        read(text, public_key=public_key, now=now)
    except Unauthenticated as error:
        raise _refused(error) from None
    return text


def _refused(error: Unauthenticated) -> BadToken:
    found = f"refused ({error.because.removeprefix('the token ')})"
    return BadToken("the token", found=found, expected="one that a server accepts")


def _grant(blocks: Sequence[str], now: datetime) -> tuple[Grant | None, str]:
    """What the blocks say, and what is wrong with them."""
    try:
        grant = combine([read_block(source) for source in blocks])
    except Unauthenticated as error:
        return None, error.because
    return grant, "the token has expired" if now >= grant.expires_at else ""


def _signature(text: str, public_key: str, now: datetime) -> tuple[Signature, str]:
    """Whether the token is signed by the owner of `public_key`, and why it would be refused."""
    try:
        verified(text, public_key=public_key)
    except Unauthenticated as error:
        return "not valid", error.because
    try:
        read(text, public_key=public_key, now=now)
    except Unauthenticated as error:
        return "valid", error.because
    return "valid", ""
