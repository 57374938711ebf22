"""Parts: a frame that is larger than a message may be."""

from __future__ import annotations

import pytest

from turnline.client.frames import Part, Ping, decode_from_client
from turnline.client.parts import Joining, check_size, split
from turnline.errors import BadFrame

LONG = '{"kind": "x", "text": "' + "häh? 🙂" * 2_000 + '"}'


def parts(text: str, size: int) -> list[Part]:
    found = [decode_from_client(piece) for piece in split(text, size, "p1")]
    assert all(isinstance(one, Part) for one in found)
    return [one for one in found if isinstance(one, Part)]


def test_what_fits_goes_as_it_is() -> None:
    assert list(split("hello", 1024, "p1")) == ["hello"]


@pytest.mark.parametrize("size", [1024, 1025, 4096, 20_000])
def test_what_does_not_fit_is_put_together_again(size: int) -> None:
    pieces = list(split(LONG, size, "p1"))
    joining = Joining(100_000)
    whole = [joining.take(part) for part in parts(LONG, size)]

    assert all(len(piece.encode()) <= size for piece in pieces)
    assert (whole[:-1], whole[-1]) == ([None] * (len(pieces) - 1), LONG)


def test_more_than_may_be_put_together_is_refused_and_forgotten() -> None:
    joining = Joining(5_000)
    first, second, third, fourth = parts(LONG, 2_048)[:4]
    assert [joining.take(first), joining.take(second), joining.take(third)] == [None] * 3
    with pytest.raises(BadFrame, match="5000"):
        joining.take(fourth)

    short = parts("x" * 2_000, 1_024)
    assert [joining.take(part) for part in short][-1] == "x" * 2_000


@pytest.mark.parametrize(
    ("second", "because"),
    [
        (Part(id="other", data="QQ=="), "two frames"),
        (Part(id="p", data="!"), "base64"),
        (Part(id="p", data=""), "empty"),
        (Part(id="p", data="//8=", last=True), "UTF-8"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(second: Part, because: str) -> None:
    joining = Joining(5_000)
    joining.take(Part(id="p", data="QQ=="))
    with pytest.raises(BadFrame, match=because):
        joining.take(second)
    assert joining.take(Part(id="new", data="QQ==", last=True)) == "A"


def test_what_the_other_side_would_not_take_is_refused_before_it_is_sent() -> None:
    assert check_size(Ping(n=1), 100) == '{"kind":"ping","n":1}'
    with pytest.raises(BadFrame, match="10 bytes"):
        check_size(Ping(n=1), 10)
