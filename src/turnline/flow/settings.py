"""`turnline.yaml`: what a project as a whole says. Everything in it is optional.

    name: leads
    model: openai:gpt-5-mini
    log: sqlite:///leads.db
    limits: {body_bytes: 1048576, concurrency: 100, timeout: 1h}
    mcp_servers: {search: {url: "https://mcp.example.com", headers: {X-Key: "{{ secret.MCP_KEY }}"}}}

`${NAME}` is filled in from the environment. Addresses and what is sent to servers may hold
secrets then, so no representation shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, model_validator

from turnline.core.envelope import JsonObject
from turnline.flow.definition.base import Duration, Name, Part
from turnline.flow.environment import filled_in
from turnline.flow.finding import Finding
from turnline.flow.mistake import BAD_VALUE, parsed
from turnline.flow.yaml_document import read_yaml

SETTINGS_FILE: Final = "turnline.yaml"
BODY_BYTES: Final = 1024 * 1024
_OF_SERVER: Final = {
    "body_bytes",
    "connections",
    "connections_per_address",
    "header_seconds",
    "body_seconds",
    "stuck_seconds",
    "requests_per_user",
    "streams_per_user",
}
_QUOTAS: Final = {
    "open_runs_per_user",
    "open_runs_of_strangers",
    "open_channels_per_user",
    "context_bytes",
    "file_bytes_per_user",
}


class ProjectLimits(Part):
    """What all the project's runs together may cost."""

    body_bytes: int = Field(default=BODY_BYTES, ge=1, le=100 * BODY_BYTES)
    """Of a request."""
    concurrency: int | None = Field(default=None, ge=1)
    """Runs at once, of all flows; more are refused."""
    timeout: Duration | None = None
    """Of a run whose flow does not say."""
    connections: int | None = Field(default=None, ge=1)
    """Of a server, at once. This and the following: without it, as `ServerSettings` says."""
    connections_per_address: int | None = Field(default=None, ge=1)
    """Of one address, without a token; behind a trusted proxy, requests at once."""
    header_seconds: Duration | None = None
    """How long the headers of a request may take to arrive."""
    body_seconds: Duration | None = None
    """How long the body of a request may take to arrive."""
    stuck_seconds: Duration | None = None
    """How long a client may read nothing of an answer that waits for it."""

    requests_per_user: int | None = Field(default=None, ge=1)
    """Requests of one user at once."""
    streams_per_user: int | None = Field(default=None, ge=1)
    """Event streams of one user at once."""
    presences_per_user: int | None = Field(default=None, ge=1)
    """Clients of one user that are connected to `/ws`, or gone for a moment."""
    open_runs_per_user: int | None = Field(default=None, ge=1)
    """Runs of one user that have not ended, those that wait included."""
    open_runs_of_strangers: int | None = Field(default=None, ge=1)
    """The same of all callers without a token together."""
    open_channels_per_user: int | None = Field(default=None, ge=1)
    """Open channels of the participants of one user."""
    context_bytes: int | None = Field(default=None, ge=1)
    """Of all context variables of one channel or run, as JSON."""
    file_bytes_per_user: int | None = Field(default=None, ge=1)
    """Of all files that one user has uploaded; callers without a token are one user together."""

    def quotas(self) -> dict[str, int]:
        """Return the limits of the log's users and channels that are set."""
        return self._set(_QUOTAS)

    def of_server(self) -> dict[str, Any]:
        """Return the limits of `ServerSettings` that are set."""
        return self._set(_OF_SERVER)

    def _set(self, names: set[str]) -> dict[str, Any]:
        return {name: value for name, value in self.model_dump(include=names).items() if value is not None}


class McpServer(Part):
    """How to reach an MCP server: by `command`, or by `url`."""

    command: str = ""
    args: list[str] = Field(default_factory=list, repr=False)
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = Field(default="", repr=False)
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Templates; `{{ secret.NAME }}` is allowed."""

    @model_validator(mode="after")
    def _one_of_them(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server has either a `command` or a `url`")
        return self


class Settings(Part):
    """What turnline.yaml says."""

    name: Name | None = None
    description: str = ""
    model: str | None = Field(default=None, min_length=1, max_length=200)
    """The model of agents that name none, such as `openai:gpt-5-mini`. Without it, TURNLINE_MODEL."""
    log: str | None = Field(default=None, min_length=1, repr=False)
    """The address of the log. Without it, `.turnline/log.db` in the project's folder."""
    database: str | None = Field(default=None, min_length=1, repr=False)
    """Where the data models live. Without it, in the log's own database."""
    limits: ProjectLimits = ProjectLimits()
    mcp_servers: dict[Name, McpServer] = Field(default_factory=dict)
    allow_private: bool = False
    """Let `api_call` steps reach private and loopback addresses."""

    def servers(self) -> dict[str, JsonObject]:
        """The MCP servers, as steps are given them."""
        return {name: one.model_dump(exclude_unset=True) for name, one in self.mcp_servers.items()}


def read_settings(
    content: bytes | str, *, file: str, environment: Mapping[str, str]
) -> tuple[Settings, list[Finding]]:
    """Return what a file says, and what is wrong with it; with mistakes it says nothing."""
    read = read_yaml(content, file=file)
    findings = list(read.findings)
    said = [document for document in read.documents if document.data is not None]
    for extra in said[1:]:
        findings.append(
            extra.finding(BAD_VALUE, f"{SETTINGS_FILE} is one document", (), fix="take this one out")
        )
    if not said:
        return Settings(), findings
    document, wrong = filled_in(said[0], environment)
    settings, mistakes = parsed(Settings, document)
    return settings or Settings(), findings + wrong + mistakes
