"""How often a fit of a smooth component gets to one place from any start: cubes of numpy, many seeds of the starts.

    export PYTHONPATH=tests:tests/benchmarks
    python tests/benchmarks/fits/starts_components.py [--seeds 10] [--cases 20:10 50:30]

The discs are those of `tests/foreign_cube.py` (numpy alone), on 12 x 12 spaxels, at inclinations of 20, 50 and 80 deg
with S/N 10 and 50 in the brightest voxel. Eight numbers are free, with wide priors, and nothing is given to start at.
Seeds change the guesses that the search begins with; the cube of a case is the same, so that one compiled program
serves all. A fit has reached the best place when its loss is within 1 of the lowest that is known: of all seeds and of
a search begun at the truth. `two optima told`: how many results say that there are several; `missed`: how many have not
reached the best place and say nothing. `off`: the largest difference of a value from the truth in standard deviations,
of the place that is nearest to it, in any of the fits.
"""

import itertools
import tempfile
from pathlib import Path

import foreign_cube
import jax
import numpy as np
from fit_starts import ends_of
from foreign_components import OF_SYNTHETIC, configuration
from measuring import described, head

from rubix_like import load_config, log_posterior
from rubix_like.inference.best_fit import describe_best
from rubix_like.inference.checks.notes import other_optima, trouble_of

CASES = tuple(itertools.product((20, 50, 80), (10, 50)))
SMALL = {"N_SPAXEL": 12, "MARGIN": 6, "FINE": 10, "FIRST": 5150.0, "LAST": 5400.0, "STEP": 2.5}
ANGLE, VELOCITY = 230.0, 60.0
"""Position angle (deg) and systemic velocity (km/s)."""

FREE = {
    "observation.inclination": {"isotropic": ["1 deg", "89 deg"]},
    "observation.position_angle": {"uniform": ["0 deg", "360 deg"]},
    "observation.offset": {"normal": ["0 arcsec", "1 arcsec"]},
    "observation.velocity_offset": {"normal": [0, "200 km/s"]},
    "galaxy.disc.mass": {"log_normal": ["3e9 Msun", 0.5]},
    "galaxy.disc.light.scale_length": {"log_uniform": ["0.2 kpc", "4 kpc"]},
    "galaxy.disc.rotation.velocity": {"uniform": ["20 km/s", "450 km/s"]},
    "galaxy.disc.population.log_age": {"uniform": [8.5, 10.1]},
}


def truth():
    """The values that the cube is made of, by the fit's names."""
    made = {name: foreign_cube.TRUTH[OF_SYNTHETIC.get(name, name)] for name in FREE if name != "observation.offset"}
    return made | {"observation.offset": (0.0, 0.0)}


def make_problem(folder, inclination, ratio):
    """The fit of the cube of one case."""
    foreign_cube.TRUTH |= {
        "observation.inclination": float(inclination),
        "observation.position_angle": ANGLE,
        "observation.velocity_offset": VELOCITY,
    }
    for name, value in {**SMALL, "SIGNAL_TO_NOISE": float(ratio)}.items():
        setattr(foreign_cube, name, value)
    cube = foreign_cube.write_foreign_cube(Path(folder) / f"disc_{inclination}_{ratio}.fits")
    fixed = {"instrument.psf.fwhm": foreign_cube.TRUTH["instrument.psf.fwhm"], "fit.free": FREE, "fit.starts": 4}
    config = load_config(configuration(start=None), overrides=fixed)
    return log_posterior(config, cube).problem


def optima_of(problem, state):
    """Other places that the result of this end of a search tells of."""
    latent = state.latent[state.best]
    own = describe_best(problem, latent, trouble_of(state))
    found = other_optima(problem.posterior.free, state, latent, own.laplace)
    sigma = np.sqrt(np.diag(own.laplace.value_covariance()))
    places = [np.asarray(problem.posterior.free.flat(latent)), *(other.values for other in found)]
    true = np.concatenate([np.ravel(truth()[name]) for name in FREE])
    return found, min(float(np.max(np.abs(place - true) / sigma)) for place in places)


def row_of(folder, case, seeds):
    """A line of the table."""
    problem = make_problem(folder, *case)
    ends, reached, _, _ = ends_of(problem, problem.posterior.free.latent(truth()), seeds)
    told = [optima_of(problem, state) for state, _ in ends]
    missed = sum(not there and not other for there, (other, _) in zip(reached, told, strict=True))
    steps, seconds = np.mean([own["steps"] for _, own in ends]), np.median([own["processor"] for _, own in ends])
    for sentence in sorted({own.sentence for others, _ in told for own in others}):
        print(f"  {case}: {sentence}")
    several, off = sum(bool(other) for other, _ in told), max(own for _, own in told)
    converged = sum(own["converged"] for _, own in ends)
    return (
        f"| {case[0]} | {case[1]} | {sum(reached)}/{len(ends)} | {converged}/{len(ends)} | {several} | {missed} | "
        f"{steps:.0f} | {off:.1f} | {seconds:.0f} |"
    )


def case_of(text):
    """`inclination:S/N`."""
    inclination, ratio = text.split(":")
    return int(inclination), float(ratio)


def main():
    """Fit and print."""
    parser = described(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cases", nargs="+", type=case_of, default=CASES)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    columns = "inclination", "S/N", "reached", "converged", "two optima told", "missed", "steps", "off", "s"
    print(head(*columns))
    with tempfile.TemporaryDirectory() as folder:
        for case in given.cases:
            print(row_of(folder, case, range(1, given.seeds + 1)), flush=True)


if __name__ == "__main__":
    main()
