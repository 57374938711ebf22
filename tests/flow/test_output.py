"""What becomes of an answer: context updates, and a signal."""

from __future__ import annotations

from typing import Any

import pytest

from turnline.core.envelope import JsonObject
from turnline.errors import ParseFailed
from turnline.flow.definition.steps import Output
from turnline.flow.output import Written, parsed, read, written


def output(**spec: Any) -> Output:
    return Output.model_validate(spec)


def after(text: str, *, signals: tuple[str, ...] = (), **spec: Any) -> Written:
    """What an answer comes to for the step `ask`."""
    wanted = output(**spec)
    return written(wanted, read(wanted, text, step="ask"), step="ask", signals=signals)


@pytest.mark.parametrize(
    ("text", "spec", "updates"),
    [
        ("hello", {}, {"ask": "hello"}),
        ('{"a": 1}', {}, {"a": 1}),
        ('```json\n{"a": 1}\n```', {}, {"a": 1}),
        ("[1, 2]", {}, {"ask": "[1, 2]"}),
        ("5", {}, {"ask": "5"}),
        ("{not json", {}, {"ask": "{not json"}),
        ("", {}, {"ask": ""}),
        ("hello", {"key": "reply"}, {"reply": "hello"}),
        ('{"a": 1}', {"key": "reply"}, {"reply": {"a": 1}}),
        ('{"a": 1}', {"format": "text"}, {"ask": '{"a": 1}'}),
        ("[1, 2]", {"format": "json"}, {"ask": [1, 2]}),
        ("null", {"format": "json", "key": "x"}, {"x": None}),
        ('{"a": 1, "b": 2}', {"map": {"a": "x"}}, {"x": 1}),
        (
            '{"a": 1, "b": 2}',
            {"map": {"a": "x", "b": "y"}, "key": "all"},
            {"x": 1, "y": 2, "all": {"a": 1, "b": 2}},
        ),
        ('{"a": {"b": [{"c": 3}]}}', {"map": {"a.b.0.c": "x"}}, {"x": 3}),
        ('{"a.b": 1, "a": {"b": 2}}', {"map": {"a.b": "x"}}, {"x": 1}),
        ('[{"a": 1}]', {"map": {"0.a": "x"}}, {"x": 1}),
        ('{"a": null}', {"map": {"a": "x"}}, {"x": None}),
    ],
)
def test_where_an_answer_goes(text: str, spec: JsonObject, updates: JsonObject) -> None:
    assert after(text, **spec) == Written(updates=updates)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("hello", {"format": "json"}),
        ("", {"format": "json"}),
        ('{"a": NaN}', {"format": "json"}),
        ("[" * 10_000, {"format": "json"}),
        ("hello", {"map": {"a": "x"}}),
        ('{"b": 1}', {"map": {"a": "x"}}),
        ('{"a": {}}', {"map": {"a.b": "x"}}),
        ('{"a": [1]}', {"map": {"a.1": "x"}}),
        ('{"a": [1]}', {"map": {"a.-1": "x"}}),
        ("5", {"map": {"a": "x"}}),
        ("hello", {"format": "text", "map": {"a": "x"}}),
        ('{"a": 1}', {"signal_from": "b"}),
        ('{"a": {}}', {"signal_from": "a"}),
        ('{"a": " "}', {"signal_from": "a"}),
        ('{"a": "' + "x" * 300 + '"}', {"signal_from": "a"}),
        ('{"a": "x"}', {"schema": {"a": "integer"}}),
        ("[1]", {"schema": {"a": "integer"}}),
        ('{"a": "\\u0000"}', {}),
        ("x" * 2_000_000, {}),
        ("", {"format": "signal"}),
        ("a long answer " * 20, {"format": "signal"}),
    ],
)
def test_f5_an_answer_that_is_not_what_was_asked_for_does_not_parse(text: str, spec: JsonObject) -> None:
    with pytest.raises(ParseFailed) as caught:
        after(text, **spec)

    assert caught.value.step == "ask"
    assert len(str(caught.value)) < 500


def test_f1_reserved_keys_are_dropped_and_named_and_nested_ones_are_the_senders_own() -> None:
    kept = after('{"_db": 1, "a": {"_id": 2}, "_user_id": "root"}')

    assert kept == Written(updates={"a": {"_id": 2}}, dropped=["_db", "_user_id"])


def test_f1_what_goes_under_a_key_is_nested_and_what_a_map_names_goes_where_it_says() -> None:
    text = '{"_links": {"next": "/2"}, "_db": 1}'

    assert after(text, key="all") == Written(updates={"all": {"_links": {"next": "/2"}, "_db": 1}})
    assert after(text, map={"_links": "links"}) == Written(updates={"links": {"next": "/2"}}, dropped=["_db"])


def test_a_schema_gives_defaults_and_keeps_what_else_is_there() -> None:
    spec = {"a": {"type": "integer", "required": True}, "b": {"default": 7}}

    assert after('{"a": 1.0, "c": 3}', schema=spec).updates == {"a": 1, "b": 7, "c": 3}


def test_what_a_schema_has_against_an_answer_is_told() -> None:
    with pytest.raises(ParseFailed, match="a: expected an integer, found text"):
        after('{"a": "x"}', schema={"a": "integer"})


@pytest.mark.parametrize(
    ("value", "signal"), [('"high"', "high"), ('" high "', "high"), ("true", "true"), ("3", "3")]
)
def test_f4_a_key_of_the_answer_is_the_signal(value: str, signal: str) -> None:
    kept = after('{"verdict": {"is": ' + value + "}}", signal_from="verdict.is")

    assert kept.signal == signal
    assert kept.updates.keys() == {"verdict"}


@pytest.mark.parametrize("text", ["approve", "  Approve.\n", '"approve"', "`APPROVE`", "'approve'."])
def test_f4_a_text_is_the_signal_as_its_route_is_written(text: str) -> None:
    assert after(text, format="signal", signals=("approve", "Reject")) == Written(signal="approve")


def test_f4_a_signal_that_has_no_route_does_not_parse_and_the_routes_are_told() -> None:
    with pytest.raises(ParseFailed, match="expected one of approve, reject"):
        after("perhaps", format="signal", signals=("reject", "approve"))


def test_f4_where_any_signal_will_do_the_text_is_taken_as_it_is() -> None:
    assert after("Perhaps", format="signal") == Written(signal="Perhaps")


def test_f4_the_text_of_a_signal_can_be_kept() -> None:
    assert after("yes.", format="signal", key="said", signals=("yes",)) == Written(
        updates={"said": "yes."}, signal="yes"
    )


def test_what_is_parsed_is_json_whatever_it_is() -> None:
    assert parsed(" [1] ", step="ask") == [1]
    with pytest.raises(ParseFailed, match="the answer for step 'ask' is empty; expected JSON"):
        parsed(" ", step="ask")
