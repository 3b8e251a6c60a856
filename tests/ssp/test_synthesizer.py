"""Grids of Synthesizer as an SSP library."""

import numpy as np
import pytest
from astropy import constants, units
from ssp_files import light
from ssp_files.cached import cached_library
from ssp_files.synthesizer import NAME, datasets, write_old_sample, write_sample

from rubix_like.extend import import_library, read_table
from rubix_like.importers.synthesizer import read_synthesizer


def per_angstrom():
    """The sample's spectra in Lsun/Angstrom, (metal, age, rest), by astropy's units."""
    wavelength, per_hertz = datasets()["spectra/wavelength"][0], datasets()["spectra/incident"][0]
    density = per_hertz * units.erg / units.s / units.Hz * constants.c / (wavelength * units.AA) ** 2
    return density.to_value(constants.L_sun / units.AA).transpose(1, 0, 2)


def test_spectra_per_hertz_become_spectra_per_angstrom(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    path = import_library(write_sample(tmp_path))
    assert path == cached_library("bpass-2.2.1-bin_chabrier03-0.1-300.0")
    table = read_table(path)
    np.testing.assert_allclose(table.spectra, per_angstrom(), rtol=1e-6)
    np.testing.assert_allclose(table.log_age, np.log10(light.AGES))
    np.testing.assert_allclose(table.metallicity, light.METALLICITIES)
    np.testing.assert_allclose(table.surviving_fraction, light.surviving(), rtol=1e-6)
    assert (table.medium, table.imf) == ("vacuum", "chabrier03, 0.1-300 Msun")
    assert "bpass 2.2.1 bin" in table.source
    assert "vacuum measured (the Balmer lines stand" in table.source
    assert "Stanway & Eldridge 2018" in table.citation


def test_old_names_and_logarithmic_ages(tmp_path):
    old, new = read_synthesizer(write_old_sample(tmp_path)), read_synthesizer(write_sample(tmp_path))
    np.testing.assert_allclose(old.spectra, new.spectra)
    np.testing.assert_allclose(old.log_age, new.log_age)
    np.testing.assert_allclose(old.metallicity, new.metallicity)
    assert old.surviving_fraction is None
    assert old.imf == "not stated in the file"


def test_units_are_those_of_the_file(tmp_path):
    wavelength, spectra, ages = (datasets()[key][0] for key in ("spectra/wavelength", "spectra/incident", "axes/ages"))
    path = write_sample(
        tmp_path,
        spectra__wavelength=(wavelength / 1e4, "um"),
        spectra__incident=(spectra * 1e-7, "W/Hz"),
        axes__ages=(ages / 1e9, "Gyr"),
    )
    np.testing.assert_allclose(read_synthesizer(path).spectra, per_angstrom(), rtol=1e-12)
    np.testing.assert_allclose(read_synthesizer(path).log_age, np.log10(light.AGES))


def test_an_age_that_stands_twice_is_taken_once(tmp_path):
    """BC03's age 0 is set to its first age."""
    ages, spectra = light.AGES.copy(), datasets()["spectra/incident"][0].copy()
    ages[0] = ages[1]
    table = read_synthesizer(write_sample(tmp_path, axes__ages=(ages, "yr"), spectra__incident=(spectra, "erg/s/Hz")))
    np.testing.assert_allclose(table.log_age, np.log10(light.AGES[1:]))
    np.testing.assert_allclose(table.spectra, per_angstrom()[:, 1:])
    assert table.surviving_fraction.shape == (3, 4)


def test_lines_that_tell_nothing_leave_the_medium_assumed(tmp_path):
    wavelength, spectra = datasets()["spectra/wavelength"][0][::8], datasets()["spectra/incident"][0][..., ::8]
    path = write_sample(
        tmp_path,
        spectra__wavelength=(wavelength, "angstrom"),
        spectra__incident=(spectra, "erg/s/Hz"),
        name="coarse.h5",
    )
    table = read_synthesizer(path)
    assert table.medium == "vacuum"
    assert "vacuum assumed" in table.source


VALUES = datasets()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spectra__incident": (VALUES["spectra/incident"][0], "Lsun/angstrom")}, "spectra/incident: Units: expected"),
        (
            {"spectra__incident": (VALUES["spectra/incident"][0], "bananas")},
            "Units: expected a unit like .* got 'bananas'",
        ),
        ({"spectra__incident": (VALUES["spectra/incident"][0] * 1e5, "erg/s/Hz")}, "spectra are in another unit"),
        (
            {"spectra__incident": (VALUES["spectra/incident"][0][:2], "erg/s/Hz")},
            r"expected shape \(5, 3, .*got \(2, 3",
        ),
        (
            {"spectra__incident": (np.nan * VALUES["spectra/incident"][0], "erg/s/Hz")},
            "spectra are in another unit|finite",
        ),
        (
            {"spectra__wavelength": (VALUES["spectra/wavelength"][0] * 1.002, "angstrom")},
            "expected the Balmer lines within 40 km/s .* redshifted",
        ),
        ({"spectra__incident": None}, "spectra: expected 'incident', the stars' own light, got wavelength"),
        ({"spectra__wavelength": None}, "damaged or incomplete"),
        ({"axes__ages": None}, "damaged or incomplete"),
        ({"axes__ages": (light.AGES - 1e8, "yr")}, "expected ages beyond 0, got 0 yr"),
        ({"axes__ages": (np.log10(light.AGES), "dimensionless")}, "axes/ages: Units: expected a unit like 'yr'"),
        ({"axes__metallicities": (np.log10(light.METALLICITIES), "dimensionless")}, "metal fractions of 0-0.2"),
        ({"axes": ("ages", "metallicities", "alphas")}, "axes: expected an age .*got ages, metallicities, alphas"),
        ({"axes": ("masses", "spins")}, "got masses, spins; reduce the grid"),
        ({"attributes": {"WeightVariable": "bolometric_luminosities"}}, "WeightVariable: expected initial_masses"),
        ({"star_fraction": (np.ones((2, 2)), "dimensionless")}, r"expected the shape \(5, 3\), got \(2, 2\)"),
        ({"star_fraction": (np.full((5, 3), 2.0), "dimensionless")}, "expected 0 to 1, got 2.1-2.1"),
    ],
)
def test_a_grid_that_cannot_be_used_is_named(tmp_path, changes, message):
    path = write_sample(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        read_synthesizer(path)


def test_a_file_cut_short(tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    path = write_sample(tmp_path)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(ValueError, match=NAME.replace(".", "[.]")):
        import_library(path)
    assert not (tmp_path / "cache").exists()
