"""H1, N1b: who may ask people, and who may answer."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core import event_types as ev
from turnline.core.adapters import ConversationAdapter, DiscussionAdapter
from turnline.core.channel import ForkedFrom, Participant
from turnline.core.envelope import Draft, Speak
from turnline.core.graph import sequence
from turnline.core.questions import QUESTIONS_PER_TURN, find, shown_questions
from turnline.core.state import WorkflowState, has_open_question
from turnline.errors import (
    AlreadyAnswered,
    AlreadyAsked,
    BadDraft,
    ClaimLost,
    NotAsked,
    NotDue,
    NotYet,
    OutOfTurn,
    QuestionExpired,
    ReservedEventType,
    TooManyQuestions,
    UnknownQuestion,
)

from .scenes import Scene, claims, draft, fails, hub, invited, live, packs, says, workflow

ANN, BEN = Participant("ann", "ann", "human"), Participant("ben", "ben", "human")
ADA_BOB = sequence(["ada", "bob"])


def request_id(number: int = 1) -> str:
    return f"{number:032x}"


def at_work() -> Scene[WorkflowState]:
    """A channel on which somebody works on ada's turn."""
    scene = workflow(ADA_BOB, ANN, BEN, "ada", "bob", expectations=[])
    scene.accept(claims("ada"))
    return scene


def asks(scene: Scene[Any], sender: str = "ada", to: Any = ("ann",), **more: Any) -> Draft:
    claim = more.pop("claim") if "claim" in more else live(scene)
    known = {"request_id": request_id(), "question": "sure?", "turn": 1, "call": "1.1", "position": 1}
    audience = to if to is None else list(to)
    return draft(sender, ev.EV_HUMAN_REQUESTED, known | more, audience=audience, claim=claim)


def answers(sender: str, number: Any = 1, answer: Any = "yes", **more: Any) -> Draft:
    data = {"request_id": request_id(number), "answer": answer}
    return draft(sender, ev.EV_HUMAN_ANSWERED, data | more)


def asked(to: tuple[str, ...] = ("ann",)) -> Scene[WorkflowState]:
    scene = at_work()
    scene.accept(asks(scene, to=to))
    return scene


# --- who may answer ---


def test_a_person_whom_the_question_addresses_answers() -> None:
    scene = asked()
    (line,) = scene.accept(answers("ann"))

    assert (line.sender_id, line.event_data["answer"]) == ("ann", "yes")
    assert scene.state.questions[request_id()].answer_seq == line.seq
    assert scene.replayed() == scene.state


@pytest.mark.parametrize("sender", ["ada", "bob", "ben"])
def test_the_asker_another_agent_and_another_person_are_refused(sender: str) -> None:
    scene = asked()

    assert scene.refusal(answers(sender), NotAsked).sender == sender


def test_a_stranger_is_refused_before_it_learns_that_a_question_is_answered() -> None:
    scene = asked()
    scene.accept(answers("ann"))

    scene.refusal(answers("bob"), NotAsked)
    scene.refusal(answers("ann"), AlreadyAnswered)


def test_of_several_people_the_first_answer_counts() -> None:
    scene = asked(("ann", "ben"))
    scene.accept(answers("ben"))

    scene.refusal(answers("ann"), AlreadyAnswered)


def test_an_answer_to_a_question_that_was_never_asked_is_refused() -> None:
    scene = at_work()

    scene.refusal(answers("ann"), UnknownQuestion)


def test_an_answer_after_the_turn_is_refused() -> None:
    scene = asked()
    scene.accept(packs("ada", claim=live(scene)))

    assert scene.state.questions == {}
    scene.refusal(answers("ann"), UnknownQuestion)


def test_a_question_and_its_answer_go_to_the_asker_and_the_people_asked() -> None:
    scene = asked(("ann", "ben"))
    (line,) = scene.accept(draft("ann", ev.EV_HUMAN_ANSWERED, answers("ann").event_data, audience=["bob"]))

    assert scene.log[-2].audience == ["ann", "ben"]
    assert line.audience == ["ada", "ann", "ben"]


