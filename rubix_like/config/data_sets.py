"""Settings of the data of a fit: one cube, or several sets that are fitted together, each with separate nuisances."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from rubix_like.config.parameters import Prior
from rubix_like.config.quantities import Arcsec, Degree, Integer, Number, PositiveAngstrom, Sizes, number_in
from rubix_like.config.settings import AbstractSettings

Window = tuple[PositiveAngstrom, PositiveAngstrom]
"""First and last wavelength in Angstrom of the data's own medium."""

Windows = Annotated[tuple[Window, ...], Field(min_length=1)]

FLAT: str = "flat"
"""Stands for a template of a sky that is the same everywhere in a set."""

GIVEN: str = "given"
"""Stands for spectra of fibres that are given in Python."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def check_windows(*windows: tuple[Window, ...] | None) -> None:
    """Raise ValueError for a window that does not increase."""
    for low, high in (window for set_ in windows for window in set_ or ()):
        if low >= high:
            raise ValueError(f"windows, exclude: expected increasing wavelengths, got [{low:g}, {high:g}]")


class PolynomialSettings(AbstractSettings):
    """A multiplicative continuum of its own for every spaxel: 1 + sum_j c_j P_j(x), P_j Legendre, x from -1 to 1."""

    degree: Annotated[Integer, Field(ge=1, le=30)]
    """Of the highest Legendre polynomial; the constant one is left out, so that brightness is the model's."""
    sigma: Annotated[Number, Field(gt=0)] = 0.1
    """Standard deviation of the coefficients' normal prior about 0."""


_number_as_degree = BeforeValidator(
    lambda value: {"degree": value} if isinstance(value, int | str) and not isinstance(value, bool) else value
)

Continuum = Annotated[PolynomialSettings, _number_as_degree]
"""A multiplicative continuum, as a section or as its degree alone."""


class CovarianceSettings(AbstractSettings):
    """Correlated normal errors; standard deviations stay those of the data."""

    between: Literal["spaxels", "wavelengths", "voxels"]
    """Whether spaxels are correlated, at each wavelength alike, wavelengths, in each spaxel alike, or all voxels."""
    matrix: Path | tuple[tuple[Number, ...], ...]
    """Covariance or correlations, symmetric, y before x before wavelength: a file of numpy (.npy), or rows of numbers.
    Only its correlations are used."""

    @field_validator("matrix", mode="before")
    @classmethod
    def _as_rows(cls, value: object) -> object:
        lists: list[list[object]] = [row for row in value if isinstance(row, list)] if isinstance(value, list) else []
        lengths = {len(row) for row in lists}
        if len(lengths) > 1:
            raise ValueError(f"expected rows of one length, got rows of {', '.join(map(str, sorted(lengths)))} numbers")
        words = [cell for row in lists for cell in row if isinstance(cell, str) and number_in(cell) is None]
        if words:
            raise ValueError(f"expected rows of numbers, got '{words[0]}' among them")
        return value


Covariance = Annotated[
    Annotated[Literal["auto", "data", None], Tag("kind=word")] | Annotated[CovarianceSettings, Tag("kind=section")],
    Discriminator(lambda value: "kind=section" if isinstance(value, Mapping | CovarianceSettings) else "kind=word"),
]
"""Where correlations come from."""


class SkyResidualSettings(AbstractSettings):
    """Light that the subtraction of the sky has left, the same in every spaxel: a sum of templates."""

    templates: Path = Path(FLAT)
    """A table of text: wavelengths (Angstrom, in the set's medium), then a column for each template; or flat: one that
    is 1 everywhere."""
    sigma: Annotated[Number, Field(gt=0)]
    """Standard deviation of the amplitudes' normal prior about 0, in 1e-20 erg/s/cm2/Angstrom per unit of a
    template."""


class NuisanceSettings(AbstractSettings):
    """Unknowns of one set of data: each key's prior makes a free parameter `data.NAME.KEY`."""

    scale: Prior | None = None
    """Prior of a factor on the model's flux, > 0: the error of the flux calibration, e.g. {log_normal: [1, 0.1]}."""
    shift: Prior | None = None
    """Prior of an error of the coordinates: (East, North) by which the galaxy is displaced in this set, in arcsec; of
    both, or a list of two numbers for each number."""
    velocity_shift: Prior | None = None
    """Prior of an error of the wavelengths: km/s added along the line of sight in this set."""
    psf_fwhm: Prior | None = None
    """Prior of `instrument.psf.fwhm` of this set."""
    lsf_scale: Prior | None = None
    """Prior of a factor on the width of `instrument.lsf` of this set, e.g. {uniform: [0.9, 1.2]}."""
    polynomial: Continuum | None = None
    """Of the whole set's spectra: the flux is multiplied by 1 + sum_j c_j P_j(x), P_j Legendre, x from -1 to 1; a
    number alone is the degree."""
    sky: SkyResidualSettings | None = None
    """Light that the subtraction of the sky has left."""


