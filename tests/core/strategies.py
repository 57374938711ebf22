"""What hypothesis draws from: JSON of every shape."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def json_values(
    floats: st.SearchStrategy[Any] = FINITE, *, keys: st.SearchStrategy[str] | None = None
) -> st.SearchStrategy[Any]:
    """JSON values; give other `floats` to draw what JSON cannot hold."""
    leaves = st.none() | st.booleans() | st.integers() | floats | st.text(max_size=5)
    named = st.text(max_size=3) if keys is None else keys
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(named, inner, max_size=3),
        max_leaves=6,
    )
