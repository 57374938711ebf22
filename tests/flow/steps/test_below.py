"""What a child leaves behind. `test_for_each` tests how many are opened, and when."""

from __future__ import annotations

from turnline.flow.steps.below import Outcome
from turnline.flow.verdict import RunError


def test_an_outcome_that_is_collected_is_the_data_or_the_error() -> None:
    error = RunError(type="timeout", message="too long")

    assert Outcome({"a": 1}).as_data() == {"a": 1}
    assert Outcome({}, error).as_data() == {"error": {"type": "timeout", "message": "too long", "step": None}}
