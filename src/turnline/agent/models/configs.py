"""Which model an agent uses, as data.

    AnthropicConfig(model="claude-sonnet-4-6")      a provider and its settings
    "anthropic:claude-sonnet-4-6"                   the same, in short; any provider pydantic-ai knows
    ScriptedModel("a reply")                        no provider at all
    None                                            whatever TURNLINE_MODEL says

`resolve` turns any of these into a model. A config makes its model without
asking anybody: a missing key is found there, before the first request, and the
provider's package is imported with the first request, not here.

Rule: a key is never shown. `repr` masks it, and errors have it taken out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from turnline.agent.model import Model, ModelConfig
from turnline.agent.models import providers
from turnline.agent.models.pydantic_ai import PydanticAiModel
from turnline.errors import ModelError, NoModel
from turnline.errors.base import short

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderModel

__all__ = [
    "AnthropicConfig",
    "GeminiConfig",
    "ModelConfig",
    "OllamaConfig",
    "OpenAICompatibleConfig",
    "OpenAIConfig",
    "StringConfig",
    "resolve",
]

DEFAULT_MODEL_VARIABLE: Final = "TURNLINE_MODEL"
TIMEOUT_SECONDS: Final = 300.0
"""For one attempt, from the request to the last byte of the reply."""
OLLAMA_URL: Final = "http://localhost:11434/v1"
_MASKED: Final = frozenset({"api_key", "settings"})
"""`settings` may hold headers."""


@dataclass(frozen=True, slots=True, repr=False)
class _Config:
    """What every provider's config has. Whatever is left out is the provider's default."""

    model: str
    _: KW_ONLY
    api_key: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float = TIMEOUT_SECONDS
    """Seconds for one attempt; a timeout is transient."""
    settings: Mapping[str, Any] | None = None
    """More of pydantic-ai's `ModelSettings`: `{"thinking": "high"}`, `{"top_p": 0.9}`."""

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        given = [f"{name}={_shown(name, value)}" for name, value in values.items() if value is not None]
        return f"{type(self).__name__}({', '.join(given)})"

    def _made(self, name: str, make: Callable[[], ProviderModel[Any]], *, key: str | None) -> Model:
        settings = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        given = {name: value for name, value in settings.items() if value is not None}
        within = {"timeout": self.timeout, "request_timeout": self.timeout}
        return PydanticAiModel(
            name, make, settings={**given, **within, **(self.settings or {})}, secrets=[key] if key else []
        )


@dataclass(frozen=True, slots=True, repr=False)
class OpenAIConfig(_Config):
    """OpenAI's chat completions. `OPENAI_API_KEY` and `OPENAI_BASE_URL` stand in for what is not given.

    The string `"openai:MODEL"` speaks the newer Responses API instead, unless
    `OPENAI_BASE_URL` is set: other servers seldom have it.
    """

    def create(self) -> Model:
        """Return the model; raises `ModelError` if there is no key."""
        name = f"openai:{self.model}"
        key = _key(name, self.api_key, "OPENAI_API_KEY")
        base_url = _address(name, self.base_url, "OPENAI_BASE_URL")
        make = partial(providers.openai_chat, self.model, base_url=base_url, api_key=key)
        return self._made(name, make, key=key)


@dataclass(frozen=True, slots=True, repr=False)
class OpenAICompatibleConfig(_Config):
    """A server that speaks OpenAI's chat completions, at `base_url`; with a key only if it asks for one.

    OpenAI's own key, in `OPENAI_API_KEY`, is not sent to it.
    """

    def create(self) -> Model:
        """Return the model; raises `ModelError` if nobody says where it is."""
        name = f"openai-compatible:{self.model}"
        base_url = _address(name, self.base_url)
        if base_url is None:
            raise ModelError(name, because="nobody says where it is; pass base_url=", transient=False)
        make = partial(providers.openai_compatible, self.model, base_url=base_url, api_key=self.api_key)
        return self._made(name, make, key=self.api_key)


@dataclass(frozen=True, slots=True, repr=False)
class OllamaConfig(_Config):
    """Ollama, on this machine or where `OLLAMA_BASE_URL` says. `OLLAMA_API_KEY` only if it asks for one."""

    def create(self) -> Model:
        name = f"ollama:{self.model}"
        base_url = _address(name, self.base_url, "OLLAMA_BASE_URL") or OLLAMA_URL
        key = self.api_key or os.environ.get("OLLAMA_API_KEY")
        make = partial(providers.ollama, self.model, base_url=base_url, api_key=key)
        return self._made(name, make, key=key)


