"""What a data model's document may say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from turnline.flow.data.definition import ModelDefinition, columns_of, read_model

from .stage import COMPANY, LEAD, model


def test_f12_a_field_may_be_a_type_alone_or_spelled_out() -> None:
    short = model("Lead", {"email": "string"})
    long = model("Lead", {"email": {"type": "string"}})

    assert short == long
    assert short.fields["email"].is_nullable


def test_f12_a_model_has_an_id_and_two_times_of_its_own() -> None:
    assert list(model("Lead").fields) == ["id", "created_at", "updated_at"]
    assert list(model("Lead", timestamps=False).fields) == ["id"]


def test_f12_what_every_model_has_can_be_declared_otherwise() -> None:
    lead = model("Lead", {"id": {"type": "integer"}, "created_at": "date"})

    assert lead.fields["id"].type == "integer"
    assert not lead.fields["id"].is_nullable
    assert lead.fields["created_at"].type == "date"


@pytest.mark.parametrize(
    ("name", "table"),
    [("Lead", "lead"), ("SalesLead", "sales_lead"), ("HTTPCall", "http_call"), ("lead_item", "lead_item")],
)
def test_the_table_is_called_after_the_model(name: str, table: str) -> None:
    assert model(name).table == table


def test_the_table_can_be_named() -> None:
    assert model("Lead", table="customers").table == "customers"


def test_a_relation_is_kept_in_a_column_of_the_other_id_s_type() -> None:
    models = {one.name: one for one in (LEAD, COMPANY)}
    numbered = model("Company", {"id": "integer"})

    assert columns_of(LEAD, models)["company_id"].type == "uuid"
    assert columns_of(LEAD, models | {"Company": numbered})["company_id"].type == "integer"
    assert "leads_id" not in columns_of(COMPANY, models)


def test_a_version_may_be_written_as_a_number() -> None:
    assert read_model({"metadata": {"name": "Lead", "version": 2}}).version == "2"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"fields": {"a": "strng"}}, "'string', 'text'"),
        ({"fields": {"a": {"type": "string", "requird": True}}}, "requird"),
        ({"fields": {"_a": "string"}}, "pattern"),
        ({"fields": {"a-b": "string"}}, "pattern"),
        ({"fields": {"email": "string", "Email": "string"}}, "two fields or relations"),
        ({"fields": {"awaitable_attrs": "string"}}, "choose another name"),
        ({"fields": {"id": "json"}}, "an id is"),
        ({"fields": {"company_id": "uuid"}, "relations": {"company": {"model": "C"}}}, "'company_id'"),
        ({"fields": {"company": "uuid"}, "relations": {"company": {"model": "C"}}}, "'company'"),
        ({"fields": {"a": {"type": "integer", "default": "one"}}}, "a whole number"),
        ({"fields": {"a": {"type": "string", "enum": ["x"], "default": "y"}}}, "one of 'x'"),
        ({"fields": {"a": {"type": "json", "unique": True}}}, "neither unique"),
        ({"fields": {"a": {"type": "integer", "max_length": 3}}}, "max_length"),
        ({"fields": {"a": {"type": "integer", "scale": 3}}}, "scale"),
        ({"relations": {"c": {"model": "C", "kind": "many_to_many"}}}, "many_to_one"),
        ({"relations": {"c": {"model": "C", "via": "x"}}}, "one_to_many"),
        ({"relations": {"c": {"model": "C", "kind": "one_to_many", "required": True}}}, "leads back"),
        ({"relations": {"c": {"model": "C", "required": True, "on_delete": "set_null"}}}, "set to null"),
        ({"table": "Leads; DROP TABLE records"}, "pattern"),
        ({"field": {}}, "field"),
    ],
)
def test_what_is_no_model_is_refused_and_the_place_is_named(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        read_model({"metadata": {"name": "Lead"}, "spec": spec})


def test_the_editor_s_schema_knows_both_ways_to_write_a_field() -> None:
    schema = ModelDefinition.model_json_schema()

    assert "ModelSpec" in schema["$defs"]
    assert {"type": "string"}.items() <= schema["$defs"]["DataField"]["properties"]["description"].items()
