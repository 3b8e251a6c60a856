"""What each program makes of a file: flux, errors, flags, wavelengths and sky, read by the program's own steps.

nGIST and marvin are not installed: the steps of their readers are followed, as their public sources have them (nGIST's
`readData/MUSE_WFM.py`; marvin's `tools/cube.py` and its data model of DR17).
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from astropy import units
from astropy.io import fits
from astropy.wcs import WCS
from observed import FLUX_UNIT, Mock

CORNER = (0, 0)
"""x, y of the spaxel whose place is reported."""


@dataclass(frozen=True)
class Seen:
    """Arrays with axes (wave, y, x), what their flux is in, Angstrom, and the unit that the program gives.

    `sky`: (RA, Dec) in degrees of spaxels (x, y), or with `is_offset` the arcsec to the right of and above the
    spaxel in the field's middle; None: the program has no use for it. `mask`: True where a voxel is not to be used.
    """

    flux: np.ndarray
    unit: units.UnitBase
    wavelength: np.ndarray | None = None
    wave_unit: str = ""
    sky: Callable[[int, int], tuple[float, float]] | None = None
    is_offset: bool = False
    variance: np.ndarray | None = None
    mask: np.ndarray | None = None
    has_no_mask: bool = False


def by_astropy(mock: Mock) -> Seen:
    with fits.open(mock.path) as hdus:
        wcs = WCS(hdus["DATA"].header)
        n_wave = hdus["DATA"].header["NAXIS3"]
        axis = wcs.spectral.pixel_to_world(np.arange(n_wave))
        return Seen(
            flux=np.array(hdus["DATA"].data),
            unit=units.Unit(hdus["DATA"].header["BUNIT"]),
            wavelength=axis.to_value(units.AA),
            wave_unit=str(axis.unit),
            sky=lambda x, y: degrees(wcs.celestial.pixel_to_world(x, y)),
            variance=np.array(hdus["STAT"].data) if "STAT" in hdus else None,
            mask=np.array(hdus["DQ"].data) != 0 if "DQ" in hdus else np.zeros(hdus["DATA"].data.shape, bool),
        )


def degrees(place: Any) -> tuple[float, float]:
    return place.ra.deg, place.dec.deg


def by_mpdaf(mock: Mock) -> Seen:
    read = importlib.import_module("mpdaf.obj").Cube(str(mock.path))
    return Seen(
        flux=read.data.data,
        unit=read.unit,
        wavelength=read.wave.coord(unit=units.AA),
        wave_unit=str(read.wave.unit),
        sky=lambda x, y: tuple(read.wcs.pix2sky([y, x])[0][::-1]),
        variance=None if read.var is None else read.var.data,
        mask=np.ma.getmaskarray(read.data),
    )


def by_specutils(mock: Mock) -> Seen:
    read = importlib.import_module("specutils").Spectrum.read(mock.path)
    return Seen(
        flux=read.flux.value,
        unit=read.flux.unit,
        wavelength=read.spectral_axis.to_value(units.AA),
        wave_unit=str(read.spectral_axis.unit),
        sky=lambda x, y: tuple(read.wcs.wcs_pix2world(x, y, 0, 0)[:2]),
        variance=None if read.uncertainty is None else read.uncertainty.array,
        mask=np.zeros(read.flux.shape, bool) if read.mask is None else np.asarray(read.mask),
    )


def by_spectral_cube(mock: Mock) -> Seen:
    package = importlib.import_module("spectral_cube").SpectralCube
    read = package.read(mock.path, hdu=1)
    _, dec, ra = read.world[:1]
    with fits.open(mock.path) as hdus:
        has_variance = hdus[2].name == "STAT"
    return Seen(
        flux=read.unmasked_data[:].value,
        unit=read.unit,
        wavelength=read.spectral_axis.to_value(units.AA),
        wave_unit=str(read.spectral_axis.unit),
        sky=lambda x, y: (ra[0, y, x].to_value(units.deg), dec[0, y, x].to_value(units.deg)),
        variance=package.read(mock.path, hdu=2).unmasked_data[:].value if has_variance else None,
        has_no_mask=True,
    )


def by_jdaviz(mock: Mock) -> Seen:
    helper = importlib.import_module("jdaviz").Cubeviz()
    helper.load_data(str(mock.path))
    layers = {
        data.label.removeprefix(mock.path.stem).strip(): data.get_component("flux").data
        for data in helper._app.data_collection
    }
    axis = helper.get_data(mock.path.stem).spectral_axis
    wcs = helper._app.data_collection[0].meta["_orig_spatial_wcs"]
    per_spaxel = units.Unit("erg / (s cm2 Angstrom)")
    sigma = layers.get("[UNC]")
    return Seen(
        flux=layers[""],
        unit=per_spaxel,
        wavelength=axis.to_value(units.AA),
        wave_unit=str(axis.unit),
        sky=lambda x, y: tuple(wcs.wcs_pix2world(x, y, 0)),
        variance=None if sigma is None else (sigma * per_spaxel.to(FLUX_UNIT)) ** 2,
        mask=np.nan_to_num(layers.get("[DQ]", np.zeros(layers[""].shape))) != 0,
    )


def by_ppxf(mock: Mock) -> Seen:
    """As pPXF's examples of MUSE read a cube; then its own resampling to ln(wavelength) must keep the light."""
    rebin = importlib.import_module("ppxf.ppxf_util").log_rebin
    with fits.open(mock.path) as hdus:
        header, flux = hdus["DATA"].header, np.array(hdus["DATA"].data, float)
        stat = np.array(hdus["STAT"].data) if "STAT" in hdus else None
    axis = header["CRVAL3"] + header["CD3_3"] * np.arange(header["NAXIS3"])
    if header["CTYPE3"].endswith("LOG"):  # as its examples of SDSS and MaNGA: from the table of wavelengths
        with fits.open(mock.path) as hdus:
            axis = np.array(hdus["WAVE"].data["WAVE"])
    spectra, log_wavelength, _ = rebin(axis, flux.reshape(axis.size, -1))
    before = np.sum(flux.reshape(axis.size, -1) * np.gradient(axis)[:, None], axis=0)
    after = np.sum(spectra * np.gradient(np.exp(log_wavelength))[:, None], axis=0)
    np.testing.assert_allclose(after[before > 0], before[before > 0], rtol=0.02)
    return Seen(
        flux, units.Unit(header["BUNIT"]), axis, "Angstrom (assumed)", None, False, stat, None, has_no_mask=True
    )


