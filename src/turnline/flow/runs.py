"""Runs: start them, wait for them, answer, wake, cancel and retry them.

What a server or a command line calls. Everything it tells is computed from the
runs' channels, so it is the same on every process and after every restart.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from turnline.agent.files import File
from turnline.agent.timeouts import within
from turnline.core import event_types as ev
from turnline.core.channel import ChannelFilter, ChannelRow
from turnline.core.envelope import Envelope, JsonObject
from turnline.core.json import normalised, size_of
from turnline.core.lifecycle import CANCELLED
from turnline.core.parts import FilePart
from turnline.core.questions import find
from turnline.core.state import CHILDREN, EVENT, PERSON, STUCK, USER_KEY, Question, State, WorkflowState
from turnline.errors import (
    BadDraft,
    BadSpec,
    ChannelPruned,
    ChannelQuarantined,
    NotDue,
    NotStuck,
    Refused,
    RunConflict,
    RunNotWaiting,
    UnknownChannel,
    UnknownName,
    UnknownRun,
)
from turnline.flow.context import from_outside
from turnline.flow.definition.flow import Flow, digest
from turnline.flow.driver import Driver
from turnline.flow.files import add_files, input_files
from turnline.flow.run import RunKnob, first_private, is_run, request_for, run_knob
from turnline.flow.verdict import (
    FILTERS,
    LISTED,
    RunError,
    RunStatus,
    Verdict,
    row_status,
    stuck_error,
    verdict,
)
from turnline.log.walks import EVERY, narrow, read_page
from turnline.threads import off_the_loop
from turnline.turns.files import describe

RETRY_OF: Final = "retry_of"
"""The label of a run that continues another one: that one's id."""
MOST_STUCK: Final = 500
"""Stuck channels that a page of runs goes up from."""


class ListedRun(Struct, frozen=True):
    """A run in a list."""

    row: ChannelRow
    status: RunStatus
    error: RunError | None


class RunPage(Struct, frozen=True):
    """Some runs, the newest first."""

    runs: list[ListedRun]
    next: str | None
    """What the next page comes after; None at the end."""


