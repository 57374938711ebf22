"""Older names: *session* is what a channel was once called. The aliases live here and nowhere else."""

from __future__ import annotations

from turnline.client.injection import ChannelInject, ChannelStateInject
from turnline.core import event_types as ev
from turnline.core.channel import ChannelMetadata

EV_SESSION_INVITE = ev.EV_CHANNEL_INVITE
EV_SESSION_INVITE_ACK = ev.EV_CHANNEL_INVITE_ACK
EV_SESSION_INVITE_REJECT = ev.EV_CHANNEL_INVITE_REJECT
EV_SESSION_OPENED = ev.EV_CHANNEL_OPENED
EV_SESSION_CLOSED = ev.EV_CHANNEL_CLOSED
EV_SESSION_EXPIRED = ev.EV_CHANNEL_EXPIRED
SessionInject = ChannelInject
SessionStateInject = ChannelStateInject
SessionMetadata = ChannelMetadata

__all__ = [
    "EV_SESSION_CLOSED",
    "EV_SESSION_EXPIRED",
    "EV_SESSION_INVITE",
    "EV_SESSION_INVITE_ACK",
    "EV_SESSION_INVITE_REJECT",
    "EV_SESSION_OPENED",
    "SessionInject",
    "SessionMetadata",
    "SessionStateInject",
]
