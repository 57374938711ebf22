"""The studio without a mouse, without eyes, in the dark and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import Shoot
from .stage import TOKEN, Stage

NAMELESS = """() => {
  const text = (id) => document.getElementById(id)?.textContent ?? "";
  const said = (one) => [
    one.getAttribute("aria-label"),
    (one.getAttribute("aria-labelledby") ?? "").split(" ").map(text).join(""),
    one.id && document.querySelector(`label[for="${one.id}"]`)?.textContent,
    one.closest("label")?.textContent,
    one.matches("input, select, textarea") ? "" : one.textContent,
    one.title,
  ];
  const controls = "button, a, input, select, textarea, summary, [role=tab], [role=listbox], [tabindex='0']";
  return [...document.querySelectorAll(controls)]
    .filter((one) => said(one).join("").trim() === "")
    .map((one) => one.outerHTML.slice(0, 120));
}"""
"""Every control that says nothing to somebody who cannot see it."""
TWICE = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  return ids.filter((id, place) => ids.indexOf(id) !== place);
}"""
PRESS_ONCE_SHOWN = """([shown, key]) => {
  const observer = new MutationObserver(() => {
    if (document.querySelector(shown) === null) return;
    observer.disconnect();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  });
  observer.observe(document, { childList: true, subtree: true });
}"""
"""Press a key in the moment in which an element is first there, before it is painted."""
FILTER_AND_FOCUS = """(link, text) => {
  const box = document.querySelector("[data-search]");
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  link.focus();
}"""
"""Write a filter and go on to a link before the filter takes effect."""
PAGES = ["channels", "channel", "tasks", "flows", "flow", "search"]
TITLES = {"channel": "My bill is wrong.", "flow": "lead"}


@pytest.fixture(scope="module")
def places(server: Stage) -> dict[str, str]:
    channel = server.do(server.open_desk("My bill is wrong."))
    server.do(server.until(channel, lambda state: state.turn_count == 3))
    server.do(server.runs().start("lead", {"email": "a@b.co", "priority": "urgent", "company": "Acme"}))
    return {"channel": f"/channels/{channel}", "flow": "/flows/lead", "search": "/search?text=bill"}


def visit(page: Page, server: Stage, places: dict[str, str], name: str) -> None:
    page.goto(server.page(places.get(name, f"/{name}")))
    expect(page.get_by_role("heading", level=1).first).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_every_control_has_a_name_and_every_page_its_landmarks(
    page: Page, server: Stage, places: dict[str, str], name: str
) -> None:
    visit(page, server, places, name)

    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(TWICE) == []
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("navigation", name="Main")).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page).to_have_title(f"{TITLES.get(name, name.capitalize())} · Turnline Studio")


def test_whoever_goes_to_another_page_by_keyboard_is_at_its_beginning(
    page: Page, server: Stage, places: dict[str, str]
) -> None:
    visit(page, server, places, "flows")
    page.get_by_role("main").get_by_role("link", name="lead").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("lead")

    expect(page.get_by_role("main")).to_be_focused()


def test_a_channel_is_read_and_answered_by_keyboard_alone(
    page: Page, server: Stage, places: dict[str, str]
) -> None:
    visit(page, server, places, "tasks")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Channels")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("billing")
    link = page.get_by_role("link", name="My bill is wrong.")
    expect(link).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if link.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("option").last).to_be_visible()
    page.keyboard.press("K")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    page.keyboard.press("w")
    expect(page.locator(".rule.decided")).to_contain_text("from billing")
    page.keyboard.press("k")
    page.keyboard.press("K")
    expect(page.locator(".rule.decided")).to_contain_text("from triage and topic = billing")
    page.keyboard.press("[")
    expect(page.get_by_role("button", name="Back to now")).to_be_enabled()
    page.keyboard.press("l")
    expect(page.get_by_role("button", name="Back to now")).to_be_disabled()
    page.keyboard.press("r")
    page.keyboard.type("Thank you.")
    page.keyboard.press("Control+Enter")

    expect(page.get_by_text("I heard: Thank you.").first).to_be_visible()


def test_going_to_the_flows_by_keyboard_forks_nothing(
    page: Page, server: Stage, places: dict[str, str]
) -> None:
    posts = list[str]()
    page.on("request", lambda sent: posts.append(sent.url) if sent.method == "POST" else None)
    visit(page, server, places, "channels")
    page.get_by_role("link", name="My bill is wrong.").click()
    expect(page.get_by_role("option").last).to_be_visible()
    page.keyboard.press("K")
    expect(page.get_by_role("option", selected=True)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("f")

    expect(page.get_by_role("heading", name="Flows")).to_be_visible()
    assert posts == []


def test_a_key_pressed_as_soon_as_the_lines_are_shown_counts(
    page: Page, server: Stage, places: dict[str, str]
) -> None:
    visit(page, server, places, "channels")
    page.evaluate(PRESS_ONCE_SHOWN, ["[role=option]", "K"])
    page.get_by_role("link", name="My bill is wrong.").click()

    expect(page.get_by_role("option", selected=True)).to_be_visible()


def test_a_shortcut_pressed_as_soon_as_the_studio_is_shown_counts(page: Page, server: Stage) -> None:
    page.add_init_script(f"({PRESS_ONCE_SHOWN})(['main', '?'])")
    page.goto(server.page("/tasks"))
    page.reload()

    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()


def test_a_link_keeps_the_focus_when_the_filter_takes_effect(
    page: Page, server: Stage, places: dict[str, str]
) -> None:
    visit(page, server, places, "channels")
    link = page.get_by_role("link", name="My bill is wrong.")
    rows = page.get_by_role("row")
    expect(rows).to_have_count(3)  # The head, the channel and the run.
    link.evaluate(FILTER_AND_FOCUS, "billing")

    expect(rows).to_have_count(2)
    expect(link).to_be_focused()


def test_shortcuts_are_listed_and_do_nothing_while_somebody_writes(
    page: Page, server: Stage, places: dict[str, str]
) -> None:
    visit(page, server, places, "channel")
    page.get_by_label("carol has the floor").fill("")
    page.keyboard.type("jkw?[")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("tab", name="Line")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")

    page.keyboard.press("?")

    expect(dialog).to_contain_text("Why the floor moved")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_what_has_the_focus_is_seen_to_have_it(page: Page, server: Stage, places: dict[str, str]) -> None:
    visit(page, server, places, "channel")
    for _ in range(25):
        page.keyboard.press("Tab")
        width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 2, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 390), ("dark", 390), ("light", 1440), ("dark", 1440)]
)
def test_every_page_fits_in_the_dark_and_on_a_phone(  # noqa: PLR0917  Fixtures.
    browser: Browser, server: Stage, places: dict[str, str], shoot: Shoot, scheme: str, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844})
    tab = context.new_page()
    tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    tab.goto(server.page(token=TOKEN))
    expect(tab.get_by_role("heading", name="Channels")).to_be_visible()
    for name in PAGES:
        visit(tab, server, places, name)
        expect(tab.get_by_text("Reading")).to_have_count(0)
        shoot(tab, f"{scheme}-{width}-{name}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.querySelector('main').scrollWidth") <= width
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(17, 17, 20)" if scheme == "dark" else "rgb(247, 247, 248)")
    context.close()


def test_the_theme_is_chosen_and_stays(page: Page, server: Stage) -> None:
    for wanted, ground in (("light", "rgb(247, 247, 248)"), ("dark", "rgb(17, 17, 20)")):
        page.get_by_role("button", name="Theme").click()
        expect(page.get_by_role("button", name=f"Theme: {wanted}")).to_be_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
