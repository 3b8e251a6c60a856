"""Cubes of eight configurations as they were: `python tests/surface/golden_cubes.py [NAME ...]` writes them anew.

Each has a file in `golden/`, scaled down in spaxels, bins and particles, with every default written out, and an .npz
with its numbers. They are computed in 64 bits, so that rounding stays far below the limits. A change that means to move
numbers says in CHANGELOG.md which, from what to what, and how the new ones were checked.
"""

import os
import sys
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
from numpy import ndarray

FOLDER = Path(__file__).resolve().parent / "golden"
NAMES = ("quickstart", "muse_tng", "manga_tng", "fit_synthetic", "nebular", "dusty", "fibres", "nirspec")

PEAK_LIMIT, VOXEL_LIMIT, FAINT = 1e-6, 1e-4, 1e-3
"""A value may move by so much of the peak; and, where it is above `FAINT` of the peak, by so much of itself."""

COUNT_SHARE = 1e-3
"""Share of the elements whose photon number may be another one, by one count."""


def spread(count: int, columns: int) -> ndarray:
    """Points that fill the unit cube evenly, from no random numbers: multiples of powers of a root, modulo 1."""
    root = 2.0
    for _ in range(50):
        root = (1 + root) ** (1 / (columns + 1))
    return np.arange(1, count + 1)[:, None] * root ** -np.arange(1.0, columns + 1) % 1


def disc(count: int, scale: float, height: float) -> tuple[ndarray, ndarray, ndarray]:
    """Positions (kpc) and velocities (km/s) of a turning exponential disc, and three more evenly spread columns."""
    columns = spread(count, 8)
    radius = scale * -np.log(1 - 0.95 * np.sqrt(columns[:, 0]))
    angle = 2 * np.pi * columns[:, 1]
    z = height * np.log(columns[:, 2] / (1 - columns[:, 2]))
    around = np.stack([np.cos(angle), np.sin(angle), np.zeros(count)], axis=1)
    along = np.stack([-np.sin(angle), np.cos(angle), np.zeros(count)], axis=1)
    speed = 200 * np.tanh(radius / 2) + 60 * (columns[:, 3] - 0.5)
    position = around * radius[:, None] + z[:, None] * [0, 0, 1]
    velocity = along * speed[:, None] + 60 * (columns[:, 4:5] - 0.5) * [1, 0.5, 0.7]
    return position, velocity, columns[:, 5:]


def write_snapshot(path: Path, n_stars: int = 600, n_gas: int = 400) -> Path:
    """A cut-out as IllustrisTNG's, at redshift 0: a disc of stars and gas."""
    h, middle = 0.6774, 500.0
    with h5py.File(path, "w") as file:
        header = {"BoxSize": 1000.0, "HubbleParam": h, "Omega0": 0.3089, "OmegaLambda": 0.6911, "Time": 1.0}
        file.create_group("Header").attrs.update({**header, "Redshift": 0.0, "MassTable": np.zeros(6)})
        for group, count, scale, height in (("PartType4", n_stars, 2.5, 0.3), ("PartType0", n_gas, 4.0, 0.15)):
            position, velocity, more = disc(count, scale, height)
            values = {
                "Coordinates": position * h + middle,
                "Velocities": velocity,
                "GFM_Metallicity": 0.01 + 0.02 * more[:, 0],
            }
            if group == "PartType4":
                values |= {
                    "GFM_InitialMass": np.full(count, 3e10 / count / 1e10 * h),
                    "Masses": np.full(count, 2e10 / count / 1e10 * h),
                    "GFM_StellarFormationTime": np.where(
                        more[:, 1] < 0.15, 0.9993 + 0.0006 * more[:, 2], 0.2 + 0.75 * more[:, 1]
                    ),
                    "StellarHsml": 0.3 + 0.5 * more[:, 2],
                }
            else:
                metals = np.zeros((count, 10))
                metals[:, 0], metals[:, 1], metals[:, 4] = 0.74, 0.24, 0.006 + 0.004 * more[:, 1]
                values |= {
                    "Masses": np.full(count, 5e9 / count / 1e10 * h),
                    "Density": 10 ** (-3.5 + 1.5 * more[:, 2]) / h**2,
                    "InternalEnergy": 10 ** (1.8 + 0.5 * more[:, 1]),
                    "ElectronAbundance": 1.1 * more[:, 1],
                    "StarFormationRate": 2.0 / count * (1 + more[:, 2]),
                    "GFM_Metals": metals,
                    "NeutralHydrogenAbundance": 0.9 * more[:, 0],
                }
            for name, value in values.items():
                file[f"{group}/{name}"] = value
    return path


