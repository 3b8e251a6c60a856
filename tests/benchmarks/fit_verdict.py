"""How often a fit's verdict is silent where the model is true, and whether it tells faults of the model and the data.

    python tests/benchmarks/fit_verdict.py [--case CASE ...] [--seeds FIRST LAST] [--output verdict.json]

A synthetic disc (10 x 10 spaxels of 0.5", 300 bins of 3 Angstrom, bc03-miles, S/N 30 in the median bin of the brightest
spaxel) is fitted by Gauss-Newton steps from the truth, which is drawn from the priors; all mocks of a case share the
compiled programs. Each seed of each case is one mock; what was judged is in the output, and is not judged again.

Mocks of the true model: `wide` (14 numbers free), `narrow` (10), `few` (5), `polynomial` (5, with `fit.polynomial`),
`draws` (5, mocks with base draws of their own, fitted with `fit.model_error`) and `fibres` (a disc behind 19 fibres in
three exposures; 5).

Faults, in fits of the 10 numbers: `bulge` (the model has none), `a_v` (0.3 mag in the model), `psf` (FWHM 2.5" in the
model), `sky` (a spectrum of the sky left in all spaxels), `sky_level` (the same in all bins), `bins` (20 neighbouring
bins too bright), `dispersion` (150 km/s for 80 km/s), `library`, `library_lr` (a part of the light is that of popstar,
of bc03-lr). Each is so large that the free value which moves most moves by 3 of its stated errors in a fit without
noise; of `dispersion` the S/N of the data is chosen so. Of given sizes: `errors` (1.4 times as large as stated),
`bulge_given` (0.2), `a_v_given` (0.3 mag more), `psf_given` (0.3" more), `library_given` (all light is of popstar).
"""

import argparse
import dataclasses
import functools
import json
import os
from pathlib import Path

import equinox as eqx
import fibre_fits
import jax
import jax.numpy as jnp
import numpy as np
from fit_calibration import FREE as CALIBRATED
from fit_calibration import draw_mock, loss_of, make_problem, model_of

from rubix_like import Pipeline, load_config, load_galaxy, log_posterior
from rubix_like.inference.best_fit import describe_best
from rubix_like.inference.posterior.model_error import with_model_error
from rubix_like.inference.posterior.posterior import normal_equations

SMALL = {"fov": "3 arcsec", "psf": {"fwhm": "1.5 arcsec"}, "wavelength": {"start": 3800, "step": 15, "stop": 4685}}
LARGER = {"fov": "5 arcsec", "psf": {"fwhm": "2.5 arcsec"}, "wavelength": {"start": 3800, "step": 3, "stop": 4697}}
ASSUMED = {"dust.a_v": 0.3, "instrument.psf.fwhm": 2.5, "galaxy.bulge_fraction": 0.0, "galaxy.disc_dispersion": 80.0}
"""Of the fits of 10 numbers."""

FEW = {
    **{name: CALIBRATED[name] for name in ("observation.inclination", "observation.position_angle")},
    **{name: own for name, own in CALIBRATED.items() if name.startswith("galaxy.") and "rotation" not in name},
}
NARROW = {name: own for name, own in CALIBRATED.items() if name not in ASSUMED}
NARROW["galaxy.disc_metallicity"] = {"log_uniform": [0.008, 0.04]}
WIDE = {
    **NARROW,
    "dust.a_v": {"uniform": [0, 1]},
    "instrument.psf.fwhm": {"uniform": ["2 arcsec", "3 arcsec"]},
    "galaxy.bulge_fraction": {"uniform": [0, 0.5]},
    "galaxy.disc_dispersion": {"uniform": [40, 200]},
}
SILENT = {"wide": 60, "narrow": 50, "few": 30, "polynomial": 20, "fibres": 40, "draws": 20}
"""Cases of the true model, and how many mocks of each are judged."""

CHOSEN = {
    "bulge": (0.02, 0.45),
    "a_v": (0.02, 0.65),
    "psf": (0.02, 0.45),
    "sky": (0.1, np.inf),
    "sky_level": (0.1, np.inf),
    "bins": (0.3, np.inf),
    "dispersion": (6.0, np.inf),
    "library": (0.02, 1.0),
    "library_lr": (0.02, 1.0),
}
"""Faults whose size is chosen: the first that is tried, and the largest, in units of the fraction of the mass, mag,
arcsec, stated errors; of `dispersion` the S/N of the data; of libraries the fraction of the light."""

