"""Y6: files of messages over HTTP. What is sent is read through its line, and runs nowhere."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from turnline.agent.files import File
from turnline.core.parts import MAX_PARTS, FilePart
from turnline.log.base import Blobs
from turnline.log.blobs import MAX_FILE_BYTES
from turnline.server.channels.files import headers_of

from ..stage import EDGE, form
from .scene import Scene, scene

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2_000
PDF = b"%PDF-1.7\n--edge\r\nnot a boundary\r\n--edg"


async def send(stage: Scene, channel: str, body: bytes, *, token: str = "carol", edge: str = EDGE) -> Any:
    path = f"/channels/{channel}/messages"
    kind = f"multipart/form-data; boundary={edge}"
    return await stage.server.post(path, body, token=token, Content_Type=kind)


async def kept(stage: Scene, channel: str) -> int:
    assert isinstance(stage.hub.log, Blobs)
    return len(await stage.hub.log.blobs(channel))


async def test_an_image_and_a_pdf_go_in_by_a_form_and_out_through_their_line() -> None:
    async with scene("Nice.") as stage:
        channel = await stage.open()
        body = form(
            ("text", None, "", "Schau mal: ä".encode()),
            ("file", "plän.png", "image/png", PNG),
            ("file", "C:\\docs\\a.pdf", "application/pdf; x=y", PDF),
        )
        answer = await send(stage, channel, body)
        assert answer.status_code == 201, answer.text
        seq = answer.json()["data"]["seq"]
        said = next(one for one in await stage.lines(channel) if one["seq"] == seq)
        image = await stage.server.get(f"/channels/{channel}/envelopes/{seq}/files/0", token="carol")
        pdf = await stage.server.get(f"/channels/{channel}/envelopes/{seq}/files/1")

    text, *files = said["event_data"]["parts"]
    assert text == {"type": "text", "text": "Schau mal: ä"}
    assert [(one["name"], one["media_type"], one["size"], one["digest"]) for one in files] == [
        ("plän.png", "image/png", len(PNG), sha256(PNG).hexdigest()),
        ("a.pdf", "application/pdf", len(PDF), sha256(PDF).hexdigest()),
    ]
    assert (image.content, image.headers["content-type"]) == (PNG, "image/png")
    assert image.headers["content-disposition"].startswith('inline; filename="pl_n.png"')
    assert image.headers["content-disposition"].endswith("filename*=UTF-8''pl%C3%A4n.png")
    assert (pdf.content, pdf.headers["content-type"]) == (PDF, "application/pdf")
    for got in (image, pdf):
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert got.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("media_type", "way"),
    [
        ("text/html", "attachment"),
        ("image/svg+xml", "attachment"),
        ("application/xhtml+xml", "attachment"),
        ("application/pdf", "attachment"),
        ("text/xml", "attachment"),
        ("application/octet-stream", "attachment"),
        ("text/plain", "inline"),
        ("image/webp", "inline"),
    ],
)
def test_what_a_browser_could_run_is_saved_and_not_shown(media_type: str, way: str) -> None:
    file = FilePart(media_type=media_type, name='a";x=%20\u00e9', size=1, digest="0" * 64)
    headers = headers_of(file)

    assert headers["Content-Disposition"] == (
        f"{way}; filename=\"a__x=_20_\"; filename*=UTF-8''a%22%3Bx%3D%2520%C3%A9"
    )
    assert headers["Content-Type"].partition(";")[0] == media_type


async def test_a_file_of_a_line_that_is_for_others_is_not_there() -> None:
    async with scene("Nice.") as stage:
        channel = await stage.open(target=["helper", "dave"])
        handle = stage.people["carol"].channel(channel)
        said = await handle.send(parts=[File(b"secret")], audience=["helper"])
        path = f"/channels/{channel}/envelopes/{said.seq}/files"
        mine = await stage.server.get(f"{path}/0", token="carol")
        daves = await stage.server.get(f"{path}/0", token="dave")
        outside = await stage.server.get(f"{path}/0", token="onlooker")
        absent = [
            await stage.server.get(f"{path}/{one}", token="carol") for one in ("1", "-1", "x", "9" * 50)
        ]
        nowhere = await stage.server.get(f"/channels/{channel}/envelopes/1/files/0", token="carol")

    assert mine.content == b"secret"
    assert daves.status_code == 404
    assert outside.status_code == 404
    assert [one.status_code for one in (*absent, nowhere)] == [404] * 5


async def test_a_form_needs_no_file_and_a_file_needs_no_text() -> None:
    async with scene("One.", "Two.") as stage:
        channel = await stage.open()
        text = await send(stage, channel, form(("text", None, "", b"Hi!"), ("id", None, "", b"mine-1")))
        again = await send(stage, channel, form(("text", None, "", b"Hi!"), ("id", None, "", b"mine-1")))
        await stage.until(channel, lambda state: state.turn_count == 2)
        file = await send(stage, channel, form(("as", None, "", b"carol"), ("file", "a.txt", "", b"")))
        lines = {one["seq"]: one["event_data"] for one in await stage.lines(channel)}

    assert text.json() == again.json()
    assert lines[text.json()["data"]["seq"]] == {"text": "Hi!"}
    (part,) = lines[file.json()["data"]["seq"]]["parts"]
    assert (part["media_type"], part["size"]) == ("application/octet-stream", 0)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, form()),
        (422, form(("text", None, "", b""))),
        (422, form(("file", "a", "", b"x"), ("text", None, "", b"late"))),
        (422, form(("text", None, "", b"a"), ("text", None, "", b"b"))),
        (422, form(("other", None, "", b"a"))),
        (422, form(("text", None, "", b"a"), ("id", None, "", b"not an id"))),
        (422, form(*[("file", "a", "", b"x")] * MAX_PARTS)),
        (403, form(("as", None, "", b"dave"), ("file", "a", "", b"x"))),
        (400, form(("text", None, "", b"\xff"))),
        (400, form(("file", "a", "image", b"x"))),
        (400, form(("file", "a\x01", "image/png", b"x"))),
        (400, form(("file", "a", "", b"x"), end=b"")),
        (400, form(("file", "a", "", b"x"))[:-30]),
        (400, b"nothing of that kind"),
        (400, b""),
        (413, form(("text", None, "", b"x" * 1_100_000))),
        (413, form(("file", "a", "", bytes(MAX_FILE_BYTES + 1)))),
    ],
    ids=range(17),
)
async def test_a_bad_form_writes_nothing(status: int, body: bytes) -> None:
    async with scene() as stage:
        channel = await stage.open()
        before = (await stage.hub.state(channel)).seq
        answer = await send(stage, channel, body)

        assert answer.status_code == status, answer.text
        assert (await stage.hub.state(channel)).seq == before


async def test_a_boundary_that_is_none_is_refused_and_so_is_a_form_elsewhere() -> None:
    async with scene() as stage:
        channel = await stage.open()
        assert (await send(stage, channel, form(), edge="x" * 71)).status_code == 400
        close = await stage.server.post(
            f"/channels/{channel}/close", form(), Content_Type=f"multipart/form-data; boundary={EDGE}"
        )
        assert close.status_code == 415


async def test_a_file_is_kept_once_and_those_of_a_refused_message_are_not_said() -> None:
    async with scene("One.", "Two.") as stage:
        channel = await stage.open()
        body = form(("file", "a.png", "image/png", PNG))
        first = await send(stage, channel, body)
        await stage.until(channel, lambda state: state.turn_count == 2)
        second = await send(stage, channel, body)
        assert (first.status_code, second.status_code, await kept(stage, channel)) == (201, 201, 1)
        await stage.server.post(f"/channels/{channel}/close", {})
        late = await send(stage, channel, form(("file", "b.png", "image/png", PDF)))

        assert late.status_code == 409
        assert await kept(stage, channel) == 1


@pytest.mark.parametrize("size", [1, 2, 7, 4_096])
async def test_a_form_is_the_same_in_pieces_of_any_size(size: int) -> None:
    async with scene("One.") as stage:
        channel = await stage.open()
        body = form(("text", None, "", b"hi"), ("file", "a.pdf", "application/pdf", PDF * 3))

        async def pieces() -> Any:
            for start in range(0, len(body), size):
                yield body[start : start + size]

        headers = {"Authorization": "Bearer carol", "Content-Type": f"multipart/form-data; boundary={EDGE}"}
        path = f"/channels/{channel}/messages"
        answer = await stage.server.client.post(path, content=pieces(), headers=headers)
        seq = answer.json()["data"]["seq"]
        got = await stage.server.get(f"/channels/{channel}/envelopes/{seq}/files/0")

        assert got.content == PDF * 3
