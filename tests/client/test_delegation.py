"""T7: an agent asks another in the middle of its turn, waits for it, and goes on."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import msgspec

from tests.client.stage import heard, stage, told
from tests.client.tooling import actor, ask_ada, join, use
from tests.hub.scenes import House, closed, house, quiet, refused, until
from turnline.client.channel import Channel
from turnline.client.delegation import ANSWER_SECONDS, derived_id
from turnline.client.turn import Turn
from turnline.core.channel import ID_PATTERN, MAX_DEPTH, ChannelRow
from turnline.core.envelope import Envelope
from turnline.core.governance import Rule
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.step_targets import FanOutTarget
from turnline.core.transitions import FromSpeaker, TerminateTarget
from turnline.errors import NestedTooDeep, NotParticipant
from turnline.log.memory import MemoryLog
from turnline.testing import call


def ask(to: str, task: str = "please") -> Any:
    return call("delegate", to=to, task=task)


class Stuck:
    """A handler that begins and does not end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, turn: Turn) -> str:
        self.begun.set()
        await asyncio.Event().wait()
        return "never"


async def stuck_bob(home: House) -> Channel:
    """Ada waits for bob, who works and does not end."""
    stuck = Stuck()
    (await home.agent("bob")).on_turn(stuck)
    channel = await ask_ada(home)
    await stuck.begun.wait()
    return channel


async def below(home: House, *channels: str) -> list[ChannelRow]:
    """The channels under these, the nearest first."""
    children = [one for one in await home.hub.list_channels() if one.parent_id in channels]
    return children + (await below(home, *(one.channel_id for one in children)) if children else [])


# --- asking ---


async def test_t7_the_answer_comes_back_as_the_tools_result() -> None:
    ada, model = actor("ada", ask("bob", "2 + 2?"), "It is 4.")
    bob, asked = actor("bob", "4")
    async with stage(ada, bob) as home:
        result = await (await ask_ada(home)).result()

    assert told(model) == ["4"]
    assert result.text == "It is 4."
    assert heard(asked) == [("ada", "2 + 2?")]


async def test_t7_it_is_asked_on_a_channel_of_its_own_below_the_turns() -> None:
    ada, _ = actor("ada", ask("bob"), "done")
    async with stage(ada, actor("bob", "4")[0]) as home:
        channel = await ask_ada(home)
        await closed(channel)
        [child] = await below(home, channel.channel_id)

        assert (child.type, child.parent_id) == ("consulting", channel.channel_id)
        assert child.close_code == "consulting_complete"
        assert (await home.hub.state(child.channel_id)).spec.depth == 1


async def test_t7_several_deep_each_waits_for_the_next() -> None:
    names = ["ada", "bob", "cleo", "dan", "eve"]
    agents = [actor(name, ask(after), f"{name} is done")[0] for name, after in pairwise(names)]
    async with stage(*agents, actor("eve", "nothing left")[0]) as home:
        channel = await ask_ada(home)
        text = (await channel.result()).text
        depths = [
            (await home.hub.state(one.channel_id)).spec.depth for one in await below(home, channel.channel_id)
        ]

    assert text == "ada is done"
    assert depths == [1, 2, 3, 4]


async def test_t7_several_at_once_also_of_the_same_peer() -> None:
    ada, model = actor("ada", [ask("bob", "one"), ask("cleo", "two"), ask("bob", "three")], "done")
    echo = [actor(name, lambda messages: messages[-1].text.upper())[0] for name in ("bob", "cleo")]
    async with stage(ada, *echo) as home:
        await closed(await ask_ada(home))

    assert told(model) == ["ONE", "TWO", "THREE"]


async def test_a_person_can_be_asked() -> None:
    ada, model = actor("ada", ask("user", "sure?"), "done")
    async with stage(ada) as home:
        user = home.people["user"]

        @user.on_envelope
        async def answer(envelope: Envelope) -> None:
            if envelope.event_data.get("text") == "sure?":
                await user.channel(envelope.channel_id).send("yes")

        await closed(await ask_ada(home))

    assert told(model) == ["yes"]


async def test_an_agent_is_not_shown_names_that_a_rule_hides_from_it() -> None:
    ada, model = actor("ada", ask("bo"), [call("peers"), ask("boss")], "done")
    async with stage(actor("bob", "4")[0]) as home:
        await join(home, ada, rule=Rule(may_address=["b*"]))
        await join(home, actor("boss", "4")[0], rule=Rule(addressable_by=["secretary"]))
        await join(home, actor("cleo", "4")[0])
        await closed(await ask_ada(home))
    unknown, peers, denied = told(model)

    assert "known: bob." in unknown
    assert [one["name"] for one in msgspec.json.decode(peers)] == ["bob"]
    assert "secretary" not in denied
    assert not [name for name in ("cleo", "user", "boss", "secretary") if name in unknown + peers]


# --- circles ---