GIVEN = {"errors": 1.4, "bulge_given": 0.2, "a_v_given": 0.3, "psf_given": 0.3, "library_given": 1.0}
"""Faults of a size that is given, in the same units; stated errors are to be multiplied by that of `errors`."""

N_SEED, MOVED, N_BAD, SIGNAL_TO_NOISE = 20, 3.0, 20, 30.0
_STEPS, _ENOUGH, _TRIES, _NEAR = 60, 1e-3, 5, 0.15


@functools.cache
def problem_of(kind):
    """The problem of a case of the true model, or of a library; its data are replaced by those of mocks."""
    if kind == "fibres":
        config = fibre_fits.configuration(n_wave=60)
        config["fit"]["free"]["observation.position_angle"] = {"uniform": [90, 150]}
        config["fit"]["free"]["galaxy.disc.population.log_age"] = {"normal": [9.5, 0.1]}
        loaded = load_config(config)
        cube = Pipeline.from_config(loaded)(load_galaxy(loaded))
        return log_posterior(config, {"manga": {"fibres": cube}}).problem
    if kind in ("few", "polynomial", "draws"):
        settings = {"polynomial": {"degree": 6, "sigma": 0.05}} if kind == "polynomial" else {}
        return make_problem(n_stars=1000, instrument=SMALL, starts=1, free=FEW, settings=settings)
    free, ssp = (WIDE if kind == "wide" else NARROW), {"library": "popstar", "library_lr": "bc03-lr"}
    assumed = {name: value for name, value in ASSUMED.items() if name.startswith("galaxy.")}
    return make_problem(
        n_stars=2000, instrument=LARGER, ssp=ssp.get(kind, "bc03-miles"), starts=1, free=free, model=assumed
    )


_normal_equations = jax.jit(normal_equations)


def equations_of(posterior, latent):
    """J^T J + 1 and J^T r + latent."""
    return tuple(np.asarray(own, np.float64) for own in _normal_equations(posterior, jnp.asarray(latent)))


def best_from(posterior, latent):
    """The maximum by Gauss-Newton steps, damped (Levenberg-Marquardt) where they lead up, and by how much a last
    undamped one would raise it."""
    at, damping = np.asarray(latent), 0.0
    loss = float(loss_of(posterior, jnp.asarray(at)))
    matrix, gradient = equations_of(posterior, at)
    for _ in range(_STEPS):
        trial = at - np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
        lower = float(loss_of(posterior, jnp.asarray(trial)))
        if not lower < loss:
            damping = max(10 * damping, 1e-3)
        else:
            at, loss, damping = trial, lower, damping / 10 if damping > 1e-4 else 0.0
            matrix, gradient = equations_of(posterior, at)
        gain = float(0.5 * gradient @ np.linalg.solve(matrix, gradient))
        if gain < _ENOUGH:
            break
    return at, gain


def with_data(problem, flux, inverse_sigma):
    """The problem with these data."""
    leaves = (jnp.asarray(flux), jnp.asarray(inverse_sigma))
    posterior = eqx.tree_at(lambda p: (p.likelihood.flux, p.likelihood.inverse_sigma), problem.posterior, leaves)
    return dataclasses.replace(problem, posterior=posterior)


def flux_of(problem, latent):
    """The model's."""
    return np.asarray(model_of(problem.posterior, jnp.asarray(latent)), np.float64)


def error_of(flux, signal_to_noise):
    """One for all voxels: of the median bin of the brightest spaxel."""
    brightest = np.unravel_index(flux.mean(axis=2).argmax(), flux.shape[:2])
    return np.median(flux[brightest]) / signal_to_noise


