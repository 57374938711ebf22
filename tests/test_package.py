"""What `pip install turnline` brings: a wheel with all it needs, alone and with each extra.

The wheel is built and installed by the uv that `./run` has put into .tools; without one they are skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from shutil import which
from typing import Final

import pytest

from turnline import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UV = which("uv", path=str(ROOT / ".tools" / "bin")) or which("uv")

IMPORTS: Final = {
    "llm": "import pydantic_ai.models.openai, pydantic_ai.models.anthropic, pydantic_ai.models.google",
    "flow": "from turnline.flow.project import load_project; import turnline.flow.data.database",
    "server": "from turnline.server.app import create_app; import turnline.server.auth.biscuit",
    "remote": "import turnline.server.serve_ws, websockets.asyncio.client",
    "postgres": "import turnline.log.postgres",
    "nats": "import turnline.log.nats",
    "otel": "import opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http",
    "mcp": "import mcp",
}
"""Extra -> what works with it."""
ALONE: Final = """
from turnline import Agent, run_sync, tool
from turnline.network import Hub, HubClient, sequence
from turnline.testing import ScriptedModel, call

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

agent = Agent("clerk", config=ScriptedModel(call("add", a=1, b=2), "Three."), tools=[add])
print(run_sync(sequence(["clerk"]), agents=[agent], message="1 + 2?", log="sqlite:///log.db").text)
"""
MISSING: Final = {
    "from turnline.flow.project import load_project": "flows need .*'turnline[flow]'",
    "from turnline.server.app import create_app": "servers need .*'turnline[server]'",
    "from turnline.log.address import open_log; open_log('postgresql://x/y')": "'turnline[postgres]'",
    "from turnline.log.address import open_log; open_log('nats://x/y')": "'turnline[nats]'",
    "from turnline import tracing; tracing.export({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://x'})": "[otel]",
    "import asyncio, turnline.network as n; asyncio.run(n.WsLink('ws://x').__aenter__())": "[remote]",
    "import asyncio, turnline as t; asyncio.run(t.Agent('a', config='openai:x').ask('?'))": "[llm]",
}
"""Python -> what its last line says where nothing but the library is installed."""
VERBS: Final = {
    "serve proj": "[server]",
    "run proj/workflows/ticket.yaml": "[flow]",
    "check proj": "[flow]",
    "graph proj/workflows/ticket.yaml": "[flow]",
    "test proj": "[flow]",
    "runs list": "[server]",
    "token key": "[server]",
    "mcp proj": "[mcp]",
    "log verify postgresql://x/y": "[postgres]",
    "log verify nats://x/y": "[nats]",
}


def uv(*arguments: str) -> None:
    done = subprocess.run([str(UV), *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Environment:
    """A folder with a Python of its own, and what was installed there."""

    def __init__(self, folder: Path, wheel: Path, *, extra: str = "") -> None:
        self.folder = folder
        uv("venv", "--quiet", "--python", sys.executable, str(folder / "env"))
        wanted = f"turnline[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        python = str(folder / "env" / "bin" / "python")
        uv("pip", "install", "--quiet", "--python", python, "--constraint", "constraints.txt", wanted)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "env" / "bin" / program
        return subprocess.run(
            [str(path), *arguments],
            cwd=self.folder,
            env={"PATH": os.defpath, "OPENAI_API_KEY": "none"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if UV is None:
        pytest.skip("there is no uv; ./run puts one into .tools")
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder))
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The library with its core dependencies, in a folder whose name has a space."""
    return Environment(tmp_path_factory.mktemp("the library"), wheel)


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/turnline"]
    known = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    with zipfile.ZipFile(wheel) as file:
        found = {name for name in file.namelist() if ".dist-info/" not in name}

    assert found == {name.removeprefix("src/") for name in known if (ROOT / name).exists()}
    assert {"turnline/py.typed", "turnline/cli/project_template/turnline.yaml"} <= found
    assert "turnline/server/studio/static/index.html" in found


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        about = f"turnline-{__version__}.dist-info"
        metadata = file.read(f"{about}/METADATA").decode()
        licence = file.read(f"{about}/licenses/LICENSE").decode()

    assert f"Version: {__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Classifier: Typing :: Typed\n" in metadata
    assert "Apache License" in licence


def test_the_version_has_its_changes() -> None:
    heads = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert heads[0] == __version__


def test_every_extra_is_tested() -> None:
    assert IMPORTS.keys() == PROJECT["optional-dependencies"].keys() - {"dev"}


def test_the_library_works_alone(alone: Environment) -> None:
    done = alone.run("python", "-W", "error", "-c", ALONE)

    assert (done.stdout, done.stderr) == ("Three.\n", "")


def test_the_command_line_works_alone(alone: Environment) -> None:
    assert alone.run("turnline", "--version").stdout == f"turnline {__version__}\n"
    assert alone.run("turnline", "--help").returncode == 0


@pytest.mark.parametrize("code", MISSING)
def test_what_is_missing_is_told_in_python(code: str, alone: Environment) -> None:
    done = alone.run("python", "-c", code)

    assert done.returncode == 1
    assert re.search(MISSING[code].replace("[", r"\["), done.stderr.splitlines()[-1])
    assert "pip install 'turnline[" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("line", VERBS)
def test_what_is_missing_is_told_on_the_command_line(line: str, alone: Environment) -> None:
    alone.run("turnline", "new", "proj")

    done = alone.run("turnline", *line.split())

    assert done.returncode in (1, 2)
    [told] = done.stderr.splitlines()
    assert told.startswith("turnline: ")
    assert told.endswith(f"need packages that are not installed: pip install 'turnline{VERBS[line]}'.")


@pytest.mark.parametrize("extra", IMPORTS)
def test_an_extra_brings_what_it_needs(extra: str, wheel: Path, tmp_path: Path) -> None:
    done = Environment(tmp_path, wheel, extra=extra).run("python", "-c", f"import turnline; {IMPORTS[extra]}")

    assert (done.returncode, done.stderr) == (0, "")
