"""The stated error of method `basis` beside the true one, over windows, libraries and instruments.

    python tests/benchmarks/basis_accuracy.py                # the table of docs/benchmarks.md, whole libraries
    python tests/benchmarks/basis_accuracy.py --random 40    # random narrow windows, libraries thinned to every 4th age

The truth is plain numpy in float64: every template (linear between its nodes) is shifted by (1 + z) exp(v / c), spread
by the Gaussian that takes it to the instrument's width, and integrated over each bin. An error is the rms of a spectrum
over the bins that are not flagged, relative to its mean there; the true one is the largest of all templates at the
velocities tried: at both limits, in the middle of intervals between nodes, and at random.
"""

import argparse
import functools
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from astropy import constants, units
from astropy.cosmology import Planck18
from numpy import ndarray
from scipy.interpolate import BSpline
from scipy.special import ndtr

C_KMS = constants.c.to_value(units.km / units.s)
FWHM = np.sqrt(8 * np.log(2))
PARTS = 16
"""Of a bin, in which light is spread from its middle."""


class Case(NamedTuple):
    """A run: library (name or file), instrument settings, redshift, largest velocity (km/s), tolerance."""

    library: str
    instrument: dict[str, Any]
    redshift: float
    limit: float
    tolerance: float


class Found(NamedTuple):
    """Stated and true errors of a case; `velocity` is the spline's, `spectrum` that of spline and basis."""

    n_wave: int
    rank: int
    n_node: int
    stated_velocity: float
    true_velocity: float
    stated_spectrum: float
    true_spectrum: float
    seconds: float


def window(start: float, stop: float, step: float = 1.25) -> dict[str, Any]:
    """An instrument's wavelengths."""
    return {"start": start, "stop": stop, "step": step}


TABLE = {
    "MUSE, whole range": ("bc03-miles", {"name": "muse"}, 0.05),
    "MUSE 5000-5600 A": ("bc03-miles", {"name": "muse", "wavelength": window(5000, 5600)}, 0.02),
    "the same, lsf: null": ("bc03-miles", {"name": "muse", "wavelength": window(5000, 5600), "lsf": None}, 0.02),
    "MUSE 5160-5190 A, lsf: null": (
        "bc03-miles",
        {"name": "muse", "wavelength": window(5160, 5190), "lsf": None},
        0.002,
    ),
    "MUSE 8480-8750 A": ("bc03-miles", {"name": "muse", "wavelength": window(8480, 8750)}, 0.01),
    "sami_blue": ("bc03-miles", {"name": "sami_blue"}, 0.02),
    "manga": ("bc03-miles", {"name": "manga"}, 0.03),
    "weave_hr_green": ("bc03-miles", {"name": "weave_hr_green"}, 0.01),
    "MUSE, whole range ": ("bc03-lr", {"name": "muse"}, 0.05),
    "MUSE 5000-5600 A ": ("bc03-lr", {"name": "muse", "wavelength": window(5000, 5600), "lsf": None}, 0.02),
    "MUSE, whole range  ": ("popstar", {"name": "muse"}, 0.05),
    "MUSE 5000-5600 A  ": ("popstar", {"name": "muse", "wavelength": window(5000, 5600), "lsf": None}, 0.02),
}
LIMIT = 400.0


def random_cases(libraries: list[str], number: int, seed: int = 17) -> list[Case]:
    """Windows of 10 to 250 Angstrom at random places of random instruments, with and without line spread."""
    rng = np.random.default_rng(seed)
    ranges = {
        "muse": (4750, 9300, 1.25),
        "sami_blue": (3750, 5700, 1.05),
        "sami_red": (6300, 7350, 0.6),
        "califa_v500": (3750, 7450, 2.0),
        "kcwi_bm_medium": (4200, 5200, 0.5),
        "weave_hr_green": (4750, 5350, 0.2),
    }
    cases = []
    for index in range(number):
        name = list(ranges)[rng.integers(len(ranges))]
        first, last, step = ranges[name]
        width = max(10 ** rng.uniform(1.0, 2.4), 6 * step)
        start = rng.uniform(first, last - width)
        instrument = {"name": name, "wavelength": {**window(start, start + round(width / step) * step, step)}}
        instrument["wavelength"] |= {"sampling": "linear", "medium": ("air", "vacuum")[rng.integers(2)]}
        if rng.uniform() < 0.4:
            instrument["lsf"] = None
        limit, redshift = 10 ** rng.uniform(2.0, 3.1), 10 ** rng.uniform(-2.5, -0.7)
        cases.append(Case(libraries[index % len(libraries)], instrument, redshift, limit, (1e-3, 3e-4)[index % 5 == 4]))
    return cases


