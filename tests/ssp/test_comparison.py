"""Two SSP libraries compared: photometry, bins, table, sentences, picture."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import main
from speclite.filters import load_filter
from ssp_files import light

from rubix_like import SSPLibrary, load_ssp
from rubix_like.extend import read_table, write_table
from rubix_like.plots.ssp_figure import save_comparison
from rubix_like.ssp.comparison import (
    B_BAND,
    V_BAND,
    common_bins,
    comparison_lines,
    magnitudes,
    mass_to_light,
    solar_population,
    spectrum_bin_means,
)


@pytest.fixture(scope="module")
def popstar():
    return load_ssp("popstar")


def small(wavelength, spectra, **fields):
    axes = {"log_age": np.array([7.0, 9.0]), "metallicity": np.array([0.004, 0.02]), "rest_wavelength": wavelength}
    spectra = np.broadcast_to(spectra, (2, 2, len(wavelength)))
    return SSPLibrary(spectra=spectra, fwhm=np.full_like(wavelength, 5.0), **axes, **{"name": "small", **fields})


@pytest.mark.parametrize(("band", "name"), [(B_BAND, "bessell-B"), (V_BAND, "bessell-V")])
def test_responses_are_those_of_bessell(band, name):
    curve = load_filter(name)
    np.testing.assert_allclose(band.nodes, curve.wavelength)
    np.testing.assert_allclose(band.response, curve.response)


def test_magnitudes_of_the_sun_as_a_black_body():
    """Black body of 5772 K and 1 Lsun: by quadrature; B and V of the Sun are 5.44 and 4.81 (Willmer 2018)."""
    wavelength = np.linspace(100.0, 3e5, 300000)
    shape = wavelength**-5 / np.expm1(1.438777e8 / (wavelength * 5772.0))
    library = small(wavelength, shape / np.trapezoid(shape, wavelength))
    for band, expected in ((B_BAND, 5.44), (V_BAND, 4.81)):
        grid = np.arange(band.nodes[0], band.nodes[-1], 0.1)
        response = np.interp(grid, band.nodes, band.response)
        flux = np.interp(grid, wavelength, library.spectra[0, 0]) * 3.828e33 / (4 * np.pi * (3.0856776e19) ** 2)
        by_hand = -2.5 * np.log10(np.sum(flux * response) / np.sum(response) / band.zero_flux)
        found = magnitudes(library, band)
        np.testing.assert_allclose(found, by_hand, atol=2e-4)
        np.testing.assert_allclose(found, expected, atol=0.1)
    np.testing.assert_allclose(mass_to_light(library), 10 ** (0.4 * (magnitudes(library, V_BAND) - 4.81)))


def test_colours_agree_with_speclite(popstar):
    """B - V of PopStar at 1 Gyr by photon counts in the AB system, -0.120 mag from Vega's."""
    wavelength = np.arange(3500.0, 7200.0, 1.0)
    index = np.argmin(np.abs(popstar.log_age - 9.0))
    spectrum = np.interp(wavelength, popstar.rest_wavelength, popstar.spectra[4, index])
    ab = {}
    for name in "BV":
        curve = load_filter(f"bessell-{name}")
        response = np.interp(wavelength, curve.wavelength, curve.response)
        ab[name] = -2.5 * np.log10(np.sum(spectrum * response * wavelength) / np.sum(response / wavelength))
    population = solar_population(popstar)
    assert population.metallicity == 0.02
    assert population.at_age(population.b_minus_v, 9.0) == pytest.approx(ab["B"] - ab["V"] + 0.120, abs=0.03)


def test_a_band_that_is_not_covered_has_no_magnitude():
    wavelength = np.arange(4000.0, 8000.0, 10.0)
    library = small(wavelength, 1e-4)
    assert np.isnan(magnitudes(library, B_BAND)).all()
    assert np.isfinite(magnitudes(library, V_BAND)).all()
    assert "-" in "".join(comparison_lines(solar_population(library), solar_population(library))[3:7])


def test_bin_means_keep_the_energy(popstar):
    wavelength, spectrum = popstar.rest_wavelength, popstar.spectra[4, 60]
    edges = np.linspace(4000.5, 9000.5, 37)
    dense = np.linspace(4000.5, 9000.5, 36 * 5000 + 1)
    values = np.interp(dense, wavelength, spectrum)
    expected = [np.trapezoid(values[k * 5000 : (k + 1) * 5000 + 1], dx=1.0 / 5000) for k in range(36)]
    np.testing.assert_allclose(spectrum_bin_means(wavelength, spectrum, edges), expected, rtol=1e-6)


