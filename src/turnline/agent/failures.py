"""Failures of tools, steps and turns: reported to the operator; a bug with file, line and a short traceback.

    tool 'look' failed: KeyError: 'lamp'
      File "/home/ann/desk/tools.py", line 12, in look
        return shelf["lamp"]

Rule: a report shows lines of code and where they are, never values. The caller masks the text of the
exception first; of that text the first line is shown, because further lines often quote what was given.
A report goes to the log of the process only.
"""

from __future__ import annotations

import logging
import os
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import FrameSummary, extract_tb, format_list
from typing import Final

from turnline.errors.base import TurnlineError, plain

logger = logging.getLogger("turnline.failures")

MAX_FRAMES: Final = 4
"""Frames of the user's own code in a report; the innermost ones are kept."""
MAX_REASON_CHARACTERS: Final = 500
_OURS: Final = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_LIBRARIES: Final = tuple(
    {
        f"{Path(path).resolve()}{os.sep}"
        for name, path in sysconfig.get_paths().items()
        if name.endswith(("lib", "stdlib"))
    }
)


def report_failure(what: str, error: BaseException | None, reason: str) -> None:
    """Log that `what` failed, and why; of a bug also where it is. `reason` is masked already."""
    where = short_traceback(error) if error is not None and is_bug(error) else ""
    logger.warning("%s failed: %s%s", what, first_line(reason), where)


@contextmanager
def collected_failures() -> Iterator[list[str]]:
    """Collect the reports in a list; within this they are not logged."""
    reports: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        reports.append(record.getMessage())
        return False

    logger.addFilter(keep)
    try:
        yield reports
    finally:
        logger.removeFilter(keep)


def is_bug(error: BaseException) -> bool:
    """Return whether the user should look at the code: not for a timeout, nor for an error of ours alone."""
    if isinstance(error, TimeoutError):
        return False
    return bool(_own_frames(error)) or not isinstance(error, TurnlineError)


def first_line(text: str) -> str:
    """Return what a log line shows of a message: its first line, cut, without control characters."""
    return plain(text.partition("\n")[0][:MAX_REASON_CHARACTERS])


def short_traceback(error: BaseException) -> str:
    """Return the frames of the user's own code, on lines of their own; without any, the innermost frame."""
    frames = extract_tb(error.__traceback__)
    own = _own_frames(error)[-MAX_FRAMES:]
    shown = own if own else frames[-1:]
    return "".join(f"\n{line}" for one in format_list(shown) for line in one.rstrip().splitlines())


def _own_frames(error: BaseException) -> list[FrameSummary]:
    """The frames of the user's code: of the error, or else of its cause, such as a condition that raised."""
    own = [one for one in extract_tb(error.__traceback__) if _is_own(one.filename)]
    return own or ([] if error.__cause__ is None else _own_frames(error.__cause__))


def _is_own(filename: str) -> bool:
    if filename.startswith("<"):
        return not filename.startswith("<frozen")  # `<string>` is a program that was given as text.
    path = str(Path(filename).resolve())
    return not path.startswith((_OURS, *_LIBRARIES))
