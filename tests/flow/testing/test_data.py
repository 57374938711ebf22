"""F14: data models work in a case, in a database of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnline.flow.data.definition import read_model
from turnline.flow.testing.data import in_memory

from .scene import house, played, told

LEAD = {"kind": "ModelDefinition", "metadata": {"name": "Lead"}, "spec": {"fields": {"email": "string"}}}
FLOW = """
context: {models: [{name: Lead}]}
steps:
  - {id: save, runner: save}
  - {id: count, model_op: {model: Lead, op: list, into: leads}}
  - {id: broken, runner: broken, routes: {error: after}}
  - {id: after, model_op: {model: Lead, op: list, into: leads}}
"""


async def save(ctx: dict[str, Any]) -> dict[str, Any]:
    lead = await ctx["_db"]["Lead"].add(email=ctx["email"])
    return {"id": lead.id, "created_at": lead.created_at}


async def broken(ctx: dict[str, Any]) -> None:
    await ctx["_db"]["Lead"].add(email="never")
    raise ValueError("no")


WAITS = """
context: {models: [{name: Lead}]}
steps:
  - id: both
    parallel:
      branches:
        late: [{id: rest, wait: {for: 2h}}, {id: keep, model_op: {model: Lead, op: add, into: late}}]
        soon: [{id: rest, wait: {for: 1h}}, {id: keep, model_op: {model: Lead, op: add, into: soon}}]
"""


async def test_f14_time_passes_as_far_as_somebody_waits_for_it_and_no_further() -> None:
    around = replace(house(WAITS), open_data=in_memory([read_model(LEAD)]))
    result = await played(
        around,
        """{flow: main, expect: {data: {soon: {created_at: '2030-01-01T13:00:00+00:00'},
                                        late: {created_at: '2030-01-01T14:00:00+00:00'}}}}""",
    )

    assert told(result) == []


async def test_f14_each_case_begins_with_empty_tables_and_ids_and_times_are_the_same() -> None:
    around = replace(house(FLOW, save=save, broken=broken), open_data=in_memory([read_model(LEAD)]))

    for _ in range(2):
        result = await played(
            around,
            """{flow: main, given: {email: a@b.c},
                expect: {path: [save, count, broken, after], context: {
                    id: 00000000-0000-0000-0000-000000000001, created_at: '2030-01-01T12:00:00+00:00',
                    leads: [{email: a@b.c}]}}}""",
        )
        assert told(result) == []
