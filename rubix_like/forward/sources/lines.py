"""Source `lines`: a few emission lines of the gas, or of stars as tracers, without a table of nebulae."""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

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
from rubix_like.forward.sources.component_lines import ComponentLines, component_rows
from rubix_like.forward.sources.dust_in_front import DustInFront, seen_through_dust
from rubix_like.forward.sources.source import AbstractSource, Kind
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.galaxy.scene import Scene, to_scene, without_dark
from rubix_like.nebular.line_list import EmissionLine, find_line
from rubix_like.physics.templates import LineTemplates, TemplateAxes


class AbstractLines(AbstractSource):
    """Particles shine in the lines of the section `lines`, in equal ratios, in proportion to mass or star formation."""

    painter: eqx.AbstractVar[AbstractPainter]
    dust: eqx.AbstractVar[DustInFront | None]

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The columns of dust, where the run has dust of kind particles."""
        return () if self.dust is None else self.dust.reads

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The lines of the section, painted as `engine` says; no options."""
        refuse_options(LINE_SOURCE, options)
        if component_rows(setup.config):
            return ComponentLines.plan(setup, options)
        settings = _settings(setup)
        templates = seen_through_dust(line_templates(settings), setup)
        narrowest = narrowest_for(setup, templates, settings.velocity_dispersion)
        return plan_lines(setup, templates, settings.particles, narrowest=narrowest)

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "AbstractLines | ComponentLines":
        """The source of the section's particles, or of components with lines, with the line painter of the plan."""
        if component_rows(setup.config):
            return ComponentLines.build(setup, plan, options)
        settings, painter, dust = _settings(setup), build_line_painter(plan, setup), DustInFront.of(setup)
        if settings.particles == "stars":
            return StarLines(painter=painter, dust=dust)
        return GasLines(painter=painter, weight=settings.weight, dust=dust)

    @abstractmethod
    def amount(self, particles: Any) -> Float[Array, " particle"]:
        """What the light of each is proportional to."""

    @property
    @abstractmethod
    def is_nebular(self) -> bool:
        """Whether all of its light comes through birth clouds."""

    def scene(
        self,
        particles: Any,
        alignment: Float[Array | ndarray, "3 3"] | None,
        arcsec_per_kpc: Float[Array | ndarray, ""],
    ) -> Scene:
        """Particles with their amount, and no coordinates."""
        return to_scene(particles, self.amount(particles), {}, alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """Each particle's amount times the luminosity per unit of it; those without any are in no count.

        All light of gas that shines as it forms stars comes through birth clouds; that by mass does not.
        """
        shining = dataclasses.replace(without_dark(scene), amount=scene.amount * parameters.lines.luminosity)
        if self.dust is None:
            return shining
        return self.dust.dim(shining, parameters, jnp.ones_like(scene.amount) if self.is_nebular else None)

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the parameters say."""
        return with_dispersion(self.painter, parameters.lines.velocity_dispersion)


class StarLines(AbstractLines):
    """Stars as tracers, in proportion to their mass at birth (Msun)."""

    painter: AbstractPainter
    dust: DustInFront | None
    kind: ClassVar[Kind] = "stars"

    @property
    def is_nebular(self) -> bool:
        """It is not."""
        return False

    def amount(self, particles: Stars) -> Float[Array, " particle"]:
        """Mass at birth."""
        return jnp.asarray(particles.initial_mass)


class GasLines(AbstractLines):
    """Gas, in proportion to its mass (Msun) or star formation rate (Msun/yr)."""

    painter: AbstractPainter
    weight: str = eqx.field(static=True)
    dust: DustInFront | None
    kind: ClassVar[Kind] = "gas"

    @property
    def is_nebular(self) -> bool:
        """The light of gas that shines as it forms stars."""
        return self.weight == "star_formation_rate"

    def amount(self, particles: Gas) -> Float[Array, " particle"]:
        """By the section's weight; raises ValueError where the gas has no star formation rates."""
        if self.weight == "mass":
            return jnp.asarray(particles.mass)
        remedy = "use weight: mass, or a galaxy whose gas has it (Msun / yr)"
        return particles.required("star_formation_rate", "lines.weight 'star_formation_rate'", remedy)


def line_templates(settings: LinesSettings) -> LineTemplates:
    """The lines of the section as one template, of a luminosity of 1; raises ConfigError for an unknown name."""
    known = [_found(given) if isinstance(given, str) else None for given in settings.wavelengths]
    wavelength = [
        given if line is None else line.wavelength for given, line in zip(settings.wavelengths, known, strict=True)
    ]
    names = [
        f"{given:g}" if line is None else line.name for given, line in zip(settings.wavelengths, known, strict=True)
    ]
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
