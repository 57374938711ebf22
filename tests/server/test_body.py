"""Strict JSON of bounded size: what one reader takes and another does not, nobody takes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

import msgspec
import pytest

from turnline.client.strict_json import BadJson, loads
from turnline.core.json import size_of, survey
from turnline.expressions.functions import contains
from turnline.server.body import parsed
from turnline.server.problems import RequestRefused
from turnline.server.settings import ServerSettings
from turnline.threads import BIG_BYTES

from .stage import served

ECHO = "{trigger: {path: /echo}, steps: [{id: only, runner: work}]}"


def nothing(ctx: object) -> None:
    return None


BAD = {
    "not JSON": b"{",
    "nothing but space": b"  ",
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "a number beyond all numbers": b'{"a": 1e999}',
    "a number of many digits": b'{"a": ' + b"9" * 5000 + b"}",
    "a key twice": b'{"a": 1, "a": 2}',
    "a key twice, spelled differently": b'{"a": 1, "\\u0061": 2}',
    "a key twice, deep inside": b'{"x": [{"a": 1, "b": 1, "a": 1}]}',
    "half a surrogate pair": b'{"a": "\\ud800"}',
    "half a surrogate pair as a key": b'{"\\udfff": 1}',
    "NUL": b'{"a": "\\u0000"}',
    "NUL as it is": b'{"a": "\x00"}',
    "a line break in a text": b'{"a": "\n"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "UTF-8 that is none": b'{"a": "\xff"}',
    "UTF-8 of half a surrogate pair": b'{"a": "\xed\xa0\x80"}',
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "65 levels": b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
    "levels without end": b'{"a":' + b"[" * 500_000,
    "something behind it": b'{"a": 1} {"b": 2}',
    "a comment": b'{"a": 1} // yes',
    "a trailing comma": b'{"a": 1,}',
    "a megabyte of empty lists": b'{"a": [' + b"[]," * 340_000 + b"[]]}",
    "a megabyte of empty objects": b'{"a": [' + b"{}," * 340_000 + b"{}]}",
    "a key of a kilobyte": b'{"' + b"k" * 1025 + b'": 1}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_f6_a_body_that_is_not_strict_json_is_400(body: bytes) -> None:
    async with served(ECHO, work=nothing) as server:
        answer = await server.post("/echo", body)
        after = await server.post("/echo", {"a": 1})

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "bad_json"
    assert after.status_code == 200


def test_what_json_allows_is_taken_as_it_is() -> None:
    body = '{"": 1, "a": [1.5, -0.0, 1e3, true, null, "ä\\ud83d\\ude00\\n"], "b": {"_c": {}}}'

    assert parsed(body.encode()) == {"": 1, "a": [1.5, -0.0, 1000.0, True, None, "ä😀\n"], "b": {"_c": {}}}


def test_commas_and_brackets_inside_a_text_are_no_values() -> None:
    text = ',[{"\\' * 150_000

    assert parsed(msgspec.json.encode({"a": text})) == {"a": text}


@pytest.mark.parametrize("text", ['{"a": "' + '\\"' * 150_000 + "," * 150_000, "[" * 150_000 + '"\\'])
def test_a_text_that_does_not_end_is_refused_in_linear_time(text: str) -> None:
    with pytest.raises(RequestRefused, match="cannot be read"):
        parsed(text.encode())


async def test_no_value_of_a_large_body_is_validated_on_the_loop() -> None:
    """What the loop does for a request does not grow with the items in its body."""
    flow = """
    {trigger: {path: /echo, input: {a: {type: array, items: {type: object, properties:
    {n: {type: integer, required: true, min: 0}, tag: {type: string, default: new}}}}}},
    steps: [{id: only, runner: work}]}
    """

    async def calls_for(count: int) -> int:
        body = {"a": [{"n": n, "tag": "x" * 30} for n in range(count)]}
        async with served(flow, work=nothing) as server:
            calls = Counter[str]()
            sys.setprofile(lambda frame, event, arg: calls.update([event]))
            try:
                answer = await server.post("/echo", body)
            finally:
                sys.setprofile(None)
        assert answer.status_code == 200
        return calls["call"]

    few, many = await calls_for(2_000), await calls_for(12_000)

    assert many < few + 1_000  # Validating on the loop would take several calls for each item.


async def test_a_large_request_is_neither_validated_nor_searched_on_the_loop() -> None:
    """Reading the body, the run's input and first line, `when`, conditions and what a node changed."""
    flow = """
    {trigger: {path: /echo}, steps: [
    {id: choose, router: {conditions: [{if: "7 in a", signal: x}]}, routes: {x: only, default: only}},
    {id: only, runner: work, when: "not (7 in a)"}]}
    """
    on_the_loop = Counter[str]()
    costly = {one.__code__: one.__name__ for one in (survey, contains)}

    def note(frame: FrameType, event: str, arg: object) -> None:
        given = frame.f_locals.values()
        if event == "call" and frame.f_code in costly and max(map(size_of, given)) > BIG_BYTES:
            on_the_loop.update([costly[frame.f_code]])

    async def work(ctx: dict[str, Any]) -> dict[str, Any]:
        return {"kept": len(ctx["a"])}

    async with served(flow, work=work) as server:
        sys.setprofile(note)  # Of this thread alone.
        try:
            answer = await server.post("/echo", {"a": ["text"] * 10_000})
        finally:
            sys.setprofile(None)

    assert answer.json()["data"]["kept"] == 10_000
    assert on_the_loop == Counter()


