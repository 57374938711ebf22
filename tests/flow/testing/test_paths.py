from __future__ import annotations

import pytest

from turnline.flow.definition.flow import read
from turnline.flow.testing.paths import known_paths, step_at

MAIN = read(
    {
        "steps": [
            {
                "id": "each_one",
                "for_each": {
                    "items": "xs",
                    "steps": [
                        {"id": "both", "parallel": {"branches": {"left": [{"id": "deep", "runner": "x"}]}}}
                    ],
                },
            },
            {"id": "sub", "workflow": {"name": "other"}},
        ]
    },
    name="main",
)
OTHER = read(
    {"steps": [{"id": "again", "workflow": {"name": "main"}}, {"id": "end", "runner": "x"}]}, name="other"
)
FLOWS = {"main": MAIN, "other": OTHER}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("each_one", "for_each"),
        ("each_one/each/both", "parallel"),
        ("each_one/12/both/left/deep", "functional"),
        ("sub/other/end", "functional"),
        ("sub/other/again/main/sub", "workflow"),
    ],
)
def test_a_path_leads_to_a_step(path: str, kind: str) -> None:
    step = step_at(path, MAIN, FLOWS)

    assert step is not None
    assert (step.id, step.kind) == (path.rpartition("/")[2], kind)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "deep",
        "each_one/both",
        "each_one/all/both",
        "each_one/each/both/0/deep",
        "sub/main/sub",
        "sub/other",
    ],
)
def test_a_path_that_leads_nowhere_is_none(path: str) -> None:
    assert step_at(path, MAIN, FLOWS) is None


def test_a_flow_that_starts_itself_has_its_paths_once() -> None:
    assert known_paths(MAIN, FLOWS) == [
        "each_one",
        "each_one/each/both",
        "each_one/each/both/left/deep",
        "sub",
        "sub/other/again",
        "sub/other/end",
    ]
