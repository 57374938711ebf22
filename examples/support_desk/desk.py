"""The support desk, in one command: a complaint, two agents, a supervisor in the studio, a refund."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from turnline import TurnlineError
from turnline.flow.project import load_project
from turnline.network import EV_PACKET
from turnline.server.app import create_app
from turnline.server.auth.api_keys import ApiKey, ApiKeys, new_api_key
from turnline.server.runtime import Runtime, runtime_of
from turnline.server.serving import bind

HERE = Path(__file__).parent
COMPLAINT = {"order": 1042, "text": "I was charged twice."}


async def main(options: argparse.Namespace) -> None:
    if options.live:
        os.environ["TURNLINE_MODEL"] = options.live
    runtime = runtime_of(load_project(HERE), log_address=options.log)
    async with runtime, studio(runtime, options.port) as address:
        print(f"The studio: {address}\n\ncustomer: {COMPLAINT['text']}", flush=True)
        run_id = await runtime.runs.start("complaint", COMPLAINT)
        verdict = await runtime.runs.wait(run_id)
        await tell_conversation(runtime, run_id)
        if verdict.status == "waiting":
            await ask_supervisor(runtime, run_id, options.answer)
            while await runtime.hub.wait_beyond(run_id, (await runtime.runs.state(run_id)).seq):
                pass
            verdict = await runtime.runs.verdict(run_id)
        print(f"{verdict.status}: {json.dumps(verdict.data)}", flush=True)
        if options.answer is None:
            print("Look around in the studio; Ctrl-C ends it.", flush=True)
            await asyncio.Event().wait()


@asynccontextmanager
async def studio(runtime: Runtime, port: int) -> AsyncIterator[str]:
    """Serve the project beside this program; give the studio's address, signed in."""
    key = new_api_key()
    keys = ApiKeys({"sam": ApiKey.of(key, scopes=["*"], groups=["supervisors"])})
    app = create_app(runtime, authenticator=keys, title="Support desk")
    with bind("127.0.0.1", port) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/studio#token={key}"
        finally:
            server.should_exit = True
            await serving


async def tell_conversation(runtime: Runtime, run_id: str) -> None:
    """Print what the agents said on the channel below the run."""
    for channel in await runtime.hub.list_channels():
        if channel.parent_id == run_id:
            names = {one: runtime.hub.participant(one).name for one in channel.participants}
            for line in await runtime.hub.read_wal(channel.channel_id):
                if line.event_type == EV_PACKET:
                    print(f"{names[line.sender_id]}: {line.event_data['body']}", flush=True)


async def ask_supervisor(runtime: Runtime, run_id: str, answer: str | None) -> None:
    """Say what waits for a person; with an answer on the command line, give it."""
    [task] = [one for one in await runtime.tasks.list() if one.run_id == run_id]
    print(f"a supervisor is asked: {task.title}", flush=True)
    if answer is None:
        print("Answer it in the studio, under Tasks.", flush=True)
        return
    print(f"sam: {answer}", flush=True)
    await runtime.tasks.answer(task.task_id, {"approved": answer == "yes"}, by="sam")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", metavar="MODEL", help="ask a real model: anthropic:claude-sonnet-4-6")
    parser.add_argument("--answer", choices=["yes", "no"], help="answer for the supervisor, and end")
    parser.add_argument("--port", type=int, default=8484, help="0 takes a free one")
    parser.add_argument("--log", help="sqlite:///path; without it, .turnline/log.db beside this file")
    try:
        asyncio.run(main(parser.parse_args()))
    except KeyboardInterrupt:
        print("closed.")
    except TurnlineError as error:
        sys.exit(str(error))
