"""Smooth components fitted to the cube of `tests/foreign_cube.py`: pulls over seeds of its noise.

    export PYTHONPATH=tests:tests/benchmarks
    python tests/benchmarks/fits/foreign_components.py [--seeds 20] [--first 1] [--points N]

Prints every parameter's mean pull, its scatter and the largest, chi^2 of all pulls of each parameter with its p, and
what is missed of: no pull beyond 4.5, mean pulls within 3 / sqrt(seeds), p above 0.01. With --points also
2 [ln P(best) - ln P(truth)] of the seeds; it follows chi^2 with one degree of freedom per parameter.
"""

import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from foreign_cube import TRUTH, write_foreign_cube
from measuring import described
from scipy import stats

from rubix_like import fit, log_posterior

OF_SYNTHETIC = {
    "galaxy.disc.mass": "galaxy.stellar_mass",
    "galaxy.disc.light.scale_length": "galaxy.disc_scale_length",
    "galaxy.disc.rotation.velocity": "galaxy.rotation_velocity",
    "galaxy.disc.rotation.turnover_radius": "galaxy.turnover_radius",
    "galaxy.disc.dispersion": "galaxy.disc_dispersion",
    "galaxy.disc.population.log_age": "galaxy.disc_log_age",
}
"""Parameter -> its name in the truth."""

FREE = {
    "observation.inclination": {"uniform": ["20 deg", "80 deg"]},
    "observation.position_angle": {"uniform": ["30 deg", "210 deg"]},
    "observation.velocity_offset": {"normal": [0, "200 km/s"]},
    "instrument.psf.fwhm": {"uniform": ["0.5 arcsec", "1.5 arcsec"]},
    "galaxy.disc.mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc.light.scale_length": {"log_uniform": ["0.3 kpc", "3 kpc"]},
    "galaxy.disc.rotation.velocity": {"uniform": ["50 km/s", "450 km/s"]},
    "galaxy.disc.population.log_age": {"uniform": [8.5, 10.1]},
}
"""Turnover radius and dispersion are held: spectra as broad as popstar's say little of them."""

START = {"observation.inclination": 40, "observation.position_angle": 100, "galaxy.disc.light.scale_length": 1.1}


def true(name):
    """The true value of a parameter."""
    return TRUTH[OF_SYNTHETIC.get(name, name)]


def configuration(points=None, start=START, **fit_settings):
    """The foreign cube's disc as a smooth component, with other values of what is free."""
    disc = {
        "name": "disc",
        "mass": "1.2e10 Msun",
        "light": {"profile": "exponential", "scale_length": "1 kpc"},
        "height": {"profile": "thin"},
        "rotation": {"curve": "arctan", "velocity": "180 km/s", "turnover_radius": "0.4 kpc"},
        "dispersion": "45 km/s",
        "population": {"log_age": 9.3, "metallicity": 0.02},
    }
    return {
        "galaxy": {"reader": "components", "points": points, "components": [disc]},
        "ssp": {"library": "popstar"},
        "observation": {"redshift": 0.02, "inclination": 45, "position_angle": 90},
        "instrument": {"name": "muse", "psf": {"kind": "gaussian", "fwhm": 1.0}, "lsf": None},
        "pipeline": "stellar",
        "engine": {"method": "basis", "velocity_range": 1000},
        "devices": {"data": 1},
        "fit": {"free": FREE, "start": start, "starts": 1, **fit_settings},
    }


def pulls_of(result):
    """(best - true) / sigma of every parameter."""
    return np.array([float((result.values[name] - true(name)) / result.sigma[name]) for name in FREE])


def log_posterior_drop(result, cube, points):
    """2 [ln P(best) - ln P(truth)]."""
    posterior = log_posterior(configuration(points), cube)
    truth = posterior.to_unconstrained({name: true(name) for name in FREE})
    return 2 * float(posterior(result.latent) - posterior(truth))


def report(pulls, drops):
    """Print the table, and whether all is as it should be."""
    count = len(pulls)
    print(f"{'parameter':40s} mean pull  scatter  largest   chi^2      p")
    for name, own in zip(FREE, pulls.T, strict=True):
        square = float((own**2).sum())
        p = stats.chi2.sf(square, count)
        missed = " missed" if abs(own).max() > 4.5 or abs(own.mean()) > 3 / np.sqrt(count) or p < 0.01 else ""
        print(
            f"{name:40s} {own.mean():+9.2f} {own.std(ddof=1):8.2f} {abs(own).max():8.2f} {square:7.1f} {p:6.3f}{missed}"
        )
    if drops:
        p = stats.kstest(stats.chi2.sf(drops, len(FREE)), "uniform").pvalue
        mean = np.mean(drops)
        print(f"2 [ln P(best) - ln P(truth)]: {mean:.1f} in the mean, at most {max(drops):.1f}; p (KS) {p:.3f}")


def main():
    """Fit the cube with each seed."""
    parser = described(__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--points", type=int, default=None)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    pulls, drops = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.seeds):
            cube, begun = write_foreign_cube(Path(folder) / "foreign.fits", seed=seed), time.process_time()
            result = fit(configuration(given.points), cube)
            pulls.append(pulls_of(result))
            if given.points is not None:
                drops.append(log_posterior_drop(result, cube, given.points))
            quadrature = next(note for note in result.notes if "quadrature" in note)
            seconds = time.process_time() - begun
            print(f"seed {seed}: {np.round(pulls[-1], 2)} {seconds:.1f} s; {quadrature}", flush=True)
    report(np.array(pulls), drops)


if __name__ == "__main__":
    main()
