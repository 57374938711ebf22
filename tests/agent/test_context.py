"""V2, V4, H1: what a tool call is given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from turnline.agent.context import Context, Once
from turnline.errors import NobodyToAsk
from turnline.threads import call_user, in_thread

CANARY = "canary-51f0c2"


def test_v2_a_context_has_the_conversations_own_dicts_and_the_key() -> None:
    variables, dependencies = {"user": "ada"}, {"db": object()}

    context = Context(variables=variables, dependencies=dependencies, idempotency_key="c1:7:1")

    assert context.variables is variables
    assert context.dependencies is dependencies
    assert context.idempotency_key == "c1:7:1"


def test_v4_the_contexts_of_two_calls_share_the_conversation() -> None:
    first = Context(extras={"channel": "c1"}, idempotency_key="1")

    second = first.for_call("2")
    first.variables["token"] = "abc"

    assert second.variables == {"token": "abc"}
    assert second.dependencies is first.dependencies
    assert second.extras == {"channel": "c1"}
    assert (first.idempotency_key, second.idempotency_key) == ("1", "2")


def test_two_contexts_share_nothing_by_default() -> None:
    first = Context()
    first.variables["token"] = first.dependencies["db"] = "abc"

    assert Context().variables == Context().dependencies == {}


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r}".format])
def test_v4_shown_it_names_keys_and_no_values(show: object) -> None:
    context = Context(
        variables={"api_key": CANARY, "nested": {"deep": [CANARY]}},
        dependencies={"db": f"postgres://{CANARY}"},
    )
    assert callable(show)

    assert CANARY not in show(context)
    assert show(context) == (
        "Context(variables={'api_key': ***, 'nested': ***}, dependencies={'db': ***}, "
        "idempotency_key='', extras=[])"
    )


async def test_h1_input_asks_the_person_it_was_given() -> None:
    asked: list[tuple[str, float | None]] = []

    async def ask_person(prompt: str, timeout: float | None) -> str:
        asked.append((prompt, timeout))
        return "yes"

    context = Context(ask_person=ask_person)

    assert await context.input("sure?", timeout=5.0) == "yes"
    assert await context.for_call("2").input("really?") == "yes"
    assert asked == [("sure?", 5.0), ("really?", None)]


async def test_h1_without_a_person_the_error_says_how_to_give_one() -> None:
    with pytest.raises(NobodyToAsk, match="hitl_hook") as raised:
        await Context(variables={"api_key": CANARY}).input(f"use {CANARY}?")

    assert CANARY not in str(raised.value)


async def test_n4_outside_of_a_channel_once_runs_the_function_each_time() -> None:
    context, ran = Context(), list[int]()

    async def count() -> int:
        ran.append(1)
        return len(ran)

    assert [await context.once("k", count) for _ in range(2)] == [1, 2]
    assert await context.once("sync", threading.get_ident) != threading.get_ident()


async def test_n4_a_context_made_by_hand_gives_the_result_to_sync_code_in_a_thread() -> None:
    context = Context()

    async def one() -> int:
        return 1

    assert await in_thread(lambda: (context.once("a", one), context.once("b", lambda: 2))) == (1, 2)


async def test_n4_a_call_uses_the_once_that_it_was_given() -> None:
    keys = list[str]()

    async def run(key: str, fn: Callable[[], Any]) -> Any:
        keys.append(key)
        return await call_user(fn)

    context = Context().for_call("c1", once=Once(run))

    assert await context.once("a", lambda: 1) == 1
    assert await in_thread(context.once, "b", threading.get_ident) != threading.get_ident()
    assert await asyncio.create_task(context.for_call("c2").once("c", lambda: 3)) == 3
    assert keys == ["a", "b", "c"]
