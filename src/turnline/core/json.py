"""What may stand in an envelope's data: JSON, exactly (E2).

`normalised` refuses what would not read back equal (NaN, tuples, keys that are
not strings, text that is not Unicode) and names the place; what it returns is
the caller's data as a restart would read it, sharing nothing with the original.

Rule: data of a stranger is looked at level by level, many values in one call of the
interpreter (`flaw_in`). Only data with a flaw is walked value by value, to name the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from itertools import chain
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from turnline.core.envelope import JsonObject
from turnline.errors import BadDraft

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 1024 * 1024
"""Of one envelope's data. Bigger things belong in a blob store; put their address on the channel."""
MAX_VALUES: Final = 100_000
"""Of one envelope's data: texts, numbers, lists, objects and the rest, on all levels together."""
MAX_KEY_CHARACTERS: Final = 1024
MAX_INTEGER_BITS: Final = 1024

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(JsonObject)


def normalised(data: object, *, field: str = "event_data", max_bytes: int = MAX_BYTES) -> JsonObject:
    """Return `data` as it reads back from a log, or raise `BadDraft` naming the place."""
    if not isinstance(data, dict):
        raise BadDraft(field, found=_describe(data), expected="a JSON object (a dict with string keys)")
    flaw = flaw_in(data)
    if flaw is Flaw.TOO_MANY:
        raise BadDraft(field, found=f"JSON of more than {MAX_VALUES} values", expected="fewer (MAX_VALUES)")
    encoded = _encoder.encode(data if flaw is None else _plain_object(data, field, 1))
    if len(encoded) > max_bytes:
        raise BadDraft(field, found=f"{len(encoded)} bytes of JSON", expected=f"at most {max_bytes}")
    return _decoder.decode(encoded)


def copied(data: JsonObject) -> JsonObject:
    """Return a copy of what came from a log, sharing nothing with it."""
    return _decoder.decode(_encoder.encode(data))


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
    """What a look at all levels of a value found."""

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
            keys = list(chain.from_iterable(objects))
            names += len(keys)
            flaw = _flaw_of_keys(keys)
            texts += () if flaw or is_text_good else keys
        if flaw is None and list not in kinds and dict not in kinds:
            flaw = _flaw_of_text("".join(texts))
            return Survey(flaw, names)
        count += sum(map(len, lists)) + sum(map(len, objects))
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
        bits = max(map(int.bit_length, _of_kind(level, kinds, int)))
        return Flaw.LONG_NUMBER if bits > MAX_INTEGER_BITS else None
    return None


def _flaw_of_keys(keys: Sequence[Any]) -> Flaw | None:
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
