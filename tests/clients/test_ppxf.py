"""pPXF (a client in tests only: its licence is non-commercial) finds the velocities that were put in.

It is given what a file holds: flux, wavelengths, the LSF table and, with noise, STAT. Its templates are the library's
own, broadened to that LSF. The truth is worked out here from the particles, in float64: their light in the fitted
range, on spaxels, blurred by the PSF. V and sigma of a distribution that is not Gaussian are a matter of definition, so
there are two truths:

- mean and standard deviation, against two moments of pPXF. (The best Gaussian to the distribution itself is another, by
  up to 5 km/s here. But pPXF sees the distribution through lines that are as wide as itself, and the more Gaussian the
  sum, the nearer its best Gaussian is to mean and standard deviation.)
- the best Gauss-Hermite series to the distribution, against four moments of pPXF, which mean the same.

Velocities are V = c ln(lambda / lambda_0) on all sides.

Lines of the gas are fitted with pPXF's own templates of lines. Their flux is worked out here from the library's
spectra, the table of lines and the star formation rate.
"""

import functools
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import independent
import numpy as np
import pytest
from astropy.io import fits
from scipy import ndimage, optimize
from scipy.interpolate import CubicSpline, RegularGridInterpolator
from scipy.special import ndtri

import rubix_like as rl
from rubix_like import load_nebular
from rubix_like.extend import cache_directory, draw_base, fixed

pytestmark = pytest.mark.slow

REDSHIFT, INCLINATION, POSITION_ANGLE = 0.01, 50.0, 30.0
PIXEL_SCALE, N_SIDE, PSF_FWHM = 1.0, 8, 2.5
FIRST, LAST = 4800.0, 5600.0
VELOCITY_STEP = 5.0
VELOCITY_EDGES = np.arange(-802.5, 803.0, VELOCITY_STEP)
RATIO = 4
"""Templates are sampled this many times finer than the data."""


@pytest.fixture(scope="module")
def ppxf(client):
    return client("ppxf.ppxf").ppxf


@pytest.fixture(scope="module")
def library():
    if not (cache_directory() / "ssp" / "bc03-miles.h5").is_file() and not os.environ.get("CI"):
        pytest.skip("bc03-miles is not in the cache (rubix-like ssp get bc03-miles)")
    return rl.load_ssp("bc03-miles")


@pytest.fixture(scope="module")
def galaxy():
    """A wide disc with sigma = 70 km/s that turns at up to 180 km/s."""
    disc = rl.SyntheticGalaxy(bulge_fraction=0.05, bulge_dispersion=90.0, disc_dispersion=70.0, disc_scale_length=3.0)
    return disc.sample(draw_base(n_stars=600_000, n_gas=0, seed=3))


@dataclass(frozen=True)
class Truth:
    """Per spaxel: mean and standard deviation, and (V, sigma, h3, h4) of the best Gauss-Hermite series."""

    moments: np.ndarray
    series: np.ndarray


@pytest.fixture(scope="module")
def truth(galaxy, library):
    stars = galaxy.stars
    rotation = independent.sky_rotation(INCLINATION, POSITION_ANGLE)
    position, velocity = (np.asarray(x, dtype=np.float64) @ rotation.T for x in (stars.position, stars.velocity))
    margin = 10
    side = N_SIDE + 2 * margin
    scale = independent.arcsec_per_kpc(REDSHIFT, independent.luminosity_distance(REDSHIFT)) / PIXEL_SCALE
    place = np.rint((side - 1) / 2 + np.stack([position[:, 1], -position[:, 0]]) * scale).astype(int)
    near = ((place >= 0) & (place < side)).all(axis=0)
    v_los, weight, spaxel = velocity[near, 2], light(stars, library)[near], place[0, near] * side + place[1, near]

    def seen(sums):
        """Sums over particles in spaxels, through the PSF, without the margin."""
        sigma = PSF_FWHM / PIXEL_SCALE / independent.FWHM
        blurred = ndimage.gaussian_filter(sums.reshape(side, side, -1), sigma, axes=(0, 1), truncate=8)
        return blurred[margin:-margin, margin:-margin].reshape(N_SIDE**2, -1)

    powers = [np.bincount(spaxel, weight * v_los**power, side**2) for power in range(3)]
    total, first, second = seen(np.stack(powers, axis=1)).T
    losvd = np.zeros((side**2, VELOCITY_EDGES.size - 1))
    np.add.at(losvd, (spaxel, np.digitize(v_los, VELOCITY_EDGES) - 1), weight)
    mean = first / total
    return Truth(
        moments=np.stack([mean, np.sqrt(second / total - mean**2)], axis=1),
        series=np.array([gauss_hermite_fit(distribution) for distribution in seen(losvd)]),
    )


