"""An operation: a method and a path, who answers, and what the OpenAPI document says of it.

One table of these gives the routes and the document, so that neither has what the other lacks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from turnline.core.envelope import JsonObject

MULTIPART: Final = "multipart/form-data"

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked of the server."""

    id: str
    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    parameters: Sequence[JsonObject] = ()
    body: JsonObject | None = None
    """The body's JSON Schema; None: it is never JSON."""
    form: JsonObject | None = None
    """The schema of the same body as a form (multipart/form-data); None: it is never one."""
    body_required: bool = False
    answers: Mapping[int, str] = field(default_factory=dict)
    """Status -> what it means, where it is a success."""
    refusals: Sequence[int] = ()
    """The other statuses, beside those that every operation has."""
    is_public: bool = False
    media_type: str = "application/json"
    has_own_query: bool = False
    """Whether the handler itself checks the names in the query: those of a flow's input."""

    @property
    def shape(self) -> tuple[str, ...]:
        """The path with every parameter alike: two of one shape are one path."""
        return tuple("{}" if part.startswith("{") else part for part in self.path.split("/"))