@dataclass(frozen=True, slots=True, repr=False)
class AnthropicConfig(_Config):
    """Anthropic's messages. `ANTHROPIC_API_KEY` and `ANTHROPIC_BASE_URL` stand in for what is not given."""

    def create(self) -> Model:
        """Return the model; raises `ModelError` if there is no key."""
        name = f"anthropic:{self.model}"
        key = _key(name, self.api_key, "ANTHROPIC_API_KEY")
        base_url = _address(name, self.base_url, "ANTHROPIC_BASE_URL")
        make = partial(providers.anthropic, self.model, base_url=base_url, api_key=key)
        return self._made(name, make, key=key)


@dataclass(frozen=True, slots=True, repr=False)
class GeminiConfig(_Config):
    """Google's Gemini. `GOOGLE_API_KEY` or `GEMINI_API_KEY` stands in for a key that is not given."""

    def create(self) -> Model:
        """Return the model; raises `ModelError` if there is no key."""
        name = f"google:{self.model}"
        key = _key(name, self.api_key, "GOOGLE_API_KEY", "GEMINI_API_KEY")
        base_url = _address(name, self.base_url, "GOOGLE_GEMINI_BASE_URL")
        make = partial(providers.gemini, self.model, base_url=base_url, api_key=key)
        return self._made(name, make, key=key)


_BY_PREFIX: Final[Mapping[str, Callable[[str], ModelConfig]]] = {
    "anthropic": AnthropicConfig,
    "gemini": GeminiConfig,
    "google": GeminiConfig,
    "ollama": OllamaConfig,
}


@dataclass(frozen=True, slots=True)
class StringConfig:
    """A model as `"provider:model"`: ours where we have a config for it, else whatever pydantic-ai knows."""

    model: str

    def create(self) -> Model:
        """Return the model; raises `ModelError` if the text has no provider or its key is missing."""
        provider, colon, model = self.model.partition(":")
        if not (provider and colon and model):
            raise ModelError(
                self.model, because=f"expected 'provider:model', found {self.model!r}", transient=False
            )
        if provider == "openai":
            _key(self.model, None, "OPENAI_API_KEY")
            if os.environ.get("OPENAI_BASE_URL"):
                return OpenAIConfig(model).create()
        if provider in _BY_PREFIX:
            return _BY_PREFIX[provider](model).create()
        within = {"timeout": TIMEOUT_SECONDS, "request_timeout": TIMEOUT_SECONDS}
        return PydanticAiModel(self.model, partial(providers.inferred, self.model), settings=within)


def resolve(config: ModelConfig | Model | str | None, agent_name: str) -> Model:
    """Return the model `config` chooses for an agent; None is what `TURNLINE_MODEL` says.

    Raises `NoModel` where nobody chose, and `ModelError` where the choice cannot be had.
    """
    chosen = os.environ.get(DEFAULT_MODEL_VARIABLE) if config is None else config
    if chosen is None or chosen == "":
        raise NoModel(agent_name)
    if isinstance(chosen, str):
        return StringConfig(chosen).create()
    if isinstance(chosen, ModelConfig):
        return chosen.create()
    if isinstance(chosen, Model):
        return chosen
    expected = "'provider:model', a config from turnline.config, or a model"
    raise TypeError(f"the config of agent {agent_name!r} is {short(chosen)}; expected {expected}")


def _shown(name: str, value: object) -> str:
    holds_a_secret = name in _MASKED or (name == "base_url" and "@" in str(value))
    return "'***'" if holds_a_secret else repr(value)


def _key(model: str, given: str | None, *variables: str) -> str:
    key = given or next(filter(None, map(os.environ.get, variables)), None)
    if not key:
        because = f"it has no API key; set {' or '.join(variables)}, or pass api_key="
        raise ModelError(model, because=because, transient=False)
    return key


def _address(model: str, given: str | None, *variables: str) -> str | None:
    """Where the provider is. A password in it is refused: it would be on the log with every reply."""
    address = given or next(filter(None, map(os.environ.get, variables)), None)
    if address and "@" in urlsplit(address).netloc:
        because = "its address holds a password; take it out of the URL and pass api_key="
        raise ModelError(model, because=because, transient=False)
    return address
