"""Small files in the layouts of nebular tables, all of the same gas."""

import h5py
import numpy as np
from astropy.io import fits

from rubix_like.extend import energy_per_photon, to_air
from rubix_like.nebular import LINES, SHELF, write_nebular

HOT = np.array([12000.0])
DENSITY = np.array([100.0])
LUMINOSITY = {name: float(energy_per_photon(name, HOT, DENSITY)[0]) for name in ("Ha", "Hb", "Hg", "Brg")} | {
    "[O III] 5007": 2.0e-12,
    "[O III] 4959": 2.0e-12 / 2.984,
    "[N II] 6583": 4e-13,
}
"""erg per photon, of gas of 12000 K."""


def write_nebulabayes(folder, **columns):
    """Two nodes on each axis; ratios to Hb. Columns are called as in the real grid; NaN is a faint line."""
    axes = {"log U": [-3.0, -2.0], "log P/k": [5.0, 6.0], "12 + log O/H": [8.0, 8.7]}
    nodes = np.array(np.meshgrid(*axes.values(), indexing="ij")).reshape(3, -1)[:, ::-1]
    names = {
        "Halpha": "Ha",
        "Hbeta": "Hb",
        "Hgamma": "Hg",
        "Brgamma": "Brg",
        "OIII5007": "[O III] 5007",
        "NII6583": "[N II] 6583",
    }
    given = {name: np.full(8, LUMINOSITY[line] / LUMINOSITY["Hb"]) for name, line in names.items()}
    given |= {"Lyalpha": np.full(8, 30.0), "OIII1661": np.full(8, np.nan), "OII3726_29": np.ones(8)} | columns
    own = [fits.Column(name, "E", array=values) for name, values in zip(axes, nodes, strict=True)]
    own += [fits.Column(name, "E", array=values) for name, values in given.items()]
    path = folder / "grid.fits.gz"
    fits.HDUList([fits.PrimaryHDU(), fits.BinTableHDU.from_columns(own)]).writeto(path, overwrite=True)
    return path


def fsps_text(luminosity=LUMINOSITY):
    wavelengths = [LINES[name].wavelength * (1 + 4.5 / 299792.458) for name in luminosity]
    rows = ["#7 cols 8 rows 2 logZ 2 Age 2 logU", " ".join(f"{own:.6e}" for own in wavelengths)]
    for metal in (-1.0, 0.0):
        for age in (1e6, 3e6):
            for u in (-3.0, -2.0):
                rows += [
                    f"{metal:.4e} {age:.4e} {u:.4e}",
                    " ".join(f"{own / 3.839e33:.6e}" for own in luminosity.values()),
                ]
    return "\n".join(rows) + "\n"


def write_bagpipes(folder, broken=1.0):
    """Lines in air, Lsun per Msun, at 3 ages, of spectra with a known number of photons; 2.5 Zsun is broken."""
    solar, ages, log_u = ("0.200", "1.000", "2.500"), np.array([1e6, 2e6, 4e6]), (-3.0, -2.0, 0.0)
    wavelength = np.array([300.0, 911.753, 1000.0])
    spectra = {z: np.outer([1.0, 1.0, 0.5, 0.1], [k, k, 0.0]) for k, z in enumerate(solar, start=1)}
    integral = (911.753**2 - 300.0**2) / 2 / 1.98644586e-8 * 3.828e33
    stellar = [fits.PrimaryHDU(), *(fits.ImageHDU(own, name=f"ZMET_{z}ZSOL") for z, own in spectra.items())]
    stellar += [
        fits.ImageHDU(np.append(0.0, ages), name="STELLAR_AGE_YR"),
        fits.ImageHDU(wavelength, name="WAVELENGTHS_AA"),
    ]
    fits.HDUList(stellar).writeto(folder / "bc03_miles_stellar_grids.fits")
    images = [fits.PrimaryHDU()]
    places = to_air(np.array([LINES[name].wavelength for name in LUMINOSITY]))
    for u in log_u:
        for k, z in enumerate(solar, start=1):
            photons = integral * k * np.array([1.0, 0.5, 0.1])
            factor = 0.2 if z == "2.500" or u == 0.0 else 1.0
            light = np.outer(photons, list(LUMINOSITY.values())) / 3.826e33 * factor
            image = np.block([[np.zeros((1, 1)), places[None]], [ages[:, None], light]])
            images.append(fits.ImageHDU(image, name=f"ZMET_{z}_LOGU_{u:.1f}"))
    path = folder / "lines.fits"
    fits.HDUList(images).writeto(path)
    return path


