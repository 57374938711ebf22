"""A channel of ten thousand lines opens as fast as a short one: what is not looked at is not there."""

from __future__ import annotations

import asyncio
import time

import pytest
from playwright.sync_api import Page, Request, expect

from turnline.core.envelope import Draft
from turnline.core.event_types import EV_TEXT

from .stage import Stage

LINES = 10_000
AT_ONCE = 50


async def long_channel(server: Stage) -> str:
    channel = await server.people["carol"].open(type="conversation", target="dave")
    head = (await server.hub.state(channel.channel_id)).seq
    senders = [server.hub.participant(name).agent_id for name in ("carol", "dave")]
    for start in range(head, LINES, AT_ONCE):
        numbers = range(start + 1, min(start + AT_ONCE, LINES) + 1)
        drafts = [
            Draft(
                envelope_id=f"line-{number}",
                sender_id=senders[number % 2],
                event_type=EV_TEXT,
                event_data={"text": f"This is what was said at {number}. " * (1 + number % 7)},
                interject=True,
            )
            for number in numbers
        ]
        await asyncio.gather(*(server.hub.post(channel.channel_id, draft) for draft in drafts))
    return channel.channel_id


@pytest.fixture(scope="module")
def channel(server: Stage) -> str:
    return server.do(long_channel(server))


def test_ten_thousand_lines_open_with_few_requests_and_few_elements(
    page: Page, server: Stage, channel: str
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(path_of(request)))
    page.goto("about:blank")
    page.goto(server.page(f"/channels/{channel}"))
    before = time.perf_counter()
    page.reload()
    expect(page.get_by_text(f"This is what was said at {LINES}.").first).to_be_visible()
    print(f"\na channel of {LINES} lines opened in {time.perf_counter() - before:.2f} s")

    opening = [path for path in asked if path.startswith("/channels/")]
    assert page.locator(".line").count() < 60
    assert page.locator("*").count() < 1_500
    assert sum(path.endswith("/envelopes") for path in opening) <= 4
    assert page.evaluate("document.querySelector('.canvas').offsetHeight") > LINES * 40


@pytest.mark.parametrize("seq", [5, 5_000])
def test_any_of_ten_thousand_lines_is_reached_at_once(
    page: Page, server: Stage, channel: str, seq: int
) -> None:
    page.goto(server.page(f"/channels/{channel}"))
    expect(page.get_by_text(f"This is what was said at {LINES}.").first).to_be_visible()

    page.get_by_role("slider", name="Time").fill(str(seq))

    expect(page.locator(f"#line-{seq}")).to_contain_text(f"This is what was said at {seq}.")
    expect(page.locator(f"#line-{seq}")).to_be_in_viewport()
    assert page.locator(".line").count() < 60


def path_of(request: Request) -> str:
    return "/" + request.url.partition("?")[0].split("/", 3)[3]
