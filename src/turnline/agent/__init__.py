"""Agents: a prompt, a model, tools. They know nothing of channels."""
