"""Y6: the studio shows the images of a line, and saves its other files. None of them becomes a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import compress, crc32

import pytest
from playwright.sync_api import Page, Request, expect

from turnline.agent.agent import Agent
from turnline.agent.files import File
from turnline.agent.scripted import ScriptedModel, call
from turnline.agent.tool import tool
from turnline.agent.tool_result import ToolResult
from turnline.core.event_types import EV_CHANNEL_CLOSED
from turnline.core.governance import Passport

from .conftest import Shoot
from .payloads import PAYLOADS
from .stage import TOKEN, Stage

COUNT_URLS = """
window.urls = new Set();
const { createObjectURL, revokeObjectURL } = URL;
URL.createObjectURL = (blob) => {
    const url = createObjectURL.call(URL, blob);
    window.urls.add(url);
    (window.types ??= []).push(blob.type);
    return url;
};
URL.revokeObjectURL = (url) => (window.urls.delete(url), revokeObjectURL.call(URL, url));
"""
SCRIPT = "<script>window.broken=1;try{opener.broken=1;parent.broken=1}catch{}</script>"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="window.broken=1">{SCRIPT}</svg>'.encode()
HTML = f"<!doctype html><img src=x onerror=window.broken=1>{SCRIPT}".encode()


def png(width: int = 8, height: int = 8) -> bytes:
    """Return a red picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    rows = compress((b"\0" + b"\xff\0\0" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def send_files(server: Stage, *files: File, text: str = "Look.") -> str:
    channel = await server.people["carol"].open(type="discussion", target=["dave"])
    await channel.send(text, parts=list(files))
    return channel.channel_id


@pytest.fixture
def asked(page: Page) -> Iterator[list[Request]]:
    """The requests of the tab. No address has the token."""
    found: list[Request] = []
    page.on("request", lambda one: found.append(one))  # noqa: PLW0108  Playwright marks its handlers.
    page.add_init_script(COUNT_URLS)
    page.reload()
    yield found
    assert not any(TOKEN in one.url for one in found)
    assert page.evaluate("window.broken") is None


def look_at(page: Page, server: Stage, *files: File) -> str:
    channel = server.do(send_files(server, *files))
    page.goto(server.page(f"/channels/{channel}"))
    return channel


def files_asked(asked: list[Request]) -> list[Request]:
    return [one for one in asked if "/files/" in one.url]


def test_images_are_shown_in_their_line_and_in_its_details(
    page: Page, server: Stage, asked: list[Request], shoot: Shoot
) -> None:
    look_at(page, server, File(png(), "red.png"), File(b"%PDF", "plan.pdf"), File(png(9), "second.png"))
    row = page.get_by_role("option").filter(has_text="Look.")

    images = row.get_by_role("img")
    expect(images).to_have_count(2)
    expect(row).to_contain_text("plan.pdf (4 bytes)")
    assert [
        one.evaluate("image => image.decode().then(() => image.naturalWidth)") for one in images.all()
    ] == [8, 9]
    row.click()
    expect(page.get_by_label("Files").get_by_role("img", name="second.png")).to_be_visible()
    shoot(page, "files")
    found = files_asked(asked)
    assert {one.url.rpartition("/")[2] for one in found} == {"0", "2"}, "the PDF is not fetched unasked"
    assert {one.all_headers()["authorization"] for one in found} == {f"Bearer {TOKEN}"}


def test_every_file_can_be_saved_under_its_name(page: Page, server: Stage, asked: list[Request]) -> None:
    files = [
        File(b"%PDF-1.7", "Plan für 2027.pdf"),
        File(png(), "red.png"),
        File(HTML, "a.html"),
        File(SVG, "b.svg"),
    ]
    look_at(page, server, *files)
    page.get_by_role("option").filter(has_text="Look.").click()

    for file in files:
        with page.expect_download() as saving:
            page.get_by_role("button", name=f"Download {file.name}").click()

        assert saving.value.suggested_filename == file.name
        assert Path(saving.value.path()).read_bytes() == file.read()


def test_the_address_of_a_file_ends_with_the_view(page: Page, server: Stage, asked: list[Request]) -> None:
    look_at(page, server, File(png(), "red.png"), File(b"%PDF", "plan.pdf"))
    page.get_by_role("option").filter(has_text="Look.").click()
    with page.expect_download():
        page.get_by_role("button", name="Download plan.pdf").click()
    expect(page.get_by_role("img", name="red.png")).to_have_count(2)
    assert page.evaluate("window.urls.size") == 3

    page.evaluate("location.hash = '#/channels'")

    expect(page.get_by_role("heading", name="Channels")).to_be_visible()
    assert page.evaluate("window.urls.size") == 0


def test_a_program_in_a_file_never_runs_whatever_its_media_type(
    page: Page, server: Stage, asked: list[Request]
) -> None:
    hostile = [
        File(data, f"{index}.{kind.partition('/')[2]}", kind) for index, (data, kind) in enumerate(HOSTILE)
    ]
    look_at(page, server, *hostile)
    row = page.get_by_role("option").filter(has_text="Look.")
    expect(row.get_by_text("not an image")).to_have_count(2)
    row.click()
    for file in hostile:
        with page.expect_download():
            page.get_by_role("button", name=f"Download {file.name}").click()

    assert page.locator("img, iframe, object, embed").count() == 0
    assert len(page.context.pages) == 1, "no file is opened as a page"
    assert set(page.evaluate("window.types")) == {"application/octet-stream", "image/png", "image/gif"}


HOSTILE = [
    (SVG, "image/svg+xml"),
    (HTML, "text/html"),
    (HTML, "application/xhtml+xml"),
    (SVG, "image/png"),
    (HTML, "image/gif"),
    (HTML, "text/plain"),
]


def test_names_of_files_are_text(page: Page, server: Stage, asked: list[Request]) -> None:
    names = [one for one in PAYLOADS if "/" not in one and "\\" not in one and one.isprintable()][:12]
    look_at(
        page, server, *(File(b"x", name, "text/plain") for name in names), File(png(), names[0], "image/png")
    )
    row = page.get_by_role("option").filter(has_text="Look.")
    row.click()

    expect(page.get_by_role("img")).to_have_count(2)
    assert page.get_by_role("img").first.get_attribute("alt") == names[0]
    for name in names:
        expect(page.get_by_label("Files").get_by_text(name, exact=True).first).to_be_visible()
    assert page.locator("script").count() == 5


def test_a_large_image_is_not_fetched_unasked(page: Page, server: Stage, asked: list[Request]) -> None:
    look_at(page, server, File(png() + bytes(10 * 1024 * 1024), "large.png"))
    row = page.get_by_role("option").filter(has_text="Look.")

    expect(row).to_contain_text("large.png (10.5 MB)")
    assert files_asked(asked) == []


def test_files_of_an_erased_line_are_gone_from_the_view_at_once(
    page: Page, server: Stage, asked: list[Request]
) -> None:
    channel = look_at(page, server, File(png(), "red.png"), File(b"%PDF", "plan.pdf"))
    expect(page.get_by_role("img", name="red.png")).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    server.do(server.hub.write(channel, EV_CHANNEL_CLOSED, {"reason": "done"}))

    server.do(server.hub.erase(channel, by="admin"))

    expect(page.locator(".line.said .text").first).to_have_text("erased")
    expect(page.get_by_role("img", name="red.png")).to_have_count(0)
    assert page.evaluate("window.urls.size") == 0
    page.locator(".line.said").first.click()
    expect(page.get_by_role("tabpanel")).to_contain_text("erased")
    expect(page.get_by_role("button", name="Download")).to_have_count(0)
    expect(page.locator("body")).not_to_contain_text("plan.pdf")


def test_a_file_that_went_after_its_line_was_shown_says_so(
    page: Page, server: Stage, asked: list[Request]
) -> None:
    channel = look_at(page, server, File(b"%PDF", "plan.pdf"))
    page.get_by_role("option").filter(has_text="Look.").click()
    files = server.hub.files.log
    server.do(files.delete_blobs(server.do(files.blobs(channel))))

    page.get_by_role("button", name="Download plan.pdf").click()

    expect(page.get_by_label("Files").get_by_role("alert")).to_have_text("no longer here")


def test_files_that_a_tool_returned_are_in_the_details_of_its_line(
    page: Page, server: Stage, asked: list[Request]
) -> None:
    channel = server.do(run_tool(server))
    page.goto(server.page(f"/channels/{channel}"))

    page.get_by_role("option").filter(has_text="Drawn. [file drawing.png").click()

    expect(page.get_by_label("Files").get_by_role("img", name="drawing.png")).to_be_visible()
    expect(page.get_by_role("button", name="Download drawing.png")).to_be_visible()


@tool
def draw() -> ToolResult:
    """Draw."""
    return ToolResult("Drawn.", files=[File(png(), "drawing.png")])


async def run_tool(server: Stage) -> str:
    assert server.door is not None
    agent: Any = Agent("painter", config=ScriptedModel(call("draw"), "Here it is."), tools=[draw])
    await server.door.register(agent, Passport(name="painter"))
    channel = await server.open_talk("painter", "Draw something.")
    await server.until(channel, lambda state: state.turn_count >= 2)
    return channel
