"""A flow: what starts it, what it begins with, what it may cost, and its steps.

`read` takes a document in any of the shapes the language knows; `pinned` gives the
copy that a run is started with and finishes on (F8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, Literal

import msgspec
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from turnline.core.channel import MAX_DEPTH, MAX_RUNS, MOST_DEPTH, MOST_RUNS
from turnline.core.envelope import JsonObject
from turnline.flow.definition.base import BAD_STEPS, Duration, Json, Name, Part
from turnline.flow.definition.fields import Fields, InputFields
from turnline.flow.definition.steps import ForEachStep, ParallelStep, Step, WorkflowStep

MAX_STEPS: Final = 200
PATH: Final = r"^/[A-Za-z0-9_\-./{}~]*$"
PARAMETER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A name in a trigger's path."""
END: Final = "END"
FAIL: Final = "FAIL"
_TAKEN: Final = frozenset({"flows", "hub"})
"""The participants of every run beside its steps. A step has its id as its name on the log."""


class Trigger(Part):
    """The HTTP request that starts a run."""

    path: str = Field(pattern=PATH, max_length=300)
    """Where it is served; `{name}` in it is a field of the input."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    input: InputFields | None = None
    """The body's fields; without it, any object is taken."""
    extra: bool = True
    """Whether the body may hold more than `input` names."""
    public: bool = False
    """Whether it needs no token."""
    scopes: list[str] = []
    """What a token has to allow, beside starting runs of this flow."""
    async_: bool = Field(default=False, alias="async")
    """Answer 202 at once instead of waiting for the end."""
    timeout: Duration = 300.0
    """How long a caller waits; the run goes on."""

    @property
    def parameters(self) -> list[str]:
        """The names in the path, each once."""
        return list(dict.fromkeys(PARAMETER.findall(self.path)))

    @property
    def files(self) -> Fields:
        """The fields of the input that are files, or lists of files."""
        return {name: spec for name, spec in (self.input or {}).items() if spec.is_file}

    @model_validator(mode="after")
    def _check_files(self) -> Trigger:
        if self.files and self.method == "GET":
            raise ValueError(f"a GET request has no files; {min(self.files)!r} needs another method")
        in_path = self.files.keys() & set(self.parameters)
        if in_path:
            raise ValueError(f"{min(in_path)!r} is a file and cannot stand in the path")
        return self


class ModelUse(Part):
    """A data model the flow declares, and the version it was written for."""

    name: str
    version: str | None = None


class FlowContext(Part):
    """What a run begins with."""

    models: list[ModelUse] = []
    defaults: dict[str, Json] = {}
    """Context keys that the body does not give."""


class Limits(Part):
    """What a run may cost."""

    max_steps: int = Field(default=MAX_STEPS, ge=1, le=100_000)
    """Steps that may end in one run; the next one fails it."""
    max_depth: int = Field(default=MAX_DEPTH, ge=0, le=MOST_DEPTH)
    """How deep runs may be nested below a run that was started from outside, inner steps included."""
    max_runs: int = Field(default=MAX_RUNS, ge=0, le=MOST_RUNS)
    """Runs of other flows that may be started below such a run, at any depth."""
    timeout: Duration | None = None
    """How long a run may work; then it fails with `timeout`. The time that it waits does not count."""
    concurrency: int | None = Field(default=None, ge=1)
    """Runs at once; more are refused."""


class Metadata(Part):
    """What a flow is called."""

    name: Name
    version: str = "1"
    description: str = ""
    labels: dict[str, str] = {}
    """The author's own; nothing reads them."""


class FlowSpec(Part):
    """Everything but the name."""

    trigger: Trigger | None = None
    context: FlowContext = FlowContext()
    limits: Limits = Limits()
    durability: Literal["step", "end"] = "step"
    """When a run is recorded: after each step, or when it ends, pauses or does something outside."""
    steps: list[Step] = Field(min_length=1)


class Flow(Part):
    """A whole workflow document."""

    api_version: str | None = Field(default=None, alias="apiVersion")
    kind: Literal["Workflow"] = "Workflow"
    metadata: Metadata
    spec: FlowSpec

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def steps(self) -> Sequence[Step]:
        return self.spec.steps

    @model_validator(mode="after")
    def _checked(self) -> Flow:
        for steps in nested_steps(self.steps):
            check_steps(steps)
        return self

    def flows_used(self) -> set[str]:
        """The other flows that its steps start runs of."""
        every = (step for steps in nested_steps(self.steps) for step in steps)
        return {step.workflow.name for step in every if isinstance(step, WorkflowStep)}

    def model_versions(self) -> dict[str, str]:
        """Data model -> the version the flow was written for, where it says so."""
        used = self.spec.context.models
        return {model.name: model.version for model in used if model.version is not None}

    def pinned(self) -> JsonObject:
        """The copy that a run finishes on, as data."""
        data: JsonObject = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return data | {"kind": "Workflow"}


def digest(pinned: JsonObject) -> str:
    """What a definition is known by: its content."""
    return blake2b(msgspec.json.encode(pinned, order="sorted"), digest_size=16).hexdigest()


def read(data: Json, *, name: str) -> Flow:
    """Return the flow that `data` describes; `name` is its file's, for a document that has none."""
    return Flow.model_validate(spelled_out(data, name=name))


def spelled_out(data: Json, *, name: str) -> Json:
    """The document in its one long shape: from a bare list, or from `steps:` alone."""
    if isinstance(data, list):
        return {"kind": "Workflow", "metadata": {"name": name}, "spec": {"steps": data}}
    if not isinstance(data, dict):
        return data
    if "spec" not in data and "steps" in data:
        named = {} if "metadata" in data else {"metadata": {"name": data.get("name", name)}}
        outside = {"kind", "apiVersion", "metadata"} | ({"name"} if named else set())
        inner = {key: value for key, value in data.items() if key not in outside}
        return named | {key: data[key] for key in data if key in outside - {"name"}} | {"spec": inner}
    return data if "metadata" in data else {**data, "metadata": {"name": name}}


def nested_steps(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """These steps, and those inside them, list by list."""
    yield steps
    for step in steps:
        for inner in inner_steps(step).values():
            yield from nested_steps(inner)


def inner_steps(step: Step) -> dict[str, Sequence[Step]]:
    """The lists of steps inside a step, by the place they stand at."""
    match step:
        case ForEachStep(for_each=block):
            return {"each": block.steps}
        case ParallelStep(parallel=block):
            return dict(block.branches)
    return {}


def check_steps(steps: Sequence[Step]) -> None:
    """Refuse two steps of one id, and a route to nowhere. `flow.document` says where they stand."""
    ids = [step.id for step in steps]
    if END in ids or FAIL in ids:
        raise _bad_steps(f"no step can have the id {END!r} or {FAIL!r}; they are where a run ends")
    reserved = sorted(_TAKEN.intersection(ids))
    if reserved:
        raise _bad_steps(f"no step can have the id {reserved[0]!r}; it takes part in every run")
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise _bad_steps(f"two steps have the id {twice[0]!r}; each needs its own")
    for step in steps:
        for signal, target in step.routes.items():
            if target not in (*ids, END, FAIL):
                raise _bad_steps(f"step {step.id!r} routes {signal!r} to {target!r}, which is no step here")


def _bad_steps(because: str) -> PydanticCustomError:
    return PydanticCustomError(BAD_STEPS, "{because}", {"because": because})
