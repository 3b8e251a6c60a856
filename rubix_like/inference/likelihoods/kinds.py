"""The likelihood that `fit.likelihood` asks for: by its name, with its parameters and correlations."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from rubix_like.config.plug_ins import LIKELIHOODS
from rubix_like.config.sections.fit import FitSettings, LikelihoodSettings
from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.likelihoods.correlation import Correlation, make_correlation
from rubix_like.inference.likelihoods.voxel_errors import (
    AbstractErrorDistribution,
    AbstractErrors,
    AbstractResiduals,
    StudentT,
)

GAUSSIAN: str = "gaussian"

_USUAL_DEGREES = 4.0


def make_errors(settings: LikelihoodSettings) -> AbstractErrors | None:
    """What becomes of the residuals; None for normal errors. Raises ConfigError for an unknown kind or parameter."""
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


def with_correlation(errors: AbstractErrors | None, settings: FitSettings, likelihood: Any) -> AbstractErrors | None:
    """The same, or the correlations of the voxels that a likelihood takes."""
    covariance = settings.likelihood.covariance
    return errors if covariance is None else make_correlation(covariance, np.asarray(likelihood.inverse_sigma) > 0)


def notes_on_errors(errors: AbstractErrors | None) -> tuple[str, ...]:
    """What the tests of a result mean, where errors are not normal and independent."""
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
