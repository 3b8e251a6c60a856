"""The likelihood that `fit.likelihood` asks for: by its name, with its parameters and correlations."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from rubix_like.config.data_sets import CovarianceSettings
from rubix_like.config.plug_ins import LIKELIHOODS
from rubix_like.config.sections.fit import FitSettings, LikelihoodSettings
from rubix_like.cube.observed import ObservedCube
from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.likelihoods.correlation import Correlation, make_correlation, make_data_covariance
from rubix_like.inference.likelihoods.voxel_errors import (
    AbstractErrorDistribution,
    AbstractErrors,
    AbstractResiduals,
    StudentT,
)

GAUSSIAN: str = "gaussian"

_USUAL_DEGREES = 4.0

_WHICH = (
    "files of MaNGA and SAMI, those of the layouts 'manga' and 'sami' and HDF5 files of cubes of fibres have some; "
    "take auto, or give a matrix"
)

_IN_VAIN = "the data give the covariance of spaxels, which this fit does not use: errors are too small"

_LOST = (
    "the model has fibres, but the data give no correlations of spaxels, which count as independent: if the data come "
    "from fibres too, errors are too small; HDF5 and the layouts 'manga' and 'sami' keep correlations"
)


def make_errors(settings: LikelihoodSettings) -> AbstractErrors | None:
    """The distribution of the errors that a section describes; None for normal errors. Raises ConfigError for an
    unknown kind or parameter."""
    if settings.kind == GAUSSIAN:
        return None
    if settings.kind == StudentT.kind:
        return StudentT(np.float64(settings.degrees_of_freedom or _USUAL_DEGREES))
    made = _find(settings.kind)
    known = {own.name: own for own in dataclasses.fields(made)}
    for name in settings.parameters:
        if name not in known:
            raise ConfigError(
                f"fit.likelihood.parameters: unknown parameter '{name}' of '{settings.kind}'{suggest(name, known)}"
            )
    missing = [name for name, own in known.items() if own.default is dataclasses.MISSING]
    left_out = [name for name in missing if name not in settings.parameters]
    if left_out:
        raise ConfigError(f"fit.likelihood.parameters: expected {', '.join(left_out)} of '{settings.kind}', got none")
    given = {name: own.default for name, own in known.items() if name not in missing} | settings.parameters
    errors = made(**{name: jnp.asarray(value, float) for name, value in given.items()})
    fault = errors.fault() if isinstance(errors, AbstractErrorDistribution) else None
    if fault is not None:
        raise ConfigError(f"fit.likelihood: {fault}; check its log_density")
    return errors


def with_correlation(
    likelihood: Any, observed: ObservedCube, settings: FitSettings, *, solved: bool, of_fibres: bool
) -> tuple[Any, tuple[str, ...]]:
    """The likelihood of one cube with the correlated errors that `fit.likelihood` asks for, and notes on its errors.

    `solved`: whether populations are solved for; `of_fibres`: whether the model's spaxels are made of fibres. Raises
    ConfigError for correlations that are not there, or cannot be used.
    """
    covariance, place = settings.likelihood.covariance, "fit.likelihood.covariance"
    if isinstance(covariance, CovarianceSettings):
        errors = make_correlation(covariance, np.asarray(likelihood.inverse_sigma) > 0)
        return dataclasses.replace(likelihood, errors=errors), notes_on_errors(errors)
    others = {
        f"fit.likelihood.kind: {settings.likelihood.kind}": likelihood.errors is not None,
        "fit.polynomial": settings.polynomial is not None,
        "fit.model_error": settings.model_error is not None,
        "a free-form population": solved,
    }
    against = next((name for name, given in others.items() if given), None)
    found, notes = with_covariance_of_data(likelihood, observed, covariance, place, against, of_fibres=of_fibres)
    return found, (*notes_on_errors(likelihood.errors), *notes)


def with_covariance_of_data(
    likelihood: Any,
    observed: ObservedCube,
    covariance: Literal["auto", "data"] | None,
    place: str,
    against: str | None,
    *,
    of_fibres: bool,
) -> tuple[Any, tuple[str, ...]]:
    """The likelihood of a cube with the correlations that the data give, and a note on them.

    `place`: name of the setting; `against`: what they do not go with, None for nothing; `of_fibres`: whether the
    model's spaxels are made of fibres. Raises ConfigError where `data` are asked for that are not there, or cannot be
    used.
    """
    if observed.correlations is None:
        if covariance == "data":
            raise ConfigError(f"{place}: expected data that give correlations of their spaxels, got none; {_WHICH}")
        is_lost = of_fibres and observed.variance is not None and covariance is not None
        return likelihood, (_LOST,) if is_lost else ()
    if against is not None:
        if covariance == "data":
            raise ConfigError(f"{place}: expected auto or null beside {against}, got data; leave one of them out")
        return likelihood, (f"{_IN_VAIN}; it does not go with {against}",)
    if covariance is None:
        return likelihood, (f"{_IN_VAIN}; set {place}: auto",)
    sigma = np.asarray(likelihood.inverse_sigma)
    try:
        found = make_data_covariance(observed.correlations, observed.wavelength, sigma > 0)
    except ConfigError as error:
        if covariance == "data":
            raise ConfigError(f"{place}: {error}") from error
        return likelihood, (f"{_IN_VAIN}: {error}",)
    kept, dependent = (jax.device_put(np.where(own, sigma, 0)) for own in (found.chosen, found.dependent))
    changed = {"errors": found.errors, "inverse_sigma": kept, "dependent": dependent}
    return dataclasses.replace(likelihood, **changed), (found.note,)


def notes_on_errors(errors: AbstractErrors | None) -> tuple[str, ...]:
    """Notes on what the tests of a result mean, where errors are not normal and independent."""
    if isinstance(errors, AbstractErrorDistribution):
        return (
            f"errors are distributed as '{errors.kind}': chi^2 of the residuals is no test of the model, so chi^2 and "
            f"the verdict are those of their normal scores Phi^-1(F(r)), standard normal if the model is true",
        )
    if isinstance(errors, Correlation):
        return (f"errors are correlated between {errors.between}: the verdict tests whitened residuals",)
    if isinstance(errors, AbstractResiduals):
        return (
            f"residuals are those of '{errors.kind}': chi^2 and the verdict's tests hold only if they are independent "
            f"and standard normal where the model is true",
        )
    return ()


def _find(kind: str) -> Any:
    """The class of a kind: of an installed package, or one that this process has defined."""
    defined = {own.kind: own for own in _below(AbstractErrors)}
    if kind in defined:
        return defined[kind]
    if kind in LIKELIHOODS:
        return LIKELIHOODS.find(kind)
    known = (GAUSSIAN, *LIKELIHOODS.names(), *defined)
    raise ConfigError(f"fit.likelihood.kind: unknown likelihood '{kind}'{suggest(kind, known)}")


def _below(kind: type) -> Iterator[Any]:
    """Classes derived from one, and from these, that have a kind of their own."""
    for own in kind.__subclasses__():
        if getattr(own, "kind", ""):
            yield own
        yield from _below(own)
