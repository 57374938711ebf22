"""The one door to `biscuit_auth`, which the extra `biscuit` installs.

Trap: the text of a `PrivateKey` is the key. Nothing that holds one may be shown.
"""

from __future__ import annotations

from turnline.errors import MissingExtra

try:
    from biscuit_auth import (
        AuthorizationError,
        AuthorizerBuilder,
        Biscuit,
        BiscuitBlockError,
        BiscuitBuilder,
        BiscuitBuildError,
        BiscuitSerializationError,
        BiscuitValidationError,
        BlockBuilder,
        DataLogError,
        Fact,
        KeyPair,
        PrivateKey,
        PublicKey,
        UnverifiedBiscuit,
    )
except ImportError:
    raise MissingExtra("tokens", extra="biscuit") from None

LIBRARY_ERRORS = (
    AuthorizationError,
    BiscuitBlockError,
    BiscuitBuildError,
    BiscuitSerializationError,
    BiscuitValidationError,
    DataLogError,
    TypeError,
    ValueError,
)
"""What it raises. The last two: for a value that Datalog does not have."""

__all__ = [
    "LIBRARY_ERRORS",
    "AuthorizerBuilder",
    "Biscuit",
    "BiscuitBuilder",
    "BlockBuilder",
    "Fact",
    "KeyPair",
    "PrivateKey",
    "PublicKey",
    "UnverifiedBiscuit",
]