def thinned(name: str, folder: Path, every: int = 4) -> str:
    """The file of a library with every 4th age and the optical wavelengths only."""
    from rubix_like import load_ssp  # noqa: PLC0415  (the parser needs no JAX)
    from rubix_like.extend import SSPTable, write_table  # noqa: PLC0415

    library = load_ssp(name)
    rest = np.asarray(library.rest_wavelength)
    part = (rest > 2500) & (rest < 10500)
    table = SSPTable(
        name=f"{name}-thinned",
        medium="vacuum",
        imf="none",
        solar_metallicity=0.02,
        citation="none",
        licence="none",
        source="a test",
        spectra=np.float32(np.asarray(library.spectra)[:, 2::every][:, :, part]),
        log_age=np.asarray(library.log_age)[2::every],
        metallicity=np.asarray(library.metallicity),
        rest_wavelength=rest[part],
        fwhm=np.asarray(library.fwhm)[part],
    )
    write_table(table, folder / f"{name}.h5")
    return str(folder / f"{name}.h5")


def air_of(vacuum: ndarray) -> ndarray:
    """Ciddor 1996, eq. 1, standard air."""
    wavenumber2 = (1e4 / vacuum) ** 2
    return vacuum / (1 + 5792105e-8 / (238.0185 - wavenumber2) + 167917e-8 / (57.362 - wavenumber2))


def vacuum_of(air: ndarray) -> ndarray:
    """The inverse by iteration."""
    vacuum = np.array(air)
    for _ in range(30):
        vacuum = vacuum + (air - air_of(vacuum))
    return vacuum


class Exact:
    """Every template of a library through a detector, in units of the library per Angstrom of the medium."""

    def __init__(self, case: Case, wavelength: Any, lsf: Any, library: Any) -> None:
        log = wavelength.sampling == "log"

        def bins(at: ndarray) -> ndarray:
            step = wavelength.step * at
            return wavelength.start * 10**step if log else wavelength.start + step

        cells = edges = bins(np.arange(wavelength.n_wave + 1) - 0.5)
        self.redshift, self.spread = case.redshift, None
        to_vacuum = vacuum_of if wavelength.medium == "air" else np.asarray

        def kernel(at: ndarray) -> ndarray:
            """Sigma in Angstrom: the instrument's width less the library's and, where it holds it, the bin's."""
            own = (1 + case.redshift) * np.interp(
                to_vacuum(at) / (1 + case.redshift), library.rest_wavelength, library.fwhm
            )
            step = at * np.log(10) * wavelength.step if log else wavelength.step
            pixel = lsf.includes_pixel * FWHM**2 * step**2 / 12
            return np.sqrt(np.maximum(instrument_width(lsf, at) ** 2 - own**2 - pixel, 0.0)) / FWHM

        if lsf is not None and kernel(edges).max() > 0:
            reach = int(np.ceil(7 * kernel(edges).max() / np.diff(edges).min())) + 1
            cells = bins(np.arange(-reach * PARTS, (wavelength.n_wave + reach) * PARTS + 1) / PARTS - 0.5)
            middle = 0.5 * (cells[1:] + cells[:-1])
            below = (edges[:, None] - middle) / np.maximum(kernel(middle), 1e-6)
            share = np.diff(ndtr(below), axis=0)
            self.spread = scipy.sparse.csr_matrix(np.where(share > 1e-14, share, 0.0))
        self.width, self.cells = np.diff(edges), to_vacuum(cells)
        rest = np.asarray(library.rest_wavelength, dtype=np.float64)
        reach = np.exp((case.limit + 500) / C_KMS)
        low, high = np.searchsorted(rest, self.cells[[0, -1]] / (1 + case.redshift) * [1 / reach, reach])
        part = slice(max(low - 2, 0), high + 2)
        self.rest = rest[part]
        self.spectra = np.asarray(library.spectra, np.float64).reshape(-1, len(rest))[:, part]
        areas = 0.5 * (self.spectra[:, 1:] + self.spectra[:, :-1]) * np.diff(self.rest)
        self.running = np.pad(np.cumsum(areas, axis=1), ((0, 0), (1, 0)))
        self.slope = np.diff(self.spectra, axis=1) / np.diff(self.rest)

    def at(self, velocity: float) -> ndarray:
        """(template, wave) at a velocity in km/s."""
        edges = np.clip(self.cells / ((1 + self.redshift) * np.exp(velocity / C_KMS)), self.rest[0], self.rest[-1])
        node = np.clip(np.searchsorted(self.rest, edges, side="right") - 1, 0, len(self.rest) - 2)
        step = edges - self.rest[node]
        light = np.diff(
            self.running[:, node] + step * (self.spectra[:, node] + 0.5 * step * self.slope[:, node]), axis=1
        )
        return (light if self.spread is None else (self.spread @ light.T).T) / self.width


def instrument_width(lsf: Any, wavelength: ndarray) -> ndarray:
    """FWHM in Angstrom as the settings give it."""
    if lsf.polynomial is not None:
        return sum(factor * wavelength**power for power, factor in enumerate(lsf.polynomial))
    values = np.atleast_1d(lsf.fwhm or lsf.resolving_power)
    known = np.interp(wavelength, lsf.wavelength, values) if lsf.wavelength is not None else values[0]
    return known * np.ones_like(wavelength) if lsf.resolving_power is None else wavelength / known


@functools.cache
def library_of(name: str) -> Any:
    from rubix_like import load_ssp  # noqa: PLC0415

    return load_ssp(name)


