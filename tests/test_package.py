"""What the wheel brings: all that the library needs, alone and with each extra.

The wheel is built and installed by the uv that `./run` has put into .tools; without one they are skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shutil import which
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from turnline import __version__
from turnline.errors import MissingExtra

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UV = which("uv", path=str(ROOT / ".tools" / "bin")) or which("uv")

IMPORTS: Final = {
    "llm": "import pydantic_ai.models.openai, pydantic_ai.models.anthropic, pydantic_ai.models.google",
    "flow": "from turnline.flow.project import load_project; import turnline.flow.data.database",
    "server": "from turnline.server.app import create_app; import turnline.server.access",
    "biscuit": "import turnline.server.auth.biscuit",
    "remote": "import turnline.server.serve_ws, websockets.asyncio.client",
    "postgres": "import turnline.log.postgres",
    "nats": "import turnline.log.nats",
    "otel": "import opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http",
    "mcp": "import mcp",
    "seals": "import turnline.log.seal_keys",
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
    "from turnline.flow.project import load_project": "flows need .*'.[flow]'",
    "from turnline.server.app import create_app": "servers need .*'.[server]'",
    "from turnline.log.address import open_log; open_log('postgresql://x/y')": "'.[postgres]'",
    "from turnline.log.address import open_log; open_log('nats://x/y')": "'.[nats]'",
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
    "token key": "[biscuit]",
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
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)  # As `install_line` tells people to.
        python = str(folder / "env" / "bin" / "python")
        uv("pip", "install", "--quiet", "--python", python, "--constraint", "constraints.txt", wanted)

    def run(self, program: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "env" / "bin" / program
        return subprocess.run(
            [str(path), *arguments],
            cwd=self.folder,
            env={"PATH": os.defpath, "OPENAI_API_KEY": "none", **environ},
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
    assert "pip install '.[" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("line", VERBS)
def test_what_is_missing_is_told_on_the_command_line(line: str, alone: Environment) -> None:
    alone.run("turnline", "new", "proj")

    done = alone.run("turnline", *line.split())

    assert done.returncode in (1, 2)
    [told] = done.stderr.splitlines()
    assert told.startswith("turnline: ")
    assert f"need packages that are not installed: pip install '.{VERBS[line]}' in a clone" in told


@pytest.mark.parametrize("extra", IMPORTS)
def test_an_extra_brings_what_it_needs(extra: str, wheel: Path, tmp_path: Path) -> None:
    done = Environment(tmp_path, wheel, extra=extra).run("python", "-c", f"import turnline; {IMPORTS[extra]}")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("place", ["clone", "wheel"])
def test_the_install_line_of_an_error_works(place: str, wheel: Path, tmp_path: Path) -> None:
    """The shell reads it word for word, in the clone or with the path of a wheel."""
    in_clone, with_wheel = re.findall(r"pip install '[^']+'", str(MissingExtra("links", extra="remote")))
    line = {"clone": in_clone, "wheel": with_wheel.replace("PATH-OF-THE-WHEEL", str(wheel))}[place]
    python = str(tmp_path / "env" / "bin" / "python")
    uv("venv", "--quiet", "--python", sys.executable, str(tmp_path / "env"))
    done = in_shell(f"{line} --quiet --python {python} --constraint constraints.txt")
    works = subprocess.run([python, "-c", IMPORTS["remote"]], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert (works.returncode, works.stderr) == (0, "")


def test_the_install_line_of_the_compose_file_finds_the_wheel_and_every_extra(wheel: Path) -> None:
    page = (ROOT / "docs" / "operations" / "deployment.md").read_text()
    [line] = re.findall(r'pip install "[^"]+"', page)
    line = line.replace("$$", "$").replace(
        "/srv/wheels", str(wheel.parent)
    )  # As Compose hands it to a shell.
    done = in_shell(f"{line} --dry-run --python {sys.executable} --constraint constraints.txt")

    assert done.returncode == 0, done.stderr
    assert "turnline" in done.stderr
    assert "does not have an extra" not in done.stderr


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in the clone, where `pip` is the one of uv."""
    command = f'pip() {{ "{UV}" pip "$@"; }}; {line}'
    return subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)


# The extra `biscuit` has no wheel for every Python, so a server does without it.


