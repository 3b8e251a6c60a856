"""Whether SAMI's own pipeline makes of our spectra of fibres the cube and the covariance that we make.

    python tests/benchmarks/fibres_sami.py --package FOLDER

FOLDER is the pipeline `sami` (https://github.com/SAMI-Galaxy-Survey/sami), of which `utils/circ.py` drizzles a disc
onto spaxels and `general/covar.py` makes the local covariance. Printed are the largest differences, relative to the
largest value.
"""

import argparse
import importlib.util
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np

import rubix_like as rl
from rubix_like.cube.fibres.fibre_files import local_covariance

N_SIDE = 36
"""Spaxels of 0.5 arcsec along a side."""


def module(path: Path) -> ModuleType:
    """A file of the pipeline, which was written for numpy before 1.24."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(made)
    return made


def observed() -> rl.Cube:
    return rl.run(
        {
            "galaxy": {"reader": "synthetic", "n_stars": 3000},
            "observation": {"redshift": 0.03, "align": "none"},
            "instrument": {
                "name": "sami_blue_fibres",
                "fov": 0.5 * N_SIDE,
                "wavelength": {"start": 5000, "stop": 5010},
            },
            "engine": {"deposit": "nearest"},
            "noise": {"signal_to_noise": 20},
        },
        quiet=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", required=True, type=Path, help="the folder of SAMI's pipeline")
    folder = parser.parse_args().package
    drizzle, covar = module(folder / "utils" / "circ.py"), module(folder / "general" / "covar.py")
    np.int, np.cast = int, {int: lambda values: np.asarray(values, dtype=int)}  # type: ignore[attr-defined]
    cube = observed()
    fibres, places = cube.fibres, cube.fibres.places
    overlap = np.zeros((N_SIDE, N_SIDE, len(places)))
    for fibre in range(len(places)):  # columns to the West, as ours
        column, row = N_SIDE / 2 - places.x[fibre] / 0.5, N_SIDE / 2 + places.y[fibre] / 0.5
        overlap[:, :, fibre] = drizzle.resample_circle(N_SIDE, N_SIDE, column, row, 0.5 * places.radius / 0.5)
    overlap[overlap < np.finfo(float).eps] = 0.0  # as the pipeline's SAMIDrizzler.drizzle has it
    flux, variance = (np.asarray(own, dtype=np.float64)[:, 1] for own in (fibres.flux, fibres.variance))
    area = places.area / 0.25  # of a fibre, in spaxels
    total = overlap.sum(axis=2)
    seen = total > 0
    safe = np.where(seen, total, 1.0)
    known = np.where(overlap > 0, overlap, np.nan)
    compared = {
        "flux": (overlap @ (flux / area) / safe, np.asarray(cube.flux)[:, :, 1]),
        "variance": (overlap**2 @ (variance / area**2) / safe**2, np.asarray(cube.variance)[:, :, 1]),
        "local covariance": (
            np.where(seen[:, :, None, None], covar.create_covar_matrix_original(known, variance), 0.0),
            np.moveaxis(
                local_covariance(cube.covariance(cube.wavelength[1]), np.asarray(fibres.weights.coverage)),
                (0, 1),
                (2, 3),
            ),
        ),
    }
    print(f"spaxels: {int((seen != (np.asarray(cube.variance)[:, :, 1] > 0)).sum())} of {seen.sum()} differ")
    for what, (theirs, ours) in compared.items():
        print(f"{what}: {np.abs(theirs - ours).max() / np.abs(theirs).max():.1e}")


if __name__ == "__main__":
    main()
