"""`api_call`: one request to another system (F11). The server is real, and on loopback."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from turnline.core.envelope import JsonObject
from turnline.core.state import LONG_AGO
from turnline.errors import AddressRefused, BadStepValue, TemplateFailed
from turnline.flow.events import event_of
from turnline.flow.steps import api_call
from turnline.flow.work import Services, StepResult

from ..http_server import Answer, HttpServer
from ..scenes import Notes, work_on
from ..stage import flows_of, stage

KEY = "canary-0123456789"
PUBLIC = "93.184.215.14"


async def called(
    url: str,
    *,
    public: JsonObject | None = None,
    routes: JsonObject | None = None,
    notes: Notes | None = None,
    services: Services | None = None,
    **block: Any,
) -> StepResult:
    """PerformStep the step `lead` with this block; loopback is allowed unless it says otherwise."""
    given = {"url": url, "allow_private": True, **block}
    work = work_on(
        {"id": "lead", "api_call": given, "routes": routes or {}},
        public=public,
        services=services or Services(secret={"KEY": KEY}.get),
        notes=notes,
    )
    return await api_call.perform(work)


class Wire(httpx2.MockTransport):
    """A network on which every request is answered by a function, and kept."""

    def __init__(self, answer: Callable[[httpx2.Request], httpx2.Response]) -> None:
        self.requests: list[httpx2.Request] = []
        super().__init__(lambda request: self.requests.append(request) or answer(request))  # type: ignore[func-returns-value]


def at(wire: Wire, *addresses: str, lookups: list[str] | None = None) -> Services:
    """Services on that network, where every name has these addresses."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        if lookups is not None:
            lookups.append(f"{host}:{port}")
        return addresses

    return Services(http_transport=wire, resolve_host=resolve, secret={"KEY": KEY}.get)


def says(text: str = "ok", **options: Any) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda request: httpx2.Response(
        options.get("status", 200), text=text, headers=options.get("headers")
    )


# --- the request ---


async def test_a_request_is_sent_as_the_step_says() -> None:
    public: JsonObject = {"id": 7, "name": "Jané", "tags": ["a b", "c"], "when": None, "deep": {"x": [1]}}
    with HttpServer({"/leads/7": Answer(json={})}) as server:
        await called(
            f"{server.url}/leads/{{{{ id }}}}?v=1",
            public=public,
            method="PUT",
            headers={"X-Name": "n-{{ id }}"},
            query={"tag": "{{ tags }}", "on": True, "n": "{{ id }}", "when": "{{ when }}"},
            json={"name": "{{ name }}", "n": "{{ id }}", "deep": ["{{ deep }}"]},
        )

    (got,) = server.received
    assert got.method == "PUT"
    assert got.path == "/leads/7?v=1&tag=a+b&tag=c&on=true&n=7"
    assert got.body == '{"name":"Jané","n":7,"deep":[{"x":[1]}]}'.encode()
    assert got.headers["content-type"] == "application/json"
    assert got.headers["x-name"] == "n-7"
    assert got.headers["host"] == f"127.0.0.1:{server.port}"


