"""Table of what the PSF's width and the deposit make of a star: error, centroid, FWHM; the truth is not our own.

    python tests/benchmarks/psf_width.py

100 stars at random places within a spaxel. Truth: a star on pixels of 1/15 spaxel convolved by astropy, and where
photutils is installed its GaussianPRF, which must agree. `error`: largest of any spaxel of any star, relative to the
star's peak; `centroid`: largest error (spaxels); `FWHM fitted`: of the Gaussian, integrated over spaxels, that fits all
images best, each at its star's place (spaxels); `effective`: what a run says of it.
"""

import argparse
import sys
from pathlib import Path

import jax
import numpy as np
from scipy.optimize import least_squares
from scipy.stats import norm

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from test_psf_profile import PLACES, SIGMA, gaussian_by_astropy, in_spaxels, seen, worst  # noqa: E402

from rubix_like.instrument.painting import FINEST, NARROWEST, Painting  # noqa: E402

WIDTHS = (0.5, 0.8, 1.0, 1.2, 1.5, 1.8, 2.0, 2.5, 3.0, 4.0)
N = 13
ROW = np.arange(N) - N // 2


def centroid_error(images: np.ndarray, truth: np.ndarray) -> float:
    """Largest difference of the centroids along an axis (spaxels)."""

    def centroids(light: np.ndarray) -> np.ndarray:
        return np.stack([np.tensordot(ROW, light.sum(axis=axis), 1) for axis in (0, 1)]) / light.sum(axis=(0, 1))

    return float(np.abs(centroids(images) - centroids(truth)).max())


def fitted_width(images: np.ndarray) -> float:
    """FWHM of one Gaussian for all stars at their places, integrated over spaxels."""
    edges = np.arange(N + 1) - N / 2

    def model(fwhm: float) -> np.ndarray:
        x, y = (np.diff(norm.cdf(edges[:, None], PLACES[:, axis], fwhm * SIGMA), axis=0) for axis in (0, 1))
        return np.einsum("yk,xk->yxk", y, x)

    return float(least_squares(lambda p: (model(p[0]) - images).ravel(), 1.5, bounds=(0.05, 10)).x[0])


def by_photutils(fwhm: float) -> np.ndarray | None:
    """The same stars by photutils, None where it is not installed."""
    try:
        from photutils.psf import GaussianPRF  # noqa: PLC0415
    except ImportError:
        return None
    x, y = np.meshgrid(ROW, ROW)
    images = [GaussianPRF(x_0=own[0], y_0=own[1], x_fwhm=fwhm, y_fwhm=fwhm)(x, y) for own in PLACES]
    return np.stack(images, axis=2)


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| FWHM | deposit | cells | error | centroid | FWHM fitted | effective | photutils - astropy |")
    print("|---|---|---|---|---|---|---|---|")
    for fwhm in WIDTHS:
        truth = in_spaxels(gaussian_by_astropy(fwhm), n=N)
        other = by_photutils(fwhm)
        agrees = "not installed" if other is None else f"{worst(other, truth):.1e}"
        for painting in (
            Painting("tsc", 1),
            Painting("tsc", cells_for(fwhm)),
            Painting("cic", 1),
            Painting("nearest", 1),
        ):
            found = seen({"fwhm": fwhm}, painting, n=N)
            print(
                f"| {fwhm:g} | {painting.deposit} | {painting.cells} | {worst(found, truth):.2%} | "
                f"{centroid_error(found, truth):.3f} | {fitted_width(found):.3f} | "
                f"{painting.effective_fwhm(fwhm):.3f} | {agrees} |"
            )


def cells_for(fwhm: float) -> int:
    """Cells that `engine.oversampling: auto` takes for tsc."""
    return next((cells for cells, least in NARROWEST.items() if fwhm >= least), FINEST)


if __name__ == "__main__":
    main()
