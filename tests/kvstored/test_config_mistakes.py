"""All mistakes of a configuration at once, each with its remedy."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from kvstored.config_mistakes import mistakes_of

PATH = Path("kvstored.toml")


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    speed_bytes: int = 0
    names: tuple[str | int, ...] = ()


class Named(BaseModel):
    name: str


class Rows(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rows: tuple[Table, ...] = ()
    named: tuple[Named, ...] = ()
    weights: dict[str, float] = {}


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table: Table
    rows: Rows = Rows()

    @model_validator(mode="after")
    def _possible(self) -> "Whole":
        if self.table.speed_bytes < 0:
            raise ValueError("it would run backwards")
        return self


def mistakes(document: dict[str, object], **environment: str) -> list[str]:
    with pytest.raises(ValidationError) as info:
        Whole.model_validate(document)
    return mistakes_of(info.value, Whole, PATH, environment)


def test_all_mistakes_are_named_at_once() -> None:
    found = mistakes({"table": {"speed": 1, "speed_bytes": "fast"}, "colour": 1})
    assert len(found) == 3
    assert any(one.startswith("kvstored.toml: table.speed_bytes: ") for one in found)
    assert any("the key table.speed is unknown" in one for one in found)
    assert any("the key colour is unknown" in one for one in found)


@pytest.mark.parametrize(
    ("document", "hint"),
    [
        ({"table": {"speed_byte": 1}}, "(did you mean speed_bytes?)"),
        ({"table": {}, "row": {}}, "(did you mean rows?)"),
        ({"table": {}, "rows": {"rows": [{"name": []}]}}, "(did you mean names?)"),
        ({"table": {"colour": 1}}, "correct its spelling"),
    ],
    ids=str,
)
def test_an_unknown_key_that_is_like_a_known_one(document: dict[str, object], hint: str) -> None:
    (found,) = mistakes(document)
    assert found.endswith(hint)


def test_a_value_of_several_kinds_is_one_mistake() -> None:
    (found,) = mistakes({"table": {"names": [1.5]}})
    assert found.startswith("kvstored.toml: table.names.0")


def test_a_value_in_a_table_of_any_keys() -> None:
    found = mistakes({"table": {}, "rows": {"weights": {"x": "much", "y": "more"}}})
    assert [one.split(":")[1] for one in found] == [" rows.weights.x", " rows.weights.y"]


def test_missing() -> None:
    assert mistakes({}) == [
        "kvstored.toml: the section [table] is missing; docs/install.md shows one"
    ]
    (found,) = mistakes({"table": {}, "rows": {"named": [{}]}})
    assert "the key rows.named.0.name is missing" in found


def test_what_does_not_fit_together() -> None:
    (found,) = mistakes({"table": {"speed_bytes": -1}})
    assert found == "kvstored.toml: it would run backwards; correct it there"


def test_the_variable_that_gave_the_value_is_named() -> None:
    found = mistakes(
        {"table": {"speed_bytes": "fast", "size": 1}},
        KVSTORED_TABLE__SPEED_BYTES="fast",
        KVSTORED_TABLE__SIZE="1",
    )
    assert found[0].startswith("KVSTORED_TABLE__SPEED_BYTES: table.speed_bytes: ")
    assert found[1] == "the environment variable KVSTORED_TABLE__SIZE names no known key; unset it"
