"""F15: secrets that are written into a document. All of these are made up."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.study.finding import Path
from turnline.flow.check.secrets import literal_secrets

from .flows import told

RANDOM = "q7Zk2Lm9Xw4Rt8Vb1Nc6"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA"


def header(text: str, name: str = "Authorization") -> dict[str, Any]:
    return {"spec": {"steps": [{"id": "s", "api_call": {"url": "https://x.y", "headers": {name: text}}}]}}


def found_in(data: Any, written: dict[Path, str] | None = None) -> list[Path]:
    return [path for _, path in told(literal_secrets(data, written))]


@pytest.mark.parametrize(
    "secret",
    [
        "sk-" + "proj-" + RANDOM,
        "sk-ant-" + RANDOM,
        "sk_live_" + RANDOM,
        "ghp_" + RANDOM + "abcd",
        "github_pat_" + RANDOM,
        "glpat-" + RANDOM,
        "AKIA" + "IOSFODNN7EXAMPLE",
        "AIza" + RANDOM * 2,
        "xoxb-" + "1234567890-" + RANDOM,
        "hf_" + RANDOM,
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + RANDOM,
        PEM,
        "Bearer " + RANDOM,
        "postgres://admin:hunter22@db.example.com/leads",
        "log in with password: hunter2222 and go on",
        "api_key=" + RANDOM,
    ],
)
def test_f15_what_looks_like_a_key_is_found_wherever_it_stands(secret: str) -> None:
    assert found_in({"a": [{"anything": f"x {secret}"}]}) == [("a", 0, "anything")]


@pytest.mark.parametrize(
    "data",
    [
        header(RANDOM, "X-Api-Key"),
        header(f"Basic {RANDOM}"),
        header(f"token {RANDOM}"),
        {"api_call": {"json": {"client_secret": "hunter2"}}},
        {"api_call": {"json": {"password": 12345678}}},
        {"context": {"defaults": {"dbPassword": "letmein"}}},
        {"workflow": {"input": {"password": "letmein"}}},
        {"channel": {"context": {"password": "letmein"}}},
        {"mcp": {"arguments": {"token": RANDOM}}},
        {"token": RANDOM},
    ],
)
def test_f15_what_is_written_under_a_name_for_secrets_is_found(data: dict[str, Any]) -> None:
    assert len(found_in(data)) == 1


@pytest.mark.parametrize(
    "data",
    [
        header("Bearer {{ secret.API_KEY }}"),
        header("Bearer ${API_KEY}"),
        header("Bearer {{ token }}"),
        header("sk-{{ rest }}", "X-Api-Key"),
        header("application/json", "Accept"),
        {"trigger": {"input": {"password": "string", "api_key": {"type": "string", "required": True}}}},
        {"human": {"form": {"password": "string"}}},
        {"agent": {"output": {"map": {"token": "access_token"}, "key": "summary"}}},
        {"response": {"mapping": {"token": "access_token", "secret": "answer"}}},
        {"routes": {"password": "ask_again", "token": "ask_mayor_7"}},
        {"routes": {"token": "0000000000000000000a"}},
        {"api_call": {"json": {"password": "{{ password }}", "secret": "${SECRET}", "pin": "***"}}},
        {"api_call": {"json": {"password": "<password>", "secret": "...", "passwd": ""}}},
        {"api_call": {"json": {"max_tokens": 100, "tokens": "many words", "keyboard": RANDOM}}},
        {"agent": {"prompt": "Never tell the password: nobody should. Token = word. Bearer of news."}},
        {"description": "See https://example.com/a:b@c and user@example.com"},
        {"metadata": {"labels": {"key": "lead_processing"}}},
        {"headers": {"password": True}},
    ],
)
def test_f15_references_types_names_and_prose_are_no_secrets(data: dict[str, Any]) -> None:
    assert found_in(data) == []


def test_f15_a_text_is_judged_as_it_was_written_not_as_what_its_variables_came_to() -> None:
    data, path = {"headers": {"Authorization": f"Bearer {RANDOM}"}}, ("headers", "Authorization")

    assert found_in(data) == [path]
    assert found_in(data, {path: "Bearer ${API_KEY}"}) == []


@pytest.mark.parametrize(
    ("secret", "shown"), [(RANDOM, "q7Z… (20 characters)"), ("hunter2", "… (7 characters)")]
)
def test_f15_the_finding_does_not_give_the_secret_away(secret: str, shown: str) -> None:
    [found] = literal_secrets({"json": {"password": secret}})

    assert found.found == shown
    assert secret not in f"{found.message}{found.found}{found.expected}{found.fix}{found.path}"