async def test_t7_whoever_waits_cannot_be_asked_and_the_circle_is_named() -> None:
    ada, waiting = actor("ada", ask("bob"), "done")
    bob, model = actor("bob", ask("ada"), "I do it myself.")
    async with stage(ada, bob) as home:
        channel = await ask_ada(home)
        await closed(channel)
        opened = await below(home, channel.channel_id)

    assert told(model) == [
        "DelegationCycle: 'bob' cannot ask 'ada', who waits for it already: ada -> bob -> ada. "
        "Answer with what you have, or ask somebody else."
    ]
    assert told(waiting) == ["I do it myself."]
    assert len(opened) == 1


async def test_t7_a_circle_through_others_and_one_that_begins_further_down() -> None:
    ada, bob = actor("ada", ask("bob"), "done")[0], actor("bob", ask("cleo"), "done")[0]
    cleo, model = actor("cleo", [ask("ada"), ask("bob"), ask("cleo")], "done")
    async with stage(ada, bob, cleo) as home:
        await closed(await ask_ada(home))

    circles = [line.split(": ")[2].split(". ")[0] for line in told(model)]
    assert circles == ["ada -> bob -> cleo -> ada", "bob -> cleo -> bob", "cleo -> cleo"]


async def test_t7_a_circle_through_a_step_of_a_graph() -> None:
    """Ada asks bob, whose graph asks cleo on his behalf, who would ask ada."""
    ada, bob = actor("ada", ask("bob"), "done")[0], actor("bob", call("poll"), "done")[0]
    cleo, model = actor("cleo", ask("ada"), "no idea")
    polled = Transition(FromSpeaker("bob"), FanOutTarget(["cleo"]))
    graph = TransitionGraph("bob", [polled], TerminateTarget("polled"))
    async with stage(ada, bob, cleo) as home:

        @bob.tool
        async def poll() -> str:
            channel = await home["bob"].open("workflow", "cleo", {"graph": graph.to_dict()}, message="well?")
            return (await channel.result()).text

        await closed(await ask_ada(home))

    assert "ada -> bob -> cleo -> ada" in told(model)[0]


async def test_t7_the_circle_is_found_on_the_log_by_a_process_that_opened_nothing_of_it() -> None:
    """Ada's process is gone; her turn is not over, and the next one will wait again."""
    log = MemoryLog()
    async with stage(actor("ada", ask("bob"), "done")[0], log=log) as home:
        channel = await stuck_bob(home)
    agent, model = actor("bob", ask("ada"), "on my own")
    async with stage(agent, log=log, people=()) as home:
        await until(lambda: len(model.requests) == 2)
        await quiet()

        assert "ada -> bob -> ada" in told(model)[0]
        assert (await home.hub.state(channel.channel_id)).claims > 0


async def test_whoever_only_asked_and_does_not_wait_can_be_asked_back() -> None:
    async with house(MemoryLog(), "ada", "bob") as home:
        top = await home.talk(by="ada", to="bob")
        child = await home.talk(by="ada", to="bob", parent=top.channel_id)

        assert await home.talk(by="bob", to="ada", parent=child.channel_id)


# --- what keeps a peer from answering is told in one line ---


async def told_of(*script: Any, rule: Rule | None = None, bob: Any = "4") -> str:
    """What ada's model is told when she asks under a rule."""
    ada, model = actor("ada", *script, "done")
    async with stage(actor("bob", bob)[0]) as home:
        await join(home, ada, rule=rule)
        await closed(await ask_ada(home))
    assert "\n" not in told(model)[0]
    return told(model)[0]


async def test_a_rule_about_whom_to_address() -> None:
    line = await told_of(ask("bob"), rule=Rule(may_address=["user"]))

    assert line == "Denied: 'ada' may not address bob: its rule allows only user."


async def test_a_rule_about_the_depth() -> None:
    assert await told_of(ask("bob"), rule=Rule(delegation_depth=1)) == "4"
    line = await told_of(ask("bob"), rule=Rule(delegation_depth=0))
    assert line == "Denied: 'ada' may not delegate 1 deep: its rule allows 0."


async def test_the_rule_about_the_depth_counts_from_the_top() -> None:
    ada, _ = actor("ada", ask("bob"), "done")
    bob, model = actor("bob", ask("cleo"), "done")
    async with stage(ada, actor("cleo", "4")[0]) as home:
        await join(home, bob, rule=Rule(delegation_depth=1))
        await closed(await ask_ada(home))

    assert told(model) == ["Denied: 'bob' may not delegate 2 deep: its rule allows 1."]


async def test_a_name_nobody_has() -> None:
    line = await told_of(ask("bop"))

    assert line.startswith("UnknownParticipant: no participant is known as 'bop'; known: ada, bob, user.")


async def test_a_peer_that_fails() -> None:
    """T5: its turn is given up; the one who asked goes on."""
    line = await told_of(ask("bob"), bob=RuntimeError("no power"))

    assert line.startswith("NoAnswer: 'bob' gave no answer: channel '")
    assert "closed with 'turn_failed' (AgentError)" in line
    assert "no power" not in line


async def test_a_peer_that_takes_too_long() -> None:
    ada, model = actor("ada", ask("bob"), "done")
    async with stage(ada) as home:
        channel = await stuck_bob(home)
        await home.pass_time(ANSWER_SECONDS)

        assert await closed(channel) == "sequence_complete"
        assert "expectation_violated:turn_within" in told(model)[0]