def light(stars, library):
    """Light of each star in the fitted range (any unit)."""
    rest = library.rest_wavelength * (1 + REDSHIFT)
    per_mass = np.asarray(library.spectra, dtype=np.float64)[:, :, (rest > FIRST) & (rest < LAST)].mean(axis=2)
    log_z, log_age = np.log10(library.metallicity), library.log_age
    where = np.stack(
        [
            np.clip(np.log10(np.asarray(stars.metallicity)), log_z[0], log_z[-1]),
            np.clip(np.asarray(stars.log_age), log_age[0], log_age[-1]),
        ],
        axis=1,
    )
    return np.asarray(stars.initial_mass) * RegularGridInterpolator((log_z, log_age), per_mass)(where)


def gauss_hermite_fit(distribution):
    """(V, sigma, h3, h4) of the least-squares fit; van der Marel & Franx (1993, ApJ 407, 525), eqs. 8, 9, 13."""
    velocity = 0.5 * (VELOCITY_EDGES[1:] + VELOCITY_EDGES[:-1])
    density = distribution / distribution.sum() / VELOCITY_STEP
    mean = (density * velocity).sum() * VELOCITY_STEP
    sigma = np.sqrt((density * (velocity - mean) ** 2).sum() * VELOCITY_STEP)

    def residual(parameters):
        strength, v, s, h3, h4 = parameters
        w = (velocity - v) / s
        third, fourth = (2 * w**3 - 3 * w) / np.sqrt(3), (4 * w**4 - 12 * w**2 + 3) / np.sqrt(24)
        series = 1 + h3 * third + h4 * fourth
        return (strength * np.exp(-0.5 * w**2) / (s * np.sqrt(2 * np.pi)) * series - density) * sigma

    return optimize.least_squares(residual, [1.0, mean, sigma, 0.0, 0.0], x_scale=[1, 10, 10, 0.1, 0.1]).x[1:]


def write_mock(path, name, galaxy, noise):
    """The file of a small field; MaNGA: logarithmic bins in vacuum, MUSE: linear ones in air."""
    config = rl.load_config(
        {
            "observation": {
                "redshift": REDSHIFT,
                "align": "none",
                "inclination": INCLINATION,
                "position_angle": POSITION_ANGLE,
            },
            "ssp": {"library": "bc03-miles"},
            "instrument": {
                "name": name,
                "pixel_scale": PIXEL_SCALE,
                "fov": PIXEL_SCALE * N_SIDE,
                "aperture": None,
                "psf": {"fwhm": PSF_FWHM},
                "wavelength": {"start": FIRST, "stop": LAST},
            },
            "noise": noise,
        }
    )
    return rl.Pipeline.from_config(config, galaxy)(galaxy).write(path)


@dataclass(frozen=True)
class Spectra:
    """What pPXF takes: (wave, spaxel) on a grid uniform in ln lambda (vacuum), its step in km/s, FWHM of the LSF."""

    flux: np.ndarray
    noise: np.ndarray | None
    log_wavelength: np.ndarray
    step: float
    fwhm: np.ndarray


def read_mock(path):
    """Logarithmic bins as they are; linear ones interpolated (averaging them over new bins would broaden lines)."""
    with fits.open(path) as file:
        table, kind = file["LSF"].data, file["DATA"].header["CTYPE3"]
        wavelength, fwhm = (np.array(table[column], dtype=np.float64) for column in ("WAVE", "FWHM"))
        flux = np.array(file["DATA"].data, dtype=np.float64).reshape(wavelength.size, -1)
        stat = np.array(file["STAT"].data, dtype=np.float64).reshape(flux.shape) if "STAT" in file else None
    vacuum = independent.air_to_vacuum(wavelength) if kind.startswith("AWAV") else wavelength
    log_wavelength = np.linspace(*np.log(vacuum[[0, -1]]), vacuum.size)
    if kind.endswith("LOG"):
        np.testing.assert_allclose(np.log(vacuum), log_wavelength, atol=1e-9)
    else:
        flux = CubicSpline(vacuum, flux)(np.exp(log_wavelength))
    return Spectra(
        flux=flux,
        noise=None if stat is None else np.sqrt(stat),
        log_wavelength=log_wavelength,
        step=independent.C_KMS * (log_wavelength[1] - log_wavelength[0]),
        fwhm=np.interp(np.exp(log_wavelength), vacuum, fwhm),
    )


