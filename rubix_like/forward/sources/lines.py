"""Source `lines`: a few emission lines of the gas, or of stars as tracers, without a table of nebulae."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.products import LINE_SOURCE, LinesSettings
from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC
from rubix_like.engine.lines.line_plan import with_dispersion
from rubix_like.engine.lines.line_planning import narrowest_for, plan_lines
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan, build_line_painter
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import (
    AbstractDimmedSource,
    DustInFront,
    Kind,
    ReaderWords,
    Rotation,
    Scale,
    seen_through_dust,
)
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.components.light import LineRow
from rubix_like.galaxy.particles import Stars
from rubix_like.galaxy.scene import Scene, to_scene, without_dark
from rubix_like.instrument.detector import least_line_width
from rubix_like.nebular.line_list import FIXED_RATIOS, find_line
from rubix_like.physics.templates import LineTemplates, TemplateAxes


class ComponentLines(AbstractDimmedSource):
    """Emitters of components with `lines`; each shines in a mixture of the galaxy's lines.

    `to_luminosity` (line,): Lsun per unit of `Stars.line_light`. `names` are those of the coordinates: the share of
    each line. `is_mixed`: whether other components have stars.
    """

    painter: AbstractPainter
    to_luminosity: Float[Array | ndarray, " line"]
    dust: DustInFront | None
    is_mixed: bool = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    kind: ClassVar[Kind] = "stars"
    words: ClassVar[ReaderWords] = ReaderWords("lines of smooth components", "take a pipeline without the source lines")

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:  # noqa: ARG003
        """The lines of all components, painted as `engine` says; no options."""
        templates = seen_through_dust(component_templates(component_rows(setup.config.galaxy)), setup)
        return plan_lines(setup, templates, cls.kind, narrowest=least_line_width(setup.config.instrument))

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "ComponentLines":  # noqa: ARG003
        """The source with the line painter of the plan's method."""
        per_flux = setup.luminosity_distance**2 / SOLAR_LUMINOSITY_AT_1_MPC
        rows = component_rows(setup.config.galaxy)
        reader = setup.config.galaxy
        assert isinstance(reader, ComponentsReader)
        return cls(
            painter=build_line_painter(plan, setup),
            to_luminosity=np.array([per_flux if row.is_flux else 1.0 for row in rows]),
            dust=DustInFront.of(setup),
            is_mixed=any(component.lines is None for component in reader.components),
            names=_axis_names(rows),
        )

    def shining(self, particles: Stars) -> Bool[Array, " particle"] | None:
        """Emitters that have lines, or brightnesses that are no numbers, where others have none."""
        return ~(_light(particles).sum(axis=1) <= 0) if self.is_mixed else None

    def scene(self, particles: Stars, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
        """Emitters with their luminosity (Lsun) in the lines that are listed, and the share of each."""
        light = _light(particles) * jnp.asarray(self.to_luminosity)[None, :]
        amount = light.sum(axis=1)
        lit = amount > 0
        shares = jnp.where(lit[:, None], light / jnp.where(lit, amount, jnp.ones_like(amount))[:, None], light)
        coordinates = {name: shares[:, number] for number, name in enumerate(self.names)}
        return to_scene(particles, amount, coordinates, alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """The emitters behind their dust; those without light are in no count."""
        return self.dimmed(without_dark(scene), parameters)


def component_rows(galaxy: object) -> tuple[LineRow, ...]:
    """The lines of a run's smooth components; none for another galaxy."""
    return galaxy.build().line_rows if isinstance(galaxy, ComponentsReader) else ()


def component_templates(rows: Sequence[LineRow]) -> LineTemplates:
    """A template of luminosity 1 for each line, with its fainter partner unless that is given, too; particles shine as
    mixtures of them. Raises ConfigError for an unknown name."""
    found = []
    for row in rows:
        name, place = _line(row.line)
        found.append({name: (place, 1.0)})
        given = {_line(other)[0] for other in row.wavelengths}
        for faint, (bright, ratio) in FIXED_RATIOS.items():
            if row.doublets and bright == name and faint not in given:
                found[-1][faint] = find_line(faint).wavelength, ratio
    wavelength = {name: place for row in found for name, (place, _) in row.items()}
    lines = tuple(wavelength)
    table = np.array([[row[name][1] if name in row else 0.0 for name in lines] for row in found])
    return LineTemplates(
        name="the lines of the components",
        axes=TemplateAxes((), _axis_names(rows), is_mixture=True),
        lines=lines,
        wavelength=np.array([wavelength[name] for name in lines]),
        table=table,
        thermal=np.zeros(len(lines)),
    )


def _line(given: str | float) -> tuple[str, float]:
    """The name and vacuum wavelength (Angstrom) of a line that is given by either."""
    if not isinstance(given, str):
        return f"{given:g}", given
    try:
        line = find_line(given)
    except ConfigError as error:
        raise ConfigError(f"lines.wavelengths: {error}") from None
    return line.name, line.wavelength


def check_component_lines(galaxy: object) -> None:
    """Raise ConfigError for lines of components that are not known, or named twice."""
    if not isinstance(galaxy, ComponentsReader):
        return
    for component in galaxy.components:
        try:
            _named(() if component.lines is None else component.lines.wavelengths)
        except ConfigError as error:
            raise ConfigError(f"galaxy.{component.name}.{error}") from None


def _named(given: Sequence[str | float]) -> list[tuple[str, float]]:
    """The name and wavelength of each line; raises ConfigError for unknown ones, and for one that is given twice."""
    found = [_line(line) for line in given]
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"lines.wavelengths: expected different lines, got '{twice}' twice; name each line once")
    return found


def _axis_names(rows: Sequence[LineRow]) -> tuple[str, ...]:
    """A name for the share of each line: the same line of two components may be two."""
    return tuple(f"line {number}" for number in range(len(rows)))


def _light(particles: Stars) -> Float[Array, "particle line"]:
    if particles.line_light is None:
        raise ValueError(
            "stars.line_light: expected the brightness of each emitter in the lines of its component, got none; take "
            "the galaxy of the configuration (load_galaxy)"
        )
    return jnp.asarray(particles.line_light)


class SectionLines(AbstractDimmedSource):
    """Particles shine in the lines of the section `lines`, in equal ratios, in proportion to mass or star formation.

    Stars are tracers, in proportion to their mass at birth (Msun); the `weight` of gas is its mass (Msun) or its star
    formation rate (Msun/yr).
    """

    painter: AbstractPainter
    dust: DustInFront | None
    kind: Kind = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    weight: str = eqx.field(static=True)

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The lines of the section, painted as `engine` says; no options."""
        refuse_options(LINE_SOURCE, options)
        if component_rows(setup.config.galaxy):
            return ComponentLines.plan(setup, options)
        settings = _settings(setup)
        templates = seen_through_dust(line_templates(settings), setup)
        narrowest = narrowest_for(setup, templates, settings.velocity_dispersion)
        return plan_lines(setup, templates, settings.particles, narrowest=narrowest)

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "SectionLines | ComponentLines":
        """The source of the section's particles, or of components with lines, with the line painter of the plan."""
        if component_rows(setup.config.galaxy):
            return ComponentLines.build(setup, plan, options)
        settings, painter, dust = _settings(setup), build_line_painter(plan, setup), DustInFront.of(setup)
        return cls(painter=painter, dust=dust, kind=settings.particles, weight=settings.weight)

    def amount(self, particles: Any) -> Float[Array, " particle"]:
        """The amount that the light of each is proportional to; ValueError for gas without star formation rates."""
        if self.kind == "stars":
            return jnp.asarray(particles.initial_mass)
        if self.weight == "mass":
            return jnp.asarray(particles.mass)
        remedy = "use weight: mass, or a galaxy whose gas has it (Msun / yr)"
        return particles.required("star_formation_rate", "lines.weight 'star_formation_rate'", remedy)

    def scene(self, particles: Any, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
        """Particles with their amount, and no coordinates."""
        return to_scene(particles, self.amount(particles), {}, alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """Each particle's amount times the luminosity per unit of it; those without any are in no count.

        All light of gas that shines as it forms stars comes through birth clouds; that by mass does not.
        """
        shining = dataclasses.replace(without_dark(scene), amount=scene.amount * parameters.lines.luminosity)
        is_nebular = self.kind == "gas" and self.weight == "star_formation_rate"
        return self.dimmed(shining, parameters, jnp.ones_like(scene.amount) if is_nebular else None)

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the parameters say."""
        return with_dispersion(self.painter, parameters.lines.velocity_dispersion)


def line_templates(settings: LinesSettings) -> LineTemplates:
    """The lines of the section as one template, of a luminosity of 1; raises ConfigError for an unknown name."""
    names, wavelength = zip(*_named(settings.wavelengths), strict=True)
    ratios = settings.ratios or (1.0,) * len(names)
    return LineTemplates(
        name="the lines of the section 'lines'",
        axes=TemplateAxes((), ()),
        lines=names,
        wavelength=np.asarray(wavelength, dtype=np.float64),
        table=np.asarray([ratios], dtype=np.float64),
        thermal=np.zeros(len(names)),
    )


def _settings(setup: Setup) -> LinesSettings:
    if setup.config.lines is None:
        raise ConfigError(
            "lines: expected the section for a pipeline that paints 'lines', got null; add for example lines: "
            "{wavelengths: [Ha], velocity_dispersion: 20 km/s}"
        )
    return setup.config.lines
