"""What every SSP library must satisfy: those that are at hand, and small files in every registered layout.

A new layout gets a line in SAMPLES, a library that can be fetched is tested once it is in the cache.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from speclite.filters import load_filter
from ssp_files import bc03, classic, dsps, miles, pipe3d, ppxf, synthesizer

from rubix_like import SSPLibrary, load_ssp
from rubix_like.extend import cache_directory, write_table
from rubix_like.ssp import FORMATS, SHELF

SOLAR_V = 4.81
"""Absolute V magnitude of the Sun (Vega; Willmer 2018, ApJS 236, 47)."""

AB_OF_VEGA_V = 0.0015
"""m_AB - m_Vega in V, from f_nu = 3636 Jy at V = 0 (Bessell, Castelli & Plez 1998, A&A 333, 231) and 3631 Jy in AB."""

MASS_TO_LIGHT = {"light": {9.0: (0.45, 1.15), 10.0: (4.0, 8.7)}, "heavy": {9.0: (0.8, 1.9), 10.0: (6.5, 14.0)}}
"""Mass at birth over V luminosity (solar units) of a solar population by log age.

"light": IMFs of Chabrier and Kroupa; Bruzual & Charlot (2003) have 0.74 and 6.4, and models of one IMF lie within 0.15
dex of each other (Conroy & Gunn 2010, ApJ 712, 833: BC03, Maraston 2005, FSPS). "heavy": Salpeter's, about 0.22 dex
more (Conroy 2013, ARA&A 51, 393); E-MILES (Vazdekis et al. 2016, MNRAS 463, 3409; Padova isochrones) has 1.10 and 8.2.
"""

BOLOMETRIC = {"light": {9.0: (1.2, 2.3), 10.0: (0.18, 0.35)}, "heavy": {9.0: (0.7, 1.4), 10.0: (0.1, 0.22)}}
"""Lsun per Msun at birth of a solar population by log age: Bruzual & Charlot (2003) have 1.6 and 0.26, Kroupa's IMF."""

WIDEST = (1000.0, 15000.0)
"""A library from the first to the second of these holds nearly all light of a population older than 1 Gyr."""

LINES = {
    "H delta": (4102.90, 8.7, True),
    "H beta": (4862.69, 8.7, True),
    "H alpha": (6564.61, 8.7, True),
    "Ca II K": (3934.78, 9.0, False),
    "Ca II H": (3969.59, 10.0, False),
    "Mg b": (5185.05, 10.0, False),
}
"""Vacuum Angstrom (NIST Atomic Spectra Database), log age at which it is clear, whether the small files have it."""

RESOLVED = 3.0
"""FWHM (Angstrom) up to which a line's place tells air from vacuum."""


SAMPLES: dict[str, Callable[[Path], Path]] = {
    "rubix-like": classic.write_ours,
    "popstar-fits": classic.write_popstar,
    "bagpipes-fits": classic.write_bagpipes,
    "rubix-hdf5": classic.write_rubix,
    "bc03-ascii": bc03.write_sample_file,
    "bc03-ascii-folder": bc03.write_sample,
    "synthesizer-hdf5": synthesizer.write_sample,
    "pipe3d-fits": pipe3d.write_sample,
    "ppxf-npz": ppxf.write_sample,
    "miles-fits": miles.write_sample,
    "dsps-hdf5": dsps.write_sample,
}
"""How to write a small file or folder of a layout; the light in it is that of PopStar (Chabrier's IMF)."""


@dataclass(frozen=True)
class Case:
    """A library, the weight of the IMF that its light has, and whether it is a whole one."""

    library: SSPLibrary
    imf: str
    whole: bool


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Callable[[str], Path]:
    """The small file or folder of a layout, written once."""
    return functools.cache(lambda name: SAMPLES[name](tmp_path_factory.mktemp("sample")))


@pytest.fixture(scope="module", params=[*SHELF.entries, *SAMPLES])
def case(request, sample, tmp_path_factory) -> Case:
    """Every library and every small file in turn."""
    if request.param in SAMPLES:
        path = tmp_path_factory.mktemp("library") / "library.h5"
        write_table(FORMATS.find(request.param).read(sample(request.param)), path)
        return Case(load_ssp(path), "light", whole=False)
    kind = SHELF.entries[request.param].kind
    cached = (cache_directory() / "ssp" / f"{request.param}.h5").is_file()
    if kind != "embedded" and not cached and (kind != "fetchable" or not os.environ.get("CI")):
        pytest.skip(f"{request.param} is not in the cache (rubix-like ssp get {request.param})")
    library = load_ssp(request.param)
    return Case(library, "heavy" if "Salpeter" in library.imf else "light", whole=True)


