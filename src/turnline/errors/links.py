"""A link to a hub elsewhere that did not do what it was asked."""

from __future__ import annotations

from turnline.errors.base import TurnlineError


class LinkError(TurnlineError):
    """A link to a hub elsewhere did not do what it was asked."""

    what = "the link to the hub failed"

    def __init__(self, because: str) -> None:
        self.because = because
        super().__init__(f"{self.what}: {because}.")


class LinkLost(LinkError):
    """The hub cannot be reached, or the link was closed."""

    what = "there is no link to the hub"


class BadFrame(LinkError):
    """What came over a link is not a frame, or not one that may come now."""

    what = "a frame was refused"


class RemoteFailed(LinkError):
    """Something is wrong at the other end; its own log knows what."""

    what = "the hub's end of the link failed"