def write_synthesizer(
    folder, ids=None, axes=("metallicities", "ages", "ionisation_parameters"), unit="erg/s", **changes
):
    """The lines on 2 metallicities, 3 ages and 2 ionisation parameters, and photons on the first two."""
    path = folder / "bpass_cloudy.hdf5"
    nodes = {"metallicities": [0.002, 0.02], "ages": [1e6, 3e6, 9e6], "ionisation_parameters": [1e-3, 1e-2]}
    known = [
        "H 1 6562.80A",
        "H 1 4861.32A",
        "H 1 4340.46A",
        "H 1 2.16553m",
        "O 3 5006.84A",
        "O 3 4958.91A",
        "N 2 6583.45A",
    ]
    photons = np.array([[46.8, 46.5, 45.0], [46.6, 46.3, 44.0]])
    light = 10 ** photons[:, :, None, None] * np.array([*LUMINOSITY.values(), 1e-12]) * np.ones((1, 1, 2, 1))
    with h5py.File(path, "w") as file:
        file.attrs["axes"] = axes
        for name, values in nodes.items():
            file[f"axes/{name}"] = np.array(values)
        file["axes/ages"].attrs["Units"] = "yr"
        file["lines/id"] = [own.encode() for own in (*(ids or known), "Blnd 7323.00A")]
        file["lines/luminosity"] = light
        file["lines/luminosity"].attrs["Units"] = unit
        file["log10_specific_ionising_luminosity/HI"] = photons
        file.create_group("CloudyParams").attrs.update(
            {"cloudy_version": "c23.01", "hydrogen_density": 100.0, **changes}
        )
    return path


NARROW_LINES = """
-3.0 6.6 8.76 -1.50 2.881 0.4681 0.02728 7.606 1.346 0.6449 0.5117 0.3204
-3.0 6.6 8.76 -1.25 2.900 0.4680 0.02647 10.25 1.627 0.9017 0.6975 0.6347
-3.0 6.6 8.99 -1.50 2.896 0.4665 0.02868 6.226 2.508 0.8056 0.6604 0.3189
-3.0 6.6 8.99 -1.25 2.882 0.4676 0.02784 9.756 3.277 1.1560 0.9193 0.6342
-3.0 7.4 8.76 -1.50 2.876 0.4685 0.02699 8.520 1.416 0.4966 0.5643 0.3487
-3.0 7.4 8.76 -1.25 2.902 0.4681 0.02623 11.02 1.682 0.7252 0.7667 0.6818
-3.0 7.4 8.99 -1.50 2.881 0.4673 0.02822 7.803 2.775 0.6156 0.7539 0.3620
-3.0 7.4 8.99 -1.25 2.874 0.4681 0.02750 11.37 3.517 0.9235 1.0480 0.7175
-2.6 6.6 8.76 -1.50 2.871 0.4685 0.02719 10.58 0.741 0.3433 0.2734 0.1723
-2.6 6.6 8.76 -1.25 2.874 0.4691 0.02622 14.09 0.8876 0.4768 0.3700 0.3438
-2.6 6.6 8.99 -1.50 2.894 0.4665 0.02869 8.517 1.399 0.4260 0.3512 0.1721
-2.6 6.6 8.99 -1.25 2.871 0.4682 0.02768 13.19 1.804 0.6027 0.4829 0.3307
-2.6 7.4 8.76 -1.50 2.864 0.4690 0.02688 11.90 0.7819 0.2689 0.3068 0.1934
-2.6 7.4 8.76 -1.25 2.874 0.4693 0.02598 15.12 0.9192 0.3880 0.4118 0.3777
-2.6 7.4 8.99 -1.50 2.877 0.4675 0.02816 10.87 1.567 0.3281 0.4069 0.1982
-2.6 7.4 8.99 -1.25 2.862 0.4688 0.02730 15.41 1.955 0.4873 0.5603 0.3866
"""
"""16 models of NebulaBayes 0.9.9's grid of narrow-line regions (MIT, Copyright 2017 Adam D. Thomas; data/README.md)."""

NARROW_COLUMNS = (
    *("log U", "log P/k", "12 + log O/H", "log E_peak", "Halpha", "Hgamma", "Brgamma", "OIII5007", "NII6583"),
    *("SII6716", "SII6731", "OI6300"),
)


def write_nlr(folder):
    """A table of active nuclei in our layout, with two nodes on each axis and 8 lines beside those of physics."""
    values = np.array([row.split() for row in NARROW_LINES.strip().splitlines()], dtype=float).T
    columns = {**dict(zip(NARROW_COLUMNS, values, strict=True)), "Hbeta": np.ones(16)}
    own = [fits.Column(name, "D", array=column) for name, column in columns.items()]
    grid = folder / "narrow.fits.gz"
    fits.HDUList([fits.PrimaryHDU(), fits.BinTableHDU.from_columns(own)]).writeto(grid, overwrite=True)
    path = folder / "narrow.h5"
    write_nebular(SHELF.formats.find("nebulabayes-fits").read(grid), path)
    return path
