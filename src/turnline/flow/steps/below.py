"""The children of a step: opened in order, so many at a time, waited for, read.

Rule 1: they are opened in the order of their places. So those that exist are the first
ones, also after a crash between two of them.

Rule 2: a pause notes how far they are. So being woken costs the children that are open,
not all that ever were. The note is a short cut: without it, the same is read from them.

Rule 3: with `on_error: fail`, nothing is opened behind a child that failed, and the step
fails when the last open one has closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from turnline.core.envelope import JsonObject
from turnline.core.state import WorkflowState
from turnline.errors import ChildFailed, UnknownChannel
from turnline.flow.context import difference, from_outside, public
from turnline.flow.definition.steps import OnError
from turnline.flow.pauses import last_note
from turnline.flow.verdict import RunError, verdict
from turnline.flow.work import Children, Paused, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Brood:
    """The children a step wants, one at each place."""

    places: Sequence[str]
    open_one: Callable[[int], Awaitable[None]]
    call: Callable[[int], str]
    """What an error calls a child."""
    at_once: int
    on_error: OnError = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a brood is. Children are counted as their places are listed."""

    opened: int = 0
    open: tuple[int, ...] = ()
    """Those that are not known to have closed."""
    failed: int | None = None
    """The first that failed."""

    def to_open(self, count: int, *, at_once: int, on_error: OnError) -> range:
        """Return which of `count` children to open now."""
        if self.failed is not None and on_error == "fail":
            return range(0)
        room = max(at_once - len(self.open), 0)
        return range(self.opened, min(self.opened + room, count))

    def with_opened(self, which: range) -> Progress:
        return replace(self, opened=self.opened + len(which), open=(*self.open, *which))

    def with_seen(self, index: int, state: WorkflowState) -> Progress:
        """What it is once a child has been looked at that was opened before."""
        if not state.is_over:
            return replace(self, open=(*self.open, index))
        if verdict(state).status == "failed":
            return replace(self, failed=index if self.failed is None else min(self.failed, index))
        return self


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a child that has closed leaves behind."""

    data: JsonObject
    """Its response, or else what its steps wrote."""
    error: RunError | None = None

    def as_data(self) -> JsonObject:
        """As a step has it that collects: a child that failed is a result like any other."""
        if self.error is None:
            return self.data
        return {"error": {"type": self.error.type, "message": self.error.message, "step": self.error.step}}


async def brought_up(work: Work[Any], brood: Brood) -> Paused | None:
    """Open what is to be opened. Return the pause until a child has closed; None when all have.

    Raises `ChildFailed` for the first that failed, if that fails the step.
    """
    progress = await _seen(work, brood.places)
    due = progress.to_open(len(brood.places), at_once=brood.at_once, on_error=brood.on_error)
    for index in due:
        await brood.open_one(index)
    progress = progress.with_opened(due)
    if progress.open:
        return _pause(progress, brood.places)
    if progress.failed is not None and brood.on_error == "fail":
        raise await _failure(work.children, brood, progress.failed)
    return None


async def outcome(
    work: Work[Any], place: str, began: JsonObject, besides: Collection[str | None] = ()
) -> Outcome:
    """Return what a child of inner steps leaves behind that `began` with this context.

    The keys in `besides` are the child's own, and no result of what it wrote.
    """
    state = await run_at(work.children, place)
    found = verdict(state)
    if found.error is not None:
        return Outcome({}, found.error)
    if isinstance(state.private_vars.get("_response"), dict):
        return Outcome(let_in(work, found.data))
    written, _ = difference(began, public(state.context_vars))
    return Outcome({key: value for key, value in written.items() if key not in besides})


async def run_at(children: Children, place: str) -> WorkflowState:
    """Return the state of a run that was opened at this place."""
    state = await children.state(place)
    if state is None:
        raise UnknownChannel(place)
    return cast("WorkflowState", state)  # A run is a workflow channel.


def let_in(work: Work[Any], data: JsonObject) -> JsonObject:
    """Return what of a child's data may go into the context (F1)."""
    ours, dropped = from_outside(data)
    if dropped:
        work.dropped(work.step.kind, dropped)
    return ours


def wait_for(places: Iterable[str], **notes: int) -> Paused:
    """The pause until one of these children has closed: its data lists them as `open`."""
    return Paused(reason="children", data={"open": list(places), **notes})


async def _seen(work: Work[Any], places: Sequence[str]) -> Progress:
    """How far the children are: those that were open when the step paused, and any opened since."""
    noted = _noted(last_note(work.history, "children"), places)
    progress = replace(noted, open=())
    for index in noted.open:
        progress = progress.with_seen(index, await run_at(work.children, places[index]))
    for index in range(noted.opened, len(places)):
        state = await work.children.state(places[index])
        if state is None:
            break
        progress = replace(progress, opened=index + 1).with_seen(index, cast("WorkflowState", state))
    return progress


async def _failure(children: Children, brood: Brood, index: int) -> ChildFailed:
    error = verdict(await run_at(children, brood.places[index])).error
    assert error is not None  # It was seen to have failed, and what has closed does not change.
    return ChildFailed(brood.call(index), error_type=error.type, message=error.message, step=error.step)


def _noted(note: JsonObject, places: Sequence[str]) -> Progress:
    if not note:
        return Progress()
    at = {place: index for index, place in enumerate(places)}
    still_open = tuple(at[place] for place in note["open"])
    return Progress(opened=note["opened"], open=still_open, failed=note.get("failed"))


def _pause(progress: Progress, places: Sequence[str]) -> Paused:
    failed = {} if progress.failed is None else {"failed": progress.failed}
    return wait_for((places[one] for one in progress.open), opened=progress.opened, **failed)