def test_the_hub_writes_who_answered_and_for_whom() -> None:
    scene = asked()
    scene.refusal(answers(ev.HUB, by="root", **{"for": "ben"}), NotAsked)
    (line,) = scene.accept(answers(ev.HUB, by="root", **{"for": "ann"}))

    assert (line.sender_id, line.event_data["by"], line.event_data["for"]) == (ev.HUB, "root", "ann")


def test_the_hub_answers_for_no_agent() -> None:
    scene = asked()

    scene.refusal(answers(ev.HUB, by="root", **{"for": "ada"}), NotAsked)


@pytest.mark.parametrize("more", [{}, {"by": "root"}, {"by": "", "for": "ann"}, {"by": 1, "for": "ann"}])
def test_the_hub_answers_for_nobody_without_both_names(more: dict[str, Any]) -> None:
    scene = asked()

    scene.refusal(answers(ev.HUB, **more), BadDraft)


@pytest.mark.parametrize("more", [{"by": "root", "for": "ann"}, {"pause": 1}, {"answer": {"approved": True}}])
def test_a_participant_answers_in_its_own_name_and_with_text(more: dict[str, Any]) -> None:
    scene = asked()

    scene.refusal(answers("ann", **more), BadDraft)
    scene.refusal(answers("ada", **more), BadDraft)


def test_only_the_hub_ends_a_pause_with_an_answer() -> None:
    """A member of a run must not answer the task of a group that it is not in."""
    scene = at_work()
    pause = {"agent_id": "ada", "reason": "person"}
    scene.accept(hub(ev.EV_TURN_PAUSED, pause, claim=live(scene)))
    assert scene.state.pause is not None
    data = {"pause": scene.state.pause.seq, "request_id": "c1-1", "answer": {}, "by": "ann"}

    for sender in ("ada", "bob", "ann"):
        scene.refusal(draft(sender, ev.EV_HUMAN_ANSWERED, data), BadDraft)
    scene.accept(hub(ev.EV_HUMAN_ANSWERED, data))
    assert scene.state.pause is None


# --- who may ask ---


def test_only_the_worker_of_the_turn_in_progress_asks() -> None:
    scene = at_work()

    scene.refusal(asks(scene, sender="bob"), OutOfTurn)
    scene.refusal(asks(scene, claim=None), ClaimLost)
    scene.refusal(asks(scene, turn=2), OutOfTurn)


@pytest.mark.parametrize("to", [None, [], ["bob"], ["ada"], ["ann", "bob"]])
def test_a_question_addresses_people_and_nobody_else(to: Any) -> None:
    scene = at_work()

    assert scene.refusal(asks(scene, to=to), BadDraft).field == "audience"


@pytest.mark.parametrize("given", ["ask-1", "x" * 21, "x" * 65, "with spaces" * 3, 7])
def test_a_request_id_is_long_enough_not_to_be_guessed(given: Any) -> None:
    scene = at_work()

    assert scene.refusal(asks(scene, request_id=given), BadDraft).field == "event_data.request_id"


@pytest.mark.parametrize(
    "wrong",
    [{"question": None}, {"turn": "1"}, {"position": 0}, {"position": True}, {"call": "x" * 65}, {"more": 1}],
)
def test_a_question_has_its_form(wrong: dict[str, Any]) -> None:
    scene = at_work()

    scene.refusal(asks(scene, **wrong), BadDraft)


def test_a_question_is_asked_once() -> None:
    scene = asked()

    scene.refusal(asks(scene, request_id=request_id(2)), AlreadyAsked)
    scene.refusal(asks(scene, position=2), AlreadyAsked)
    scene.accept(asks(scene, request_id=request_id(2), position=2))
    scene.accept(asks(scene, request_id=request_id(3), call="1.2"))
    assert [(one.call, one.position) for one in scene.state.questions.values()] == [
        ("1.1", 1),
        ("1.1", 2),
        ("1.2", 1),
    ]


def test_a_worker_that_takes_the_turn_over_finds_the_question() -> None:
    scene = asked()
    scene.accept(claims("ada", "w2", replaces=live(scene)))
    found = find(scene.state, call="1.1", position=1)

    assert found is not None
    assert (found[0], found[1].seq) == (request_id(), scene.state.questions[request_id()].seq)
    scene.refusal(asks(scene, request_id=request_id(2)), AlreadyAsked)
    scene.accept(answers("ann"))


