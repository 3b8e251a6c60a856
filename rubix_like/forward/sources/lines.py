"""Source `lines`: a few emission lines of the gas, or of stars as tracers, without a table of nebulae."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.lines import LINE_SOURCE, LinesSettings
from rubix_like.engine.lines.line_plan import with_dispersion
from rubix_like.engine.lines.line_planning import narrowest_for, plan_lines
from rubix_like.engine.methods import build_line_painter
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.dust_in_front import DustInFront, seen_through_dust
from rubix_like.forward.sources.source import AbstractSource, Kind
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.galaxy.scene import Scene, to_scene, without_dark
from rubix_like.nebular.line_list import EmissionLine, find_line
from rubix_like.physics.templates import LineTemplates, TemplateAxes


class LinesSource(AbstractSource):
    """Particles shine in the lines of the section `lines`, in equal ratios, in proportion to mass or star formation."""

    painter: AbstractPainter
    particles: Kind = eqx.field(static=True)
    weight: str = eqx.field(static=True)
    dust: DustInFront | None = None

    @property
    def kind(self) -> Kind:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the section says."""
        return self.particles

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The columns of dust, where the run has dust of kind particles."""
        return () if self.dust is None else self.dust.reads

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The lines of the section, painted as `engine` says; no options."""
        refuse_options(LINE_SOURCE, options)
        settings = _settings(setup)
        templates = seen_through_dust(line_templates(settings), setup)
        narrowest = narrowest_for(setup, templates, settings.velocity_dispersion)
        return plan_lines(setup, templates, settings.particles, narrowest=narrowest)

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "LinesSource":  # noqa: ARG003
        """The source with the line painter of the plan's method."""
        settings = _settings(setup)
        return cls(build_line_painter(plan, setup), settings.particles, settings.weight, DustInFront.of(setup))

    def scene(
        self,
        particles: Stars | Gas,
        alignment: Float[Array | ndarray, "3 3"] | None,
        arcsec_per_kpc: Float[Array | ndarray, ""],
    ) -> Scene:
        """Particles with their mass (stars: at birth) or star formation rate as amount, and no coordinates."""
        return to_scene(particles, self._amount(particles), {}, alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """Each particle's amount times the luminosity per unit of it; those without any are in no count.

        All light of gas that shines as it forms stars comes through birth clouds; that by mass does not.
        """
        shining = dataclasses.replace(without_dark(scene), amount=scene.amount * parameters.lines.luminosity)
        if self.dust is None:
            return shining
        forms_stars = self.particles == "gas" and self.weight == "star_formation_rate"
        return self.dust.dim(shining, parameters, jnp.ones_like(scene.amount) if forms_stars else None)

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the parameters say."""
        return with_dispersion(self.painter, parameters.lines.velocity_dispersion)

    def _amount(self, particles: Stars | Gas) -> Float[Array, " particle"]:
        if isinstance(particles, Stars):
            return jnp.asarray(particles.initial_mass)
        if self.weight == "mass":
            return jnp.asarray(particles.mass)
        if particles.star_formation_rate is None:
            raise ValueError(
                "gas.star_formation_rate: expected one per particle (Msun / yr) for lines.weight "
                "'star_formation_rate', got none; use weight: mass, or a galaxy with star formation rates"
            )
        return jnp.asarray(particles.star_formation_rate)


def line_templates(settings: LinesSettings) -> LineTemplates:
    """The lines of the section as one template, of a luminosity of 1; raises ConfigError for an unknown name."""
    known = [_found(own) if isinstance(own, str) else None for own in settings.wavelengths]
    wavelength = [
        own if line is None else line.wavelength for own, line in zip(settings.wavelengths, known, strict=True)
    ]
    names = [f"{own:g}" if line is None else line.name for own, line in zip(settings.wavelengths, known, strict=True)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"lines.wavelengths: expected different lines, got '{twice}' twice; name each line once")
    ratios = settings.ratios or (1.0,) * len(names)
    return LineTemplates(
        name="the lines of the section 'lines'",
        axes=TemplateAxes((), ()),
        lines=tuple(names),
        wavelength=np.asarray(wavelength, dtype=np.float64),
        table=np.asarray([ratios], dtype=np.float64),
        thermal=np.zeros(len(names)),
    )


def _found(name: str) -> EmissionLine:
    try:
        return find_line(name)
    except ConfigError as error:
        raise ConfigError(f"lines.wavelengths: {error}") from None


def _settings(setup: Setup) -> LinesSettings:
    if setup.config.lines is None:
        raise ConfigError(
            "lines: expected the section for a pipeline that paints 'lines', got null; add for example lines: "
            "{wavelengths: [Ha], velocity_dispersion: 20 km/s}"
        )
    return setup.config.lines