def test_an_error_names_the_place() -> None:
    with pytest.raises(RequestRefused, match="line 1, column 7") as caught:
        parsed(b'{"a": }')
    with pytest.raises(RequestRefused, match=r"body\.a\[1\] is text with a NUL"):
        parsed(b'{"a": [1, "\\u0000"]}')

    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ('application/json; charset="utf-8"', 200),
        ("application/problem+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json; charset=latin-1", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
async def test_f6_a_body_that_says_it_is_something_else_is_415(content_type: str, status: int) -> None:
    async with served(ECHO, work=nothing) as server:
        answer = await server.post("/echo", b'{"a": 1}', Content_Type=content_type)

    assert answer.status_code == status


async def test_f6_a_compressed_body_is_415() -> None:
    async with served(ECHO, work=nothing) as server:
        answer = await server.post("/echo", b"{}", Content_Encoding="gzip")

    assert answer.status_code == 415


async def test_a_body_that_says_nothing_is_json_and_no_body_is_an_empty_object() -> None:
    async with served(ECHO, work=nothing) as server:
        headers = {"Authorization": "Bearer root"}
        plain = await server.client.post("/echo", content=b'{"a": 1}', headers=headers)
        empty = await server.client.post("/echo", headers=headers)

    assert (plain.json()["data"], empty.json()["data"]) == ({"a": 1}, {})


async def test_f6_a_body_over_the_limit_is_413_whether_or_not_it_says_its_size() -> None:
    sent: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        for n in range(100):
            sent.append(n)
            yield b" " * 100

    async with served(ECHO, work=nothing, settings=ServerSettings(body_bytes=1000)) as server:
        fits = await server.post("/echo", b'{"a": 1}'.ljust(1000))
        said = await server.post("/echo", b'{"a": 1}'.ljust(1001))
        headers = {"Authorization": "Bearer root", "Content-Type": "application/json"}
        streamed = await server.client.post("/echo", content=pieces(), headers=headers)

    assert [fits.status_code, said.status_code, streamed.status_code] == [200, 413, 413]
    assert said.json()["error"]["type"] == "too_large"
    assert len(sent) < 20, "it went on reading"


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b'{"a":'
        await asyncio.Event().wait()

    async with served(ECHO, work=nothing, settings=ServerSettings(body_seconds=0.01)) as server:
        headers = {"Authorization": "Bearer root", "Content-Type": "application/json"}
        answer = await server.client.post("/echo", content=never(), headers=headers)

    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "too_slow")


async def test_f6_the_default_limit_is_a_mebibyte_and_what_the_log_cannot_hold_is_413() -> None:
    async with served(ECHO, work=nothing) as server:
        half = await server.post("/echo", {"a": "x" * 500_000})
        nearly = await server.post("/echo", {"a": "x" * (1024 * 1024 - 100)})
        over = await server.post("/echo", {"a": "x" * 1024 * 1024})
        deep = await server.post("/echo", b'{"a":' + b"[" * 61 + b"]" * 61 + b"}")
        deeper = await server.post("/echo", b'{"a":' + b"[" * 63 + b"]" * 63 + b"}")

    assert [half.status_code, nearly.status_code, over.status_code] == [200, 413, 413]
    assert [deep.status_code, deeper.status_code] == [200, 413]
    assert "knobs" not in nearly.text + deeper.text


@pytest.mark.parametrize(
    "text", ["[[],[ ],{}, { } , [[]]]", '{"a":1,"b":[2,3,{"c":",[{"}]}', "[]", "1", '[1, "[]", "{}"]']
)
def test_values_are_counted_in_the_text_exactly(text: str) -> None:
    def count(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(map(count, inner))

    values = count(loads(text, depth=64))

    assert loads(text, depth=64, values=values) is not None
    with pytest.raises(BadJson, match="values"):
        loads(text, depth=64, values=values - 1)
