"""Maps of emission lines: flux, motions, the continuum beside them, the Balmer decrement, ionising photons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.cube.maps import BALMER_LINES, Image, LineAxes, LineLabel, LineMaps
from rubix_like.engine.direct import dimmed
from rubix_like.engine.lines.line_plan import dispersion_of
from rubix_like.engine.lines.line_planning import LineTracks
from rubix_like.engine.painter import AbstractPainter, PainterPair, SpreadPainter, View
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.errors import ConfigError, suggest
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.product import (
    AbstractProduct,
    NamedColumns,
    Placed,
    SourceView,
    Summed,
    Viewer,
    mean,
    root,
    sum_columns,
)
from rubix_like.forward.sources.nebulae import PhotonLight, PointPainter
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.forward.stages.scene import screen_transmission
from rubix_like.nebular.line_list import find_line
from rubix_like.physics.templates import LineTemplates, TemplateAxes, Templates, layers_of, weighted_rows
from rubix_like.runtime.notes import WARNING, Note

NEAREST, FARTHEST = 2000.0, 4000.0
"""km/s from a line between which, on either side, the light counts as the continuum beside it."""


class LinePart(NamedTuple):
    """One painter of a source's light: the velocity_dispersion of its lines (km/s; None for spectra), and what spreads
    it over the sky (None: it is where the particles are)."""

    dispersion: Float[Array, ""] | None
    spread: SpreadPainter | None


def line_parts(painter: AbstractPainter) -> tuple[LinePart, ...]:
    """The painters that a painter consists of; one of a continuum beside lines goes with these."""
    if isinstance(painter, PointPainter):
        return line_parts(painter.inner)
    if isinstance(painter, PainterPair):
        first, second = line_parts(painter.first), line_parts(painter.second)
        beside = [part.dispersion is None for part in second]
        return first if all(beside) and first[0].dispersion is not None else (*first, *second)
    if isinstance(painter, SpreadPainter):
        return tuple(part._replace(spread=painter) for part in line_parts(painter.inner))
    return (LinePart(dispersion_of(painter), None),)


class SourceLines(eqx.Module):
    """Tables of what the particles of one source add to the maps of lines, per unit of their amount.

    | field | shape | unit |
    |---|---|---|
    | flux | (template, line) or None | 1e-20 erg/s/cm2; 0 for lines that the source has not |
    | thermal | (line,) | km/s, sigma of the thermal motion |
    | continuum | (template, line) or None | 1e-20 erg/s/cm2/Angstrom beside each line |
    | flux_axes, continuum_axes | | of the two tables: axes of the same names in the same order |
    | attenuation | (layer, line) | A / A(V) of the dust that particles are seen through; None without dust |
    | source | static | number of the source in the pipeline |
    | has_dust | static | whether each particle of some source has a separate A(V) |
    | is_photons | static | whether the amount is ionising photons that gas absorbs, in 1e49 per second |
    """

    flux: Float[Array | ndarray, "template line"] | None
    thermal: Float[Array | ndarray, " line"]
    flux_axes: TemplateAxes
    continuum: Float[Array | ndarray, "other line"] | None
    continuum_axes: TemplateAxes
    source: int = eqx.field(static=True)
    is_photons: bool = eqx.field(static=True)
    has_dust: bool = eqx.field(static=True)
    attenuation: Float[Array | ndarray, "layer line"] | None = None

    def columns(self, view: View, part: LinePart, reference: Float[Array, ""]) -> dict[str, Float[Array, "particle k"]]:
        """The columns of each particle by the name of their block (`LineAxes.blocks`)."""
        found, amount = {}, view.amount[:, None]
        if self.flux is not None:
            flux = weighted_rows(jnp.asarray(self.flux), view.corners(self.flux_axes)) * amount
            found |= {"intrinsic": flux} if self.has_dust else {}
            flux = dimmed(flux, view, self.flux_axes, self.attenuation)
            velocity = (view.v_los - reference)[:, None]
            width = jnp.asarray(self.thermal) ** 2 + jnp.asarray(part.dispersion) ** 2
            found["moments"] = jnp.concatenate([flux, flux * velocity, flux * (velocity**2 + width[None, :])], axis=1)
        if self.continuum is not None:
            beside = weighted_rows(jnp.asarray(self.continuum), view.corners(self.continuum_axes)) * amount
            found["continuum"] = dimmed(beside, view, self.continuum_axes, self.attenuation)
        return found | ({"photons": amount} if self.is_photons else {})


class EmissionLines(AbstractProduct):
    """Maps of the lines that the sources of a pipeline paint, of the photons that make them and of the light beside
    them.

    `screen`: A(lambda) / A(V) of the run's dust at each line (None: no screen); `blocks`: of columns, in their order.
    """

    sources: tuple[SourceLines, ...]
    screen: Float[Array | ndarray, " line"] | None
    blocks: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def build(
        cls, setup: Setup, sources: Sequence[AbstractSource], axes: LineAxes, screen: Float[ndarray, " line"] | None
    ) -> "EmissionLines":
        """Build it for the lines of `axes`; raises ConfigError for a source of lines with a painter of another kind."""
        found = []
        for number, (source, (name, plan)) in enumerate(zip(sources, setup.sources.items(), strict=True)):
            found.append(_source_lines(setup, plan, number, axes))
            if found[-1].flux is not None and any(part.dispersion is None for part in line_parts(source.painter)):
                kind = type(source.painter).__name__
                raise ConfigError(
                    f"products.lines: expected painters of lines (build_line_painter), got {kind} of source '{name}'; "
                    f"set products.lines: false"
                )
        shining = (
            lines for lines in found if lines.flux is not None or lines.continuum is not None or lines.is_photons
        )
        return cls(tuple(shining), screen, tuple(axes.blocks))

    def paint(self, viewer: Viewer, particles: None) -> tuple[NamedColumns, ...]:  # noqa: ARG002
        """The sums of all particles at hand, of each part of each source."""
        reference = viewer.parameters.observation.velocity_offset

        def summed(lines: SourceLines, part: LinePart, source: SourceView) -> NamedColumns:
            wide = viewer.grid if part.spread is None else part.spread.wide(viewer.grid)

            def contribute(chunk: Any) -> tuple[Placed, dict[str, Float[Array, "particle k"]], None]:
                view = source.look(chunk, wide)
                view = view if part.spread is None else part.spread.changed(view)
                return (view.spaxel, view.share), lines.columns(view, part, reference), None

            return sum_columns(contribute, viewer, wide, source.particles)

        return tuple(summed(*part) for part in self._parts(viewer.sources))

    def images(self, sums: Sequence[NamedColumns], viewer: Viewer) -> NamedColumns:
        """Images of the sums of all parts together."""
        found: dict[str, Float[Array, "y x k"]] = {}
        for (_, part, _), columns in zip(self._parts(viewer.sources), sums, strict=True):
            grid, spread, values = viewer.grid, part.spread, columns.values
            seen = grid.images(values) if spread is None else spread.spread(spread.wide(grid).images(values))
            for name, block in NamedColumns(seen, columns.widths).by_name.items():
                found[name] = found[name] + block if name in found else block
        return NamedColumns.of({name: found[name] for name in self.blocks}, 2)

    def other(self, sums: Any, parameters: Parameters) -> Float[Array, " line"] | None:  # noqa: ARG002
        """The share of each line that the screen lets through (None: there is no screen)."""
        return screen_transmission(self.screen, parameters)

    def make(self, summed: Summed) -> dict[str, Any]:
        """The maps of each line, photons, and with maps of dust those of the Balmer lines."""
        axes = summed.axes
        assert axes.lines is not None
        found, transmission = summed.images, summed.other
        flux, first, second = jnp.split(found["moments"], 3, axis=2)
        beside, bare = found.get("continuum"), found.get("intrinsic")
        lines = {}
        for number, line in enumerate(axes.lines.lines):
            light = flux[:, :, number]
            velocity, square = (summed.mean(sums[:, :, number], light) for sums in (first, second))
            share = jnp.ones_like(summed.reference) if transmission is None else transmission[number]
            level = None if beside is None or not line.has_continuum else beside[:, :, number]
            intrinsic = None if transmission is None else light
            lines[line.name] = LineMaps(
                flux=light * share,
                intrinsic_flux=intrinsic if bare is None else bare[:, :, number],
                v=velocity + summed.reference,
                sigma=root(square - velocity**2),
                continuum=None if level is None else level * share,
                equivalent_width=None if level is None else summed.mean(light, level) / (1.0 + axes.lines.redshift),
            )
        photons = found["photons"][:, :, 0] if "photons" in found else None
        excess = None if axes.dust is None else axes.dust.balmer_excess
        balmer = {} if excess is None else _balmer_maps(lines, excess, summed.faintest)
        return {"lines": lines, "ionising_photons": photons, **balmer}

    def _parts(self, sources: Sequence[SourceView]) -> list[tuple[SourceLines, LinePart, SourceView]]:
        return [
            (lines, part, sources[lines.source])
            for lines in self.sources
            for part in line_parts(sources[lines.source].painter)
        ]


def _balmer_maps(lines: Mapping[str, LineMaps], excess: float, faintest: float) -> dict[str, Image]:
    """Ha / Hb, and the A(V) that dims Hb by as much more than Ha as it is above that before dust."""
    h_alpha, h_beta = (lines[name] for name in BALMER_LINES)
    decrement = mean(h_alpha.flux, h_beta.flux, faintest)
    if h_alpha.intrinsic_flux is None or h_beta.intrinsic_flux is None:
        return {"balmer_decrement": decrement}
    ratio = decrement / mean(h_alpha.intrinsic_flux, h_beta.intrinsic_flux, 0.0)
    there = ratio > 0
    a_v = 2.5 / excess * jnp.log10(jnp.where(there, ratio, jnp.ones_like(ratio)))
    return {"balmer_decrement": decrement, "a_v_balmer": jnp.where(there, a_v, jnp.nan)}


def _source_lines(setup: Setup, plan: SourcePlan, number: int, axes: LineAxes) -> SourceLines:
    factor, templates = SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2, plan.templates
    flux, thermal = None, np.zeros(len(axes.lines))
    if isinstance(templates, LineTemplates):
        places = [templates.lines.index(line.name) if line.name in templates.lines else -1 for line in axes.lines]
        known = np.array(places) >= 0
        flux = np.where(known, templates.table[:, places], 0.0) * factor
        thermal = np.where(known, templates.thermal[places], 0.0)
    spectra = spectra_of(setup, plan)
    continuum = None
    if spectra is not None:
        beside = [light_beside(spectra, line.wavelength) * line.has_continuum for line in axes.lines]
        continuum = factor / (1.0 + axes.redshift) * np.stack(beside, axis=1)
    layers = layers_of(templates)
    return SourceLines(
        flux=flux,
        thermal=thermal,
        flux_axes=templates.axes,
        continuum=continuum,
        continuum_axes=templates.axes if spectra is None else spectra.axes,
        source=number,
        is_photons=shines_by_photons(plan),
        has_dust=axes.has_dust,
        attenuation=None if layers is None else layers(np.array([line.wavelength for line in axes.lines])),
    )


def shines_by_photons(plan: SourcePlan) -> bool:
    """Whether a source's amounts are ionising photons that gas absorbs."""
    return isinstance(plan.own, PhotonLight)


