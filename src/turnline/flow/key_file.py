"""Key files: 32 random bytes in a project's `.turnline` folder, readable by their owner only.

Rule: a key is in no error, no log line and no repr.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from turnline.errors import BadKey

_MAX_FILE_BYTES: Final = 1_024


def read_key_file(path: Path) -> str:
    """Return the text of a key file. Raises `FileNotFoundError`, and `BadKey` if others can read it."""
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise BadKey(str(path), because="others can read it", do=f"Run `chmod 600 {path}`.")
            return file.read(_MAX_FILE_BYTES).decode("ascii", errors="replace")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadKey(str(path), because=_reason(error), do="Let this user read it.") from None


def create_key_file(path: Path, *, do: str) -> None:
    """Write a new key, whole or not at all. Of several processes the first one wins; no key is replaced.

    Raises `BadKey`, which says what to `do`, if nothing can be written there.
    """
    try:
        _create(path)
    except OSError as error:
        raise BadKey(str(path), because=f"no key can be kept there: {_reason(error)}", do=do) from None


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secrets.token_hex(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
