"""`functional`: a Python function, `@node("name")` (F3).

    return ctx                the changes, deletions included
    return {...}              merged
    return "signal"           the signal
    return ctx, "signal"      both
    return None               `default`

The context is a mutable dictionary: what a node changes in it counts, however it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.errors import BadDraft, BadReturn, MissingContextKey, UnknownName
from turnline.flow.context import difference, is_private, public
from turnline.flow.definition.steps import FunctionalStep
from turnline.flow.work import DEFAULT, LIVE_KEYS, Done, Node, Work
from turnline.threads import in_thread


class _Ctx(dict[str, Any]):
    """What a node is given: a dictionary that says what it has when it is asked for what it has not."""

    def __missing__(self, key: str) -> Any:
        raise MissingContextKey(key, public(self))


async def perform(work: Work[FunctionalStep]) -> Done:
    """Call the node with the run's context, and return what it changed."""
    runner = work.step.runner
    node = work.services.nodes.get(runner)
    if node is None:
        raise UnknownName("node", runner, work.services.nodes)
    data = work.services.data
    versions: Mapping[str, str] = work.private.get("_context_model_versions") or {}
    unit = None if data is None else data.begin(work.flow.spec.context.models, versions)
    ctx = _Ctx(normalised({**work.public, **work.private}, field="ctx"))
    if unit is not None:
        ctx |= {"_session": unit.session, "_db": unit.db}
    try:
        signal = _taken(ctx, await _called(node, ctx), runner)
        updates, deletes = difference(work.public, public(ctx))
        private, private_deletes = difference(work.private, _kept(ctx))
    except BaseException:
        if unit is not None:
            await unit.close()
        raise
    return Done(
        signal=signal,
        updates=updates,
        deletes=deletes,
        private=private,
        private_deletes=private_deletes,
        commit=unit,
    )


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
