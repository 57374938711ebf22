"""`durability: end`: what is recorded when, what repeats, and who sees what before."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.flow.http_server import Answer, HttpServer
from tests.flow.stage import Stage, flows_of, stage
from turnline.agent.scripted import ScriptedModel
from turnline.client.embedded import Hub
from turnline.core import event_types as ev
from turnline.core.channel import ChannelRow
from turnline.core.envelope import Envelope
from turnline.errors import EraseRefused, LogUnavailable, UnknownChannel
from turnline.flow.driver import Driver
from turnline.flow.node import is_pure, names_of, node
from turnline.flow.runs import Runs
from turnline.flow.verdict import Verdict
from turnline.flow.work import Services
from turnline.hub.posting import HELD_BYTES, HELD_SECONDS
from turnline.log.memory import MemoryLog
from turnline.testing.manual_clock import ManualClock


class CountedLog(MemoryLog):
    """Notes the appends to runs. Some of them fail, before or after they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[list[str]] = []
        self.refuse = 0
        """So many appends to runs fail from now on."""
        self.is_written = False
        """Whether what fails is on the log all the same: only its answer is lost."""

    async def append(
        self, channel_id: str, envelopes: Sequence[Envelope], *, after: int, row: ChannelRow | None = None
    ) -> None:
        is_run = not channel_id.startswith("_")
        fails, self.refuse = is_run and self.refuse > 0, self.refuse - is_run
        if not fails or self.is_written:
            await super().append(channel_id, envelopes, after=after, row=row)
            if is_run:
                self.appends.append([one.event_type for one in envelopes])
        if fails:
            raise LogUnavailable(self.address, because="the disk is full")


