"""Time and memory of Jacobians, and of a fit end to end (of gradients by every star: `engine.py --tables peer`).

    python tests/benchmarks/fitting.py                                  # both tables, as Markdown
    python tests/benchmarks/fitting.py --tables jacobian fit --repeat 3

Every row runs in a process of its own and prints one JSON line; times are after block_until_ready, medians, with the
processor time (of all cores) beside the wall time. `jacobian`: of a cube of the synthetic galaxy by 12 parameters, on
RUBIX's MUSE grid (`engine.CONFIG`). `fit`: that cube with noise, fitted from starts drawn from the prior. Needs
`rubix-like ssp get bc03-lr`.
"""

import argparse
import copy
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from engine import CONFIG
from measuring import described, peak_gb, run_row, show

from rubix_like import load_config, log_posterior, run
from rubix_like.inference.posterior.posterior import jacobian, normal_equations
from rubix_like.inference.search.search import search

PRIORS = {
    "observation.inclination": {"normal": [50, 10]},
    "observation.position_angle": {"normal": [30, 10]},
    "observation.offset": {"normal": [0, 0.2]},
    "observation.velocity_offset": {"normal": [0, 20]},
    "instrument.psf.fwhm": {"log_normal": [0.7, 0.03]},
    "dust.a_v": {"log_normal": [0.5, 0.2]},
    "galaxy.stellar_mass": {"log_normal": [1e10, 0.3]},
    "galaxy.disc_scale_length": {"log_normal": [1.5, 0.1]},
    "galaxy.rotation_velocity": {"log_normal": [180, 0.1]},
    "galaxy.disc_dispersion": {"log_normal": [30, 0.1]},
    "galaxy.disc_log_age": {"normal": [9.6, 0.1]},
    "galaxy.disc_metallicity": {"log_normal": [0.02, 0.1]},
}
"""Twelve names, thirteen numbers."""

TRUTH = {"inclination": 55.0, "position_angle": 25.0, "offset": [0.1, -0.1], "velocity_offset": 10.0}


def timed(function: Any, repeat: int) -> dict[str, float]:
    """Seconds of the first call, and of the median of further ones with their processor time."""
    times = []
    for _ in range(repeat + 1):
        start, before = time.perf_counter(), sum(os.times()[:2])
        jax.block_until_ready(function())
        times.append((time.perf_counter() - start, sum(os.times()[:2]) - before))
    return {
        "first": times[0][0],
        "run": statistics.median(wall for wall, _ in times[1:]),
        "processor": statistics.median(own for _, own in times[1:]),
    }


def settings(row: dict[str, Any]) -> dict[str, Any]:
    """A run of the synthetic galaxy on RUBIX's MUSE grid, with a PSF and dust."""
    config: dict[str, Any] = copy.deepcopy(CONFIG)
    wavelength = config["instrument"]["wavelength"]
    span = wavelength["stop"] - wavelength["start"]
    config["instrument"]["wavelength"] = wavelength | {"step": span / (row["n_wave"] - 1)}
    config["instrument"]["psf"] = {"fwhm": 0.7}
    config["galaxy"] = {"reader": "synthetic", "n_stars": int(row["size"]), "seed": 1}
    config["observation"] = {"redshift": 0.05, "align": "none", "inclination": 50.0, "position_angle": 30.0}
    return config | {"dust": {"a_v": 0.5}, "engine": {"method": "basis", "deposit": "tsc"}}


def pose_fit(row: dict[str, Any], folder: Path, settings_of_fit: dict[str, Any]) -> Any:
    """The posterior of a fit to a noisy cube of the same galaxy, seen differently."""
    config = settings(row)
    seen = copy.deepcopy(config)
    seen["observation"] |= TRUTH
    seen |= {"noise": {"signal_to_noise": 30, "seed": 2}, "output": {"path": str(folder / "data.fits")}}
    run(load_config(seen))
    return log_posterior(load_config(config), folder / "data.fits", PRIORS, **settings_of_fit).problem


