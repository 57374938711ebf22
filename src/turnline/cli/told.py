"""What Turnline raises, in the words of the command line: what to do is a verb there, not a method."""

from __future__ import annotations

from turnline.errors import BadAnswer, ChannelPruned, TurnlineError, UnknownChannel, UnknownRun


def told(error: TurnlineError) -> str:
    """Return the error as one line for a terminal."""
    match error:
        case ChannelPruned():
            return str(error)
        case UnknownRun(__cause__=ChannelPruned() as cause):
            return str(cause)
        case UnknownChannel():
            return f"no channel {error.name!r} is on this log; `turnline channels list` lists them."
        case UnknownRun():
            return f"{error} `turnline runs list` lists them; what is no run, `turnline channels` looks at."
        case BadAnswer():
            return f"{error} Give each field with -i KEY=VALUE, or KEY:=JSON."
    return str(error)
