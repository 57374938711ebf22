"""Channels as a resource: look at them, follow them, go back in time, take part as a person."""