def test_the_state_keeps_so_many_questions_and_no_more() -> None:
    scene = at_work()
    for number in range(1, QUESTIONS_PER_TURN + 1):
        scene.accept(asks(scene, request_id=request_id(number), position=number), answers("ann", number))

    refused = scene.refusal(asks(scene, request_id=request_id(999), position=999), TooManyQuestions)
    assert refused.limit == QUESTIONS_PER_TURN


@pytest.mark.parametrize("end", ["packet", "failed", "closed"])
def test_questions_end_with_their_turn(end: str) -> None:
    scene = asked()
    scene.accept(
        {
            "packet": packs("ada", claim=live(scene)),
            "failed": fails("ada", claim=live(scene)),
            "closed": hub(ev.EV_CHANNEL_CLOSED, {"reason": "enough"}),
        }[end]
    )

    assert scene.state.questions == {}


def test_a_participant_is_shown_its_own_questions_only() -> None:
    scene = asked()
    known = {one: list(shown_questions(scene.state, one)) for one in ("ada", "ann", "ben", "bob")}

    assert known == {"ada": [request_id()], "ann": [request_id()], "ben": [], "bob": []}


def test_an_answer_does_not_wait_for_the_packet_in_flight_and_an_interjection_does() -> None:
    scene = asked()

    scene.refusal(says("ben"), NotYet)
    scene.accept(answers("ann"))


def test_in_a_channel_that_rests_no_agent_asks_people() -> None:
    """Anyone may speak there, but a question needs a turn that its speaker works on."""
    scene = invited(DiscussionAdapter(), ANN, "ada", "bob", expectations=[])
    scene.accept(says("ann"), claims("ada"))
    scene.accept(packs("ada", body="", claim=live(scene)))
    assert scene.state.is_resting

    scene.refusal(asks(scene, "bob", turn=scene.state.turn, claim=None), ClaimLost)


def test_in_a_conversation_an_agent_asks_only_in_a_turn_that_it_works_on() -> None:
    scene = invited(ConversationAdapter(), ANN, "ada", expectations=[])
    scene.accept(says("ann"))

    scene.refusal(asks(scene, turn=2, claim=None), ClaimLost)
    scene.accept(claims("ada"))
    scene.accept(asks(scene, turn=2))


# --- N1b: answers and pauses ---


def pauses(scene: Scene[Any], *numbers: int, **more: Any) -> Draft:
    """The pause of a turn that waits for the answers to these questions."""
    awaited = {"questions": [request_id(one) for one in numbers]} if numbers else {}
    data = {"agent_id": "ada", "turn": 1, "reason": "person", **awaited, **more}
    return hub(ev.EV_TURN_PAUSED, data, claim=live(scene))


def two_asked() -> Scene[WorkflowState]:
    scene = asked()
    scene.accept(asks(scene, request_id=request_id(2), call="1.2"))
    return scene


def test_n1b_an_answer_ends_the_pause_that_waits_for_it_in_the_same_append() -> None:
    scene = asked()
    scene.accept(pauses(scene, 1))

    answer, resumed = scene.accept(answers("ann"))

    assert (answer.event_type, resumed.event_type) == (ev.EV_HUMAN_ANSWERED, ev.EV_TURN_RESUMED)
    assert scene.state.pause is None
    assert scene.replayed() == scene.state
    scene.accept(claims("ada"))


def test_n1b_the_line_that_resumes_a_turn_gives_its_speaker_the_floor_again() -> None:
    scene = asked()
    scene.accept(pauses(scene, 1))

    resumed = scene.accept(answers("ann"))[-1]

    assert isinstance(resumed.decision, Speak)
    assert (resumed.decision.agent_id, resumed.decision.by.kind) == ("ada", "resume")


def test_n1b_a_pause_ends_in_its_own_append_if_an_awaited_answer_is_there() -> None:
    scene = two_asked()
    scene.accept(answers("ann", 2))

    appended = scene.accept(pauses(scene, 1, 2))

    assert [one.event_type for one in appended] == [ev.EV_TURN_PAUSED, ev.EV_TURN_RESUMED]
    assert scene.state.pause is None


