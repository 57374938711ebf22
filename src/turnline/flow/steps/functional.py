"""`functional`: a Python function, `@node("name")` (F3).

    return ctx                the changes, deletions included
    return {...}              merged
    return "signal"           the signal
    return ctx, "signal"      both
    return None               `default`

The context is a mutable dictionary: what a node changes in it counts, however it returns.
`_session` and `_db` are in the context of every flow. In a project without data models the database
is opened when a node first asks for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.errors import BadDraft, BadReturn, MissingContextKey, NoDatabase, UnknownName
from turnline.flow.context import difference, is_private, public
from turnline.flow.definition.steps import FunctionalStep
from turnline.flow.work import DEFAULT, LIVE_KEYS, Done, Node, UnitOfWork, Work
from turnline.threads import in_thread


class _Ctx(dict[str, Any]):
    """What a node is given: a dictionary that says what it has when it is asked for what it has not."""

    def __init__(self, values: JsonObject, begin: Callable[[str], UnitOfWork]) -> None:
        super().__init__(values)
        self._begin = begin
        self.unit: UnitOfWork | None = None
        """The step's database work, once there is any."""

    def open_unit(self, key: str) -> None:
        """Begin the unit of work, and put its handles into the context. `key` is what asked for it."""
        self.unit = self._begin(key)
        self.update(_session=self.unit.session, _db=self.unit.db)

    def __missing__(self, key: str) -> Any:
        if key not in LIVE_KEYS:
            raise MissingContextKey(key, public(self))
        if self.unit is None:  # Otherwise the node has taken it out itself.
            self.open_unit(key)
        assert self.unit is not None
        return self.unit.session if key == "_session" else self.unit.db

    def __contains__(self, key: object) -> bool:
        return key in LIVE_KEYS or super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in LIVE_KEYS else super().get(key, default)


async def perform(work: Work[FunctionalStep]) -> Done:
    """Call the node with the run's context, and return what it changed."""
    runner = work.step.runner
    node = work.services.nodes.get(runner)
    if node is None:
        raise UnknownName("node", runner, work.services.nodes)
    ctx = _Ctx(normalised({**work.public, **work.private}, field="ctx"), partial(_begin, work))
    if work.services.data is not None and work.services.data.is_open:
        ctx.open_unit("_db")
    try:
        signal = _taken(ctx, await _called(node, ctx), runner)
        updates, deletes = difference(work.public, public(ctx))
        private, private_deletes = difference(work.private, _kept(ctx))
    except BaseException:
        if ctx.unit is not None:
            await ctx.unit.close()
        raise
    return Done(
        signal=signal,
        updates=updates,
        deletes=deletes,
        private=private,
        private_deletes=private_deletes,
        commit=ctx.unit,
    )


def _begin(work: Work[FunctionalStep], key: str) -> UnitOfWork:
    """Return a unit of work for the step. Raises `NoDatabase` for the key that asked for it."""
    data, what = work.services.data, f"ctx[{key!r}] cannot be used"
    versions: Mapping[str, str] = work.private.get("_context_model_versions") or {}
    if data is None:
        raise NoDatabase(what, log="not a database")
    try:
        return data.begin(work.flow.spec.context.models, versions)
    except NoDatabase as error:
        raise NoDatabase(what, log=error.log) from None


async def _called(node: Node, ctx: dict[str, Any]) -> object:
    if iscoroutinefunction(node):
        return await node(ctx)
    # A plain function may well block; it must not hold up everybody else.
    answer = await in_thread(node, ctx)
    return await answer if isawaitable(answer) else answer


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


def _kept(ctx: Mapping[str, Any]) -> JsonObject:
    """The private keys that are kept for the run: handles never are, and neither is what is not JSON."""
    return {
        key: value
        for key, value in ctx.items()
        if is_private(key) and key not in LIVE_KEYS and _is_json(value)
    }


def _is_json(value: object) -> bool:
    try:
        normalised({"value": value})
    except BadDraft:
        return False
    return True
