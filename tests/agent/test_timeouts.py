"""A timeout says what took too long, and what its limit was."""

from __future__ import annotations

import asyncio

import pytest

from turnline.agent.timeouts import within


async def test_a_timeout_says_its_limit() -> None:
    with pytest.raises(TimeoutError) as late:
        async with within(0.01, "it has not answered", "; ask again."):
            await asyncio.Event().wait()

    assert str(late.value) == "it has not answered within 0.01 s; ask again."


async def test_a_timeout_of_what_is_inside_stays_what_it_is() -> None:
    with pytest.raises(TimeoutError, match=r"^another$"):
        async with within(60, "it has not answered"):
            raise TimeoutError("another")
