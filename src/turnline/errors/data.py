"""Data models, and what a step cannot do with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnline.errors.base import TurnlineError, hint
from turnline.errors.logs import LogUnavailable


class DataError(TurnlineError):
    """What was asked of the data models cannot be done; nothing of it was written."""


class ModelNotDeclared(DataError, PermissionError):
    """A step asked for a data model that its flow does not declare."""

    def __init__(self, model: str, declared: Iterable[str]) -> None:
        self.model = model
        self.declared = tuple(sorted(declared))
        listed = ", ".join(self.declared) or "none"
        super().__init__(
            f"the flow does not declare the data model {model!r}; declared: {listed}."
            f"{hint(model, self.declared)} Add it to the flow's `context.models`."
        )


class VersionMismatch(DataError):
    """A flow is written for another version of a data model than the project has."""

    def __init__(self, model: str, *, declared: str, found: str) -> None:
        self.model = model
        self.declared = declared
        self.found = found
        super().__init__(
            f"the flow is written for {model} {declared}, but the project has {found}. "
            f"Change the flow, or load that version of the model."
        )


class BadField(DataError):
    """A field is unknown, or a value is not what the field holds."""

    def __init__(self, model: str, field: str, *, found: str, expected: str) -> None:
        self.model = model
        self.field = field
        super().__init__(f"{model}.{field} is {found}; expected {expected}.")


class WriteRefused(DataError):
    """The database does not take what a step wrote; all the step's writes are undone."""

    def __init__(self, because: str) -> None:
        self.because = because
        super().__init__(f"what the step wrote was refused and undone: {because}.")


class CommitRefused(DataError):
    """A step's writes are committed with its packet, and in no other way."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found}: what a step writes is committed with its packet, or not at all. Use `flush` instead."
        )


class ModelsRefused(DataError):
    """The data models do not fit together, or do not fit the tables that are there. Nothing was changed."""

    what = "the data models cannot be used"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{self.what}:\n" + "\n".join(f"- {one}" for one in problems))


class RowsRefused(ModelsRefused):
    """The rows of an export do not fit the project or its database. Nothing of the file was written."""

    what = "the rows of the file cannot be imported, and nothing was"


class NoDatabase(DataError):
    """Rows have to be kept somewhere, and the log has no database of its own."""

    def __init__(self, what: str, *, log: str) -> None:
        self.log = log
        """The log's scheme: its address may have a password."""
        super().__init__(
            f"{what}: expected a database, found none, and the log ({log}) has none of its own. "
            f"Set `database:` in turnline.yaml, for example `database: sqlite:///data.db`."
        )


class DataUnavailable(LogUnavailable):
    """The data models' own database failed; nothing is known to be written."""

    what = "database"
