"""turnline.yaml: what a project as a whole says."""

from __future__ import annotations

import pytest

from turnline.flow.finding import Finding
from turnline.flow.settings import BODY_BYTES, Settings, read_settings

WHOLE = """\
name: leads
description: Leads and what becomes of them
model: openai:gpt-5-mini
log: sqlite:///${WHERE}
database: postgresql://me:${PASSWORD}@db/leads
limits: {body_bytes: 2048, concurrency: 5, timeout: 1h}
mcp_servers:
  search: {url: "https://${HOST}/mcp", headers: {X-Key: "{{ secret.KEY }}"}}
  files: {command: npx, args: [files, "${WHERE}"], env: {TOKEN: "${PASSWORD}"}}
allow_private: true
"""
ENVIRONMENT = {"WHERE": "x.db", "PASSWORD": "canary", "HOST": "mcp.example.com"}


def settings(text: str) -> Settings:
    read, findings = read_settings(text, file="turnline.yaml", environment=ENVIRONMENT)
    assert findings == []
    return read


def wrong(text: str) -> Finding:
    read, (only,) = read_settings(text, file="turnline.yaml", environment=ENVIRONMENT)
    assert read == Settings()
    return only


def test_everything_may_be_said() -> None:
    read = settings(WHOLE)

    assert (read.name, read.model, read.log) == ("leads", "openai:gpt-5-mini", "sqlite:///x.db")
    assert read.database == "postgresql://me:canary@db/leads"
    assert (read.limits.body_bytes, read.limits.concurrency, read.limits.timeout) == (2048, 5, 3600)
    assert read.allow_private is True


@pytest.mark.parametrize("text", ["", "# nothing", "---\n"])
def test_nothing_has_to_be(text: str) -> None:
    read = settings(text)

    assert (read.model, read.log, read.database, read.allow_private) == (None, None, None, False)
    assert read.limits.body_bytes == BODY_BYTES


def test_servers_are_given_to_steps_as_they_were_written() -> None:
    assert settings(WHOLE).servers() == {
        "search": {"url": "https://mcp.example.com/mcp", "headers": {"X-Key": "{{ secret.KEY }}"}},
        "files": {"command": "npx", "args": ["files", "x.db"], "env": {"TOKEN": "canary"}},
    }


def test_what_may_be_a_secret_is_not_shown() -> None:
    assert "canary" not in repr(settings(WHOLE))


def test_a_mistake_is_told_at_its_place_and_without_secrets() -> None:
    finding = wrong("name: a\nlimits: {timeout: '${PASSWORD}'}\n")

    assert (finding.line, finding.column, finding.found) == (2, 19, "${PASSWORD}")
    assert "canary" not in str(finding)


@pytest.mark.parametrize(
    "text",
    ["modle: x", "- name", "mcp_servers: {a: {}}", "mcp_servers: {a: {url: x, command: y}}", "log: ${NO}"],
)
def test_with_a_mistake_it_says_nothing(text: str) -> None:
    assert wrong(text).severity == "error"


def test_it_is_one_document() -> None:
    _, (finding,) = read_settings("name: a\n---\nname: b\n", file="turnline.yaml", environment={})

    assert finding.line == 3
