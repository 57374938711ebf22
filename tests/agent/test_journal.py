"""T2, T3: what was written down of a round is handed out once."""

from __future__ import annotations

from turnline.agent.journal import Recorded, Unwritten
from turnline.agent.messages import ModelReply, ToolCall
from turnline.agent.round import ToolAnswer

LOOK = ToolCall(call_id="1", tool="look")
TAKE = ToolCall(call_id="2", tool="take")
FIRST = ModelReply(calls=[LOOK, TAKE])
SECOND = ModelReply(calls=[ToolCall(call_id="3", tool="look")])
ANSWER = ToolAnswer(call_id="2", tool="take", text="taken")


def test_t3_recorded_replies_come_in_their_order_each_once() -> None:
    recorded = Recorded([FIRST, ANSWER, SECOND])

    assert [recorded.reply() for _ in range(3)] == [FIRST, SECOND, None]


def test_t3_a_recorded_answer_is_that_of_its_call_and_given_once() -> None:
    recorded = Recorded([FIRST, ANSWER])

    assert recorded.answer(LOOK) is None
    assert [recorded.answer(TAKE) for _ in range(2)] == [ANSWER, None]


def test_of_a_new_round_nothing_is_recorded() -> None:
    assert (Recorded().reply(), Recorded().answer(LOOK)) == (None, None)


async def test_outside_of_a_channel_nothing_is_written() -> None:
    assert await Unwritten().record(FIRST) == ()
