"""Versions of data models: which one the tables have, and whether a flow was written for it (F12).

Of several versions of a model the newest is the table's. A flow that names another one is
told so when the project is checked, and again when a step begins, before data is touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from turnline.errors import TurnlineError, UnknownName, VersionMismatch
from turnline.flow.data.definition import ModelDefinition
from turnline.flow.definition.flow import ModelUse


def newest(models: Iterable[ModelDefinition]) -> dict[str, ModelDefinition]:
    """The models that have tables, by name."""
    found: dict[str, ModelDefinition] = {}
    for model in models:
        other = found.get(model.name)
        if other is None or _order(other.version) < _order(model.version):
            found[model.name] = model
    return found


def problem_with(
    use: ModelUse, models: Mapping[str, ModelDefinition], version: str | None = None
) -> TurnlineError | None:
    """Why a flow cannot use a model as it declares it; `version` is what its run was started with."""
    model = models.get(use.name)
    if model is None:
        return UnknownName("data model", use.name, models, do="Add a ModelDefinition, or use one of these.")
    for declared in (use.version, version):
        if declared is not None and _order(declared) != _order(model.version):
            return VersionMismatch(use.name, declared=declared, found=model.version)
    return None


def problems_of(models: Iterable[ModelDefinition], *, reserved: Iterable[str] = ()) -> list[str]:
    """What is wrong with the models of a project as a whole; `reserved` are tables of somebody else."""
    models = list(models)
    seen: set[tuple[str, tuple[str | int, ...]]] = set()
    found = []
    for model in models:
        key = (model.name, _order(model.version))
        if key in seen:
            found.append(f"{model.name} {model.version} is defined twice; remove one.")
        seen.add(key)
    latest = newest(models)
    found += _table_problems(list(latest.values()), frozenset(reserved))
    return found + [text for model in latest.values() for text in _relation_problems(model, latest)]


def _table_problems(models: Sequence[ModelDefinition], reserved: frozenset[str]) -> list[str]:
    found = []
    tables: dict[str, str] = {}
    for model in models:
        if model.table in reserved or model.table.startswith(("sqlite_", "pg_", "turnline_")):
            found.append(f"the table {model.table!r} of {model.name} is not free; give it another `table`.")
        elif model.table in tables:
            found.append(f"{tables[model.table]} and {model.name} have one table, {model.table!r}.")
        tables[model.table] = model.name
    return found


def _relation_problems(model: ModelDefinition, models: Mapping[str, ModelDefinition]) -> list[str]:
    found = []
    for name, relation in model.spec.relations.items():
        place = f"{model.name}.{name}"
        if relation.model not in models:
            found.append(f"{place} leads to {relation.model!r}, and there is no such model.")
        elif relation.kind == "one_to_many" and way_back(model, name, models) is None:
            found.append(
                f"{place} needs one many_to_one relation of {relation.model} that leads back; say which, "
                f"with `via`."
            )
    return found


def way_back(model: ModelDefinition, name: str, models: Mapping[str, ModelDefinition]) -> str | None:
    """The other model's relation that a one_to_many relation is made of; None if it is not clear."""
    relation = model.spec.relations[name]
    outgoing = models[relation.model].spec.outgoing
    candidates = [one for one, back in outgoing.items() if back.model == model.name]
    if relation.via is not None:
        return relation.via if relation.via in candidates else None
    return candidates[0] if len(candidates) == 1 else None


def _order(version: str) -> tuple[str | int, ...]:
    """`v2` is `2`, and before `v10`."""
    parts = re.split(r"(\d+)", re.sub(r"^v(?=\d)", "", version))
    return tuple(int(part) if part.isdigit() else part for part in parts)
