"""Writes one small whole file of every kind: `python bases.py FOLDER`; in a process of its own, as it starts JAX."""

import sys
from pathlib import Path

import numpy as np
import yaml
from astropy.io import fits

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [*(str(TESTS / name) for name in ("", "cube", "inference", "plots")), str(TESTS.parent)]

from damage import write_eagle, write_gadget, write_illustris  # noqa: E402
from nebular_files import fsps_text, write_nebulabayes, write_synthesizer  # noqa: E402
from small import full_cube, muse_hdus, write_fits  # noqa: E402
from small_results import FINGERPRINT, fit_result, sample_result, snapshot  # noqa: E402
from ssp_files import dsps, pipe3d, ppxf, synthesizer  # noqa: E402

from fuzz.settings import CONFIG, INSTRUMENT  # noqa: E402
from rubix_like.inference.checkpoint import save  # noqa: E402
from rubix_like.nebular import import_nebular  # noqa: E402
from rubix_like.ssp.formats import import_library  # noqa: E402


def write_all(folder: Path) -> None:
    """One file or more of each kind, `KIND.NAME` in the folder."""
    for kind in ("galaxy", "gadget", "ssp", "nebular", "mask", "psf", "cube-fits", "cube-hdf5", "observed"):
        (folder / kind).mkdir()
    write_illustris(folder / "galaxy/tng.hdf5")
    write_eagle(folder / "galaxy/eagle.hdf5")
    write_gadget(folder / "gadget/snap")
    for name, content in (("config", CONFIG), ("instrument", INSTRUMENT)):
        (folder / name).mkdir()
        (folder / name / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "catalogue").mkdir()
    (folder / "catalogue/list.csv").write_text(
        "name,galaxy.seed,observation.inclination,observation.redshift\n"
        "first,1,60 deg,0.05\n# one\nsecond,2,20 deg,0.1\n"
    )
    for layout in (dsps, ppxf, pipe3d, synthesizer):
        layout.write_sample(folder / "ssp")
    import_library(folder / "ssp" / dsps.write_sample(folder / "ssp").name, "own").rename(folder / "ssp/own.h5")
    write_nebulabayes(folder / "nebular")
    write_synthesizer(folder / "nebular")
    (folder / "nebular/fsps.lines").write_text(fsps_text())
    import_nebular(folder / "nebular/fsps.lines", "own").rename(folder / "nebular/own.h5")
    write_fits(folder / "observed/muse.fits", *muse_hdus())
    write_fits(folder / "observed/packed.fits.gz", *muse_hdus())
    full_cube().write(folder / "cube-fits/cube.fits")
    full_cube(sampling="log").write(folder / "cube-fits/log.fits")
    full_cube().write(folder / "cube-hdf5/cube.h5")
    _write_images(folder)
    (folder / "checkpoint").mkdir()
    save(folder / "checkpoint/.fit.h5.rubix-like-checkpoint.npz", snapshot(7), FINGERPRINT)
    for name, result in (("fit", fit_result()), ("samples", sample_result())):
        (folder / name).mkdir()
        result.write(folder / name / f"{name}.h5")


def _write_images(folder: Path) -> None:
    y, x = np.mgrid[-6:7, -6:7]
    psf = fits.PrimaryHDU(np.exp(-(x**2 + y**2) / 8.0))
    psf.header.update({"CDELT1": -0.1 / 3600, "CDELT2": 0.1 / 3600, "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN"})
    psf.writeto(folder / "psf/psf.fits")
    mask = np.ones((4, 4), np.int16)
    mask[0] = 0
    np.save(folder / "mask/mask.npy", mask)
    fits.PrimaryHDU(mask).writeto(folder / "mask/mask.fits")
    table = fits.BinTableHDU.from_columns([fits.Column("A", "E", array=np.ones(3))])
    fits.HDUList([fits.PrimaryHDU(), table, fits.ImageHDU(mask)]).writeto(folder / "mask/behind.fits")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