def fault_of(case, values, shape, generator):
    """By size, what is wrong in the data: of units of the flux, or of the error (True)."""
    if case == "sky":
        spectrum = np.random.default_rng(5).standard_normal(shape[2])
        return lambda size: (size * np.broadcast_to(spectrum, shape), True)
    if case == "sky_level":
        return lambda size: (np.full(shape, size), True)
    if case == "bins":
        first = int(generator.integers(shape[2] - N_BAD))
        place = (np.arange(shape[2]) >= first) & (np.arange(shape[2]) < first + N_BAD)
        return lambda size: (size * np.broadcast_to(place.astype(float), shape), True)
    if case.startswith("library"):
        changed, same = (problem_of(kind) for kind in (case, "narrow"))
        fluxes = [flux_of(own, own.posterior.free.latent(values)) for own in (changed, same)]
        return lambda size: (size * (fluxes[0] - fluxes[1]), False)
    maker, narrow = problem_of("wide"), values | ASSUMED | {"galaxy.bulge_fraction": 1e-6}
    names = {"bulge": "galaxy.bulge_fraction", "a_v": "dust.a_v", "psf": "instrument.psf.fwhm"}
    name = names.get(case, "galaxy.disc_dispersion")
    before = flux_of(maker, maker.posterior.free.latent(narrow))

    def changed_by(size):
        value = 150.0 if case == "dispersion" else narrow[name] + size
        return flux_of(maker, maker.posterior.free.latent(narrow | {name: value})) - before, False

    return changed_by


def spoilt(case, seed):
    """A problem with a mock that has a fault: its truth, the fault's size, and the moves of the values by it."""
    problem, generator = problem_of("narrow"), np.random.default_rng([12, seed])
    free = problem.posterior.free
    truth = generator.standard_normal(free.n_latent)
    flux = flux_of(problem, truth)
    noise = generator.standard_normal(flux.shape)
    size, largest = CHOSEN.get(case) or (GIVEN[case], GIVEN[case])
    if case == "errors":
        error = error_of(flux, SIGNAL_TO_NOISE)
        mock = with_data(problem, flux + size * error * noise, np.full(flux.shape, 1 / error))
        return mock, truth, size, np.zeros(len(truth)), float("nan")
    fault = fault_of(case.removesuffix("_given"), free.values(truth), flux.shape, generator)
    error, after = error_of(flux, size if case == "dispersion" else SIGNAL_TO_NOISE), truth
    for attempt in range(_TRIES + 1):
        if attempt == 0 or case == "dispersion":
            error = error_of(flux, size if case == "dispersion" else SIGNAL_TO_NOISE)
            before, _ = best_from(with_data(problem, flux, np.full(flux.shape, 1 / error)).posterior, truth)
        wrong, in_errors = fault(size)
        wrong = wrong * error if in_errors else wrong
        shift, left, after = shift_by(problem, (before, after), flux, wrong, error)
        if case in GIVEN or attempt == _TRIES or abs(np.abs(shift).max() - MOVED) < _NEAR:
            break
        size = min(size * np.clip(MOVED / np.abs(shift).max(), 0.2, 5), largest)
    mock = with_data(problem, flux + wrong + error * noise, np.full(flux.shape, 1 / error))
    return mock, truth, size, shift, left


def shift_by(problem, latents, flux, wrong, error):
    """The moves of the latents by a fault alone, without noise, in their stated errors; the norm of what the fault
    leaves in the residuals, in their errors: no test of the data can see more of it; and the latents there.

    `latents`: the best ones without the fault, and some to begin at.
    """
    faulty = with_data(problem, flux + wrong, np.full(flux.shape, 1 / error)).posterior
    after, _ = best_from(faulty, latents[1])
    sigma = np.sqrt(np.diag(np.linalg.inv(equations_of(faulty, after)[0])))
    left = np.linalg.norm((flux + wrong - flux_of(problem, after)) / error)
    return (after - latents[0]) / sigma, float(left), after


def true_mock(case, seed):
    """A problem with a mock of the true model, and its truth."""
    problem = problem_of(case)
    if case != "fibres":
        return draw_mock(problem, seed, case == "draws", SIGNAL_TO_NOISE)[::-1]
    generator, posterior = np.random.default_rng([11, seed]), problem.posterior
    truth = generator.standard_normal(posterior.free.n_latent)
    inverse_sigma, flux = np.asarray(posterior.likelihood.inverse_sigma, np.float64), flux_of(problem, truth)
    noise = generator.standard_normal(flux.shape) / np.where(inverse_sigma > 0, inverse_sigma, 1.0)
    return with_data(problem, flux + noise, inverse_sigma), truth


