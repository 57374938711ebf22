"""The public names, pinned: one that is added, renamed or lost is a change that somebody meant."""

from __future__ import annotations

from types import ModuleType

import pytest

import turnline
import turnline.config
import turnline.knowledge
import turnline.network
import turnline.network.workflow_helpers
import turnline.testing
from turnline import network
from turnline.log.memory import MemoryLog
from turnline.log.sqlite import SqliteLog

EVERYDAY = [
    "Agent",
    "Context",
    "Depends",
    "File",
    "Finish",
    "Handoff",
    "Inject",
    "McpServer",
    "Reply",
    "RunResult",
    "ToolResult",
    "ToolRetry",
    "TurnlineError",
    "Variable",
    "__version__",
    "node",
    "run",
    "run_sync",
    "tool",
]
CONFIG = [
    "AnthropicConfig",
    "GeminiConfig",
    "ModelConfig",
    "OllamaConfig",
    "OpenAICompatibleConfig",
    "OpenAIConfig",
    "StringConfig",
    "resolve",
]
KNOWLEDGE = [
    "DiskKnowledgeStore",
    "MemoryKnowledgeStore",
]
HELPERS = [
    "delete_context",
    "set_context",
    "update_context",
]
TESTING = [
    "BlobContract",
    "Damage",
    "DurableLogContract",
    "LogContract",
    "ManualClock",
    "ModelServer",
    "RecordingModel",
    "ScriptedModel",
    "TestConfig",
    "call",
    "damage_memory",
    "damage_sqlite",
    "drop_payload",
    "flip_byte",
    "flip_head",
    "flip_payload",
    "play_channel",
]
NETWORK = [
    "Adapter",
    "AgentClient",
    "AgentTarget",
    "AllOf",
    "Always",
    "AnyOf",
    "Arbiter",
    "AtTurn",
    "Basis",
    "CONSULTING_TYPE",
    "CONVERSATION_TYPE",
    "Channel",
    "ChannelInject",
    "ChannelMetadata",
    "ChannelSpec",
    "ChannelState",
    "ChannelStateInject",
    "Close",
    "ContextEquals",
    "ContextIn",
    "ContextThreshold",
    "DISCUSSION_TYPE",
    "Decision",
    "Draft",
    "EV_CHANNEL_CLOSED",
    "EV_CHANNEL_EXPIRED",
    "EV_CHANNEL_FORKED",
    "EV_CHANNEL_INVITE",
    "EV_CHANNEL_INVITE_ACK",
    "EV_CHANNEL_INVITE_REJECT",
    "EV_CHANNEL_OPENED",
    "EV_CONTEXT_SET",
    "EV_EXPECTATION_VIOLATED",
    "EV_HUMAN_ANSWERED",
    "EV_HUMAN_REQUESTED",
    "EV_PACKET",
    "EV_SESSION_CLOSED",
    "EV_SESSION_EXPIRED",
    "EV_SESSION_INVITE",
    "EV_SESSION_INVITE_ACK",
    "EV_SESSION_INVITE_REJECT",
    "EV_SESSION_OPENED",
    "EV_TASK_COMPLETED",
    "EV_TASK_FAILED",
    "EV_TASK_PROGRESS",
    "EV_TASK_STARTED",
    "EV_TEXT",
    "EV_TIMER_FIRED",
    "EV_TURN_ABANDONED",
    "EV_TURN_CLAIMED",
    "EV_TURN_FAILED",
    "EV_TURN_MODEL",
    "EV_TURN_ONCE",
    "EV_TURN_RELEASED",
    "EV_TURN_RENEWED",
    "EV_TURN_TOOL",
    "Envelope",
    "Expectation",
    "Exploration",
    "Expr",
    "FanOutTarget",
    "Finding",
    "Finish",
    "FromSpeaker",
    "FullTranscript",
    "Handoff",
    "Hub",
    "HubClient",
    "HumanClient",
    "Invitation",
    "Link",
    "Listener",
    "LocalLink",
    "Manifest",
    "Message",
    "NestedTarget",
    "NetworkPlugin",
    "Not",
    "Participant",
    "Passport",
    "Paused",
    "Picture",
    "Registration",
    "Resume",
    "RevertToInitiatorTarget",
    "RoundRobinTarget",
    "Rule",
    "RunResult",
    "ScriptTurn",
    "SessionInject",
    "SessionMetadata",
    "SessionStateInject",
    "SignalIs",
    "Simulation",
    "Speak",
    "State",
    "StayTarget",
    "TerminateTarget",
    "ToolCalled",
    "Transition",
    "TransitionCondition",
    "TransitionDecision",
    "TransitionGraph",
    "TransitionTarget",
    "Turn",
    "TurnFailed",
    "TurnHandler",
    "TurnTaking",
    "TurnText",
    "View",
    "WORKFLOW_TYPE",
    "WindowedSummary",
    "WorkflowState",
    "WsLink",
    "WsSettings",
    "acks_within",
    "boxes",
    "dot",
    "explore",
    "graph_picture",
    "lint",
    "max_silence",
    "mermaid",
    "register_condition",
    "register_target",
    "register_view",
    "replay",
    "reply_within",
    "round_robin",
    "sequence",
    "serve_ws",
    "simulate",
    "turn_within",
]

SEED_004 = [
    "AgentTarget",
    "Always",
    "ChannelInject",
    "ChannelStateInject",
    "ContextEquals",
    "EV_CHANNEL_CLOSED",
    "EV_CONTEXT_SET",
    "EV_PACKET",
    "EV_TEXT",
    "Envelope",
    "FromSpeaker",
    "Handoff",
    "Hub",
    "HubClient",
    "HumanClient",
    "LocalLink",
    "Passport",
    "Resume",
    "RevertToInitiatorTarget",
    "RoundRobinTarget",
    "StayTarget",
    "TerminateTarget",
    "ToolCalled",
    "Transition",
    "TransitionCondition",
    "TransitionDecision",
    "TransitionGraph",
    "TransitionTarget",
    "WORKFLOW_TYPE",
    "register_condition",
    "register_target",
]
"""What the seed imports from its network package, or speaks of as being there."""


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (turnline, EVERYDAY),
        (turnline.config, CONFIG),
        (turnline.knowledge, KNOWLEDGE),
        (turnline.network.workflow_helpers, HELPERS),
        (turnline.testing, TESTING),
        (turnline.network, NETWORK),
    ],
    ids=lambda value: value.__name__ if isinstance(value, ModuleType) else "",
)
def test_the_public_names_are_these(module: ModuleType, names: list[str]) -> None:
    assert sorted(module.__all__) == names
    for name in names:
        assert hasattr(module, name)


def test_everything_that_the_seed_imports_is_there() -> None:
    assert set(SEED_004) <= set(NETWORK)


@pytest.mark.parametrize("name", [name for name in NETWORK if "SESSION" in name.upper()])
def test_a_session_is_a_channel(name: str) -> None:
    """The glossary: *session* is the older word; the aliases are the channel names themselves."""
    of_a_channel = name.replace("SESSION", "CHANNEL").replace("Session", "Channel")
    assert getattr(network, name) is getattr(network, of_a_channel)


def test_nothing_is_defined_in_the_network_package() -> None:
    """Its names come from where the code is."""
    for name in NETWORK:
        home = getattr(getattr(network, name), "__module__", "")
        assert not str(home).startswith("turnline.network")


def test_the_stores_of_the_seeds_are_the_logs() -> None:
    assert turnline.knowledge.MemoryKnowledgeStore is MemoryLog
    assert turnline.knowledge.DiskKnowledgeStore is SqliteLog
