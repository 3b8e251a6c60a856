"""Checks before a fit, and notes after it that its reader should know before the numbers are used."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.cube.meta import SourceCounters
from rubix_like.errors import ConfigError
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.inference.checks.uncertainties import Laplace, advice_at_edge, edges_from
from rubix_like.inference.posterior.fit_model import GALAXY, STARS, Free, Latent, shown
from rubix_like.inference.posterior.free_parameters import known_parameters
from rubix_like.inference.posterior.posterior import (
    Posterior,
    group_of,
    is_dense,
    linear_of,
    losses_at,
    models_at,
    tangents,
)
from rubix_like.inference.search.optimisers import LEAST_SQUARES
from rubix_like.inference.search.search_state import AS_LIKELY, SearchState
from rubix_like.physics.plausibility import implausible_mass
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.progress import Report, silent
from rubix_like.runtime.words import counted, listed

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


def check_effects(posterior: Posterior, report: Report = silent) -> tuple[Note, ...]:
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
        latent = points[0]
        model = np.abs(np.asarray(models_at(posterior, latent).flux)[0])
        inverse_sigma = np.asarray(posterior.likelihood.inverse_sigma)
        if np.max(model * inverse_sigma) < LEAST_EFFECT:
            fitted = inverse_sigma > 0
            facts = (
                f"a median error of {np.median(1 / inverse_sigma[fitted]):.3g} beside a brightest voxel of the model "
                f"of {model[fitted].max():.3g} (1e-20 erg/s/cm2/Angstrom)"
            )
            medians = {name: float(np.sum(value)) for name, value in posterior.named_values(np.asarray(latent)).items()}
            no_masses = [name for name, sum_ in medians.items() if name.endswith("mass") and [*implausible_mass(sum_)]]
            if no_masses:
                raise ValueError(
                    f"fit.free.{no_masses[0]}: expected a prior with whose median the model's light is seen, got a "
                    f"median mass of {medians[no_masses[0]]:.3g} Msun: {facts}; give the mass in Msun, not its "
                    f"logarithm"
                )
            raise ValueError(
                f"the data: expected errors that let the model's light be seen, got {facts}; check the unit of the "
                f"data (of a file: fit.data_units; in Python: flux and variance with their units) or of fit.sigma"
            )
    notes, sources = [], posterior.forward.main.tables.paint
    for parameter, without in zip(free.parameters, free.split(dead).values(), strict=True):
        if without.all():
            raise ConfigError(
                f"fit.free.{parameter.name}: expected a parameter that changes the voxels that are fitted, got one "
                f"without any effect on them{_hint(parameter.name, sources)}; leave it out of fit.free, or change what "
                f"hides it"
            )
        if without.any():
            notes.append(
                Note(
                    "fit.no_effect",
                    f"{parameter.name}: {np.count_nonzero(without)} of {without.size} values have no effect on the "
                    f"voxels that are fitted{_hint(parameter.name, sources)}, and stay as their prior has them",
                    WARNING,
                )
            )
    return tuple(notes)


def check_light(posterior: Posterior, latent: Latent) -> None:
    """Raise ValueError unless the model is finite and has light in the voxels that are fitted."""
    model = np.asarray(models_at(posterior, latent).flux)[0]
    fitted = np.asarray(posterior.likelihood.inverse_sigma) > 0
    values = posterior.free.described(latent)
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


def check_start(posterior: Posterior, latent: Latent) -> None:
    """Raise ValueError if the loss at a start that the user gives is not finite."""
    loss = float(np.asarray(losses_at(posterior, group_of(posterior, latent)))[0])
    if not np.isfinite(loss):
        check_light(posterior, latent)
        raise ValueError(
            f"fit.start: expected a start with a finite loss, got {loss} at {posterior.free.described(latent)}; start "
            f"nearer to the middle of the priors"
        )


def _hint(name: str, sources: Sequence[AbstractSource]) -> str:
    """Why a parameter may have no effect on the light of these sources; empty where that is not known."""
    text = next((text for start, text in _HINTS.items() if name.startswith(start)), None)
    of_stars = name.startswith((GALAXY, STARS)) and not name.startswith(("galaxy.gas_", "galaxy.star_formation_rate"))
    if of_stars and all(source.kind == "gas" for source in sources):
        text = "the pipeline paints gas alone"
    elif (
        of_stars
        and name in known_parameters()
        and known_parameters()[name].mark.axis
        and not any(source.painter.axes.names for source in sources)
    ):
        text = "what is painted shines alike at all ages and metallicities"
    return "" if text is None else f" ({text})"


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


FAR: float = 5.0
"""Distance, in standard deviations of a latent, of two places that are not the same."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """Another maximum: its latents, its values in the order of `free.labels`, how much higher its loss (half of chi^2
    and of the squared latents) is, which values differ by more than 5 sigma, and the starts (from 1) that ended there.
    """

    free: Free
    latent: Float[ndarray, " latent"]
    excess: float
    differing: tuple[str, ...]
    starts: tuple[int, ...]

    @property
    def values(self) -> Float[ndarray, " latent"]:
        """The values there, in the parameters' units."""
        return np.asarray(self.free.flat(self.latent))

    @property
    def sentence(self) -> str:
        """A sentence on where it is."""
        which = counted(len(self.starts), "start")
        return (
            f"{which} ended at another place that fits {'as' if self.excess <= 1 else 'almost as'} well (loss higher "
            f"by {self.excess:.2g}); it differs in {listed(self.differing)}"
        )