async def test_a_body_is_text() -> None:
    with HttpServer({"/": Answer(json={})}) as server:
        await called(server.url, public={"n": "ü"}, method="POST", body="n={{ n }}\n")
        await called(server.url, method="POST", body="a", headers={"content-type": "text/csv"})

    assert server.received[0].body == "n=ü\n".encode()
    assert server.received[0].headers["content-type"] == "text/plain; charset=utf-8"
    assert server.received[1].headers["content-type"] == "text/csv"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_f11_an_unsafe_method_has_an_idempotency_key_that_is_the_turns(method: str) -> None:
    with HttpServer({"/": Answer(json={})}) as server:
        await called(server.url, method=method)
        await called(server.url, method=method, headers={"idempotency-key": "mine"})

    assert [one.headers["idempotency-key"] for one in server.received] == ["run-1:3", "mine"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_f11_a_safe_method_has_none(method: str) -> None:
    with HttpServer({"/": Answer(json={"a": 1})}) as server:
        done = await called(server.url, method=method)

    assert "idempotency-key" not in server.received[0].headers
    assert done.updates == ({"a": 1} if method == "GET" else {})


@pytest.mark.parametrize(
    "block",
    [
        {"url": "http://127.0.0.1/{{ x }}"},
        {"query": {"a": ["{{ x }}"]}},
        {"json": {"a": "{{ x }}"}},
        {"body": "{{ x }}"},
        {"headers": {"A": "{{ x }}"}},
        {"url": "http://127.0.0.1/{{ secret.KEY }}"},
        {"query": {"key": "{{ secret.KEY }}"}},
        {"json": {"key": "{{ secret.KEY }}"}},
        {"headers": {"A": "{{ secret.NOPE }}"}},
    ],
)
async def test_f9_what_cannot_be_filled_in_is_never_sent(block: JsonObject) -> None:
    wire = Wire(says())

    with pytest.raises(TemplateFailed) as caught:
        await called(block.pop("url", "http://127.0.0.1/"), services=at(wire), **block)
    assert caught.value.at.startswith("api_call.")
    assert wire.requests == []


@pytest.mark.parametrize("bad", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "ü", "\x7f"])
async def test_f11_no_line_break_gets_into_a_header_and_its_value_is_not_shown(bad: str) -> None:
    wire = Wire(says())
    services = Services(http_transport=wire, secret=lambda name: f"canary{bad}")

    for value in ("{{ bad }}", "{{ secret.KEY }}"):
        with pytest.raises(BadStepValue, match=r"api_call\.headers\.A is with a line break") as caught:
            await called(
                "http://127.0.0.1/", public={"bad": f"canary{bad}"}, headers={"A": value}, services=services
            )
        assert "canary" not in str(caught.value)
    assert wire.requests == []


@pytest.mark.parametrize("bad", ["a\r\nb", "a\nb", "a\rb", "a\0b"])
async def test_f11_no_line_break_gets_into_an_address_or_a_query(bad: str) -> None:
    wire = Wire(says())

    for block in (
        {"url": "http://127.0.0.1/{{ bad }}"},
        {"url": "http://127.0.0.1/", "query": {"q": "{{ bad }}"}},
    ):
        with pytest.raises(BadStepValue):
            await called(public={"bad": bad}, services=at(wire), **block)
    assert wire.requests == []


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "Connection", "A B", "A:", "", "A\r\nB"]
)
async def test_f11_headers_that_say_where_a_request_goes_or_ends_are_refused(name: str) -> None:
    with pytest.raises(BadStepValue, match="no request may set"):
        await called("http://127.0.0.1/", headers={name: "x"}, services=at(Wire(says())))


async def test_a_query_holds_texts_and_numbers() -> None:
    with pytest.raises(BadStepValue, match=r"api_call\.query\.q is with a list or an object inside"):
        await called("http://127.0.0.1/", query={"q": [{"a": 1}]}, services=at(Wire(says())))


# --- where it may go ---


HOSTILE = [
    "http://127.0.0.1/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://127.0.0.1./",
    "http://0/",
    "http://0.0.0.0:8080/",
    "http://10.1.2.3/",
    "http://172.20.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/",
    "http://100.100.100.200/",
    "http://[::]/",
    "http://[::1]:80/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[ff02::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://127。0。0。1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://\uff11\uff12\uff17.0.0.1/",
    "http://%31%32%37.0.0.1/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1@example.com/",
    "http://127.0.0.1\\@example.com/",
    "http://127.0.0.1%00.example.com/",
    "http:127.0.0.1/",
    "http:///127.0.0.1/",
    "//127.0.0.1/",
    "https://127.0.0.1/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "unix:///var/run/docker.sock",
    "http://[::1/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "",
    "example.com",
]


