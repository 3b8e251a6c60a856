"""The values of parameters that a plan holds: the widest PSF of its margin, the narrowest lines of its nodes."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.engine.lines.line_plan import LineMap
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import scene_of
from rubix_like.forward.stages.optics import PSFStage, psf_widths
from rubix_like.forward.stages.through_fibres import FibreStage
from rubix_like.forward.tables import Tables
from rubix_like.galaxy.particles import Galaxy
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.psf import PSF
from rubix_like.runtime.mesh.mesh import is_traced, own_copy

_USUAL_EXCESS = 0.01
"""Of the widest class by which particles may be wider, such as those of finite differences."""


def _expect_between(
    name: str,
    unit: str,
    value: Float[ndarray, "..."],
    least: Float[ndarray, "..."],
    most: Float[ndarray, "..."],
    words: str,
    setting: str,
    beside: str = "",
) -> None:
    """Raise ConfigError for a parameter's value outside of those that a plan holds; `words` on what the ends are.

    `setting`: the key that such a value is planned by; `beside`: other parameters that the ends depend on.
    """
    value, least, most = np.broadcast_arrays(*map(np.atleast_1d, (value, least, most)))
    low, high = value < least, value > most
    if low.any() or high.any():
        expected = f"at least {least[low][0]:.4g}" if low.any() else f"at most {most[high][0]:.4g}"
        got = f"{value[low if low.any() else high][0]:.4g}"
        raise ConfigError(
            f"parameters['{name}']: expected {expected} {unit}{beside} ({words}), got {got}; plan a pipeline for it "
            f"(rl.Pipeline.from_config with {setting} of {got} {unit}{beside}), or call rl.simulate or "
            f"rl.log_posterior, which plan for their priors, with wider ones"
        )


def check_within_plan(tables: Tables, parameters: Parameters) -> None:
    """Raise ConfigError for parameters beyond what a pipeline is planned for; traced ones pass."""
    for stage in tables.cube:
        if isinstance(stage, PSFStage | FibreStage) and stage.psf is not None and stage.psf.image is None:
            _check_psf(stage.psf, stage.field, parameters)
    found = _line_maps(tables, parameters)
    if not found:
        return
    leaves, structure = jax.tree.flatten(parameters)
    marks = [-1.0 - number for number in range(len(leaves))]  # no width is negative
    marked = [jnp.full(np.shape(leaf), mark) for leaf, mark in zip(leaves, marks, strict=True)]
    names = dict(zip(marks, parameters.named(), strict=True))
    for lines, named in zip(found, _line_maps(tables, jax.tree.unflatten(structure, marked)), strict=True):
        if not is_traced(named):
            _check_lines(lines, names.get(float(named.velocity_dispersion)))


def _line_maps(tables: Tables, parameters: Parameters) -> list[LineMap]:
    painters = [source.painter_for(parameters) for source in tables.paint]
    leaves = jax.tree.leaves(painters, is_leaf=lambda leaf: isinstance(leaf, LineMap))
    return [leaf for leaf in leaves if isinstance(leaf, LineMap)]


def _check_psf(psf: PSF, field: FieldPSF | None, parameters: Parameters) -> None:
    """Expect widths (arcsec) whose light the painted margin holds, at every place of the field."""
    widths, (psf, field) = psf_widths(parameters), own_copy((psf, field))
    if is_traced((psf, field, widths)):
        return
    width, slope = (1.0, 1.0) if field is None else (np.asarray(field.width), np.asarray(field.beta))
    beta = None if widths.beta is None else np.asarray(1.0 + (np.asarray(widths.beta) - 1.0) * slope)
    most = np.asarray(psf.widest(beta) / width)
    _expect_between(
        name="instrument.psf.fwhm",
        unit="arcsec",
        value=np.asarray(widths.fwhm),
        least=np.zeros(()),
        most=most if field is None else np.asarray(most.min(axis=0)),
        words="the widest PSF that the margin of this pipeline is planned for",
        setting=f"instrument.psf.{'fwhm' if widths.fraction is None else 'components'}",
        beside="" if widths.beta is None else f" beside instrument.psf.beta of {np.min(np.asarray(widths.beta)):.4g}",
    )


def _check_lines(lines: LineMap, name: str | None) -> None:
    """Expect a velocity_dispersion (km/s) of lines that the velocity nodes resolve; `name`: of the parameter."""
    value, least = own_copy((lines.velocity_dispersion, lines.narrowest))
    if name is None or is_traced((value, least)):
        return
    words = "the narrowest lines that the velocity nodes of method 'basis' are planned for"
    least_of_32_bits = np.asarray(np.asarray(least) * (1 - 1e-5))
    _expect_between(name, "km/s", np.asarray(value), least_of_32_bits, np.asarray(np.inf), words, name)


def check_lengths_within_plan(tables: Tables, galaxy: Galaxy) -> None:
    """Raise ConfigError for particles with light that are smoothed wider than the classes of the plan.

    Traced ones pass, those of several processes, and all where `engine.smoothing.largest` limits the classes.
    """
    widths = tables.grid.widths
    if widths is None or widths.is_limited or is_traced((tables, galaxy)):
        return
    if not all(leaf.is_fully_addressable for leaf in jax.tree.leaves(galaxy) if isinstance(leaf, jax.Array)):
        return
    most = float(own_copy(widths.longest / tables.arcsec_per_kpc)) * (1 + _USUAL_EXCESS)
    for source in tables.paint:
        particles = getattr(galaxy, source.kind)
        lengths = None if particles is None else particles.smoothing_length
        if lengths is None or float(np.max(lengths, initial=0.0)) <= most:
            continue
        amount = scene_of(source, particles, None, jnp.ones_like(tables.arcsec_per_kpc)).amount
        longest = float(np.max(np.where(np.asarray(amount) > 0, np.asarray(lengths), 0.0)))
        if longest > most:
            raise ConfigError(
                f"{source.kind}.smoothing_length: expected at most {most:.4g} kpc (the widest that this pipeline is "
                f"planned for), got {longest:.4g}; plan a pipeline for this galaxy (rl.Pipeline.from_config(config, "
                f"galaxy))"
            )
