"""Lists over HTTP: by the index, for whom they are for, and with no question that nothing reads (Y7)."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.hub.scenes import CountingLog
from tests.logs import OpenLog
from turnline.core.channel import ChannelFilter, ChannelRow, ChannelState
from turnline.core.lifecycle import CANCELLED
from turnline.core.state import STUCK
from turnline.hub.request import OpenRequest
from turnline.log.memory import MemoryLog
from turnline.server.channels.facts import Facts
from turnline.testing.lines import NOON, add_channel, row

from .channels.scene import scene
from .stage import Server, known, person, served

WORK = "{metadata: {name: work}, spec: {trigger: {path: /work}, steps: [{id: only, runner: work}]}}"
ASK = """
metadata: {name: ask}
spec: {trigger: {path: /ask}, steps: [{id: ask, human: {title: Well?, form: {ok: {type: boolean}}}}]}
"""
ASKS = "{metadata: {name: asks}, spec: {trigger: {path: /asks}, steps: [{id: go, workflow: {name: ask}}]}}"
Ctx = dict[str, Any]


def work(ctx: Ctx) -> Ctx:
    if ctx.get("fails"):
        raise ValueError("no disk")
    return {"worked": True}


class WatchedLog(CountingLog):
    """Counts what is read, and keeps what the index was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[ChannelFilter, int]] = []

    async def rows(
        self, where: ChannelFilter, *, after: ChannelRow | None = None, limit: int
    ) -> list[ChannelRow]:
        found = await super().rows(where, after=after, limit=limit)
        self.asked.append((where, len(found)))
        return found

    async def load_snapshot(self, channel_id: str) -> tuple[int, bytes] | None:
        self.reads[channel_id] += 1
        return await super().load_snapshot(channel_id)

    def forget(self) -> None:
        self.read_of.clear()
        self.reads.clear()
        self.asked.clear()


async def start(server: Server, path: str = "/work", **given: Any) -> str:
    answer = await server.post(path, given)
    return str(answer.headers["x-run-id"])


async def ids(server: Server, path: str, *, token: str = "root") -> list[str]:
    answer = await server.get(path, token=token)
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    return [one.get("run_id") or one["channel_id"] for one in data.get("runs") or data.get("channels") or []]


async def test_a_page_reads_no_channel_that_it_does_not_show() -> None:
    log = WatchedLog()
    async with served(WORK, log=lambda: log, work=work) as server:
        old = [await start(server, fails=n % 2 == 0) for n in range(6)]
        new = [await start(server) for _ in range(2)]
    async with served(WORK, log=lambda: log, work=work) as server:
        log.forget()
        runs = await ids(server, "/runs?limit=2")
        read_by_runs = set(log.reads)
        channels = await ids(server, "/channels?limit=2")
        failed = await ids(server, "/runs?status=failed&limit=1")

    assert runs == channels == new[::-1]
    assert read_by_runs == set()
    assert failed == [old[4]]
    assert set(log.reads) == {*new, old[4]}
    assert {log.read_of[one] for one in new} == {1}


async def test_a_page_of_few_costs_the_index_what_it_shows() -> None:
    log = WatchedLog()
    for n in range(300):
        over: dict[str, Any] = {
            "status": ChannelState.CLOSED,
            "closed_at": NOON,
            "seq": 2,
            "close_code": "done",
        }
        await add_channel(log, row(f"c{n:03}", participants=["nobody"], **over))
    async with scene(log=lambda: log) as stage:
        hers = [await stage.open() for _ in range(3)]
        log.forget()
        listed = await ids(stage.server, "/channels?limit=2", token="carol")
        asked = [*log.asked]
        found = await ids(stage.server, "/channels/search?text=none", token="carol")
        searched = await stage.data("/channels?text=nobody", token="carol")
        await ids(stage.server, "/channels?participant=nobody&label=k=v", token="carol")
        carol = stage.people["carol"].agent_id

    assert (listed, found, searched["channels"], searched["next"]) == (hers[:0:-1], [], [], None)
    assert sum(count for _, count in asked) <= 3
    assert all(where.participants == [carol] for where, _ in log.asked)
    assert not any(name.startswith("c") and name[1:].isdigit() for name in log.reads)


async def test_a_user_with_the_name_of_an_agent_costs_the_index_nothing() -> None:
    log = WatchedLog()
    with known(helper=person("helper", "channels:read")):
        async with scene(log=lambda: log) as stage:
            await stage.open()
            log.forget()

            assert await ids(stage.server, "/channels", token="helper") == []
            assert log.asked == []