class Runs:
    """The runs on one log, as seen through one driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._hub = driver.hub

    @property
    def driver(self) -> Driver:
        """The driver through which they are seen."""
        return self._driver

    @property
    def flows(self) -> Mapping[str, Flow]:
        return self._driver.services.flows

    async def start(
        self,
        flow: str | Flow,
        input: Mapping[str, Any],
        *,
        run_id: str | None = None,
        user_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        files: Sequence[FilePart] | None = None,
        held_id: str = "",
    ) -> str:
        """Start a run and return its id; with `run_id`, start it once.

        A field of the input that is a file is a `File`, or what `add_file` returned for this `run_id`.
        `files` are what the run begins with; without it, those of the input. A replay has none.
        With a `held_id` (see there) the run has this id and may not be recorded yet.
        Keys of `input` that start with `_` are dropped and audited (F1). Raises `RunConflict` if there is a
        run of that id that began with something else.
        """
        flow = self._flow(flow) if isinstance(flow, str) else flow
        new_id = run_id or held_id or self._hub.new_id()
        kept = await add_files(flow, input, partial(self.add_file, new_id, user=user_id or ""))
        given, dropped = from_outside(kept)
        pins = {one.name: await self._driver.definitions.keep(one) for one in self._reachable(flow)}
        knob = RunKnob(
            name=flow.name,
            digest=pins[flow.name],
            pins=pins,
            private=first_private(flow, user_id),
            input=_digest(given),
        )
        context = {**flow.spec.context.defaults, **given}
        files = input_files(flow, given) if files is None else files
        request_id = new_id if files else run_id or held_id or None
        request = request_for(flow, knob, context, run_id=request_id, labels=labels, files=files)
        with _named_input():
            name = await self._driver.open(request, can_hold=bool(held_id) and not files)
        self._driver.note_dropped(name, "body", dropped)
        if run_id is not None:
            began = run_knob((await self._hub.entry_for_work(run_id)).tip)
            if began is None or (began.name, began.input) != (knob.name, knob.input):
                raise RunConflict(
                    run_id, because="was started with another flow or input; choose another id or key"
                )
        return name

    async def add_file(
        self, run_id: str, file: File, *, pieces: AsyncIterable[bytes] | None = None, user: str = ""
    ) -> FilePart:
        """Keep a file for the input of a run that is started under this id just after.

        `pieces` are its bytes, if the file itself has none. It counts for `user`. Raises `BadDraft`; then
        nothing is kept.
        """
        part = describe(file)
        bytes_ = file.pieces() if pieces is None else pieces
        by = self._driver.agent_id
        blob = await self._hub.files.add_before(run_id, by, bytes_, user)
        return replace(part, size=blob.size, digest=blob.digest)

    async def state(self, run_id: str) -> WorkflowState:
        """Return what the run's channel adds up to. Raises `UnknownRun` for what is no run."""
        try:
            state = await self._hub.state(run_id)
        except ChannelPruned as error:
            raise UnknownRun(run_id) from error
        except (UnknownChannel, ChannelQuarantined):
            raise UnknownRun(run_id) from None
        is_ours = state.creator_id == self._driver.agent_id and is_run(state)
        if not is_ours or not isinstance(state, WorkflowState):
            raise UnknownRun(run_id)
        return state

    async def definition(self, run_id: str) -> Flow:
        """Return the definition that the run began with, and finishes on (F8)."""
        knob = run_knob(await self.state(run_id))
        assert knob is not None  # `state` has seen it.
        return await self._driver.definitions.get(knob.digest)

    async def verdict(self, run_id: str) -> Verdict:
        return await self.verdict_of(await self.state(run_id))

    async def verdict_of(self, state: WorkflowState) -> Verdict:
        """Return where the run stands. One that waits for a stuck run below it is stuck as well (N3)."""
        stuck = await self._stuck_below(state)
        if not stuck or state.is_stuck:
            return verdict(state)
        return Verdict(status="stuck", data=verdict(state).data, error=stuck_error(stuck[0]))

    async def wait(self, run_id: str, *, timeout: float | None = None) -> Verdict:
        """Return the verdict once the run is over, or waits for somebody or for longer than `timeout`.

        Raises `TimeoutError` if neither comes about in time; the run goes on.
        """
        patience = None if timeout is None else self._hub.clock.monotonic() + timeout
        bell = self._driver.bell(run_id)
        async with within(timeout, f"run {run_id!r} is neither over nor waiting", "; it goes on."):
            while True:
                seen = bell.rung
                if not self._hub.is_held(run_id):  # Otherwise a performer works; the bell says when it ends.
                    state = await self.state(run_id)
                    if state.is_over or await self._waits(state, patience):
                        return await self.verdict_of(state)
                await bell.wait(seen)

    def held_id(self, flow: Flow) -> str:
        """Return an id to start a run under that is recorded later; empty if the flow records each step.

        Whoever starts the run tells nobody of it before `wait` returns or it has called `record`.
        """
        return self._hub.new_id() if flow.spec.durability == "end" else ""

    async def record(self, run_id: str) -> None:
        """Record what is held of a run. Raises `LogUnavailable`; then the run is not on the log."""
        await self._hub.record(run_id)

    async def page(
        self, where: ChannelFilter = EVERY, *, status: str = "", after: str = "", limit: int = 50
    ) -> RunPage:
        """Return top-level runs, the newest first: all, or those of a filter and a status.

        The index answers (Y7). Only failed and stuck runs that are listed are read, to say why. `after` is
        the `next` of the page before. Raises `BadQuery`, and `UnknownName` for a status that there is not.
        """
        if status not in FILTERS:
            raise UnknownName("status", status, LISTED)

        is_over = bool(FILTERS[status].is_closed)
        above = frozenset[str]() if is_over else await self.list_above_stuck()

        async def fits(row: ChannelRow) -> bool:
            is_ours = row.creator_id == self._driver.agent_id
            return is_ours and (is_over or status in ("", await self._status_of(row, above)))

        page = await read_page(
            self._hub.lines, narrow(where, FILTERS[status]), after=after, limit=limit, fits=fits
        )
        return RunPage([await self.listed(row, above) for row in page.rows], page.next)

    async def listed(self, row: ChannelRow, above_stuck: Collection[str] | None) -> ListedRun:
        """Return what a list shows of a run. For `above_stuck` see `list_above_stuck`."""
        status, error = await self._status_of(row, above_stuck), None
        if status in ("failed", "stuck"):
            error = RunError(type=row.close_code or status, message="", step=row.last_speaker_id or None)
            with suppress(UnknownRun):
                error = (await self.verdict(row.channel_id)).error
        return ListedRun(row, status, error)

    async def lines(self, run_id: str, *, after: int = 0) -> list[Envelope]:
        """Return the run's lines behind `after`. They hold private keys; `flow.events` shows them."""
        await self.state(run_id)
        return await self._hub.read_recent(run_id, after)

    async def wait_beyond(self, run_id: str, seq: int) -> bool:
        return await self._hub.wait_beyond(run_id, seq)

    async def cancel(self, run_id: str, *, by: str = "") -> None:
        """Close the run and its whole tree. Raises `RunConflict` if it is over."""
        state = await self.state(run_id)
        if state.is_over:
            raise RunConflict(run_id, because="is over")
        await self._hub.tree.end(run_id, reason=CANCELLED, by=by or "operator")

    async def retry(self, run_id: str, *, step: str | None = None, user_id: str | None = None) -> str:
        """Resume a stuck run, or start one that continues from a step of a run that is over.

        Returns the id of the run that continues: the same one if it, or a run below it, was stuck. Without
        `step`, it continues from the last step. Raises `UnknownName` for a step the run never came to, and
        `PastErased` if content of the run was erased.

        A new run is of the user who retries. A run that resumes stays of the user who started it.
        A new run of a run without secrets gets none: it has that run's data.
        """
        state = await self.state(run_id)
        stuck = await self._stuck_below(state) if step is None else []
        for one in stuck:
            with suppress(NotStuck, NotDue):  # Another operator was faster.
                await self._hub.turns.retry(one.channel_id)
        if stuck:
            return run_id
        knob = run_knob(state)
        if not state.is_over or knob is None:
            raise RunConflict(run_id, because="is not over; wait for its end, or cancel it first")
        if state.spec.parent_id is not None:
            top = await self._hub.tree.top(run_id)
            raise RunConflict(run_id, because=f"is part of the run {top!r}; retry that one")
        state.check_complete()
        flow = await self._driver.definitions.get(knob.digest)
        before = await self._before(state, step)
        private = {key: value for key, value in before.private_vars.items() if key != USER_KEY}
        private |= {} if user_id is None else {USER_KEY: user_id}
        is_untrusted = not await self._driver.is_trusted(state)
        knob = replace(knob, private=private, retry_of=run_id, is_untrusted=is_untrusted)
        start = before.expected_next_speaker or ""
        labels = {**state.spec.labels, RETRY_OF: run_id}
        new_id, files = self._hub.new_id(), state.spec.files
        for index in range(len(files)):  # A new run is the top of a tree of its own.
            file = await self._driver.read_file(run_id, index)
            await self.add_file(new_id, file, user=user_id or "")
        request = request_for(
            flow, knob, before.context_vars, run_id=new_id, labels=labels, start=start, files=files
        )
        return await self._driver.open(request)

    async def page_to_retry(
        self, where: ChannelFilter, *, status: str, after: str = "", limit: int = 50
    ) -> RunPage:
        """Return the runs of a page that a retry of many takes. It can be given again: each is taken once.

        A run that was cancelled is meant to be over. It is taken only for the status `cancelled`.
        """

        async def is_taken(run: ListedRun) -> bool:
            if run.row.close_code == CANCELLED != status:
                return False
            retried = ChannelFilter(labels={RETRY_OF: run.row.channel_id})
            return not await self._hub.lines.rows(retried, limit=1)

        page = await self.page(where, status=status, after=after, limit=limit)
        return replace(page, runs=[one for one in page.runs if await is_taken(one)])

    async def post_event(self, run_id: str, event: str, data: Mapping[str, Any]) -> None:
        """Wake a run that waits for this event. Raises `RunNotWaiting` if it does not."""
        state = await self.state(run_id)
        pause = state.pause
        if pause is None or pause.reason != EVENT or pause.key != event:
            raise RunNotWaiting(run_id, what=f"the event {event!r}")
        given, dropped = await _let_in(data, field="data")
        self._driver.note_dropped(run_id, "event", dropped)
        told = {"pause": pause.seq, "event": event, "data": given}
        try:
            await self._hub.write(run_id, ev.EV_TURN_RESUMED, told)
        except Refused:
            raise RunNotWaiting(run_id, what=f"the event {event!r}") from None

    # Inside.

    def _flow(self, name: str) -> Flow:
        if name not in self.flows:
            raise UnknownName("flow", name, self.flows)
        return self.flows[name]

    def _reachable(self, flow: Flow) -> Sequence[Flow]:
        """The flow, and those its steps can start: what has to be pinned with it (F8)."""
        found, left = {flow.name: flow}, [flow]
        while left:
            for name in left.pop().flows_used():
                if name in self.flows and name not in found:
                    found[name] = self.flows[name]
                    left.append(found[name])
        return list(found.values())

    async def _stuck_below(self, state: WorkflowState) -> list[WorkflowState]:
        """Return the stuck runs among this one and those that it waits for."""
        if state.is_stuck:
            return [state]
        if state.pause is None:
            return []
        found: list[WorkflowState] = []
        for child in state.pause.children:
            with suppress(UnknownRun):
                found += await self._stuck_below(await self.state(child))
        return found

    async def list_above_stuck(self) -> set[str] | None:
        """Return the channels above stuck ones, going up from those. A page asks for them once.

        None if there are more than MOST_STUCK: then each run that waits for others is read when it is listed.
        """
        lines, found = self._hub.lines, set[str]()
        where = ChannelFilter(waiting_for=[STUCK], is_closed=False)
        stuck = await lines.rows(where, limit=MOST_STUCK + 1)
        if len(stuck) > MOST_STUCK:
            return None
        for one in stuck:
            row: ChannelRow | None = one
            while row is not None and row.parent_id and row.parent_id not in found:
                found.add(row.parent_id)
                row = await lines.row(row.parent_id)
        return found

    async def _status_of(self, row: ChannelRow, above_stuck: Collection[str] | None) -> RunStatus:
        """Return where a run stands. It is read only if a channel below it may be stuck."""
        status = row_status(row)
        is_above = above_stuck is None or row.channel_id in above_stuck
        if status != "waiting" or not row.waits_for_children or not is_above:
            return status
        with suppress(UnknownRun):
            return (await self.verdict(row.channel_id)).status
        return status

    async def _waits(self, state: State, patience: float | None, above: Sequence[State] = ()) -> bool:
        """Return whether the run waits for a person or an event, or for longer than a caller does.

        `above` are the runs above it that the caller came from, the top one first.
        """
        pause = state.pause
        if pause is None or pause.questions:
            asked = await self.open_questions(state)
            return any(_is_asked(question, state, above) for question, _ in asked)
        if pause.reason == CHILDREN:
            below = [await self._hub.state(one) for one in pause.children]
            chain = (*above, state)
            waiting = [await self._waits(one, patience, chain) for one in below if not one.is_over]
            return bool(waiting) and all(waiting)
        if pause.reason in (PERSON, EVENT, STUCK):
            return True
        if pause.until is None or patience is None:
            return False
        left = await self._hub.seconds_left(state.channel_id)
        return left > patience - self._hub.clock.monotonic()

    async def open_questions(self, state: State) -> list[tuple[Question, Envelope]]:
        """Return the questions of the turn in progress that may be answered, with the lines that ask."""
        asked = {one.seq: one for one in state.questions.values() if not one.answer_seq}
        if not asked:
            return []
        for due in await self._hub.list_due(
            state.channel_id
        ):  # Its time is over; the log says so in a moment.
            expired = state.questions.get(str(due.event_data.get("question")))
            asked.pop(0 if expired is None else expired.seq, None)
        lines = await self._hub.read_recent(state.channel_id, min(asked, default=state.seq + 1) - 1)
        return [(asked[line.seq], line) for line in lines if line.seq in asked]

    async def _before(self, state: State, step: str | None) -> State:
        """The run's state when a step was last given the floor."""
        adapter = self._hub.adapter(state.spec.type)
        found: State | None = None
        then: State = adapter.initial(state.spec)
        for line in await self._hub.read_wal(state.channel_id):
            then = adapter.fold(then, line)
            floor = then.expected_next_speaker or ""
            gives_floor = then.floor_seq == line.seq or line.event_type == ev.EV_CHANNEL_FORKED
            if gives_floor and floor and step in (None, floor):
                found = then
        if found is None:
            raise UnknownName("step", str(step), [one.name for one in state.spec.participants])
        return found