def test_every_layout_has_a_sample_that_no_other_takes(sample):
    assert set(SAMPLES) == set(FORMATS.builtin)
    formats = {name: FORMATS.find(name) for name in FORMATS.builtin}
    for name in SAMPLES:
        path = sample(name)
        assert [other for other, f in formats.items() if f.directory == path.is_dir() and f.recognises(path)] == [name]


def solar(library: SSPLibrary) -> int:
    return int(np.argmin(np.abs(np.log(np.maximum(library.metallicity, 1e-9) / library.solar_metallicity))))


def at_age(library: SSPLibrary, log_age: float) -> np.ndarray:
    return np.array([np.interp(log_age, library.log_age, column) for column in library.spectra[solar(library)].T])


def mass_to_light(library: SSPLibrary, log_age: float) -> float:
    """Mass at birth over V luminosity by speclite's curve and the AB system."""
    curve = load_filter("bessell-V")
    wavelength = np.arange(4700.0, 7000.0, 0.5)
    response = np.interp(wavelength, curve.wavelength, curve.response)
    light = (
        np.interp(wavelength, library.rest_wavelength, at_age(library, log_age)) * 3.828e33 / (4 * np.pi * 3.0857e19**2)
    )
    per_hertz = np.sum(light * response * wavelength) / np.sum(response / wavelength) / 2.99792458e18
    magnitude = -2.5 * np.log10(per_hertz / 3.631e-20) - AB_OF_VEGA_V
    return 10.0 ** (0.4 * (magnitude - SOLAR_V))


def test_what_is_stated(case):
    """And light is finite and never negative."""
    library = case.library
    assert library.source_medium in ("air", "vacuum")
    for text in (library.name, library.imf, library.citation, library.licence, library.source):
        assert len(text) > 2
    assert np.all(library.fwhm > 0)
    assert np.all(library.metallicity >= 0)
    assert library.metallicity.max() < 0.2
    assert np.all(np.isfinite(library.spectra))
    assert np.all(library.spectra.min(axis=-1) >= 0.0)
    assert np.all(library.spectra.max(axis=-1) > 0.0)


def test_light_of_a_solar_population(case):
    """In V, in all where the library covers nearly all light, and it fades from 30 Myr on."""
    library = case.library
    whole = library.rest_wavelength[0] <= WIDEST[0] and library.rest_wavelength[-1] >= WIDEST[1]
    for log_age, (low, high) in MASS_TO_LIGHT[case.imf].items():
        assert low < mass_to_light(library, log_age) < high
        if whole:
            least, most = BOLOMETRIC[case.imf][log_age]
            assert least < np.trapezoid(at_age(library, log_age), library.rest_wavelength) < most
    ages = np.arange(max(7.5, library.log_age[0]), min(10.15, library.log_age[-1]), 0.2)
    assert np.all(np.diff([mass_to_light(library, age) for age in ages]) > 0.0)


def test_surviving_mass_falls_from_one(case):
    library = case.library
    if library.surviving_fraction is None:
        pytest.skip("the library has no masses")
    assert np.all(library.surviving_fraction > 0.3)
    assert np.all(library.surviving_fraction <= 1.0)
    assert np.all(np.diff(library.surviving_fraction, axis=1) < 0.01)
    assert np.all(library.surviving_fraction[:, -1] < library.surviving_fraction[:, 0] - 0.1)


def place(wavelength: np.ndarray, spectrum: np.ndarray, line: float) -> float:
    """Centroid of the core of an absorption line (deeper than half its depth), in Angstrom."""
    near = np.abs(wavelength - line) < 12.0
    wavelength, spectrum = wavelength[near], spectrum[near]
    depth = np.interp(wavelength, wavelength[[0, -1]], spectrum[[0, -1]]) - spectrum
    core = np.where(depth > 0.5 * depth.max(), depth, 0.0)
    return float(np.sum(core * wavelength) / np.sum(core))


def test_lines_stand_at_their_vacuum_wavelengths(case):
    """Air would be 1.1-1.8 Angstrom off."""
    library = case.library
    widths = {name: np.interp(line, library.rest_wavelength, library.fwhm) for name, (line, _, _) in LINES.items()}
    shown = {name: LINES[name] for name in LINES if widths[name] <= RESOLVED and (case.whole or LINES[name][2])}
    if not shown:
        pytest.skip(f"the library does not resolve lines (FWHM {min(widths.values()):.3g} A)")
    expected = {name: line for name, (line, _, _) in shown.items()}
    found = {name: place(library.rest_wavelength, at_age(library, age), line) for name, (line, age, _) in shown.items()}
    assert found == pytest.approx(expected, abs=0.6)
