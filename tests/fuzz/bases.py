"""Writes one small whole file of every kind: `python bases.py FOLDER`; in a process of its own, as it starts JAX.

Of a kind whose optional package is not installed (zarr) there is none.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import yaml
from astropy.io import fits
from astropy.table import Table

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [*(str(TESTS / name) for name in ("", "cube", "inference", "instrument", "plots")), str(TESTS.parent)]

from damage import write_eagle, write_gadget, write_illustris  # noqa: E402
from nebular_files import fsps_text, write_nebulabayes, write_synthesizer  # noqa: E402
from small import full_cube, muse_hdus, write_fits  # noqa: E402
from small_results import (  # noqa: E402
    FINGERPRINT,
    fit_result,
    manifest_of,
    sample_result,
    snapshot,
    some_simulations,
)
from ssp_files import dsps, pipe3d, ppxf, synthesizer  # noqa: E402
from test_fibre_covariance import cube_of_fibres  # noqa: E402
from test_psf import stpsf_planes, write_stpsf  # noqa: E402
from test_wave_tables import jwst  # noqa: E402

from fuzz.settings import CONFIG, INSTRUMENT  # noqa: E402
from rubix_like.cube.survey_files.spectra_files import write_spectra  # noqa: E402
from rubix_like.extend import WavelengthBins, import_library  # noqa: E402
from rubix_like.inference.checkpoint import save  # noqa: E402
from rubix_like.inference.simulation.simulation_files import write_shard  # noqa: E402
from rubix_like.nebular import SHELF  # noqa: E402


def write_all(folder: Path) -> None:
    """One file or folder or more of each kind, `KIND/NAME` in the folder."""
    for kind in ("galaxy", "gadget", "ssp", "nebular", "mask", "psf", "cube-fits", "cube-hdf5", "observed"):
        (folder / kind).mkdir()
    _write_survey_cubes(folder)
    _write_stores(folder)
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
    SHELF.import_file(folder / "nebular/fsps.lines", "own").rename(folder / "nebular/own.h5")
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


def _write_survey_cubes(folder: Path) -> None:
    """Cubes of fibres and their spectra in MaNGA's and SAMI's layouts, and cubes with a table of wavelengths."""
    for kind in ("manga", "sami", "rss", "wave-tab"):
        (folder / kind).mkdir()
    cube = cube_of_fibres()
    for layout in ("manga", "sami"):
        path = cube.write(folder / layout / f"{layout}.fits", layout)
        with fits.open(path) as hdus:  # as another program's
            del hdus[0].header["ORIGIN"]
            hdus.writeto(folder / layout / "survey.fits")
    write_spectra(cube, (folder / "rss/rss.fits",), "manga")
    edges = np.array([4745.0, 4750, 4756, 4763, 4771])
    bins = WavelengthBins.of_table((edges[1:] + edges[:-1]) / 2, edges, "air")
    full_cube(bins=bins).write(folder / "wave-tab/cube.fits")
    jwst(folder / "wave-tab/jwst.fits", np.array([0.4750, 0.4753, 0.4757, 0.4762]))


def _write_stores(folder: Path) -> None:
    """Folders of files: training sets, and where there is the package a cube in Zarr."""
    made, formats = some_simulations(), ["hdf5"]
    if importlib.util.find_spec("zarr"):
        formats.append("zarr")
        (folder / "zarr").mkdir()
        full_cube().write(folder / "zarr/cube.zarr")
    for files in formats:
        place = folder / "training" / files
        place.mkdir(parents=True)
        manifest = manifest_of(made, files)
        manifest.write(place)
        write_shard(made, manifest, place, 0)


def _write_images(folder: Path) -> None:
    for kind in ("psf-planes", "covariance", "sky"):
        (folder / kind).mkdir()
    write_stpsf(folder / "psf-planes/planes.fits", stpsf_planes(), WAVELN00=5.3e-7, WAVELN01=4.9e-7)
    np.save(folder / "covariance/covariance.npy", 4 * 0.5 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5))))
    sky = Table({"wavelength": np.linspace(4000.0, 6000.0, 9), "emission": np.ones(9), "transmission": np.full(9, 0.9)})
    sky.write(folder / "sky/sky.fits")
    sky.write(folder / "sky/sky.ecsv")
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
