"""How each provider's model is made. A provider's package is imported when its maker is called.

A maker takes the model's name at the provider, where the provider is, and the
key. That there is a key is for `turnline.config` to check, before anything is
imported.
"""

# ruff: noqa: PLC0415  a maker imports its own provider's package and nobody else's.

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_COMPATIBLE: Final = "openai-compatible"
"""Kept in every reply's `raw`; a provider gets back only what it is named in."""


def openai_chat(name: str, *, base_url: str | None, api_key: str) -> Model[Any]:
    """OpenAI's chat completions, which a proxy to OpenAI speaks too."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=base_url, api_key=api_key))


def openai_compatible(name: str, *, base_url: str, api_key: str | None) -> Model[Any]:
    """The same, without what only OpenAI's own servers understand."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    provider = OpenAICompatibleProvider(_COMPATIBLE, base_url=base_url, api_key=api_key)
    return OpenAIChatModel(name, provider=provider)


def ollama(name: str, *, base_url: str, api_key: str | None) -> Model[Any]:
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.providers.ollama import OllamaProvider

    return OllamaModel(name, provider=OllamaProvider(base_url=base_url, api_key=api_key))


def anthropic(name: str, *, base_url: str | None, api_key: str) -> Model[Any]:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel(name, provider=AnthropicProvider(base_url=base_url, api_key=api_key))


def gemini(name: str, *, base_url: str | None, api_key: str) -> Model[Any]:
    with warnings.catch_warnings():
        # From google-genai's own docstrings, when its files are compiled for the first time.
        warnings.filterwarnings("ignore", message="invalid escape sequence")
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(name, provider=GoogleProvider(base_url=base_url, api_key=api_key))


def inferred(name: str) -> Model[Any]:
    """Any `provider:model` that pydantic-ai knows; it reads that provider's environment variables."""
    from pydantic_ai.models import infer_model

    return infer_model(name)
