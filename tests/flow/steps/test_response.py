"""What the caller gets is what the response step shaped."""

from __future__ import annotations

from tests.flow.stage import stage


async def test_f6_a_response_maps_context_keys_and_expressions() -> None:
    flow = """
    steps:
      - id: respond
        kind: response
        response:
          status: 201
          mapping: {id: id, hot: score > 80, label: "{{ name }}", nested: {n: score}, fixed: 3, gone: missing}
      - {id: after, runner: never}
    """
    async with stage(flow) as house:
        done = await house.run(id=7, score=91, name="Ann")

    assert done.data == {"id": 7, "hot": True, "label": "Ann", "nested": {"n": 91}, "fixed": 3, "gone": None}
    assert done.http_status == 201


async def test_f6_without_a_mapping_the_response_is_the_context_as_it_was_then() -> None:
    flow = """
    steps:
      - {id: respond, kind: response, routes: {default: later}}
      - {id: later, runner: work}
    """
    async with stage(flow, work=lambda ctx: {"later": True}) as house:
        done = await house.run(a=1)

    assert done.data == {"a": 1}


async def test_f2_a_response_has_no_private_keys_of_its_own() -> None:
    async with stage("steps: [{id: r, kind: response, response: {mapping: {_x: a, b: a}}}]") as house:
        done = await house.run(a=1)

    assert done.data == {"b": 1}