def measure(case: Case, n_velocity: int = 12, seed: int = 0) -> Found:
    """Plan a run, and compare its matrix with the truth at some velocities."""
    import jax.numpy as jnp  # noqa: PLC0415

    from rubix_like import Pipeline, load_config  # noqa: PLC0415

    config = load_config(
        {
            "ssp": {"library": case.library},
            "observation": {"redshift": case.redshift, "align": "none"},
            "instrument": case.instrument,
            "engine": {
                "method": "basis",
                "velocity_range": case.limit,
                "tolerance": case.tolerance,
                "precision": "float64",
            },
        }
    )
    start = time.perf_counter()
    pipeline = Pipeline.from_config(config)
    seconds = time.perf_counter() - start
    painter, meta = pipeline.tables.paint[0].painter, pipeline.frame.meta
    good = np.asarray(pipeline.frame.wave_bits) == 0
    coefficients, step, n_node = np.asarray(painter.coefficients), float(painter.nodes.step), painter.nodes.n_node
    every = painter.coefficient_map.kept(jnp.eye(n_node * painter.rank))  # one coefficient each
    matrix = np.asarray(painter.coefficient_map.spectra()(every)).reshape(n_node, painter.rank, -1)
    exact = Exact(case, config.instrument.wavelength, config.instrument.lsf, library_of(case.library))
    distance = Planck18.luminosity_distance(case.redshift)
    unit = (constants.L_sun / (4 * np.pi * distance**2)).to_value(1e-20 * units.erg / units.s / units.cm**2)
    worst = {"velocity": 0.0, "spectrum": 0.0}
    for velocity in velocities(case.limit, step, n_node, n_velocity, seed):
        truth = unit * exact.at(velocity)[:, good]
        found = coefficients @ np.tensordot(weights(velocity / step + n_node // 2, n_node), matrix, 1)[:, good]
        level = np.where(truth.mean(axis=1) > 0, truth.mean(axis=1), np.inf)
        on_basis = coefficients @ basis_of(coefficients, truth)
        for name, error in (("spectrum", found - truth), ("velocity", found - on_basis)):
            worst[name] = max(worst[name], float((np.sqrt((error**2).mean(axis=1)) / level).max()))
    return Found(
        n_wave=matrix.shape[2],
        rank=painter.rank,
        n_node=n_node,
        stated_velocity=meta["basis_velocity_error"],
        true_velocity=worst["velocity"],
        stated_spectrum=meta["basis_spectrum_error"],
        true_spectrum=worst["spectrum"],
        seconds=seconds,
    )


def velocities(limit: float, step: float, n_node: int, number: int, seed: int) -> ndarray:
    """The limits, the middle of the first and the last interval, that of random ones, and random ones."""
    rng = np.random.default_rng(seed)
    middle = (np.arange(1, n_node - 2) + 0.5 - n_node // 2) * step
    some = rng.choice(middle, min(len(middle), number // 2 - 2), replace=False)
    return np.concatenate([[-limit, limit], middle[[0, -1]], some, rng.uniform(-limit, limit, number // 2 - 2)])


def weights(position: float, n_node: int) -> ndarray:
    """The cubic B-spline of every node at a position in steps."""
    element = BSpline.basis_element(np.arange(-2.0, 3.0), extrapolate=False)
    return np.nan_to_num(element(position - np.arange(n_node)))


def basis_of(coefficients: ndarray, spectra: ndarray) -> ndarray:
    """The basis spectra as exact spectra: the combinations of templates that they are, found from the coefficients.

    The first is the mean of the templates over their brightness; the others are projections of what is left of them,
    each over its mean.
    """
    lit = coefficients[:, 0] > 0
    brightness = coefficients[lit, :1]
    shape, ratio = spectra[lit] / brightness, coefficients[lit, 1:] / brightness
    center, scale = shape.mean(axis=0), 1 / shape.mean(axis=1, keepdims=True)
    rows, size = scale * ratio, np.linalg.norm(scale * ratio, axis=0)
    rows, left = rows / size, scale * (shape - center)
    return np.concatenate([center[None], np.linalg.solve(rows.T @ rows, rows.T @ left) / size[:, None]])


def main() -> None:
    import jax  # noqa: PLC0415

    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--only", choices=TABLE, help="one row of the table")
    options = parser.parse_args()
    print("| library | window | bins | spectra | nodes | velocity: stated | true | all: stated | true | plan s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        rows = TABLE if options.only is None else {options.only: TABLE[options.only]}
        named = {name: Case(*own, LIMIT, 1e-3) for name, own in rows.items()}
        if options.random:
            libraries = [thinned(name, Path(folder)) for name in ("bc03-miles", "bc03-lr", "popstar")]
            cases = random_cases(libraries, options.random)
            named = {f"{n} {c.instrument['name']} {c.instrument['wavelength']}": c for n, c in enumerate(cases)}
        for name, case in named.items():
            found = measure(case)
            errors = " | ".join(f"{value:.2e}" for value in found[3:7])
            sizes = f"{found.n_wave} | {found.rank} | {found.n_node}"
            print(
                f"| {Path(case.library).stem} | {name.strip()} | {sizes} | {errors} | {found.seconds:.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
