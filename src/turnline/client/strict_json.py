"""Strict JSON: what one reader takes and another does not, nobody takes.

No NaN, no key twice, no half of a surrogate pair, no NUL, no number of thousands of digits,
no more levels and no more values than allowed.

Rule 1: the values are counted in the text, before anything is built from it. A megabyte of
empty lists costs a parser a hundred times what a megabyte of text does.

Rule 2: the cost is that of a parser in C and of a look at each level (`core.json.survey`). A
second parser reads only what is refused, to say where and why.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import msgspec

from turnline.core.json import MAX_KEY_CHARACTERS, MAX_VALUES, Flaw, flaw_in, survey

_decoder = msgspec.json.Decoder()
_FEW_QUOTES: Final = 1_000


class BadJson(ValueError):
    """Text that is not strict JSON; `because` says why."""

    def __init__(self, because: str, *, data: object = None) -> None:
        self.because = because
        self.data = data
        """What the text says, if a value in it is at fault."""
        super().__init__(because)


def loads(text: str | bytes, *, depth: int, values: int = MAX_VALUES) -> Any:
    """Return what `text` says. Raises `BadJson`."""
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    # Without its strings a text is counted exactly. Where it has many, that costs more than to count first.
    bare = _outside_strings(raw) if raw.count(b'"') <= _FEW_QUOTES else raw
    if _most_values(bare) > values:
        bare = _outside_strings(raw)
        if _values(bare) > values:
            raise BadJson(_because(Flaw.TOO_MANY, values))
    try:
        data = _decoder.decode(raw)
    except RecursionError:
        raise BadJson(_because(Flaw.TOO_DEEP, values)) from None
    except ValueError:  # Of msgspec, or about UTF-8.
        raise _explained(raw) from None
    # The parser has seen that all text is Unicode; only NUL is left to look for, where it is written.
    found = survey(data, depth=depth, values=values, is_text_good=not _may_have_nul(raw))
    if found.flaw is not None:
        raise BadJson(_because(found.flaw, values), data=data)
    if bare.count(b":") > found.keys and _outside_strings(raw).count(b":") > found.keys:
        raise _explained(raw)
    return data


def check(value: object, *, depth: int, values: int = MAX_VALUES) -> None:
    """Refuse what no other reader would read back as it is. Raises `BadJson`."""
    flaw = flaw_in(value, depth=depth, values=values)
    if flaw is not None:
        raise BadJson(_because(flaw, values))


def _may_have_nul(raw: bytes) -> bool:
    return b"\\" in raw and b"\\u0000" in raw


def _outside_strings(raw: bytes) -> bytes:
    """A text without its strings and spaces."""
    bare = raw
    if b"\\" in raw:  # A backslash that is left then escapes no quote.
        bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(b"".join(bare.split(b'"')[::2]).split())


def _most_values(text: bytes) -> int:
    """The values of a text, or more: each is the first of all, or of its list, or follows a comma."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def _values(bare: bytes) -> int:
    """The values of a text without strings: an empty list or object has no first one."""
    return _most_values(bare) - bare.count(b"[]") - bare.count(b"{}")


def _explained(raw: bytes) -> BadJson:
    """Return why a refused text is not strict JSON."""
    try:
        json.loads(raw.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except BadJson as error:
        return error
    except UnicodeDecodeError:
        return BadJson("it is not UTF-8")
    except RecursionError:
        return BadJson(_BECAUSE[Flaw.TOO_DEEP])
    except json.JSONDecodeError as error:
        return BadJson(f"{error.msg.lower()} at line {error.lineno}, column {error.colno}")
    except ValueError:  # A number of thousands of digits.
        pass
    return BadJson("it holds a number that is too long or too large, or half of a surrogate pair")


def _because(flaw: Flaw, values: int) -> str:
    return f"it has more than {values} values" if flaw is Flaw.TOO_MANY else _BECAUSE[flaw]


_BECAUSE: Final = {
    Flaw.TOO_DEEP: "it is nested too deep, with too many levels",
    Flaw.NUL: "it holds a NUL character",
    Flaw.SURROGATE: "it holds half of a surrogate pair",
    Flaw.LONG_NUMBER: "it holds a number that is too long",
    Flaw.NOT_FINITE: "it holds a number that is too large",
    Flaw.LONG_KEY: f"it holds a key of more than {MAX_KEY_CHARACTERS} characters",
    Flaw.OTHER_TYPE: "it holds a value that JSON does not have",
}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise BadJson(f"the key {twice[:100]!r} stands in one object twice")
    return found


def _constant(name: str) -> Any:
    raise BadJson(f"{name} is no JSON")