def other_optima(
    free: Free, starts: SearchState, best: Float[ndarray, " latent"], laplace: Laplace | None
) -> tuple[Optimum, ...]:
    """Places where other starts converged at a loss higher by at most `AS_LIKELY`, best first, each place once.

    Two ends are at one place if no latent differs by more than `FAR` standard deviations of the best one's Gaussian
    approximation; without that approximation no place is told from another, and there are none.
    """
    if laplace is None:
        return ()
    excess = starts.loss - starts.loss[starts.best]
    near = np.flatnonzero(starts.converged & (excess <= AS_LIKELY))
    places: list[tuple[ndarray, list[int]]] = [(np.asarray(best), [])]
    for number in near[np.argsort(excess[near], kind="stable")]:
        latent = starts.latent[number]
        same = [numbers for place, numbers in places if not _apart(latent, place, laplace).any()]
        if same:
            same[0].append(int(number))
        else:
            places.append((latent, [int(number)]))
    labels = np.array(free.labels, dtype=object)
    return tuple(
        Optimum(
            free=free,
            latent=latent,
            excess=float(excess[numbers[0]]),
            differing=tuple(labels[_apart(latent, np.asarray(best), laplace)]),
            starts=tuple(number + 1 for number in numbers),
        )
        for latent, numbers in places[1:]
    )


def _apart(latent: ndarray, other: ndarray, laplace: Laplace) -> ndarray:
    return np.abs(latent - other) > FAR * laplace.sigma


UNDETERMINED: float = 0.9
"""Standard deviation in units of the prior's above which the data say next to nothing of a parameter."""

CORRELATED: float = 0.95
"""|correlation| of two parameters that are determined together only."""

EXPLAINED: float = 0.8
"""|correlation| above which a known reason is added."""

ELSEWHERE: float = 1.0
"""Difference of the losses (half of chi^2's) of two starts that did not end at the same place."""

