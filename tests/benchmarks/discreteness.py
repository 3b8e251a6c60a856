"""Shift of a fit by its finite draws, against their number: true and stated, for the smooth cube of `foreign_cube`.

    python tests/benchmarks/discreteness.py [--stars 2048 8192 32768 131072] [--seeds 1 2] [--library popstar]

The cube has no noise, but the errors of S/N 30 at the peak, so that the values that a fit ends off the truth are its
shift, but for the sign. Beside them the shift that the fit states (`fit.discreteness`). A table goes to the screen:
true and stated shift of each parameter, in standard deviations of the data.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import jax

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from foreign_cube import POPSTAR, TRUTH, write_foreign_cube  # noqa: E402
from test_foreign_cube import FREE, configuration  # noqa: E402

from rubix_like import fit, load_config  # noqa: E402

COLUMNS = {
    "instrument.psf.fwhm": "PSF",
    "galaxy.disc_scale_length": "scale length",
    "galaxy.stellar_mass": "mass",
    "observation.inclination": "inclination",
    "observation.position_angle": "position angle",
    "galaxy.rotation_velocity": "rotation",
    "galaxy.disc_dispersion": "dispersion",
}


def shifts(cube, n_stars, seed, draws, library):
    """(true, stated) shift of each parameter in sigma of the data, and the seconds of the fit."""
    config = load_config(configuration(n_stars, library), {"galaxy.seed": seed, "galaxy.draws": draws})
    begin = time.perf_counter()
    result = fit(config, cube, start={name: TRUTH[name] for name in FREE})
    grain = result.discreteness
    true = [float(TRUTH[name] - result.values[name]) for name in result.labels]
    pairs = zip(result.labels, true, grain.values, grain.value_sigma, strict=True)
    return {name: (own / sigma, stated / sigma) for name, own, stated, sigma in pairs}, time.perf_counter() - begin


def main():
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stars", type=int, nargs="+", default=[2048, 8192, 32768, 131072])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--draws", choices=("sobol", "random"), default="sobol")
    parser.add_argument("--library", default="popstar")
    parser.add_argument("--library-file", type=Path, default=POPSTAR, help="the same library's file")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        cube = write_foreign_cube(Path(folder) / "foreign.fits", given.library_file, seed=None)
        print(f"| stars | seed | {' | '.join(COLUMNS.values())} |\n|---|---|{'---|' * len(COLUMNS)}")
        for n_stars in given.stars:
            for seed in given.seeds:
                found, seconds = shifts(cube, n_stars, seed, given.draws, given.library)
                cells = [f"{found[name][0]:+.1f}, {found[name][1]:+.1f}" for name in COLUMNS]
                print(f"| {n_stars} | {seed} | {' | '.join(cells)} |", flush=True)
                print(f"{seconds:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
