"""C6, V4: what an agent is told before anybody speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pytest

from turnline.agent.context import Context
from turnline.agent.inject import Variable
from turnline.agent.prompt import Instructions, Prompt
from turnline.errors import BadExpression, MissingVariable


async def rendered(
    prompt: Prompt, context_vars: Mapping[str, Any] | None = None, *, keys: tuple[str, ...] = (), **own: Any
) -> str:
    context = Context(variables=own)
    return await Instructions(prompt, agent="ada", context_keys=keys).text(context, context_vars or {})


async def test_a_text_is_taken_as_it_stands() -> None:
    assert await rendered("Use {braces} and 100 %.") == "Use {braces} and 100 %."


async def test_c6_a_template_shows_chosen_context_variables() -> None:
    assert await rendered("The route is {{ route }}.", {"route": "north"}) == "The route is north."


async def test_c6_a_variable_that_is_not_set_shows_as_nothing() -> None:
    assert await rendered("The route is {{ route }}.", {}) == "The route is ."


async def test_c6_a_template_is_rendered_anew_each_time() -> None:
    instructions = Instructions("{{ n }}", agent="ada")

    assert [await instructions.text(Context(), {"n": n}) for n in (1, 2)] == ["1", "2"]


async def test_c6_context_keys_are_shown_as_json_if_they_are_there() -> None:
    told = await rendered(
        "Go.", {"route": "north", "stops": [1, 2], "other": 3}, keys=("stops", "route", "x")
    )

    assert told == 'Go.\n\nContext variables:\nstops = [1, 2]\nroute = "north"'


async def test_c6_nothing_is_shown_that_was_not_asked_for() -> None:
    assert await rendered("Go.", {"route": "north"}) == "Go."


async def test_c6_a_value_is_not_a_template() -> None:
    assert await rendered("{{ a }}", {"a": "{{ b }}", "b": "no"}) == "{{ b }}"
    assert await rendered(lambda: "{{ b }}", {"b": "no"}) == "{{ b }}"


@pytest.mark.parametrize("text", ["{{ a.__class__ }}", "{{ ().__class__ }}", "{% import 'os' as os %}"])
async def test_c6_a_template_reaches_nothing_but_variables(text: str) -> None:
    with pytest.raises(BadExpression):
        await rendered(text, {"a": 1})


async def test_v4_an_agents_own_variables_are_not_in_reach_of_a_template() -> None:
    assert "canary" not in await rendered("key: {{ api_key }}", api_key="canary")


async def test_a_function_is_called_anew_with_injected_parameters() -> None:
    def greeting(name: Annotated[str, Variable()]) -> str:
        return f"You talk to {name}."

    async def mood(context: Context) -> str:
        return f"{len(context.variables)} things are known."

    assert await rendered([greeting, mood], name="Ada") == "You talk to Ada.\n\n1 things are known."


async def test_a_function_that_asks_for_what_nobody_gave_is_told_to_the_developer() -> None:
    def greeting(name: Annotated[str, Variable()]) -> str:
        return name

    with pytest.raises(MissingVariable, match="the prompt of ada"):
        await rendered(greeting)


async def test_parts_are_paragraphs_and_an_empty_one_is_none() -> None:
    assert await rendered(["One.", "", lambda: "", "{{ n }}."], {"n": 2}) == "One.\n\n2."
    assert await rendered("") == ""
