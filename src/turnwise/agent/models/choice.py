"""Temporary bridge until the configs move here."""

from __future__ import annotations

from turnwise.agent.model import Model, ModelConfig


def resolve(config: ModelConfig | Model | str | None, agent_name: str) -> Model:
    from turnwise import config as configs  # noqa: PLC0415

    return configs.resolve(config, agent_name)
