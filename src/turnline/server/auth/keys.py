"""The project's root key: it signs tokens, and its public half verifies them.

    TURNLINE_AUTH_KEY          the private key, 64 hexadecimal digits
    .turnline/auth.key         the same in a file that only its owner can read
    TURNLINE_AUTH_PUBLIC_KEY   enough to verify: a server needs no more

Rule 1: a private key is in no error, no log line and no repr.

Rule 2: the library is imported when a private key is used. A server without tokens does without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from turnline.errors import BadKey
from turnline.flow.key_file import create_key_file, read_key_file

if TYPE_CHECKING:
    from turnline.server.auth.library import Biscuit, BiscuitBuilder, KeyPair

KEY_VARIABLE: Final = "TURNLINE_AUTH_KEY"
PUBLIC_KEY_VARIABLE: Final = "TURNLINE_AUTH_PUBLIC_KEY"
KEY_FILE: Final = Path(".turnline") / "auth.key"
_PRIVATE: Final = re.compile(r"(?:ed25519-private/)?([0-9a-fA-F]{64})")
_PUBLIC: Final = re.compile(r"(?:ed25519/)?([0-9a-fA-F]{64})")
_DO: Final = "Make one with `turnline token key`."


class RootKey:
    """The key that signs a project's tokens. It cannot be shown, copied into a text or read back."""

    __slots__ = ("_pair", "public")

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair
        self.public = bytes(pair.public_key.to_bytes()).hex()
        """The half that verifies: 64 hexadecimal digits."""

    def __repr__(self) -> str:
        return f"RootKey(public={self.public!r})"

    @classmethod
    def from_text(cls, text: str, *, where: str) -> RootKey:
        """Return the key that `text` spells. `where` it comes from is all an error says about it."""
        from turnline.server.auth.library import LIBRARY_ERRORS, KeyPair, PrivateKey  # noqa: PLC0415

        found = _PRIVATE.fullmatch(text.strip())
        if found is None:
            raise BadKey(where, because="this is not a private key of 64 hexadecimal digits", do=_DO)
        try:
            pair = KeyPair.from_private_key(PrivateKey(f"ed25519-private/{found[1]}"))
        except LIBRARY_ERRORS:
            raise BadKey(where, because="no key pair has this private key", do=_DO) from None
        return cls(pair)

    def sign(self, builder: BiscuitBuilder) -> Biscuit:
        return builder.build(self._pair.private_key)


def root_key(environ: Mapping[str, str], folder: Path) -> RootKey:
    """Return the project's key: from the environment, else from its folder. Raises `BadKey` without one."""
    if environ.get(KEY_VARIABLE):
        return RootKey.from_text(environ[KEY_VARIABLE], where=KEY_VARIABLE)
    return RootKey.from_text(_read(folder / KEY_FILE), where=str(folder / KEY_FILE))


def ensure_root_key(environ: Mapping[str, str], folder: Path) -> RootKey:
    """Return the project's key; if there is none, make one and keep it in the folder."""
    path = folder / KEY_FILE
    if not environ.get(KEY_VARIABLE) and not path.exists():
        create_key_file(path, do=f"Set {KEY_VARIABLE}.")
    return root_key(environ, folder)


def has_key(environ: Mapping[str, str], folder: Path) -> bool:
    """Return whether there is a key to verify tokens with, good or bad."""
    return bool(environ.get(KEY_VARIABLE) or environ.get(PUBLIC_KEY_VARIABLE)) or (folder / KEY_FILE).exists()


def verifying_key(environ: Mapping[str, str], folder: Path) -> str:
    """Return what verifies the project's tokens: the public key of the environment, or of its root key."""
    text = environ.get(PUBLIC_KEY_VARIABLE)
    if not text:
        return root_key(environ, folder).public
    found = _PUBLIC.fullmatch(text.strip())
    if found is None:
        raise BadKey(PUBLIC_KEY_VARIABLE, because="this is not a public key of 64 hexadecimal digits", do=_DO)
    key = found[1].lower()
    if environ.get(KEY_VARIABLE) and root_key(environ, folder).public != key:
        because, do = f"this is not the public half of {KEY_VARIABLE}", "Set one of the two."
        raise BadKey(PUBLIC_KEY_VARIABLE, because=because, do=do)
    return key


def _read(path: Path) -> str:
    try:
        return read_key_file(path)
    except FileNotFoundError:
        raise BadKey(str(path), because=f"there is no key, nor in {KEY_VARIABLE}", do=_DO) from None
