"""One channel in the browser: turns as they come, time, why, a person's reply, a fork."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.flow.stage import stage as flow_stage
from tests.hub.scenes import die
from turnline.core.event_types import EV_CHANNEL_CLOSED
from turnline.core.state import State
from turnline.log.sqlite import SqliteLog

from .conftest import Shoot
from .stage import FLOWS, TOKEN, Stage, stage


def has_floor(state: State, name: str) -> bool:
    return state.spec.name_of(state.expected_next_speaker or "") == name


def opened(page: Page, server: Stage, message: str | None = None, **given: object) -> str:
    """A help desk, looked at; with a message, once the floor is carol's again."""
    channel = server.do(server.open_desk(message, **given))
    if message is not None:
        server.do(server.until(channel, lambda state: state.turn_count > 1 and state.claim is None))
        server.do(server.until(channel, lambda state: has_floor(state, "carol")))
    page.goto(server.page(f"/channels/{channel}"))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    return channel


def test_turns_arrive_while_somebody_watches(page: Page, server: Stage, shoot: Shoot) -> None:
    channel = opened(page, server)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()

    server.do(server.say(channel, "My bill is wrong."))

    expect(page.get_by_text("This is about a bill: our billing colleague takes over.").first).to_be_visible()
    expect(page.get_by_text("I have found the invoice and corrected it.").first).to_be_visible()
    expect(page.get_by_text("note_topic → noted billing")).to_be_visible()
    expect(page.get_by_label("Context variables")).to_contain_text("billing")
    expect(page.get_by_label("Graph", exact=True)).to_contain_text("carol has the floor")
    expect(page.get_by_role("log")).to_contain_text("billing: I have found the invoice")
    shoot(page, "channel")


def test_words_are_shown_before_the_turn_is_over(page: Page, server: Stage) -> None:
    channel = opened(page, server)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    triage = next(one for one in server.hub.participants() if one.name == "triage")

    server.do(server.tell(channel, triage.agent_id, "Let me see"))

    expect(page.locator(".words")).to_have_text("triageLet me see")


def test_the_slider_goes_back_in_time(page: Page, server: Stage, shoot: Shoot) -> None:
    opened(page, server, "My bill is wrong.")
    variables = page.get_by_label("Context variables")
    expect(variables).to_contain_text("topic")
    slider = page.get_by_role("slider", name="Time")

    slider.fill("6")

    expect(variables).to_contain_text("at line 6")
    expect(variables).to_contain_text("None are set.")
    expect(page.get_by_label("Graph", exact=True)).to_contain_text("triage has the floor")
    shoot(page, "past")
    page.get_by_role("button", name="Back to now").click()
    expect(variables).to_contain_text("topic")


def test_a_line_says_why_the_floor_moved_and_what_it_changed(page: Page, server: Stage, shoot: Shoot) -> None:
    opened(page, server, "My bill is wrong.")
    page.get_by_role("option").filter(has_text="This is about a bill").click()

    page.get_by_role("tab", name="Why").click()

    decided = page.locator(".rule.decided")
    expect(decided).to_contain_text("from triage and topic = billing")
    expect(decided).to_contain_text("→ billing")
    shoot(page, "why")
    page.locator(".line.note").filter(has_text="topic = billing").click()
    page.get_by_role("tab", name="Context").click()
    change = page.locator(".change")
    expect(change).to_contain_text("topic")
    expect(change).to_contain_text("added")
    page.get_by_role("tab", name="Cost").click()
    expect(page.get_by_text("Cost and latency")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="billing")).to_contain_text("144")
    shoot(page, "cost")


def test_a_person_with_the_floor_replies(page: Page, server: Stage) -> None:
    opened(page, server)
    box = page.get_by_label("carol has the floor")

    box.fill("Where is my parcel?")
    page.get_by_role("button", name="Send").click()

    expect(page.get_by_text("I heard: Where is my parcel?").first).to_be_visible()
    expect(box).to_have_value("")


def test_a_person_answers_what_an_agent_asks(page: Page, server: Stage, shoot: Shoot) -> None:
    channel = opened(page, server)
    server.do(server.say(channel, "My bill is wrong, ask me."))
    box = page.get_by_label("billing asks: Which invoice is it?")
    expect(box).to_be_visible()
    shoot(page, "question")

    box.fill("number 7")
    box.press("Control+Enter")

    expect(page.get_by_text("Thank you. Your invoice is corrected.").first).to_be_visible()
    expect(page.get_by_label("carol has the floor")).to_be_visible()


