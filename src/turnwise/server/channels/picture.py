"""A graph as nodes and edges, for whoever draws it."""

from __future__ import annotations

from typing import Any

from turnwise.core.envelope import JsonObject
from turnwise.core.state import State, WorkflowState


def picture(state: State) -> JsonObject:
    names = {one.agent_id: one.name for one in state.spec.participants}
    kinds = {one.agent_id: one.kind for one in state.spec.participants}
    if not isinstance(state, WorkflowState) or not state.graph_data:
        return {"nodes": [{"id": k, "label": n, "kind": kinds[k]} for k, n in names.items()], "edges": []}
    return drawn(state.graph_data, state.spec.names(), names, kinds)


def drawn(graph: JsonObject, ids: Any, names: Any, kinds: Any) -> JsonObject:
    nodes: dict[str, JsonObject] = {}
    edges = []

    def node(id: str, kind: str = "") -> str:
        real = ids.get(id, id)
        label = names.get(real, id)
        nodes.setdefault(real, {"id": real, "label": label, "kind": kind or kinds.get(real, "agent")})
        return str(real)

    def add(source: str, target: Any, label: str, index: int | None) -> None:
        args = target.get("args", {})
        if "agent_id" in args:
            to = node(args["agent_id"])
        elif "reason" in args:
            to = node("end:" + args["reason"], "end")
        else:
            to = node(str(target["name"]), "other")
        edges.append({"source": source, "target": to, "label": label, "index": index})

    start = node(graph["initial_speaker"])
    nodes[start]["first"] = True
    for index, one in enumerate(graph["transitions"]):
        when = one["when"]
        source = when.get("args", {}).get("agent_id")
        add(node(source) if source else start, one["then"], str(when.get("name", "")), index)
    add(start, graph["default_target"], "default", None)
    return {"nodes": list(nodes.values()), "edges": edges}
