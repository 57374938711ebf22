"""`turnline serve --dev`, as somebody starts it: the address it prints opens a studio that is signed in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from playwright.sync_api import Browser, expect

FLOW = """
kind: Workflow
metadata: {name: hello}
spec:
  trigger: {path: /hello, input: {name: {type: string, required: true}}}
  steps: [{id: greet, runner: greet}]
"""
NODE = """
from turnline import node


@node
def greet(ctx):
    return {"greeting": f"Hello, {ctx['name']}!"}
"""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of the studio that a server prints."""
    command = [sys.executable, "-m", "turnline", "serve", str(folder), "--dev", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            yield next(line.strip() for line in lines if "/studio#token=" in line)
        finally:
            process.terminate()
            process.communicate()


def test_the_printed_address_opens_a_studio_in_which_a_flow_runs(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "hello.yaml").write_text(FLOW)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "greet.py").write_text(NODE)
    context = browser.new_context()
    page = context.new_page()
    with serving(tmp_path) as address:
        page.goto(address)
        expect(page.get_by_text("There is no channel yet that you may see.")).to_be_visible()
        page.get_by_role("link", name="Flows").click()
        page.get_by_role("link", name="hello").click()
        expect(page.get_by_label("Source of hello")).to_contain_text("runner: greet")
        page.get_by_label("name").fill("Ada")
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_label("Context variables")).to_contain_text("Hello, Ada!")
        rebound = httpx2.get(address.partition("#")[0], headers={"Host": "evil.example"})
        context.close()

    assert rebound.status_code == 421