def by_photutils(mock: Mock) -> Seen:
    """The light within squares on the sky as large as a spaxel, centred on where every spaxel should be."""
    aperture = importlib.import_module("photutils.aperture")
    coordinates = importlib.import_module("astropy.coordinates").SkyCoord
    with fits.open(mock.path) as hdus:
        flux, header = np.array(hdus["DATA"].data, float), hdus["DATA"].header
    n_wave, n_y, n_x = flux.shape
    wcs, side = WCS(header).celestial, mock.cube.pixel_scale * units.arcsec
    places = coordinates([mock.sky(x, y) for y in range(n_y) for x in range(n_x)], unit="deg")
    squares = aperture.SkyRectangularAperture(places, side, side)
    found = [aperture.aperture_photometry(plane, squares, wcs=wcs)["aperture_sum"] for plane in flux[:: n_wave - 1]]
    seen = flux.copy()
    seen[:: n_wave - 1] = np.array(found).reshape(2, n_y, n_x)
    centres = squares.to_pixel(wcs).positions
    np.testing.assert_allclose(centres, [(x, y) for y in range(n_y) for x in range(n_x)], atol=1e-6)
    return Seen(
        seen, units.Unit(header["BUNIT"]), sky=lambda x, y: degrees(wcs.pixel_to_world(x, y)), has_no_mask=True,
        variance=None if mock.cube.variance is None else mock.in_order("variance"),
    )  # fmt: skip


