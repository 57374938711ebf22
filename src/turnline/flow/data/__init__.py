"""Data models: YAML -> tables, repositories, and a unit of work for each step (F12, F7)."""
