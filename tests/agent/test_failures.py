"""A bug in the user's code is reported with file, line and code; values are not shown."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from turnline.agent.agent import Agent
from turnline.agent.failures import (
    MAX_FRAMES,
    collected_failures,
    first_line,
    is_bug,
    report_failure,
    short_traceback,
)
from turnline.client.run import run
from turnline.core.envelope import Envelope
from turnline.core.graph import Transition, TransitionGraph
from turnline.core.transitions import (
    AgentTarget,
    FromSpeaker,
    TerminateTarget,
    TransitionCondition,
    register_condition,
)
from turnline.errors import MissingVariable
from turnline.testing import ScriptedModel


@dataclass(frozen=True)
class Lamp(TransitionCondition):
    """A condition with a bug."""

    name: ClassVar[str] = "tests.buggy_lamp"

    def evaluate(self, state: Any, envelope: Envelope) -> bool:
        return bool(dict[str, str]()["lamp"])


register_condition(Lamp)


def buggy(shelf: dict[str, str]) -> str:
    return shelf["lamp"]


def deep(levels: int) -> str:
    return deep(levels - 1) if levels else buggy({"token": "hunter" + str(2)})


def raised(levels: int = 0) -> Exception:
    try:
        deep(levels)
    except KeyError as error:
        return error
    raise AssertionError


def test_a_report_names_the_file_and_the_line_and_shows_the_code_without_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    report_failure("tool 'look'", raised(), "KeyError: 'lamp'")
    text = caplog.records[0].getMessage()

    assert text.startswith("tool 'look' failed: KeyError: 'lamp'\n")
    assert (
        f'File "{__file__}", line {buggy.__code__.co_firstlineno + 1}, in buggy\n    return shelf["lamp"]'
        in text
    )
    assert "hunter2" not in text
    assert caplog.records[0].levelno == logging.WARNING


def test_of_a_deep_traceback_the_innermost_frames_are_shown() -> None:
    shown = short_traceback(raised(levels=50))

    assert shown.count("File ") == MAX_FRAMES
    assert "in buggy" in shown


def test_frames_of_libraries_are_left_out() -> None:
    try:
        logging.Formatter(style="{", fmt="{nothing").format(None)  # type: ignore[arg-type]
    except ValueError as error:
        shown = short_traceback(error)

    assert shown.count("File ") == 1
    assert __file__ in shown


def test_only_the_first_line_of_a_message_is_shown_and_no_control_characters() -> None:
    assert first_line("IntegrityError\n[parameters: ('hunter2',)]") == "IntegrityError"
    assert "\x1b" not in first_line("\x1b[31mred")
    assert len(first_line("x" * 10_000)) == 500


def test_what_turnline_raises_on_purpose_is_a_bug_only_where_the_users_code_called_it() -> None:
    assert not is_bug(MissingVariable("look", kind="variable", key="key"))
    assert not is_bug(TimeoutError())
    assert is_bug(ValueError())
    assert is_bug(raised())


def test_reports_can_be_collected_instead_of_logged(caplog: pytest.LogCaptureFixture) -> None:
    with collected_failures() as bugs:
        report_failure("it", raised(), "no")
    report_failure("it", raised(), "again")

    assert [one.partition("\n")[0] for one in bugs] == ["it failed: no"]
    assert [one.getMessage().partition("\n")[0] for one in caplog.records] == ["it failed: again"]


async def test_a_bug_in_a_condition_of_the_users_own_is_shown_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ada = Agent("ada", config=ScriptedModel("hello"))
    graph = TransitionGraph(
        "user",
        [Transition(FromSpeaker("user"), AgentTarget("ada")), Transition(Lamp(), TerminateTarget("lit"))],
        TerminateTarget("dark"),
    )
    await run(graph, agents=[ada], message="go")

    (said,) = [one.getMessage() for one in caplog.records if one.name == "turnline.failures"]
    assert "RoutingFailed: Lamp" in said
    assert f'File "{__file__}"' in said
    assert 'return bool(dict[str, str]()["lamp"])' in said
