"""How hard hypothesis tries: a little in every run, a lot in `./run soak`. And which log a test runs on."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from .logs import KINDS, MARK, is_for_all, kinds_for, log_place, open_log
from .nats_servers import nats_cluster, nats_server
from .postgres import postgres

__all__ = ["log_place", "nats_cluster", "nats_server", "open_log", "postgres"]

settings.register_profile("every run", max_examples=40, deadline=None)
settings.register_profile("soak", max_examples=5_000, deadline=None)
settings.load_profile("soak" if os.environ.get("TURNLINE_SOAK") else "every run")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--log", choices=KINDS, help="only what runs on every log, and on this one only")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: runs once on each log; see tests/logs.py")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if kinds := kinds_for(metafunc, metafunc.config.getoption("--log")):
        metafunc.parametrize("log_place", kinds, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--log") is not None:
        config.hook.pytest_deselected(items=[one for one in items if not is_for_all(one)])
        items[:] = [one for one in items if is_for_all(one)]
