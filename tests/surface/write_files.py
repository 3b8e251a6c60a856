"""Write files of every kind with one revision, for later ones to read: `files.tar.xz` and `numbers.json` in `written/`.

Run `PYTHONPATH=REVISION python tests/surface/write_files.py`, where REVISION is a checkout (the files that are kept are
of e5d6e087) and zarr is installed. `numbers.json` has what that revision read in them.
"""

import importlib.util
import io
import itertools
import json
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

WRITTEN = Path(__file__).resolve().parent / "written"

DISC: dict[str, Any] = {
    "galaxy": {"reader": "synthetic", "n_stars": 256, "draws": "sobol"},
    "ssp": {"library": "popstar"},
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "0.8 arcsec",
        "psf": {"fwhm": "0.4 arcsec"},
        "lsf": {"fwhm": "25 Angstrom"},
        "wavelength": {"start": 5000, "stop": 5200, "step": 10},
    },
    "engine": {"precision": "float64", "method": "direct", "deposit": "cic", "velocity_range": 600},
    "noise": {"signal_to_noise": 20},
    "devices": {"data": 1},
    "products": {"losvd": None},
    "output": {"path": "cube.fits"},
    "fit": {
        "data": "cube.fits",
        "free": {
            "observation.velocity_offset": {"normal": [0, 100]},
            "galaxy.stellar_mass": {"log_normal": [1e10, 0.5]},
        },
        "starts": 2,
        "output": "fit.h5",
        "sampling": {
            "method": "nuts",
            "nuts": {"chains": 2, "warmup": 40, "draws": 40},
            "predictive": 4,
            "output": "samples.h5",
        },
    },
}
"""A run and a fit, with every number that decides a result."""

THIRD = "catalogue/disc3.fits"
"""The entry of the catalogue that was begun and not made."""


@contextmanager
def unpacked() -> Iterator[Path]:
    """The written files, in a folder of their own while the block lasts."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(WRITTEN / "files.tar.xz") as archive:
        archive.extractall(folder, filter="data")
        yield Path(folder)


class EndsAt(io.StringIO):
    """A stream that ends the program as Ctrl-C does, at some words."""

    def __init__(self, words: str):
        super().__init__()
        self.words = words

    def write(self, text: str) -> int:
        if self.words in text:
            raise KeyboardInterrupt
        return super().write(text)


def first_of(snapshots: Iterable[Any]) -> Iterator[Any]:
    """The first five steps of a search or sampling, which Ctrl-C then ends."""
    yield from itertools.islice(snapshots, 5)
    raise KeyboardInterrupt


def plain(array: Any) -> dict[str, Any]:
    """An array's shape, sum, and about 40 of its values."""
    flat = np.asarray(array, dtype=float).ravel()
    return {"shape": np.shape(array), "sum": flat.sum(), "some": flat[:: 1 + flat.size // 40].tolist()}


def read_numbers(folder: Path) -> dict[str, Any]:
    """Plain numbers of every finished file."""
    import rubix_like as rl  # noqa: PLC0415

    found: dict[str, Any] = {}
    for name in ("cube.fits", "cube.h5", "cube.zarr"):
        if name == "cube.zarr" and importlib.util.find_spec("zarr") is None:
            continue
        cube = rl.load_cube(folder / name)
        found[name] = {
            "flux": plain(cube.flux),
            "variance": plain(cube.variance),
            "mask": plain(cube.mask),
            "wavelength": plain(cube.wavelength),
        }
    maps = rl.Maps.read(folder / "cube_maps.fits")
    images = ("number", "mass", "light", "v_light", "sigma_mass", "age_light", "metallicity_mass")
    found["cube_maps.fits"] = {name: plain(np.nan_to_num(getattr(maps.after, name))) for name in images}
    fit, samples = (
        kind.read(folder / name) for kind, name in ((rl.FitResult, "fit.h5"), (rl.SampleResult, "samples.h5"))
    )
    found["fit.h5"] = {
        **{name: plain(value) for name, value in fit.values.items()},
        "covariance": plain(fit.covariance),
        "loss": plain(fit.quality.loss),
        "model": plain(fit.model.flux),
    }
    found["samples.h5"] = {"latent": plain(samples.latent), "loss": plain(samples.statistics["loss"])}
    set_ = rl.load_simulations(folder / "training")
    found["training"] = {"flux": plain(set_.flux), **{name: plain(value) for name, value in set_.parameters.items()}}
    return found


def write_all() -> None:
    """Write everything into the working folder, and stop a fit, a sampling and a catalogue half-way."""
    import rubix_like as rl  # noqa: PLC0415
    from rubix_like.cli.main import main  # noqa: PLC0415
    from rubix_like.inference import fitting  # noqa: PLC0415
    from rubix_like.inference.checkpoint import advance  # noqa: PLC0415

    Path("run.yaml").write_text(json.dumps(DISC, indent=1) + "\n")
    Path("disc.yaml").write_text(
        json.dumps({key: section for key, section in DISC.items() if key != "fit"}, indent=1) + "\n"
    )
    for name in ("cube.fits", "cube.h5", "cube.zarr"):
        rl.run("run.yaml", output=name, quiet=True)
    rl.fit("run.yaml", output="fit.h5")
    rl.sample("run.yaml", fitted="fit.h5", output="samples.h5")
    rl.simulate("run.yaml", n=4, output="training")
    numbers = read_numbers(Path())
    third = rl.load_config("disc.yaml", {"galaxy.seed": 3, "output.maps": False})
    numbers[THIRD] = {"flux": plain(rl.run(third, output="third.fits", quiet=True).flux)}
    Path("third.fits").unlink()
    (WRITTEN / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")
    fitting.advance = lambda snapshots, *others: advance(first_of(snapshots), *others)
    for command in (rl.fit, rl.sample):
        fitted = {"fitted": "fit.h5"} if command is rl.sample else {}
        with suppress(KeyboardInterrupt):
            command("run.yaml", output=f"stopped_{command.__name__}.h5", **fitted)
    Path("list.csv").write_text("name,galaxy.seed\ndisc1,1\ndisc2,2\ndisc3,3\n")
    with suppress(KeyboardInterrupt, SystemExit), redirect_stderr(EndsAt("[2/3]")):
        main(["run", "disc.yaml", "--catalogue", "list.csv", "--output", "catalogue"])


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    WRITTEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work, chdir(work):
        write_all()
        with tarfile.open(WRITTEN / "files.tar.xz", "w:xz") as archive:
            archive.add(".")
