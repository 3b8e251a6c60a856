"""Quantities with units, numbers and integers as settings."""

import re
from typing import Annotated

import numpy as np
import pytest
from astropy import units
from pydantic import Field, ValidationError

from rubix_like.config.quantities import WITH_UNITS
from rubix_like.extend import (
    AbstractSettings,
    Angstrom,
    Arcsec,
    Degree,
    Dex,
    Gyr,
    Integer,
    Kms,
    Kpc,
    Mpc,
    Msun,
    Number,
    parse_integer,
    parse_number,
    parse_quantity,
)


class Sample(AbstractSettings):
    angle: Annotated[Arcsec, Field(gt=0)] = 1.0
    pair: tuple[Arcsec, Arcsec] = (0.0, 0.0)
    rotation: Degree = 0.0
    wavelength: Angstrom = 5000.0
    velocity: Kms = 0.0
    radius: Kpc = 1.0
    distance: Mpc | None = None
    mass: Msun = 1.0
    age: Gyr = 1.0
    step: Dex = 0.1
    count: Annotated[Integer, Field(ge=1)] = 1
    value: Number = 1.0


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("0.8 arcsec", "arcsec", 0.8),
        ("0.8arcsec", "arcsec", 0.8),
        ("  2 arcmin ", "arcsec", 120.0),
        ("1e-3 deg", "arcsec", 3.6),
        (0.8, "arcsec", 0.8),
        (5, "arcsec", 5.0),
        ("1e5", "arcsec", 1e5),
        ("-.5 rad", "deg", -0.5 * 180 / np.pi),
        ("500 nm", "Angstrom", 5000.0),
        ("1 m/s", "km/s", 1e-3),
        ("1e-4 dex", "dex", 1e-4),
        ("3 kg", "Msun", 3 / 1.988409870698051e30),
        (np.float32(2.5), "kpc", 2.5),
        (10 * units.kpc, "Mpc", 0.01),
    ],
)
def test_a_quantity_is_converted_to_the_stated_unit(text, unit, expected):
    assert parse_quantity(text, unit) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "bad", ["0.8 kg", "0.8 arcsecs", "arcsec", "x", "", "1 10 arcsec", True, None, [1], {}, [1, 2] * units.arcsec]
)
def test_what_is_no_angle_is_refused_with_the_unit_and_an_example(bad):
    with pytest.raises(ValueError, match=r"expected a quantity in arcsec \(e.g. '0.8 arcsec'\), got"):
        parse_quantity(bad, "arcsec")


def test_the_example_of_a_unit_with_a_number_can_be_read():
    unit = "1e-20 erg / (s cm2)"
    with pytest.raises(ValueError, match=re.escape(f"(e.g. '{unit}')")):
        parse_quantity("2 erg / s", unit)
    assert parse_quantity(unit, unit) == pytest.approx(1)


@pytest.mark.parametrize("bad", ["nan", "inf arcsec", float("inf"), "1e999 arcsec"])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="expected a"):
        parse_quantity(bad, "arcsec")


def test_integers_come_from_numeric_text_and_whole_floats_but_not_from_booleans():
    assert [parse_integer(value) for value in (3, "3", "5e4", 2.0, "010", np.int64(7))] == [3, 3, 50000, 2, 10, 7]
    assert parse_integer("9007199254740993") == 9007199254740993
    for bad in (True, 1.5, "1.5", "x", None, "1e999"):
        with pytest.raises(ValueError, match="expected a whole number"):
            parse_integer(bad)


def test_numbers_come_from_numeric_text_but_not_from_booleans():
    assert [parse_number(value) for value in (1, 0.5, "1e5", "-2")] == [1.0, 0.5, 1e5, -2.0]
    for bad in (False, "x", None, "nan", "1 km"):
        with pytest.raises(ValueError, match="expected a finite number"):
            parse_number(bad)


def test_every_named_unit_reads_its_own_text():
    sample = Sample(
        angle="1 arcmin", pair=["1 deg", 2], rotation="1 rad", wavelength="1 um", velocity="2 km/s", radius="1 pc",
        distance="1 Gpc", mass="1e10 Msun", age="13 Gyr", step="0.2 dex", count="5e4", value="3",
    )  # fmt: skip
    assert (sample.angle, sample.pair, sample.velocity) == (60.0, (3600.0, 2.0), 2.0)
    assert (sample.radius, sample.distance, sample.mass, sample.age) == (1e-3, 1e3, 1e10, 13.0)
    assert (sample.step, sample.count, sample.value) == (0.2, 50000, 3.0)
    assert sample.wavelength == pytest.approx(1e4)
    assert sample.rotation == pytest.approx(np.degrees(1.0))


def test_limits_apply_after_the_conversion():
    with pytest.raises(ValidationError, match="greater than 0"):
        Sample(angle="-1 arcsec")
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Sample(count="0")


def test_a_dump_with_units_reads_back_equal_and_a_plain_dump_holds_numbers():
    sample = Sample(angle=1 / 3, pair=(0.1, 0.2), distance=1e-7)
    dump = sample.model_dump(mode="json", context={WITH_UNITS: True})
    assert dump["angle"] == f"{1 / 3!r} arcsec"
    assert dump["distance"] == "1e-07 Mpc"
    assert Sample.model_validate(dump) == sample
    assert sample.model_dump()["angle"] == 1 / 3


def test_the_schema_allows_numbers_and_text():
    properties = Sample.model_json_schema()["properties"]
    assert [entry["type"] for entry in properties["angle"]["anyOf"]] == ["number", "string"]
    assert [entry["type"] for entry in properties["count"]["anyOf"]] == ["integer", "string"]