def test_n1b_the_first_of_two_answers_resumes_the_turn_and_the_second_is_still_accepted() -> None:
    scene = two_asked()
    scene.accept(pauses(scene, 1, 2))

    assert len(scene.accept(answers("ann", 2))) == 2
    assert len(scene.accept(answers("ann", 1))) == 1
    scene.refusal(answers("ann", 1), AlreadyAnswered)


def test_n1b_an_answer_that_the_pause_does_not_wait_for_leaves_it() -> None:
    scene = two_asked()
    scene.accept(pauses(scene, 1))

    scene.accept(answers("ann", 2))

    assert scene.state.pause is not None


def test_n1b_a_pause_cannot_wait_for_a_question_that_nobody_asked() -> None:
    scene = asked()

    scene.refusal(pauses(scene, 9), UnknownQuestion)


@pytest.mark.parametrize("wrong", ["all", [1], None, {"a": 1}])
@pytest.mark.parametrize("field", ["questions", "children"])
def test_n1b_what_a_pause_waits_for_is_a_list_of_ids(field: str, wrong: Any) -> None:
    scene = asked()

    assert field in scene.refusal(pauses(scene, **{field: wrong}), BadDraft).field


def test_n1b_nobody_is_told_of_a_pause() -> None:
    scene = asked()

    (line,) = scene.accept(pauses(scene, 1))

    assert line.audience == []


def test_n1b_the_timer_and_the_answer_end_a_pause_once() -> None:
    scene = asked()
    scene.accept(pauses(scene, 1, seconds=5))
    pause = scene.state.pause
    assert pause is not None
    scene.accept(answers("ann"))

    scene.refusal(hub(ev.EV_TIMER_FIRED, {"pause": pause.seq}), NotDue)


# --- time (rule 6) ---


def expires(number: int = 1) -> Draft:
    return hub(ev.EV_TIMER_FIRED, {"question": request_id(number)})


def test_a_question_whose_time_is_over_takes_no_answer_and_nobody_waits_for_it() -> None:
    scene = at_work()
    scene.accept(asks(scene, expires=60))

    (line,) = scene.accept(expires())

    assert (line.audience, has_open_question(scene.state)) == (["ada", "ann"], False)
    assert scene.replayed() == scene.state
    scene.refusal(answers("ann"), QuestionExpired)
    scene.refusal(expires(), NotDue)


def test_an_answer_before_the_line_that_ends_a_question_counts() -> None:
    scene = at_work()
    scene.accept(asks(scene, expires=60))
    scene.accept(answers("ann"))

    scene.refusal(expires(), NotDue)


def test_n1b_a_question_that_expires_ends_the_pause_that_waits_for_it_and_no_other_question() -> None:
    scene = at_work()
    scene.accept(asks(scene, expires=60))
    scene.accept(asks(scene, request_id=request_id(2), call="1.2"))
    scene.accept(pauses(scene, 1, 2))

    fired, resumed = scene.accept(expires())

    assert (fired.event_type, resumed.event_type) == (ev.EV_TIMER_FIRED, ev.EV_TURN_RESUMED)
    scene.accept(answers("ann", 2))


@pytest.mark.parametrize("wrong", [-1, "soon", None, float("inf"), 1e12])
def test_a_question_expires_after_a_number_of_seconds(wrong: Any) -> None:
    scene = at_work()

    scene.refusal(asks(scene, expires=wrong), BadDraft)


def test_no_participant_says_that_a_question_has_expired() -> None:
    scene = asked()

    scene.refusal(draft("ada", ev.EV_TIMER_FIRED, {"question": request_id()}), ReservedEventType)


# --- a question goes up (rule 1b) ---

CHILD = "c1--1-ask"


def below(**spec: Any) -> Scene[WorkflowState]:
    """A channel without people, below one that has some; somebody works on ada's turn."""
    given: dict[str, Any] = {"channel_id": CHILD, "parent_id": "c1", "asks_above": True} | spec
    scene = workflow(ADA_BOB, "ada", "bob", expectations=[], **given)
    scene.accept(claims("ada"))
    return scene


def from_above(above: str = "c1", **more: Any) -> Draft:
    return hub(
        ev.EV_HUMAN_ANSWERED,
        {"request_id": request_id(), "answer": "yes", "by": "ann", "above": above, **more},
    )


