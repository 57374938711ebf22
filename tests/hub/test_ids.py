"""Where ids come from."""

from __future__ import annotations

from turnline.core.channel import ID_PATTERN
from turnline.hub.ids import sortable_ids
from turnline.testing.manual_clock import ManualClock


def test_ids_of_one_source_strictly_grow() -> None:
    """E1: sortable and unique, also within one millisecond."""
    new_id = sortable_ids(ManualClock())
    ids = [new_id() for _ in range(1000)]

    assert ids == sorted(set(ids))


def test_ids_grow_with_time() -> None:
    clock = ManualClock()
    earlier = sortable_ids(clock)()
    clock.advance(0.001)

    assert earlier < sortable_ids(clock)()


def test_ids_grow_although_the_clock_is_set_back() -> None:
    """Page 08, rule 7."""
    clock = ManualClock()
    new_id = sortable_ids(clock)
    earlier = new_id()
    clock.set_back(3600)

    assert earlier < new_id()


def test_an_id_is_safe_in_a_path_and_an_address() -> None:
    made = sortable_ids(ManualClock())()

    assert ID_PATTERN.fullmatch(made)
    assert len(made) == 26
    assert made == made.lower()


def test_two_sources_do_not_give_the_same_id() -> None:
    clock = ManualClock()
    assert sortable_ids(clock)() != sortable_ids(clock)()
