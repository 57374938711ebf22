"""One verb for the runs or channels of a page, over HTTP: each by itself, and only what the caller may."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from turnline.core.envelope import JsonObject
from turnline.hub.request import OpenRequest
from turnline.server.auth.principal import Bound

from .channels.scene import scene
from .stage import Server, known, person, served

WORK = "{metadata: {name: work}, spec: {trigger: {path: /work}, steps: [{id: only, runner: work}]}}"
ASK = """
metadata: {name: ask}
spec: {trigger: {path: /ask}, steps: [{id: ask, human: {title: Well?, form: {ok: {type: boolean}}}}]}
"""
Ctx = dict[str, Any]


class Work:
    """A step that fails until it is mended."""

    is_mended = False

    def __call__(self, ctx: Ctx) -> Ctx:
        if not self.is_mended:
            raise ValueError("no disk")
        return {"worked": True}


async def start(server: Server, path: str, **given: Any) -> str:
    return str((await server.post(path, given)).headers["x-run-id"])


async def done(server: Server, path: str, token: str = "root") -> JsonObject:
    answer = await server.post(path, {}, token=token)
    assert answer.status_code == 200, answer.text
    found: JsonObject = answer.json()["data"]
    return found


async def test_failed_runs_are_retried_page_by_page_and_each_once() -> None:
    work = Work()
    async with served(WORK, ASK, work=work) as server:
        failed = [await start(server, "/work") for _ in range(3)]
        work.is_mended = True
        path = "/runs/retry?status=failed&flow=work&limit=2"
        first = await done(server, path)
        second = await done(server, f"{path}&after={first['next']}")
        again = await done(server, path)
        ended = [await server.ended(one["run_id"]) for one in (*first["runs"], *second["runs"])]

    assert [one["id"] for one in (*first["runs"], *second["runs"])] == failed[::-1]
    assert {one["result"] for one in first["runs"]} == {"retried"}
    assert {(one["status"], one["labels"]["retry_of"]) for one in ended} == {
        ("succeeded", one) for one in failed
    }
    assert (second["next"], again["runs"]) == (None, [])


async def test_cancelled_runs_are_retried_only_if_they_are_asked_for() -> None:
    async with served(WORK, ASK, work=Work()) as server:
        failed, asked = await start(server, "/work"), await start(server, "/ask")
        await done(server, "/runs/cancel?status=waiting")
        listed = (await server.get("/runs?status=cancelled")).json()["data"]["runs"]
        first = await done(server, "/runs/retry?status=failed")
        second = await done(server, "/runs/retry?status=cancelled")

    assert [(one["run_id"], one["status"]) for one in listed] == [(asked, "failed")]
    assert [one["id"] for one in first["runs"]] == [failed]
    assert [one["id"] for one in second["runs"]] == [asked]


async def test_waiting_runs_are_cancelled_and_other_runs_are_not() -> None:
    async with served(WORK, ASK, work=Work()) as server:
        failed = await start(server, "/work")
        asked = [await start(server, "/ask") for _ in range(2)]
        found = await done(server, "/runs/cancel?status=waiting&flow=ask")
        again = await done(server, "/runs/cancel?status=waiting&flow=ask")
        runs = (await server.get("/runs")).json()["data"]["runs"]

    assert found == {"runs": [{"id": one, "result": "cancelled"} for one in asked[::-1]], "next": None}
    assert again["runs"] == []
    errors = {one["run_id"]: one["error"]["type"] for one in runs}
    assert errors == {failed: "error", **dict.fromkeys(asked, "cancelled")}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/cancel", 422),
        ("/runs/cancel?flow=ask", 422),
        ("/runs/cancel?status=failed", 422),
        ("/runs/retry?status=succeeded", 422),
        ("/runs/retry?status=failed&limit=0", 422),
        ("/runs/retry?status=failed&state=x", 422),
        ("/runs/retry?status=failed&after=x", 400),
        ("/channels/close", 422),
        ("/channels/close?status=closed", 422),
        ("/channels/close?kind=channel", 422),
    ],
)
async def test_a_verb_for_many_needs_a_status_and_good_filters(path: str, status: int) -> None:
    async with served(ASK) as server:
        asked = await start(server, "/ask")
        answer = await server.post(path, {})
        run = (await server.get(f"/runs/{asked}")).json()["data"]

    assert (answer.status_code, run["status"]) == (status, "waiting")


async def test_a_caller_without_the_scopes_changes_nothing() -> None:
    people = {"writer": person("writer", "runs:write", "runs:start:*")}
    with known(**people):
        async with served(ASK) as server:
            await start(server, "/ask")
            paths = ("/runs/cancel?status=waiting", "/runs/retry?status=failed")
            found = [
                (await server.post(path, {}, token=token)).status_code
                for path in paths
                for token in ("reader", "writer", "ann")
            ]
            left = (await server.get("/runs?status=waiting")).json()["data"]["runs"]

    assert (found, len(left)) == ([403] * 6, 1)


async def test_rights_are_checked_for_each_run() -> None:
    """A caller who may start one flow retries the failed runs of that one."""
    work, other = Work(), WORK.replace("work}, spec", "other}, spec").replace("/work", "/other")
    eve = person("eve", "runs:read", "runs:write", "runs:start:other")
    with known(eve=eve):
        async with served(WORK, other, work=work) as server:
            theirs, hers = await start(server, "/work"), await start(server, "/other")
            work.is_mended = True
            found = (await done(server, "/runs/retry?status=failed", token="eve"))["runs"]
            retried = await server.ended(found[0]["run_id"])

    assert [one["id"] for one in found] == [hers, theirs]
    assert retried["labels"]["retry_of"] == hers
    assert (found[1]["error"]["type"], "run_id" in found[1]) == ("forbidden", False)


async def test_a_token_that_was_narrowed_to_some_runs_changes_no_page() -> None:
    eve = person("eve", "runs:*")
    with known(eve=replace(eve, bounds=(Bound("resource", ("r1",)),))):
        async with served(ASK) as server:
            await start(server, "/ask")
            answer = await server.post("/runs/cancel?status=waiting", {}, token="eve")

    assert answer.status_code == 403


async def test_a_retry_of_many_ends_at_the_callers_quota_and_can_be_given_again() -> None:
    eve = person("eve", "runs:*")
    with known(eve=eve):
        async with served(ASK, quotas={"open_runs_per_user": 2}) as server:
            for token in ("root", "root", "eve"):
                await server.post("/ask", {}, token=token)
            await done(server, "/runs/cancel?status=waiting")
            found = (await done(server, "/runs/retry?status=cancelled", token="eve"))["runs"]
            left = (await done(server, "/runs/retry?status=cancelled"))["runs"]

    assert sorted(one.get("result", one.get("error", {}).get("type")) for one in found) == [
        "retried",
        "retried",
        "too_many_requests",
    ]
    assert [one["result"] for one in left] == ["retried"]


async def test_channels_of_a_page_are_closed_if_the_caller_is_on_them() -> None:
    async with scene() as stage:
        hers = [await stage.open() for _ in range(2)]
        others = (await stage.people["dave"].open(type="conversation", target="helper")).channel_id
        under = OpenRequest(type="conversation", target=["dave"], parent_id=hers[0])
        below = await stage.people["carol"].seat.open(under)
        looked = await stage.server.post("/channels/close?status=open", {}, token="onlooker")
        answer = await stage.server.post("/channels/close?status=open", {"reason": "stale"}, token="carol")
        rows = {one.channel_id: one.close_code for one in await stage.hub.list_channels()}

    assert looked.status_code == 403
    found = answer.json()["data"]
    assert found == {"channels": [{"id": one, "result": "closed"} for one in hers[::-1]], "next": None}
    assert (rows[hers[0]], rows[hers[1]], rows[others]) == ("stale", "stale", "")
    assert rows[below] != ""


async def test_a_run_is_not_closed_as_a_channel() -> None:
    async with served(ASK) as server:
        asked = await start(server, "/ask")
        found = await done(server, "/channels/close?status=open")
        run = (await server.get(f"/runs/{asked}")).json()["data"]

    assert (found["channels"], run["status"]) == ([], "waiting")
