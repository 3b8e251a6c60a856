"""What the host works out for the products of a run: the tables for their sums, their axes, notes for the user."""

import dataclasses
from typing import Any

import numpy as np

from rubix_like.cube.maps import BALMER_LINES, DustAxes, LineAxes, MapLabel, ProductAxes
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.setup import Setup
from rubix_like.engine.spectra.attenuation import factored_dust
from rubix_like.forward.census import Census
from rubix_like.forward.products.line_sums import LineTables
from rubix_like.forward.products.sums import AttenuationTables, GasTables, ProductTables
from rubix_like.forward.sources.dust_in_front import DustInFront, seen_through_dust
from rubix_like.forward.sources.stars import STAR_SOURCE, StarsSource
from rubix_like.forward.stages.scene import Dust, relative_attenuation
from rubix_like.forward.tables import Plan, Tables
from rubix_like.physics.templates import layers_of

_DUST_ERROR = 1e-4
"""Largest rms error of stars' own dust over the bands, relative to its mean."""


def plan_products(
    setup: Setup, sources: tuple[Any, ...], stages: tuple[Any, ...], census: Census | None
) -> ProductTables:
    """Tables for the sums over the stars, painted or not, behind the screen of the pipeline's stage `dust`.

    Velocities reach to the fastest star, or without a census to the planned limit. Raises ConfigError for bands that
    are not known or not covered by the library.
    """
    painted = (number for number, source in enumerate(sources) if isinstance(source, StarsSource))
    reader = next(painted, len(sources))
    limits = [plan.velocity_limit for plan in setup.sources.values()]
    fastest = limits[reader % len(limits)] if census is None else float(census.fast.speed[0])
    tables = ProductTables.build(setup, reader, fastest)
    screen = relative_attenuation(setup, np.asarray(tables.bands.wavelength)) if _has_screen(stages) else None
    return _behind_dust(dataclasses.replace(tables, screen=screen, has_dust=_has_dust_maps(setup)), setup)


def _has_screen(stages: tuple[Any, ...]) -> bool:
    return any(isinstance(stage, Dust) for stage in stages)


def _has_dust_maps(setup: Setup) -> bool:
    return setup.config.products is not None and setup.config.products.dust


def _behind_dust(tables: ProductTables, setup: Setup) -> ProductTables:
    """The tables for stars that are each seen through dust of their own, where the run has such dust."""
    templates = seen_through_dust(setup.library.templates(), setup)
    layers, largest = layers_of(templates), templates.axes.largest_a_v
    if layers is None or largest is None:
        return tables
    wavelength = np.asarray(tables.bands.wavelength) / (1.0 + setup.config.observation.redshift)
    dust = factored_dust(layers(wavelength), float(np.asarray(largest)), _DUST_ERROR)
    return dataclasses.replace(
        tables, axes=templates.axes, in_front=DustInFront.of(setup), dust=dust.factors, dimmed=dust.parts
    )


def plan_attenuation(setup: Setup, stages: tuple[Any, ...]) -> AttenuationTables | None:
    """Tables for the attenuation curve of the stars; None where the run makes no maps of dust."""
    if not _has_dust_maps(setup):
        return None
    templates = seen_through_dust(setup.library.templates(), setup)
    return AttenuationTables.build(setup, templates, has_screen=_has_screen(stages))


def plan_gas(setup: Setup) -> GasTables | None:
    """Tables for the sums over gas; None where the run makes no maps of it."""
    products = setup.config.products
    return GasTables(build_kernel(setup.config.engine.kernel)) if products is not None and products.gas else None


def plan_line_maps(
    setup: Setup, sources: tuple[Any, ...], stages: tuple[Any, ...], axes: LineAxes | None
) -> LineTables | None:
    """Tables for the sums over these lines, behind the screen of the stage `dust`; None where there are none."""
    if axes is None:
        return None
    vacuum = np.array([line.wavelength for line in axes.lines]) * (1.0 + axes.redshift)
    screen = relative_attenuation(setup, vacuum) if _has_screen(stages) else None
    return LineTables.build(setup, sources, axes, screen)


def product_axes(setup: Setup, plan: Plan, run_tables: Tables, lines: LineAxes | None) -> ProductAxes | None:
    """What the maps' files need to know of their axes; None where there are no maps."""
    settings, tables = setup.config.products, run_tables.products
    if tables is None or settings is None:
        return None
    losvd = settings.losvd
    mapped = [(name, field.map) for name, field in zip(plan.fields, run_tables.fields, strict=True)]
    return ProductAxes(
        filters=tables.filters,
        band="detector" if settings.band is None else settings.band,
        velocity=None if tables.losvd is None else tables.losvd.velocity,
        fit_particles=0 if losvd is None else losvd.fit_particles,
        fields=tuple(MapLabel(name, *words) for name, words in mapped if words is not None),
        has_gas=run_tables.gas is not None,
        lines=lines,
        dust=_dust_axes(setup, run_tables, lines),
    )


def _dust_axes(setup: Setup, tables: Tables, lines: LineAxes | None) -> DustAxes | None:
    """What maps of dust need; by the curve of the section `dust`, be it of the particles or of the screen."""
    if tables.attenuation is None:
        return None
    places = {} if lines is None else {line.name: line.wavelength for line in lines.lines}
    wavelength = np.asarray(tables.attenuation.wavelength)
    if any(name not in places for name in BALMER_LINES):
        return DustAxes(wavelength, None)
    both = np.array([places[name] for name in BALMER_LINES])
    curve = seen_through_dust(setup.library.templates(), setup).attenuation
    stretch = 1.0 + setup.config.observation.redshift
    relative = relative_attenuation(setup, both * stretch) if curve is None else curve(both)
    return DustAxes(wavelength, None if relative is None else float(relative[1] - relative[0]))


def products_notes(setup: Setup, census: Census | None) -> tuple[str, ...]:
    """Says which maps show what is not in the cube, which stars are too fast, and where the mass now comes from."""
    products = setup.config.products
    if products is None:
        return ()
    notes = []
    if STAR_SOURCE not in setup.sources:
        notes.append(
            "products: the pipeline paints no stars; maps of them, and of their light, show what is not in the cube"
        )
    if products.losvd is not None and census is not None and census.n_beyond_losvd:
        notes.append(
            f"{census.n_beyond_losvd} of {census.n_stars} stars may be faster (up to {census.fast.speed[0]:.0f} km/s) "
            f"than products.losvd.limit, {products.losvd.limit:g} km/s: their light is in the outermost velocity bins"
        )
    if census is not None and not census.n_without_mass:
        return tuple(notes)
    library = setup.library
    if library.surviving_fraction is None:
        notes.append(
            f"the galaxy has no current masses and the SSP library '{library.name}' no surviving fractions: the maps "
            f"of current mass hold the mass at birth"
        )
    else:
        notes.append(f"maps of current mass: mass at birth times the surviving fraction of '{library.name}'")
    return tuple(notes)