def templates_of(library, spectra):
    """(wave, template) with the LSF of the file, and their wavelengths, RATIO times finer than the data.

    These instruments' LSF holds the bin, and pPXF averages templates over bins by itself: so its average is taken off.
    """
    from ppxf.ppxf_util import varsmooth  # noqa: PLC0415

    near = (library.rest_wavelength > 4500.0) & (library.rest_wavelength < 5800.0)
    ages = np.flatnonzero((library.log_age > 8.8) & (library.log_age < 10.25))[::6]
    rest = library.rest_wavelength[near]
    chosen = library.spectra[3:, ages][:, :, near].reshape(-1, rest.size).T.astype(np.float64)
    observed = rest * (1 + REDSHIFT)
    wanted = np.interp(observed, np.exp(spectra.log_wavelength), spectra.fwhm) ** 2
    average = independent.FWHM**2 * (observed * spectra.step / independent.C_KMS) ** 2 / 12 * (1 - 1 / RATIO**2)
    kernel2 = wanted - average - (library.fwhm[near] * (1 + REDSHIFT)) ** 2
    assert kernel2.min() > 0
    wavelength = np.exp(np.arange(*np.log([4600.0, 5700.0]), spectra.step / RATIO / independent.C_KMS))
    sigma = np.sqrt(kernel2) / independent.FWHM / (1 + REDSHIFT)
    smooth = varsmooth(rest, chosen, sigma, xout=wavelength, oversample=2)
    return smooth / smooth.mean(axis=0), wavelength


def fitted(ppxf, library, spectra, n_moments):
    """(spaxel, moment): V, sigma (km/s), with four moments h3 and h4."""
    templates, template_wavelength = templates_of(library, spectra)
    found = []
    for number, flux in enumerate(spectra.flux.T):
        level = np.median(flux)
        noise = np.full_like(flux, 0.01) if spectra.noise is None else spectra.noise[:, number] / level
        fit = ppxf(
            templates,
            flux / level,
            noise,
            spectra.step,
            [0.0, 80.0],
            moments=n_moments,
            degree=4,
            lam=np.exp(spectra.log_wavelength) / (1 + REDSHIFT),
            lam_temp=template_wavelength,
            velscale_ratio=RATIO,
            quiet=True,
        )
        found.append(fit.sol)
    return np.array(found)


def test_the_mock_is_what_the_criterion_asks_for(truth):
    """sigma >= 60 km/s everywhere, and a velocity field worth the name."""
    assert truth.moments[:, 1].min() > 60
    assert np.ptp(truth.moments[:, 0]) > 120


@pytest.mark.parametrize(("name", "all_moments"), [("manga", (2, 4)), ("muse", (2,))])
def test_without_noise_every_spaxel_has_its_velocity_and_dispersion(
    name, all_moments, ppxf, library, galaxy, truth, tmp_path
):
    spectra = read_mock(write_mock(tmp_path / "mock.fits", name, galaxy, None))
    level = np.median(spectra.flux, axis=0)
    assert level.min() > 0.3 * level.max()  # all are bright
    for n_moments in all_moments:
        expected = truth.moments if n_moments == 2 else truth.series
        found = fitted(ppxf, library, spectra, n_moments)
        velocity, dispersion = found[:, 0] - expected[:, 0], found[:, 1] / expected[:, 1] - 1
        print(f"{name}, {n_moments} moments: {np.abs(velocity).max():.2f} km/s, {np.abs(dispersion).max():.2%} at most")
        np.testing.assert_allclose(velocity, 0.0, atol=3.0)
        np.testing.assert_allclose(dispersion, 0.0, atol=0.05)


def test_at_a_signal_to_noise_of_50_the_median_spaxel_has_them(ppxf, library, galaxy, truth, tmp_path):
    """S/N 50 per bin in the median spaxel; the medians are those of the absolute differences."""
    level = np.median(read_mock(write_mock(tmp_path / "clean.fits", "manga", galaxy, None)).flux, axis=0)
    noise = {"signal_to_noise": 50 * level.max() / np.median(level), "seed": 4}
    spectra = read_mock(write_mock(tmp_path / "mock.fits", "manga", galaxy, noise))
    assert np.median(spectra.flux / spectra.noise) == pytest.approx(50, rel=0.1)
    found = fitted(ppxf, library, spectra, 2)
    velocity = np.median(np.abs(found[:, 0] - truth.moments[:, 0]))
    dispersion = np.median(np.abs(found[:, 1] / truth.moments[:, 1] - 1))
    print(f"S/N 50: medians {velocity:.2f} km/s, {dispersion:.2%}")
    assert 0.1 < velocity < 3.0
    assert 0.001 < dispersion < 0.05