def _is_asked(question: Question, state: State, above: Sequence[State]) -> bool:
    """Return whether people are asked this now. A question that goes up is asked above, and answered there.

    The hub copies the answer down in a moment. So the channel above decides.
    """
    if question.answer_seq or not question.goes_up or not above:
        return not question.answer_seq
    *rest, parent = above
    relayed = find(parent, call=state.channel_id, position=question.seq)
    return relayed is not None and _is_asked(relayed[1], parent, rest)


async def _let_in(data: Mapping[str, Any], *, field: str) -> tuple[JsonObject, list[str]]:
    """Return data from outside as it reads back, and the reserved keys that were dropped (F1)."""
    plain = dict(data)
    checked = await off_the_loop(partial(normalised, field=field), plain, size=size_of(plain))
    return from_outside(checked)


def _digest(given: JsonObject) -> str:
    """Return what stands for the input. Raises `BadDraft` for what cannot be JSON; `open` checks the rest."""
    try:
        return digest(given)
    except (TypeError, ValueError, RecursionError, OverflowError):
        normalised(given, field="input")
        raise


@contextmanager
def _named_input() -> Iterator[None]:
    """Within this, an error of the input says so, and not where the channel of the run has it."""
    try:
        yield
    except BadSpec as error:
        field = error.field.removeprefix("knobs.context_vars")
        if field == error.field:
            raise
        raise BadDraft(f"input{field}", found=error.found, expected=error.expected) from None
