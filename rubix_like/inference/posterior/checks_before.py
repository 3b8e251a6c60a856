"""Whether a fit can be started: a finite model with light, parameters that change it, a start given by the user."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.inference.posterior.fit_model import GALAXY, STARS
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.free_parameters import known_parameters
from rubix_like.inference.posterior.linearise import group_of, is_dense, linear_of, losses_at, models_at, tangents
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.runtime.progress import Report, silent

LEAST_EFFECT: float = 1e-4
"""Standard deviations of the data by which a parameter has to change them when it changes by one of its prior."""

_POINTS = 3
"""Latents at which effects are looked for: the priors' medians, then draws."""

_HINTS: Mapping[str, str] = {
    "dust.dust_to_metal": "gas that has a dust_mass does not need it; the pipeline needs the field 'dust_column'",
    "dust.opacity": "the pipeline needs the field 'dust_column'",
    "dust.a_v_birth": "the pipeline needs the field 'dust_column', and the galaxy young stars",
    "dust.": "the pipeline needs the stage 'dust'",
    "instrument.psf.": "the pipeline needs the stage 'psf'",
    "observation.inclination": "the pipeline needs the stage 'orient'",
    "observation.position_angle": "the pipeline needs the stage 'orient'",
    "galaxy.rotation_velocity": "a disc that is seen face-on does not show it: observation.inclination",
    "galaxy.turnover_radius": "a disc that is seen face-on, or does not rotate, does not show it",
    "galaxy.bulge_": "the bulge needs mass (galaxy.bulge_fraction) and particles",
    "galaxy.disc_": "the disc needs mass (galaxy.bulge_fraction below 1)",
    "galaxy.gas_": "the pipeline has to paint gas",
    "galaxy.star_formation_rate": "the pipeline has to paint gas by it",
    "stars.velocity": "a cube shows only the component along the line of sight: stars.v_los",
    "stars.": "the stars have to lie inside the field, and their spaxels to be fitted",
}
"""Beginnings of names -> why they may have no effect."""


def check_effects(posterior: Posterior, report: Report = silent) -> tuple[str, ...]:
    """Sentences on values that change no fitted voxel; raises ConfigError for a parameter none of whose values does.

    By the derivatives of the residuals at the priors' medians and, for those which they do not find there, at draws.
    Raises ValueError for a model without any light in the fitted voxels. `report` is told of what is compiled.
    """
    free = posterior.free
    points = np.concatenate([np.zeros((1, free.n_latent)), free.draw(0, _POINTS - 1)])
    report("the model with its derivatives", 0, 1)
    check_light(posterior, points[0])
    dead = np.ones(free.n_latent, bool)
    for seed, latent in enumerate(points):
        dead &= _effects(posterior, latent, seed) < LEAST_EFFECT  # not where not finite: that is no lack of effect
        if not dead.any():
            return ()
    if dead.all():
        _check_errors(posterior, points[0])
    notes, sources = [], posterior.forward.main.tables.paint
    for parameter, own in zip(free.parameters, free.split(dead).values(), strict=True):
        if own.all():
            raise ConfigError(
                f"fit.free.{parameter.name}: expected a parameter that changes the voxels that are fitted, got one "
                f"without any effect on them{_hint(parameter.name, sources)}; leave it out of fit.free, or change what "
                f"hides it"
            )
        if own.any():
            notes.append(
                f"{parameter.name}: {np.count_nonzero(own)} of {own.size} values have no effect on the voxels that "
                f"are fitted{_hint(parameter.name, sources)}, and stay as their prior has them"
            )
    return tuple(notes)


def check_light(posterior: Posterior, latent: Latent) -> None:
    """Raise ValueError unless the model is finite and has light in the voxels that are fitted."""
    model = np.asarray(models_at(posterior, latent).flux)[0]
    fitted = np.asarray(posterior.likelihood.inverse_sigma) > 0
    values = describe_start(posterior, latent)
    broken = np.count_nonzero(~np.isfinite(model[fitted]))
    if broken:
        raise ValueError(
            f"the model: expected finite fluxes, got {broken} of {fitted.sum()} fitted voxels with others at {values}; "
            f"check the priors, and the galaxy with rubix_like.validate"
        )
    if not np.any(model[fitted]):
        raise ValueError(
            f"the model: expected light in the voxels that are fitted, got none at {values}; the galaxy lies outside "
            f"the field or the mask leaves nothing of it: check observation.offset, .redshift and the data's mask"
        )


