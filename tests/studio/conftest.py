"""A browser, and a server for it to look at. Screenshots are kept in .cache/studio."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from .stage import TOKEN, Stage, stage

SHOTS = Path(__file__).parents[2] / ".cache" / "studio"
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

Shoot = Callable[[Page, str], None]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each module: while it is open, no test of another module can have an event loop."""
    if CHROMIUM is None:
        pytest.skip("no chromium was found: install it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Stage]:
    with stage().running() as one:
        yield one


@pytest.fixture
def page(browser: Browser, server: Stage) -> Iterator[Page]:
    """A tab of somebody who is signed in. A mistake of the program fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(15_000)
    tab = context.new_page()
    mistakes: list[str] = []
    tab.on("pageerror", lambda error: mistakes.append(str(error)))
    tab.on("console", lambda said: mistakes.append(said.text) if is_mistake(said) else None)
    tab.goto(server.page(token=TOKEN))
    yield tab
    context.close()
    assert mistakes == []


def is_mistake(said: ConsoleMessage) -> bool:
    """What the program complains of; that the server refused something it is told, and shows."""
    return said.type == "error" and not said.text.startswith("Failed to load resource")


@pytest.fixture
def shoot() -> Shoot:
    """Keep a picture of a page."""

    def taken(page: Page, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png")

    return taken
