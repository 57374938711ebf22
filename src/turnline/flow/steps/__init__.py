"""The kinds of step: a module for each, with one function `perform`."""

from __future__ import annotations

from typing import Any, Final

from turnline.flow.definition import steps as define
from turnline.flow.node import is_pure
from turnline.flow.steps import (
    agent,
    api_call,
    channel,
    for_each,
    functional,
    human,
    mcp,
    model_op,
    parallel,
    response,
    router,
    wait,
    workflow,
)
from turnline.flow.work import PerformStep, StepWork

PERFORM: Final[dict[type, PerformStep]] = {
    define.FunctionalStep: functional.perform,
    define.AgentStep: agent.perform,
    define.RouterStep: router.perform,
    define.ApiCallStep: api_call.perform,
    define.ModelOpStep: model_op.perform,
    define.ResponseStep: response.perform,
    define.HumanStep: human.perform,
    define.McpStep: mcp.perform,
    define.ForEachStep: for_each.perform,
    define.ParallelStep: parallel.perform,
    define.WorkflowStep: workflow.perform,
    define.WaitStep: wait.perform,
    define.ChannelStep: channel.perform,
}
"""The class of a step's definition -> what performs it."""


def only_computes(work: StepWork[Any]) -> bool:
    """Return whether the step does nothing outside of its run, so that it may be done again after a crash."""
    match work.step:
        case define.RouterStep() | define.ResponseStep():
            return True
        case define.FunctionalStep(runner=runner):
            return is_pure(work.services.nodes.get(runner))
    return False
