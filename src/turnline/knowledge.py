"""The seeds' names for the two logs that need no server.

`MemoryKnowledgeStore()` ends with the process; `DiskKnowledgeStore(path)` is one
file and survives whatever its `durability` promises.
"""

from __future__ import annotations

from turnline.log.memory import MemoryLog as MemoryKnowledgeStore
from turnline.log.sqlite import SqliteLog as DiskKnowledgeStore

__all__ = ["DiskKnowledgeStore", "MemoryKnowledgeStore"]
