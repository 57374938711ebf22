"""Which model an agent uses, as data. See `turnline.agent.models.configs`; nothing is defined here."""

from turnline.agent.models.configs import (
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
