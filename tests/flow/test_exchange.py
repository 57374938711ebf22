"""One request and its answer: names, addresses, TLS. What steps make of it is in `steps/test_api_call.py`."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from tests.certificates import certificate
from turnline.errors import BadStepValue, CallFailed
from turnline.flow.exchange import HttpAnswer, HttpRequest, Limits, address_of, checked_headers, exchange

NAME = "api.example.com"


class Quiet(BaseHTTPRequestHandler):
    """Answers with the host it was asked for."""

    def do_GET(self) -> None:
        body = self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def tls_server(pem: Path) -> Iterator[int]:
    """A server that is `NAME`, on loopback; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def asked(url: str, *, trusting: Path) -> HttpAnswer:
    trusted = ssl.create_default_context(cafile=trusting)
    limits = Limits(max_bytes=100, allow_private=True, resolve=loopback)
    async with httpx2.AsyncHTTPTransport(verify=trusted, trust_env=False) as transport:
        return await exchange(HttpRequest(method="GET", url=address_of(url, at="url")), limits, transport)


async def test_f11_the_name_is_in_tls_and_in_the_host_header_while_the_address_is_on_the_wire(
    tmp_path: Path,
) -> None:
    pem = certificate(tmp_path, NAME)
    with tls_server(pem) as port:
        answer = await asked(f"https://{NAME}:{port}/", trusting=pem)

    assert answer.body == f"{NAME}:{port}".encode()


async def test_f11_a_server_that_cannot_prove_its_name_is_not_talked_to(tmp_path: Path) -> None:
    pem = certificate(tmp_path, NAME)
    with tls_server(pem) as port:
        with pytest.raises(CallFailed, match="Hostname mismatch"):
            await asked(f"https://other.example.com:{port}/", trusting=pem)
        with pytest.raises(CallFailed, match="could not be reached"):
            await asked(f"https://127.0.0.1:{port}/", trusting=pem)


async def test_f11_a_certificate_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    limits = Limits(max_bytes=100, allow_private=True, resolve=loopback)
    with tls_server(certificate(tmp_path, NAME)) as port:
        asked = HttpRequest(method="GET", url=httpx2.URL(f"https://{NAME}:{port}/"))
        with pytest.raises(CallFailed, match="certificate verify failed"):
            await exchange(asked, limits)


def test_a_request_shows_neither_its_headers_nor_its_body_nor_its_query() -> None:
    url = address_of("https://api.example.com/x?token=canary#part", at="url")
    request = HttpRequest(method="POST", url=url, headers=(("A", "canary"),), content=b"canary")

    assert request.called == "POST https://api.example.com/x"
    assert "canary" not in repr(request).replace("token=canary", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "ftp://a/",
        "http://",
        "http://u:p@a/",
        "http://a\\b/",
        "http://a/\n",
        "http://a:0/",
        "http://a:70000/",
    ],
)
def test_f11_what_is_no_address_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(BadStepValue, match=r"^api_call\.url is ") as caught:
        address_of(text, at="api_call.url")

    assert "u:p" not in str(caught.value)


def test_headers_are_checked_and_trimmed() -> None:
    assert checked_headers({"A": " b ", "C": ""}, at="headers") == (("A", "b"), ("C", ""))
    with pytest.raises(BadStepValue):
        checked_headers({"A": "b\nc"}, at="headers")
