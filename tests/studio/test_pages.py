"""The other pages: the list, flows and their forms, tasks, search, signing in."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, Route, expect

from .conftest import Shoot
from .stage import Stage


def test_channels_are_listed_live_and_filtered(page: Page, server: Stage, shoot: Shoot) -> None:
    first = server.do(server.open_desk(labels={"title": "The first desk"}))
    expect(page.get_by_role("link", name="The first desk")).to_be_visible()

    server.do(server.open_desk(labels={"title": "The second desk"}))
    server.do(server.runs().start("lead", {"email": "a@example.com"}))

    expect(page.get_by_role("link", name="The second desk")).to_be_visible()
    expect(page.get_by_role("link", name="lead")).to_be_visible()
    shoot(page, "channels")
    page.get_by_role("button", name="Channels", exact=True).click()
    expect(page.get_by_role("link", name="lead")).to_have_count(0)
    page.get_by_label("Filter by id, label or participant").fill("first")
    expect(page.get_by_role("link", name="The second desk")).to_have_count(0)
    page.get_by_role("link", name="The first desk").click()
    expect(page).to_have_url(server.page(f"/channels/{first}"))


def test_more_channels_than_a_page_holds_are_shown_on_request(page: Page, server: Stage) -> None:
    page.get_by_label("Filter by id, label or participant").fill("desk number")
    expect(page.get_by_text("No channel is like this.")).to_be_visible()
    for number in range(55):
        server.do(server.open_desk(labels={"title": f"desk number {number}"}))
    rows = page.get_by_role("link", name=re.compile("desk number"))
    expect(rows).to_have_count(50)

    page.get_by_role("button", name="Show more").click()

    expect(rows).to_have_count(55)
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)


def test_a_run_is_started_from_its_form_and_followed_step_by_step(
    page: Page, server: Stage, shoot: Shoot
) -> None:
    page.goto(server.page("/flows"))
    page.get_by_role("link", name="lead").click()
    expect(page.get_by_label("Source of lead")).to_contain_text("runner: save")
    expect(page.get_by_label("Picture", exact=True)).to_contain_text("approve")
    expect(page.get_by_label("company")).to_have_value("Unknown")
    shoot(page, "flow")

    page.get_by_label("email").fill("ada@acme.example")
    page.get_by_label("score").fill("70")
    page.get_by_role("button", name="Start").click()

    expect(page.get_by_text("succeeded")).to_be_visible()
    variables = page.get_by_label("Context variables")
    expect(variables).to_contain_text("acme.example")
    expect(variables).to_contain_text("70")
    page.locator(".line.said").filter(has_text="save").click()
    page.get_by_role("tab", name="Context").click()
    expect(page.locator(".change").filter(has_text="domain")).to_contain_text("added")
    shoot(page, "run")


def test_what_the_form_does_not_allow_is_said_beside_it(page: Page, server: Stage) -> None:
    page.goto(server.page("/flows/lead"))
    page.get_by_label("email").fill("a@b.co")
    page.get_by_label("score").fill("101")
    page.get_by_role("button", name="Start").click()

    expect(page.get_by_role("alert")).to_contain_text("score")


def test_a_run_is_started_with_a_file(page: Page, server: Stage) -> None:
    page.goto(server.page("/flows/scans"))
    page.get_by_label("note").fill("urgent")
    page.get_by_label("scan").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"seven"})
    page.get_by_role("button", name="Start").click()

    variables = page.get_by_label("Context variables")
    expect(variables).to_contain_text("seven")
    expect(variables).to_contain_text("a.txt")
    expect(variables).to_contain_text("urgent")


def test_a_task_is_answered_with_its_form_and_the_run_goes_on(
    page: Page, server: Stage, shoot: Shoot
) -> None:
    company = "Globex"
    given = {"email": "a@example.com", "priority": "urgent", "company": company}
    run = server.do(server.runs().start("lead", given))
    page.goto(server.page("/tasks"))
    task = page.get_by_role("article", name=f"Escalate {company}?")
    expect(task).to_contain_text("a@example.com")
    shoot(page, "tasks")

    task.get_by_label("approved").select_option("true")
    task.get_by_role("button", name="Answer").click()

    expect(task).to_have_count(0)
    expect(page.get_by_text("was answered; the run goes on").first).to_be_visible()
    assert server.do(server.runs().wait(run)).status == "succeeded"


def test_what_comes_between_the_first_look_and_the_stream_is_shown(page: Page, server: Stage) -> None:
    given = {"email": "a@example.com", "priority": "urgent", "company": "Umbrella"}

    def late(route: Route) -> None:
        run = server.do(server.runs().start("lead", given))
        assert server.do(server.runs().wait(run)).status == "waiting"
        route.continue_()

    page.goto("about:blank")
    page.route("**/channels/events*", late)
    with page.expect_response("**/tasks"):
        page.goto(server.page("/tasks"))
    expect(page.get_by_role("article", name="Escalate Umbrella?")).to_be_visible()


def test_a_run_that_asks_somebody_is_answered_on_its_own_page(
    page: Page, server: Stage, shoot: Shoot
) -> None:
    given = {"email": "a@example.com", "priority": "urgent", "company": "Initech"}
    run = server.do(server.runs().start("lead", given))
    server.do(server.runs().start("lead", {**given, "company": "Hooli"}))
    page.goto(server.page(f"/channels/{run}"))
    task = page.get_by_role("article")
    expect(task).to_have_count(1)
    expect(task).to_contain_text("Escalate Initech?")
    expect(page.locator(".line").last).to_contain_text("person: Escalate Initech?")
    expect(page.locator(".line").last).to_be_in_viewport()
    shoot(page, "run-asks")

    task.get_by_label("approved").select_option("true")
    task.get_by_role("button", name="Answer").click()

    expect(page.get_by_text("succeeded")).to_be_visible()
    expect(task).to_have_count(0)


def test_what_is_found_in_data_is_shown_where_it_stands(page: Page, server: Stage) -> None:
    given = {"email": "a@example.com", "company": "Owl and Otter and Owl"}
    run = server.do(server.runs().start("lead", given))
    server.do(server.runs().wait(run))
    page.goto(server.page("/search"))
    expect(page.get_by_text("in every channel you may read")).to_be_visible()
    expect(page.get_by_label("Search what was said")).to_be_focused()
    page.get_by_label("Search what was said").fill("owl and")

    hit = page.get_by_role("listitem").filter(has_text=run).first
    expect(hit).to_contain_text("Owl and Otter and Owl")
    expect(hit.locator("mark")).to_have_text(["Owl and"])
    page.get_by_label("Search what was said").fill("owl")
    expect(hit.locator("mark").nth(1)).to_have_text("Owl")


def test_every_row_of_the_list_is_as_high_as_the_others_and_says_how_it_began(
    page: Page, server: Stage
) -> None:
    opened = server.do(server.open_desk("A heron at the pond", labels={"title": "Birds"}))
    server.do(server.open_desk(labels={"title": "Birds"}))
    closed = server.do(server.open_desk(labels={"title": "Birds"}))
    server.do(server.people["carol"].channel(closed).close("enough"))
    page.get_by_label("Filter by id, label or participant").fill("birds")
    expect(page.locator("tbody tr")).to_have_count(3)

    assert len(set(page.locator("tbody tr").evaluate_all("rows => rows.map((one) => one.offsetHeight)"))) == 1
    expect(page.locator("tbody tr").filter(has_text=opened)).to_contain_text("Birds A heron at the pond")
    expect(page.locator("tbody tr").filter(has_text=closed)).to_contain_text("enough")


def test_what_was_said_is_found_and_leads_to_its_line(page: Page, server: Stage, shoot: Shoot) -> None:
    channel = server.do(server.open_desk("A zeppelin over the meadow"))
    page.goto(server.page("/search"))
    page.get_by_label("Search what was said").fill("Zeppelin")
    said = page.locator(".tag", has_text=re.compile("^text$"))
    hit = page.get_by_role("listitem").filter(has_text="A zeppelin over the meadow").filter(has=said).first
    expect(hit).to_be_visible()
    expect(hit.locator("mark")).to_have_text("zeppelin")
    shoot(page, "search")

    hit.get_by_role("link").click()

    expect(page).to_have_url(re.compile(rf"/channels/{channel}\?seq=\d+"))
    expect(page.locator(".line.chosen")).to_contain_text("A zeppelin over the meadow")


def test_without_a_token_one_is_asked_for_and_kept_in_this_tab_only(
    browser: Browser, server: Stage, shoot: Shoot
) -> None:
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(server.page())
    shoot(tab, "login")
    tab.get_by_label("Token").fill("nonsense")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_label("Token")).to_be_visible()  # It was refused.
    tab.get_by_label("Token").fill("root")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("heading", name="Channels")).to_be_visible()
    other = context.new_page()
    other.goto(server.page())

    expect(other.get_by_label("Token")).to_be_visible()
    assert context.cookies() == []
    assert tab.evaluate("JSON.stringify(localStorage)") == "{}"
    tab.get_by_role("button", name="Sign out").click()
    expect(tab.get_by_label("Token")).to_be_visible()
    context.close()


def test_a_token_in_the_address_is_taken_out_of_it(browser: Browser, server: Stage) -> None:
    context = browser.new_context()
    tab = context.new_page()
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(request.url))
    tab.goto(server.page(token="root"))
    expect(tab.get_by_role("heading", name="Channels")).to_be_visible()

    assert "token" not in tab.url
    assert not any("root" in url for url in sent)
    context.close()


def test_somebody_with_few_scopes_is_told_so_and_shown_no_more(browser: Browser, server: Stage) -> None:
    context = browser.new_context()
    tab = context.new_page()
    hidden = server.do(server.open_desk("between us"))
    tab.goto(server.page(token="dave"))
    expect(tab.get_by_text("There is no channel yet that you may see.")).to_be_visible()
    tab.goto(server.page(f"/channels/{hidden}"))
    expect(tab.get_by_role("alert")).to_contain_text("there is no channel")
    tab.goto(server.page("/flows"))
    expect(tab.get_by_role("alert")).to_contain_text("This token may not see that.")
    context.close()
