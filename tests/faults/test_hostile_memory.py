"""Expressions that mean to use up the memory do not get far: at most 64 MB."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.expressions.test_hostile import ATTACKS, HEAVY, MEGABYTE
from turnline.errors import BadExpression
from turnline.expressions import compile_expression


@pytest.mark.parametrize("place", range(len(ATTACKS)))
def test_an_attack_takes_no_more_memory_than_it_may(place: int) -> None:
    tracemalloc.start()
    try:
        compile_expression(ATTACKS[place]).evaluate(HEAVY)
    except BadExpression:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak <= 64 * MEGABYTE
