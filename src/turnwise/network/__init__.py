"""Everything a program needs to put agents, people and code on channels. Nothing is defined here."""

from turnwise.client.agent_client import AgentClient
from turnwise.client.channel import Channel, ChannelResult
from turnwise.client.embedded import Hub
from turnwise.client.hub_client import HubClient
from turnwise.client.human_client import HumanClient
from turnwise.client.injection import ChannelInject, ChannelStateInject
from turnwise.client.link import Link, LocalLink
from turnwise.client.plugin import NetworkPlugin
from turnwise.client.replay import replay
from turnwise.client.turn import Turn, TurnHandler
from turnwise.client.ws_link import WsLink
from turnwise.core.adapter import Adapter, Manifest
from turnwise.core.adapters import CONSULTING_TYPE, CONVERSATION_TYPE, DISCUSSION_TYPE, WORKFLOW_TYPE
from turnwise.core.adapters.turn_taking import TurnTaking
from turnwise.core.channel import ChannelMetadata, ChannelSpec, ChannelState, Expectation, Participant
from turnwise.core.conditions import (
    AllOf,
    Always,
    AnyOf,
    AtTurn,
    ContextEquals,
    ContextIn,
    ContextThreshold,
    Expr,
    FromSpeaker,
    Not,
    SignalIs,
    ToolCalled,
    TransitionCondition,
    TurnFailed,
    register_condition,
)
from turnwise.core.envelope import Basis, Close, Decision, Draft, Envelope, Speak
from turnwise.core.event_types import (
    EV_CHANNEL_CLOSED,
    EV_CHANNEL_EXPIRED,
    EV_CHANNEL_FORKED,
    EV_CHANNEL_INVITE,
    EV_CHANNEL_INVITE_ACK,
    EV_CHANNEL_INVITE_REJECT,
    EV_CHANNEL_OPENED,
    EV_CONTEXT_SET,
    EV_EXPECTATION_VIOLATED,
    EV_HUMAN_ANSWERED,
    EV_HUMAN_REQUESTED,
    EV_PACKET,
    EV_TASK_COMPLETED,
    EV_TASK_FAILED,
    EV_TASK_PROGRESS,
    EV_TASK_STARTED,
    EV_TEXT,
    EV_TIMER_FIRED,
    EV_TURN_ABANDONED,
    EV_TURN_CLAIMED,
    EV_TURN_FAILED,
    EV_TURN_MODEL,
    EV_TURN_RELEASED,
    EV_TURN_RENEWED,
    EV_TURN_TOOL,
)
from turnwise.core.expectations import acks_within, max_silence, reply_within, turn_within
from turnwise.core.governance import Passport, Registration, Resume, Rule
from turnwise.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnwise.core.routing import Finish, Handoff
from turnwise.core.state import State, WorkflowState
from turnwise.core.step_targets import FanOutTarget, NestedTarget
from turnwise.core.study.boxes import boxes
from turnwise.core.study.dot import dot
from turnwise.core.study.drawing import graph_picture
from turnwise.core.study.exploration import Exploration, explore
from turnwise.core.study.finding import Finding
from turnwise.core.study.lint import lint
from turnwise.core.study.mermaid import mermaid
from turnwise.core.study.picture import Picture
from turnwise.core.study.simulation import ScriptTurn, Simulation, simulate
from turnwise.core.targets import (
    AgentTarget,
    RevertToInitiatorTarget,
    RoundRobinTarget,
    StayTarget,
    TerminateTarget,
    TransitionDecision,
    TransitionTarget,
    register_target,
)
from turnwise.core.views import FullTranscript, Message, View, WindowedSummary, register_view
from turnwise.hub.governance import Arbiter, Listener
from turnwise.hub.texts import TurnText
from turnwise.network.session import (
    EV_SESSION_CLOSED,
    EV_SESSION_EXPIRED,
    EV_SESSION_INVITE,
    EV_SESSION_INVITE_ACK,
    EV_SESSION_INVITE_REJECT,
    EV_SESSION_OPENED,
    SessionInject,
    SessionMetadata,
    SessionStateInject,
)
from turnwise.server.serve_ws import serve_ws
from turnwise.server.ws_settings import WsSettings

__all__ = [
    "CONSULTING_TYPE",
    "CONVERSATION_TYPE",
    "DISCUSSION_TYPE",
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
    "EV_TURN_RELEASED",
    "EV_TURN_RENEWED",
    "EV_TURN_TOOL",
    "WORKFLOW_TYPE",
    "Adapter",
    "AgentClient",
    "AgentTarget",
    "AllOf",
    "Always",
    "AnyOf",
    "Arbiter",
    "AtTurn",
    "Basis",
    "Channel",
    "ChannelInject",
    "ChannelMetadata",
    "ChannelResult",
    "ChannelSpec",
    "ChannelState",
    "ChannelStateInject",
    "Close",
    "ContextEquals",
    "ContextIn",
    "ContextThreshold",
    "Decision",
    "Draft",
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
    "Picture",
    "Registration",
    "Resume",
    "RevertToInitiatorTarget",
    "RoundRobinTarget",
    "Rule",
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
