"""Keys of seals (Ed25519), as files that `openssl genpkey -algorithm ed25519` makes.

Rule: nothing here is loaded by a program that neither signs nor checks signatures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from turnline.errors import BadKey, MissingExtra

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
except ModuleNotFoundError:
    raise MissingExtra("signed seals", extra="seals") from None

MAX_KEY_BYTES: Final = 64 * 1024
_DO: Final = (
    "Make one with `openssl genpkey -algorithm ed25519`, and its public half with `openssl pkey -pubout`."
)


class SealKey:
    """The private key that signs seals. It cannot be shown or read back."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicSealKey(key.public_key())

    def __repr__(self) -> str:
        return "SealKey(***)"

    @classmethod
    def from_file(cls, path: Path) -> SealKey:
        """Return the key in a PEM file. Raises `BadKey`."""
        with _loading(path, "private"):
            key = load_pem_private_key(_read(path), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey(str(path), because="this is not a private Ed25519 key", do=_DO)
        return cls(key)

    def sign(self, message: bytes) -> str:
        return self._key.sign(message).hex()


class PublicSealKey:
    """The public key that checks signatures of seals."""

    __slots__ = ("_key", "text")

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.text = key.public_bytes_raw().hex()

    @classmethod
    def from_file(cls, path: Path) -> PublicSealKey:
        """Return the key in a PEM file. Raises `BadKey`."""
        with _loading(path, "public"):
            key = load_pem_public_key(_read(path))
        if not isinstance(key, Ed25519PublicKey):
            raise BadKey(str(path), because="this is not a public Ed25519 key", do=_DO)
        return cls(key)

    def fits(self, signature: str, message: bytes) -> bool:
        """Return whether the private half of this key has signed the message."""
        try:
            self._key.verify(bytes.fromhex(signature), message)
        except (InvalidSignature, ValueError):
            return False
        return True


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_KEY_BYTES)


@contextmanager
def _loading(path: Path, kind: str) -> Iterator[None]:
    # The message of an error may quote the file: only what kind of file was expected is said.
    try:
        yield
    except OSError as error:
        raise BadKey(str(path), because=f"it cannot be read ({error.strerror})", do=_DO) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadKey(
            str(path), because=f"this is not a {kind} key in PEM, or it has a password", do=_DO
        ) from None
