"""Whether MaNGA's data analysis pipeline makes of our row-stacked spectra the cube and the covariance that we make.

    python tests/benchmarks/fibres_mangadap.py --peer PYTHON

PYTHON has the package sdss-mangadap (4.5). A bundle of 37 fibres is observed and written in MaNGA's layout; then
`MaNGARSS.rectify_wavelength_plane` makes the plane at 4702 Angstrom of the spectra's file, and `MaNGADataCube` reads
the cube's correlations. Printed are the largest differences, relative to the largest value.
"""

import argparse
import gzip
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import rubix_like as rl

N_SIDE = 43
"""Spaxels along a side; mangadap's own grid has one less."""

PEER = """
import sys, numpy as np
from astropy.io import fits
from mangadap.datacube import MaNGADataCube
from mangadap.spectra import MaNGARSS
folder, out = sys.argv[1:]
rss = MaNGARSS(f"{folder}/manga-1-3701-LOGRSS.fits.gz")
cube = MaNGADataCube(f"{folder}/manga-1-3701-LOGCUBE.fits.gz", covar_ext="GCORREL")
channel = fits.getheader(f"{folder}/manga-1-3701-LOGCUBE.fits.gz", "GCORREL")["BBINDEX"]
flux, covariance = rss.rectify_wavelength_plane(
    channel, pixelscale=0.5, rlim=1.6, sigma=0.7, return_covar=True, quiet=True
)
np.savez(out, flux=np.ma.filled(flux, 0.0), covariance=covariance.toarray(), read=cube.covar.toarray(), channel=channel)
"""


def observed(folder: Path) -> rl.Cube:
    config = {
        "galaxy": {"reader": "synthetic", "n_stars": 3000},
        "observation": {"redshift": 0.03, "align": "none", "ra": 150, "dec": 20},
        "instrument": {
            "name": "manga_fibres",
            "fibres": "manga-37",
            "fov": 0.5 * N_SIDE,
            "wavelength": {"start": 4690, "stop": 4720},
        },
        "engine": {"deposit": "nearest"},
        "noise": {"signal_to_noise": 20},
        "output": {"path": str(folder / "cube.fits"), "layout": "manga", "maps": False},
    }
    cube = rl.run(config, quiet=True)
    for own, name in (("cube", "LOGCUBE"), ("cube_rss", "LOGRSS")):
        with (
            (folder / f"{own}.fits").open("rb") as file,
            gzip.open(folder / f"manga-1-3701-{name}.fits.gz", "wb") as to,
        ):
            shutil.copyfileobj(file, to)
    return cube


def in_their_order(n_side: int) -> np.ndarray:
    """Our numbers of the spaxels of their grid, column after column."""
    return np.arange(N_SIDE**2).reshape(N_SIDE, N_SIDE)[:n_side, :n_side].T.ravel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python with mangadap")
    peer = parser.parse_args().peer
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cube = observed(folder)
        subprocess.run([peer, "-W", "ignore", "-c", PEER, name, str(folder / "theirs.npz")], check=True, text=True)
        theirs = dict(np.load(folder / "theirs.npz"))
    channel, n_side = int(theirs["channel"]), len(theirs["flux"])
    covariance = cube.covariance(cube.wavelength[channel])
    own, whole = in_their_order(n_side), in_their_order(N_SIDE)
    matrix, correlation = covariance.matrix.toarray() * 1e-6, covariance.correlation.toarray()
    compared = {
        "flux": (theirs["flux"].ravel(), np.asarray(cube.flux)[:, :, channel].ravel()[own] * 1e-3),
        "covariance": (theirs["covariance"], matrix[np.ix_(own, own)]),
        "correlation in the file": (theirs["read"], correlation[np.ix_(whole, whole)]),
    }
    for what, (found, expected) in compared.items():
        print(f"{what}: {np.abs(found - expected).max() / np.abs(expected).max():.1e}")


if __name__ == "__main__":
    main()