def test_a_turn_below_asks_people_above_and_only_the_hub_answers_with_what_was_said_there() -> None:
    scene = below()
    scene.accept(asks(scene, to=()))

    for sender in ("ada", "bob"):
        scene.refusal(answers(sender), NotAsked)
    scene.refusal(hub(ev.EV_HUMAN_ANSWERED, answers("ann").event_data | {"by": "x", "for": "ann"}), NotAsked)
    scene.refusal(from_above("c2"), NotAsked)
    scene.accept(from_above())


def test_where_nobody_is_above_and_in_a_fork_no_question_goes_up() -> None:
    alone, fork = below(asks_above=False), below(forked_from=ForkedFrom("c0", 3))

    alone.refusal(asks(alone, to=()), BadDraft)
    fork.refusal(asks(fork, to=()), BadDraft)


def test_the_hub_answers_no_question_of_the_channel_s_own_people_from_above() -> None:
    scene = asked()

    scene.refusal(from_above(), NotAsked)


def relayed(scene: Scene[Any], child: str = "", **more: Any) -> Draft:
    call = child or f"{scene.state.channel_id}--1-ask"
    data = {"request_id": request_id(7), "question": "pay?", "turn": 1, "call": call, "position": 6}
    return hub(ev.EV_HUMAN_REQUESTED, data | more)


def waiting() -> Scene[WorkflowState]:
    """A channel whose turn waits for a child."""
    scene = at_work()
    child = f"{scene.state.channel_id}--1-ask"
    scene.accept(hub(ev.EV_CHANNEL_CHILD, {"child": child, "by": "ada"}))
    data = {"agent_id": "ada", "turn": 1, "reason": "children", "children": [child]}
    scene.accept(hub(ev.EV_TURN_PAUSED, data, claim=live(scene)))
    return scene


def test_the_hub_asks_no_group_that_the_waiting_step_does_not_name() -> None:
    scene = waiting()

    scene.refusal(relayed(scene, group="ops", about={}), BadDraft)


def test_the_hub_asks_for_a_turn_that_waits_for_its_children_and_the_turn_goes_on_waiting() -> None:
    scene = waiting()

    (line,) = scene.accept(relayed(scene))
    assert (line.sender_id, line.audience) == ("ada", ["ann", "ben"])
    scene.refusal(relayed(scene), AlreadyAsked)
    scene.accept(answers("ben", 7))

    assert scene.state.pause is not None
    assert scene.replayed() == scene.state


def test_the_hub_asks_for_no_turn_that_works_and_for_no_channel_of_another_turn() -> None:
    scene = waiting()

    scene.refusal(relayed(scene, f"{scene.state.channel_id}--2-ask"), NotDue)
    scene.refusal(relayed(scene, "elsewhere--1-ask"), NotDue)
    working = at_work()
    working.refusal(relayed(working), NotDue)


def test_no_participant_asks_in_the_name_of_a_channel_below() -> None:
    """It could put other words in place of the question, and the yes would be copied down."""
    scene = at_work()

    scene.refusal(asks(scene, call=f"{scene.state.channel_id}--1-ask"), BadDraft)


# --- a step asks a group (N7) ---

DRIVER = Participant("driver", "flows")
PAY = Participant("pay", "pay", "step", played_by="driver", asks="ops")
SHIP = Participant("ship", "ship", "step", played_by="driver")


def step_at_work(step: str = "pay") -> Scene[WorkflowState]:
    """A channel on which the driver works on the turn of a step."""
    scene = workflow(sequence([step, "bob"]), ANN, DRIVER, PAY, SHIP, "bob", expectations=[])
    scene.accept(claims(step))
    return scene


def asks_group(scene: Scene[Any], sender: str = "pay", group: Any = "ops", **more: Any) -> Draft:
    to = more.pop("to", ())
    return asks(scene, sender, to=to, **{"group": group, "about": {"tool": "pay"}, **more})


def group_asked(**more: Any) -> Scene[WorkflowState]:
    scene = step_at_work()
    scene.accept(asks_group(scene, **more))
    return scene


def test_a_step_asks_the_group_that_its_channel_was_opened_with() -> None:
    scene = group_asked(expires=7200)
    question = scene.state.questions[request_id()]

    assert (question.group, question.people, question.expires) == ("ops", [], 7200.0)
    assert scene.log[-1].audience == []
    assert scene.replayed() == scene.state


