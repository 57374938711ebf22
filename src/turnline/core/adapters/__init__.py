"""The built-in channel types."""

from __future__ import annotations

from turnline.core.adapter import Adapters
from turnline.core.adapters.consulting import CONSULTING_TYPE, ConsultingAdapter
from turnline.core.adapters.conversation import CONVERSATION_TYPE, ConversationAdapter
from turnline.core.adapters.discussion import DISCUSSION_TYPE, DiscussionAdapter
from turnline.core.adapters.workflow import WORKFLOW_TYPE, WorkflowAdapter

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


def built_in() -> Adapters:
    """Return the built-in channel types; the caller may register more."""
    return Adapters([WorkflowAdapter(), ConversationAdapter(), ConsultingAdapter(), DiscussionAdapter()])
