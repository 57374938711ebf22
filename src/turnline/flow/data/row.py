"""A row as a step has it: JSON, by key or by attribute.

    row["email"], row.email

It can go into the run's context as it is. Changing it changes nothing in the database.
"""

from __future__ import annotations

from typing import Any


class Row(dict[str, Any]):
    """A row's fields. Where a field is called like a method of `dict`, only the key finds it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the row has no field {name!r}; it has {', '.join(self)}") from None