def spectra_of(setup: Setup, plan: SourcePlan) -> Templates | None:
    """The spectra that a source shines as, of nebulae those of their continuum; None where it has lines alone."""
    if isinstance(plan.templates, Templates):
        return plan.templates
    return plan.own.continuum(setup) if isinstance(plan.own, PhotonLight) and plan.own.has_continuum else None


def windows_of(wavelength: float) -> Float[ndarray, "side 2"]:
    """The two windows beside a line (Angstrom), in which its continuum is measured."""
    return wavelength * (1.0 + np.array([[-FARTHEST, -NEAREST], [NEAREST, FARTHEST]]) / SPEED_OF_LIGHT)


def light_beside(templates: Templates, wavelength: float) -> Float[ndarray, " template"]:
    """Mean of each template (Lsun/Angstrom per amount) over both windows beside a line (vacuum Angstrom at rest).

    Exact for templates that are straight between their nodes.
    """
    nodes = templates.rest_wavelength
    means = []
    for low, high in windows_of(wavelength):
        grid = np.concatenate([[low], nodes[(nodes > low) & (nodes < high)], [high]])
        below = np.clip(np.searchsorted(nodes, grid, side="right") - 1, 0, len(nodes) - 2)
        share = (grid - nodes[below]) / (nodes[below + 1] - nodes[below])
        values = templates.table[:, below] * (1 - share) + templates.table[:, below + 1] * share
        means.append(np.trapezoid(values, grid, axis=1) / (high - low))
    return 0.5 * (means[0] + means[1])