_TOGETHER: tuple[tuple[str, str, str], ...] = (
    ("inclination", "rotation_velocity", "velocities alone give V sin i; the light's shape, or a prior, must give i"),
    ("inclination", "rotation.velocity", "velocities alone give V sin i; the light's shape, or a prior, must give i"),
    ("inclination", "scale_height", "a thicker disc seen more edge-on looks as round; give a prior on its height"),
    ("psf.fwhm", "light.scale_length", "a wider PSF makes a smaller galaxy as large; give the seeing as a prior"),
    ("psf.fwhm", "galaxy.disc_scale_length", "a wider PSF makes a smaller galaxy as large; give the seeing as a prior"),
    ("psf.fwhm", "light.effective_radius", "a wider PSF makes a smaller galaxy as large; give the seeing as a prior"),
    ("log_age", "metallicity", "older stars and more metals redden alike; fit a wider range of wavelengths"),
    ("a_v", "log_age", "dust and older stars redden alike; fit a wider range of wavelengths"),
    ("a_v", "stellar_mass", "dust dims what more stars brighten; fit a wider range of wavelengths"),
)
"""Ends of the names of two parameters that are often correlated, and why."""


def notes_on_size(optimiser: str, n_latent: int, n_voxel: int) -> list[Note]:
    """Says so where there is no room for the Jacobian of a least-squares fit."""
    if optimiser != LEAST_SQUARES or is_dense(n_latent, n_voxel):
        return []
    return [
        Note(
            "fit.large_jacobian",
            f"the Jacobian of {n_latent} numbers and {n_voxel} voxels is too large to be kept: steps were found by "
            f"conjugate gradients",
        )
    ]


def notes_on_search(
    free: Free, starts: SearchState, best: Float[ndarray, " latent"], laplace: Laplace | None
) -> list[Note]:
    """Notes on starts that failed, were given up, did not converge, or ended elsewhere than the best."""
    n_start, lowest = len(starts.loss), starts.best
    reasons = starts.reasons()
    notes = []
    if not starts.converged[lowest]:
        notes.append(
            Note(
                "search.not_converged",
                f"the best start has not converged ({reasons[lowest]}); the values may be off",
                WARNING,
            )
        )
    notes += [
        Note("search.failed_start", f"start {number + 1} failed: {reasons[number]}", WARNING)
        for number in np.flatnonzero(starts.failed)
    ]
    behind = np.where(starts.failed | ~np.isfinite(starts.loss), np.nan, starts.loss - starts.loss[lowest])
    notes += [
        Note("search.given_up", f"start {number + 1}, at a loss higher by {behind[number]:.3g}: {reasons[number]}")
        for number in np.flatnonzero(starts.given_up & (behind > ELSEWHERE))
    ]
    others = other_optima(free, starts, best, laplace)
    named = np.isin(np.arange(n_start) + 1, [number for other in others for number in other.starts])
    worse = np.flatnonzero((behind > ELSEWHERE) & ~starts.given_up & ~named)
    if len(worse):
        gaps = ", ".join(f"{behind[number]:.3g}" for number in worse)
        notes.append(
            Note(
                "search.local_optima",
                f"{len(worse)} of {n_start} starts ended elsewhere, at a loss higher by {gaps}: local optima",
                WARNING,
            )
        )
    return [*notes, *(Note("search.other_optimum", other.sentence, WARNING) for other in others)]


def notes_on_one_start(asked: int, n_start: int) -> list[Note]:
    """Says what was not looked at where the settings ask for one start."""
    if asked > 1 or n_start > 1:
        return []
    return [
        Note(
            "search.one_start",
            "fit.starts: 1: one start was made, from one place; no other maximum was looked for, neither with the "
            "other side of the galaxy receding nor at other ages and metallicities of the SSP library; raise "
            "fit.starts",
        )
    ]


def trouble_of(starts: SearchState) -> str:
    """Why the best end of a search is no maximum; empty where it has converged."""
    best = starts.best
    return "" if starts.converged[best] else f"the search has not converged ({starts.reasons()[best]})"


