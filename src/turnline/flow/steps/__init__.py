"""The kinds of step: a module for each, with one function `perform`."""

from __future__ import annotations

from typing import Final

from turnline.flow.definition import steps as define
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
from turnline.flow.work import PerformStep

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
