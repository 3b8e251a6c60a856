"""The page of simulations against the field maps, read here as plain YAML."""

import re
from pathlib import Path

import pytest
import simulations_page as script
import yaml

from rubix_like.readers.fields.field_map import QUANTITIES, FieldSettings, dataset_words, parse_field_map, unit_words
from rubix_like.readers.mapped_files import way_words

REPOSITORY = Path(__file__).resolve().parents[2]
MAPS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((REPOSITORY / "configs" / "simulations").glob("*.yaml"))
}


@pytest.fixture(scope="module")
def page():
    return script.simulations_page()


@pytest.fixture(scope="module")
def sections(page):
    """Name of a simulation -> the lines of its section."""
    parts = re.split(r"^## (\w+)\n", page, flags=re.M)
    return {name: text.splitlines() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_every_simulation_has_a_section_and_a_row_with_its_source(page, sections):
    stored = (REPOSITORY / "docs" / "simulations.md").read_text(encoding="utf-8")
    assert stored == page, "python docs/simulations_page.py > docs/simulations.md"
    assert list(sections) == list(MAPS)
    for name, content in MAPS.items():
        (row,) = re.findall(rf"^\| \[{name}\]\(#{name}\) .*$", page, re.M)
        assert content["title"] in row
        assert row.endswith(f"| {content['source']} |")
        for way in content.get("recognise", []):
            for place in [*way.get("has", []), *way.get("lacks", []), *way.get("matches", {})]:
                assert f"`{place}`" in row


def as_list(value):
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("name", MAPS)
def test_every_field_has_a_row_with_its_datasets_unit_and_powers(sections, name):
    lines = sections[name]
    for family in ("stars", "gas"):
        for quantity, field in MAPS[name].get(family, {}).get("fields", {}).items():
            rows = [line for line in lines if line.startswith(f"| {quantity} |") and family in line.split("|")[2]]
            names = as_list(field.get("dataset", field.get("stack")))
            (row,) = [row for row in rows if all(text in row for text in names) and "| else " not in row]
            unit = row.split("|")[4].split(" x ")
            times = f"{field['times']:g}" if "times" in field else ""
            assert unit[0].strip() == (f"{times} {field.get('unit', '')}".strip() or "1")
            powers = {text.strip()[0]: float(text.strip()[2:]) for text in unit[1:]}
            assert powers == {key: float(field[key]) for key in ("a", "h") if field.get(key)}
            assert row.split("|")[5].strip() == (QUANTITIES[quantity] or "1")
            assert field.get("note", "") in row


def test_the_table_of_gas(page):
    """`yes` where the field map names the quantity; smoothing lengths also from the cells' densities."""
    lines = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    found = {
        line[0].strip("|` "): dict(zip(script.GAS, (word.strip("| ") for word in line[1:]), strict=True))
        for line in lines
    }
    assert list(found) == list(MAPS)
    for name, words in found.items():
        fields = MAPS[name].get("gas", {}).get("fields", {})
        for quantity, word in words.items():
            from_cells = quantity == "smoothing_length" and "density" in fields
            assert word == ("yes" if quantity in fields else "from the cell" if from_cells else ""), (name, quantity)
    assert found["simba"] == dict.fromkeys(script.GAS, "yes")


def test_stars_and_gas_share_a_row_only_where_they_are_alike():
    fields = {"position": {"dataset": "X", "unit": "kpc"}, "mass": {"dataset": "M", "unit": "Msun", "h": -1}}
    other = fields | {"mass": {"dataset": "M", "unit": "Msun"}}
    content = {"title": "Toy", "source": "here"}
    families = {"stars": {"groups": "S", "fields": fields}, "gas": {"groups": "G", "fields": other}}
    assert script.field_rows(parse_field_map(content | families, "toy")) == [
        ("position", "stars, gas", "`X`", "kpc", "kpc", ""),
        ("mass", "stars", "`M`", "Msun x h^-1", "Msun", ""),
        ("mass", "gas", "`M`", "Msun", "Msun", ""),
    ]


@pytest.mark.parametrize(
    ("field", "datasets", "words"),
    [
        ({"dataset": "Masses"}, (), "Masses"),
        ({"dataset": ["A", "B"]}, (), "A or B"),
        ({"dataset": ["A", "B"]}, ("B",), "B"),
        ({"stack": ["x", "y", "z"]}, ("x", "y", "z"), "x, y, z"),
        ({"dataset": "Metals", "columns": 4}, (), "Metals[:, 4]"),
        ({"dataset": ["A", "B"], "columns": 4}, (), "A[:, 4] or B[:, 4]"),
        ({"dataset": "Metals", "columns": [1, 2, 3], "divide_by": "Mass"}, (), "sum(Metals[:, 1:4]) / Mass"),
        ({"dataset": "Metals", "columns": [0, 2], "one_minus": True}, (), "1 - sum(Metals[:, [0, 2]])"),
        ({"dataset": "Dust", "columns": 0, "fraction_of": "mass"}, (), "Dust[:, 0] x mass"),
    ],
)
def test_datasets_in_words(field, datasets, words):
    assert dataset_words(FieldSettings.model_validate(field), datasets) == words


def test_units_in_words():
    assert unit_words("Mpc", 1.0, -1.0) == "Mpc x a^1 x h^-1"
    assert unit_words("km / s", 0.5, 0.0) == "km / s x a^0.5"
    assert unit_words("", 0.0, 0.0) == "1"
    assert unit_words("", -2.0, 0.0) == "1 x a^-2"


def test_conditions_in_words():
    section = {"has": ["P/X", "H@a"], "lacks": ["Q"], "matches": {"H@b": "tng|cv"}}
    families = {"groups": "S", "fields": {}}
    (way,) = parse_field_map({"title": "T", "source": "s", "stars": families, "recognise": [section]}, "toy").recognise
    assert way_words(way) == ("has P/X", "has H@a", "has no Q", "has H@b that matches tng|cv")
    assert way_words(way, "`")[-1] == "has `H@b` that matches `tng|cv`"