@pytest.mark.parametrize("url", HOSTILE)
async def test_f11_a_hostile_address_is_refused_and_nothing_is_sent(url: str) -> None:
    wire = Wire(says("inside"))

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    services = Services(http_transport=wire, resolve_host=resolve)
    try:
        done = await called("{{ url }}", public={"url": url}, allow_private=False, services=services)
    except (AddressRefused, BadStepValue):
        pass
    else:
        assert done.signal == "error"
        assert done.updates == {}
    assert wire.requests == []


async def test_f11_a_name_is_looked_up_once_and_the_checked_address_is_connected_to() -> None:
    wire, lookups = Wire(says()), list[str]()

    done = await called(
        "https://api.example.com:8443/x?y=1", allow_private=False, services=at(wire, PUBLIC, lookups=lookups)
    )

    (sent,) = wire.requests
    assert lookups == ["api.example.com:8443"]
    assert str(sent.url) == f"https://{PUBLIC}:8443/x?y=1"
    assert sent.headers["host"] == "api.example.com:8443"
    assert sent.extensions["sni_hostname"] == "api.example.com"
    assert done.updates == {"lead": "ok"}


async def test_f11_an_ipv6_address_is_connected_to() -> None:
    wire = Wire(says())

    await called("http://api.example.com/", allow_private=False, services=at(wire, "2606:2800:21f::1"))

    assert str(wire.requests[0].url) == "http://[2606:2800:21f::1]/"
    assert wire.requests[0].headers["host"] == "api.example.com"


async def test_f11_of_several_addresses_private_ones_are_never_tried() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == PUBLIC:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(200, text="second")

    wire = Wire(answer)

    done = await called(
        "http://a.example/",
        allow_private=False,
        services=at(wire, "127.0.0.1", PUBLIC, "8.8.8.8", "10.0.0.1"),
    )

    assert [request.url.host for request in wire.requests] == [PUBLIC, "8.8.8.8"]
    assert done.updates == {"lead": "second"}


async def test_f11_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with HttpServer({"/": Answer(json={"a": 1})}) as server:
        done = await called(server.url)

    assert done.updates == {"a": 1}


# --- redirects ---


async def test_f11_a_redirect_on_the_same_host_is_followed_and_checked_again() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        onward = {"/a": "/b", "/b": "http://api.example.com/c?d=1"}.get(request.url.path)
        return (
            httpx2.Response(200, text="there")
            if onward is None
            else httpx2.Response(302, headers={"location": onward})
        )

    wire, lookups = Wire(answer), list[str]()

    done = await called(
        "http://api.example.com/a", allow_private=False, services=at(wire, PUBLIC, lookups=lookups)
    )

    assert done.updates == {"lead": "there"}
    assert [request.url.raw_path for request in wire.requests] == [b"/a", b"/b", b"/c?d=1"]
    assert len(lookups) == 3


async def test_a_caller_of_a_run_does_not_learn_which_names_are_known_inside() -> None:
    """The caller chooses the name, and reads what became of the run."""
    known = {"db.internal": ["10.1.2.3"], "meta.internal": ["169.254.169.254"]}

    async def resolve(host: str, port: int) -> Sequence[str]:
        return known.get(host, [])

    flow = "steps: [{id: get, api_call: {url: '{{ url }}'}}]"
    services = Services(flows=flows_of(flow), http_transport=Wire(says()), resolve_host=resolve)
    told = []
    async with stage(services=services) as house:
        for host in ("db.internal", "meta.internal", "nothing.internal"):
            run_id = await house.runs.start("main", {"url": f"http://{host}/"})
            verdict = await house.ended(run_id)
            shown = [event_of(line) for line in await house.wal(run_id)]
            plain = [None if one is None else replace(one, at=LONG_AGO) for one in shown]
            told.append(str((verdict, plain)).replace(host, "HOST"))

    assert "may not be called" in told[0]
    assert len(set(told)) == 1


