"""What a condition costs: ours beside Jinja2's own `compile_expression`, in the same run.

The ratio is the figure to watch; microseconds belong to the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from timeit import Timer

from jinja2 import Environment
from jinja2.sandbox import ImmutableSandboxedEnvironment

from turnline.expressions.language import compile_expression

TEXT = "lead_score > 80 and priority == 'urgent'"
LEAD = {"lead_score": 90, "priority": "urgent", "name": "Jane", "email": "jane@example.com"}
EVALUATIONS = 10_000
COMPILATIONS = 100
REPEATS = 5


def microseconds(act: Callable[[], object], times: int) -> float:
    """The best of a few runs: the others measure the neighbours."""
    return min(Timer(act).repeat(REPEATS, times)) / times * 1e6


def main() -> None:
    ours = compile_expression(TEXT)
    plain = Environment().compile_expression(TEXT)
    sandboxed = ImmutableSandboxedEnvironment().compile_expression(TEXT)
    if not (ours.holds(LEAD) and plain(LEAD) and sandboxed(LEAD)):
        raise SystemExit("the three do not agree; the figures would mean nothing")

    evaluated = microseconds(lambda: ours.holds(LEAD), EVALUATIONS)
    by_jinja = microseconds(lambda: plain(LEAD), EVALUATIONS)
    in_sandbox = microseconds(lambda: sandboxed(LEAD), EVALUATIONS)
    compiled = microseconds(lambda: compile_expression(TEXT), COMPILATIONS)
    compiled_by_jinja = microseconds(lambda: Environment().compile_expression(TEXT), COMPILATIONS)

    print(f"condition: {TEXT}")
    print(beside("evaluate, beside Jinja2", evaluated, by_jinja))
    print(beside("evaluate, beside its sandbox", evaluated, in_sandbox))
    print(beside("compile, beside Jinja2", compiled, compiled_by_jinja))


def beside(what: str, ours: float, theirs: float) -> str:
    return f"{what:<30} {ours:8.2f} µs {theirs:8.2f} µs   ratio {ours / theirs:.2f}"


if __name__ == "__main__":
    main()
