"""The page on deployment: its documents are YAML, and its commands are ones that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from turnline.cli import app
from turnline.server.auth.keys import KEY_VARIABLE
from turnline.server.settings import ServerSettings

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "deployment.md"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in FENCED.findall(PAGE.read_text()) if name == language]


def documents() -> list[dict[str, Any]]:
    return [one for text in blocks("yaml") for one in yaml.safe_load_all(text)]


def commands() -> Iterator[str]:
    yield from "\n".join(blocks("sh")).splitlines()
    yield from re.findall(r"exec (turnline [^\n]*)", PAGE.read_text())
    for one in documents():
        if one.get("kind") == "Deployment":
            yield shlex.join(one["spec"]["template"]["spec"]["containers"][0]["args"])


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_of_the_page_is_one_that_there_is(command: str) -> None:
    program, verb, *given = shlex.split(command)
    verbs = typer.main.get_command(app)

    assert program == "turnline"
    known = verbs.get_command(verbs.make_context("turnline", [], resilient_parsing=True), verb)  # type: ignore[attr-defined]
    assert known is not None, verb
    known.make_context(verb, given)  # It raises on options that there are not.


def test_the_compose_file_waits_for_longer_than_a_server_drains() -> None:
    [compose] = [one for one in documents() if "services" in one]
    seconds = int(compose["services"]["app"]["stop_grace_period"].removesuffix("s"))

    assert seconds > 2 * ServerSettings().drain_seconds
    assert KEY_VARIABLE in compose["services"]["app"]["environment"]


def test_the_deployment_asks_what_the_server_answers() -> None:
    [pod] = [one["spec"]["template"]["spec"] for one in documents() if one.get("kind") == "Deployment"]
    [container] = pod["containers"]

    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert pod["terminationGracePeriodSeconds"] > 2 * ServerSettings().drain_seconds
    assert KEY_VARIABLE in [one["name"] for one in container["env"]]
