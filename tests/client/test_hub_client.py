"""A program's connection to a hub: registers participants and gives their clients."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.hub.scenes import House, house, refused
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.link import LocalLink
from turnline.client.participant import AgentClient
from turnline.core.governance import Passport, Resume, Rule
from turnline.errors import BadDraft, NameTaken
from turnline.log.memory import MemoryLog


@dataclass
class Writer:
    """Something with a name, as an agent has."""

    name: str = "writer"


async def test_register_gives_the_client_of_an_agent() -> None:
    async with house(MemoryLog()) as home:
        agent = Writer()
        client = await home.door.register(
            agent, Passport(name="alice"), Resume(summary="writes"), attach_plugin=False
        )
        known = home.hub.participant("alice")

        assert isinstance(client, AgentClient)
        assert (client.agent, client.attach_plugin) == (agent, False)
        assert (known.agent_id, known.resume.summary) == (client.agent_id, "writes")


async def test_without_a_passport_the_agents_name_will_do() -> None:
    async with house(MemoryLog()) as home:
        assert (await home.door.register(Writer())).name == "writer"


async def test_somebody_without_a_name_is_refused() -> None:
    async with house(MemoryLog()) as home:
        assert (await refused(BadDraft, home.door.register())).field == "passport.name"


async def test_a_person_is_sent_to_register_human() -> None:
    async with house(MemoryLog()) as home:
        error = await refused(BadDraft, home.door.register(None, Passport(name="user", kind="human")))

        assert "register_human" in str(error)
        assert home.hub.participants() == []


async def test_register_human_gives_the_client_of_a_person() -> None:
    async with house(MemoryLog()) as home:
        passport = Passport(name="user", kind="human")
        rule = Rule(channel_types=["workflow"])
        client = await home.door.register_human(passport, resume=Resume(summary="decides"), rule=rule)

        assert isinstance(client, HumanClient)
        assert home.hub.participant("user").rule == rule


@pytest.mark.parametrize("kind", ["agent", "remote_agent"])
async def test_register_human_wants_a_person(kind: str) -> None:
    async with house(MemoryLog()) as home:
        error = await refused(BadDraft, home.door.register_human(Passport(name="user", kind=kind)))
        assert error.field == "passport.kind"


async def test_closing_gives_up_every_seat() -> None:
    async with house(MemoryLog(), "alice", people=["user"]) as home:
        await home.door.close()
        await home.door.close()

        again = House(home.hub, home.clock)
        assert await again.agent("alice")
        assert await again.person("user")
        await again.door.close()


async def test_several_connections_share_a_hub_and_its_names() -> None:
    """As in the seeds: one `HubClient` each."""
    async with house(MemoryLog(), "alice") as home:
        other = HubClient(LocalLink(home.hub), hub=home.hub)
        bob = await other.register(None, Passport(name="bob"))
        await refused(NameTaken, other.register(None, Passport(name="alice")))
        home.agents["bob"] = bob

        assert await home.talk()
        await other.close()


async def test_somebody_who_could_not_be_attached_is_not_closed_in_its_place() -> None:
    """L6: the one who has the seat keeps it."""
    async with house(MemoryLog(), "alice", "bob") as home:
        other = HubClient(LocalLink(home.hub))
        await refused(NameTaken, other.register(None, Passport(name="bob")))
        await other.close()

        assert await home.talk()