_APERTURES = (0.01, 3600.0)
"""Arcsec: from below the slits and fibres of telescopes in space, or with adaptive optics, to a degree."""

_MOST_CELLS = 1000


class SpectrumAperture(AbstractSettings):
    """The aperture on the sky of a spectrum: all the light inside counts."""

    shape: Literal["square", "rectangle", "circle", "hexagon"] = "circle"
    size: Sizes
    """Arcsec: diameter of the circle; side, [x, y]; the hexagon from corner to corner."""
    ra: Annotated[Degree, Field(ge=0, le=360)] | None = None
    """Right ascension of its centre in deg (ICRS); null: the centre of the first cube."""
    dec: Annotated[Degree, Field(ge=-90, le=90)] | None = None
    """Declination of its centre in deg (ICRS)."""
    angle: Degree = 0.0
    """Position angle of its height in deg, from North through East."""
    pixel_scale: Annotated[Arcsec, Field(gt=0)] | None = None
    """Side of the cells that the light inside is summed over; null: a 15th of the smaller side."""

    @field_validator("size")
    @classmethod
    def _check_size(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        low, high = _APERTURES
        wrong = [side for side in value if not low <= side <= high]
        if wrong:
            raise ValueError(
                f"expected {low:g} to {high:g} arcsec, got {wrong[0]:g}; numbers without a unit are in arcsec"
            )
        return value

    @model_validator(mode="after")
    def _check_cells_and_place(self) -> "SpectrumAperture":
        least = max(self.size) / _MOST_CELLS
        if self.pixel_scale is not None and self.pixel_scale < least:
            raise ValueError(
                f"pixel_scale: expected at most {_MOST_CELLS} cells along a side, so at least {least:.3g} arcsec, got "
                f"{self.pixel_scale:g}; leave it out"
            )
        if (self.ra is None) != (self.dec is None):
            raise ValueError("expected ra and dec, or neither, got one of them")
        return self


class DataSetSettings(AbstractSettings):
    """One set of data among several: a cube, an image or a spectrum of the same galaxy."""

    instead: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("file", "path", "data"), "give the file as what it is: cube, image, spectrum or fibres"
    )
    cube: Path | None = None
    """An observed cube (FITS or HDF5); null where data are given in Python, or for an image or a spectrum."""
    image: Path | None = None
    """An image (FITS): the mean flux density in a band."""
    spectrum: Path | None = None
    """A spectrum: a table (FITS, ECSV or text) of wavelengths, fluxes and their standard deviations."""
    fibres: Path | None = None
    """Spectra of fibres: a file of row-stacked spectra in MaNGA's layout (FITS), or given: in Python, a cube that holds
    them. The set's instrument must have the same fibres."""
    filter: str | None = None
    """Of an image: response of the band for photons, a table of text (Angstrom in vacuum, response) or a curve of
    speclite by its name."""
    bins: Annotated[Integer, Field(ge=2, le=10000)] = 64
    """Of an image: bins of wavelength that the band is summed over."""
    aperture: SpectrumAperture | None = None
    """Of a spectrum: where it was taken."""
    medium: Literal["air", "vacuum"] | None = None
    """Of the file's wavelengths; null: as its header says (of a spectrum that says nothing, air)."""
    units: str | None = None
    """Of the file's fluxes, e.g. 1e-16 erg/s/cm2/Angstrom; null: as its header says."""
    pixel_scale: Annotated[Arcsec, Field(gt=0)] | None = None
    """Side of the file's spaxels; null: as its header says."""
    hdu: str | int | None = None
    """HDU of the file's fluxes, its name or number; null: as docs/observed-cubes.md says."""
    windows: Windows | None = None
    """Wavelengths that are fitted; null: all."""
    exclude: tuple[Window, ...] = ()
    """Wavelengths that are left out, e.g. sky lines."""
    sigma: Annotated[Number, Field(gt=0)] | None = None
    """Standard deviation (1e-20 erg/s/cm2/Angstrom) of every value of data that have none; null: the data's."""
    covariance: Covariance = "auto"
    """Correlations between the voxels of this set, as `likelihood.covariance`."""
    instrument: dict[str, Any] | None = None
    """The instrument: a whole section if it has a `name`, else keys that differ from the run's; null: the run's."""
    pipeline: str | None = None
    """The pipeline; null: the run's."""
    nuisance: NuisanceSettings = NuisanceSettings()
    """What is not known of this set."""

    @property
    def kind(self) -> Literal["cube", "image", "spectrum", "fibres"]:
        """The kind of the data."""
        if self.fibres is not None:
            return "fibres"
        if self.filter is not None:
            return "image"
        return "cube" if self.aperture is None else "spectrum"

    @property
    def file(self) -> Path | None:
        """The file of the data; None: given in Python."""
        path = getattr(self, self.kind)
        return None if path == Path(GIVEN) and self.kind == "fibres" else path

    @property
    def files(self) -> Iterator[Path]:
        """All files that are read for this set."""
        filter_file = None if self.filter is None or not Path(self.filter).suffix else Path(self.filter)
        matrix = self.covariance.matrix if isinstance(self.covariance, CovarianceSettings) else None
        sky = None if self.nuisance.sky is None else self.nuisance.sky.templates
        found = (self.file, filter_file, matrix if isinstance(matrix, Path) else None, sky)
        yield from (path for path in found if path is not None and path != Path(FLAT))

    @field_validator("instrument", mode="before")
    @classmethod
    def _check_section(cls, value: object) -> object:
        if value is not None and not isinstance(value, Mapping):
            raise ValueError(f"expected a section such as {{name: sami}} or {{psf: {{fwhm: 2}}}}, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> "DataSetSettings":
        given = [name for name in ("cube", "image", "spectrum", "fibres") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"expected one of cube, image, spectrum and fibres, got {' and '.join(given)}")
        if self.filter is not None and self.aperture is not None:
            raise ValueError("expected a filter (of an image) or an aperture (of a spectrum), got both")
        for name, key in (("image", "filter"), ("spectrum", "aperture")):
            if given == [name] and getattr(self, key) is None:
                raise ValueError(f"{name}: expected {key} beside it, got none")
            if given and given != [name] and getattr(self, key) is not None:
                raise ValueError(f"{key}: expected none beside a {given[0]}, got one; give the data as {name}")
        check_windows(self.windows, self.exclude)
        self._check_against_kind()
        return self

    def _check_against_kind(self) -> None:
        if self.kind == "spectrum" and self.hdu is not None:
            raise ValueError(f"hdu: expected null for a spectrum, which is a table, got {self.hdu!r}; leave it out")
        if self.kind == "spectrum" and self.pixel_scale is not None:
            raise ValueError(
                f"pixel_scale: expected null for a spectrum, which has no spaxels, got {self.pixel_scale:g}; the "
                f"cells of its aperture are aperture.pixel_scale"
            )
        if self.kind != "cube" and self.covariance == "data":
            why = "are independent" if self.kind == "fibres" else "give no correlations"
            raise ValueError(
                f"covariance: expected auto, null or a matrix, got data; data of kind {self.kind} {why}: leave it out"
            )
        if self.kind == "fibres":
            lost = [name for name in ("medium", "units", "pixel_scale", "hdu") if getattr(self, name) is not None]
            if lost:
                raise ValueError(f"{lost[0]}: expected null for spectra of fibres, whose file says it, got a value")
            return
        if self.kind != "image":
            if self.bins != type(self).model_fields["bins"].default:
                raise ValueError(
                    f"bins: expected none of a {self.kind}, whose data have their own, got {self.bins}; leave it out"
                )
            return
        lost = [name for name in ("polynomial", "lsf_scale") if getattr(self.nuisance, name) is not None]
        lost += [name for name in ("windows", "exclude", "medium") if getattr(self, name)]
        if lost:
            raise ValueError(f"{lost[0]}: expected none of an image, which has no wavelengths, got one; leave it out")
        sky = self.nuisance.sky
        if sky is not None and sky.templates != Path(FLAT):
            raise ValueError(f"nuisance.sky.templates: expected '{FLAT}' for an image, got '{sky.templates}'")


DataSets = dict[str, DataSetSettings]
"""Name -> a set of data."""


def _check_set_names(value: object) -> object:
    """Refuse names of data sets that cannot be."""
    if not isinstance(value, Mapping):
        return value
    if not value:
        raise ValueError("expected a path, or a mapping of names to data sets, got an empty one")
    for name in value:
        if not _NAME.fullmatch(str(name)):
            raise ValueError(
                f"expected names of letters, digits and underscores for the data sets, got '{name}'; its nuisances are "
                f"called data.NAME.scale"
            )
    return dict(value)


FitData = Annotated[
    Annotated[Path, Tag("kind=path")] | Annotated[DataSets, Tag("kind=sets")],
    Discriminator(lambda value: "kind=sets" if isinstance(value, Mapping) else "kind=path"),
    BeforeValidator(_check_set_names),
]
"""A path, or several sets of data by name."""