def by_ngist(mock: Mock) -> Seen:
    """Flux is HDU 1 and variance HDU 2 by their place, bins are even, the origin is the field's middle."""
    with fits.open(mock.path) as hdus:
        header, flux = hdus[1].header, np.array(hdus[1].data)
        n_wave, n_y, n_x = flux.shape
        variance = None
        if mock.cube.variance is not None:
            variance = np.reshape(hdus[2].data, flux.shape)
        else:  # whatever is there cannot be taken for a variance
            try:
                np.reshape(hdus[2].data, [n_wave, n_y * n_x])
            except ValueError:
                pass
            else:
                raise AssertionError("HDU 2 was taken for a variance")
    side = header["CD2_2"] * 3600.0
    return Seen(
        flux,
        units.Unit(header["BUNIT"]),
        header["CRVAL3"] + np.arange(n_wave) * header["CD3_3"],
        "Angstrom (assumed)",
        lambda x, y: ((x - (n_x - 1) / 2) * side, (y - (n_y - 1) / 2) * side),
        True,
        variance,
        has_no_mask=True,
    )


MARVIN_CARDS = ("PLATEIFU", "MANGAID", "VERSDRP3", "SRVYMODE", "OBJRA", "OBJDEC")
"""Cards of HDU 1 that marvin's Cube reads."""

MARVIN_ARRAYS = (
    "FLUX",
    "IVAR",
    "MASK",
    "LSFPOST",
    "LSFPRE",
    "WAVE",
    "SPECRES",
    "SPECRESD",
    "PRESPECRES",
    "PRESPECRESD",
)
"""Extensions of its data model of DR17 that hold cubes and spectra."""


def by_marvin(mock: Mock) -> Seen:
    with fits.open(mock.path) as hdus:
        header = hdus[1].header
        assert [name for name in MARVIN_CARDS if name not in header] == []
        plate, ifu = header["PLATEIFU"].split("-")
        assert (plate + ifu).isdigit()
        assert [name for name in MARVIN_ARRAYS if name not in hdus] == []
        shape = header["NAXIS2"], header["NAXIS1"]
        cubes = {name: np.array(hdus[name].data) for name in ("FLUX", "IVAR", "MASK", "LSFPOST", "LSFPRE")}
        assert {own.shape[1:] for own in cubes.values()} == {shape}
        wavelength, wcs = np.array(hdus["WAVE"].data), WCS(header)
        assert {hdus[name].data.shape for name in MARVIN_ARRAYS[5:]} == {wavelength.shape}
        centre = degrees(wcs.celestial.pixel_to_world((shape[1] - 1) / 2, (shape[0] - 1) / 2))
        np.testing.assert_allclose(centre, (float(header["OBJRA"]), float(header["OBJDEC"])), atol=1e-9)
    do_not_use = cubes["MASK"] & (1 << 10) != 0
    ivar = cubes["IVAR"].astype(float)
    variance = np.divide(1.0, ivar, out=np.zeros_like(ivar), where=ivar > 0)
    unit = units.Unit("1e-17 erg / (s cm2 Angstrom)")
    to_ours = unit.to(FLUX_UNIT) ** 2
    sky = lambda x, y: degrees(wcs.celestial.pixel_to_world(x, y))  # noqa: E731
    return Seen(cubes["FLUX"], unit, wavelength, "Angstrom", sky, False, variance * to_ours, do_not_use)


def of_store(mock: Mock, arrays: Mapping[str, Any], attributes: Mapping[str, Any], wave_unit: str, unit: str) -> Seen:
    """Arrays of a Zarr store, whose header has the world coordinates."""
    wcs = WCS(fits.Header.fromstring(attributes["header"], sep="\n"))
    in_order = {
        name: np.moveaxis(np.asarray(arrays[name]), 2, 0) for name in ("flux", "variance", "mask") if name in arrays
    }
    return Seen(
        flux=in_order["flux"],
        unit=units.Unit(unit),
        wavelength=units.Unit(wave_unit).to(units.AA, np.asarray(arrays["wave"])),
        wave_unit=wave_unit,
        sky=lambda x, y: degrees(wcs.celestial.pixel_to_world(x, y)),
        variance=in_order.get("variance"),
        mask=in_order["mask"] != 0,
    )


