"""Prompts: what an agent is told before anybody speaks.

A prompt is a text, a function, or several of them. A text with `{{ }}` or `{% %}`
in it is a template over the channel's context variables (C6): it is rendered anew
for every round, and without such marks it is taken as it stands. A function is
called anew, with injected parameters like a tool's, and what it returns is text,
never a template.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from turnline.agent.context import Context
from turnline.agent.injections import Dependency, Resolution, dependency_of
from turnline.expressions.template import Template, compile_template

PromptPart = str | Callable[..., str | Awaitable[str]]
Prompt = PromptPart | Sequence[PromptPart]


class Instructions:
    """An agent's prompt, ready to be rendered."""

    def __init__(self, prompt: Prompt, *, agent: str, context_keys: Iterable[str] = ()) -> None:
        parts = [prompt] if isinstance(prompt, str) or callable(prompt) else list(prompt)
        self._parts = [_ready(part, agent) for part in parts]
        self._keys = tuple(context_keys)

    async def text(self, context: Context, variables: Mapping[str, Any]) -> str:
        """Return what the model is told, with `variables` the channel's context variables."""
        call = Resolution(context)
        told = [await _rendered(part, call, variables) for part in self._parts]
        shown = {key: variables[key] for key in self._keys if key in variables}
        if shown:
            told.append(
                "Context variables:\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in shown.items())
            )
        return "\n\n".join(text for text in told if text)


def _ready(part: PromptPart, agent: str) -> str | Template | Dependency:
    if callable(part):
        return dependency_of(part, f"the prompt of {agent}")
    return compile_template(part) if "{{" in part or "{%" in part else part


async def _rendered(part: str | Template | Dependency, call: Resolution, variables: Mapping[str, Any]) -> str:
    match part:
        case str():
            return part
        case Template():
            return part.render(variables)
        case Dependency():
            return str(await part.result(call))