def _check_errors(posterior: Posterior, latent: Latent) -> None:
    """Raise ValueError where the errors of the data hide all of the model's light."""
    model = np.abs(np.asarray(models_at(posterior, latent).flux)[0])
    inverse_sigma = np.asarray(posterior.likelihood.inverse_sigma)
    if np.max(model * inverse_sigma) < LEAST_EFFECT:
        fitted = inverse_sigma > 0
        raise ValueError(
            f"the data: expected errors that let the model's light be seen, got a median error of "
            f"{np.median(1 / inverse_sigma[fitted]):.3g} beside a brightest voxel of the model of "
            f"{model[fitted].max():.3g} (1e-20 erg/s/cm2/Angstrom); check the unit of the data (fit.data_units)"
        )


def check_start(posterior: Posterior, latent: Latent) -> None:
    """Raise ValueError if the loss at a start that the user gives is not finite."""
    loss = float(np.asarray(losses_at(posterior, group_of(posterior, latent)))[0])
    if not np.isfinite(loss):
        check_light(posterior, latent)
        raise ValueError(
            f"fit.start: expected a start with a finite loss, got {loss} at {describe_start(posterior, latent)}; start "
            f"nearer to the middle of the priors"
        )


def describe_start(posterior: Posterior, latent: Latent) -> str:
    """Names with their values, of arrays the range."""
    values = posterior.free.values(np.asarray(latent))
    return ", ".join(f"{name} = {_shown(np.asarray(value))}" for name, value in values.items())


def _shown(value: Float[ndarray, "..."]) -> str:
    if value.size == 1:
        return f"{value.item():.5g}"
    return f"{value.min():.5g} to {value.max():.5g}"


def _hint(name: str, sources: Sequence[AbstractSource]) -> str:
    """Why a parameter may have no effect on the light of these sources; empty where that is not known."""
    text = next((text for start, text in _HINTS.items() if name.startswith(start)), None)
    of_stars = name.startswith((GALAXY, STARS)) and not name.startswith(("galaxy.gas_", "galaxy.star_formation_rate"))
    if of_stars and all(own.kind == "gas" for own in sources):
        text = "the pipeline paints gas alone"
    elif (
        of_stars
        and name in known_parameters()
        and known_parameters()[name].mark.axis
        and not any(own.painter.axes.names for own in sources)
    ):
        text = "what is painted shines alike at all ages and metallicities"
    return "" if text is None else f" ({text})"


def _is_population(name: str) -> bool:
    """Whether a parameter is an age or a metallicity of the package's own galaxies."""
    known = known_parameters()
    return name in known and known[name].mark.axis is not None


def _effects(posterior: Posterior, latent: Float[ndarray, " latent"], seed: int) -> Float[ndarray, " latent"]:
    """The standard deviations by which each latent changes the voxels: the lengths of the columns of their Jacobian, or
    where that is too large to be kept, numbers of their size."""
    if is_dense(posterior.free.n_latent, posterior.likelihood.flux.size):
        group = group_of(posterior, latent)
        found = linear_of(posterior, group, tangents(posterior.forward, posterior.free, group)).effect
        return np.asarray(found)[0]
    return np.abs(np.asarray(_effect(posterior, latent, jax.random.key(seed))))


@jax.jit
def _effect(posterior: Posterior, latent: Latent, key: Array) -> Float[Array, " latent"]:
    """The gradient of the voxels' residuals, summed with normal weights: of the size of a column of their Jacobian."""

    def voxels(latent: Latent) -> Float[Array, "y x wave"]:
        return posterior.residuals(latent).voxels

    residual, pull = jax.vjp(voxels, latent)
    return pull(jax.random.normal(key, residual.shape, residual.dtype))[0]