async def test_f11_a_redirect_whose_name_leads_inside_now_is_refused() -> None:
    addresses = iter([[PUBLIC], ["169.254.169.254"]])

    async def resolve(host: str, port: int) -> Sequence[str]:
        return next(addresses)

    wire = Wire(says(status=302, headers={"location": "/b"}))

    with pytest.raises(AddressRefused, match="has no public address"):
        await called(
            "http://a.example/",
            allow_private=False,
            services=Services(http_transport=wire, resolve_host=resolve),
        )
    assert len(wire.requests) == 1


@pytest.mark.parametrize(
    "location",
    [
        "http://evil.example/",
        "//evil.example/",
        "http://api.example.com:8080/",
        "http://169.254.169.254/",
        "http://user@api.example.com/",
        "http://sub.api.example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://[",
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_f11_a_redirect_to_anywhere_else_is_not_followed(location: str, status: int) -> None:
    wire = Wire(says(status=status, headers={"location": location}))

    done = await called(
        "http://api.example.com/",
        headers={"A": "{{ secret.KEY }}"},
        allow_private=False,
        services=at(wire, PUBLIC),
    )

    assert len(wire.requests) == 1
    assert done.signal == "error"
    assert done.private["_api_status_code"] == status
    assert "redirects to" in done.private["_last_error"]


@pytest.mark.parametrize(("before", "after", "sent"), [("http", "https", 2), ("https", "http", 1)])
async def test_f11_a_redirect_goes_from_http_to_https_and_never_back(
    before: str, after: str, sent: int
) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.scheme == after:
            return httpx2.Response(200, text="ok")
        return httpx2.Response(301, headers={"location": f"{after}://a.example/"})

    wire = Wire(answer)

    await called(f"{before}://a.example/", allow_private=False, services=at(wire, PUBLIC))

    assert len(wire.requests) == sent


async def test_f11_at_most_three_redirects_are_followed() -> None:
    with HttpServer({"/": Answer(status=302, headers={"Location": "/"})}) as server:
        done = await called(server.url)

    assert len(server.received) == 4
    assert "redirected more than 3 times" in done.private["_last_error"]


@pytest.mark.parametrize(
    ("status", "method", "body"), [(303, "GET", b""), (302, "GET", b""), (307, "POST", b"[1]")]
)
async def test_f11_what_is_sent_after_a_redirect(status: int, method: str, body: bytes) -> None:
    answers = {"/a": Answer(status=status, headers={"Location": "/b"}), "/b": Answer(json={"ok": 1})}
    with HttpServer(answers) as server:
        done = await called(f"{server.url}/a", method="POST", json=[1])

    assert (server.received[1].method, server.received[1].body) == (method, body)
    assert done.updates == {"ok": 1}


# --- the answer ---


@pytest.mark.parametrize(
    ("answer", "output", "updates"),
    [
        (Answer(json={"id": 1, "a": {"b": 2}}), {}, {"id": 1, "a": {"b": 2}}),
        (Answer(json={"id": 1, "a": {"b": 2}}), {"map": {"a.b": "x"}}, {"x": 2}),
        (Answer(json=[1, 2]), {}, {"lead": [1, 2]}),
        (Answer(json=[1, 2]), {"key": "rows"}, {"rows": [1, 2]}),
        (Answer(json="x"), {}, {"lead": "x"}),
        (Answer(body=b"hello"), {}, {"lead": "hello"}),
        (Answer(body=b"hello"), {"key": "said"}, {"said": "hello"}),
        (Answer(body=b'{"a": 1}'), {}, {"a": 1}),
        (Answer(json={"a": 1}), {"format": "text"}, {"lead": '{"a": 1}'}),
        (Answer(status=204), {}, {}),
        (
            Answer(body="Zürich".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"}),
            {},
            {"lead": "Zürich"},
        ),
        (
            Answer(body=b"x\xff", headers={"Content-Type": "text/plain; charset=nonsense"}),
            {},
            {"lead": "x\ufffd"},
        ),
        (Answer(body=gzip.compress(b'{"a": 1}'), headers={"Content-Encoding": "gzip"}), {}, {"a": 1}),
        (Answer(body=zlib.compress(b'{"a": 1}'), headers={"Content-Encoding": "deflate"}), {}, {"a": 1}),
    ],
)
async def test_what_becomes_of_an_answer(answer: Answer, output: JsonObject, updates: JsonObject) -> None:
    with HttpServer({"/": answer}) as server:
        done = await called(server.url, output=output)

    assert done.updates == updates
    assert done.signal == "default"
    assert done.private == {"_api_status_code": answer.status}


async def test_f4_a_key_of_the_answer_is_the_signal() -> None:
    with HttpServer({"/": Answer(json={"state": "paid"})}) as server:
        done = await called(server.url, output={"signal_from": "state"})

    assert done.signal == "paid"


async def test_f1_reserved_keys_of_an_answer_are_dropped_and_noted() -> None:
    notes = Notes()
    with HttpServer(
        {"/": Answer(json={"_user_id": "root", "a": {"_id": 1}, "_api_status_code": 1})}
    ) as server:
        done = await called(server.url, notes=notes)

    assert done.updates == {"a": {"_id": 1}}
    assert done.private == {"_api_status_code": 200}
    assert notes.dropped == [("api_call", ["_api_status_code", "_user_id"])]


@pytest.mark.parametrize(
    ("status", "routes", "signal"),
    [
        (404, {}, "error"),
        (404, {"http_404": "late"}, "http_404"),
        (404, {"http_500": "late", "error": "late"}, "error"),
        (500, {"http_500": "late"}, "http_500"),
    ],
)
async def test_f11_a_status_of_failure_is_a_signal_and_nothing_of_the_answer_is_kept(
    status: int, routes: JsonObject, signal: str
) -> None:
    with HttpServer({"/x": Answer(status=status, json={"a": 1})}) as server:
        done = await called(f"{server.url}/x?token=1", routes=routes)

    assert done.signal == signal
    assert done.updates == {}
    assert done.private == {
        "_api_status_code": status,
        "_last_error": f"GET {server.url}/x answered {status}.",
        "_last_error_type": "error",
    }


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (Answer(body=b"oops"), {"format": "json"}),
        (Answer(body=b"oops", headers={"Content-Type": "application/json"}), {}),
        (Answer(json={"a": 1}), {"map": {"b": "x"}}),
        (Answer(json={"a": 1}), {"schema": {"a": "string"}}),
        (Answer(status=204), {"map": {"b": "x"}}),
        (Answer(body=b'{"a": "\xff"}'), {"schema": {"a": "integer"}}),
    ],
)
async def test_f5_an_answer_that_does_not_parse_is_a_parse_error_and_its_status_is_known(
    answer: Answer, output: JsonObject
) -> None:
    with HttpServer({"/": answer}) as server:
        done = await called(server.url, output=output)

    assert done.signal == "parse_error"
    assert done.updates == {}
    assert done.private["_api_status_code"] == answer.status
    assert done.private["_last_error_type"] == "parse_error"


# --- limits ---


async def test_f11_an_answer_that_is_too_long_is_not_read_to_its_end() -> None:
    read = 0

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            nonlocal read
            while True:
                read += 1000
                yield b"x" * 1000

    wire = Wire(lambda request: httpx2.Response(200, stream=Endless()))

    done = await called("http://127.0.0.1/", max_bytes=10_000, services=at(wire))

    assert done.signal == "error"
    assert "more than 10000 bytes" in done.private["_last_error"]
    assert done.private["_api_status_code"] == 200
    assert read == 11_000


async def test_f11_an_answer_of_just_the_limit_is_read() -> None:
    with HttpServer({"/": Answer(body=b"x" * 1000)}) as server:
        assert (await called(server.url, max_bytes=1000)).signal == "default"
        assert (await called(server.url, max_bytes=999)).signal == "error"


async def test_f11_a_compressed_answer_is_measured_unpacked() -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    with HttpServer({"/": Answer(body=bomb, headers={"Content-Encoding": "gzip"})}) as server:
        done = await called(server.url, max_bytes=1_000_000)

    assert "more than 1000000 bytes" in done.private["_last_error"]
    assert server.received[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(("packing", "told"), [("br", "packed as 'br'"), ("gzip", "does not unpack")])
async def test_an_answer_that_cannot_be_unpacked_is_an_error(packing: str, told: str) -> None:
    with HttpServer({"/": Answer(body=b"not packed", headers={"Content-Encoding": packing})}) as server:
        done = await called(server.url)

    assert told in done.private["_last_error"]


async def test_f11_a_call_without_a_timeout_of_its_own_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_call, "TIMEOUT_SECONDS", 0.05)
    with HttpServer({"/": Answer(silent=True)}) as server:
        done = await called(server.url)

    assert done.signal == "timeout"
    assert done.private["_last_error_type"] == "timeout"
    assert done.private["_api_status_code"] is None


# --- what goes wrong ---


async def test_f11_a_server_that_is_not_there_is_an_error_and_no_status_is_known() -> None:
    with HttpServer({}) as server:
        url = server.url

    done = await called(url)

    assert done.signal == "error"
    assert done.private["_api_status_code"] is None
    assert done.private["_last_error"].startswith(f"GET {url} failed: it could not be reached (")


async def test_f11_a_name_nobody_knows_is_an_error() -> None:
    with pytest.raises(AddressRefused, match=r"'nowhere\.example' may not be called: the name is unknown"):
        await called("http://nowhere.example/", allow_private=False, services=at(Wire(says())))


async def test_f11_an_error_of_a_connection_does_not_tell_the_address_behind_a_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with HttpServer({}) as server:
        port = server.port

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    done = await called(f"http://db.internal:{port}/", services=Services(resolve_host=resolve))

    assert done.private["_last_error"].endswith("failed: it could not be reached (no connection).")
    assert "no connection to 127.0.0.1" in caplog.text


async def test_f11_a_connection_that_breaks_is_an_error_that_quotes_nothing() -> None:
    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.LocalProtocolError(f"Illegal header value {request.headers['A']!r}")

    done = await called("http://127.0.0.1/", headers={"A": "{{ secret.KEY }}"}, services=at(Wire(broken)))

    assert done.private["_last_error"] == (
        "GET http://127.0.0.1/ failed: the connection broke (LocalProtocolError)."
    )


# --- secrets ---


async def test_f9_a_secret_goes_to_the_wire_and_nowhere_else() -> None:
    with HttpServer({"/": Answer(json={"a": 1})}) as server:
        done = await called(server.url, headers={"Authorization": "Bearer {{ secret.KEY }}"})

    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    assert "canary" not in repr(done)


@pytest.mark.parametrize(
    ("body", "output"),
    [
        (f'{{"headers": {{"Authorization": "Bearer {KEY}"}}}}', {}),
        (f'{{"{KEY}": 1}}', {}),
        ('{"said": "\\u0063anary-0123456789"}', {}),
        (f"you said {KEY}", {}),
        (f"you said {KEY}", {"format": "json"}),
        (f'{{"a": "{KEY}"}}', {"schema": {"a": {"type": "string", "enum": ["x"]}}}),
    ],
)
async def test_f9_a_secret_that_the_other_side_repeats_is_masked(body: str, output: JsonObject) -> None:
    with HttpServer({"/": Answer(body=body.encode())}) as server:
        done = await called(server.url, headers={"A": "Bearer {{ secret.KEY }}"}, output=output)

    assert "canary" not in repr(done)