def measure_jacobian(row: dict[str, Any]) -> dict[str, Any]:
    """Residuals alone, loss and gradient in reverse mode, and the Jacobian: in turn, or all columns at once."""
    with tempfile.TemporaryDirectory() as folder:
        posterior = pose_fit(row, Path(folder), {}).posterior
    ways = {
        "residuals": lambda posterior, latent: posterior.residuals(latent),
        "gradient": lambda posterior, latent: jax.value_and_grad(posterior.loss)(latent),
        "in turn": jacobian,
        "at once": lambda posterior, latent: jax.jacfwd(posterior.residuals)(latent),
        "normal equations": normal_equations,
    }
    way, latent = jax.jit(ways[row["way"]]), 0.1 * jnp.ones(posterior.free.n_latent)
    found = timed(lambda: way(posterior, latent), row["repeat"])
    return found | {"peak_gb": peak_gb(), "n_latent": posterior.free.n_latent}


def measure_fit(row: dict[str, Any]) -> dict[str, Any]:
    """Planning, the choice of a start, the first step with its compilation, the other steps, and everything."""
    begin, before = time.perf_counter(), sum(os.times()[:2])
    with tempfile.TemporaryDirectory() as folder:
        problem = pose_fit(row, Path(folder), {"starts": 1})
    marks, last = [time.perf_counter()], None
    for last in search(problem):  # noqa: B007 (the last one is used)
        marks.append(time.perf_counter())
    assert last is not None
    steps = [later - earlier for earlier, later in itertools.pairwise(marks)]
    return {
        "plan": marks[0] - begin,
        "choose": steps[0],
        "first": steps[1],
        "step": statistics.median(steps[2:]),
        "n_step": len(steps) - 1,
        "run": marks[-1] - begin,
        "processor": sum(os.times()[:2]) - before,
        "peak_gb": peak_gb(),
        "loss": float(last.loss[last.best]),
        "reason": last.reasons()[last.best],
    }


MEASURES = {"jacobian": measure_jacobian, "fit": measure_fit}


def table_jacobian(options: argparse.Namespace) -> None:
    table = []
    for n_wave in options.bins:
        for way in ("residuals", "gradient", "in turn", "at once", "normal equations"):
            row = {"measure": "jacobian", "size": 1e5, "n_wave": n_wave, "way": way, "repeat": options.repeat}
            row = run_row(__file__, row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            table.append([n_wave, way, *(row.get(key) for key in ("first", "run", "processor", "peak_gb"))])
    columns = ["bins", "what", "first call s", "s", "processor s", "peak GB"]
    show("Derivatives by 13 parameters (1e5 particles, 25 x 25 spaxels, tsc)", columns, table)


def table_fit(options: argparse.Namespace) -> None:
    keys = ("plan", "choose", "first", "step", "n_step", "run", "processor", "peak_gb", "reason")
    table = []
    for n_wave in options.bins:
        row = run_row(__file__, {"measure": "fit", "size": 1e5, "n_wave": n_wave})
        print(json.dumps(row), file=sys.stderr, flush=True)
        table.append([n_wave, *(row.get(key) for key in keys)])
    columns = ["bins", "mock and plan s", "choice of a start s", "first step s", "step s", "steps"]
    columns += ["everything s", "processor s", "peak GB", "it"]
    show("A fit of 13 parameters from one start (1e5 particles, 25 x 25 spaxels, tsc)", columns, table)


TABLES = {"jacobian": table_jacobian, "fit": table_fit}


def main() -> None:
    parser = described(__doc__)
    parser.add_argument("--tables", nargs="+", choices=tuple(TABLES), default=list(TABLES))
    parser.add_argument("--bins", nargs="+", type=int, default=[1000, 3721])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        row = json.loads(options.row)
        print(json.dumps(MEASURES[row["measure"]](row)))
        return
    for name in options.tables:
        TABLES[name](options)


if __name__ == "__main__":
    main()
