"""The built-in channel types."""

from __future__ import annotations

from turnline.core.adapter import Adapters
from turnline.core.adapters.consulting import CONSULTING_TYPE, ConsultingAdapter
from turnline.core.adapters.conversation import CONVERSATION_TYPE, ConversationAdapter
from turnline.core.adapters.discussion import DISCUSSION_TYPE, DiscussionAdapter
from turnline.core.adapters.workflow import WORKFLOW_TYPE, WorkflowAdapter
from turnline.core.variables import MAX_CONTEXT_BYTES

__all__ = [
    "CONSULTING_TYPE",
    "CONVERSATION_TYPE",
    "DISCUSSION_TYPE",
    "WORKFLOW_TYPE",
    "ConsultingAdapter",
    "ConversationAdapter",
    "DiscussionAdapter",
    "WorkflowAdapter",
    "built_in",
]


def built_in(*, context_bytes: int = MAX_CONTEXT_BYTES) -> Adapters:
    """Return the built-in channel types; the caller may register more."""
    known = (WorkflowAdapter(), ConversationAdapter(), ConsultingAdapter(), DiscussionAdapter())
    for adapter in known:
        adapter.context_bytes = context_bytes
    return Adapters(known)
