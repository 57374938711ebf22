"""Every Python and YAML block of the documentation runs; every command in it is one that there is.

The Python blocks of a page are one program, run in order; so the first one runs by itself. Where one asks a
real provider, a server on loopback answers in its place.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from tests.docs.pages import PAGES, ROOT, Block, blocks_of, printed_by, program_of
from turnline.cli import app
from turnline.flow.project import load_project
from turnline.testing import ModelServer

WITHIN_SECONDS = 120.0
_KEPT_ELSEWHERE = {"operations/deployment.md"}
"""Its documents are not ours; `test_deployment` looks at them."""
_WARNS_ON_PURPOSE = ("TurnFailed", "replay(")
"""What programs name that warn on purpose. Others print nothing on stderr."""
_NAMED_ELSEWHERE = {"TL301", "TL302", "TL303", "TL304", "TL305", "TL306"}
"""Findings of names that nobody has: nodes, agents, tools, data models, flows, MCP servers."""


def ids(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def run(program: str, folder: Path, server: ModelServer) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_SECONDS,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
        },
    )
    assert done.returncode == 0, f"{program}\n{done.stdout}\n{done.stderr}"
    assert any(name in program for name in _WARNS_ON_PURPOSE) or done.stderr == ""
    return done.stdout


PYTHON = [page for page in PAGES if program_of(page)]
LONGER = [page for page in PYTHON if len(program_of(page)) > 1 or printed_by(page)]
ALONE = [page for page in PYTHON if len(program_of(page)) > 1 or not printed_by(page)]
"""But for pages with a single block that shows what it prints: it is played below."""


@pytest.mark.parametrize("page", ALONE, ids=ids(ALONE))
def test_the_first_python_block_of_a_page_runs_by_itself(page: Path, tmp_path: Path) -> None:
    with ModelServer(lambda _: "An answer.") as server:
        run(program_of(page)[0].text, tmp_path, server)


@pytest.mark.parametrize("page", LONGER, ids=ids(LONGER))
def test_the_python_blocks_of_a_page_run_one_after_another_and_print_what_it_shows(
    page: Path, tmp_path: Path
) -> None:
    program = "\n".join(block.text for block in program_of(page))
    with ModelServer(lambda _: "An answer.") as server:
        printed = run(program, tmp_path, server)

    for shown in printed_by(page):
        assert shown in printed
        printed = printed.partition(shown)[2]


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_every_block_says_what_it_is(page: Path) -> None:
    """One that does not would be run by nobody, even if it is Python."""
    fences = [line for line in page.read_text().splitlines() if line.startswith("```")]

    assert "```" not in fences[::2]


def is_ours(document: object) -> bool:
    """Whether it is a document of a project; the others are only YAML. A list of steps is one, too."""
    if isinstance(document, list):
        return all(isinstance(one, dict) and "id" in one for one in document)
    return isinstance(document, dict) and bool({"steps", "spec", "kind"} & document.keys())


YAML = [
    block
    for page in PAGES
    for block in blocks_of(page, "yaml")
    if not any(str(page).endswith(name) for name in _KEPT_ELSEWHERE)
]


@pytest.mark.parametrize("block", YAML, ids=[block.name for block in YAML])
def test_a_yaml_block_is_a_document_without_a_mistake(block: Block, tmp_path: Path) -> None:
    """A flow may name nodes and agents that its page does not show; everything else in it has to hold."""
    documents = list(yaml.safe_load_all(block.text))
    assert all(documents), "an empty document"
    if not any(map(is_ours, documents)):
        return
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "page.yaml").write_text(block.text)

    report = load_project(tmp_path).report

    assert not [one for one in report.errors if one.code not in _NAMED_ELSEWHERE], str(report)


COMMANDS = [
    (block.name, line.split(" #")[0].strip())
    for page in PAGES
    for block in blocks_of(page, "sh", "console")
    for line in block.text.replace("\\\n", " ").splitlines()
    if re.match(r"(\$ )?turnline ", line.strip())
]


@pytest.mark.parametrize(("where", "line"), COMMANDS, ids=[f"{one[0]} {one[1]}" for one in COMMANDS])
def test_a_command_is_one_that_there_is(where: str, line: str) -> None:
    words = shlex.split(line.removeprefix("$ "))
    words = words[1 : next((n for n, word in enumerate(words) if word in ("|", ">", "&&", "&", ";")), None)]
    command, context = typer.main.get_command(app), None
    while hasattr(command, "get_command"):
        context = command.make_context("turnline", words[:0], parent=context, resilient_parsing=True)
        found = command.get_command(context, words[0])
        assert found is not None, f"{where}: there is no `{words[0]}`"
        command, words = found, words[1:]
    command.make_context("turnline", words, parent=context)
