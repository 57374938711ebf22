"""X11: hubs, agents, flows and links on one log, in one event loop that a seed decides about.

A failing seed replays:

TURNLINE_SEED=1234 pytest tests/faults/test_simulation.py -k every_seed
python -m tests.faults.simulation 1234
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.counts import SEEDS, SEEDS_OF_A_TWIN, SEEDS_TWICE
from tests.faults.simulation.twins import (
    CarelessReach,
    DeafLink,
    ForgetfulLink,
    HastyReach,
    forget_parents,
    keep_offers,
    leave_questions_below,
    lose_resumes,
    run_suspects_beside_others,
)
from tests.faults.simulation.world import World
from turnline.core import claims

ROOT = Path(__file__).parents[2]
CHOSEN = os.environ.get("TURNLINE_SEED")


def test_x11_every_seed_comes_to_its_right_end() -> None:
    for seed in range(SEEDS) if CHOSEN is None else (int(CHOSEN),):
        problems = World(seed).run()
        if problems:
            again = f"python -m tests.faults.simulation {seed}"
            pytest.fail("\n".join((f"seed {seed} (`{again}` replays it):", *problems)), pytrace=False)


def test_x11_the_same_seed_gives_the_same_log_byte_for_byte() -> None:
    """Also in processes that hash differently: nothing rests on the order of a set."""
    seeds = [str(seed) for seed in range(SEEDS_TWICE)]
    first, again = (digests(seeds, hash_seed) for hash_seed in ("1", "2"))

    assert first == again
    assert len(set(first)) == SEEDS_TWICE


def digests(seeds: list[str], hash_seed: str) -> list[str]:
    command = [sys.executable, "-m", "tests.faults.simulation", "--digest", *seeds]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(lambda seed: World(seed, reach=CarelessReach), id="no compare-and-append"),
        pytest.param(lambda seed: World(seed, reach=HastyReach), id="told before it is written"),
        pytest.param(lambda seed: World(seed, link=DeafLink), id="a turn that is taken is worked on"),
        pytest.param(lambda seed: World(seed, link=ForgetfulLink), id="what was recorded is done again"),
    ],
)
def test_x11_a_twin_is_found_out(world: Callable[[int], World]) -> None:
    assert any(world(seed).run() for seed in range(SEEDS_OF_A_TWIN))


@pytest.mark.parametrize(
    "take_guard_out",
    [
        pytest.param(lose_resumes, id="n1: a resume is lost"),
        pytest.param(forget_parents, id="n1: a child that closes resumes nobody"),
        pytest.param(leave_questions_below, id="n2: a question does not go up"),
        pytest.param(run_suspects_beside_others, id="n3: claims of innocent turns count"),
        pytest.param(keep_offers, id="n6: an offer is not withdrawn"),
    ],
)
def test_x11_a_twin_of_the_engine_is_found_out(
    monkeypatch: pytest.MonkeyPatch, take_guard_out: Callable[[pytest.MonkeyPatch], None]
) -> None:
    take_guard_out(monkeypatch)

    assert any(World(seed).run() for seed in range(SEEDS_OF_A_TWIN))


def test_x11_the_twin_that_takes_any_packet_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "check_claim", lambda state, draft: None)

    assert any(World(seed).run() for seed in range(SEEDS_OF_A_TWIN))
