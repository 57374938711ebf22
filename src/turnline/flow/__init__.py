"""Flows: YAML workflows. A flow compiles to a graph, a run of it is a channel, its steps are participants."""
