"""Descriptions of settings: the docstrings below them, as pydantic itself takes them when a class is made."""

from pydantic import BaseModel, ConfigDict, Field

from rubix_like.config.settings import described_settings
from rubix_like.extend import AbstractSettings


class Outer:
    class Described(BaseModel):
        """A section."""

        model_config = ConfigDict(use_attribute_docstrings=True)

        first: float = 1.0
        """One line, with "quotes" and `marks`."""
        second: int | None = None
        without: str = ""
        third: tuple[int, ...] = ()
        """Several lines,
        of which the second is indented.
        """
        own: float = Field(2.0, description="its own words")
        """Not these."""


class Inner(AbstractSettings):
    """A section."""

    first: float = 1.0
    """One line, with "quotes" and `marks`."""
    second: int | None = None
    without: str = ""
    third: tuple[int, ...] = ()
    """Several lines,
    of which the second is indented.
    """
    own: float = Field(2.0, description="its own words")
    """Not these."""


class Below(Inner):
    """A section with one setting more."""

    more: Inner | None = None
    """What is inside."""


def properties(model):
    return {name: own.get("description") for name, own in model.model_json_schema()["properties"].items()}


def test_descriptions_are_those_of_pydantic():
    expected = {name: field.description for name, field in Outer.Described.model_fields.items()}
    assert expected["third"] == "Several lines,\nof which the second is indented."
    assert {name: field.description for name, field in described_settings(Inner).items()} == expected
    assert properties(Inner) == properties(Outer.Described)


def test_sections_have_those_that_they_inherit():
    assert properties(Below) == properties(Inner) | {"more": "What is inside."}
    inside = Below.model_json_schema()["$defs"]["Inner"]["properties"]
    assert inside["first"]["description"] == described_settings(Inner)["first"].description


def test_a_section_without_source_has_no_descriptions():
    space = {"AbstractSettings": AbstractSettings, "__name__": "nowhere"}
    exec('class Typed(AbstractSettings):\n    one: float = 1.0\n    """Lost."""\n', space)
    assert described_settings(space["Typed"])["one"].description is None
    assert properties(space["Typed"]) == {"one": None}


def test_classes_inside_of_others_are_found():
    assert described_settings(Outer.Described)["first"].description == described_settings(Inner)["first"].description
    assert {field.description for field in Below.model_fields.values()} == {None, "its own words"}
