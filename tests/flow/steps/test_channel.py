"""`channel`: a conversation is opened once; its last words and variables are the step's result."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.graph import TransitionGraph
from turnline.errors import BadGraph, ChildFailed
from turnline.flow.steps import channel
from turnline.flow.work import StepResult

from .attempts import Attempt

OWN = TransitionGraph.sequence(["editor", "writer"]).to_dict()


def talking(**block: Any) -> Attempt:
    talk = {"agents": ["writer", "editor"], "message": "About {{ topic }}", **block}
    return Attempt(channel.perform, {"channel": talk}, public={"topic": "HTTPS", "words": 100})


async def graph_of(attempt: Attempt) -> TransitionGraph:
    await attempt.paused()
    graph = attempt.children.opened[0].graph
    assert graph is not None
    return TransitionGraph.loads(graph)


async def closed(attempt: Attempt, **how: Any) -> Attempt:
    await attempt.paused()
    attempt.children.close("channel", **how)
    attempt.woken()
    return attempt


async def test_a_conversation_begins_with_the_message_and_the_context_filled() -> None:
    attempt = talking(context={"limit": "{{ words }}", "tone": "dry"})
    paused = await attempt.paused()

    (child,) = attempt.children.opened

    assert (child.place, child.what, child.message) == ("channel", "writer,editor", "About HTTPS")
    assert child.context == {"limit": 100, "tone": "dry"}
    assert (paused.reason, paused.data) == ("children", {"open": ["channel"]})


async def test_agents_speak_in_sequence_unless_the_step_says_otherwise() -> None:
    assert await graph_of(talking()) == TransitionGraph.sequence(["writer", "editor"])


async def test_round_robin_ends_after_so_many_turns() -> None:
    expected = TransitionGraph.round_robin(["writer", "editor"], 6)

    assert await graph_of(talking(pattern="round_robin", max_turns=6)) == expected


async def test_somebody_who_speaks_twice_takes_part_once() -> None:
    attempt = talking(agents=["writer", "editor", "writer"])

    assert await graph_of(attempt) == TransitionGraph.sequence(["writer", "editor", "writer"])
    assert attempt.children.opened[0].what == "writer,editor"


@pytest.mark.parametrize(("own_limit", "limit"), [(None, 20), (3, 3)])
async def test_a_graph_of_the_users_own_is_taken_and_one_without_a_limit_gets_the_steps(
    own_limit: int | None, limit: int
) -> None:
    graph = await graph_of(talking(graph=OWN | {"max_turns": own_limit}))

    assert graph.to_dict() == OWN | {"max_turns": limit}


async def test_what_is_no_graph_opens_nothing() -> None:
    attempt = talking(graph={"nodes": []})

    with pytest.raises(BadGraph):
        await attempt.call()

    assert attempt.children.opened == []


@pytest.mark.parametrize(("into", "key"), [(None, "it"), ("article", "article")])
async def test_the_last_words_go_under_the_steps_id_or_where_into_says(into: str | None, key: str) -> None:
    attempt = await closed(talking(into=into), words="The end.", reason="sequence_complete")

    assert await attempt.done() == StepResult(updates={key: "The end."})


async def test_context_variables_of_the_conversation_are_mapped_and_no_others_come_back() -> None:
    attempt = talking(map={"score": "article_score", "never_set": "nothing"}, context={"tone": "dry"})
    await closed(attempt, wrote={"score": 9, "draft": "..."}, words="StepResult.", reason="sequence_complete")

    assert await attempt.done() == StepResult(updates={"article_score": 9, "it": "StepResult."})


@pytest.mark.parametrize(
    "reason",
    [
        "turn_failed",
        "ttl_expired",
        "cancelled",
        "expectation_violated:turn_within",
        "invite_rejected",
        "invite_timeout",
    ],
)
async def test_a_conversation_that_broke_off_fails_the_step_and_says_why(reason: str) -> None:
    attempt = await closed(talking(), reason=reason)

    with pytest.raises(ChildFailed) as failed:
        await attempt.call()

    assert failed.value.error_type == reason
    assert repr(reason) in str(failed.value)


@pytest.mark.parametrize("reason", ["sequence_complete", "max_turns", "agreed", "closed"])
async def test_whatever_else_a_conversation_closes_with_is_its_end(reason: str) -> None:
    attempt = await closed(talking(), reason=reason, words="Bye.")

    assert (await attempt.done()).updates == {"it": "Bye."}


async def test_f7_a_conversation_that_goes_on_already_is_not_opened_again() -> None:
    attempt = talking()
    await attempt.call()
    await attempt.call()
    await attempt.paused()

    assert attempt.children.places == ["channel"]
