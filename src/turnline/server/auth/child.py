"""The process that reads tokens: `python -m turnline.server.auth.child PUBLIC_KEY`

Says `ready`. Then, for each line on its standard input, `{"number", "token", "now"}`, it says one:
`{"number", "reading"}`, or `{"number", "refused"}` and why. It ends when its input does.
"""

from __future__ import annotations

import sys
from datetime import datetime

import msgspec
from msgspec import Struct

from turnline.errors import Unauthenticated
from turnline.server.auth.reading import Reading, read

READY = b"ready\n"


class Request(Struct, frozen=True):
    """A token to be read."""

    number: int
    token: str
    now: datetime


class Answer(Struct, frozen=True):
    """What was read, or why not."""

    number: int
    reading: Reading | None = None
    refused: str = ""


def answer(request: Request, public_key: str) -> Answer:
    try:
        return Answer(request.number, read(request.token, public_key=public_key, now=request.now))
    except Unauthenticated as error:
        return Answer(request.number, refused=error.because)


def main(public_key: str) -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=Request)
        sys.stdout.buffer.write(msgspec.json.encode(answer(request, public_key)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
