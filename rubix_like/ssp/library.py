"""An SSP library in memory: spectra of simple stellar populations, in vacuum."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import equinox as eqx
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.physics import air
from rubix_like.physics.air import Medium
from rubix_like.physics.templates import TemplateAxes, Templates
from rubix_like.physics.units import plain_fields
from rubix_like.ssp.formats import SHELF
from rubix_like.ssp.library_file import UNITS, check_arrays, read_table

_FINE = "bc03-miles"
"""The library to take where others are coarser than the instrument."""


@runtime_checkable
class HasSSPSettings(Protocol):
    """Anything with the settings of a run's `ssp:` section, such as the configuration of a run."""

    @property
    def ssp(self) -> Any:
        """The section; its `library` is a name or a path."""
        ...


class SSPLibrary(eqx.Module):
    """Spectra of simple stellar populations on a grid of metallicity and age (numpy arrays of 64-bit floats).

    | field | shape | unit |
    |---|---|---|
    | spectra | (metal, age, rest) | Lsun per vacuum Angstrom per Msun at birth |
    | log_age | (age,) | log10(age / yr), increasing |
    | metallicity | (metal,) | metal mass fraction, increasing |
    | rest_wavelength | (rest,) | vacuum Angstrom, increasing |
    | fwhm | (rest,) | vacuum Angstrom, the library's spectral resolution |
    | surviving_fraction | (metal, age) or None | mass in stars and remnants now over mass at birth |

    Quantities are converted to these units. Raises ValueError for shapes, orders and values that cannot be, of arrays
    that are not traced, and ConfigError for a field of another kind.
    """

    spectra: Float[Array | np.ndarray, "metal age rest"]
    log_age: Float[Array | np.ndarray, " age"]
    metallicity: Float[Array | np.ndarray, " metal"]
    rest_wavelength: Float[Array | np.ndarray, " rest"]
    fwhm: Float[Array | np.ndarray, " rest"]
    surviving_fraction: Float[Array | np.ndarray, "metal age"] | None = None
    name: str = eqx.field(static=True, default="")
    imf: str = eqx.field(static=True, default="")
    solar_metallicity: float = eqx.field(static=True, default=0.02)
    citation: str = eqx.field(static=True, default="")
    licence: str = eqx.field(static=True, default="")
    source: str = eqx.field(static=True, default="")
    source_medium: Medium = eqx.field(static=True, default="vacuum")

    def __post_init__(self) -> None:
        vars(self).update(plain_fields(self, UNITS))

    def __check_init__(self) -> None:
        expect_fields(self)
        arrays = {name: getattr(self, name) for name in (*UNITS, "solar_metallicity")}
        if not any(isinstance(value, Tracer) for value in arrays.values()):
            check_arrays(self.name, arrays)

    def templates(self) -> Templates:
        """The spectra as a source's templates, per Msun at birth, on the axes log10 metallicity and log10 age / yr."""
        axes = TemplateAxes((np.log10(self.metallicity), self.log_age), ("metallicity", "age"))
        rest_wavelength = np.asarray(self.rest_wavelength)
        return Templates(
            name=f"the SSP library '{self.name}'",
            axes=axes,
            rest_wavelength=rest_wavelength,
            table=np.asarray(self.spectra).reshape(axes.n_template, -1),
            fwhm=np.asarray(self.fwhm),
            covered=(float(rest_wavelength[0]), float(rest_wavelength[-1])),
            remedy="" if self.name == _FINE else f"finer up to 8752 Angstrom at rest: rubix-like ssp get {_FINE}",
        )


_IN_MEMORY: WeakValueDictionary[Any, SSPLibrary] = WeakValueDictionary()
"""The libraries that something still holds, by path, size and time of the last change: instruments of one run, arms and
data sets of a fit share theirs."""


@named_arguments
def load_ssp(config_or_name: str | Path | HasSSPSettings) -> SSPLibrary:
    """The library of a run's settings, of a known name (`rubix-like ssp list`) or of a file, converted to vacuum.

    A library in air: S_vac = S_air dlambda_air/dlambda_vac at the vacuum wavelength (Ciddor 1996), and the
    resolution times the inverse. Raises ConfigError for an unknown or not yet fetched name, FileNotFoundError or
    ValueError for a file that is missing, damaged or of another layout. The arrays are read-only: callers share one
    library as long as any of them holds it.
    """
    library = config_or_name if isinstance(config_or_name, str | Path) else config_or_name.ssp.library
    path = SHELF.locate(library)
    state = path.stat() if path.is_file() else None
    key = None if state is None else (path.resolve(), state.st_size, state.st_mtime_ns)
    if (held := _IN_MEMORY.get(key)) is not None:
        return held
    stored = dict(vars(read_table(path)))
    medium = stored.pop("medium")
    fields: dict[str, Any] = {
        name: np.asarray(value, np.float64) if isinstance(value, ndarray) else value for name, value in stored.items()
    }
    if medium == "air":
        fields["rest_wavelength"] = air.to_vacuum(fields["rest_wavelength"])
        stretch = air.vacuum_per_air(fields["rest_wavelength"])
        fields |= {"spectra": fields["spectra"] / stretch, "fwhm": fields["fwhm"] * stretch}
    for value in fields.values():
        if isinstance(value, ndarray):
            value.flags.writeable = False  # others may have the same library
    loaded = SSPLibrary(**fields, source_medium=medium)
    if key is not None:
        _IN_MEMORY[key] = loaded
    return loaded


def describe_library(library: SSPLibrary) -> str:
    """Text of `rubix-like ssp info`: grid, range, median sampling and resolution at 4000-7000 A, provenance."""
    wavelength = np.asarray(library.rest_wavelength)
    optical = (wavelength >= 4000.0) & (wavelength <= 7000.0)
    if optical.sum() > 1:
        sampling, fwhm = np.median(np.diff(wavelength[optical])), np.median(np.asarray(library.fwhm)[optical])
        resolution = f"median sampling {sampling:.3g} A, FWHM {fwhm:.3g} A (4000-7000 A)"
    else:
        resolution = "no sampling at 4000-7000 A"
    ages = 10 ** np.asarray(library.log_age)
    metallicities = ", ".join(f"{value:.4g}" for value in np.asarray(library.metallicity))
    converted = "vacuum" if library.source_medium == "vacuum" else f"vacuum (converted from {library.source_medium})"
    rows = (
        ("name", library.name),
        ("ages", f"{len(ages)}, {ages[0]:.3g} - {ages[-1]:.3g} yr"),
        ("metallicities", f"{metallicities} (mass fraction; solar {library.solar_metallicity:g})"),
        ("wavelengths", f"{len(wavelength)}, {wavelength[0]:.5g} - {wavelength[-1]:.5g} A"),
        ("resolution", resolution),
        ("medium", converted),
        ("surviving mass", "in the file" if library.surviving_fraction is not None else "not in the file"),
        ("IMF", library.imf),
        ("citation", library.citation),
        ("licence", library.licence),
        ("source", library.source),
    )
    return "\n".join(f"{label + ':':<16}{value}" for label, value in rows)
