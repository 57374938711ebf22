"""The channel types by name."""

from __future__ import annotations

import pytest

from turnline.core.adapters import ConversationAdapter, WorkflowAdapter, built_in
from turnline.errors import NameTaken, UnknownName


def test_there_are_four_built_in_channel_types() -> None:
    adapters = built_in()

    for name in ("workflow", "conversation", "consulting", "discussion"):
        assert adapters.get(name).manifest.type == name


def test_e5_an_unknown_channel_type_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'workflow'") as unknown:
        built_in().get("workflows")

    assert unknown.value.known == ("consulting", "conversation", "discussion", "workflow")


def test_a_type_is_taken_once() -> None:
    with pytest.raises(NameTaken):
        built_in().register(WorkflowAdapter())


def test_each_set_of_adapters_is_its_own() -> None:
    built_in()._by_type.clear()

    assert isinstance(built_in().get("conversation"), ConversationAdapter)
