"""What a test document may say (F14).

    kind: Test
    metadata: {name: a hot lead is escalated}
    spec:
      flow: lead_processing
      given: {email: jane@example.com}
      stub: {classify: {updates: {lead_score: 91}}, approve: {answer: {approved: true}}}
      expect: {path: [save, classify, route, approve, respond], data: {score: 91}}

A file holds several documents, or a list of cases; a case in a list is written short:
its name, and what stands in `spec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from turnline.flow.definition.base import Json, Name, Part
from turnline.flow.work import DEFAULT

OUTER_KEYS: Final = frozenset({"kind", "apiVersion"})


class Gives(Part):
    """The step ends so. A key with `_` is kept for the run, as if a node had set it."""

    updates: dict[str, Json] = Field(default_factory=dict)
    deletes: list[str] = Field(default_factory=list)
    signal: str = Field(default=DEFAULT, min_length=1, max_length=200)


class Raises(Part):
    """The step fails with this text."""

    error: str


class DoesNotParse(Part):
    """What came back is not what the step asked for."""

    parse_error: str


class TakesTooLong(Part):
    """The step's time runs out."""

    timeout: Literal[True]


class Answers(Part):
    """A person answers a human step; the form checks it."""

    answer: dict[str, Json]


class Expires(Part):
    """Nobody answers a human step, until its time is up."""

    expired: Literal[True]


class Happens(Part):
    """The event comes that a wait waits for, with this data."""

    event: dict[str, Json]


_SHAPES: Final = {
    "error": Raises,
    "parse_error": DoesNotParse,
    "timeout": TakesTooLong,
    "answer": Answers,
    "expired": Expires,
    "event": Happens,
}
_GIVES: Final = "updates"


def _shape_of(stub: object) -> str:
    """Which of the shapes a stub has: the first of their keys that it has."""
    if isinstance(stub, Part):
        return next((key for key, shape in _SHAPES.items() if isinstance(stub, shape)), _GIVES)
    return next((key for key in _SHAPES if isinstance(stub, Mapping) and key in stub), _GIVES)


Stub = Annotated[
    Annotated[Gives, Tag("updates")]
    | Annotated[Raises, Tag("error")]
    | Annotated[DoesNotParse, Tag("parse_error")]
    | Annotated[TakesTooLong, Tag("timeout")]
    | Annotated[Answers, Tag("answer")]
    | Annotated[Expires, Tag("expired")]
    | Annotated[Happens, Tag("event")],
    Discriminator(_shape_of),
]
StubList = Annotated[
    list[Stub],
    BeforeValidator(lambda given: given if isinstance(given, list) else [given]),
    Field(min_length=1),
]
"""One for each attempt; a single one is for all of them."""


class ExpectedError(Part):
    """Why the run fails."""

    type: str | None = None
    step: str | None = None
    message: str | None = None
    """A part of the message."""


class Expected(Part):
    """What has to come out. What is not said is not looked at, but for the status."""

    status: Literal["succeeded", "failed"] | None = None
    """Without it: `succeeded`, or `failed` if an error is expected."""
    path: list[str] | None = None
    """The run's own steps, in the order they ended."""
    data: dict[str, Json] | None = None
    """Some of what the caller gets."""
    data_exactly: dict[str, Json] | None = None
    """All of it."""
    context: dict[str, Json] | None = None
    """Some of the public context at the end."""
    error: ExpectedError | None = None
    http_status: int | None = None

    @property
    def outcome(self) -> str:
        return self.status or ("succeeded" if self.error is None else "failed")


class CaseMetadata(Part):
    """What a case is called: the rule it proves."""

    name: str = Field(min_length=1, max_length=300)
    description: str = ""


class CaseSpec(Part):
    """What a run is given, what its steps give, what comes out."""

    flow: Name
    given: dict[str, Json] = Field(default_factory=dict)
    """The body of the request."""
    user: str | None = None
    """Who asks: `_user_id`."""
    stub: dict[str, StubList] = Field(default_factory=dict)
    """Step -> what it gives instead of being performed. A step inside another by its path."""
    expect: Expected = Expected()


class Case(Part):
    """A whole test document."""

    api_version: str | None = Field(default=None, alias="apiVersion")
    kind: Literal["Test"] = "Test"
    metadata: CaseMetadata
    spec: CaseSpec

    @property
    def name(self) -> str:
        return self.metadata.name


def is_short(data: Json) -> bool:
    """Whether a case is written without `metadata` and `spec`."""
    return isinstance(data, dict) and not data.keys() & {"spec", "metadata"}


def spelled_out(data: Json) -> Json:
    """A case in its one long shape."""
    if not is_short(data):
        return data
    inner = {key: value for key, value in data.items() if key not in OUTER_KEYS and key != "name"}
    outer = {key: value for key, value in data.items() if key in OUTER_KEYS}
    return {**outer, "metadata": {"name": data["name"]} if "name" in data else {}, "spec": inner}