@pytest.fixture(scope="module")
def recipe(client):
    """What the page of the documentation defines."""
    client("ppxf.ppxf")
    page = (Path(__file__).resolve().parents[2] / "docs" / "ppxf.md").read_text(encoding="utf-8")
    namespace: dict = {}
    exec(re.search(r"```python\n(# ppxf_recipe\.py\n.*?)```", page, re.DOTALL)[1], namespace)
    return namespace["main"]


def lined_up(dispersion):
    """Stars of one kind in one place, whose velocities are Gaussian about 60 km/s, and their standard deviation."""
    velocity = np.zeros((1001, 3))
    velocity[:, 2] = 60.0 + dispersion * ndtri((np.arange(1001) + 0.5) / 1001)
    fields = {"initial_mass": 1e7, "log_age": 9.7, "metallicity": 0.02}
    stars = rl.Stars(np.zeros((1001, 3)), velocity, **{name: np.full(1001, value) for name, value in fields.items()})
    return rl.Galaxy(stars=stars), velocity[:, 2].std()


@pytest.mark.parametrize("name", ["manga", "muse"])
def test_the_recipe_of_the_documentation_finds_small_dispersions(name, recipe, library, tmp_path):
    """40 and 80 km/s, of which the first is half of a bin: no bin's width too many or too few (4.5 and 9.3 km/s)."""
    config = {
        "observation": {"redshift": 0.01, "align": "none"},
        "ssp": {"library": "bc03-miles"},
        "instrument": {
            "name": name,
            "pixel_scale": 1,
            "fov": 1,
            "aperture": None,
            "psf": None,
            "wavelength": {"start": FIRST, "stop": LAST},
        },
        "engine": {"method": "direct", "velocity_range": 900},
    }
    pipeline = rl.Pipeline.from_config(config)
    for dispersion in (40.0, 80.0):
        galaxy, expected = lined_up(dispersion)
        velocity, sigma = recipe(pipeline(galaxy).write(tmp_path / "cube.fits"), "bc03-miles", 0.01)[0, 0]
        print(f"{name}: V {velocity:.2f} of 60 km/s, sigma {sigma:.2f} of {expected:.2f} km/s")
        assert velocity == pytest.approx(60, abs=0.5)
        assert sigma == pytest.approx(expected, rel=0.03)


GAS_VELOCITY, GAS_DISPERSION, RATE, METALLICITY = 83.0, 90.0, 0.3, 0.0142
N_DRAWS, LINE_SNR = 100, 50.0
WINDOWS = {
    "[O II]": (3690.0, 3770.0, {"[OII]3726": ("[O II] 3726",), "[OII]3729": ("[O II] 3729",)}, 16.0),
    "Hb": (4830.0, 5045.0, {"Hbeta": ("Hb",), "[OIII]5007_d": ("[O III] 5007", "[O III] 4959")}, 1.0),
    "Ha": (6500.0, 6640.0, {"Halpha": ("Ha",), "[NII]6583_d": ("[N II] 6583", "[N II] 6548")}, 1.0),
}
"""A fit's range (Angstrom, rest frame), pPXF's names of its lines with ours, and the first line's atomic weight."""


def forming_galaxy():
    """Stars of two ages with sigma = 80 km/s about 20 km/s, and one gas particle that forms stars, in one place."""
    velocity = np.zeros((100, 3))
    velocity[:, 2] = 20.0 + 80.0 * ndtri((np.arange(100) + 0.5) / 100)
    ages = np.where(np.arange(100) % 2, 9.5, 8.5)
    stars = rl.Stars(np.zeros((100, 3)), velocity, np.full(100, 5e7), ages, np.full(100, 0.02))
    moving = np.array([[0.0, 0.0, GAS_VELOCITY]])
    gas = rl.Gas(
        np.zeros((1, 3)), moving, np.full(1, 1e7), np.full(1, METALLICITY), star_formation_rate=np.full(1, RATE)
    )
    return rl.Galaxy(stars=stars, gas=gas)


def write_lines(path, name, first, last):
    config = rl.load_config(
        {
            "pipeline": "nebular",
            "observation": {"redshift": REDSHIFT, "align": "none"},
            "ssp": {"library": "bc03-miles"},
            "nebular": {"source": "star_forming_gas", "velocity_dispersion": GAS_DISPERSION},
            "instrument": {
                "name": name,
                "pixel_scale": 1,
                "fov": 1,
                "aperture": None,
                "psf": None,
                "wavelength": {"start": first, "stop": last},
            },
            "engine": {"method": "direct", "velocity_range": 900},
        }
    )
    galaxy = forming_galaxy()
    return rl.Pipeline.from_config(config, galaxy)(galaxy).write(path)