class Nodes:
    """Nodes that count their calls. `gate` waits until the test opens it."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.at_gate = asyncio.Event()
        self.opened = asyncio.Event()

    def pure(self, name: str, **changes: Any) -> Any:
        @node(name, pure=True)
        def compute(ctx: dict[str, Any]) -> dict[str, Any]:
            self.calls[name] += 1
            return {name: self.calls[name], **changes}

        return compute

    def gate(self) -> Any:
        @node("gate", pure=True)
        async def wait(ctx: dict[str, Any]) -> None:
            self.calls["gate"] += 1
            self.at_gate.set()
            await self.opened.wait()

        return wait

    @property
    def all(self) -> dict[str, Any]:
        return {"a": self.pure("a"), "b": self.pure("b"), "gate": self.gate(), "c": self.pure("c")}


def flow(*runners: str, durability: str = "end") -> str:
    steps = ", ".join(f"{{id: {name}, runner: {name}}}" for name in runners)
    return f"{{durability: {durability}, steps: [{steps}]}}"


async def start(house: Stage) -> str:
    """Start a run as a caller does that waits for its answer."""
    return await house.runs.start("main", {}, held_id=house.runs.held_id(house.runs.flows["main"]))


async def run(house: Stage) -> Verdict:
    return await house.runs.wait(await start(house))


async def recorded(log: MemoryLog, run_id: str) -> list[str]:
    return [one.event_type for one in [line async for line in log.read(run_id)]]


async def test_two_pure_steps_are_one_append() -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("a", "b"), log=log, **nodes.all) as house:
        done = await run(house)

    assert (done.status, done.data, len(log.appends)) == ("succeeded", {"a": 1, "b": 1}, 1)


async def test_the_lines_are_the_same_as_with_durability_step() -> None:
    lines = {}
    for durability in ("step", "end"):
        async with stage(flow("a", "b", "c", durability=durability), **Nodes().all) as house:
            run_id = await start(house)
            await house.runs.wait(run_id)
            lines[durability] = [
                (one.seq, one.event_type, one.sender_id, one.decision) for one in await house.wal(run_id)
            ]
            why = await house.hub.why(run_id, len(lines[durability]) - 1)

        assert why is not None
    assert lines["end"] == lines["step"]


async def test_a_flow_that_says_nothing_is_recorded_after_each_step() -> None:
    log = CountedLog()
    async with stage("steps: [{id: a, runner: a}, {id: b, runner: b}]", log=log, **Nodes().all) as house:
        await run(house)

    assert len(log.appends) == 3


async def test_a_step_that_does_something_outside_finds_its_run_on_the_log() -> None:
    log, found = MemoryLog(), list[list[str]]()

    async def outside(ctx: dict[str, Any]) -> None:
        [run_id] = [one.channel_id for one in await log.channels() if not one.channel_id.startswith("_")]
        found.append(await recorded(log, run_id))

    nodes = Nodes().all | {"outside": outside}
    async with stage(flow("a", "outside", "b"), log=log, **nodes) as house:
        await run(house)

    assert found == [["channel.invite", "channel.opened", "turn.claimed", "packet", "turn.claimed"]]


async def test_what_a_step_did_outside_is_recorded_before_the_next_step_begins() -> None:
    log = CountedLog()
    nodes = Nodes().all | {"outside": lambda ctx: {"paid": True}}
    async with stage(flow("a", "outside", "b", "c"), log=log, **nodes) as house:
        await run(house)

    assert [len(one) for one in log.appends] == [5, 2, 4]


@pytest.mark.parametrize(
    "step",
    [
        "agent: {prompt: 'How good?'}",
        "api_call: {url: URL/lead, allow_private: true}",
        "wait: {for: 1s}",
        "for_each: {items: '[1]', as: n, into: out, steps: [{id: it, runner: b}]}",
        "parallel: {branches: {left: [{id: l, runner: b}], right: [{id: r, runner: c}]}}",
        "workflow: {name: other, into: other}",
    ],
)
async def test_each_kind_of_step_ends_as_with_durability_step(step: str) -> None:
    ends, other = {}, "{metadata: {name: other}, durability: end, steps: [{id: b, runner: b}]}"
    with HttpServer({"/lead": Answer(json={"city": "Ulm"})}) as http:
        step = step.replace("URL", http.url)
        for durability in ("step", "end"):
            main = f"{{durability: {durability}, steps: [{{id: a, runner: a}}, {{id: it, {step}}}]}}"
            services = Services(flows=flows_of(main, other), nodes=Nodes().all, model=ScriptedModel("good"))
            async with stage(services=services) as house:
                run_id = await start(house)
                running = asyncio.ensure_future(house.ended(run_id))
                while not running.done():
                    await house.pass_time(1)
                    await asyncio.sleep(0)
                ends[durability] = (await running, await house.path(run_id))

    assert ends["end"][0].status == "succeeded"
    assert ends["end"] == ends["step"]


async def test_a_run_that_pauses_is_recorded() -> None:
    log = CountedLog()
    main = (
        "{durability: end, steps: [{id: a, runner: a}, {id: ask, human: {title: ok?, form: {ok: boolean}}}]}"
    )
    async with stage(main, log=log, **Nodes().all) as house:
        done = await run(house)
        task = await house.task()
        await house.tasks.answer(task.task_id, {"ok": True}, by="ann")
        ended = await house.ended(task.run_id)

    assert (done.status, ended.status) == ("waiting", "succeeded")
    assert log.appends[0][-1] == "turn.claimed"
    assert log.appends[1][-1] == "turn.paused"


async def test_a_step_that_fails_is_retried_and_then_recorded() -> None:
    log, calls = CountedLog(), Counter[str]()

    @node(pure=True)
    def flaky(ctx: dict[str, Any]) -> dict[str, Any]:
        calls["flaky"] += 1
        if calls["flaky"] < 2:
            raise ValueError("not yet")
        return {"is_fine": True}

    main = "{durability: end, steps: [{id: flaky, runner: flaky, retry: {attempts: 2, backoff: 1s}}]}"
    async with stage(main, log=log, flaky=flaky) as house:
        run_id = await start(house)
        await house.paused(run_id, "retry")
        await house.pass_time(1)
        done = await house.ended(run_id)

    assert (done.status, calls["flaky"]) == ("succeeded", 2)


async def test_a_run_with_an_id_of_its_own_is_on_the_log_before_its_first_step() -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("gate", "a"), log=log, **nodes.all) as house:
        await house.runs.start("main", {}, run_id="key-1")
        await nodes.at_gate.wait()
        before = await recorded(log, "key-1")
        nodes.opened.set()
        await house.runs.wait("key-1")

    assert before == ["channel.invite", "channel.opened", "turn.claimed"]
    assert len(log.appends) == 2


# Who sees what.


async def test_until_it_is_recorded_no_list_and_no_other_hub_sees_the_run() -> None:
    log, nodes, heard = CountedLog(), Nodes(), list[str]()
    async with stage(flow("a", "gate"), log=log, **nodes.all) as house:
        house.hub.add_listener(lambda line: heard.append(line.event_type))
        run_id = await start(house)
        await nodes.at_gate.wait()
        listed = (await house.runs.page()).runs
        seen = (list(heard), await recorded(log, run_id))
        nodes.opened.set()
        await house.runs.wait(run_id)
        later = (await house.runs.page()).runs

    assert (listed, seen) == ([], ([], []))
    assert ([one.row.channel_id for one in later], heard[0]) == ([run_id], "channel.invite")


@pytest.mark.parametrize("what", ["state", "lines", "fork", "why", "wait", "erase"])
async def test_whatever_others_ask_of_the_run_is_answered_from_the_log(what: str) -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("a", "gate"), log=log, **nodes.all) as house:
        run_id = await start(house)
        await nodes.at_gate.wait()
        match what:
            case "state":
                assert (await house.runs.state(run_id)).context_vars == {"a": 1}
            case "lines":
                assert len(await house.hub.read_wal(run_id)) == 5
            case "fork":
                await house.hub.fork(run_id, at=3)
            case "why":
                await house.hub.why(run_id, 4)
            case "wait":
                assert await house.hub.wait_beyond(run_id, 4)
            case "erase":
                with pytest.raises(EraseRefused, match="is open"):
                    await house.hub.erase(run_id, by="ann")
        found = await recorded(log, run_id)
        nodes.opened.set()
        await house.runs.wait(run_id)

    assert found[-2:] == ["packet", "turn.claimed"]


async def test_a_run_that_is_cancelled_is_recorded_first() -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("a", "gate", "c"), log=log, **nodes.all) as house:
        run_id = await start(house)
        await nodes.at_gate.wait()
        await house.runs.cancel(run_id, by="ann")
        done = await house.ended(run_id)

    assert done.error is not None
    assert (done.error.type, nodes.calls["c"]) == ("cancelled", 0)
    assert await recorded(log, run_id) == [
        *("channel.invite", "channel.opened", "turn.claimed", "packet", "turn.claimed"),
        *("turn.abandoned", "channel.closed"),
    ]


async def test_a_stream_gets_the_lines_when_they_are_recorded() -> None:
    log, nodes, clock = CountedLog(), Nodes(), ManualClock()
    async with stage(flow("a", "gate"), log=log, clock=clock, **nodes.all) as house:
        await house.runs.start("main", {}, run_id="r")
        streaming = asyncio.ensure_future(house.hub.wait_beyond("r", 3))
        await nodes.at_gate.wait()
        seen = streaming.done()
        clock.advance(HELD_SECONDS)

        assert await streaming
        nodes.opened.set()
        await house.runs.wait("r")
    assert not seen


async def test_a_timer_of_the_run_is_kept_from_its_record_on() -> None:
    log, nodes, clock = CountedLog(), Nodes(), ManualClock()
    main = "{durability: end, limits: {timeout: 5s}, steps: [{id: gate, runner: gate}]}"
    async with stage(main, log=log, clock=clock, **nodes.all) as house:
        run_id = await start(house)
        await nodes.at_gate.wait()
        await house.pass_time(HELD_SECONDS)
        await settle()
        early = len(log.appends)
        await house.pass_time(5)
        done = await house.ended(run_id)

    assert done.error is not None
    assert (early, done.error.type) == (1, "timeout")


# The limits.


async def test_lines_are_held_for_a_second_at_most() -> None:
    log, nodes, clock = CountedLog(), Nodes(), ManualClock()
    async with stage(flow("a", "gate"), log=log, clock=clock, **nodes.all) as house:
        run_id = await start(house)
        await nodes.at_gate.wait()
        clock.advance(HELD_SECONDS - 0.01)
        await settle()
        early = len(log.appends)
        clock.advance(0.01)
        await settle()
        late = await recorded(log, run_id)
        nodes.opened.set()
        await house.runs.wait(run_id)

    assert (early, late[-2:]) == (0, ["packet", "turn.claimed"])


async def test_at_256_kb_the_lines_are_recorded() -> None:
    log = CountedLog()
    names = [f"n{number}" for number in range(6)]
    nodes = {name: Nodes().pure(name, **{f"text_{name}": "x" * (HELD_BYTES // 3)}) for name in names}
    async with stage(flow(*names), log=log, **nodes) as house:
        done = await run(house)

    assert done.status == "succeeded"
    assert [one.count("packet") for one in log.appends] == [3, 3]


async def settle() -> None:
    """Let everything on the loop come to rest."""
    for _ in range(50):
        await asyncio.sleep(0)


# The log fails.


async def test_no_answer_before_the_lines_are_on_the_log() -> None:
    log, nodes, clock = CountedLog(), Nodes(), ManualClock()
    async with stage(flow("a", "b"), log=log, clock=clock, **nodes.all) as house:
        log.refuse = 2
        running = asyncio.ensure_future(run(house))
        await settle()
        early = running.done()
        clock.advance(1)
        await settle()
        clock.advance(1)
        done = await running

    assert (early, done.status, nodes.calls) == (False, "succeeded", {"a": 1, "b": 1})
    assert sum(map(len, log.appends)) == 7


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_an_append_whose_answer_is_lost_is_not_written_twice(
    lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    log, nodes, clock = CountedLog(), Nodes(), ManualClock()
    log.is_written = True
    async with stage(flow("a", "gate", "b"), log=log, clock=clock, **nodes.all) as house:
        run_id = await start(house)
        await nodes.at_gate.wait()
        log.refuse = lost
        with pytest.raises(LogUnavailable):
            await house.runs.state(run_id)
        nodes.opened.set()
        waiting = asyncio.ensure_future(house.runs.wait(run_id))
        while not waiting.done():
            await settle()
            clock.advance(1)
        done, path = await waiting, await house.path(run_id)

    assert (done.status, path) == ("succeeded", ["a", "gate", "b"])
    assert nodes.calls == {"a": 1, "gate": 1, "b": 1}
    assert "another process" not in caplog.text


async def test_before_something_outside_the_run_waits_for_the_log() -> None:
    log, nodes, clock = CountedLog(), Nodes(), ManualClock()
    given = nodes.all | {"outside": nodes.pure("outside")}
    given["outside"] = lambda ctx, pure=given["outside"]: pure(ctx)  # Without the mark.
    async with stage(flow("a", "outside"), log=log, clock=clock, **given) as house:
        log.refuse = 1
        running = asyncio.ensure_future(run(house))
        await settle()
        early = nodes.calls["outside"]
        while not running.done():
            clock.advance(1)
            await settle()

    assert (early, nodes.calls) == (0, {"a": 1, "outside": 1})


async def test_a_hub_that_closes_records_what_it_holds() -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("a", "gate", "c"), log=log, **nodes.all) as house:
        run_id = await start(house)
        await nodes.at_gate.wait()
    nodes.opened.set()
    async with stage(flow("a", "gate", "c"), log=log, **nodes.all) as house:
        done = await house.ended(run_id)

    assert done.status == "succeeded"
    assert nodes.calls == {"a": 1, "gate": 2, "c": 1}


async def test_a_hub_that_closes_under_a_performer_records_what_it_holds() -> None:
    log, nodes = CountedLog(), Nodes()
    hub = await Hub.open(log, ttl_sweep_interval=0, clock=ManualClock())
    driver = Driver(hub, Services(flows=flows_of(flow("a", "gate")), nodes=nodes.all))
    await driver.start()
    runs = Runs(driver)
    run_id = await runs.start("main", {}, held_id=runs.held_id(runs.flows["main"]))
    await nodes.at_gate.wait()
    before = len(log.appends)
    await hub.close()

    assert (before, (await recorded(log, run_id))[-2:]) == (0, ["packet", "turn.claimed"])
    await driver.stop()


# Another process.


@asynccontextmanager
async def beside(log: MemoryLog) -> AsyncIterator[Hub]:
    """A hub of a second process on the same log, which takes no turns."""
    hub = await Hub.open(log, ttl_sweep_interval=0, clock=ManualClock(), follow=True)
    try:
        yield hub
    finally:
        await hub.close()


async def take_over(hub: Hub, run_id: str) -> None:
    """Claim the run's turn in the name of another worker, as after a lease has ended."""
    state = await hub.state(run_id)
    assert state.claim is not None
    data = {"agent_id": state.claim.agent_id, "worker": "elsewhere", "turn": state.turn}
    await hub.write(
        *(run_id, ev.EV_TURN_CLAIMED, {**data, "replaces": state.claim.seq, "heard": state.alive_seq}),
        audience=[],
    )


