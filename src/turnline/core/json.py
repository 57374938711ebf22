"""What may stand in an envelope's data: JSON, exactly (E2).

`normalised` refuses what would not read back equal (NaN, tuples, keys that are
not strings, text that is not Unicode) and names the place; what it returns is
the caller's data as a restart would read it, sharing nothing with the original.

Rule: data of a stranger is never walked value by value, unless it has a flaw whose place an error names.
Most data is checked on its encoded bytes, with a few searches in C (`_read_back`); where these cannot tell,
it is looked at level by level (`flaw_in`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from itertools import chain
from math import isfinite
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

from turnline.core.envelope import JsonObject
from turnline.errors import BadDraft

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of one envelope's data. Send bigger things as files."""
MAX_VALUES: Final = 100_000
"""Of one envelope's data: texts, numbers, lists, objects and the rest, on all levels together."""
MAX_KEY_CHARACTERS: Final = 1024
MAX_INTEGER_BITS: Final = 1024
MAX_SECONDS: Final = 100 * 365 * 86_400.0
"""Of a pause, a TTL, an ack timeout, an expectation: a hundred years."""

_SURE_BYTES: Final = 64
"""JSON of at most so many bytes keeps every limit: each level, digit and character takes one."""
_SURE_DIGITS: Final = 308
"""An integer of fewer digits keeps `MAX_INTEGER_BITS`."""
_LONG_TEXT: Final = 100
"""Characters between two quotes, on average, from which on there are few values to look at."""
_LONG_NUMBER: Final = b"0" * _SURE_DIGITS
_LONG_KEY: Final = b"x" * (MAX_KEY_CHARACTERS + 1)
_DIGITS: Final = bytes(b"0"[0] if one in b"0123456789" else b" "[0] for one in range(256))
_NO_QUOTES: Final = bytes(one if one in b'"' else b"x"[0] for one in range(256))
_NO_BRACKETS: Final = bytes(one for one in range(256) if one not in b"{}[]")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(JsonObject)


def normalised(data: object, *, field: str = "event_data", max_bytes: int = MAX_BYTES) -> JsonObject:
    """Return `data` as it reads back from a log, or raise `BadDraft` naming the place."""
    if not isinstance(data, dict):
        raise BadDraft(field, found=_describe(data), expected="a JSON object (a dict with string keys)")
    if (found := _read_back(data, max_bytes)) is not None:
        return found
    flaw = flaw_in(data)
    if flaw is Flaw.TOO_MANY:
        raise BadDraft(field, found=f"JSON of more than {MAX_VALUES} values", expected="fewer (MAX_VALUES)")
    encoded = _encoder.encode(data if flaw is None else _plain(data, field, 1))
    if len(encoded) > max_bytes:
        raise BadDraft(field, found=f"{len(encoded)} bytes of JSON", expected=f"at most {max_bytes}")
    return _decoder.decode(encoded)


def _read_back(data: JsonObject, max_bytes: int) -> JsonObject | None:
    """Return `data` as it reads back, if its bytes show that it is within all limits; None if they do not.

    The bytes count what is inside of texts too, so a limit that they keep is kept, and one that they break
    perhaps is. Whatever is not JSON (a tuple, NaN, a key that is a number) does not read back equal.
    """
    try:
        encoded = _encoder.encode(data)
    except (TypeError, ValueError, RecursionError, OverflowError):
        return None
    if len(encoded) > max_bytes or b"\\u0000" in encoded:
        return None
    if len(encoded) > _SURE_BYTES and not _is_within_limits(encoded):
        return None
    found = _decoder.decode(encoded)
    return found if found == data else None


def _is_within_limits(encoded: bytes) -> bool:
    """Return whether bytes of JSON show that its keys, numbers, count of values and depth are allowed."""
    if encoded.count(b'"') * _LONG_TEXT < len(encoded):
        return False  # Few values and long texts: these are looked at level by level in less time.
    if len(encoded) > MAX_KEY_CHARACTERS:
        plain = encoded.replace(rb"\\", b"x").replace(rb"\"", b"x") if b"\\" in encoded else encoded
        if _LONG_KEY in plain.translate(_NO_QUOTES):
            return False
    if len(encoded) > _SURE_DIGITS and _LONG_NUMBER in encoded.translate(_DIGITS):
        return False
    brackets = encoded.translate(None, _NO_BRACKETS)
    return encoded.count(b",") + len(brackets) < MAX_VALUES and _is_flat(brackets)


def _is_flat(brackets: bytes) -> bool:
    """Return whether brackets show at most `MAX_DEPTH` levels. Those inside of texts count as levels."""
    if len(brackets) <= MAX_DEPTH:
        return True
    for _ in range(MAX_DEPTH):  # Each pass takes the innermost level away.
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if not brackets:
            return True
    return False


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is a finite number that a float can hold; True and False are not numbers."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:
        return False


def ids_of(value: object) -> list[str]:
    """Return the ids that a line lists; none for anything else."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def seconds_of(value: object) -> float | None:
    """Return the seconds that a line says; None for anything else."""
    return float(value) if is_number(value) and 0 <= value <= MAX_SECONDS else None


def moment_of(text: object) -> datetime | None:
    """The time that an ISO text with an offset names; None for anything else."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def copied(data: JsonObject) -> JsonObject:
    """Return a copy of what came from a log, sharing nothing with it."""
    return _decoder.decode(_encoder.encode(data))


