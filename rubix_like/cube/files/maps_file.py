"""Maps as FITS files: one image per extension, named as the fields of `MapSet`; before the PSF with _TRUE added.

PRIMARY (the run in cards, no data), the images (y, x) after the PSF, LOSVD (velocity, y, x), per filter FLUX_<name> and
MAG_<name> (with maps of dust INTRINSIC_FLUX_<name>), per emission line LINE_FLUX_<name> and the like, per field of the
pipeline and map of a plug-in FIELD_<name>, the same before the PSF, DQ (mask), with maps of dust ATTENUATION (table of
the curve), CONFIG (table of `maps.meta` and the counters).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.files.default import config_table, opened_whole, primary_cards, read_config_table
from rubix_like.cube.files.fits_images import encoded, gzipped
from rubix_like.cube.footprint import Card, Footprint, header_of
from rubix_like.cube.maps import AttenuationCurve, LineLabel, LineMaps, MapLabel, Maps, MapSet, ProductAxes
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.outputs import beside, replacing
from rubix_like.runtime.files.writers import MAPS, MAPS_CARD, ORIGIN, check_outputs

SUFFIXES: tuple[str, ...] = (".fits", ".fits.gz")

LINE_CARD: str = "LINE"
"""Card of the images of an emission line: its name."""

TRUE: str = "_TRUE"
"""End of the names of extensions that hold what is before the PSF."""

_MASK_CARDS: tuple[Card, ...] = (
    ("BFORM", "X", "bits; 0 is good"),
    ("DQBIT2", "outside aperture", "value 2: outside the aperture"),
)
_LIGHT, _MASS, _GAS = "weighted by light", "weighted by mass now", "weighted by its mass"

EXTENSIONS: tuple[tuple[str, str, str], ...] = (
    ("number", "", "stars"),
    ("birth_mass", "solMass", "mass at birth"),
    ("mass", "solMass", "mass now"),
    ("light", "10**-20 erg s-1 cm-2", "light in the band that weights (card BAND)"),
    ("v_light", "km s-1", f"mean velocity, {_LIGHT}"),
    ("sigma_light", "km s-1", f"velocity dispersion, {_LIGHT}"),
    ("v_mass", "km s-1", f"mean velocity, {_MASS}"),
    ("sigma_mass", "km s-1", f"velocity dispersion, {_MASS}"),
    ("log_age_light", "", f"mean log10(age/yr), {_LIGHT}"),
    ("log_age_mass", "", f"mean log10(age/yr), {_MASS}"),
    ("age_light", "Gyr", f"mean age, {_LIGHT}"),
    ("age_mass", "Gyr", f"mean age, {_MASS}"),
    ("metallicity_light", "", f"mean metal mass fraction, {_LIGHT}"),
    ("metallicity_mass", "", f"mean metal mass fraction, {_MASS}"),
    ("v_fit", "km s-1", "V of the Gauss-Hermite fit to LOSVD"),
    ("sigma_fit", "km s-1", "sigma of the Gauss-Hermite fit to LOSVD"),
    ("h3", "", "h3 of the Gauss-Hermite fit to LOSVD"),
    ("h4", "", "h4 of the Gauss-Hermite fit to LOSVD"),
)
"""(field of `MapSet`, BUNIT, what it is) of the images; an extension has the name of the field in capitals."""

GAS_EXTENSIONS: tuple[tuple[str, str, str], ...] = (
    ("gas_mass", "solMass", "mass of gas"),
    ("v_gas", "km s-1", f"mean velocity of gas, {_GAS}"),
    ("sigma_gas", "km s-1", f"velocity dispersion of gas, {_GAS}"),
    ("metallicity_gas", "", f"mean metal mass fraction of gas, {_GAS}"),
    ("star_formation_rate", "solMass yr-1", "star formation rate of gas"),
    ("hi_mass", "solMass", "mass of neutral hydrogen, HI alone where H2 is known"),
    ("h2_mass", "solMass", "mass of molecular hydrogen"),
)
"""The same for the images of gas, which only some files have."""

LINE_EXTENSIONS: tuple[tuple[str, str, str], ...] = (
    ("flux", "10**-20 erg s-1 cm-2", "flux of {line}"),
    ("intrinsic_flux", "10**-20 erg s-1 cm-2", "flux of {line} before dust"),
    ("v", "km s-1", "mean velocity of {line}"),
    ("sigma", "km s-1", "velocity dispersion of {line}"),
    ("continuum", "10**-20 erg s-1 cm-2 Angstrom-1", "flux density beside {line}"),
    ("equivalent_width", "Angstrom", "equivalent width of {line} at rest"),
)
"""(field of `LineMaps`, BUNIT, what it is) of the images of a line, which are called LINE_FIELD_<name>."""

PHOTON_EXTENSION: tuple[str, str, str] = ("ionising_photons", "10**49 s-1", "ionising photons that gas absorbs (Q_H)")
"""The same for the image that goes with the lines of nebulae."""

DUST_EXTENSIONS: tuple[tuple[str, str, str], ...] = (
    ("intrinsic_light", "10**-20 erg s-1 cm-2", "light in the band that weights, before dust"),
    ("a_v_light", "mag", "mean A(V) of stars, weighted by light before dust"),
    ("a_v_mass", "mag", f"mean A(V) of stars, {_MASS}"),
    ("balmer_decrement", "", "Ha / Hb"),
    ("a_v_balmer", "mag", "A(V) by Ha / Hb and that before dust"),
)
"""The same for the images of `products.dust`; the last two only where there are maps of both lines."""

CURVE_NAME: str = "ATTENUATION"
"""Extension with the attenuation curve of all stars in the field, a table."""

CURVE_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("wavelength", "Angstrom", "in vacuum, at rest"),
    ("intrinsic", "10**-20 erg s-1 cm-2 Angstrom-1", "mean flux density of all stars before dust"),
    ("attenuated", "10**-20 erg s-1 cm-2 Angstrom-1", "the same behind it"),
    ("a_lambda", "mag", "A = -2.5 log10(attenuated / intrinsic)"),
    ("relative", "", "A / A(5500 Angstrom)"),
)
"""(field of `AttenuationCurve`, TUNIT, what it is) of its columns, which have the names in capitals."""

LOSVD_UNIT: str = "10**-20 erg s-1 cm-2 km-1 s"
"""Light per velocity: per (km/s)."""

_IMAGES = (*EXTENSIONS, *GAS_EXTENSIONS, *DUST_EXTENSIONS, PHOTON_EXTENSION)

_BARE = "INTRINSIC_FLUX"
"""Name of the images through filters before dust."""


def maps_path(cube_path: str | Path, chosen: Path | str | bool | None) -> Path:
    """The file of a run's maps: `output.maps` if it is a path, else beside the cube: cube.fits -> cube_maps.fits."""
    if isinstance(chosen, Path):
        return chosen.expanduser()
    return beside(Path(cube_path).expanduser(), "_maps.fits")


