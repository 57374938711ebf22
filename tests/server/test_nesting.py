"""A flow that calls itself on two branches: the server survives it, also when it is killed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from .test_serve import Served, project, serving

MOST = 150
GROWN = 40
"""So many channels are there when it is killed or cancelled: it is still growing."""
FLOWS = f"""
kind: Workflow
metadata: {{name: grow}}
spec:
  trigger: {{path: /grow, async: true}}
  limits: {{max_runs: {MOST}, max_depth: 64}}
  steps:
    - id: both
      parallel:
        branches:
          left: [{{id: l, workflow: {{name: grow}}}}]
          right: [{{id: r, workflow: {{name: grow}}}}]
"""


def client_of(served: Served) -> httpx2.AsyncClient:
    return served.client(Authorization=f"Bearer {served.key}")


async def channels(client: httpx2.AsyncClient, status: str = "") -> int:
    """How many channels are there, as far as a page shows them."""
    answer = await client.get("/channels", params={"limit": 200} | ({"status": status} if status else {}))
    return len(answer.json()["data"]["channels"])


async def ended(client: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    while True:
        run: dict[str, Any] = (await client.get(f"/runs/{run_id}")).json()["data"]
        if run["status"] in ("failed", "succeeded"):
            return run


async def test_a_server_killed_while_a_run_grows_is_ready_again_and_ends_the_run(tmp_path: Path) -> None:
    folder = project(tmp_path, FLOWS)
    async with serving(folder, "--dev") as served:
        async with client_of(served) as client:
            started = await client.post("/grow", json={})
            run_id = started.json()["data"]["run_id"]
            while await channels(client) < GROWN:
                pass
        served.process.kill()
        await served.process.wait()
    async with serving(folder, "--dev") as served, client_of(served) as client:
        ready = await client.get("/ready")
        run = await ended(client, run_id)
        left = await channels(client, "active")

    assert (ready.status_code, run["status"]) == (200, "failed")
    assert f"{MOST} runs" in run["error"]["message"]
    assert left == 0


async def test_a_run_that_grows_is_cancelled_with_all_that_is_below(tmp_path: Path) -> None:
    folder = project(tmp_path, FLOWS.replace(f"max_runs: {MOST}", "max_runs: 100000"))
    async with serving(folder, "--dev") as served, client_of(served) as client:
        started = await client.post("/grow", json={})
        run_id = started.json()["data"]["run_id"]
        while await channels(client) < GROWN:
            pass
        cancelled = await client.post(f"/runs/{run_id}/cancel")
        while await channels(client, "active"):
            pass  # Those that were on their way when it was cancelled.
        at_rest = await channels(client)
        ready = await client.get("/ready")

        assert (cancelled.status_code, ready.status_code) == (200, 200)
        assert await channels(client) == at_rest