@pytest.fixture(scope="module")
def with_lines(library, tmp_path_factory):
    """Name of an instrument -> file of a cube: MaNGA from [O II] to [N II], MUSE about Hb; each is made once."""
    folder = tmp_path_factory.mktemp("lines")
    ranges = {"manga": (3640.0, 6900.0), "muse": (4830.0, 5120.0)}
    return functools.cache(lambda name: write_lines(folder / f"{name}.fits", name, *ranges[name]))


@pytest.fixture(scope="module")
def example(client):
    """The program of the tutorial."""
    client("ppxf.ppxf")
    path = Path(__file__).resolve().parents[2] / "docs" / "examples" / "fit_lines.py"
    spec = importlib.util.spec_from_file_location("fit_lines", path)
    found = importlib.util.module_from_spec(spec)
    sys.modules["fit_lines"] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def line_fluxes(library):
    """A line -> its flux (1e-20 erg/s/cm2)."""
    spectra = independent.SpectrumTable(
        library.spectra, library.log_age, library.metallicity, library.rest_wavelength
    ).cut(1.0, 1000.0)
    photons = RATE * independent.photons_of_rate(spectra, METALLICITY, 3e7)
    table = fixed(load_nebular("mappings-hii"), log_pressure=5.8, log_u=-3.0, oxygen_abundance=8.76)
    lsun = independent.flux_of_one_lsun(independent.luminosity_distance(REDSHIFT)) / independent.LUMINOSITY_OF_SUN
    return {name: photons * float(table.line(name)) * lsun for name in table.lines}


@pytest.mark.parametrize(
    ("name", "window"),
    [("manga", "[O II]"), ("manga", "Hb"), ("manga", "Ha"), pytest.param("muse", "Hb", marks=pytest.mark.long)],
)
def test_templates_of_lines_find_flux_velocity_and_dispersion(name, window, example, library, with_lines, line_fluxes):
    """S/N 50: that of the window's first line in the sum over its bins to 3 sigma. Means of 100 draws have errors of a
    tenth of a draw's. The lines of [O II], 1.3 sigma apart, are given the velocity and dispersion of the others."""
    first, last, lines, weight = WINDOWS[window]
    spectra = example.read_spectra(with_lines(name), REDSHIFT, first, last)
    ages = [int(np.argmin(np.abs(library.log_age - age))) for age in (8.5, 9.5)]
    metals = [int(np.argmin(np.abs(library.metallicity - 0.02)))]
    templates = example.make_templates(spectra, library, metals, ages)
    assert templates.names == list(lines)
    dispersion = np.hypot(GAS_DISPERSION, 9.09 / np.sqrt(weight))  # and that of 1e4 K
    known = window == "[O II]"
    start = [(20.0, 80.0), (GAS_VELOCITY, dispersion) if known else (60.0, 70.0)]
    flux, dice = spectra.flux[:, 0, 0], np.random.default_rng(5)
    bins = templates.centres * (1 + REDSHIFT) * spectra.step / independent.C_KMS
    lsf = spectra.fwhm.mean() / independent.FWHM / spectra.wavelength.mean() * independent.C_KMS
    width = np.sqrt((lsf**2 + GAS_DISPERSION**2) / spectra.step**2 + 1 / 12)
    true = np.array([sum(line_fluxes[line] for line in own) for own in lines.values()])
    noise = np.full_like(flux, true[0] / bins[0] / LINE_SNR / np.sqrt(6 * width))

    def fit(values):
        fixed = [(1, 1), (known, known)]
        own, found, _ = example.fit_spectrum(values, noise, spectra, templates, start, fixed, degree=2)
        return np.concatenate([own, found * bins])

    draws = np.array([fit(flux + noise * dice.normal(size=flux.size)) for _ in range(N_DRAWS)])
    mean, scatter = draws.mean(axis=0), draws.std(axis=0)[2:]
    print(f"{name} {window}, {width:.2f} bins, S/N of fitted fluxes {(mean[2:] / scatter).round(1)}")
    assert width > 1.5
    for kind, (v, sigma, *own) in {"without noise": fit(flux), "mean of draws": mean}.items():
        percent = 100 * (np.array([sigma / dispersion, *own / true]) - 1)
        print(f"{kind}: V {v - GAS_VELOCITY:+.2f} km/s, sigma and fluxes {percent.round(2)} %")
        assert v == pytest.approx(GAS_VELOCITY, abs=1.0)
        assert sigma == pytest.approx(dispersion, rel=0.02)
        assert own[0] == pytest.approx(true[0], rel=0.01)
        assert own[1] / own[0] == pytest.approx(true[1] / true[0], rel=0.02)
