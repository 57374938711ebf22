"""The hub as a program in the same process sees it: with the short way in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub.scenes import A_B, answers
from turnline.client.participant import AgentClient
from turnline.core.governance import Passport, Resume, Rule
from turnline.errors import UnknownName
from turnline.knowledge import DiskKnowledgeStore, MemoryKnowledgeStore
from turnline.network import EV_CHANNEL_CLOSED, Hub, HubClient, LocalLink, TransitionGraph
from turnline.network.workflow_helpers import delete_context, set_context


async def test_the_short_way_in() -> None:
    hub = await Hub.open(MemoryKnowledgeStore())
    alice = await hub.register(None, Passport(name="alice"))
    bob = await hub.register(None, Passport(name="bob"), Resume(), rule=Rule(), attach_plugin=False)
    bob.on_turn(answers("bye"))
    channel = await alice.open(target="bob", knobs={"graph": A_B.to_dict()}, message="hello")

    assert (await channel.result(timeout=60)).text == "bye"
    await hub.close()


async def test_closing_the_hub_closes_the_clients_it_gave() -> None:
    log = MemoryKnowledgeStore()
    for _ in range(2):
        hub = await Hub.open(log, ttl_sweep_interval=0)
        alice = await hub.register(None, Passport(name="alice"))
        assert isinstance(alice, AgentClient)
        await hub.close()


async def test_the_pipeline_of_seed_004(tmp_path: Path) -> None:
    """Word for word, with a store on a disk and callbacks for the models."""
    hub = await Hub.open(DiskKnowledgeStore(tmp_path / "log.db"), ttl_sweep_interval=0)
    link = LocalLink(hub)
    rhc, whc, ehc = (HubClient(link, hub=hub) for _ in range(3))
    researcher = await rhc.register(None, Passport(name="researcher"), Resume(), attach_plugin=False)
    writer = await whc.register(None, Passport(name="writer"), Resume(), attach_plugin=False)
    editor = await ehc.register(None, Passport(name="editor"), Resume(), attach_plugin=False)
    writer.on_turn(answers("a paragraph"))
    editor.on_turn(answers("a tight paragraph"))
    graph = TransitionGraph.sequence([researcher.agent_id, writer.agent_id, editor.agent_id])
    channel = await researcher.open(
        type="workflow",
        target=[writer.agent_id, editor.agent_id],
        knobs={"graph": graph.to_dict()},
    )
    await set_context(channel, "topic", "https")
    await delete_context(channel, "topic")
    await channel.send("Topic: how does HTTPS work?")
    close_env = await researcher.wait_for_channel_event(
        channel_id=channel.channel_id,
        predicate=lambda e: e.event_type == EV_CHANNEL_CLOSED,
        timeout=60.0,
    )

    assert close_env.event_data.get("reason") == "sequence_complete"
    assert len(await hub.read_wal(channel.channel_id)) > 5
    assert len(await hub._audit_log.read_all()) == 5
    for hc in (rhc, whc, ehc):
        await hc.close()
    await hub.close()


async def test_a_log_may_be_given_by_its_address(tmp_path: Path) -> None:
    hub = await Hub.open(f"sqlite:///{tmp_path}/log.db", ttl_sweep_interval=0)
    await hub.close()

    assert (tmp_path / "log.db").exists()


async def test_an_address_nobody_knows_is_told() -> None:
    with pytest.raises(UnknownName, match=r"'sqllite'.*Did you mean 'sqlite'\?"):
        await Hub.open("sqllite:///log.db")
