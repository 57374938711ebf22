"""Errors that cross a link: the same class, the same facts, the same words; and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from turnline.client.frames import Told
from turnline.client.told_errors import raised, told
from turnline.errors import (
    BadGraph,
    ChannelQuarantined,
    ClaimLost,
    ContextMismatch,
    DataUnavailable,
    DelegationCycle,
    InviteTimeout,
    LogError,
    LogUnavailable,
    NestedTooDeep,
    NotParticipant,
    OutOfTurn,
    Refused,
    RemoteFailed,
    RoutingFailed,
    TooManyRuns,
    TurnlineError,
    TurnTaken,
    UnknownChannel,
    UnknownParticipant,
)

CANARY = "canary-4711"


def crossed(error: BaseException) -> TurnlineError:
    """The error, after a way over the wire."""
    return raised(msgspec.json.decode(msgspec.json.encode(told(error)), type=Told))


@pytest.mark.parametrize(
    "error",
    [
        OutOfTurn("c", sender="a", speaker="b"),
        ClaimLost("c", claim=None, live=4),
        TurnTaken("c", turn=3, worker="w"),
        NotParticipant("c", sender="a", participants=["b", "c"]),
        ContextMismatch("c", key="k", expected=[1, {"x": None}], found="y"),
        InviteTimeout("c", awaiting=["a"], names=["ann"], seconds=2.5),
        BadGraph("graph", found="x", expected="y"),
        UnknownParticipant("a", ["b", "c"]),
        UnknownChannel("c"),
        DelegationCycle(["a", "b", "a"]),
        NestedTooDeep("c", depth=17, limit=16),
        TooManyRuns("c", limit=1_000),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_it_was_raised(error: TurnlineError) -> None:
    arrived = crossed(error)

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize("kind", Refused.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_refusal_crosses_as_its_own_class(kind: type[Refused]) -> None:
    error = kind.__new__(kind, "it was refused")

    assert type(crossed(error)) is kind


@pytest.mark.parametrize(
    "error",
    [
        ValueError(CANARY),
        LogUnavailable(f"postgresql://u:{CANARY}@host", because=CANARY),
        LogError(CANARY),
        DataUnavailable(CANARY, because=CANARY),
        RoutingFailed("condition", index=1, cause=ValueError(CANARY)),
        ChannelQuarantined("c", cause=ValueError(CANARY)),
        TurnlineError(CANARY),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_inside_the_hub_stays_there(error: Exception) -> None:
    arrived = crossed(error)

    assert CANARY not in msgspec.json.encode(told(error)).decode()
    assert CANARY not in str(arrived) + repr(vars(arrived))


def test_what_nobody_raised_on_purpose_is_one_error_for_all() -> None:
    assert str(crossed(ValueError("x"))) == str(crossed(KeyError("y")))
    assert isinstance(crossed(ValueError("x")), RemoteFailed)


def test_a_log_that_fails_there_is_a_log_error_here() -> None:
    """A turn that could not be written is tried again, wherever it is worked on."""
    assert isinstance(crossed(LogUnavailable("x", because="y")), LogError)


def test_a_name_from_the_wire_is_no_way_to_another_class() -> None:
    assert isinstance(raised(Told(type="SystemExit", message="x")), RemoteFailed)
    assert isinstance(raised(Told(type="TurnlineError", message="x")), RemoteFailed)


def test_facts_that_are_missing_or_too_many_do_no_harm() -> None:
    error = raised(Told(type="OutOfTurn", message="x", facts={"speaker": "b", "__class__": "y", "args": 1}))

    assert isinstance(error, OutOfTurn)
    assert vars(error) == {"channel_id": None, "sender": None, "speaker": "b"}