def test_a_fork_has_the_past_of_the_line_and_a_future_of_its_own(page: Page, server: Stage) -> None:
    channel = opened(page, server, "Hello there.")
    page.get_by_role("option").filter(has_text="I heard: Hello there.").click()

    page.get_by_role("button", name="Fork from here").click()

    expect(page).not_to_have_url(server.page(f"/channels/{channel}"))
    expect(page.get_by_text("-fork").first).to_be_visible()
    expect(page.get_by_role("link", name="forked at line 7")).to_be_visible()
    expect(page.get_by_text("I heard: Hello there.").first).to_be_visible()
    page.get_by_label("carol has the floor").fill("Another way.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("I heard: Another way.").first).to_be_visible()
    assert not any("Another way" in str(one.event_data) for one in server.do(server.hub.read_wal(channel)))


def test_closing_takes_two_clicks(page: Page, server: Stage) -> None:
    channel = opened(page, server)

    page.get_by_role("button", name="Close the channel").click()
    state = server.do(server.hub.state(channel))
    page.get_by_role("button", name="Click again to end it").click()

    assert not state.is_over
    expect(page.get_by_text("closed: closed")).to_be_visible()


def test_y2_lines_whose_content_was_erased_say_so(page: Page, server: Stage, shoot: Shoot) -> None:
    channel = opened(page, server, "My bill is wrong.")
    expect(page.get_by_text("My bill is wrong.").first).to_be_visible()
    server.do(server.hub.write(channel, EV_CHANNEL_CLOSED, {"reason": "done"}))
    page.locator(".line.said .text").first.click()
    expect(page.get_by_label("Details").first).to_contain_text("My bill is wrong.")

    server.do(server.hub.erase(channel, by="admin"))

    said = page.locator(".line.said .text")
    expect(said.first).to_have_text("erased")
    expect(page.locator(".line").filter(has_text="lines 1").last).to_contain_text("erased")
    expect(page.locator("body")).not_to_contain_text("My bill is wrong.")
    said.first.click()
    page.get_by_role("tab", name="Why").click()
    expect(page.locator(".summary")).to_contain_text("was erased")
    shoot(page, "erased")


def test_only_turns_are_shown_where_only_they_are_wanted(page: Page, server: Stage) -> None:
    opened(page, server, "My bill is wrong.")
    notes = page.locator(".line.note")
    expect(notes.first).to_be_visible()

    page.get_by_label("Only turns").check()

    expect(notes).to_have_count(0)
    expect(page.locator(".line.said")).to_have_count(3)


def test_a_failed_run_shows_its_error_and_leads_to_the_child_that_failed(page: Page, server: Stage) -> None:
    run_id = server.do(server.runs().start("fans", {}))
    server.do(server.until(run_id, lambda state: state.is_over))
    page.goto(server.page(f"/channels/{run_id}"))

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Step all failed.")
    expect(alert).to_contain_text("the card was declined")
    below = page.get_by_label("Channels below this one")
    expect(below).to_contain_text("2 channels below")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    below.get_by_role("link").first.click()

    expect(page.get_by_role("alert")).to_contain_text("Step pay failed.")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)  # The top run is retried.
    page.get_by_role("link", name=f"below {run_id}").click()
    expect(page.get_by_role("alert")).to_contain_text("Step all failed.")


def test_a_stuck_run_is_retried_on_its_page(page: Page, server: Stage, tmp_path: Path) -> None:
    file = tmp_path / "log.db"

    async def stick() -> None:
        entered = asyncio.Event()

        async def never(ctx: dict[str, Any]) -> None:
            entered.set()
            await asyncio.Event().wait()

        async with flow_stage(FLOWS, log=SqliteLog(file), save=never) as house:
            await house.runs.start("lead", {"email": "a@b.example"}, run_id="r1")
            await entered.wait()
        await die(SqliteLog(file), "r1", "save", is_found=True)

    server.do(stick())
    with stage(lambda: SqliteLog(file)).running() as other:
        page.goto(other.page(token=TOKEN))
        page.goto(other.page("/channels/r1"))
        expect(page.locator(".status").first).to_have_text("stuck")
        page.get_by_role("button", name="Retry the stuck turn").click()

        expect(page.locator(".status").first).to_have_text("succeeded")
        expect(page.get_by_role("button", name="Retry from the last step")).to_be_visible()


def test_a_list_shows_why_a_run_failed(page: Page, server: Stage) -> None:
    run_id = server.do(server.runs().start("fans", {}))
    server.do(server.until(run_id, lambda state: state.is_over))
    page.goto(server.page("/channels?kind=run"))

    expect(page.get_by_text("the card was declined").first).to_be_visible()


def test_a_failed_turn_is_shown_and_the_channel_rests_until_a_person_writes(
    page: Page, server: Stage
) -> None:
    channel = server.do(server.open_talk("broken", "Hello?"))
    server.do(server.until(channel, lambda state: state.is_resting))
    page.goto(server.page(f"/channels/{channel}"))

    expect(page.get_by_role("alert")).to_contain_text("The turn of broken failed.")
    expect(page.get_by_role("alert")).to_contain_text("the model has no key")
    expect(page.get_by_text("rests until the next message").first).to_be_visible()
    expect(page.locator(".status").first).to_have_text("resting")
    expect(page.get_by_text("The channel rests; what you write resumes it")).to_be_visible()


def test_the_cost_of_a_run_includes_the_channels_below(page: Page, server: Stage) -> None:
    run_id = server.do(server.runs().start("fans", {}))
    server.do(server.until(run_id, lambda state: state.is_over))
    page.goto(server.page(f"/channels/{run_id}"))
    page.get_by_role("tab", name="Cost").click()

    expect(page.get_by_text("2 channels below included")).to_be_visible()
