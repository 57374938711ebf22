"""Names for classes: what is written, what is read back, what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from turnline.core.registry import Registry
from turnline.core.transitions import (
    AllOf,
    Always,
    Condition,
    FromSpeaker,
    Not,
    TransitionCondition,
    conditions,
    parts_of,
)
from turnline.errors import BadGraph, NameTaken, UnknownName


@dataclass(frozen=True)
class Thing:
    name: ClassVar[str] = "thing"
    value: Any = None
    computed: int = field(init=False, default=3)


THINGS: Registry[Thing] = Registry("thing of this test")
THINGS.register(Thing)


def written(value: object) -> object:
    return THINGS.to_dict(Thing(value))["args"]["value"]


def again(value: object) -> object:
    return THINGS.from_dict(THINGS.to_dict(Thing(value))).value


def test_a_thing_is_its_name_and_its_arguments() -> None:
    assert THINGS.to_dict(Thing(5)) == {"name": "thing", "args": {"value": 5}}


def test_a_thing_inside_another_is_tagged_at_any_depth() -> None:
    nested = AllOf(Not(FromSpeaker("alice")))

    inner = conditions.to_dict(nested)["args"]["conditions"][0]

    assert (inner["$"], inner["name"]) == ("condition", "not")
    assert inner["args"]["condition"] == {
        "$": "condition",
        "name": "from_speaker",
        "args": {"agent_id": "alice"},
    }


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, {"b": None}]},
        {"$": "condition", "name": "always", "args": {}},
        {"$": "data", "value": {}},
        {"$": {"$": {"$": 1}}},
        [{"$": "data"}, {"$": 5, "other": {"$": "x"}}],
        {"in": {"deep": [{"$": "condition", "name": "rm -rf", "args": {}}]}},
        {"$": "data", "value": {"$": "data", "value": Always()}},
    ],
)
def test_w1_user_data_that_looks_like_a_tagged_thing_survives(value: object) -> None:
    assert again(value) == value


def test_a_thing_inside_a_users_data_is_still_a_thing() -> None:
    assert again({"rules": [Always(), {"$": Not(Always())}]}) == {"rules": [Always(), {"$": Not(Always())}]}


@pytest.mark.parametrize("value", [object(), {1: "a"}, {1, 2}, float("nan"), float("inf"), b"bytes"])
def test_w1_what_would_not_read_back_equal_is_refused_and_named(value: object) -> None:
    with pytest.raises(BadGraph) as refused:
        written(value)

    assert refused.value.field == "Thing.value"


def test_an_unregistered_class_is_refused_and_told_what_to_do() -> None:
    @dataclass
    class Stranger:
        name: ClassVar[str] = "stranger"

        def evaluate(self, state: Any, envelope: Any) -> bool:
            return True

    with pytest.raises(UnknownName, match="register_condition") as unknown:
        conditions.to_dict(Stranger())

    assert "always" in unknown.value.known


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'always'") as unknown:
        conditions.from_dict({"name": "allways", "args": {}})

    assert "from_speaker" in unknown.value.known


def test_an_unknown_kind_of_thing_is_refused() -> None:
    with pytest.raises(UnknownName):
        THINGS.from_dict({"name": "thing", "args": {"value": {"$": "unheard of", "name": "x", "args": {}}}})


@pytest.mark.parametrize("data", [None, [], "always", {}, {"name": "always"}, {"name": 5, "args": {}}])
def test_data_of_another_shape_is_refused(data: object) -> None:
    with pytest.raises(BadGraph):
        conditions.from_dict(data)


@pytest.mark.parametrize("args", [{}, {"agent": "alice"}, {"agent_id": "alice", "more": 1}])
def test_arguments_that_are_not_its_fields_are_refused(args: dict[str, Any]) -> None:
    with pytest.raises(BadGraph, match="from_speaker"):
        conditions.from_dict({"name": "from_speaker", "args": args})


def test_a_name_is_taken_once() -> None:
    @dataclass(frozen=True)
    class Impostor(Thing):
        name: ClassVar[str] = "thing"

    with pytest.raises(NameTaken, match="Thing"):
        THINGS.register(Impostor)


@dataclass(frozen=True)
class Never(TransitionCondition):
    """A program's own class, with the name and the fields of a built-in one."""

    name: ClassVar[str] = "always"

    def evaluate(self, state: Any, envelope: Any) -> bool:
        return False


@dataclass(frozen=True)
class EvenLess(TransitionCondition):
    name: ClassVar[str] = "always"

    def evaluate(self, state: Any, envelope: Any) -> bool:
        return False


conditions.register(Never)


def test_a_class_that_replaces_a_built_in_one_is_written_and_read_as_itself() -> None:
    data = conditions.to_dict(Never())

    assert data == {"name": "always", "own": True, "args": {}}
    assert type(conditions.from_dict(data)) is Never


def test_a_name_alone_means_the_built_in_class_whatever_replaces_it() -> None:
    assert conditions.to_dict(Always()) == {"name": "always", "args": {}}
    assert type(conditions.from_dict({"name": "always", "args": {}})) is Always


def test_both_stand_in_one_graph_at_any_depth() -> None:
    mixed = Not(Never()) & (Always() | Never())

    again = conditions.from_dict(conditions.to_dict(mixed))

    assert again == mixed
    assert [type(part) for part in parts_of(again)] == [type(part) for part in parts_of(mixed)]


def test_a_built_in_name_is_replaced_by_one_class() -> None:
    with pytest.raises(NameTaken, match="Never"):
        conditions.register(EvenLess)


def test_registering_a_built_in_class_changes_nothing() -> None:
    conditions.register(FromSpeaker)

    assert conditions.to_dict(FromSpeaker("a")) == {"name": "from_speaker", "args": {"agent_id": "a"}}


def test_a_replacement_that_is_not_registered_here_is_named_with_what_to_do() -> None:
    with pytest.raises(UnknownName, match="in place of the built-in 'from_speaker'") as unknown:
        conditions.from_dict({"name": "from_speaker", "own": True, "args": {"agent_id": "a"}})

    assert str(unknown.value).endswith(
        "Call register_condition(...) with that class before the graph is used."
    )


@pytest.mark.parametrize("own", ["yes", None, 2, {}])
def test_own_is_true_or_absent(own: object) -> None:
    with pytest.raises(BadGraph, match="own"):
        conditions.from_dict({"name": "always", "own": own, "args": {}})


def test_the_same_class_defined_again_replaces_itself() -> None:
    """A notebook cell that is run twice defines its classes twice."""

    def cell() -> type[Thing]:
        @dataclass(frozen=True)
        class Again(Thing):
            name: ClassVar[str] = "again"

        return THINGS.register(Again)

    cell()
    latest = cell()

    assert type(THINGS.from_dict({"name": "again", "args": {}})) is latest


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_class_needs_a_name(name: object) -> None:
    nameless: type[Any] = dataclass(type("Nameless", (), {"name": name}))

    with pytest.raises(TypeError, match="ClassVar"):
        THINGS.register(nameless)


def test_a_class_has_to_be_a_dataclass() -> None:
    class Bare:
        name: ClassVar[str] = "bare"

        def evaluate(self, state: Any, envelope: Any) -> bool:
            return True

    bare: type[Condition] = Bare
    with pytest.raises(TypeError, match="dataclass"):
        conditions.register(bare)
