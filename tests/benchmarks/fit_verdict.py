"""How often a fit's verdict is silent where the model is true, and what it finds where the model is wrong.

    python tests/benchmarks/fit_verdict.py [--mocks 200] [--case true] [--output verdict.json]

Mocks of a synthetic galaxy (6 x 6 spaxels, 60 bins, 1000 stars, S/N 30; 5 numbers free, true values drawn from their
priors) are fitted by Gauss-Newton steps from the truth; all mocks of a case share the compiled programs. Cases: `true`;
`scale` and `polynomial`, with `fit.noise_scale` and `fit.polynomial`; `draws`: mocks with base draws of their own,
fitted with `fit.model_error`; and models that are wrong, one each: another fraction in the bulge, another turnover
radius, a metallicity gradient, errors that are 10 % too small, a spectrum of the sky left in.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from fit_calibration import draw_mock, loss_of, make_problem

from rubix_like.inference.best_fit import describe_best
from rubix_like.inference.posterior.model_error import with_model_error
from rubix_like.inference.posterior.posterior import normal_equations

SMALL = {"fov": "3 arcsec", "psf": {"fwhm": "1.5 arcsec"}, "wavelength": {"start": 3800, "step": 15, "stop": 4685}}
FREE = {
    "observation.inclination": {"uniform": ["30 deg", "70 deg"]},
    "observation.position_angle": {"uniform": ["10 deg", "80 deg"]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc_scale_length": {"log_uniform": ["0.5 kpc", "1.5 kpc"]},
    "galaxy.disc_log_age": {"uniform": [9.3, 9.9]},
}
SETTINGS = {
    "scale": {"noise_scale": {"log_uniform": [0.5, 2]}},
    "polynomial": {"polynomial": {"degree": 6, "sigma": 0.05}},
}
WRONG = {
    "bulge_fraction": 0.35,
    "turnover_radius": 2.0,
    "disc_metallicity_gradient": -0.1,
    "errors": 1.1,
    "sky": 0.3,
}
"""Cases whose mocks are not of the model: values of the galaxy's parameters; of the noise in units of the stated; of
the sky's spectrum in units of the noise."""

_STEPS = 12
_ENOUGH = 1e-3


def of_case(case):
    """(the problem, mocks with other draws, what is wrong with them)."""
    problem = make_problem(n_stars=1000, instrument=SMALL, starts=1, free=FREE, settings=SETTINGS.get(case, {}))
    return problem, case == "draws", {case: WRONG[case]} if case in WRONG else {}


def spoilt(problem, own, truth, wrong, number):
    """The mock with what is wrong about it."""
    for name, value in wrong.items():
        likelihood, generator = own.posterior.likelihood, np.random.default_rng([12, number])
        sigma = 1 / np.asarray(likelihood.inverse_sigma)
        if name in ("errors", "sky"):
            noise = np.sqrt(max(value**2 - 1, 0)) if name == "errors" else 0.0
            flux = likelihood.flux + noise * sigma * generator.standard_normal(sigma.shape)
            if name == "sky":
                flux = flux + value * sigma * np.random.default_rng(5).standard_normal(sigma.shape[2])
        else:
            base = problem.posterior.forward.source.base
            other = dataclasses.replace(base, **{name: jnp.asarray(value, getattr(base, name).dtype)})
            maker = eqx.tree_at(lambda p: p.forward.source.base, problem.posterior, other)
            flux = likelihood.flux + _model(maker, truth) - _model(problem.posterior, truth)
        posterior = eqx.tree_at(lambda p: p.likelihood.flux, own.posterior, jnp.asarray(flux))
        own = dataclasses.replace(own, posterior=posterior)
    return own


@jax.jit
def _model(posterior, latent):
    """Flux."""
    return posterior.model(latent).astype(float)


_normal_equations = jax.jit(normal_equations)


def best_from(posterior, latent):
    """The maximum by Gauss-Newton steps, halved where they lead up, and by how much a last one would raise it."""
    at = np.asarray(latent)
    loss = float(loss_of(posterior, jnp.asarray(at)))
    for _ in range(_STEPS):
        matrix, gradient = (np.asarray(own) for own in _normal_equations(posterior, jnp.asarray(at)))
        step = -np.linalg.solve(matrix, gradient)
        gain = float(-0.5 * step @ gradient)
        for half in range(5):
            trial = at + step * 0.5**half
            lower = float(loss_of(posterior, jnp.asarray(trial)))
            if lower < loss:
                at, loss = trial, lower
                break
        if gain < _ENOUGH:
            break
    return at, gain


def judge(problem, number, other, wrong):
    """The verdict on one mock."""
    truth, own = draw_mock(problem, number, other)
    own = spoilt(problem, own, truth, wrong, number)
    latent, left = best_from(own.posterior, truth)
    if other:
        own = with_model_error(own, jnp.asarray(latent))
        latent, left = best_from(own.posterior, latent)
    verdict = describe_best(own, latent).verdict
    return {
        "p": verdict.p,
        "tests": verdict.tests,
        "misfit": verdict.misfit,
        "matters": verdict.matters,
        "doubtful": int(verdict.doubtful.sum()),
        "reduced": verdict.reduced,
        "left": left,
        "text": verdict.sentence,
    }


def row(case, rows):
    """A line of the table."""
    found, matter = sum(own["misfit"] for own in rows), sum(own["matters"] for own in rows)
    reduced = np.median([own["reduced"] for own in rows])
    worst = [min(own["tests"], key=own["tests"].get) for own in rows]
    most = max(set(worst), key=worst.count)
    return f"| {case} | {len(rows)} | {reduced:.3f} | {len(rows) - found} | {found} | {matter} | {most} |"


def main():
    """Judge, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mocks", type=int, default=200)
    parser.add_argument("--case", nargs="+", default=["true"], choices=("true", "draws", *SETTINGS, *WRONG))
    parser.add_argument("--output", type=Path, default=Path("verdict.json"))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("| case | mocks | chi^2/dof | silent | misfit | matters | most often first |\n|---|---|---|---|---|---|---|")
    found = {}
    for case in given.case:
        begin = time.process_time()
        problem, other, wrong = of_case(case)
        found[case] = [judge(problem, number, other, wrong) for number in range(given.mocks)]
        print(f"{row(case, found[case])} {time.process_time() - begin:.0f} s of processor time", flush=True)
        given.output.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
