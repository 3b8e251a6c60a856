"""The nuisances of data sets as free parameters: their names, declarations, priors, and what they begin at."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field

from rubix_like.config.data_sets import FLAT, DataSetSettings
from rubix_like.config.parameters import Declaration, Parameter
from rubix_like.cube.observed import ObservedCube
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.inference.posterior.free import OF_DATA
from rubix_like.inference.posterior.free_parameters import find_parameter
from rubix_like.inference.posterior.likelihood import legendre_basis
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.words import reason_of

FWHM: str = "instrument.psf.fwhm"

_POSITIVE = Annotated[float, Field(gt=0)]

_FLUX = "1e-20 erg/s/cm2/Angstrom"

_WORDS: Mapping[str, tuple[str, Any, str]] = {
    "scale": ("", _POSITIVE, "factor on the model's flux"),
    "shift": ("arcsec", Any, "(East, North) by which the galaxy is displaced"),
    "velocity_shift": ("km/s", Any, "velocity added along the line of sight"),
    "psf_fwhm": ("arcsec", Any, "full width at half maximum of the PSF"),
    "lsf_scale": ("", _POSITIVE, "factor on the width of the line spread"),
    "polynomial": ("", Any, "coefficients of Legendre's polynomials, degree 1 first, of the factor on the flux"),
    "sky": (_FLUX, Any, "amplitudes of the templates of what the sky's subtraction has left"),
}
"""Key -> unit, form and meaning."""


def names_of(name: str, settings: DataSetSettings) -> dict[str, str]:
    """Key -> dotted name of the nuisances of a set."""
    given = (key for key in _WORDS if getattr(settings.nuisance, key) is not None)
    return {key: f"{OF_DATA}{name}.{key}" for key in given}


def priors_of(name: str, settings: DataSetSettings) -> dict[str, dict[str, tuple[Any, ...]]]:
    """Dotted name -> prior of the nuisances of a set."""
    nuisance = settings.nuisance
    found = {}
    for key, dotted in names_of(name, settings).items():
        own = getattr(nuisance, key)
        found[dotted] = {"normal": (0.0, own.sigma)} if key in {"polynomial", "sky"} else own
    return found


def declared_nuisances(sets: Mapping[str, DataSetSettings]) -> dict[str, Declaration]:
    """The declarations of all nuisances, by dotted name."""
    found = {}
    for name, settings in sets.items():
        for key, dotted in names_of(name, settings).items():
            unit, form, words = _WORDS[key]
            form = find_parameter(FWHM).form if key == "psf_fwhm" else form
            mark = Parameter(moves=key == "shift")
            found[dotted] = Declaration(dotted, unit, mark, form, None, f"{words}, of the data '{name}'")
    return found


def leaves_of(
    name: str, settings: DataSetSettings, parameters: Parameters, sky: Float[ndarray, "template wave"] | None
) -> dict[str, Any]:
    """Dotted name -> what a nuisance of a set is without it, of the shape of its values."""
    psf = parameters.instrument.psf
    plain: dict[str, Any] = {
        "scale": np.ones(()),
        "shift": np.zeros(2),
        "velocity_shift": np.zeros(()),
        "psf_fwhm": None if psf is None else psf.fwhm,
        "lsf_scale": np.ones(()),
        "polynomial": np.zeros(0 if settings.nuisance.polynomial is None else settings.nuisance.polynomial.degree),
        "sky": np.zeros(0 if sky is None else len(sky)),
    }
    return {dotted: plain[key] for key, dotted in names_of(name, settings).items()}


def check_free_names(names: Iterable[str], sets: Mapping[str, DataSetSettings]) -> None:
    """Raise ConfigError for free parameters that belong to one of several sets."""
    example = next(iter(sets))
    for name in names:
        key = "psf_fwhm" if name == FWHM else None
        if name.startswith(OF_DATA):
            _, own, *rest = (*name.split("."), "NAME")
            raise ConfigError(
                f"fit.free.{name}: expected the prior of a nuisance in the section of its data set, got it among the "
                f"free parameters; give it as fit.data.{own}.nuisance.{rest[0]}"
            )
        if name.startswith("instrument.") or name == "observation.field_angle":
            remedy = "leave it out" if key is None else f"give it as fit.data.{example}.nuisance.{key}"
            raise ConfigError(
                f"fit.free.{name}: expected a parameter of the galaxy or of all observations, got one of a single "
                f"instrument beside several data sets; {remedy}"
            )


def polynomial_of(settings: DataSetSettings, observed: ObservedCube) -> Float[ndarray, "wave degree"] | None:
    """The polynomials of a set's continuum."""
    own = settings.nuisance.polynomial
    return None if own is None else legendre_basis(observed.wavelength, own.degree)


def sky_templates(
    name: str, settings: DataSetSettings, observed: ObservedCube
) -> Float[ndarray, "template wave"] | None:
    """Templates of what the sky's subtraction has left, on a set's bins; ConfigError for a table that is none."""
    own = settings.nuisance.sky
    if own is None:
        return None
    if own.templates == Path(FLAT):
        return np.ones((1, observed.bins.n_wave))
    place = f"fit.data.{name}.nuisance.sky.templates"
    table = read_columns(own.templates, place)
    if table.shape[1] < 2 or np.any(np.diff(table[:, 0]) <= 0):
        raise ConfigError(
            f"{place}: expected columns of increasing wavelengths and at least one template, got {table.shape[1]} "
            f"columns in {own.templates}, or wavelengths that do not increase"
        )
    first, last = observed.wavelength[[0, -1]]
    if table[0, 0] > first or table[-1, 0] < last:
        raise ConfigError(
            f"{place}: expected templates from {first:g} to {last:g} Angstrom, as the data, got {table[0, 0]:g} to "
            f"{table[-1, 0]:g} ({own.templates}); fit fewer wavelengths (fit.data.{name}.windows), or add 0 at its ends"
        )
    return np.stack([np.interp(observed.wavelength, table[:, 0], column) for column in table[:, 1:].T])


def read_columns(path: Path, place: str) -> Float[ndarray, "row column"]:
    """The columns of finite numbers in a table of text; ConfigError for any other."""
    try:
        table = np.loadtxt(path.expanduser(), ndmin=2)
    except UNREADABLE as error:
        raise ConfigError(
            f"{place}: expected a table of text with columns of numbers, got {path}: {reason_of(error)}"
        ) from error
    if not (len(table) > 1 and np.isfinite(table).all()):
        raise ConfigError(f"{place}: expected at least two rows of finite numbers, got others in {path}")
    return table
