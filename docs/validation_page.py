"""The page on validation: what is compared with which outside source, how close it is, and how close it must be."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simulations_page import markdown_table

RECORD = Path(__file__).parent / "validation.json"

SUBJECTS: Mapping[str, tuple[str, str]] = {
    "test_independent_sum": (
        "Cubes of real galaxies",
        "a sum over particles in numpy, written from the formula, which takes only arrays of the galaxy and the "
        "library; astropy for distances",
    ),
    "test_independent_nebulae": (
        "Ionised gas of real galaxies",
        "the same sum in numpy over stars and gas, with the published tables of lines and continuum",
    ),
    "test_accuracy": ("Method basis", "sums over particles in float64, every spectrum by itself"),
    "test_photometry": ("Absolute flux", "SDSS magnitudes by speclite from the raw file of the library"),
    "test_spectral": (
        "Doppler shift, line spread, bins",
        "analytic lines and Gaussian integrals (scipy), resolutions of the instruments' papers",
    ),
    "test_rebin": ("Integrals over bins", "numpy's trapezoids over merged nodes and edges, exact for such spectra"),
    "test_spatial": ("PSF, aperture, deposit", "Gaussians and Moffat profiles integrated over spaxels (scipy)"),
    "test_chromatic_psf": (
        "PSF that follows wavelength",
        "scipy's convolution of every bin's image; a Moffat integrated over spaxels in numpy",
    ),
    "test_field_psf": (
        "A PSF that varies over the field",
        "sums by numpy and scipy, one convolution for each place of the grid",
    ),
    "test_psf_from_file": (
        "PSF from images at several wavelengths",
        "scipy's convolution of every bin's image; a fit of data that scipy convolved",
    ),
    "test_outliers": ("Stars beyond the velocity nodes", "method direct, the sum of all spectra"),
    "test_reduced_coefficients": ("Coefficients of large fields", "method direct, the sum of all spectra"),
    "test_gaussian": ("Gaussians on a grid", "scipy's normal distribution"),
    "test_bspline": ("B-splines", "scipy's BSpline, CubicSpline and make_interp_spline"),
    "test_templates": ("Look-up between templates", "scipy's RegularGridInterpolator"),
    "test_air": ("Air and vacuum", "Ciddor's formula (1996) in 40-digit decimals; tabulated lines"),
    "test_cosmology": ("Distances and ages", "astropy.cosmology, and integrals of the Friedmann equation"),
    "test_orientation": ("Sky frame", "projections of a disc worked out by hand, axes by numpy"),
    "test_rotations": ("Rotations", "scipy's Rotation, and formulas of the sky frame"),
    "test_shape": ("Shape of the stars", "ellipsoids of known axes, and the definition star by star"),
    "test_centering": ("Centre of a galaxy", "the published recipe (Power et al. 2003) over all particles"),
    "test_clipping": ("Bulk velocity", "plain means, and the chi distribution (scipy)"),
    "test_maps": ("Maps and velocity distributions", "sums in numpy, scipy's fits, magnitudes by speclite"),
    "test_noise": ("Noise", "the scatter of what is drawn"),
    "test_poisson": ("Poisson numbers", "scipy's quantiles and moments"),
    "test_histories": ("Drawn ages and metallicities", "the stated distributions (scipy's Kolmogorov-Smirnov test)"),
    "test_dust": ("Dust screens", "published tables of curves and dust_extinction; magnitudes by speclite"),
    "test_particle_dust": ("Dust in front of each particle", "numpy with the curves of dust_extinction"),
    "test_dust_maps": ("Maps of dust, attenuation curve", "sums over particles in numpy with dust_extinction"),
    "test_dusty_disc": (
        "A disc in its own dust",
        "the integral through an exponential disc (scipy), and published formulas of its attenuation",
    ),
    "test_component_lines": (
        "Lines of a smooth disc",
        "the same disc in numpy, ring by ring, with the PSF and the LSF",
    ),
    "test_line_disc": ("Lines of a disc", "observed galaxies: the sequence of Kewley et al. 2013, and a MaNGA map"),
    "test_ssp_light": ("Light of the libraries", "colours, mass-to-light ratios and ionising photons as published"),
    "test_ssp_contract": ("Every layout of a library", "magnitudes by speclite, wavelengths of known lines"),
    "test_gradients": ("Gradients", "central finite differences"),
    "test_precision": ("Single precision", "the same cube in double precision"),
}
"""Module of tests/physics -> what it is about, and what our numbers are compared with."""


def validation() -> str:
    """A heading and a table for each subject: every test with its closest comparison."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return "\n".join(
        f"## {title}\n\nCompared with {source}.\n\n"
        + markdown_table(("test", "cases", "measured", "bound"), _rows(record, module))
        for module, (title, source) in SUBJECTS.items()
    )


def validation_summary() -> str:
    """How many tests and comparisons there are, and how close they come to their bounds."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    bounded = [own for own in record.values() if own["bound"] is not None]
    close = sum(own["deviation"] > 0.5 * own["bound"] for own in bounded)
    cases, comparisons = (sum(own[what] for own in record.values()) for what in ("cases", "comparisons"))
    return (
        f"{len(record)} tests with {cases} cases; {comparisons} comparisons with a bound. In {close} tests the closest "
        "comparison uses more than half of its bound.\n"
    )


def _rows(record: Mapping[str, Any], module: str) -> Iterator[tuple[str, str, str, str]]:
    text = (RECORD.parents[1] / "tests" / "physics" / f"{module}.py").read_text(encoding="utf-8")
    for test in re.findall(r"^def test_(\w+)", text, re.M):
        own = record.get(f"tests/physics/{module}.py::test_{test}")
        words = test.replace("_", " ")
        yield (words, str(own["cases"]), *_measured(own)) if own else (words, "", "not measured yet", "")


def _measured(own: Mapping[str, Any]) -> tuple[str, str]:
    """The closest comparison: what was measured, and the bound; equality and order have none."""
    if own["bound"] is None:
        return "as expected", ""
    relative = own["kind"] == "relative"
    return _number(own["deviation"]), f"{_number(own['bound'])}{' (relative)' if relative else ''}"


def _number(value: float) -> str:
    return f"{value:.2g}"