@pytest.fixture(scope="module")
def server(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A server without the library of tokens, and a project to serve."""
    environment = Environment(tmp_path_factory.mktemp("server"), wheel, extra="server")
    assert environment.run("turnline", "new", "proj").returncode == 0
    assert environment.run("python", "-c", "import biscuit_auth").returncode == 1
    return environment


def ask(path: str, *, token: str = "") -> tuple[int, str]:
    request = Request(path, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()


@contextmanager
def serving(server: Environment, *options: str, **environ: str) -> Iterator[tuple[str, str]]:
    """Run `turnline serve`; give its address and its development key, if it printed one."""
    command = [str(server.folder / "env" / "bin" / "turnline"), "serve", "proj", "--port", "0", *options]
    environment = {"PATH": os.defpath, **environ}
    with subprocess.Popen(
        command, cwd=server.folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            told = ""
            while "/studio" not in told:
                line = process.stdout.readline()
                assert line, told
                told += line
            key = re.search(r"Development key.*\n  (\S+)\n", told)
            yield told.split(" on ")[1].split(";")[0], key[1] if key else ""
        finally:
            process.terminate()


def test_a_development_server_works_without_the_library_of_tokens(server: Environment) -> None:
    with serving(server, "--dev") as (address, key):
        flows = ask(f"{address}/flows", token=key)
        biscuit = ask(f"{address}/flows", token="EpsBCjEKBGxlYWQ")

    assert flows[0] == 200
    assert biscuit[0] == 401
    assert "pip install '.[biscuit]'" in biscuit[1]


def test_api_keys_work_without_the_library_of_tokens(server: Environment) -> None:
    key = "tlk_" + "k" * 40
    keys = json.dumps({"ci": {"sha256": sha256(key.encode()).hexdigest(), "scopes": ["runs:read"]}})
    with serving(server, "--host", "0.0.0.0", TURNLINE_API_KEYS=keys) as (address, _):
        local = address.replace("0.0.0.0", "127.0.0.1")
        found = [ask(f"{local}/flows", token=token) for token in (key, key + "x", "EpsBCjEKBGxlYWQ")]

    assert [status for status, _ in found] == [200, 401, 401]
    assert "[biscuit]" in found[2][1]


@pytest.mark.parametrize(
    "line",
    ["token key --dir proj", "token mint --dir proj --user ann --expires 1h", "token inspect EpsBCjEKBGxlYWQ",
     "token attenuate EpsBCjEKBGxlYWQ --expires 1h", "token revoke EpsBCjEKBGxlYWQ --dir proj"],
)  # fmt: skip
def test_a_verb_that_needs_the_library_of_tokens_names_its_extra(line: str, server: Environment) -> None:
    done = server.run("turnline", *line.split())

    assert done.returncode == 1
    assert done.stderr.startswith("turnline: tokens need packages that are not installed: ")
    assert "pip install '.[biscuit]' in a clone" in done.stderr


@pytest.mark.parametrize("name", ["TURNLINE_AUTH_KEY", "TURNLINE_AUTH_PUBLIC_KEY"])
def test_a_server_with_a_key_names_the_extra_that_it_needs(name: str, server: Environment) -> None:
    done = server.run("turnline", "serve", "proj", "--port", "0", **{name: "11" * 32})

    assert done.returncode == 1
    assert "pip install '.[biscuit]' in a clone" in done.stderr
    assert "11" * 32 not in done.stderr


def test_no_page_installs_a_package_of_this_name_from_the_index() -> None:
    """Until it is published, a stranger who registers the name would run code beside a user's secrets."""
    names = r"(pip|uv|pipx|uvx|poetry|pdm)[^|]*(install|add|run)[^|]* ['\"]?turnline([]['\"=<>~ ]|$)"
    command = ["git", "grep", "-nE", names]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    assert [line for line in found.splitlines() if not line.startswith("tests/test_package.py")] == []


def test_the_old_name_is_left_in_one_line_of_the_changelog() -> None:
    old = "turn" + "wise"
    commands = [["git", "grep", "-il", old], ["git", "ls-files", f":(icase)*{old}*"]]
    found = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        for command in commands
    ]

    assert found == ["CHANGELOG.md\n", ""]
    assert (ROOT / "CHANGELOG.md").read_text().lower().count("turn" + "wise") == 1
