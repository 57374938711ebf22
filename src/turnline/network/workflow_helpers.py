"""Writing context variables from a tool or a callback. (The module's name is the seeds'.)"""

from turnline.client.channel import delete_context, set_context, update_context

__all__ = ["delete_context", "set_context", "update_context"]