# --- retries ---


async def test_t3_the_same_call_opens_one_channel() -> None:
    async with stage(actor("bob", "4")[0]) as home:
        ada = await home.agent("ada")
        here = await ada.open("conversation", "user")
        given: dict[str, Any] = {"to": "bob", "task": "2 + 2?"}
        at_once = [use(home, "ada", here, "delegate", again="1", **given) for _ in range(2)]
        outputs = [
            *await asyncio.gather(*at_once),
            await use(home, "ada", here, "delegate", again="1", **given),
        ]

        assert [output.text for output in outputs] == ["4"] * 3
        assert len(await below(home, here.channel_id)) == 1


async def test_t3_a_turn_that_is_taken_up_again_waits_for_the_channel_that_is_there() -> None:
    """The process dies while bob works: ada's model is not asked again, nor is bob's channel opened again."""
    log = MemoryLog()

    def script(messages: tuple[Any, ...]) -> Any:
        return ask("bob") if len(messages) == 1 else f"bob says {messages[-1].text}"

    async with stage(actor("ada", script)[0], log=log) as home:
        channel = await stuck_bob(home)
        await home.hub.close()  # What the clients do after that reaches no log.
    ada, model = actor("ada", script)
    async with stage(ada, actor("bob", "4")[0], log=log) as home:
        result = await home.handle("user", channel).result()

        assert result.text == "bob says 4"
        assert len(model.requests) == 1
        assert len(await below(home, channel.channel_id)) == 1


async def test_t3_an_answer_that_was_given_meanwhile_is_read() -> None:
    async with stage(actor("bob", "4")[0]) as home:
        here = await (await home.agent("ada")).open("conversation", "user")
        first = await use(home, "ada", here, "delegate", again="1", to="bob", task="2 + 2?")
        await home["bob"].close()

        assert await use(home, "ada", here, "delegate", again="1", to="bob", task="2 + 2?") == first


def test_an_id_that_follows_from_a_key_is_an_id() -> None:
    made = derived_id("ask", "a key: with / anything in it" * 100)

    assert ID_PATTERN.fullmatch(made)
    assert made == derived_id("ask", "a key: with / anything in it" * 100)
    assert made != derived_id("ask", "another")


# --- opening channels in a turn, without the tool ---


def opening_tool(home: House) -> Any:
    async def consult() -> str:
        """Ask bob, by hand."""
        return (await (await home["ada"].open("consulting", "bob", message="2 + 2?")).result()).text

    return consult


async def test_t7_what_an_agent_opens_in_its_turn_is_below_that_turns_channel() -> None:
    ada, model = actor("ada", call("consult"), "done")
    async with stage(ada, actor("bob", "4")[0]) as home:
        ada.tool(opening_tool(home))
        channel = await ask_ada(home)
        await closed(channel)

        assert told(model) == ["4"]
        assert [one.type for one in await below(home, channel.channel_id)] == ["consulting"]


async def test_t7_the_depth_holds_there_as_well() -> None:
    ada, model = actor("ada", call("consult"), "done")
    async with stage(actor("bob", "4")[0]) as home:
        await join(home, ada, rule=Rule(delegation_depth=0))
        ada.tool(opening_tool(home))
        await closed(await ask_ada(home))

    assert told(model) == ["Denied: 'ada' may not delegate 1 deep: its rule allows 0."]


async def test_t7_and_so_do_circles() -> None:
    ada, _ = actor("ada", call("consult"), "done")
    bob, model = actor("bob", ask("ada"), "4")
    async with stage(ada, bob) as home:
        ada.tool(opening_tool(home))
        await closed(await ask_ada(home))

    assert "ada -> bob -> ada" in told(model)[0]


async def test_what_is_opened_outside_of_a_turn_is_below_nothing() -> None:
    """Also by a callback of the same agent that the turn set off."""
    ada, _ = actor("ada", ask("bob"), "done")
    opened = list[Channel]()
    async with stage(ada, actor("bob", "4")[0]) as home:

        @home["ada"].on_envelope
        async def react(envelope: Envelope) -> None:
            if envelope.event_type == "channel.opened" and "-ask-" in envelope.channel_id:
                opened.append(await home["ada"].open("conversation", "user"))

        await closed(await ask_ada(home))
        await until(lambda: opened)

        assert [(await one.info()).parent_id for one in opened] == [None]


async def test_only_a_member_opens_a_channel_below_another() -> None:
    async with house(MemoryLog(), "ada", "bob", "eve") as home:
        channel = await home.talk(by="ada", to="bob")

        await refused(NotParticipant, home.talk(by="eve", to="bob", parent=channel.channel_id))


async def test_channels_are_not_below_each_other_without_end() -> None:
    async with house(MemoryLog(), "ada", "bob") as home:
        channel = await home.talk(by="ada", to="bob")
        for _ in range(MAX_DEPTH):
            channel = await home.talk(by="ada", to="bob", parent=channel.channel_id)

        await refused(NestedTooDeep, home.talk(by="ada", to="bob", parent=channel.channel_id))