def has_light_beside(templates: Templates, wavelength: float) -> bool:
    """Whether the templates hold all light in both windows beside a line (vacuum Angstrom at rest)."""
    (low, _), (_, high) = windows_of(wavelength)
    nodes, (first, last) = templates.rest_wavelength, templates.covered
    return bool(low >= max(nodes[0], first) and high <= min(nodes[-1], last))


STRONG_LINES: tuple[str, ...] = (
    "[O II] 3726",
    "[O II] 3729",
    "Hb",
    "[O III] 5007",
    "[O I] 6300",
    "Ha",
    "[N II] 6583",
    "[S II] 6716",
    "[S II] 6731",
    "[S III] 9069",
    "[S III] 9531",
    "Pab",
    "Paa",
    "Brg",
)
"""Lines of nebulae that `products.lines: true` maps."""


def named_lines(names: Iterable[str | float]) -> tuple[str, ...]:
    """Lines as `products.lines` names them, each once, in the spelling of the list of lines.

    Wavelengths are those of the section `lines`. Raises ConfigError for an unknown name.
    """
    try:
        found = [find_line(name).name if isinstance(name, str) else f"{name:g}" for name in names]
    except ConfigError as error:
        raise ConfigError(f"products.lines: {error}") from None
    return tuple(dict.fromkeys(found))