async def test_what_a_caller_may_not_see_shows_in_no_page_and_in_no_next() -> None:
    async with scene() as stage:
        await stage.open()
        both = (await stage.people["carol"].open(type="conversation", target="dave")).channel_id
        for _ in range(5):
            await stage.open()
        page = await stage.data("/channels?limit=1", token="dave")
        none = await stage.data("/channels?participant=helper", token="dave")
        nobody = await stage.data("/channels?limit=1", token="onlooker")
        of_hers = await stage.data("/channels?participant=carol", token="dave")

    assert ([one["channel_id"] for one in page["channels"]], page["next"]) == ([both], None)
    assert none == nobody == {"channels": [], "next": None}
    assert [one["channel_id"] for one in of_hers["channels"]] == [both]


async def test_runs_are_filtered_by_status_time_label_participant_and_flow(open_log: OpenLog) -> None:
    async with served(WORK, ASK, log=open_log, work=work) as server:
        done = await start(server)
        failed = await start(server, fails=True)
        waits = (await server.post("/ask", {})).headers["x-run-id"]
        gone = (await server.post("/ask", {})).headers["x-run-id"]
        await server.post(f"/runs/{gone}/cancel", {})
        again = (await server.post(f"/runs/{failed}/retry", {})).json()["data"]["run_id"]
        await server.ended(again)

        for query, expected in {
            "status=succeeded": {done},
            "status=failed": {failed, gone, again},
            "status=waiting": {waits},
            "status=running": set(),
            "status=stuck": set(),
            "status=failed&flow=work": {failed, again},
            "flow=ask": {waits, gone},
            f"label=retry_of={failed}": {again},
            f"label=flow=work&label=retry_of={failed}": {again},
            "participant=flows": {done, failed, waits, gone, again},
            "participant=ask": {waits, gone},
            "participant=nobody": set(),
            "since=2030-01-01T12:00:00Z": {done, failed, waits, gone, again},
            "since=2031-01-01": set(),
            "until=2030-01-01T12:00:00Z": set(),
            "until=2031-01-01&status=waiting": {waits},
        }.items():
            assert set(await ids(server, f"/runs?{query}")) == expected, query
        row = next(one for one in (await server.get("/runs")).json()["data"]["runs"] if one["run_id"] == gone)
        waiting = (await server.get("/runs?status=waiting")).json()["data"]["runs"][0]

    assert (row["status"], row["error"]["type"]) == ("failed", CANCELLED)
    assert (waiting["step"], waiting["waiting_for"], waiting["error"]) == ("ask", {"reason": "person"}, None)


@pytest.mark.parametrize(
    ("path", "asks"), [("/runs", 1), ("/channels?kind=run", 1), ("/runs?status=failed", 0)]
)
async def test_a_page_asks_once_for_what_is_above_stuck_channels(path: str, asks: int) -> None:
    log = WatchedLog()
    async with served(ASK, ASKS, log=lambda: log) as server:
        above = [(await server.post("/asks", {})).headers["x-run-id"] for _ in range(4)]
        log.forget()
        found = await ids(server, path)

    assert found == (above[::-1] if asks else [])
    assert len([where for where, _ in log.asked if where.waiting_for == [STUCK]]) == asks


async def test_a_failed_run_in_a_list_says_why_and_nothing_private() -> None:
    async with served(WORK, work=work) as server:
        await start(server, fails=True)
        answer = await server.get("/runs")

    (one,) = answer.json()["data"]["runs"]
    assert one["error"] == {"type": "error", "message": "no disk", "step": "only"}
    assert one["step"] == "only"
    assert "_" not in "".join(one["labels"])
    assert "user_id" not in answer.text


async def test_a_channel_of_others_that_says_it_is_a_run_is_in_no_list_of_runs() -> None:
    log = MemoryLog()
    await add_channel(log, row("r1", flow="work", creator_id="eve", participants=["eve"]))
    async with served(WORK, log=lambda: log, work=work) as server:
        mine = await start(server)

        assert await ids(server, "/runs") == [mine]


async def test_open_runs_count_after_a_restart_without_being_read() -> None:
    log = WatchedLog()
    async with served(ASK, log=lambda: log) as server:
        run_id = (await server.post("/ask", {}, token="ann")).headers["x-run-id"]
    log.forget()
    async with served(ASK, log=lambda: log, quotas={"open_runs_per_user": 1}) as server:
        refused = await server.post("/ask", {}, token="ann")
        read = log.read_of[run_id]
        other = await server.post("/ask", {}, token="root")

    assert (refused.status_code, other.status_code) == (429, 202)
    assert read == 0


