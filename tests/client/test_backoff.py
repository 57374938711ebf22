"""How long to wait before the next attempt."""

from __future__ import annotations

import pytest

from turnline.client.backoff import Backoff


@pytest.mark.parametrize(
    ("attempt", "least", "most"),
    [(1, 0.05, 0.1), (2, 0.1, 0.2), (5, 0.8, 1.6), (8, 5.0, 10.0), (10**6, 5.0, 10.0)],
)
def test_it_doubles_up_to_a_limit_and_chance_spreads_it(attempt: int, least: float, most: float) -> None:
    backoff = Backoff(first_seconds=0.1, most_seconds=10.0)

    assert backoff.pause(attempt, 0.0) == pytest.approx(least)
    assert backoff.pause(attempt, 1.0) == pytest.approx(most)
