"""Templates in a step's data (F9): `{{ expressions }}` over the run's public context.

    render("Hello {{ name }}", public)                   text
    filled({"to": "{{ address }}"}, public)              JSON; `{{ address }}` alone keeps its type
    headers({"Authorization": "Bearer {{ secret.KEY }}"}, public, secret)
    mapped("lead_score > 80", public)                    an expression, as `response` has them

Rule 1: a name that is not there is an error that says which and where, and so is a
template that costs too much. Only `mapped` gives None, as conditions do.

Rule 2: what is filled in is never read as a template again.

Rule 3: secrets go into headers and nowhere else. Whoever has the rendered headers
neither returns nor shows them; no error holds a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeVar

from turnline.agent.variables import masked
from turnline.core.envelope import JsonObject
from turnline.errors import BadExpression, TemplateFailed
from turnline.errors.base import hint
from turnline.expressions import Expression, compile_expression
from turnline.expressions.functions import OutOfSteps, Steps
from turnline.expressions.strict import SECRET, Missing, StrictTemplate, compile_strict
from turnline.expressions.template import Template, compile_template

Json = Any
"""JSON of the user's own."""
AskSecret = Callable[[str], str | None]
"""The value of a secret, by its name; None where there is none."""

T = TypeVar("T")

_COMPILED: Final = 1_024
_MARKS: Final = ("{{", "{%", "{#")
_TOO_MUCH: Final = "it costs too much, or comes to too long a text"


def render(text: str, public: Mapping[str, Json], *, at: str = "the template") -> str:
    """Return `text` with everything filled in; `at` is where it stands, for the error."""
    return _rendered(text, public, at, Steps())


def filled(data: Json, public: Mapping[str, Json], *, at: str = "the value") -> Json:
    """Return `data` with every text in it filled in. Keys are taken as they are."""
    return _filled(data, public, at, Steps())


def headers(
    given: Mapping[str, str], public: Mapping[str, Json], secret: AskSecret, *, at: str = "headers"
) -> dict[str, str]:
    """Return headers with everything filled in, secrets included."""
    steps = Steps()
    return {name: _header(text, public, secret, f"{at}.{name}", steps) for name, text in given.items()}


def secrets_of(given: Mapping[str, str], secret: AskSecret) -> list[str]:
    """The values of the secrets that headers read: what must not come back with an answer."""
    names = sorted({name for text in given.values() for name in _strict(text).secrets})
    return [value for value in map(secret, names) if value]


def without(found: Json, secrets: Sequence[str]) -> Json:
    """`found` with the texts in `secrets` masked, wherever they are in it."""
    if not secrets:
        return found
    match found:
        case str():
            return masked(found, *secrets)
        case list():
            return [without(item, secrets) for item in found]
        case dict():
            return {masked(key, *secrets): without(item, secrets) for key, item in found.items()}
    return found


def mapped(value: Json, public: Mapping[str, Json], *, at: str = "mapping") -> Json:
    """Return `value` with every text in it evaluated: an expression, or a template. Missing is None."""
    return _mapped(value, public, at, Steps())


def names_in(text: str) -> frozenset[str]:
    """Return the context keys that a template reads."""
    return _strict(text).names if is_template(text) else frozenset()


def is_template(text: str) -> bool:
    return any(mark in text for mark in _MARKS)


def _filled(data: Json, public: Mapping[str, Json], at: str, steps: Steps) -> Json:
    match data:
        case str():
            if not is_template(data):
                return data
            return _evaluated(StrictTemplate.value, _without_secrets(data, at), public, at, steps)
        case dict():
            return {key: _filled(item, public, f"{at}.{key}", steps) for key, item in data.items()}
        case list():
            return [_filled(item, public, f"{at}[{place}]", steps) for place, item in enumerate(data)]
    return data


def _header(text: str, public: Mapping[str, Json], secret: AskSecret, at: str, steps: Steps) -> str:
    template = _strict(text)
    names = {**public, SECRET: _asked(template, secret, at)}
    return _evaluated(StrictTemplate.render, template, names, at, steps)


def _rendered(text: str, public: Mapping[str, Json], at: str, steps: Steps) -> str:
    if not is_template(text):
        return text
    return _evaluated(StrictTemplate.render, _without_secrets(text, at), public, at, steps)


def _without_secrets(text: str, at: str) -> StrictTemplate:
    template = _strict(text)
    if template.secrets:
        because = f"it reads the secret {min(template.secrets)!r}, and secrets are for headers only"
        raise TemplateFailed(at, because=because)
    return template


def _asked(template: StrictTemplate, secret: AskSecret, at: str) -> JsonObject:
    found = {name: secret(name) for name in template.secrets}
    for name, value in found.items():
        if value is None:
            raise TemplateFailed(at, because=f"there is no secret {name!r}; set it where the server runs")
    return found


def _evaluated(
    evaluate: Callable[[StrictTemplate, Mapping[str, Json], Steps], T],
    template: StrictTemplate,
    names: Mapping[str, Json],
    at: str,
    steps: Steps,
) -> T:
    try:
        return evaluate(template, names, steps)
    except Missing as missing:
        line = f" (line {missing.line})" if "\n" in template.text else ""
        near = hint(missing.key, names) if missing.key.isidentifier() else ""
        told = f"there is no {missing.key!r}{line}{near and '.'}{near}{' Or' if near else ';'}"
        because = f"{told} write default({missing.key}, ...) if it may be absent"
        raise TemplateFailed(at, because=because) from None
    except OutOfSteps:
        raise TemplateFailed(at, because=_TOO_MUCH) from None


def _mapped(value: Json, public: Mapping[str, Json], at: str, steps: Steps) -> Json:
    match value:
        case str():
            return _said(value, public, at, steps)
        case dict():
            return {key: _mapped(item, public, f"{at}.{key}", steps) for key, item in value.items()}
        case list():
            return [_mapped(item, public, f"{at}[{place}]", steps) for place, item in enumerate(value)]
    return value


def _said(text: str, public: Mapping[str, Json], at: str, steps: Steps) -> Json:
    if text in public:  # However large, and whatever it is called: a step's id may have a dash.
        return public[text]
    said = _lenient(text)
    if SECRET in said.names:
        raise TemplateFailed(at, because="it reads a secret, and secrets are for headers only")
    if isinstance(said, Template):
        found: Json = said.render(public, steps=steps)
    else:
        found = said.evaluate(public, steps=steps)
    if steps.left < 0:
        raise TemplateFailed(at, because=_TOO_MUCH)
    return found


@lru_cache(maxsize=_COMPILED)
def _strict(text: str) -> StrictTemplate:
    return compile_strict(text)


@lru_cache(maxsize=_COMPILED)
def _lenient(text: str) -> Expression | Template:
    if not is_template(text):
        return compile_expression(text)
    bare = text.strip()
    # `{{-` and `{{+` are about the space before it.
    if bare.startswith("{{") and bare.endswith("}}") and bare[2:3] not in {"-", "+"}:
        with suppress(BadExpression):
            return compile_expression(bare[2:-2].removesuffix("-"))
    return compile_template(text)