async def test_a_run_that_another_process_cancels_stays_cancelled() -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("a", "gate", "c"), log=log, **nodes.all) as house, beside(log) as other:
        await house.runs.start("main", {}, run_id="r")
        await nodes.at_gate.wait()
        await other.tree.end("r", reason="cancelled", by="ann")
        nodes.opened.set()
        done = await house.ended("r")

    assert done.error is not None
    assert (done.error.type, done.data, nodes.calls["c"]) == ("cancelled", {}, 0)
    assert (await recorded(log, "r"))[3:] == ["turn.abandoned", "channel.closed"]


async def test_steps_that_another_process_did_not_see_are_performed_again() -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("a", "gate", "c"), log=log, **nodes.all) as house, beside(log) as other:
        await house.runs.start("main", {}, run_id="r")
        await nodes.at_gate.wait()
        await take_over(other, "r")
        claim = (await other.state("r")).claim
        assert claim is not None
        await other.turns.release("r", claim.seq)
        nodes.opened.set()
        done, path = await house.ended("r"), await house.path("r")

    assert (done.status, done.data) == ("succeeded", {"a": 2, "c": 1})
    assert (path, nodes.calls) == (["a", "gate", "c"], {"a": 2, "gate": 2, "c": 1})


async def test_a_packet_of_a_turn_that_was_dropped_is_refused() -> None:
    """The claims of the other worker have the numbers that lines had which were held and dropped."""
    log, seen = CountedLog(), list[int]()
    at_gate, opened = asyncio.Event(), asyncio.Event()

    @node(pure=True)
    async def again(ctx: dict[str, Any]) -> tuple[dict[str, Any], str]:
        seen.append(ctx.get("n", 0))
        if ctx.get("n"):
            at_gate.set()
            await opened.wait()
        return {"n": ctx.get("n", 0) + 1}, "again"

    main = "{durability: end, steps: [{id: again, runner: again, routes: {again: again}}]}"
    async with stage(main, log=log, again=again) as house, beside(log) as other:
        await house.runs.start("main", {}, run_id="r")
        await at_gate.wait()
        await take_over(other, "r")
        await take_over(other, "r")
        await house.runs.state("r")
        opened.set()
        await settle()
        found = await recorded(log, "r")
        await house.runs.cancel("r")
        await house.ended("r")

    assert seen == [0, 1]
    assert found == ["channel.invite", "channel.opened", *["turn.claimed"] * 3]