def maps_file_size(footprint: Footprint, axes: ProductAxes | None = None) -> int:
    """Bytes of an uncompressed file of maps (for `check_writable`): 4 per spaxel and image, blocks of 2880, CONFIG;
    without `axes` of the images that every file of maps has."""
    n_image, n_velocity = len(EXTENSIONS), 0
    if axes is not None:
        n_image += 2 * len(axes.filters) + len(axes.fields) + len(GAS_EXTENSIONS) * axes.has_gas
        n_image += 0 if axes.lines is None else len(LINE_EXTENSIONS) * len(axes.lines.lines) + 1
        n_image += 0 if axes.dust is None else len(DUST_EXTENSIONS) + len(axes.filters)
        n_velocity = 0 if axes.velocity is None else len(axes.velocity)
    return 4 * footprint.n_element * (2 * (n_image + n_velocity) + 1) + 2 * n_image * 8640 + 200_000


def write_maps(maps: Maps, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write maps, Gauss-Hermite fits included, to `path` (.fits or .fits.gz) and return the path.

    Raises ConfigError for another suffix and (without `overwrite`) where there is a file of another kind,
    OSError (disk full, no permission, no such folder) with the remedy.
    """
    path = Path(path).expanduser()
    if not path.name.lower().endswith(SUFFIXES):
        raise ConfigError(f"path: expected a name ending in {', '.join(SUFFIXES)}, got '{path.name}'")
    check_outputs([path], [MAPS], overwrite=overwrite)
    maps = maps if maps.after.h3 is not None else maps.fitted()
    cards = (
        *(card for card in primary_cards(maps) if card[0] != "DISPAXIS"),
        ("BAND", maps.band, "light is that in this band"),
        (MAPS_CARD, len(maps.filters), "filters with images"),
        *((f"FILTER{number}", name, "") for number, name in enumerate(maps.filters, start=1)),
        ("FITSTARS", maps.fit_particles, "least stars of a spaxel with a fit"),
    )
    primary = fits.PrimaryHDU(header=header_of(cards))
    hdus: list[Any] = [primary, *_images(maps.after, maps, ""), *_images(maps.before, maps, TRUE)]
    bits = header_of((*_MASK_CARDS, *_sky(maps)))
    hdus += [fits.ImageHDU(np.asarray(maps.mask, np.int32), bits, name="DQ")]
    if maps.attenuation is not None:
        columns = [
            fits.Column(name.upper(), "D", unit=unit or None, array=np.asarray(getattr(maps.attenuation, name), float))
            for name, unit, _ in CURVE_COLUMNS
        ]
        table = fits.BinTableHDU.from_columns(columns, name=CURVE_NAME)
        for number, (_, _, text) in enumerate(CURVE_COLUMNS, start=1):
            table.header[f"TCOMM{number}"] = text
        hdus.append(table)
    hdus.append(config_table(maps))
    fits.HDUList(hdus).update_extend()
    with replacing(path) as temporary:
        is_compressed = temporary.suffix.lower() == ".gz"
        with gzipped(temporary) if is_compressed else temporary.open("wb") as stream:
            for hdu in hdus:
                stream.write(encoded(hdu))
    return path


def read_maps(path: str | Path) -> Maps:
    """Read maps written by `write_maps` (float32 images); raises FileNotFoundError, or ValueError for another file."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such maps: {path}; check the path (a run with `products` writes them)")
    expected = "one written by Maps.write; open other files with astropy.io.fits"
    with opened_whole(path, "file of maps", expected) as hdus:
        return _maps_from(hdus)


