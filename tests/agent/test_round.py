"""A round, driven by hand: no model, no tools, no event loop."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from turnline.agent.messages import ModelReply, ToolCall, ToolMessage, Usage, UserMessage
from turnline.agent.round import AskModel, CallTools, Check, Outcome, Round, ToolAnswer, start_round
from turnline.core.routing import Finish, Handoff, ToolOutcome
from turnline.errors import BadOutput, ToolRoundsExceeded

HELLO = UserMessage(text="hello")
LOOK = ToolCall(call_id="1", tool="look", arguments={"where": "here"})
TAKE = ToolCall(call_id="2", tool="take")


def begun(*, check: Check | None = None, max_tool_rounds: int = 25) -> Round:
    return start_round("ada", [HELLO], check=check, max_tool_rounds=max_tool_rounds)


def ended(round_: Round, last: ModelReply | Sequence[ToolAnswer]) -> Outcome:
    """What the round came to when it was sent `last`."""
    with pytest.raises(StopIteration) as stopped:
        round_.send(last)
    assert isinstance(stopped.value.value, Outcome)
    return stopped.value.value


def answered(call: ToolCall, text: str = "done", **more: object) -> ToolAnswer:
    return msgspec.convert(
        {"type": "tool", "call_id": call.call_id, "tool": call.tool, "text": text, **more}, ToolAnswer
    )


def test_a_round_asks_the_model_first() -> None:
    assert next(begun()) == AskModel((HELLO,))


def test_a_reply_without_tool_calls_ends_it() -> None:
    round_ = begun()
    next(round_)
    reply = ModelReply(text="hi", usage=Usage(requests=1, input_tokens=3, output_tokens=2))

    outcome = ended(round_, reply)

    assert outcome.text == "hi"
    assert outcome.messages == (HELLO, reply)
    assert outcome.usage == Usage(requests=1, input_tokens=3, output_tokens=2)


def test_k1_several_calls_of_one_reply_are_yielded_together() -> None:
    round_ = begun()
    next(round_)

    assert round_.send(ModelReply(calls=[LOOK, TAKE])) == CallTools((LOOK, TAKE))


def test_the_model_is_told_what_the_tools_answered_in_the_order_of_the_calls() -> None:
    round_ = begun()
    next(round_)
    reply = ModelReply(calls=[LOOK, TAKE])
    round_.send(reply)

    step = round_.send([answered(LOOK, "a lamp"), answered(TAKE, "too heavy", failed=True)])

    assert step == AskModel(
        (
            HELLO,
            reply,
            ToolMessage(call_id="1", tool="look", text="a lamp"),
            ToolMessage(call_id="2", tool="take", text="too heavy", failed=True),
        )
    )


def test_t4_every_call_and_how_it_ended_is_in_the_outcome() -> None:
    round_ = begun()
    next(round_)
    round_.send(ModelReply(calls=[LOOK, TAKE]))
    handoff = {"kind": "handoff", "target": "bob"}
    round_.send([answered(LOOK, failed=True), answered(TAKE, returned=handoff, reason="heavy")])

    outcome = ended(round_, ModelReply(text="over to bob"))

    assert outcome.outcomes == (
        ToolOutcome(tool="look", succeeded=False),
        ToolOutcome(tool="take", succeeded=True, returned=Handoff("bob"), reason="heavy"),
    )


def test_a2_a_model_that_never_stops_calling_tools_is_stopped() -> None:
    round_ = begun(max_tool_rounds=2)
    next(round_)
    for _ in range(2):
        round_.send(ModelReply(calls=[LOOK]))
        round_.send([answered(LOOK)])

    with pytest.raises(ToolRoundsExceeded) as stopped:
        round_.send(ModelReply(calls=[LOOK]))
    assert (stopped.value.agent, stopped.value.rounds) == ("ada", 2)


def test_an_answer_of_the_wrong_form_is_told_so_once() -> None:
    round_ = begun(check=lambda text: "" if text == "42" else "it is not 42.")
    next(round_)

    step = round_.send(ModelReply(text="41"))
    outcome = ended(round_, ModelReply(text="42"))

    assert isinstance(step, AskModel)
    assert step.messages[-1] == UserMessage(text="That answer cannot be used: it is not 42. Answer again.")
    assert outcome.text == "42"


def test_an_answer_of_the_wrong_form_twice_is_an_error() -> None:
    round_ = begun(check=lambda text: "it is not 42.")
    next(round_)
    round_.send(ModelReply(text="41"))

    with pytest.raises(BadOutput) as refused:
        round_.send(ModelReply(text="43"))
    assert refused.value.because == "it is not 42."
    assert str(refused.value).endswith("asked for: it is not 42.")


@pytest.mark.parametrize("returned", [None, Handoff("bob", "busy"), Finish("done", "all of it")])
def test_t2_a_tool_answer_reads_back_equal(returned: Handoff | Finish | None) -> None:
    answer = ToolAnswer(call_id="1", tool="look", text="a lamp", returned=returned, context={"lamp": True})

    assert msgspec.json.decode(msgspec.json.encode(answer), type=ToolAnswer) == answer


def test_usage_adds_up_over_the_calls_of_a_round() -> None:
    round_ = begun()
    next(round_)
    round_.send(ModelReply(calls=[LOOK], usage=Usage(requests=1, output_tokens=5, cost=0.5)))
    round_.send([answered(LOOK)])

    outcome = ended(round_, ModelReply(text="ok", usage=Usage(requests=1, output_tokens=1, cost=0.25)))

    assert outcome.usage == Usage(requests=2, output_tokens=6, cost=0.75)
