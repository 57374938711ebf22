"""A2: an answer that has to have a form."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from turnline.agent.output import Output


class City(BaseModel):
    name: str
    people: int


CITY: Output[City] = Output(City)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bern", "people": 1}',
        ' \n{"name": "Bern", "people": 1}\n',
        '```json\n{"name": "Bern", "people": 1}\n```',
        '```\n{"name": "Bern", "people": 1}\n```\n',
    ],
    ids=["bare", "spaces", "json fence", "fence"],
)
def test_a2_an_answer_is_read_with_or_without_the_fence_around_it(text: str) -> None:
    assert CITY.wrong(text) == ""
    assert CITY.read(text) == City(name="Bern", people=1)


def test_a2_anything_pydantic_can_validate_is_a_schema() -> None:
    assert Output(list[int]).read("[1, 2]") == [1, 2]
    assert Output(int | None).read("null") is None
    assert Output(list[int]).schema == {"type": "array", "items": {"type": "integer"}}


def test_a2_what_is_wrong_is_said_in_one_line_with_its_place() -> None:
    wrong = CITY.wrong('{"name": 5, "people": "many"}')

    assert wrong.startswith("name: Input should be a valid string; people: Input should be a valid integer")
    assert "\n" not in wrong
    assert "http" not in wrong


def test_a2_of_many_mistakes_three_are_told() -> None:
    assert Output(list[int]).wrong('["a", "b", "c", "d", "e"]').count("; ") == 2


def test_a2_what_is_no_json_is_wrong() -> None:
    assert CITY.wrong("Bern, I think").startswith("the answer: Invalid JSON")
