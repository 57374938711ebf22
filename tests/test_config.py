from __future__ import annotations

import asyncio
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import turnline.agent
from turnline.agent.messages import UserMessage
from turnline.agent.model import ModelConfig, ModelRequest
from turnline.config import (
    AnthropicConfig,
    GeminiConfig,
    OllamaConfig,
    OpenAICompatibleConfig,
    OpenAIConfig,
    StringConfig,
    resolve,
)
from turnline.errors import ModelError, NoModel
from turnline.testing import ModelServer, ScriptedModel

KEY = "canary-3f9c-never-shown"
ASKED = ModelRequest(agent="ada", instructions="", messages=(UserMessage(text="hello"),))
VARIABLES = ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "OLLAMA")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has set is none of these tests' business."""
    monkeypatch.delenv("TURNLINE_MODEL", raising=False)
    for name in VARIABLES:
        for what in ("API_KEY", "BASE_URL"):
            monkeypatch.delenv(f"{name}_{what}", raising=False)


async def said_to(config: ModelConfig, server: ModelServer) -> dict[str, Any]:
    await config.create().reply(ASKED)
    return server.requests[-1].json


# Which model


def test_a_model_is_itself() -> None:
    model = ScriptedModel("hi")

    assert resolve(model, "ada") is model


def test_a_text_names_provider_and_model() -> None:
    assert resolve("ollama:llama3", "ada").name == "ollama:llama3"


def test_without_a_choice_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLINE_MODEL", "ollama:llama3")

    assert resolve(None, "ada").name == "ollama:llama3"


def test_a1_without_any_choice_the_error_says_how_to_give_one() -> None:
    with pytest.raises(NoModel, match="TURNLINE_MODEL") as refused:
        resolve(None, "ada")
    assert refused.value.agent == "ada"


@pytest.mark.parametrize("text", ["gpt-5", ":gpt-5", "openai:"])
def test_a_text_without_provider_or_model_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="provider:model"):
        resolve(text, "ada")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match="'ada' is 3"):
        resolve(3, "ada")  # type: ignore[arg-type]


async def test_a_provider_nobody_knows_is_refused_when_first_asked() -> None:
    model = resolve("nobody:knows", "ada")

    with pytest.raises(ModelError, match="nobody:knows") as refused:
        await model.reply(ASKED)
    assert not refused.value.transient


# Keys


@pytest.mark.parametrize(
    ("config", "variable"),
    [
        (OpenAIConfig("m"), "OPENAI_API_KEY"),
        (OpenAIConfig("m", base_url="http://localhost:1"), "OPENAI_API_KEY"),
        (AnthropicConfig("m"), "ANTHROPIC_API_KEY"),
        (GeminiConfig("m"), "GOOGLE_API_KEY or GEMINI_API_KEY"),
        (StringConfig("openai:m"), "OPENAI_API_KEY"),
        (StringConfig("anthropic:m"), "ANTHROPIC_API_KEY"),
        (StringConfig("gemini:m"), "GOOGLE_API_KEY"),
    ],
)
def test_a_missing_key_is_told_by_its_variable_before_any_request(config: ModelConfig, variable: str) -> None:
    with pytest.raises(ModelError, match=variable) as refused:
        config.create()
    assert not refused.value.transient


async def test_a_missing_key_of_any_other_provider_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)

    with pytest.raises(ModelError, match="DEEPSEEK_API_KEY") as refused:
        await resolve("deepseek:deepseek-chat", "ada").reply(ASKED)
    assert not refused.value.transient
    assert "Agent('test')" not in str(refused.value)


@pytest.mark.parametrize(
    "config", [OpenAIConfig, AnthropicConfig, GeminiConfig, OllamaConfig, OpenAICompatibleConfig]
)
def test_a_key_is_masked(config: Any) -> None:
    chosen = config(
        "m", api_key=KEY, settings={"extra_headers": {"x": KEY}}, base_url=f"http://me:{KEY}@host"
    )

    assert KEY not in repr(chosen)
    assert "model='m'" in repr(chosen)


def test_a_password_in_an_address_is_refused() -> None:
    with pytest.raises(ModelError, match="password") as refused:
        OpenAIConfig("m", api_key="k", base_url=f"http://me:{KEY}@host").create()
    assert KEY not in str(refused.value)


# What is sent


async def test_the_environment_stands_in_for_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer("hi") as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        await said_to(AnthropicConfig("claude-sonnet-4-6"), server)

    assert KEY in str(server.requests[0].headers)


async def test_settings_go_with_every_request() -> None:
    with ModelServer("hi") as server:
        config = OpenAIConfig(
            "m", api_key=KEY, base_url=server.url, temperature=0.5, max_tokens=9, settings={"top_p": 0.25}
        )
        sent = await said_to(config, server)

    assert (sent["temperature"], sent["max_completion_tokens"], sent["top_p"]) == (0.5, 9, 0.25)


async def test_ollama_and_compatible_servers_need_no_key() -> None:
    with ModelServer("hi", "hi") as server:
        await said_to(OllamaConfig("llama3", base_url=server.url), server)
        await said_to(OpenAICompatibleConfig("mine", base_url=server.url), server)

    assert [each.json["model"] for each in server.requests] == ["llama3", "mine"]


async def test_openais_key_is_not_sent_to_a_compatible_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ModelServer("hi") as server:
        await said_to(OpenAICompatibleConfig("mine", base_url=server.url), server)

    assert KEY not in str(server.requests[0].headers)


def test_a_compatible_server_has_to_be_somewhere() -> None:
    with pytest.raises(ModelError, match="base_url="):
        OpenAICompatibleConfig("mine").create()


async def test_a_text_finds_a_compatible_server_by_openais_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer("hi") as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        reply = await resolve("openai:gpt-5-mini", "ada").reply(ASKED)

    assert reply.text == "hi"


# Packages


def test_nothing_of_turnline_agent_or_config_imports_a_provider() -> None:
    modules = [each.name for each in pkgutil.walk_packages(turnline.agent.__path__, "turnline.agent.")]
    heavy = "{'pydantic_ai', 'openai', 'anthropic', 'google.genai', 'httpx', 'httpx2'}"
    create = "turnline.config.resolve('ollama:llama3', 'ada')"
    imports = f"import sys, {', '.join(modules)}, turnline.config"
    code = f"{imports}; {create}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert len(modules) > 5
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_told_by_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pydantic_ai", "pydantic_ai.direct"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ModelError, match=r"pip install '\.\[llm\]'") as refused:
        asyncio.run(resolve("ollama:llama3", "ada").reply(ASKED))
    assert not refused.value.transient
