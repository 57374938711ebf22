"""A channel's picture is that of its graph, and a run's that of its flow: the one `turnline graph` draws."""

from __future__ import annotations

from tests.server.stage import served
from turnline.core.channel import ChannelSpec, Participant
from turnline.core.state import State, WorkflowState
from turnline.core.study.drawing import graph_picture
from turnline.flow.picture import flow_picture
from turnline.server.channels.picture import channel_picture

from .scene import HELP_DESK, scene

FLOW = """
metadata: {name: lead}
spec:
  steps:
    - id: choose
      kind: router
      router: {conditions: [{if: "urgent", signal: now}, {else: true, signal: later}]}
      routes: {now: call, later: END}
    - {id: call, runner: call, routes: {error: FAIL}}
    - id: each
      for_each: {items: people, as: one, steps: [{id: inner, runner: call}, {id: after, runner: call}]}
"""
MEMBERS = [Participant(f"{name}-1", name) for name in ("ann", "ben", "eve")]


async def test_a_channel_has_the_picture_of_its_graph_with_its_participants() -> None:
    async with scene() as stage:
        channel = await stage.open()
        spec = (await stage.hub.state(channel)).spec
        drawn = (await stage.data(f"/channels/{channel}"))["graph"]

    expected = graph_picture(HELP_DESK, participants=spec.participants, opener=spec.creator_id)
    assert drawn == expected.to_dict()
    assert [one["label"] for one in drawn["nodes"]] == ["carol", "helper"]
    assert drawn["nodes"][0]["agent_id"] == spec.creator_id
    assert drawn["rules"][0] == {"text": "from carol", "target": "helper"}


async def test_a_run_and_its_flow_have_the_same_picture() -> None:
    async with served(FLOW, call=lambda ctx: None) as server:
        run = await server.runtime.runs.start("lead", {"urgent": False, "people": []})
        of_run = (await server.get(f"/channels/{run}")).json()["data"]["graph"]
        of_flow = (await server.get("/flows/lead")).json()["data"]["picture"]
        drawn = flow_picture(server.runtime.flows["lead"])

    assert of_run == of_flow == drawn.to_dict()
    assert [one["label"] for one in of_run["nodes"]] == ["choose", "call", "each", "completed", "failed"]


async def test_inside_a_step_the_steps_are_drawn_that_are_there() -> None:
    async with served(FLOW, call=lambda ctx: None) as server:
        run = await server.runtime.runs.start("lead", {"urgent": True, "people": ["Ann"]})
        await server.ended(run)
        below = [one for one in await server.runtime.hub.list_channels() if one.parent_id == run]
        state = await server.runtime.hub.state(below[0].channel_id)
        drawn = await channel_picture(state, server.runtime.runs)

    assert [(one.label, one.detail) for one in drawn.nodes] == [
        ("inner", "functional"),
        ("after", "functional"),
        ("completed", ""),
    ]


async def test_what_only_looks_like_a_run_is_drawn_without_what_its_steps_do() -> None:
    async with served(FLOW, call=lambda ctx: None) as server:
        run = await server.runtime.runs.start("lead", {"urgent": False, "people": []})
        state = await server.runtime.hub.state(run)
        fork = WorkflowState(
            spec=ChannelSpec(channel_id="fork", participants=state.spec.participants, knobs=state.spec.knobs),
            graph_data=state.spec.knobs["graph"],
        )
        drawn = await channel_picture(fork, server.runtime.runs)

    assert [(one.label, one.detail) for one in drawn.nodes][:2] == [("choose", ""), ("call", "")]


async def test_without_a_graph_or_with_one_nobody_can_read_the_participants_are_drawn() -> None:
    spec = ChannelSpec(channel_id="c", creator_id="ann-1", participants=MEMBERS)
    broken = WorkflowState(spec=spec, graph_data={"initial_speaker": "ann", "transitions": [{"when": 1}]})

    async with served() as server:
        for state in (State(spec=spec), broken):
            found = await channel_picture(state, server.runtime.runs)
            assert [(node.label, node.agent_id) for node in found.nodes] == [
                (one.name, one.agent_id) for one in MEMBERS
            ]
            assert found.edges == ()