async def test_a_second_process_lists_and_posts_to_what_is_recorded_only() -> None:
    log, nodes = CountedLog(), Nodes()
    async with stage(flow("a", "gate"), log=log, **nodes.all) as house, beside(log) as other:
        run_id = await start(house)
        await nodes.at_gate.wait()
        listed = await other.list_channels()
        with pytest.raises(UnknownChannel):
            await other.state(run_id)
        nodes.opened.set()
        done = await house.runs.wait(run_id)

    assert (listed, done.status) == ([], "succeeded")


# Pure nodes.


@pytest.mark.parametrize("key", ["_db", "_session", "_once"])
async def test_a_pure_node_gets_neither_the_database_nor_once(key: str) -> None:
    @node(pure=True)
    def liar(ctx: dict[str, Any]) -> dict[str, Any]:
        assert key not in ctx
        return {"found": str(ctx[key])}

    async with stage(flow("liar"), liar=liar) as house:
        done = await run(house)

    assert done.error is not None
    assert f"ctx['{key}']" in done.error.message
    assert "Remove pure=True" in done.error.message


def test_the_mark_stays_with_the_function() -> None:
    @node
    def plain(ctx: dict[str, Any]) -> None: ...

    @node("named", pure=True)
    def named(ctx: dict[str, Any]) -> None: ...

    @node(pure=True)
    def bare(ctx: dict[str, Any]) -> None: ...

    assert [is_pure(one) for one in (plain, named, bare, None)] == [False, True, True, False]
    assert [names_of(one) for one in (plain, named, bare)] == [("plain",), ("named",), ("bare",)]
