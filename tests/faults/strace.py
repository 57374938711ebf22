"""strace, attached to a scribe: what it asks of the kernel is written down, and can be made to fail.

strace counts for each thread and each kind of call by itself (`when=N`), so a call is named by
its kind and its number, and one thread at a time may make calls of those kinds.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from msgspec import Struct

from tests.faults import scribe
from tests.faults.scribe import Orders

WRITES: Final = ("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "unlink")
"""Every call by which SQLite changes a file, or the folder it is in."""
SIDE_FILES: Final = ("", "-wal", "-shm", "-journal")
PATIENCE_SECONDS: Final = 60
_ATTACHED: Final = b"attached"


class Trace(Struct, frozen=True):
    """What is written down of a scribe, and where: all that follows on some of its gates."""

    out: Path
    options: Sequence[str]
    gates: range


class Told(Struct, frozen=True, kw_only=True):
    """What became of a scribe."""

    said: list[str]
    killed: bool

    @property
    def wrong(self) -> list[str]:
        return [text for text in self.said if text.startswith("!")]


def why_not() -> str:
    """Say why processes cannot be traced here; empty if they can."""
    if sys.platform != "linux":
        return "strace is Linux's"
    if shutil.which("strace") is None:
        return "there is no strace; install it (apt-get install strace)"
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"nothing can be traced here, give it ptrace (docker: --cap-add SYS_PTRACE): {done.stderr}"
    return ""


def run(orders: Orders, trace: Trace | None = None) -> Told:
    """Fork a scribe and let it work to its end, traced where that is wanted."""
    pid, pipes = scribe.start(orders)
    voice = os.fdopen(pipes.voice)
    said = heard = _hear(voice)
    tracer: subprocess.Popen[bytes] | None = None
    for gate in itertools.count():
        if (waits := heard[-1:] == ["waits"]) and trace is not None and gate in trace.gates:
            tracer = tracer or _attach(pid, trace)
        elif tracer is not None:
            _detach(tracer, lives=waits)
            tracer = None
        if not waits:
            break
        os.write(pipes.gate, b".")
        heard = _hear(voice)
        said = said + heard
    voice.close()
    os.close(pipes.gate)
    _, status = os.waitpid(pid, 0)
    return Told(said=said, killed=os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)


def _hear(voice: TextIO) -> list[str]:
    """Return what a scribe says until it waits, or has ended."""
    said: list[str] = []
    while said[-1:] != ["waits"] and (text := voice.readline()):
        said.append(text.rstrip())
    return said


def _attach(pid: int, trace: Trace) -> subprocess.Popen[bytes]:
    """Trace a process and its threads; return when that has begun."""
    command = ["strace", "-f", "-p", str(pid), "-o", str(trace.out), *trace.options]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert strace.stderr is not None
    said = b""
    while _ATTACHED not in said:
        more = strace.stderr.readline()
        if not more:
            raise RuntimeError(f"strace cannot attach: {said.decode()}")
        said += more
    return strace


def _detach(strace: subprocess.Popen[bytes], *, lives: bool) -> None:
    """Let a process go on untraced; if it does not live any more, let strace see its end.

    An strace that is told to let go of a process while its threads die waits for them for ever.
    """
    if lives:
        strace.terminate()
    strace.communicate(timeout=PATIENCE_SECONDS)


def files(path: Path) -> list[str]:
    """Return the options that trace only what is done to the files of a log, and to their folder."""
    folder = ["-P", str(path.parent)]
    return folder + [option for end in SIDE_FILES for option in ("-P", f"{path}{end}")]


def calls(out: Path) -> list[tuple[str, int]]:
    """Return the calls that were traced, each with its number among its kind."""
    found: list[tuple[str, int]] = []
    threads = set()
    numbers: dict[str, int] = {}
    for text in out.read_text().splitlines():
        thread, _, rest = text.partition(" ")
        name = rest.strip().partition("(")[0]
        if name in WRITES:
            threads.add(thread)
            numbers[name] = numbers.get(name, 0) + 1
            found.append((name, numbers[name]))
    assert len(threads) <= 1, f"{threads} write at once; a call cannot be named by its number"
    return found
