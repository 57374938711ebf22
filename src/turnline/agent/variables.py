"""A conversation's variables and dependencies: merged from what was given, masked in what is shown.

V1: the call's win over the agent's; nobody's dict is written to, and nested
    values are a conversation's own.
V4: values are shown to nobody. Their `repr` masks them, and `masked` takes them
    out of a text that somebody else wrote.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Final
from urllib.parse import quote

from pydantic import SecretStr

MASK: Final = "***"
MIN_MASKED_CHARACTERS: Final = 8
"""Shorter texts ('dark', 'en') are no secrets, and taking them out would garble every message."""
MAX_MASKED_VALUES: Final = 10_000
"""Where there are more to look through, nothing of the text is shown."""


class Values(dict[str, Any]):
    """A dict that keeps its values to itself when it is shown."""

    def __repr__(self) -> str:
        return shown(self)

    __str__ = __repr__


def conversation_variables(agent: Mapping[str, Any], call: Mapping[str, Any]) -> Values:
    """Return the variables a conversation starts with: the agent's, then the call's over them (V1).

    They are copies all the way down. What cannot be copied (a connection, a lock)
    is shared, and belongs into the dependencies.
    """
    copies: dict[int, Any] = {}
    return Values({key: _own(value, copies) for key, value in {**agent, **call}.items()})


def conversation_dependencies(agent: Mapping[str, Any], call: Mapping[str, Any]) -> Values:
    """Return the dependencies a conversation starts with (V1, V5). They are live objects: none is copied."""
    return Values({**agent, **call})


def shown(values: Mapping[str, Any]) -> str:
    """The keys; of the values, that there are some."""
    return "{" + ", ".join(f"{key!r}: {MASK}" for key in values) + "}"


def masked(text: str, *secret: object) -> str:
    """Return `text` without the texts found in `secret`, however deep in lists and dicts (V4)."""
    found = _texts(secret)
    if found is None:
        return MASK
    forms = {form for value in found for form in _forms(value)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def _own(value: Any, copies: dict[int, Any]) -> Any:
    """A copy. Containers are opened, so that one value that cannot be copied does not make all shared."""
    if id(value) in copies:
        return copies[id(value)]
    if type(value) is dict:
        mine = copies[id(value)] = dict[Any, Any]()
        mine.update((key, _own(item, copies)) for key, item in value.items())
        return mine
    if type(value) is list:
        items = copies[id(value)] = list[Any]()
        items.extend(_own(item, copies) for item in value)
        return items
    try:
        return deepcopy(value, copies)
    except Exception:  # Whatever a user's class raises: it says that it has no copies.
        return value


def _texts(values: Iterable[object]) -> set[str] | None:
    """The texts worth masking; None if there is more to look through than the limit allows."""
    waiting, seen, texts = deque(values), set[int](), set[str]()
    while waiting:
        value = waiting.popleft()
        if isinstance(value, str):
            texts.add(value)
        elif isinstance(value, SecretStr):
            texts.add(value.get_secret_value())
        elif isinstance(value, dict | list | tuple | set | frozenset) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)
        if len(waiting) > MAX_MASKED_VALUES or len(seen) > MAX_MASKED_VALUES:
            return None
    return {text for text in texts if len(text) >= MIN_MASKED_CHARACTERS}


def _forms(value: str) -> tuple[str, ...]:
    """The ways a text gets into a message: as it is, within a `repr`, within an address."""
    return value, repr(value)[1:-1], quote(value, safe="", errors="replace")
