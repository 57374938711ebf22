"""The README's example runs and prints a conversation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.flow.stage import stage

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)

    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "user: How does HTTPS work?",
        "writer: HTTPS wraps HTTP in TLS, and so on.",
        "editor: HTTPS is HTTP inside TLS.",
        "(closed: sequence_complete)",
    ]


async def test_the_flow_runs_as_it_stands() -> None:
    (flow,) = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)

    async with stage(
        flow, check_order=lambda ctx: {"checked": True}, pay_back=lambda ctx: {"paid": ctx["amount"]}
    ) as house:
        small = await house.run("refund", order=1, amount=20)
        run_id = await house.runs.start("refund", {"order": 2, "amount": 200})
        task = await house.task()
        await house.tasks.answer(task.task_id, {"approved": True}, by="ann")
        large = await house.ended(run_id)

    assert small.data == {"order": 1, "amount": 20, "checked": True, "paid": 20}
    assert (task.title, large.data["paid"]) == ("Pay back 200?", 200)


def test_every_place_that_the_page_names_is_there() -> None:
    text = README.read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    named = re.findall(r"`((?:tests|docs|bench|examples|src)/[\w./-]+)`", text)

    assert len(links) > 10
    assert len(named) > 10
    assert [one for one in [*links, *named] if not (README.parent / one).exists()] == []
