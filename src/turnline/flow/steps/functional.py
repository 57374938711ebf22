"""`functional`: a Python function, `@node("name")` (F3).

    return ctx                the changes, deletions included
    return {...}              merged
    return "signal"           the signal
    return ctx, "signal"      both
    return None               `default`

The context is a mutable dictionary: what a node changes in it counts, however it returns.
`_session`, `_db`, `_once` and `_read_file` are in the context of every flow. In a project without data models
the database is opened when a node first asks for one of the first two. A pure node gets none of the first
three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from turnline.agent.context import Once
from turnline.core.envelope import JsonObject
from turnline.core.json import copied, normalised, size_of
from turnline.errors import (
    BadDraft,
    BadReturn,
    MissingContextKey,
    NoDatabase,
    NodeNotPure,
    UnknownName,
)
from turnline.flow.context import difference, is_private, is_same, public
from turnline.flow.definition.steps import FunctionalStep
from turnline.flow.files import ReadFile
from turnline.flow.node import is_pure
from turnline.flow.once import OnceRows, rows_inside, run_once
from turnline.flow.work import DEFAULT, LIVE_KEYS, StepResult, StepWork, UnitOfWork
from turnline.threads import call_user, off_the_loop


class _Ctx(dict[str, Any]):
    """What a node is given: a dictionary that says what it has when it is asked for what it has not."""

    def __init__(self, values: JsonObject, work: StepWork[FunctionalStep], *, is_pure: bool) -> None:
        super().__init__(values)
        self._pure_node = work.step.runner if is_pure else ""
        self._begin = partial(_begin, work)
        self._callables = {"_once": Once(partial(_once, work, self)), "_read_file": ReadFile(work.files)}
        self.unit: UnitOfWork | None = None
        """The step's database work, once there is any."""

    def open_unit(self, key: str) -> None:
        """Begin the unit of work, and put its handles into the context. `key` is what asked for it."""
        self.unit = self._begin(key)
        self.update(_session=self.unit.session, _db=self.unit.db)

    def __getitem__(self, key: str) -> Any:
        if key in _DATABASE_KEYS and (rows := rows_inside()) is not None:
            return _handle(rows.open_unit(), key)
        return super().__getitem__(key)

    def __missing__(self, key: str) -> Any:
        if self._pure_node and key in LIVE_KEYS - {"_read_file"}:
            raise NodeNotPure(self._pure_node, key=key)
        if key in self._callables:  # No item: a context without a database can be written as JSON.
            return self._callables[key]
        if key not in LIVE_KEYS:
            raise MissingContextKey(key, public(self))
        if self.unit is None:  # Otherwise the node has taken it out itself.
            self.open_unit(key)
        assert self.unit is not None
        return _handle(self.unit, key)

    def __contains__(self, key: object) -> bool:
        return (key in LIVE_KEYS and not self._pure_node) or super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in LIVE_KEYS else super().get(key, default)


_DATABASE_KEYS: Final = frozenset({"_session", "_db"})


def _handle(unit: UnitOfWork, key: str) -> Any:
    return unit.session if key == "_session" else unit.db


async def perform(work: StepWork[FunctionalStep]) -> StepResult:
    """Call the node with the run's context, and return what it changed."""
    runner = work.step.runner
    node = work.services.nodes.get(runner)
    if node is None:
        raise UnknownName("node", runner, work.services.nodes)
    ctx = _Ctx(copied({**work.public, **work.private}), work, is_pure=is_pure(node))
    if work.services.data is not None and work.services.data.is_open and not is_pure(node):
        ctx.open_unit("_db")
    try:
        signal = _taken(ctx, await call_user(node, ctx), runner)
        after = public(ctx)
        updates, deletes = await off_the_loop(partial(difference, work.public), after, size=size_of(after))
        private, private_deletes = difference(work.private, _kept(work.private, ctx))
    except BaseException:
        if ctx.unit is not None:
            await ctx.unit.close()
        raise
    return StepResult(
        signal=signal,
        updates=updates,
        deletes=deletes,
        private=private,
        private_deletes=private_deletes,
        commit=ctx.unit,
    )


def _begin(work: StepWork[FunctionalStep], key: str) -> UnitOfWork:
    """Return a unit of work for the step. Raises `NoDatabase` for the key that asked for it."""
    data, what = work.services.data, f"ctx[{key!r}] cannot be used"
    versions: Mapping[str, str] = work.private.get("_context_model_versions") or {}
    if data is None:
        raise NoDatabase(what, log="not a database")
    try:
        return data.begin(work.flow.spec.context.models, versions)
    except NoDatabase as error:
        raise NoDatabase(what, log=error.log) from None


async def _once(work: StepWork[FunctionalStep], ctx: _Ctx, key: str, fn: Callable[[], Any]) -> Any:
    """Run a function of the node once in the turn, with database work of its own (N4)."""
    data, around = work.services.data, rows_inside()
    rows = OnceRows(key, partial(_begin, work, "_db"), lambda: data is not None and data.shares_log)
    outer = (lambda: ctx.unit) if around is None else (lambda: around.unit)
    return await run_once(work.journal, key, fn, rows=rows, outer=outer)


def _taken(ctx: dict[str, Any], answer: object, runner: str) -> str:
    """Merge what a node returned into `ctx`, and return the signal."""
    match answer:
        case None:
            return DEFAULT
        case str():
            return answer
        case Mapping():
            ctx.update(answer)
            return DEFAULT
        case (Mapping() as changed, str() as signal):
            ctx.update(changed)
            return signal
    raise BadReturn(runner, found=type(answer).__name__)


def _kept(before: JsonObject, ctx: Mapping[str, Any]) -> JsonObject:
    """The private keys that are kept for the run: handles never are, and neither is what is not JSON."""
    return {
        key: value
        for key, value in ctx.items()
        if is_private(key)
        and key not in LIVE_KEYS
        and ((key in before and is_same(before[key], value)) or _is_json(value))
    }


def _is_json(value: object) -> bool:
    try:
        normalised({"value": value})
    except BadDraft:
        return False
    return True
