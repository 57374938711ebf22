"""docs/command-line.md: every verb of `turnline`, from the app itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import typer

from docs.builders.tables import table
from turnline.cli import app

Command: TypeAlias = Any
Context: TypeAlias = Any
Parameter: TypeAlias = Any
"""These are of the click that typer has inside and does not show."""

_TOP: Final = """\
# Command line

`turnline`, also `python -m turnline`. `turnline VERB --help` says what stands here.

- A verb exits with 0 if it did what it was asked, with 1 if it failed or found something wrong, with 2 if it was
  asked for something there is not. `turnline run` exits with 3 if the run waits for somebody. Ctrl-C: 130.
- What goes to standard output is what was asked for; progress and remarks go to standard error. Most verbs have `--json`.
- Where a verb needs a log, `--log` names it: `sqlite:///path`, `postgresql://host/name`, `nats://host/name`. Without it,
  `log` of turnline.yaml, or `.turnline/log.db` in the project's folder.

"""


def page() -> str:
    """The page."""
    root = typer.main.get_command(app)
    verbs = list(_verbs(root, root.context_class(root, info_name="turnline")))
    rows = [
        (f"[`{context.command_path}`](#{_anchor(context)})", _first(command)) for command, context in verbs
    ]
    return _TOP + table(("verb", "what it does"), rows) + "".join(_section(*verb) for verb in verbs)


def _verbs(command: Command, context: Context) -> Iterator[tuple[Command, Context]]:
    if not hasattr(command, "list_commands"):
        yield command, context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            yield from _verbs(inner, inner.context_class(inner, parent=context, info_name=name))


def _first(command: Command) -> str:
    return (command.help or "").strip().split("\n\n")[0]


def _anchor(context: Context) -> str:
    return str(context.command_path).replace(" ", "-")


def _section(command: Command, context: Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"\n## {context.command_path}\n", f"`{context.command_path} {usage}`\n", _prose(command)]
    shown = (one for one in command.params if one.name != "help" and not getattr(one, "hidden", False))
    rows = [_row(one, context) for one in shown]
    if rows:
        parts.append(table(("argument or option", "meaning"), rows))
    if examples := "\n".join(_examples(command.epilog or "")):
        parts.append(f"```sh\n{examples}\n```\n")
    return "\n".join(parts)


def _prose(command: Command) -> str:
    return "\n\n".join(" ".join(one.split()) for one in (command.help or "").split("\n\n")) + "\n"


def _row(one: Parameter, context: Context) -> tuple[str, str]:
    name, said = one.get_help_record(context) or (one.name or "", "")
    return f"`{name}`", said


def _examples(epilog: str) -> Iterator[str]:
    for paragraph in epilog.split("\n\n"):
        text = " ".join(paragraph.split())
        if command := text.partition(": ")[2]:
            yield command
