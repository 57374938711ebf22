"""The library of tokens is installed on request, and imported when it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from turnline.errors import MissingExtra


def test_without_the_extra_it_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "biscuit_auth", None)
    monkeypatch.delitem(sys.modules, "turnline.server.auth.library", raising=False)

    with pytest.raises(MissingExtra, match=r"tokens need .* pip install '\.\[biscuit\]'"):
        importlib.import_module("turnline.server.auth.library")


def test_the_command_line_imports_it_only_when_a_verb_needs_it() -> None:
    code = "import sys, turnline.cli.token; print({'biscuit_auth', 'asyncio', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