def choose_lines(setup: Setup) -> LineAxes | None:
    """The lines of the run's maps; None where it makes none of them.

    Raises ConfigError where no source has such a line, and where the detector sees none.
    """
    products = setup.config.products
    if products is None or not products.lines:
        return None
    tracks, edges = _all_tracks(setup), setup.instrument.bins.edges
    if not tracks and any(shines_by_photons(plan) for plan in setup.sources.values()):
        raise ConfigError(
            f"products.lines: expected lines of the nebular table on the detector ({edges[0]:.6g}-{edges[-1]:.6g} "
            f"Angstrom), got none; set products.lines: false, or change the instrument or the redshift"
        )
    if not tracks:
        raise ConfigError(
            f"products.lines: expected a pipeline that paints lines, got '{setup.config.pipeline}'; set "
            f"pipeline: nebular (stellar_lines, lines), or products.lines: false"
        )
    asked = _asked(setup)
    unknown = next((name for name in asked if name not in tracks), None)
    if unknown is not None:
        raise ConfigError(
            f"products.lines: expected lines that the pipeline paints{suggest(unknown, tracks)}, got '{unknown}'; it "
            f"paints {', '.join(tracks)}"
        )
    places = {name: float(tracks[name].at(np.zeros(1)).centre[0, 0]) for name in asked}
    seen = [name for name in asked if edges[0] <= places[name] <= edges[-1]]
    if not seen:
        raise ConfigError(
            f"products.lines: expected lines on the detector ({edges[0]:.6g}-{edges[-1]:.6g} Angstrom), got "
            f"{', '.join(f'{name} at {place:.6g}' for name, place in places.items()) or 'none'}; take "
            f"other lines (products.lines: true takes those that it sees), or change the instrument or the redshift"
        )
    return _line_axes(setup, {name: (float(tracks[name].wavelength[0]), places[name]) for name in seen})


def line_notes(setup: Setup, axes: LineAxes | None) -> Iterator[Note]:
    """Notes where lines that the user named have no maps, or no equivalent widths."""
    products = setup.config.products
    if axes is None or products is None:
        return
    mapped = [line.name for line in axes.lines]
    asked = () if isinstance(products.lines, bool) else named_lines(products.lines)
    unseen = [name for name in asked if name not in mapped]
    if unseen:
        text = f"products.lines: the detector does not see {', '.join(unseen)}: no maps"
        yield Note("lines.not_seen", text, WARNING)
    bare = [line.name for line in axes.lines if not line.has_continuum] if axes.has_continuum else []
    if bare:
        text = f"products.lines: the templates end beside {', '.join(bare)}: no equivalent widths"
        yield Note("lines.no_continuum", text, WARNING)


def _asked(setup: Setup) -> tuple[str, ...]:
    """The lines that the settings ask for: of nebulae all strong ones, of other sources all that they have."""
    products = setup.config.products
    if products is not None and not isinstance(products.lines, bool):
        return named_lines(products.lines)
    found: dict[str, float] = {}
    for plan in setup.sources.values():
        if isinstance(plan.templates, LineTemplates):
            lines = zip(plan.templates.lines, plan.templates.wavelength, strict=True)
            takes_all = not shines_by_photons(plan)
            found |= {name: float(place) for name, place in lines if takes_all or name in STRONG_LINES}
    return tuple(sorted(found, key=found.__getitem__))


def _all_tracks(setup: Setup) -> dict[str, LineTracks]:
    found: dict[str, LineTracks] = {}
    for plan in setup.sources.values():
        if isinstance(plan.templates, LineTemplates):
            every = LineTracks.of(plan.templates, plan.spread)
            for number, name in enumerate(plan.templates.lines):
                found[name] = every.chosen(np.arange(len(every.wavelength)) == number)
    return found


def _line_axes(setup: Setup, places: dict[str, tuple[float, float]]) -> LineAxes:
    """The lines with these wavelengths, at rest and on the detector, and what there is beside them."""
    plans = setup.sources.values()
    found = [spectra for spectra in (spectra_of(setup, plan) for plan in plans) if spectra is not None]
    lines = [
        LineLabel(name, rest, place, bool(found) and all(has_light_beside(spectra, rest) for spectra in found))
        for name, (rest, place) in places.items()
    ]
    return LineAxes(
        lines=tuple(lines),
        redshift=setup.config.observation.redshift,
        has_continuum=bool(found),
        has_photons=any(shines_by_photons(plan) for plan in plans),
        has_dust=any(plan.templates.attenuation is not None for plan in plans),
    )