def notes_on_values(free: Free, best: Float[ndarray, " latent"], laplace: Laplace | str) -> list[Note]:
    """Notes on values at the edge of their priors, and on what the data do not say."""
    notes = []
    normals = np.asarray(free.own_normals(np.asarray(best)))
    below_and_above = (free.parts(sign * normals >= edges_from(free, sign)) for sign in (-1, 1))
    for parameter, below, above in zip(free.parameters, *below_and_above, strict=True):
        far = below | above
        if far.any():
            names = listed(np.array(parameter.labels, dtype=object)[far.ravel()])
            advice = advice_at_edge(parameter, below, above)
            notes.append(
                Note("prior.edge", f"{names} is at the edge of its prior ({shown(parameter.prior)}){advice}", WARNING)
            )
    if isinstance(laplace, str):
        return [*notes, Note("fit.no_uncertainties", f"no uncertainties: {laplace}", WARNING)]
    known = np.where(laplace.without_effect(), 0.0, laplace.own_sigma)
    return [*notes, *notes_on_silence(laplace), *notes_on_spread(free, known, laplace.correlation)]


def notes_on_silence(laplace: Laplace) -> list[Note]:
    """Notes on latents that the data say nothing of."""
    silent = laplace.free.labels_where(laplace.without_effect())
    if not silent:
        return []
    text = f"the data say nothing of {listed(silent)}: the model of what is fitted does not depend on it"
    return [Note("fit.data_say_nothing", text, WARNING)]


def notes_on_spread(
    free: Free, sigma: Float[ndarray, " latent"], correlation: Float[ndarray, "latent latent"] | None
) -> list[Note]:
    """Notes on values that the data hardly determine, or only in combination, by the covariance of the latents."""
    notes, vague = [], free.labels_where(sigma > UNDETERMINED)
    if vague:
        text = f"the data hardly determine {listed(vague)}: its uncertainty is that of its prior"
        notes.append(Note("fit.undetermined", text, WARNING))
    if correlation is None:
        return notes
    pairs = np.argwhere(np.triu(np.abs(correlation) > CORRELATED, k=1))
    if len(pairs):
        words = listed(f"{free.labels[i]} and {free.labels[j]} ({correlation[i, j]:+.3f})" for i, j in pairs)
        notes.append(Note("fit.correlated", f"determined together only (correlation): {words}"))
    explained = np.argwhere(np.triu(np.abs(correlation) > EXPLAINED, k=1))
    for (i, j), (first, second, why) in itertools.product(explained, _TOGETHER):
        for left, right in ((free.labels[i], free.labels[j]), (free.labels[j], free.labels[i])):
            if left.endswith(first) and right.endswith(second):
                text = f"{left} and {right} (correlation {correlation[i, j]:+.2f}): {why}"
                notes.append(Note("fit.degenerate", text))
    return notes


def notes_on_particles(counters: Mapping[str, SourceCounters], velocity_limit: float) -> list[Note]:
    """Notes on particles that the best model cannot treat, source by source."""
    notes = []
    for name, counter in counters.items():
        fast = int(counter.n_beyond_velocity) + int(counter.n_overflow)
        what = {STAR_SOURCE: name, DUST_COLUMN: "particles of gas with dust"}.get(name, f"particles of source '{name}'")
        words = f"of {int(counter.n_particles)} {what}"
        if fast:
            notes.append(
                Note(
                    "fit.fast_particles",
                    f"at the best values {fast} {words} are faster than the model is made for ({velocity_limit:.0f} "
                    f"km/s), and it is wrong for them; raise engine.velocity_range and fit again",
                    WARNING,
                )
            )
        if int(counter.n_not_finite):
            notes.append(
                Note(
                    "fit.not_finite", f"at the best values {int(counter.n_not_finite)} {words} are not finite", WARNING
                )
            )
    return notes


def notes_on_precision() -> list[Note]:
    """Notes on numbers of 32 bits."""
    if jax.dtypes.canonicalize_dtype(float) == np.float64:
        return []
    return [
        Note(
            "fit.single_precision",
            "computed with 32-bit numbers: losses are known to 1e-7 of themselves only, so that the search may end "
            "early and small uncertainties be off; call jax.config.update('jax_enable_x64', True) before anything else",
            WARNING,
        )
    ]
