"""Looking at channels: lists, pages of lines, the state at any line; and what others are not told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.turn_lines import claim_own
from turnline.agent.context import Context
from turnline.agent.tool import tool
from turnline.client.channel import Channel
from turnline.core.event_types import EV_CONTEXT_SET
from turnline.core.governance import Passport
from turnline.core.graph import TransitionGraph
from turnline.core.transitions import TerminateTarget
from turnline.hub.request import OpenRequest
from turnline.hub.timers import secret_id
from turnline.hub.turns import UNITS
from turnline.testing import call

from ..stage import PEOPLE, person
from .scene import HELP_DESK, Scene, scene

LOOK = ["", "/envelopes", "/state", "/usage", "/stream", "/envelopes/1/why"]
WORK = "metadata: {name: work}\nspec: {trigger: {path: /work}, steps: [{id: only, runner: work}]}"


async def test_a_channel_tells_its_graph_its_floor_and_its_context_variables() -> None:
    async with scene("Of course.") as stage:
        channel = await stage.open("Help!", knobs={"context_vars": {"tier": "gold"}}, labels={"desk": "one"})
        found = await stage.data(f"/channels/{channel}")

    names = {one["id"]: one["name"] for one in found["participants"]}
    assert names[found["speaker_id"]] == "carol"
    assert (found["type"], found["status"], found["turn_count"]) == ("workflow", "active", 2)
    assert (found["message"], found["labels"]) == ("Help!", {"desk": "one"})
    assert found["context_vars"] == {"tier": "gold"}
    assert {node["label"] for node in found["graph"]["nodes"]} >= {"carol", "helper"}


async def test_lines_come_in_pages_forwards_and_backwards() -> None:
    async with scene("Yes.") as stage:
        channel = await stage.open("Help!")
        every = await stage.data(f"/channels/{channel}/envelopes")
        head = every["head"]
        forwards = await stage.data(f"/channels/{channel}/envelopes?after=2&limit=2")
        backwards = await stage.data(f"/channels/{channel}/envelopes?before={head}&limit=2")
        none = await stage.data(f"/channels/{channel}/envelopes?after={head}")
        before_all = await stage.data(f"/channels/{channel}/envelopes?before=1")

    assert [one["seq"] for one in every["envelopes"]] == list(range(1, head + 1))
    assert [one["seq"] for one in forwards["envelopes"]] == [3, 4]
    assert (forwards["first"], forwards["last"], forwards["head"]) == (3, 4, head)
    assert [one["seq"] for one in backwards["envelopes"]] == [head - 2, head - 1]
    assert none["envelopes"] == before_all["envelopes"] == []


@pytest.mark.parametrize(
    "query", ["after=x", "before=-1", "after=1&before=2", "limit=0", "limit=201", f"text={'x' * 201}"]
)
async def test_a_page_that_cannot_be_is_422(query: str) -> None:
    async with scene() as stage:
        channel = await stage.open()
        answer = await stage.server.get(f"/channels/{channel}/envelopes?{query}")

    assert answer.status_code == 422


async def test_the_state_at_every_line_is_what_the_lines_up_to_there_add_up_to() -> None:
    async with scene("Yes.") as stage:
        channel = await stage.open("Help!")
        handle = stage.people["carol"].channel(channel)
        await handle.send(event_type=EV_CONTEXT_SET, event_data={"set": {"mood": "calm"}})
        head = (await stage.hub.state(channel)).seq
        states = [await stage.data(f"/channels/{channel}/state?seq={seq}") for seq in range(1, head + 1)]
        now = await stage.data(f"/channels/{channel}/state")

    assert [one["seq"] for one in states] == list(range(1, head + 1))
    assert [one["context_vars"] for one in states[-2:]] == [{}, {"mood": "calm"}]
    assert states[0]["status"] == "pending"
    assert now == states[-1]


@pytest.mark.parametrize("seq", ["0", "999", "x", ""])
async def test_there_is_no_state_at_a_line_that_is_not_there(seq: str) -> None:
    async with scene() as stage:
        channel = await stage.open()
        answer = await stage.server.get(f"/channels/{channel}/state?seq={seq}")

    assert answer.status_code == 422


async def test_lines_of_one_channel_and_of_all_are_found_by_what_they_say() -> None:
    async with scene("The lamp is blue.", "No.") as stage:
        channel = await stage.open("Where is it?")
        other = await stage.open("Hello?")
        on_one = await stage.lines(channel, query="text=BLUE")
        on_all = (await stage.data("/channels/search?text=lamp+is"))["found"]
        nothing = (await stage.data("/channels/search?text="))["found"]

    assert "blue" in on_one[-1]["event_data"]["body"]
    assert {one["channel_id"] for one in on_all} == {channel}
    assert on_all[-1]["text"] == "The lamp is blue."
    assert nothing == []
    assert other != channel


async def test_w6_opening_words_of_somebody_else_are_no_turn_of_the_usage() -> None:
    graph = TransitionGraph("helper", [], TerminateTarget("answered"))
    async with scene("hello") as stage:
        channel = await stage.people["carol"].open(
            "workflow", ["helper"], {"graph": graph.to_dict()}, message="Can you help?"
        )
        await channel.result()
        usage = await stage.data(f"/channels/{channel.channel_id}/usage")
        told = await stage.data(f"/channels/{channel.channel_id}")

    assert usage["total"]["turns"] == told["turn_count"] == 1
    assert [one["requests"] for one in usage["participants"]] == [1]


async def test_usage_counts_turns_tokens_and_seconds_by_participant() -> None:
    async with scene("Yes.") as stage:
        channel = await stage.open("Help!")
        usage = await stage.data(f"/channels/{channel}/usage")
        state = await stage.hub.state(channel)

    names = {one.agent_id: one.name for one in state.spec.participants}
    by_name = {names[one["agent_id"]]: one for one in usage["participants"]}
    assert {name: one["turns"] for name, one in by_name.items()} == {"carol": 1, "helper": 1}
    assert by_name["helper"]["requests"] == usage["total"]["requests"] == 1
    assert len(usage["turns"]) == 2


async def test_usage_includes_the_channels_below() -> None:
    async with scene("Yes.", "Psst.") as stage:
        channel = await stage.open("Help!")
        below = await stage.people["carol"].open("conversation", "helper", message="psst", parent=channel)
        await stage.until(below.channel_id, lambda state: state.turn_count >= 2)
        usage = await stage.data(f"/channels/{channel}/usage")

    assert (usage["own"]["requests"], usage["total"]["requests"]) == (1, 2)
    assert (usage["below"]["channels"], usage["below"]["requests"]) == (1, 1)
    assert usage["below"]["complete"]


async def test_a_question_of_an_agent_is_told_until_it_is_answered() -> None:
    @tool
    async def ask(context: Context) -> str:
        """Ask."""
        return await context.input("Which colour?")

    async with scene(call("ask"), "Blue it is.", tools=[ask]) as stage:
        channel = await stage.people["carol"].open(
            type="workflow",
            target=["helper"],
            knobs={"graph": HELP_DESK.to_dict()},
            message="Paint it.",
        )
        wal = stage.people["carol"].channel(channel.channel_id)
        await wal.wait_for(lambda one: one.event_type == "human.requested")
        asked = (await stage.data(f"/channels/{channel.channel_id}"))["questions"]
        body = {"request_id": asked[0]["request_id"], "answer": "blue", "as": "carol"}
        answer = await stage.server.post(f"/channels/{channel.channel_id}/answers", body, token="carol")
        other = await stage.server.post(
            f"/channels/{channel.channel_id}/answers", {**body, "answer": "red"}, token="carol"
        )
        await stage.until(channel.channel_id, lambda state: state.turn_count == 2)
        after = (await stage.data(f"/channels/{channel.channel_id}"))["questions"]
        lines = await stage.lines(channel.channel_id)

    assert asked[0]["question"] == "Which colour?"
    assert (answer.status_code, other.status_code) == (201, 409)
    assert after == []
    assert lines[-1]["event_data"]["body"] == "Blue it is."


def asking() -> Any:
    @tool
    async def ask(context: Context) -> str:
        """Ask."""
        return await context.input("Which colour?")

    return ask


async def asked(stage: Scene, **given: Any) -> tuple[str, str]:
    """Open the help desk, and return the channel and the question that the helper asks."""
    channel = await stage.people["carol"].open(
        type="workflow", knobs={"graph": HELP_DESK.to_dict()}, message="Paint it.", **given
    )
    line = await channel.wait_for(lambda one: one.event_type == "human.requested")
    return channel.channel_id, line.event_data["request_id"]


async def test_an_admin_answers_for_a_person_and_the_line_names_both() -> None:
    async with scene(call("ask"), "Blue it is.", tools=[asking()]) as stage:
        channel, request_id = await asked(stage, target=["helper"])
        body = {"request_id": request_id, "answer": "blue"}
        answer = await stage.server.post(f"/channels/{channel}/answers", body)
        again = await stage.server.post(f"/channels/{channel}/answers", body)
        (line,) = [one for one in await stage.lines(channel) if one["event_type"] == "human.answered"]
        carol = stage.people["carol"].agent_id

    assert (answer.status_code, answer.json()) == (201, again.json())
    assert (line["sender_id"], line["event_data"]["by"], line["event_data"]["for"]) == ("hub", "root", carol)


async def test_a_second_answer_over_http_is_refused_as_such_and_the_same_one_counts_once() -> None:
    is_over = asyncio.Event()

    @tool
    async def ask(context: Context) -> str:
        """Ask."""
        answer = await context.input("Which colour?")
        await is_over.wait()
        return answer

    async with scene(call("ask"), "Blue it is.", tools=[ask]) as stage:
        channel, request_id = await asked(stage, target=["helper", "dave"])
        body = {"request_id": request_id, "answer": "blue"}

        async def say(answer: str, who: str) -> Any:
            told = {**body, "answer": answer}
            return await stage.server.post(f"/channels/{channel}/answers", told, token=who)

        first, again = await say("blue", "dave"), await say("blue", "dave")
        others = [await say("red", "dave"), await say("blue", "carol")]
        is_over.set()
        await stage.until(channel, lambda state: state.turn_count == 2)
        late, late_other = await say("blue", "dave"), await say("red", "dave")
        lines = [one for one in await stage.lines(channel) if one["event_type"] == "human.answered"]

    assert (first.status_code, again.status_code, late.status_code) == (201, 201, 201)
    assert first.json() == again.json() == late.json()
    assert [one.status_code for one in others] == [409, 409]
    assert all("has an answer already" in one.json()["error"]["message"] for one in others)
    assert late_other.status_code == 404
    assert len(lines) == 1


async def test_a_person_who_answers_over_http_answers_in_their_own_name() -> None:
    async with scene(call("ask"), "Blue it is.", tools=[asking()]) as stage:
        channel, request_id = await asked(stage, target=["helper", "dave"])
        body = {"request_id": request_id, "answer": "blue"}
        as_carol = await stage.server.post(
            f"/channels/{channel}/answers", {**body, "as": "carol"}, token="dave"
        )
        answer = await stage.server.post(f"/channels/{channel}/answers", body, token="dave")
        (line,) = [one for one in await stage.lines(channel) if one["event_type"] == "human.answered"]

    assert (as_carol.status_code, answer.status_code) == (403, 201)
    assert line["sender_id"] == stage.people["dave"].agent_id
    assert line["event_data"] == body


async def test_a_question_that_is_for_others_is_as_if_it_had_not_been_asked() -> None:
    """Dave is on the channel, and knows the request id."""
    graph = TransitionGraph("asker", [], TerminateTarget("done"))
    async with scene() as stage:
        asker = await stage.hub.register(None, Passport(name="asker"))
        knobs = {"graph": graph.to_dict()}
        opened = await stage.people["carol"].open("workflow", ["asker", "dave"], knobs)
        channel = opened.channel_id
        claim = await claim_own(asker.seat, channel, 1)
        data = {"request_id": secret_id(), "question": "Pay?", "turn": 1, "call": "", "position": 1}
        handle = Channel(asker.seat, channel, claim=claim.seq)
        await handle.send(event_type="human.requested", event_data=data, audience=["carol"])
        questions = {
            who: (await stage.data(f"/channels/{channel}", token=who))["questions"]
            for who in ("root", "carol", "dave")
        }
        body = {"answer": "yes", "as": "dave"}
        answers = [
            await stage.server.post(f"/channels/{channel}/answers", {**body, "request_id": one}, token="dave")
            for one in (data["request_id"], "0" * 32)
        ]
        stranger = await stage.server.post(
            f"/channels/{channel}/answers", {**body, "request_id": data["request_id"]}, token="onlooker"
        )
        for_dave = await stage.server.post(
            f"/channels/{channel}/answers", {**body, "request_id": data["request_id"]}
        )

    assert {who: len(found) for who, found in questions.items()} == {"root": 1, "carol": 1, "dave": 0}
    assert [one.status_code for one in answers] == [404, 404]
    assert answers[0].text.replace(str(data["request_id"]), "ID") == answers[1].text.replace("0" * 32, "ID")
    assert stranger.status_code == 403
    assert for_dave.status_code == 403  # Dave was not asked, so an admin cannot answer for him.


async def test_context_updates_of_a_packet_are_shown_to_its_audience_only() -> None:
    async with scene() as stage:
        channel = await stage.open(target=["helper", "dave"], knobs={"context_vars": {"open": 1}})
        data = {"body": "psst", "routing": {"kind": "text"}, "context_updates": {"salary": 42}}
        carol = stage.people["carol"].channel(channel)
        line = await carol.send(event_type="packet", event_data=data, audience=["helper"])
        shown = {
            who: [
                (await stage.data(path, token=who))["context_vars"]
                for path in (f"/channels/{channel}", f"/channels/{channel}/state?seq={line.seq}")
            ]
            for who in ("root", "carol", "dave")
        }
        why = await stage.server.get(f"/channels/{channel}/envelopes/{line.seq}/why", token="dave")

    whole, part = {"open": 1, "salary": 42}, {"open": 1}
    assert shown == {"root": [whole, whole], "carol": [whole, whole], "dave": [part, part]}
    assert why.status_code == 404


@tool
def look_up(name: str) -> str:
    return "canary of the result"


async def test_what_a_turn_recorded_is_shown_to_an_admin_and_to_no_other_participant() -> None:
    script = call("look_up", name="canary of the arguments"), "Done."
    async with scene(*script, tools=[look_up]) as stage:
        channel = await stage.open("Help!", target=["helper", "dave"])
        shown = {who: await stage.lines(channel, token=who) for who in ("root", "carol", "dave")}

    units = {who: [one for one in lines if one["event_type"] in UNITS] for who, lines in shown.items()}
    assert [one["event_type"] for one in units["root"]] == ["turn.model", "turn.tool"]
    assert (units["carol"], units["dave"]) == ([], [])
    assert "canary" not in str(shown["carol"]) + str(shown["dave"])
    assert "canary" in str(shown["root"])


# --- the list ---


async def test_channels_are_listed_the_newest_first_in_pages_that_fit_together() -> None:
    async with scene() as stage:
        ids = [await stage.open() for _ in range(5)]
        first = await stage.data("/channels?limit=2")
        await stage.people["carol"].channel(ids[0]).send("what is written to stays where it is")
        await stage.open()
        await stage.server.post(f"/channels/{ids[3]}/close", {})
        second = await stage.data(f"/channels?limit=2&after={first['next']}")
        third = await stage.data(f"/channels?limit=2&after={second['next']}")

    listed = [row["channel_id"] for page in (first, second, third) for row in page["channels"]]
    assert listed == ids[::-1]
    assert third["next"] is None


async def test_the_list_is_filtered_by_what_a_channel_is_and_where_it_stands() -> None:
    def same(ctx: dict[str, object]) -> None:
        return None

    async with scene(flows=WORK, work=same) as stage:
        run = (await stage.server.post("/work", {})).headers["x-run-id"]
        closed = await stage.open(labels={"desk": "north"})
        await stage.server.post(f"/channels/{closed}/close", {"reason": "done"})
        talk = (await stage.people["carol"].open(type="conversation", target="dave")).channel_id

        async def ids(query: str) -> list[str]:
            return [row["channel_id"] for row in (await stage.data(f"/channels?{query}"))["channels"]]

        assert await ids("kind=run") == [run]
        assert await ids("kind=channel") == [talk, closed]
        assert await ids("status=open") == await ids("status=active") == [talk]
        assert await ids("status=closed&kind=channel") == [closed]
        assert await ids("type=conversation") == [talk]
        assert await ids("participant=dave") == [talk]
        assert await ids("flow=work") == [run]
        assert await ids("text=NORTH") == [closed]
        assert await ids("text=north+nowhere") == []
        assert (await stage.server.get("/channels?status=lost")).status_code == 422


# --- who may see what ---


@pytest.mark.parametrize("path", LOOK)
async def test_whoever_is_not_on_a_channel_is_told_what_they_are_told_of_none(path: str) -> None:
    async with scene() as stage:
        channel = await stage.open()
        member = await stage.server.get(f"/channels/{channel}{path}", token="onlooker")
        nobody = await stage.server.get(f"/channels/nowhere{path}", token="onlooker")

    assert (member.status_code, nobody.status_code) == (404, 404)
    assert member.text == nobody.text.replace("nowhere", channel)


@pytest.mark.parametrize("path", LOOK)
async def test_without_the_scope_it_is_403_whether_there_is_a_channel_or_not(path: str) -> None:
    async with scene() as stage:
        channel = await stage.open()
        answers = [
            await stage.server.get(f"/channels/{one}{path}", token="reader") for one in (channel, "nowhere")
        ]

    assert [one.status_code for one in answers] == [403, 403]


async def test_a_member_is_listed_its_own_channels_and_an_operator_all() -> None:
    async with scene() as stage:
        hers = await stage.open()
        theirs = (await stage.people["carol"].open(type="conversation", target="dave")).channel_id

        async def ids(token: str) -> set[str]:
            return {row["channel_id"] for row in (await stage.data("/channels", token=token))["channels"]}

        assert await ids("carol") == await ids("root") == {hers, theirs}
        assert await ids("dave") == {theirs}
        assert await ids("onlooker") == set()


async def test_a_member_is_shown_only_what_is_for_it() -> None:
    async with scene("Yes.") as stage:
        channel = await stage.open("Help!", target=["helper", "dave"])
        handle = stage.people["carol"].channel(channel)
        await handle.send("between us", audience=["helper"], interject=True)
        whole = await stage.lines(channel)
        seen = await stage.lines(channel, token="dave")
        found = (await stage.data("/channels/search?text=between", token="dave"))["found"]

    types = {one["event_type"] for one in whole}
    assert "turn.claimed" in types
    assert any("between us" in str(one) for one in whole)
    assert not any("between us" in str(one) for one in seen)
    assert "turn.claimed" not in {one["event_type"] for one in seen}
    assert found == []


async def test_f2_what_a_run_keeps_for_itself_is_in_no_line_no_state_and_no_list() -> None:
    def work(ctx: dict[str, object]) -> dict[str, object]:
        ctx["_canary"] = "kept inside"
        return {"seen": "outside"}

    async with scene(flows=WORK, work=work) as stage:
        run = (await stage.server.post("/work", {"n": 1})).headers["x-run-id"]
        paths = ["", "/envelopes", "/state", "/state?seq=2", "/usage", "/envelopes/3/why"]
        texts = [(await stage.server.get(f"/channels/{run}{path}")).text for path in paths]
        texts.append((await stage.server.get("/channels")).text)
        texts.append((await stage.server.get("/channels/search?text=inside")).text)
        private = (await stage.hub.state(run)).private_vars

    assert private["_canary"] == "kept inside"
    assert any("outside" in text for text in texts)
    assert not any("kept inside" in text or "_user_id" in text for text in texts)


async def test_why_names_the_rule_that_decided_and_only_to_whom_the_line_is_shown() -> None:
    async with scene("Yes.") as stage:
        channel = await stage.open("Help!", target=["helper", "dave"])
        said = next(one for one in await stage.lines(channel) if one["event_type"] == "packet")
        claim = next(one for one in await stage.lines(channel) if one["event_type"] == "turn.claimed")
        why = await stage.data(f"/channels/{channel}/envelopes/{said['seq']}/why", token="dave")
        hidden = await stage.server.get(f"/channels/{channel}/envelopes/{claim['seq']}/why", token="dave")

    decided = [rule for rule in why["rules"] if rule.get("decided")]
    assert [rule["index"] for rule in decided] == [1]
    assert hidden.status_code == 404


async def test_a_user_whose_id_is_the_name_of_an_agent_is_not_that_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a user called `flows` would see every run."""
    for name in ("flows", "helper"):
        monkeypatch.setitem(PEOPLE, name, person(name, "channels:read", "channels:write"))
    async with scene("Yes.", flows=WORK, work=lambda ctx: None) as stage:
        channel = await stage.open("Help!")
        run = (await stage.server.post("/work", {}, Prefer="respond-async")).json()["data"]["run_id"]
        listed = {name: await stage.data("/channels", token=name) for name in ("flows", "helper")}
        answers = [
            (await stage.server.get(f"/channels/{one}{path}", token=name)).status_code
            for one, name in ((run, "flows"), (channel, "helper"))
            for path in LOOK
        ]

    assert [one["channels"] for one in listed.values()] == [[], []]
    assert set(answers) == {404}