async def test_tasks_are_listed_without_reading_other_runs() -> None:
    log = WatchedLog()
    async with served(ASK, WORK, log=lambda: log, work=work) as server:
        done, asks = await start(server), await start(server, "/ask")
    async with served(ASK, WORK, log=lambda: log, work=work) as server:
        log.forget()
        tasks = (await server.get("/tasks")).json()["data"]["tasks"]

    assert [one["run_id"] for one in tasks] == [asks]
    assert log.reads[done] == 0


async def test_what_was_erased_is_gone_from_the_list_at_once() -> None:
    async with scene() as stage:
        channel = await stage.open("the canary")
        before = await stage.server.get("/channels")
        await stage.server.post(f"/channels/{channel}/close", {})
        await stage.server.get("/channels")
        erased = await stage.server.post(f"/channels/{channel}/erase", {})
        after = await stage.server.get("/channels")

    assert erased.status_code == 200
    assert "the canary" in before.text
    assert "the canary" not in after.text
    assert channel in after.text


async def test_what_was_erased_is_gone_from_forks_in_the_list_and_from_memory() -> None:
    async with scene() as stage:
        channel = await stage.open("the canary")
        fork = await stage.hub.fork(channel, at=(await stage.hub.state(channel)).seq)
        for one in (channel, fork):
            await stage.server.post(f"/channels/{one}/close", {})
        before = await stage.server.get("/channels?text=canary")
        assert (await stage.server.post(f"/channels/{channel}/erase", {})).status_code == 200
        kept = [one for one in gc.get_objects() if type(one) is Facts and one.channel_id == fork]
        after = await stage.server.get("/channels")

    assert fork in before.text
    assert kept == []
    assert "the canary" not in after.text
    assert fork in after.text


async def test_closing_a_channel_closes_what_is_open_below_it() -> None:
    async with scene() as stage:
        parent = await stage.open()
        below = OpenRequest(type="conversation", target=["dave"], parent_id=parent)
        child = await stage.hub.open_channel(below, stage.people["carol"].agent_id)
        await stage.server.post(f"/channels/{parent}/close", {})

        assert (await stage.hub.state(child)).is_over


# --- questions that nothing reads ---


async def test_every_operation_refuses_a_parameter_that_it_does_not_know() -> None:
    async with served(WORK, work=work) as server:
        paths = (await server.get("/openapi.json")).json()["paths"]
        refused = {
            f"{method} {path}": await server.client.request(
                method.upper(), f"{path.replace('{', '').replace('}', '')}?statsu=failed"
            )
            for path, operations in paths.items()
            for method in operations
            if path != "/work"
        }

    assert len(refused) > 20
    for name, answer in refused.items():
        assert answer.status_code == 422, name
        assert answer.json()["error"]["problems"][0]["loc"] == ["query", "statsu"], name


async def test_the_refusal_names_the_parameters_that_are_known() -> None:
    async with served(WORK, work=work) as server:
        unknown = (await server.get("/runs?statsu=failed&limit=2")).json()["error"]["message"]
        twice = (await server.get("/runs?status=failed&status=stuck")).json()["error"]["message"]
        labels = await server.get("/runs?label=a=1&label=b=2")

    known = "status, since, until, label, participant, flow, after, limit"
    assert unknown == f"query.statsu: no such parameter; expected one of {known}"
    assert twice == "query.status: it is given more than once"
    assert labels.status_code == 200


async def test_a_trigger_checks_its_own_query() -> None:
    flow = WORK.replace("path: /work", "path: /work, method: GET")
    async with served(flow, work=work) as server:
        answer = await server.get("/work?anything=goes")

    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/runs", "/channels"])
async def test_channels_that_were_created_at_the_same_time_are_listed_once_each(path: str) -> None:
    """The clock stands still, so all of them were."""
    async with served(WORK, work=work) as server:
        there = [await start(server) for _ in range(5)]
        found = list[str]()
        after: str | None = ""
        while after is not None:
            data = (await server.get(f"{path}?limit=2{after}")).json()["data"]
            found += [one.get("run_id") or one["channel_id"] for one in data.get("runs") or data["channels"]]
            after = None if data["next"] is None else f"&after={data['next']}"

    assert found == there[::-1]
