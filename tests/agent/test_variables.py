"""V1, V4: the variables of a conversation."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from turnline.agent.variables import (
    MAX_MASKED_VALUES,
    conversation_dependencies,
    conversation_variables,
    masked,
)

CANARY = "canary-51f0c2"


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)


def test_v1_the_calls_win_over_the_agents_and_the_rest_is_joined() -> None:
    merged = conversation_variables({"region": "eu", "theme": "dark"}, {"theme": "light", "user": "ada"})

    assert merged == {"region": "eu", "theme": "light", "user": "ada"}


def test_v1_merging_is_shallow() -> None:
    assert conversation_variables({"ui": {"theme": "dark"}}, {"ui": {"font": "mono"}}) == {
        "ui": {"font": "mono"}
    }


def test_v1_the_callers_dicts_are_not_written_to() -> None:
    agents: dict[str, Any] = {"seen": []}
    calls: dict[str, Any] = {"user": {"name": "ada"}}

    merged = conversation_variables(agents, calls)
    merged["seen"].append("page")
    merged["user"]["name"] = "bob"
    merged["new"] = 1

    assert agents == {"seen": []}
    assert calls == {"user": {"name": "ada"}}


def test_v1_nested_values_are_not_shared_between_conversations() -> None:
    agents = {"cart": Cart(), "deep": {"list": [Cart()]}}
    first, second = conversation_variables(agents, {}), conversation_variables(agents, {})

    first["cart"].items.append("book")
    first["deep"]["list"][0].items.append("book")

    assert second["cart"] == Cart()
    assert second["deep"]["list"] == [Cart()]


def test_v1_two_names_for_one_value_stay_two_names_for_one_value() -> None:
    cart: list[Any] = []
    cart.append(cart)

    merged = conversation_variables({"cart": cart, "same": cart}, {})

    assert merged["cart"] is merged["same"] is merged["cart"][0]
    assert merged["cart"] is not cart


def test_v1_what_has_no_copy_is_shared_and_nothing_beside_it() -> None:
    lock, seen = threading.Lock(), list[str]()

    merged = conversation_variables({"state": {"lock": lock, "seen": seen}}, {})

    assert merged["state"]["lock"] is lock
    assert merged["state"]["seen"] is not seen


def test_v5_dependencies_are_merged_and_never_copied() -> None:
    cart = Cart()
    agents, calls = {"cart": cart, "db": 1}, {"db": 2}

    merged = conversation_dependencies(agents, calls)
    merged["made"] = 3

    assert merged["cart"] is cart
    assert merged["db"] == 2
    assert "made" not in agents | calls


@pytest.mark.parametrize("merge", [conversation_variables, conversation_dependencies])
def test_v4_shown_they_mask_their_values_and_are_dicts_otherwise(merge: Any) -> None:
    merged = merge({"api_key": CANARY}, {})

    assert repr(merged) == str(merged) == f"{merged}" == "{'api_key': ***}"
    assert json.loads(json.dumps(merged)) == {"api_key": CANARY}


@pytest.mark.parametrize(
    "secret",
    [
        {"api_key": CANARY},
        [{"deep": [(CANARY, {CANARY})]}],
        {"key": SecretStr(CANARY)},
        {"looped": (loop := [CANARY, *[["x"]]])},
    ],
)
def test_v4_a_text_is_masked_of_every_value_however_deep(secret: object) -> None:
    loop.append(loop)  # type: ignore[arg-type]

    assert masked(f"GET /?key={CANARY} failed", secret) == "GET /?key=*** failed"


def test_v4_a_text_is_masked_of_a_value_in_quotes_or_in_an_address() -> None:
    key = "two\nlines+of/key=="

    assert masked(f"{key!r} ?k=two%0Alines%2Bof%2Fkey%3D%3D {key}", {"key": key}) == "'***' ?k=*** ***"


def test_v4_of_two_values_the_longer_is_masked_first() -> None:
    assert masked("secret-key-2", ["secret-key", "secret-key-2"]) == "***"


def test_v4_short_values_are_words_and_stay() -> None:
    assert masked("the theme is dark", {"theme": "dark"}) == "the theme is dark"


def test_v4_with_more_values_than_can_be_looked_through_nothing_is_shown() -> None:
    assert masked("harmless", ["x"] * (MAX_MASKED_VALUES + 2)) == "***"
