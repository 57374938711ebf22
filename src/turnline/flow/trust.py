"""Trust: which definitions on the log may read secrets.

    .turnline/trust.key    a key of the project, outside the log
    TURNLINE_TRUST_KEY     the same key for servers that do not share the folder

Anyone with write access to a log can add a definition, and an import brings definitions of other
people. So `{{ secret.NAME }}` resolves only in a definition that a server of this project loaded
from its own files, now or earlier, and only in runs that `flow.trusted_runs` trusts. The server marks
each definition that it loads: the mark is a channel whose id is an HMAC of the definition's digest.

Rule 1: the key is never written to the log. Without it no mark can be made.

Rule 2: a mark fits one digest, and `Definitions.get` returns only content of that digest.

Rule 3: an import brings no marks (`log.transfer`). `turnline log import --trust` makes them.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from turnline.errors import BadKey
from turnline.flow.check.problem import every_step
from turnline.flow.check.texts import read, texts_of
from turnline.flow.definition.flow import Flow
from turnline.flow.definition.steps import McpStep
from turnline.flow.key_file import create_key_file, read_key_file
from turnline.log.base import MARK_PREFIX

KEY_VARIABLE: Final = "TURNLINE_TRUST_KEY"
KEY_FILE: Final = Path(".turnline") / "trust.key"
MARK_DIGITS: Final = 48
"""Hexadecimal digits of a mark: 192 bits of an HMAC-SHA256."""
_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")
_PURPOSE: Final = b"turnline flow definition\0"
_LINE: Final = b"turnline line of a mark"
_DO: Final = "Write 64 hexadecimal digits, for example from `openssl rand -hex 32`."


class TrustKey:
    """The key that marks a project's definitions. It cannot be shown or read back."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "TrustKey(***)"

    @classmethod
    def from_text(cls, text: str, *, where: str) -> TrustKey:
        """Return the key that `text` spells. An error says only `where` the text is from."""
        if _KEY.fullmatch(text.strip()) is None:
            raise BadKey(where, because="this is not a key of 64 hexadecimal digits", do=_DO)
        return cls(bytes.fromhex(text.strip()))

    def mark_of(self, digest: str) -> str:
        """Return the id of the channel that marks the definition with this digest."""
        code = hmac.digest(self._key, _PURPOSE + digest.encode(), "sha256").hex()
        return MARK_PREFIX + code[:MARK_DIGITS]

    def signature_of(self, channel_id: str, text: str) -> str:
        """Return the mark of a line of a channel of marks that says `text`."""
        return hmac.digest(self._key, b"\0".join((_LINE, channel_id.encode(), text.encode())), "sha256").hex()

    def fits(self, signature: object, channel_id: str, text: str) -> bool:
        """Return whether this is the mark that `signature_of` makes."""
        return isinstance(signature, str) and hmac.compare_digest(
            signature.encode(), self.signature_of(channel_id, text).encode()
        )


def find_trust_key(environ: Mapping[str, str], folder: Path) -> TrustKey | None:
    """Return the project's key from the environment or from its folder. Raises `BadKey` for a bad one."""
    if environ.get(KEY_VARIABLE):
        return TrustKey.from_text(environ[KEY_VARIABLE], where=KEY_VARIABLE)
    path = folder / KEY_FILE
    try:
        return TrustKey.from_text(read_key_file(path), where=str(path))
    except FileNotFoundError:
        return None


def ensure_trust_key(environ: Mapping[str, str], folder: Path) -> TrustKey:
    """Return the project's key; create it in the folder if there is none. Raises `BadKey`."""
    found = find_trust_key(environ, folder)
    if found is not None:
        return found
    path = folder / KEY_FILE
    create_key_file(path, do=f"Set {KEY_VARIABLE}.")
    return TrustKey.from_text(read_key_file(path), where=str(path))


def any_reads_secrets(flows: Iterable[Flow]) -> bool:
    """Return whether a step of these flows may read a secret: in its headers, or in an MCP server's."""
    steps = (step for flow in flows for _, step in every_step(flow))
    return any(
        isinstance(step, McpStep)
        or any(read(text).secrets for text in texts_of(step) if text.sort == "header")
        for step in steps
    )