def test_bins_are_as_wide_as_the_coarser_library(popstar):
    wavelength = np.arange(4000.0, 8000.0, 1.0)
    library = small(wavelength, 1e-4)
    edges = common_bins(library, popstar)
    assert edges[0] == 4000.0
    assert edges[-1] <= 7999.0
    np.testing.assert_allclose(np.diff(edges)[edges[1:] < 5900.0], 20.0, rtol=0.05)
    far = small(np.arange(2e6, 3e6, 1e4), 1e-4)
    with pytest.raises(ValueError, match="expected libraries with wavelengths in common, got 4000-7999 A"):
        common_bins(library, far)


def test_numbers_between_the_ages(popstar):
    population = solar_population(popstar)
    low = np.searchsorted(popstar.log_age, 8.63) - 1
    part = (8.63 - popstar.log_age[low]) / (popstar.log_age[low + 1] - popstar.log_age[low])
    expected = (1 - part) * popstar.spectra[4, low] + part * popstar.spectra[4, low + 1]
    np.testing.assert_allclose(population.spectrum(8.63), expected, rtol=1e-12)
    np.testing.assert_array_equal(population.spectrum(popstar.log_age[-1]), popstar.spectra[4, -1])
    assert np.isnan(population.spectrum(4.0)).all()
    assert np.isnan(population.at_age(population.v_magnitude, 11.0))


@pytest.fixture
def twice_as_bright(tmp_path):
    """PopStar with twice the light, in air."""
    table = read_table(Path(__file__).resolve().parents[2] / "data" / "popstar.h5")
    changed = dataclasses.replace(table, name="twice", medium="air", spectra=2 * table.spectra, imf="top-heavy")
    write_table(changed, tmp_path / "twice.h5", compression=0)
    return tmp_path / "twice.h5"


def test_the_command_tells_and_draws(twice_as_bright, tmp_path, capsys):
    assert main(["ssp", "compare", "popstar", str(twice_as_bright)]) == 0
    text = capsys.readouterr().out
    assert "(here both are in vacuum): popstar vacuum, twice air" in text
    assert "popstar Chabrier 2003, 0.15-100 Msun, twice top-heavy" in text
    assert "solar metallicity: both 0.02" in text
    assert "+100 % at 10 Myr, +100 % at 100 Myr, +100 % at 1 Gyr, +100 % at 10 Gyr" in text
    row = next(line for line in text.splitlines() if line.startswith("10 Gyr"))
    v_one, colour_one, ratio_one, v_two, colour_two, ratio_two = (float(word) for word in row.split()[2:])
    assert v_one - v_two == pytest.approx(2.5 * np.log10(2.0), abs=0.011)
    assert colour_one == pytest.approx(colour_two, abs=0.002)
    assert ratio_one == pytest.approx(2 * ratio_two, rel=0.002)
    picture = tmp_path / "ssp_popstar_twice.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["ssp", "compare", "popstar", str(twice_as_bright)]) == 0  # its own picture is replaced
    picture.write_bytes(b"mine")
    assert main(["ssp", "compare", "popstar", str(twice_as_bright)]) == 2
    assert "to replace it give --overwrite" in capsys.readouterr().err
    assert picture.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["popstra", "popstar"], "unknown library 'popstra'; did you mean 'popstar'"),
        (["popstar", "popstar", "--output", "x.gif"], "expected a name ending in .png, .pdf, .svg, got 'x.gif'"),
        (["popstar", "popstar", "--output", "nowhere/x.png"], "create it (mkdir -p nowhere)"),
    ],
)
def test_what_cannot_be_compared(arguments, message, tmp_path, capsys):
    assert main(["ssp", "compare", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_libraries_of_few_ages_and_wavelengths_are_drawn(tmp_path, popstar):
    wavelength = np.arange(4800.0, 9000.0, 5.0)
    spectra = np.tile(light.spectra(wavelength, ages=[1e8, 1e9], metallicities=[0.02]), (2, 1, 1))
    path = save_comparison(
        solar_population(small(wavelength, spectra)), solar_population(popstar), tmp_path / "few.svg"
    )
    assert "<svg" in path.read_text()[:500]


def test_nothing_is_drawn_without_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["ssp", "compare", "popstar", "popstar"]) == 2
    assert "a picture needs the package matplotlib: pip install 'rubix-like[plots]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
