"""docs/operations/limits.md: every limit by its name, with its value as the code has it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.builders.tables import table

SOURCES: Final = Path(__file__).parents[2] / "src" / "turnline"
_NAME: Final = re.compile(
    r"(MAX|MOST|MIN)_[A-Z_]+|[A-Z][A-Z_]*_(SECONDS|BYTES|CHARACTERS|ATTEMPTS|EVERY)|ATTEMPTS"
)
_NO_LIMITS: Final = {"HASH_BYTES", "DIGEST_BYTES", "MAX_INTEGER"}
"""How large something is, not how large it may be."""
_ROOMS: Final = {
    "core": "Channels",
    "hub": "Hubs",
    "turns": "Turns",
    "log": "Logs",
    "agent": "Agents and models",
    "client": "Clients and connections",
    "expressions": "Conditions and templates",
    "flow": "Flows",
    "server": "Servers",
    "threads.py": "Threads",
}
_SETTINGS: Final = (("server/settings.py", "ServerSettings"), ("server/ws_settings.py", "WsSettings"))
_SETTABLE: Final = (
    ("`trigger.timeout`", "in a flow", "300 s", "how long a caller of a flow waits; the run goes on"),
    ("`limits.max_steps`", "in a flow", "{flow/definition/flow.py MAX_STEPS}", "steps of one run"),
    (
        "`limits.max_depth`",
        "in the first flow of a tree",
        "{core/channel.py MAX_DEPTH}",
        "how deep runs are nested: flows, inner steps, conversations, delegations",
    ),
    (
        "`limits.max_runs`",
        "in the first flow of a tree",
        "{core/channel.py MAX_RUNS}",
        "runs of other flows below one run, at any depth; items of `for_each` have a limit of their own",
    ),
    (
        "`limits.timeout`",
        "in a flow, or for all in turnline.yaml",
        "none",
        "how long a run may work; waits do not count",
    ),
    (
        "`limits.concurrency`",
        "in a flow, or for all in turnline.yaml",
        "none",
        "runs at once; one more is refused",
    ),
    ("`limits.body_bytes`", "in turnline.yaml", "{flow/settings.py BODY_BYTES}", "the body of a request"),
    (
        "`limits.connections`",
        "in turnline.yaml",
        "10,000, and below the descriptor limit",
        "connections of a server process",
    ),
    (
        "`limits.connections_per_address`",
        "in turnline.yaml",
        "100",
        "connections of one address without a token; behind a `--trusted-proxy`, requests at once",
    ),
    ("`limits.header_seconds`", "in turnline.yaml", "10 s", "how long the headers of a request may take"),
    (
        "`limits.stuck_seconds`",
        "in turnline.yaml",
        "60 s",
        "how long a client may read nothing of its answer",
    ),
    ("`limits.body_seconds`", "in turnline.yaml", "30 s", "how long the body of a request may take"),
    (
        "`limits.context_bytes`",
        "in turnline.yaml, or when a hub is opened",
        "{core/variables.py MAX_CONTEXT_BYTES}",
        "all context variables of one channel or run",
    ),
    (
        "`limits.file_bytes_per_user`",
        "in turnline.yaml, or when a hub is opened",
        "{log/blobs.py MAX_USER_BYTES}",
        "all files that one user of a server has uploaded",
    ),
    ("`file_bytes`", "when a hub is opened", "{log/blobs.py MAX_FILE_BYTES}", "one file"),
    (
        "`tree_bytes`",
        "when a hub is opened",
        "{log/blobs.py MAX_TREE_BYTES}",
        "all files of one tree of channels",
    ),
    (
        "`limits.open_channels_per_user`",
        "in turnline.yaml, or when a hub is opened",
        "{core/governance.py OPEN_CHANNELS_PER_USER}",
        "open channels of one user of a server",
    ),
    (
        "`limits.open_runs_per_user`",
        "in turnline.yaml",
        "{server/limits.py OPEN_RUNS_PER_USER}",
        "runs of one user that have not ended, those that wait included",
    ),
    (
        "`limits.open_runs_of_strangers`",
        "in turnline.yaml",
        "{server/limits.py OPEN_RUNS_OF_STRANGERS}",
        "the same of all callers without a token together",
    ),
    ("`limits.requests_per_user`", "in turnline.yaml", "500", "requests of one user at once"),
    ("`limits.streams_per_user`", "in turnline.yaml", "100", "event streams of one user"),
    (
        "`limits.presences_per_user`",
        "in turnline.yaml",
        "{server/ws_settings.py PRESENCES_PER_USER}",
        "clients of one user at `/ws`",
    ),
    ("`timeout`, `retry`", "on a step", "none", "one attempt of a step, and how many there are"),
    (
        "`max_turns`",
        "on a graph, or when a channel is opened",
        "none",
        "turns of a channel; then it closes, with the reason `max_turns`",
    ),
    ("`ttl`", "when a channel is opened", "none", "how long a channel may stay open"),
    (
        "`Agent(max_tool_rounds=)`",
        "on an agent",
        "{agent/round.py MAX_TOOL_ROUNDS}",
        "model requests of one round",
    ),
    (
        "`lease_seconds`",
        "when a hub is opened",
        "{core/state.py LEASE_SECONDS}",
        "silence after which a worker is replaced",
    ),
    (
        "`--grace`",
        "of `turnline serve`",
        "{server/runtime.py GRACE_SECONDS}",
        "what requests and turns may take to end after SIGTERM",
    ),
)
_TOP: Final = """\
# Limits