def size_of(data: object) -> int:
    """Return the bytes of `data` as JSON; 0 if it cannot be JSON, which `normalised` refuses quickly."""
    try:
        return len(_encoder.encode(data))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return 0


class Flaw(Enum):
    """A reason why a value is not JSON that reads back as it is."""

    TOO_MANY = auto()
    TOO_DEEP = auto()
    NUL = auto()
    SURROGATE = auto()
    LONG_NUMBER = auto()
    NOT_FINITE = auto()
    LONG_KEY = auto()
    OTHER_TYPE = auto()
    """A value or key of another type than JSON's own; a subclass is one."""


class Survey(NamedTuple):
    """The result of a look at all levels of a value."""

    flaw: Flaw | None
    keys: int
    """Of all objects together."""


def flaw_in(value: object, *, depth: int = MAX_DEPTH, values: int = MAX_VALUES) -> Flaw | None:
    """Return a flaw of `value`, or None if it is JSON of at most `depth` levels and `values` values."""
    return survey(value, depth=depth, values=values).flaw


def survey(
    value: object, *, depth: int = MAX_DEPTH, values: int = MAX_VALUES, is_text_good: bool = False
) -> Survey:
    """Look at `value` level by level, up to its first flaw; with `is_text_good`, not into its texts."""
    level: list[Any] = [value]
    count, names, texts = 1, 0, list[str]()
    for _ in range(depth + 1):
        kinds = set(map(type, level))
        flaw = _flaw_of(level, kinds)
        if str in kinds and not is_text_good:
            texts.append("".join(_of_kind(level, kinds, str)))
        lists, objects = (list(filter(None, _of_kind(level, kinds, kind))) for kind in (list, dict))
        if flaw is None and objects:
            keys = set(chain.from_iterable(objects))  # Many objects have few different keys.
            flaw = _flaw_of_keys(keys)
            texts += () if flaw or is_text_good else keys
        if flaw is None and list not in kinds and dict not in kinds:
            flaw = _flaw_of_text("".join(texts))
            return Survey(flaw, names)
        pairs = sum(map(len, objects))
        names += pairs
        count += sum(map(len, lists)) + pairs
        if flaw is not None or count > values:
            return Survey(flaw or Flaw.TOO_MANY, names)
        level = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, objects))]
    return Survey(Flaw.TOO_DEEP, names)


def _of_kind(level: list[Any], kinds: set[type], kind: type) -> Sequence[Any]:
    """The values of a level that are of one kind."""
    if kind not in kinds:
        return ()
    return level if len(kinds) == 1 else [one for one in level if type(one) is kind]


def _flaw_of(level: list[Any], kinds: set[type]) -> Flaw | None:
    if not kinds <= _KINDS:
        return Flaw.OTHER_TYPE
    if float in kinds and not all(map(isfinite, _of_kind(level, kinds, float))):
        return Flaw.NOT_FINITE
    if int in kinds:
        numbers = _of_kind(level, kinds, int)
        bits = max(max(numbers).bit_length(), min(numbers).bit_length())
        return Flaw.LONG_NUMBER if bits > MAX_INTEGER_BITS else None
    return None


def _flaw_of_keys(keys: set[Any]) -> Flaw | None:
    if not set(map(type, keys)) <= {str}:
        return Flaw.OTHER_TYPE
    return Flaw.LONG_KEY if max(map(len, keys), default=0) > MAX_KEY_CHARACTERS else None


def _flaw_of_text(text: str) -> Flaw | None:
    if "\0" in text:
        return Flaw.NUL
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return Flaw.SURROGATE
    return None


_KINDS: Final = frozenset({type(None), bool, str, int, float, list, dict})


_WRONG: Final = {
    Flaw.NUL: ("text with a NUL character", "text without one"),
    Flaw.SURROGATE: ("text with a lone surrogate", "valid Unicode"),
    Flaw.LONG_NUMBER: ("a huge integer", f"at most {MAX_INTEGER_BITS} bits"),
    Flaw.NOT_FINITE: ("not finite", "a finite number; JSON has no NaN or infinity"),
}


def _plain(value: object, path: str, depth: int) -> Any:
    """Return a copy of plain Python objects: no subclass of `str` or `int` reads back as itself."""
    if depth > MAX_DEPTH and isinstance(value, dict | list):
        raise BadDraft(path[:200], found="nested deeper", expected=f"at most {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case str():
            return _text(value, path)
        case int() | float():
            number = int(value) if isinstance(value, int) else float(value)
            _refuse(_flaw_of([number], {type(number)}), path)
            return number
        case dict():
            return {_key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
        case list():
            return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    expected = "JSON: text, number, true, false, null, list or object"
    raise BadDraft(path, found=_describe(value), expected=expected)


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise BadDraft(path, found=f"keyed by {_describe(key)}", expected="string keys only")
    if len(key) > MAX_KEY_CHARACTERS:
        found, expected = f"keyed by {len(key)} characters", f"at most {MAX_KEY_CHARACTERS}"
        raise BadDraft(path, found=found, expected=expected)
    return _text(key, path)


def _text(text: str, path: str) -> str:
    _refuse(_flaw_of_text(text), path)
    return str.__str__(text)


def _refuse(flaw: Flaw | None, path: str) -> None:
    if flaw is not None:
        found, expected = _WRONG[flaw]
        raise BadDraft(path, found=found, expected=expected)


def _describe(value: object) -> str:
    return f"a {type(value).__name__}"