def judge(case, seed):
    """The verdict on one mock."""
    size, shift, seen = 0.0, None, float("nan")
    if case in SILENT:
        problem, truth = true_mock(case, seed)
    else:
        problem, truth, size, shift, seen = spoilt(case, seed)
    latent, left = best_from(problem.posterior, truth)
    if case == "draws":
        problem = with_model_error(problem, jnp.asarray(latent))
        latent, left = best_from(problem.posterior, latent)
    found = describe_best(problem, latent)
    verdict, labels = found.verdict, problem.posterior.free.labels
    off = (latent - truth) / found.laplace.sigma
    most = int(np.argmax(np.abs(off if shift is None or not shift.any() else shift)))
    return {
        "misfit": verdict.misfit,
        "matters": verdict.matters,
        "p": verdict.p,
        "tests": dict(verdict.tests),
        "reduced": verdict.reduced,
        "left": left,
        "free": len(labels),
        "size": float(size),
        "shift": float(np.abs(off if shift is None or not shift.any() else shift).max()),
        "seen": seen,
        "value": labels[most],
        "off": float(off[most]),
        "moved": float(verdict.moved[most]),
        "enlarged": float(verdict.enlarged[most]),
        "marked": bool(verdict.doubtful[np.abs(off) >= 1].all()),
        "held": float(np.mean(np.abs(off / verdict.enlarged) < 2)),
        "text": verdict.sentence,
    }


def spread(numbers, form=".2g"):
    """The median and the range; a dash where they are not known."""
    if not np.isfinite(numbers).all():
        return "-"
    middle, low, high = (format(own, form) for own in np.quantile(numbers, [0.5, 0, 1]))
    return middle if low == high else f"{middle} ({low} to {high})"


def most_often(words):
    """The word that comes most often."""
    return max(sorted(set(words)), key=words.count) if words else ""


COLUMNS = {
    "mocks": len,
    "numbers free": lambda rows: rows[0]["free"],
    "chi^2/dof": lambda rows: f"{np.median([own['reduced'] for own in rows]):.3f}",
    "silent": lambda rows: sum(not own["misfit"] for own in rows),
    "size": lambda rows: spread([own["size"] for own in rows]),
    "moves most": lambda rows: most_often([own["value"] for own in rows]),
    "by (errors)": lambda rows: spread([own["shift"] for own in rows]),
    "left in the residuals": lambda rows: spread([own["seen"] for own in rows]),
    "told": lambda rows: sum(own["misfit"] for own in rows),
    "marked": lambda rows: sum(own["misfit"] and own["marked"] for own in rows),
    "by the test": lambda rows: most_often([min(own["tests"], key=own["tests"].get) for own in rows if own["misfit"]]),
    "errors times": lambda rows: spread([own["enlarged"] for own in rows]),
    "truth within two of them": lambda rows: f"{np.mean([own['held'] for own in rows]):.0%}",
    "search not at its end": lambda rows: sum(own["left"] >= _ENOUGH for own in rows),
}
OF_SILENCE = ("mocks", "numbers free", "chi^2/dof", "silent", "search not at its end")
OF_FAULTS = tuple(name for name in COLUMNS if name not in ("numbers free", "silent"))


def show(found):
    """Both tables, in Markdown."""
    for cases, columns in ((SILENT, OF_SILENCE), ((*CHOSEN, *GIVEN), OF_FAULTS)):
        chosen = [case for case in cases if found.get(case)]
        if chosen:
            print(f"\n| case | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
        for case in chosen:
            rows = list(found[case].values())
            print(f"| `{case}` | {' | '.join(str(COLUMNS[name](rows)) for name in columns)} |", flush=True)


def main():
    """Judge what is not judged yet, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = (*SILENT, *CHOSEN, *GIVEN)
    parser.add_argument("--case", nargs="+", default=cases, choices=cases)
    parser.add_argument("--seeds", nargs=2, type=int, metavar=("FIRST", "LAST"), help="default: all of each case")
    parser.add_argument("--output", type=Path, default=Path("verdict.json"))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = json.loads(given.output.read_text()) if given.output.exists() else {}
    for case in given.case:
        rows = found.setdefault(case, {})
        first, last = given.seeds or (0, SILENT.get(case, N_SEED) - 1)
        for seed in (seed for seed in range(first, last + 1) if str(seed) not in rows):
            rows[str(seed)] = judge(case, seed)
            draft = given.output.with_suffix(".part")
            draft.write_text(json.dumps(found))
            os.replace(draft, given.output)
            print(f"{case}, seed {seed}: {rows[str(seed)]['text']}", flush=True)
    show(found)


if __name__ == "__main__":
    main()