Everything that could grow has a limit, and every limit has a name. Whoever reaches one is told so: by an error that says what was
found and what was expected, by an answer such as 413 or 503, or by a channel that closes with a reason.

## What you set

"""
_REST: Final = """
## What is set in the code

By module; a change is a change of the code. `_SECONDS`, `_BYTES` and `_CHARACTERS` say the unit.
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """A name of the code, its value, and what is written under it."""

    file: str
    name: str
    value: object
    said: str


def page() -> str:
    """The page."""
    rows = [(name, where, _filled(value), said) for name, where, value, said in _SETTABLE]
    parts = [_TOP + table(("name", "where", "without it", "what it bounds"), rows)]
    parts.append(
        "\n## What an embedding program sets\n\n`create_app(..., settings=ServerSettings(...))`; `turnline serve` uses these values.\n\n"
    )
    parts.append(table(("name", "value", "what it bounds"), [_row(one) for one in _of_settings()]))
    parts.append(_REST)
    for room, title in _ROOMS.items():
        rows_of = [(f"`{one.file}`", *_row(one)) for one in _of_room(room)]
        parts.append(f"\n### {title}\n\n" + table(("module", "name", "value", "what it bounds"), rows_of))
    return "".join(parts)


def _row(one: Limit) -> tuple[str, str, str]:
    return f"`{one.name}`", _shown(one), one.said


def _of_room(room: str) -> Iterator[Limit]:
    place = SOURCES / room
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        for name, said in _documented(body):
            if _NAME.fullmatch(name) and name not in _NO_LIMITS and _is_number(value := _value(path, name)):
                yield Limit(path.relative_to(SOURCES).as_posix(), name, value, said)


def _of_settings() -> Iterator[Limit]:
    for file, name in _SETTINGS:
        path = SOURCES / file
        [known] = [
            one
            for one in ast.parse(path.read_text()).body
            if isinstance(one, ast.ClassDef) and one.name == name
        ]
        defaults = _value(path, name)()  # type: ignore[operator]
        for field, said in _documented(known.body):
            if _is_number(value := getattr(defaults, field)):
                prefix = "ws." if name.startswith("Ws") else ""
                yield Limit(file, prefix + field, value, said)


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Each annotated name with what is written under it."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                said = " ".join(str(after.value.value).split())
            yield node.target.id, said


def _value(path: Path, name: str) -> object:
    module = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts).removesuffix(".__init__")
    return getattr(importlib.import_module(module), name)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(one: Limit) -> str:
    value = one.value
    if one.name.lower().endswith("bytes") and isinstance(value, int):
        for unit, size in (("MiB", 1024 * 1024), ("KiB", 1024)):
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)


def _filled(text: str) -> str:
    """`{file NAME}` -> the value of that name."""
    found = re.fullmatch(r"\{(\S+) (\S+)\}", text)
    if found is None:
        return text
    shown = _shown(Limit(found[1], found[2], _value(SOURCES / found[1], found[2]), ""))
    return f"{shown} s" if found[2].endswith("_SECONDS") else shown
