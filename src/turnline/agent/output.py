"""Structured output: a type the answer has to have (A2)."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from turnline.core.envelope import JsonObject
from turnline.core.json import normalised
from turnline.errors import BadDraft

T = TypeVar("T")

_MOST_MISTAKES: Final = 3


class Output(Generic[T]):
    """What an answer has to be: anything pydantic can validate."""

    def __init__(self, schema: type[T] | Any) -> None:
        self._adapter: TypeAdapter[T] = TypeAdapter(schema)
        self.schema: JsonObject = self._adapter.json_schema()

    def read(self, text: str) -> T:
        """Return the answer in `text`, which `wrong` has nothing against."""
        return self._adapter.validate_json(_bare(text))

    def data(self, text: str) -> Any:
        """Return the answer in `text` as JSON data: what a context variable holds."""
        return self._adapter.dump_python(self.read(text), mode="json")

    def wrong(self, text: str) -> str:
        """Say in one line what is wrong with the answer; empty if nothing is."""
        try:
            self.read(text)
        except ValidationError as error:
            mistakes = error.errors(include_url=False, include_context=False)[:_MOST_MISTAKES]
            return "; ".join(f"{_place(one['loc'])}: {one['msg']}" for one in mistakes) + "."
        return ""

    def wrong_to_store(self, text: str) -> str:
        """Say what is wrong with an answer that goes on the log; empty if nothing is."""
        wrong = self.wrong(text)
        if wrong:
            return wrong
        try:
            normalised({"answer": self.data(text)}, field="")
        except (BadDraft, PydanticSerializationError) as error:
            return str(error)
        return ""


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "the answer"


def _bare(text: str) -> str:
    """The JSON without the fence that models like to put around it."""
    stripped = text.strip()
    if not stripped.startswith("```"):
        return stripped
    return stripped.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
