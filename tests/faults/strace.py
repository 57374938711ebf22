"""strace, attached to a scribe: what it asks of the kernel is written down, and can be made to fail.

strace counts for each thread and each kind of call by itself (`when=N`), so a call is named by its thread,
its kind and its number. Two threads of a log change its files: the loop's, and the writer's own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TextIO

from msgspec import Struct

from tests.faults import scribe
from tests.faults.scribe import Orders

WRITES: Final = ("write", "pwrite64", "ftruncate", "fsync", "fdatasync", "unlink")
"""Every call by which SQLite changes a file, or the folder it is in."""
SIDE_FILES: Final = ("", "-wal", "-shm", "-journal")
PATIENCE_SECONDS: Final = 60
_ATTACHED: Final = b"attached"


Thread = Literal["loop", "writer"]


class Call(NamedTuple):
    """A call, and its number among those of its kind that its thread makes."""

    thread: Thread
    name: str
    number: int


class Trace(Struct, frozen=True):
    """What is written down of a scribe, and where: all that follows on some of its gates."""

    out: Path
    options: Sequence[str]
    gates: range
    thread: Thread | None = None
    """None: all of them."""


class Told(Struct, frozen=True, kw_only=True):
    """What became of a scribe."""

    pid: int
    said: list[str]
    killed: bool

    @property
    def writer(self) -> int:
        """The id of the writer's thread, in the last session; 0: it has not begun."""
        return writer_in(self.said)

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
            tracer = tracer or _attach(pid, writer_in(said), trace)
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
    return Told(pid=pid, said=said, killed=os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL)


def _hear(voice: TextIO) -> list[str]:
    """Return what a scribe says until it waits, or has ended."""
    said: list[str] = []
    while said[-1:] != ["waits"] and (text := voice.readline()):
        said.append(text.rstrip())
    return said


def writer_in(said: Sequence[str]) -> int:
    """Return the id of the writer's thread that a scribe has named last; 0: none."""
    named = [text for text in said if text.startswith(scribe.WRITER)]
    return int(named[-1].split()[1]) if named else 0


def _attach(pid: int, writer: int, trace: Trace) -> subprocess.Popen[bytes]:
    """Trace a process, or one of its threads; return when that has begun."""
    threads = {None: ["-f", "-p", str(pid)], "loop": ["-p", str(pid)], "writer": ["-p", str(writer)]}
    command = ["strace", *threads[trace.thread], "-o", str(trace.out), *trace.options]
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


def calls(out: Path, told: Told) -> list[Call]:
    """Return the calls that were traced in all threads of a scribe."""
    threads: dict[str, Thread] = {str(told.pid): "loop", str(told.writer): "writer"}
    found: list[Call] = []
    numbers: Counter[tuple[Thread, str]] = Counter()
    for text in out.read_text().splitlines():
        thread, _, rest = text.partition(" ")
        name = rest.strip().partition("(")[0]
        if name in WRITES:
            assert thread in threads, f"{thread} writes; expected one of {threads}"
            key = threads[thread], name
            numbers[key] += 1
            found.append(Call(*key, numbers[key]))
    return found
