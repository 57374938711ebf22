"""A process that is none: a place in the loop, with workers in it, on a host."""

from __future__ import annotations

from tests.faults.simulation.loop import Place


class Host:
    """Where processes run. Whoever runs there sees which of them have ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.running: set[str] = set()


class SimulatedProcess:
    """See `turnline.hub.worker.Process`. Named `host:number:start`, as real ones are."""

    def __init__(self, host: Host, number: int, start: int) -> None:
        self.name = f"{host.name}:{number}:{start}"
        self.place = Place(self.name)
        self._host = host
        self._workers: set[str] = set()
        host.running.add(self.name)

    def end(self) -> None:
        """As after a SIGKILL: nothing that belongs to it is called any more."""
        self.place.end()
        self._host.running.discard(self.name)

    def join(self, place: str) -> str:
        worker = f"{self.name}/{place}"
        self._workers.add(worker)
        return worker

    def leave(self, worker: str) -> None:
        self._workers.discard(worker)

    def is_here(self, worker: str) -> bool:
        return worker in self._workers

    def is_near(self, worker: str) -> bool:
        return worker.partition(":")[0] == self._host.name and worker not in self._workers

    def is_gone(self, worker: str) -> bool:
        process = worker.partition("/")[0]
        if process == self.name:
            return worker not in self._workers
        return self.is_near(worker) and process not in self._host.running