async def test_a_channel_tells_why_its_last_turn_failed() -> None:
    async with scene(ValueError("no key")) as stage:
        talk = await stage.people["carol"].open("conversation", "helper", message="hello?")
        await stage.until(talk.channel_id, lambda state: state.is_resting)
        mine = await stage.data(f"/channels/{talk.channel_id}", token="carol")
        resting = await stage.data("/channels?status=resting")
        waiting = await stage.data("/channels?status=waiting")

    assert "no key" in mine["error"]["message"]
    assert (mine["error"]["speaker"], mine["waiting_for"]["reason"]) == ("helper", "message")
    assert [one["channel_id"] for one in resting["channels"]] == [talk.channel_id]
    assert waiting["channels"] == []


async def test_the_children_of_a_run_are_listed_with_their_errors_the_latest_first() -> None:
    flow = """
metadata: {name: work}
spec: {steps: [{id: each, for_each: {items: '[1, 2, 3]', into: out, steps: [{id: only, runner: work}]}}]}
"""

    def work(ctx: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"item {ctx['item']} is bad")

    async with scene(flows=flow, work=work) as stage:
        runs = stage.server.runtime.runs
        run_id = await runs.start("work", {})
        await runs.wait(run_id)
        told = await stage.data(f"/channels/{run_id}")
        below = await stage.data(f"/channels/{run_id}/children?limit=1")
        run = await stage.data(f"/runs/{run_id}")
        child = await stage.data(f"/channels/{run['children'][0]}")

    assert (told["children"], below["count"], len(below["channels"])) == (3, 3, 1)
    assert "item 3 is bad" in below["channels"][0]["error"]["message"]
    assert "is bad" in told["error"]["message"]
    assert (run["children_count"], child["parent_id"]) == (3, run_id)


async def test_children_that_a_caller_may_not_see_are_not_listed() -> None:
    async with scene("Yes.") as stage:
        channel = await stage.open("Help!")
        request = OpenRequest(type="conversation", target=["helper"], message="psst", parent_id=channel)
        await stage.hub.open_channel(request, stage.people["dave"].agent_id)
        whole = await stage.data(f"/channels/{channel}/children")
        mine = await stage.data(f"/channels/{channel}/children", token="carol")
        hidden = await stage.server.get(f"/channels/{channel}/children", token="dave")

    assert (len(whole["channels"]), mine["channels"]) == (1, [])
    assert hidden.status_code == 404
