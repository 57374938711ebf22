"""Reading a token: what a signed Biscuit grants, if it grants anything.

    size -> signature -> number of blocks -> what is in them -> expiry -> evaluation

The order is the guard: nothing is inspected that was not signed, and nothing is evaluated that was not
inspected (see `blocks.py`). `process.py` runs all of it where it can be killed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from msgspec import Struct

from turnline.errors import Unauthenticated
from turnline.server.auth.blocks import Grant, check_symbols, combine, read_block
from turnline.server.auth.library import LIBRARY_ERRORS, AuthorizerBuilder, Biscuit, Fact, PublicKey
from turnline.server.auth.revocation import is_revocation_id

MAX_TOKEN_BYTES: Final = 2_048
MAX_TOKEN_CHARACTERS: Final = (MAX_TOKEN_BYTES + 2) // 3 * 4
MAX_BLOCKS: Final = 8
"""The first one included."""
_NOT_OURS: Final = (
    "the token is damaged, or another key has signed it; make one with `turnline token mint`, or take the "
    "key that `turnline serve --dev` has printed"
)
_MAX_TIME: Final = timedelta(milliseconds=500)
_MAX_FACTS: Final = 1_000
_MAX_ITERATIONS: Final = 10


class Reading(Struct, frozen=True):
    """A token that was good when it was read."""

    grant: Grant
    revocation_ids: tuple[str, ...]
    """Of its blocks, in order. Whoever revokes one of them revokes this token and all made from it."""


def read(text: str, *, public_key: str, now: datetime) -> Reading:
    """Return what the token grants. Raises `Unauthenticated` if it is not good at `now`."""
    token = verified(text, public_key=public_key)
    grant = grant_of(token)
    if now >= grant.expires_at:
        raise Unauthenticated("the token has expired")
    evaluate(token, grant, now)
    return Reading(grant, tuple(token.revocation_ids))


def verified(text: str, *, public_key: str) -> Biscuit:
    """Return the token, signed by the owner of `public_key`."""
    check_text(text)
    try:
        return Biscuit.from_base64(text, _key(public_key))
    except LIBRARY_ERRORS:
        raise Unauthenticated(_NOT_OURS) from None


def check_text(text: str) -> None:
    """Refuse a text that is not worth looking at."""
    if not text:
        raise Unauthenticated("no token was sent")
    if not text.isascii():
        raise Unauthenticated("the token holds letters that no token has")
    if len(text) > MAX_TOKEN_CHARACTERS:
        raise Unauthenticated(f"the token is longer than {MAX_TOKEN_BYTES} bytes")


def grant_of(token: Biscuit) -> Grant:
    """Return what the token says, which is all that it can mean. Evaluates nothing."""
    count = token.block_count()
    if count > MAX_BLOCKS:
        raise Unauthenticated(f"the token has {count} blocks; expected {MAX_BLOCKS} or fewer")
    try:
        if any(token.block_external_key(index) is not None for index in range(count)):
            raise Unauthenticated("a block of the token is signed by somebody else")
        if not all(map(is_revocation_id, token.revocation_ids)):
            # With other kinds of keys one token has several signatures, and so several ids.
            raise Unauthenticated("a block of the token is signed with a key that is not Ed25519")
        check_symbols(str(token))
        return combine([read_block(token.block_source(index)) for index in range(count)])
    except LIBRARY_ERRORS:
        raise Unauthenticated("a block of the token is damaged") from None


def evaluate(token: Biscuit, grant: Grant, now: datetime) -> None:
    """Refuse a token of which the library does not say the same: its first block names the user, and
    each of its checks can hold.

    Operations and resources are checked when they are known, by `operations.authorise`.
    """
    try:
        builder = AuthorizerBuilder("time({now}); allow if user({user})", {"now": now, "user": grant.user_id})
        for bound in grant.bounds:
            for value in bound.allowed:
                builder.add_fact(Fact(f"{bound.kind}({{value}})", {"value": value}))
        limits = builder.limits()  # type: ignore[attr-defined]  # The library's stubs lack both methods.
        limits.max_time, limits.max_facts, limits.max_iterations = _MAX_TIME, _MAX_FACTS, _MAX_ITERATIONS
        builder.set_limits(limits)  # type: ignore[attr-defined]
        builder.build(token).authorize()
    except LIBRARY_ERRORS:
        raise Unauthenticated("the token's checks do not hold") from None


@lru_cache(maxsize=8)
def _key(public_key: str) -> PublicKey:
    return PublicKey(f"ed25519/{public_key}")