def _images(images: MapSet, maps: Maps, suffix: str) -> Iterator[fits.ImageHDU]:
    stage = "after the PSF" if suffix == "" else "before the PSF (truth)"
    for field, unit, text in _IMAGES:
        image = getattr(images, field)
        if image is not None:
            yield _image(field.upper() + suffix, image, unit, f"{text}, {stage}", _sky(maps))
    magnitude = np.asarray(images.magnitude)
    for number, name in enumerate(maps.filters):
        flux = np.asarray(images.flux)[:, :, number]
        yield _image(flux_name(name) + suffix, flux, "nJy", f"mean flux density in {name}, {stage}", _sky(maps))
        text = f"AB magnitude per spaxel in {name}, {stage}"
        yield _image(flux_name(name, "MAG") + suffix, magnitude[:, :, number], "mag", text, _sky(maps))
        if images.intrinsic_flux is not None:
            bare = np.asarray(images.intrinsic_flux)[:, :, number]
            text = f"mean flux density in {name} before dust, {stage}"
            yield _image(flux_name(name, _BARE) + suffix, bare, "nJy", text, _sky(maps))
    for line in maps.lines:
        cards = (
            *_sky(maps),
            (LINE_CARD, line.name, "emission line"),
            ("LINEWAVE", line.wavelength, "[Angstrom] at rest, in vacuum"),
            ("LINESEEN", line.observed, "[Angstrom] on the detector, in its medium"),
            ("LINEBASE", line.has_continuum, "whether all light beside the line is known"),
        )
        for field, unit, text in LINE_EXTENSIONS:
            image = getattr(images.lines[line.name], field)
            if image is not None:
                words = f"{text.format(line=line.name)}, {stage}"
                yield _image(line_name(line.name, field) + suffix, image, unit, words, cards)
    for label in maps.fields:
        cards = (*_sky(maps), ("FIELD", label.name, "name of the map"), ("FTEXT", label.text, "what it is"))
        text = f"{label.text}, {stage}"
        yield _image(field_name(label.name) + suffix, images.fields[label.name], label.unit, text, cards)
    if images.losvd is not None and maps.velocity is not None:
        cube = np.moveaxis(np.asarray(images.losvd), 2, 0)
        cards = (*_sky(maps, 3), *_velocity_cards(maps, np.asarray(maps.velocity)))
        yield _image("LOSVD" + suffix, cube, LOSVD_UNIT, f"light per velocity, {stage}", cards)


def line_name(line: str, field: str = "flux") -> str:
    """Name of the extension with a map of a line: LINE_FLUX_OIII5007."""
    return f"LINE_{field}_{re.sub(r'[^0-9A-Za-z.]', '', line)}".upper()


def flux_name(filter_name: str, kind: str = "FLUX") -> str:
    """Name of the extension with the image through a filter."""
    return f"{kind}_{filter_name.upper()}"


def field_name(name: str) -> str:
    """Name of the extension with the map of a field of the pipeline."""
    return f"FIELD_{name.upper()}"


