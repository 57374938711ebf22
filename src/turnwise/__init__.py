"""Multi-agent workflows that survive anything."""
