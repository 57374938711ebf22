"""Whatever agents say, the studio shows it and does none of it; and it talks to nobody but its server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from turnline.agent.agent import Agent
from turnline.agent.context import Context
from turnline.agent.scripted import ScriptedModel, call
from turnline.agent.tool import tool
from turnline.core.event_types import EV_CONTEXT_SET
from turnline.core.governance import Passport

from .payloads import PAYLOADS
from .stage import TOKEN, Stage

EVERYTHING = "\n".join(PAYLOADS)
FOREIGN = (
    "img, iframe, object, embed, base, form[action], a[href^='javascript'], meta[http-equiv], "
    "[onerror], [onload]"
)
"""What no page of ours has."""
OWN_SCRIPTS = 5


@tool
def says_it() -> str:
    """Say all of it."""
    return EVERYTHING


@tool
def fails_with_it() -> str:
    """Fail with all of it."""
    raise ValueError(EVERYTHING)


async def asks_it(context: Context) -> str:
    return await context.input(PAYLOADS[6])


async def hostile_channel(server: Stage) -> str:
    """A channel where everything that can hold text holds a payload."""
    assert server.door is not None
    script = ScriptedModel(
        call("says_it"), call("fails_with_it"), EVERYTHING, call("asks_it"), ValueError(EVERYTHING)
    )
    agent = Agent("x", config=script, tools=[says_it, fails_with_it, asks_it])
    names = [text for text in PAYLOADS if len(text) <= 256 and text.isprintable()]
    await server.door.register(agent, Passport(name=names[1]))
    for name in names[2:22]:
        await server.door.register_human(Passport(name=name, kind="human"))
    carol = server.people["carol"]
    channel = await carol.open(
        type="conversation",
        target=names[1],
        labels={"title": PAYLOADS[0], PAYLOADS[1]: PAYLOADS[2]},
        knobs={"context_vars": {text: text for text in PAYLOADS}},
    )
    await channel.send(EVERYTHING)
    await server.until(channel.channel_id, lambda state: state.turn_count >= 2)
    for text in PAYLOADS:
        await channel.send(text, interject=True)
    await channel.send(
        event_type=EV_CONTEXT_SET, event_data={"set": {PAYLOADS[3]: {PAYLOADS[4]: [PAYLOADS[5]]}}}
    )
    await channel.send("ask me")
    await server.until(channel.channel_id, lambda state: bool(state.questions))
    await channel.send(event_type="acme.note", event_data={PAYLOADS[7]: EVERYTHING})
    return channel.channel_id


class Watch:
    """What a tab does that it should not."""

    def __init__(self, page: Page, server: Stage) -> None:
        self.page = page
        self.outside: list[str] = []
        self.requests = 0
        self.said: list[str] = []
        self._server = server
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("console", lambda one: self.said.append(one.text) if "violates" in one.text else None)
        page.context.route("**/*", self._asked)

    def _dialog(self, dialog: Dialog) -> None:
        self.said.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, route: object, request: object) -> None:
        self.requests += 1
        if not request.url.startswith(self._server.address):  # type: ignore[attr-defined]
            self.outside.append(request.url)  # type: ignore[attr-defined]
        route.continue_()  # type: ignore[attr-defined]

    def check(self) -> None:
        """Nothing ran, nothing was asked for elsewhere, nothing became an element."""
        assert self.page.evaluate("window.broken") is None
        assert self.page.locator(FOREIGN).count() == 0
        assert self.page.locator("script").count() == OWN_SCRIPTS
        assert self.said == []
        assert self.outside == []


@pytest.fixture
def watch(browser: Browser, server: Stage) -> Iterator[Watch]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    watching = Watch(page, server)
    page.goto(server.page(token=TOKEN))
    yield watching
    context.close()


def test_a_hundred_payloads_in_everything_that_holds_text_run_nothing(watch: Watch, server: Stage) -> None:
    page = watch.page
    channel = server.do(hostile_channel(server))
    expect(page.get_by_role("link", name=PAYLOADS[0])).to_be_visible()
    watch.check()

    page.goto(server.page(f"/channels/{channel}"))
    expect(page.get_by_role("heading", level=1)).to_have_text(PAYLOADS[0])
    last = server.do(server.hub.state(channel)).seq
    seen: set[str] = set()
    for seq in range(last, 0, -1):
        page.keyboard.press("k")
        expect(page.locator(f"#line-{seq}")).to_be_visible()
        seen.add(page.locator(f"#line-{seq}").inner_text())
    watch.check()
    for tab in ("Line", "Why", "Context", "Cost"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel").get_by_role("heading").first).to_be_visible()
        watch.check()

    assert all(any(text.strip()[:40] in one for one in seen) for text in PAYLOADS)
    assert watch.requests > 20


def test_payloads_in_flows_tasks_searches_and_errors_run_nothing(watch: Watch, server: Stage) -> None:
    page = watch.page
    run = server.do(
        server.runs().start("lead", {"email": "a@b.co", "priority": "urgent", "company": EVERYTHING})
    )
    page.goto(server.page("/tasks"))
    expect(page.get_by_role("article")).to_be_visible()
    watch.check()
    page.goto(server.page(f"/channels/{run}"))
    expect(page.get_by_label("Context variables")).to_contain_text("company")
    watch.check()
    page.goto(server.page("/search"))
    for text in PAYLOADS[::9]:
        page.get_by_label("Search what was said").fill(text[:80])
        expect(page.get_by_role("heading", name="Search")).to_be_visible()
    watch.check()
    page.goto(server.page("/channels/" + "%3Cimg%20src=x%20onerror=window.broken=1%3E"))
    expect(page.get_by_role("alert")).to_contain_text("there is no channel")
    watch.check()
    page.goto(server.page("/flows/" + "%3Cscript%3Ewindow.broken=1%3C%2Fscript%3E"))
    expect(page.get_by_role("alert")).to_be_visible()
    watch.check()


def test_the_check_itself_finds_a_page_that_takes_text_for_html(watch: Watch, server: Stage) -> None:
    """The twin: what a page without our rule does is seen. A policy stands in the way of the rest."""
    expect(watch.page.get_by_role("heading", name="Channels")).to_be_visible()
    watch.page.evaluate("document.body.append(Object.assign(document.createElement('img'), {src: '/x'}))")

    with pytest.raises(AssertionError):
        watch.check()


def test_the_browser_itself_refuses_to_make_html_of_text(watch: Watch, server: Stage) -> None:
    expect(watch.page.get_by_role("heading", name="Channels")).to_be_visible()
    refused = watch.page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } }"
    )

    assert refused