def observe(name: str, folder: Path, **overrides: Any) -> dict[str, ndarray]:
    """The numbers of a configuration's cube, computed in `folder`."""
    import rubix_like as rl  # noqa: PLC0415

    config = rl.load_config(FOLDER / f"{name}.yaml")
    if "path" in type(config.galaxy).model_fields:
        overrides["galaxy.path"] = str(write_snapshot(folder / "snapshot.hdf5"))
    cube = rl.run(rl.load_config(config, overrides), output=folder / f"{name}.fits", quiet=True)
    found = {"flux": cube.flux, "mask": cube.mask, "truth": cube.truth, "variance": cube.variance}
    if cube.fibres is not None:
        spectra = {"flux": cube.fibres.flux, "truth": cube.fibres.truth, "variance": cube.fibres.variance}
        found |= {f"fibres {what}": value for what, value in spectra.items()}
        del found["flux"]  # sums of drawn spectra, which are compared themselves
    return {what: np.asarray(value) for what, value in found.items() if value is not None}


def moved(found: ndarray, stored: ndarray) -> ndarray:
    """Where a value has left the limits."""
    change, size, peak = np.abs(found - stored.astype(found.dtype)), np.abs(stored), np.abs(stored).max()
    return ~((change <= PEAK_LIMIT * peak) & ((change <= VOXEL_LIMIT * size) | (size <= FAINT * peak)))


def one_count(truth: ndarray, variance: ndarray) -> ndarray:
    """The flux of one electron by bin: the slope of the variance over the expected flux, which the spaxels show."""
    flat_truth, flat_variance = (np.asarray(array, float).reshape(-1, array.shape[-1]) for array in (truth, variance))
    about = flat_truth - flat_truth.mean(axis=0)
    return (about * flat_variance).sum(axis=0) / (about**2).sum(axis=0)


def differences(found: dict[str, ndarray], stored: dict[str, ndarray]) -> list[str]:
    """In which arrays the numbers have left the limits, in words; none where all is as it was."""
    if found.keys() != stored.keys():
        return [f"expected {sorted(stored)}, got {sorted(found)}"]
    lines = []
    for what, old in stored.items():
        new = found[what]
        if new.shape != old.shape:
            lines.append(f"{what}: expected the shape {old.shape}, got {new.shape}")
            continue
        away = moved(new, old) if what != "mask" else new != old
        before = what.removesuffix("flux")
        if what.endswith("flux") and f"{before}truth" in stored:  # photons are counted
            count = one_count(stored[f"{before}truth"], stored[f"{before}variance"])
            if away.mean() <= COUNT_SHARE and not np.any(away & (np.abs(new - old) > 1.001 * count)):
                continue
        if away.any():
            most = np.abs(new - old).max() / np.abs(old).max()
            lines.append(f"{what}: {away.sum()} of {away.size} values have moved, by at most {most:.2g} of the peak")
    return lines


def stored_numbers(name: str) -> dict[str, ndarray]:
    """What is kept of a configuration."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return {what: file[what] for what in file.files}


def main(names: list[str]) -> None:
    """Write the numbers of some configurations (none: of all) anew, and say what has moved."""
    import tempfile  # noqa: PLC0415

    jax.config.update("jax_enable_x64", True)
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["RUBIX_LIKE_CACHE"] = folder  # tables of the user's cache may be of other code
            found = observe(name, Path(folder))
        path = FOLDER / f"{name}.npz"
        if path.exists():
            print(name, *differences(found, stored_numbers(name)), sep="\n  ")
        np.savez_compressed(
            path,
            **{
                what: value.astype(np.float32 if value.dtype.kind == "f" else np.int32) for what, value in found.items()
            },
        )


if __name__ == "__main__":
    main(sys.argv[1:])