@pytest.mark.parametrize("group", ["finance", "", None, 5, ["ops"]])
def test_a_step_asks_no_other_group(group: Any) -> None:
    scene = step_at_work()

    assert scene.refusal(asks_group(scene, group=group), BadDraft).field == "event_data.group"


def test_a_step_without_a_group_asks_none() -> None:
    scene = step_at_work("ship")

    assert scene.refusal(asks_group(scene, "ship"), BadDraft).field == "event_data.group"


def test_an_agent_asks_no_group_also_if_its_entry_names_one() -> None:
    """Only what another participant plays is a step, and only the process of the hub opens steps."""
    eve = Participant("eve", "eve", asks="ops")
    scene = workflow(sequence(["eve", "bob"]), ANN, eve, "bob", expectations=[])
    scene.accept(claims("eve"))

    assert scene.refusal(asks_group(scene, "eve"), BadDraft).field == "event_data.group"


@pytest.mark.parametrize("claim", [None, 1])
def test_a_step_asks_a_group_under_its_claim_only(claim: int | None) -> None:
    scene = step_at_work()

    scene.refusal(asks_group(scene, claim=claim), ClaimLost)


def test_another_participant_does_not_ask_in_the_turn_of_a_step() -> None:
    scene = step_at_work()

    scene.refusal(asks_group(scene, "bob"), OutOfTurn)


@pytest.mark.parametrize(
    "more", [{"to": ("ann",)}, {"about": "pay"}, {"expires": -1}, {"expires": "2h"}, {"x": 1}]
)
def test_a_question_to_a_group_has_no_audience_and_reads_back(more: Any) -> None:
    scene = step_at_work()

    scene.refusal(asks_group(scene, **more), BadDraft)


def test_the_hub_answers_for_a_member_of_the_group_and_the_line_names_them() -> None:
    scene = group_asked()
    (line,) = scene.accept(answers(ev.HUB, by="carol", group="ops"))

    assert line.event_data["by"] == "carol"
    assert line.audience == ["pay", "driver"]
    scene.refusal(answers(ev.HUB, by="carol", group="ops"), AlreadyAnswered)


@pytest.mark.parametrize("sender", ["ann", "bob", "driver", "pay"])
def test_no_participant_answers_what_a_group_is_asked(sender: str) -> None:
    scene = group_asked()

    scene.refusal(answers(sender), NotAsked)
    scene.refusal(answers(sender, by="carol", group="ops"), BadDraft)


@pytest.mark.parametrize("group", ["finance", "", "ann"])
def test_the_hub_answers_for_no_other_group(group: str) -> None:
    scene = group_asked()

    scene.refusal(answers(ev.HUB, by="carol", group=group), NotAsked)


def test_the_hub_answers_for_no_person_what_a_group_is_asked() -> None:
    scene = group_asked()

    scene.refusal(answers(ev.HUB, **{"by": "carol", "for": "ann"}), NotAsked)


@pytest.mark.parametrize("group", ["ann", "", "ops"])
def test_a_group_does_not_answer_what_a_person_is_asked(group: str) -> None:
    scene = asked()

    scene.refusal(answers(ev.HUB, by="carol", group=group), NotAsked)


def test_the_answer_of_a_group_ends_the_pause_that_waits_for_it() -> None:
    scene = group_asked()
    scene.accept(pauses(scene, 1, agent_id="pay"))
    lines = scene.accept(answers(ev.HUB, by="carol", group="ops"))

    assert [line.event_type for line in lines] == [ev.EV_HUMAN_ANSWERED, ev.EV_TURN_RESUMED]
    assert scene.state.pause is None


def test_only_the_player_of_a_step_knows_of_its_question() -> None:
    scene = group_asked()

    known = {who for who in ("ann", "bob", "driver", "pay") if shown_questions(scene.state, who)}
    assert known == {"driver", "pay"}


def test_a_retry_forgets_the_questions_of_the_attempt_before() -> None:
    """The next attempt may make another call at the same place; a yes to this one is not for it."""
    scene = group_asked()
    scene.accept(answers(ev.HUB, by="carol", group="ops"))
    scene.accept(pauses(scene, reason="retry", seconds=1, agent_id="pay"))

    assert scene.state.questions == {}