def _velocity_cards(maps: Maps, velocity: Float[ndarray, " velocity"]) -> tuple[Card, ...]:
    """Cards of a velocity axis in km/s: radial velocities in the frame of the galaxy (FITS paper III)."""
    step = float(velocity[1] - velocity[0])
    return (
        ("CTYPE3", "VELO", "velocity, + receding"),
        ("CUNIT3", "km/s", ""),
        ("CRPIX3", 1.0, "first bin"),
        ("CRVAL3", float(velocity[0]), "[km/s] centre of the first bin"),
        *((card, 0.0, "") for card in ("CD1_3", "CD2_3", "CD3_1", "CD3_2")),
        ("CD3_3", step, "[km/s] step"),
        ("CDELT3", step, "same as CD3_3"),
        ("SPECSYS", "SOURCE", "velocities are relative to the galaxy"),
        ("ZSOURCE", float(maps.meta.get("redshift") or 0.0), "redshift of the galaxy"),
    )


def _sky(maps: Maps, axes: int = 2) -> tuple[Card, ...]:
    cards = (card for card in maps.wcs_cards if card[0] != "WCSAXES")
    return (("WCSAXES", axes, "number of world axes"), *cards)


def _image(name: str, values: object, unit: str, text: str, world: tuple[Card, ...]) -> fits.ImageHDU:
    header = header_of(((("BUNIT", unit, ""),) if unit else ()) + world)
    header["COMMENT"] = text
    return fits.ImageHDU(np.ascontiguousarray(np.asarray(values, np.float32)), header, name=name)


def _maps_from(hdus: Any) -> Maps:
    header = hdus[0].header
    if header.get("ORIGIN") != ORIGIN or "LIGHT" not in hdus:
        raise ValueError(f"ORIGIN is {header.get('ORIGIN')!r}, not {ORIGIN!r} with the extension LIGHT")
    filters = tuple(header[f"FILTER{number}"] for number in range(1, header[MAPS_CARD] + 1))
    meta, counters, _ = read_config_table(hdus["CONFIG"])
    named = [hdu.header for hdu in hdus if hdu.name == field_name(hdu.header.get("FIELD", ""))]
    fields = tuple(MapLabel(found["FIELD"], found.get("BUNIT", ""), found["FTEXT"]) for found in named)
    named = [hdu.header for hdu in hdus if hdu.name == line_name(hdu.header.get(LINE_CARD, ""))]
    lines = tuple(
        LineLabel(*(found[card] for card in (LINE_CARD, "LINEWAVE", "LINESEEN", "LINEBASE"))) for found in named
    )
    mask = np.array(hdus["DQ"].data, np.int32)
    velocity, curve = None, None
    if "LOSVD" in hdus:
        axis = hdus["LOSVD"].header
        velocity = np.array([axis["CRVAL3"] + axis["CD3_3"] * number for number in range(axis["NAXIS3"])], np.float64)
    if CURVE_NAME in hdus:
        rows = hdus[CURVE_NAME].data
        curve = AttenuationCurve(
            *(np.array(rows[name], np.float64) for name in ("WAVELENGTH", "INTRINSIC", "ATTENUATED"))
        )
    return Maps(
        before=_set_from(hdus, filters, fields, lines, TRUE),
        after=_set_from(hdus, filters, fields, lines, ""),
        mask=mask,
        velocity=velocity,
        counters=counters,
        filters=filters,
        band=header["BAND"],
        fit_particles=header["FITSTARS"],
        footprint=Footprint.of(mask.shape, float(header["PIXSCALE"])),
        meta=meta,
        fields=fields,
        lines=lines,
        attenuation=curve,
    )


def _set_from(
    hdus: Any, filters: tuple[str, ...], labels: tuple[MapLabel, ...], lines: tuple[LineLabel, ...], suffix: str
) -> MapSet:
    def image(name: str) -> Any:
        return np.array(hdus[name + suffix].data, np.float32)

    def through(kind: str) -> Any:
        empty = np.zeros((*np.shape(hdus["LIGHT"].data), 0), np.float32)
        return np.concatenate([empty, *(image(flux_name(name, kind))[:, :, None] for name in filters)], axis=2)

    maps = {field: image(field.upper()) for field, _, _ in _IMAGES if field.upper() + suffix in hdus}
    of_lines = {}
    for line, *_ in lines:
        names = {field: line_name(line, field) for field, _, _ in LINE_EXTENSIONS}
        images: dict[str, Any] = {
            field: image(name) if name + suffix in hdus else None for field, name in names.items()
        }
        of_lines[line] = LineMaps(**images)
    return MapSet(
        **maps,
        flux=through("FLUX"),
        intrinsic_flux=through(_BARE) if "INTRINSIC_LIGHT" in hdus else None,
        losvd=np.ascontiguousarray(np.moveaxis(image("LOSVD"), 0, 2)) if "LOSVD" in hdus else None,
        lines=of_lines,
        fields={name: image(field_name(name)) for name, _, _ in labels},
    )
