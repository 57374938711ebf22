"""What may stand in an envelope's data: JSON, exactly (E2).

`normalised` refuses what would not read back equal (NaN, tuples, keys that are
not strings, text that is not Unicode) and names the place; what it returns is
the caller's data as a restart would read it, sharing nothing with the original.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

import msgspec

from turnwise.core.envelope import JsonObject
from turnwise.errors import BadDraft

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of one envelope's data. Bigger things belong in a blob store; put their address on the channel."""
MAX_KEY_CHARACTERS: Final = 1024

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(JsonObject)


def normalised(data: object, *, field: str = "event_data", max_bytes: int = MAX_BYTES) -> JsonObject:
    """Return `data` as it reads back from a log, or raise `BadDraft` naming the place."""
    if not isinstance(data, dict):
        raise BadDraft(field, found=_describe(data), expected="a JSON object (a dict with string keys)")
    _check(data, field, 1)
    encoded = _encoder.encode(data)
    if len(encoded) > max_bytes:
        raise BadDraft(field, found=f"{len(encoded)} bytes of JSON", expected=f"at most {max_bytes}")
    return _decoder.decode(encoded)


def _check(value: object, path: str, depth: int) -> None:
    match value:
        case None | bool() | int():
            return
        case str():
            _check_text(value, path)
        case float():
            if not isfinite(value):
                raise BadDraft(
                    path, found=repr(value), expected="a finite number; JSON has no NaN or infinity"
                )
        case dict():
            _check_depth(path, depth)
            for key, item in value.items():
                _check_key(key, path)
                _check(item, f"{path}.{key}", depth + 1)
        case list():
            _check_depth(path, depth)
            for index, item in enumerate(value):
                _check(item, f"{path}[{index}]", depth + 1)
        case _:
            raise BadDraft(
                path, found=_describe(value), expected="JSON: text, number, true, false, null, list or object"
            )


def _check_depth(path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadDraft(path[:200], found="nested deeper", expected=f"at most {MAX_DEPTH} levels")


def _check_key(key: object, path: str) -> None:
    if not isinstance(key, str):
        raise BadDraft(path, found=f"keyed by {_describe(key)}", expected="string keys only")
    if len(key) > MAX_KEY_CHARACTERS:
        raise BadDraft(
            path, found=f"keyed by {len(key)} characters", expected=f"at most {MAX_KEY_CHARACTERS}"
        )
    _check_text(key, path)


def _check_text(text: str, path: str) -> None:
    if text.isascii():
        if "\0" in text:
            raise BadDraft(path, found="text with a NUL character", expected="text without one")
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadDraft(path, found="text with a lone surrogate", expected="valid Unicode") from None
    if "\0" in text:
        raise BadDraft(path, found="text with a NUL character", expected="text without one")


def _describe(value: object) -> str:
    return f"a {type(value).__name__}"
