"""Everything a program needs to put agents, people and code on channels. Nothing is defined here."""

from turnline.client.channel import Channel, RunResult
from turnline.client.embedded import Hub
from turnline.client.hub_client import HubClient
from turnline.client.human_client import HumanClient
from turnline.client.injection import ChannelInject, ChannelStateInject
from turnline.client.link import Link, LocalLink
from turnline.client.participant import AgentClient, Invitation
from turnline.client.plugin import NetworkPlugin
from turnline.client.replay import replay
from turnline.client.turn import Turn, TurnHandler
from turnline.client.ws_link import WsLink
from turnline.core.adapter import Adapter, Manifest
from turnline.core.adapters import (
    CONSULTING_TYPE,
    CONVERSATION_TYPE,
    DISCUSSION_TYPE,
    WORKFLOW_TYPE,
    TurnTaking,
)
from turnline.core.channel import ChannelMetadata, ChannelSpec, ChannelState, Expectation, Participant
from turnline.core.claims import Paused
from turnline.core.envelope import Basis, Close, Decision, Draft, Envelope, Speak
from turnline.core.event_types import (
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
    EV_TURN_ONCE,
    EV_TURN_RELEASED,
    EV_TURN_RENEWED,
    EV_TURN_TOOL,
)
from turnline.core.expectations import acks_within, max_silence, reply_within, turn_within
from turnline.core.governance import Passport, Registration, Resume, Rule
from turnline.core.graph import Transition, TransitionGraph, round_robin, sequence
from turnline.core.routing import Finish, Handoff
from turnline.core.state import State, WorkflowState
from turnline.core.step_targets import FanOutTarget, NestedTarget
from turnline.core.study.boxes import boxes
from turnline.core.study.dot import dot
from turnline.core.study.drawing import graph_picture
from turnline.core.study.exploration import Exploration, explore
from turnline.core.study.finding import Finding
from turnline.core.study.lint import lint
from turnline.core.study.mermaid import mermaid
from turnline.core.study.picture import Picture
from turnline.core.study.simulation import ScriptTurn, Simulation, simulate
from turnline.core.transitions import (
    AgentTarget,
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
    RevertToInitiatorTarget,
    RoundRobinTarget,
    SignalIs,
    StayTarget,
    TerminateTarget,
    ToolCalled,
    TransitionCondition,
    TransitionDecision,
    TransitionTarget,
    TurnFailed,
    register_condition,
    register_target,
)
from turnline.core.views import FullTranscript, Message, View, WindowedSummary, register_view
from turnline.hub.governance import Arbiter, Listener
from turnline.hub.texts import TurnText
from turnline.network.session import (
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
from turnline.server.serve_ws import serve_ws
from turnline.server.ws_settings import WsSettings

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
    "EV_TURN_ONCE",
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
