"""What may stand in an envelope's data: JSON, exactly (E2).

`normalised` refuses what would not read back equal (NaN, tuples, keys that are
not strings, text that is not Unicode) and names the place; what it returns is
the caller's data as a restart would read it, sharing nothing with the original.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import msgspec

from turnline.core.envelope import JsonObject
from turnline.errors import BadDraft

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of one envelope's data. Bigger things belong in a blob store; put their address on the channel."""
MAX_KEY_CHARACTERS: Final = 1024
MAX_INTEGER_BITS: Final = 1024

_encoder = msgspec.json.Encoder()


def normalised(data: object, *, field: str = "event_data", max_bytes: int = MAX_BYTES) -> JsonObject:
    """Return `data` as it reads back from a log, or raise `BadDraft` naming the place."""
    if not isinstance(data, dict):
        raise BadDraft(field, found=_describe(data), expected="a JSON object (a dict with string keys)")
    plain = _plain_object(data, field, 1)
    size = len(_encoder.encode(plain))
    if size > max_bytes:
        raise BadDraft(field, found=f"{size} bytes of JSON", expected=f"at most {max_bytes}")
    return plain


def _plain(value: object, path: str, depth: int) -> Any:
    """A copy of plain Python objects: no subclass of `str` or `int` reads back as itself."""
    match value:
        case None | bool():
            return value
        case str():
            return _text(value, path)
        case int():
            return _integer(value, path)
        case float():
            if not isfinite(value):
                raise BadDraft(
                    path, found=repr(value), expected="a finite number; JSON has no NaN or infinity"
                )
            return float(value)
        case dict():
            return _plain_object(value, path, depth)
        case list():
            _check_depth(path, depth)
            return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        case _:
            expected = "JSON: text, number, true, false, null, list or object"
            raise BadDraft(path, found=_describe(value), expected=expected)


def _plain_object(value: dict[Any, Any], path: str, depth: int) -> JsonObject:
    _check_depth(path, depth)
    return {_key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}


def _check_depth(path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BadDraft(path[:200], found="nested deeper", expected=f"at most {MAX_DEPTH} levels")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise BadDraft(path, found=f"keyed by {_describe(key)}", expected="string keys only")
    if len(key) > MAX_KEY_CHARACTERS:
        raise BadDraft(
            path, found=f"keyed by {len(key)} characters", expected=f"at most {MAX_KEY_CHARACTERS}"
        )
    return _text(key, path)


def _text(text: str, path: str) -> str:
    if "\0" in text:
        raise BadDraft(path, found="text with a NUL character", expected="text without one")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadDraft(path, found="text with a lone surrogate", expected="valid Unicode") from None
    return str.__str__(text)


def _integer(value: int, path: str) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise BadDraft(path, found="a huge integer", expected=f"at most {MAX_INTEGER_BITS} bits")
    return int(value)


def _describe(value: object) -> str:
    return f"a {type(value).__name__}"
