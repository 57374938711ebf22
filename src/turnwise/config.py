"""Which model an agent uses, as data. See `turnwise.agent.models.configs`; nothing is defined here."""

from turnwise.agent.models.configs import (
    AnthropicConfig,
    GeminiConfig,
    ModelConfig,
    OllamaConfig,
    OpenAICompatibleConfig,
    OpenAIConfig,
    StringConfig,
    resolve,
)

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