def by_xarray(mock: Mock) -> Seen:
    read = importlib.import_module("xarray").open_zarr(mock.path.with_suffix(".zarr"))
    return of_store(mock, read, read.attrs, read.wave.units, read.flux.units)


def by_zarr(mock: Mock) -> Seen:
    group = importlib.import_module("zarr").open_group(mock.path.with_suffix(".zarr"), mode="r")
    arrays = {name: own[...] for name, own in group.arrays()}
    return of_store(mock, arrays, group.attrs, group["wave"].attrs["units"], group["flux"].attrs["units"])


@dataclass(frozen=True)
class Client:
    """A program: the package with its version ("": only its steps), how a file is opened, and which files it is for."""

    read: Callable[[Mock], Seen]
    package: str
    opened: str
    files: tuple[str, ...] = ("muse", "manga", "noiseless")


CLIENTS: dict[str, Client] = {
    "astropy": Client(by_astropy, "astropy", '`fits.open(path)`, `WCS(hdus["DATA"].header)`'),
    "mpdaf": Client(by_mpdaf, "mpdaf", "`Cube(path)`"),
    "specutils": Client(by_specutils, "specutils", "`Spectrum.read(path)`"),
    "spectral-cube": Client(by_spectral_cube, "spectral-cube", "`SpectralCube.read(path, hdu=1)`"),
    "jdaviz": Client(by_jdaviz, "jdaviz", "`Cubeviz().load_data(path)`"),
    "pPXF": Client(by_ppxf, "ppxf", "as in its examples: `CRVAL3`, `CD3_3` or WAVE; `log_rebin`"),
    "photutils": Client(by_photutils, "photutils", "`aperture_photometry(plane, on_sky, wcs=wcs)`"),
    "nGIST": Client(by_ngist, "", "its reader `MUSE_WFM`, step by step", ("muse", "noiseless")),
    "marvin": Client(by_marvin, "", "its `Cube`, step by step; layout `manga`", ("logcube",)),
    "xarray": Client(by_xarray, "xarray", '`open_zarr("cube.zarr")`'),
    "zarr": Client(by_zarr, "zarr", '`open_group("cube.zarr")`'),
}


def faults(seen: Seen, mock: Mock) -> list[str]:
    """What a program has wrong of a file; empty where it has all of it right."""
    used = mock.in_order("mask") == 0
    factor = (1 * seen.unit).to_value(FLUX_UNIT) if seen.unit.is_equivalent(FLUX_UNIT) else np.nan
    found = {
        "flux": close(np.asarray(seen.flux)[used] * factor, mock.in_order("flux")[used], 2e-6),
        "wavelength": seen.wavelength is None or close(seen.wavelength, mock.cube.wavelength, 1e-10),
        "mask": seen.has_no_mask or np.array_equal(seen.mask, ~used),
        "variance": (seen.variance is None) == (mock.cube.variance is None)
        and (seen.variance is None or close(np.asarray(seen.variance)[used], mock.in_order("variance")[used], 2e-6)),
        "sky": seen.sky is None or all(distance(seen, mock, x, y) < 1e-6 for x, y in mock.corners),
    }
    return [name for name, is_right in found.items() if not is_right]


def close(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, rtol=tolerance, atol=0))


def distance(seen: Seen, mock: Mock, x: int, y: int) -> float:
    """arcsec between where a spaxel is seen and where it is."""
    assert seen.sky is not None
    one, other = seen.sky(x, y)
    if seen.is_offset:
        n_y, n_x, _ = mock.cube.flux.shape
        side = mock.cube.pixel_scale
        return float(np.hypot(one - (x - (n_x - 1) / 2) * side, other - (y - (n_y - 1) / 2) * side))
    ra, dec = mock.sky(x, y)
    return float(3600 * np.hypot((one - ra) * np.cos(np.radians(dec)), other - dec))


def place(seen: Seen) -> str:
    """Where the first spaxel is, in words for the table."""
    if seen.sky is None:
        return "not read"
    one, other = map(float, seen.sky(*CORNER))
    return f"{one:+.3f}, {other:+.3f} arcsec from the middle" if seen.is_offset else f"{one:.6f}, {other:.6f}"
