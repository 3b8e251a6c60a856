"""What the host works out before a run: sizes, tables, stages, and what the user should know of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import jax
import numpy as np
from astropy.units import Unit
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import ArrayLike

from rubix_like.arguments import named_arguments, plug_in_named, returned
from rubix_like.config import PipelineSettings, RunConfig, StageSettings
from rubix_like.config.plug_ins import (
    CUBE_STAGES,
    FIBRE_STAGES,
    FIELDS,
    PAINT_STAGES,
    PRODUCTS,
    SCENE_STAGES,
    SYSTEMATIC_STAGES,
)
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.run_config import DevicesSettings
from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.config.sections.nebular import AGN, NEBULAE, YOUNG_STARS
from rubix_like.config.sections.products import LINE_SOURCE
from rubix_like.config.sections.wavelength import FIT_TOLERANCE
from rubix_like.constants import LYMAN_LIMIT
from rubix_like.cube.maps import BALMER_LINES, DustAxes, LineAxes, MapLabel, ProductAxes
from rubix_like.cube.meta import Counters
from rubix_like.engine.basis import BasisPainter
from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import FastParticles, Setup, SourcePlan
from rubix_like.engine.smoothing import plan_widths
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError, expect, expect_count
from rubix_like.forward.census import Census, log_universe_age
from rubix_like.forward.fields.field import AbstractField
from rubix_like.forward.products.gas_maps import GasMaps
from rubix_like.forward.products.line_maps import EmissionLines, choose_lines, line_notes
from rubix_like.forward.products.product import AbstractParticleMaps, AbstractProduct, FieldMaps, ParticleMaps
from rubix_like.forward.products.star_maps import StarAttenuation, StarMaps
from rubix_like.forward.resolved import Resolved
from rubix_like.forward.sources.source import AbstractSource, Kind, seen_through_dust
from rubix_like.forward.sources.stars import STAR_SOURCE, StarsSource
from rubix_like.forward.stages.base import AbstractCubeStage, AbstractSceneStage
from rubix_like.forward.stages.scene import Dust, relative_attenuation
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.alignment import Alignment, align
from rubix_like.instrument.field_psf import PSFTerms, find_terms
from rubix_like.instrument.psf import PSFParameters
from rubix_like.physics.cosmology import observed_distance
from rubix_like.physics.plausibility import implausible_galaxy, implausible_mass
from rubix_like.physics.templates import LineTemplates
from rubix_like.runtime.mesh.mesh import DATA_AXIS, WAVE_AXIS, DeviceLayout, check_mesh, make_mesh, own_copy
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import counted, percent

_OLD = 9.0
"""log10 age / yr from which on almost no star is hot enough to shine mostly below the Lyman limit."""

_BLUE = 0.1
"""Share of their light below the Lyman limit, which none of them reaches."""

_BRIGHT = 100.0
"""Lsun per Msun at birth: populations of 1 Gyr and solar metals have 1.5 (bc03-miles) to 1.8 (popstar)."""

_FAR = 0.01
"""Redshift from which on a galaxy's own velocity changes its distance by less than half."""

_NEAR = 1e-3
"""How far beyond the ends of a table of the LSF, relative to the wavelength, bins may lie without a note: those of
MaNGA do by 0.4 Angstrom."""

_FAINTEST_LINE = 0.01
"""1e-20 erg/s/cm2: a hundredth of what the deepest spectra of galaxies show."""

_OPAQUE = 25.0
"""mag: less than 1e-10 of the light is left."""

_MOST_BEYOND = 0.5
"""Share of the stars' mass beyond the SSP library, above which a call of a pipeline says so."""


def mesh_of(devices: DevicesSettings) -> Mesh:
    """The devices that the settings name; ConfigError where there are fewer."""
    return make_mesh(None if devices.data == "all" else devices.data, devices.wave)


def plan_layout(
    devices: DevicesSettings, mesh: Mesh | None, n_wave: int, projected: tuple[tuple[int, int], ...]
) -> DeviceLayout:
    """A run's devices (None: as the settings say) and what each of them holds; ConfigError where that cannot be.

    `projected`: of each source the spaxels that are projected on the detector, and from how many coefficients each.
    Where that takes long, devices share the bins even if all of them get the whole cube in the end.
    """
    used = mesh_of(devices) if mesh is None else mesh
    check_mesh(used)
    sharded = devices.output == "sharded" or (devices.output is None and WAVE_AXIS in used.axis_names)
    n_data = used.shape[DATA_AXIS]
    rates = rates_here()
    alone = sum(rates.projection_seconds(n_spaxel, n_coefficient, n_wave) for n_spaxel, n_coefficient in projected)
    together = sum(rates.gather_seconds(n_spaxel * n_wave) for n_spaxel, _ in projected)
    return DeviceLayout.build(used, n_wave, sharded=sharded, shared=alone * (1 - 1 / n_data) > together)


def plan_products(
    setup: Setup,
    sources: tuple[Any, ...],
    stages: tuple[Any, ...],
    fields: Mapping[str, AbstractField],
    lines: LineAxes | None,
    census: Census | None,
) -> tuple[AbstractProduct, ...]:
    """The products of a run, none without `products`; the pipeline's stage `dust` dims those of light.

    Raises ConfigError for bands that are not known or not covered by the library.
    """
    settings = setup.config.products
    if settings is None:
        return ()
    has_screen = any(isinstance(stage, Dust) for stage in stages)
    fastest = _fastest_star(setup, sources, census)
    found: list[AbstractProduct] = [StarMaps.build(setup, fastest, has_screen=has_screen)]
    if settings.gas:
        found.append(ParticleMaps(GasMaps.build(setup, {}), "the maps of products.gas", "set products.gas: false"))
    if lines is not None:
        vacuum = np.array([line.wavelength for line in lines.lines]) * (1.0 + lines.redshift)
        found.append(
            EmissionLines.build(setup, sources, lines, relative_attenuation(setup, vacuum) if has_screen else None)
        )
    mapped = tuple(MapLabel(name, *field.map) for name, field in fields.items() if field.map is not None)
    if mapped:
        found.append(FieldMaps(mapped))
    if settings.dust:
        found.append(StarAttenuation.build(setup, has_screen=has_screen))
    for entry in settings.extra:
        make = PRODUCTS.find(entry.name).build
        maps = _made(entry, make, (AbstractParticleMaps,), setup, section="products.extra", kind="product")
        product = ParticleMaps(maps, f"product '{entry.name}' ({type(maps).__name__})")
        _check_product(product)
        found.append(product)
    labels = [label.name for product in found for label in product.labels]
    names = [name.upper() + end for name in labels for end in ("", "_TRUE")]  # those of the file's extensions
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"products.extra: expected maps of different names (in capitals, also with _TRUE at the end), got "
            f"{twice[0]} twice; take out one product, or let its labels depend on its options"
        )
    return tuple(found)


def _check_product(product: ParticleMaps) -> None:
    """Raise ConfigError unless a plug-in's product has a kind of particles, and a label for each map, which a FITS file
    can hold."""
    if product.kind not in get_args(Kind):
        kinds = " or ".join(map(repr, get_args(Kind)))
        raise ConfigError(f"{product.who}: `kind` must be {kinds}, got {product.kind!r}")
    call = f"{product.who}: `labels`"
    with plug_in_named(call, product.maps):
        labels = product.maps.labels
    if isinstance(labels, MapLabel):
        raise ConfigError(f"{call}: expected a tuple of MapLabel, got a MapLabel; put a comma after it: ({labels},)")
    if not expect(labels, tuple, call, "a tuple of MapLabel"):
        raise ConfigError(f"{call}: expected a MapLabel for each map, got an empty tuple; see docs/how-to-extend.md")
    for given in labels:
        label = returned(given, MapLabel, call, "a MapLabel for each map")
        if not all(isinstance(word, str) and word.isascii() for word in label) or not label.name.isidentifier():
            raise ConfigError(
                f"{call}: expected a name of letters, digits and _, a unit and a description, in ASCII, got {label}"
            )
        try:
            Unit(label.unit, format="fits")
        except ValueError as error:
            raise ConfigError(f"{call}: expected a unit as FITS spells it ('' for none), got '{label.unit}'") from error


def _fastest_star(setup: Setup, sources: tuple[Any, ...], census: Census | None) -> float:
    """Speed (km/s) of the fastest star; without a census the planned limit."""
    if census is not None:
        return float(census.fast.speed[0])
    painted = [number for number, source in enumerate(sources) if isinstance(source, StarsSource)]
    limits = [plan.velocity_limit for plan in setup.sources.values()]
    return limits[painted[0] if painted else 0]


def product_axes(setup: Setup, products: tuple[AbstractProduct, ...], lines: LineAxes | None) -> ProductAxes | None:
    """What the maps' files need to know of their axes; None where there are no maps."""
    settings = setup.config.products
    if settings is None:
        return None
    stars = next(product for product in products if isinstance(product, StarMaps))
    curves = [product for product in products if isinstance(product, StarAttenuation)]
    return ProductAxes(
        filters=stars.filters,
        band="detector" if settings.band is None else settings.band,
        velocity=None if stars.losvd is None else stars.losvd.velocity,
        fit_particles=0 if settings.losvd is None else settings.losvd.fit_particles,
        fields=tuple(label for product in products for label in product.labels),
        has_gas=settings.gas,
        lines=lines,
        dust=_dust_axes(setup, curves[0], lines) if curves else None,
    )


def _dust_axes(setup: Setup, curve: StarAttenuation, lines: LineAxes | None) -> DustAxes:
    """Axes for maps of dust, by the curve of the section `dust`, be it of the particles or of the screen."""
    places = {} if lines is None else {line.name: line.wavelength for line in lines.lines}
    wavelength = np.asarray(curve.wavelength)
    if any(name not in places for name in BALMER_LINES):
        return DustAxes(wavelength, None)
    both = np.array([places[name] for name in BALMER_LINES])
    attenuation = seen_through_dust(setup.library.templates(), setup).attenuation
    stretch = 1.0 + setup.config.observation.redshift
    relative = relative_attenuation(setup, both * stretch) if attenuation is None else attenuation(both)
    return DustAxes(wavelength, None if relative is None else float(relative[1] - relative[0]))


def products_notes(setup: Setup, census: Census | None) -> tuple[Note, ...]:
    """Says which maps show what is not in the cube, which stars are too fast, and where the mass now comes from."""
    products = setup.config.products
    if products is None:
        return ()
    notes = []
    if STAR_SOURCE not in setup.sources:
        notes.append(
            Note(
                "products.no_stars",
                "products: the pipeline paints no stars; maps of them, and of their light, show what is not in the "
                "cube",
                WARNING,
            )
        )
    if products.losvd is not None and census is not None and census.n_beyond_losvd:
        notes.append(
            Note(
                "products.losvd_limit",
                f"{census.n_beyond_losvd} of {census.n_stars} stars may be faster (up to {census.fast.speed[0]:.0f} "
                f"km/s) than products.losvd.limit, {products.losvd.limit:g} km/s: their light is in the outermost "
                f"velocity bins",
                WARNING,
            )
        )
    if census is not None and not census.n_without_mass:
        return tuple(notes)
    library = setup.library
    if library.surviving_fraction is None:
        notes.append(
            Note(
                "products.mass_at_birth",
                f"the galaxy has no current masses and the SSP library '{library.name}' no surviving fractions: the "
                f"maps of current mass hold the mass at birth",
                WARNING,
            )
        )
    else:
        notes.append(
            Note(
                "products.surviving_mass",
                f"maps of current mass: mass at birth times the surviving fraction of '{library.name}'",
            )
        )
    return tuple(notes)


def run_notes(setup: Setup, sources: tuple[AbstractSource, ...], census: Census | None) -> tuple[str, ...]:
    """Sentences on the spectra, on settings without effect, on the accuracy of `sources` and on the stars."""
    return (
        *setup.notes,
        *(note for plan in setup.sources.values() for note in _source_notes(plan)),
        *_spread_notes(setup),
        *_psf_notes(setup),
        *_lsf_notes(setup),
        *_library_notes(setup),
        *_observation_notes(setup),
        *_component_notes(setup),
        *_screen_notes(setup),
        *_unused_notes(setup),
        *_noise_notes(setup),
        *_line_notes(setup),
        *_accuracy_notes(sources, setup.config),
        *_star_notes(setup, census),
    )


def _source_notes(plan: SourcePlan) -> list[str]:
    """Says so where the velocity range, the widths or the templates limit a source's spectra."""
    notes = [plan.motion.note] if plan.method == "basis" and plan.motion.note else []
    templates, spread = plan.templates, plan.spread
    _, effective, instrument = spread.widths(spread.bins.wavelength)
    coarser = spread.settings is not None and effective > instrument * (1 + 1e-6)
    if np.any(coarser):
        share, worst = np.mean(coarser), np.max(effective / np.maximum(instrument, 1e-12))
        remedy = f"; {templates.remedy}" if templates.remedy else ""
        notes.append(
            Note(
                "lsf.coarse_templates",
                f"{templates.name} is coarser than the instrument in {percent(share)} of the bins (up to {worst:.1f} "
                f"times its LSF); the file's LSF table holds the effective width{remedy}",
                WARNING,
            )
        )
    if not plan.covered.all():
        notes.append(
            Note(
                "spectra.not_covered",
                f"{percent(np.mean(~plan.covered), 1)} of the detector's bins lie outside {templates.name} and are "
                f"flagged in the mask (bit 1)",
                WARNING,
            )
        )
    return notes


def _spread_notes(setup: Setup) -> list[Note]:
    """Says so where sources have different line spreads, of which the file's table holds the widest."""
    return [
        Note(
            "lsf.several",
            f"the file's LSF table holds the widest line spread; that of source '{name}' is narrower where templates "
            f"of another are coarser than the instrument (FWHM {own.min():.3g} to {own.max():.3g} Angstrom as painted)",
        )
        for name, own in setup.narrower.items()
    ]


def _psf_notes(setup: Setup) -> list[Note]:
    """Says so where the detector sees wavelengths beyond those at which its PSF is given, and of coarse images."""
    psf, settings = setup.instrument.psf, setup.config.instrument.psf
    if psf is None or settings is None or not setup.pipeline.blurs:
        return []
    is_image = psf.kind == "image"
    table = psf.node_wavelength if is_image else psf.table_wavelength
    what = f"the planes of {settings.file or 'psf.field'}" if is_image else "the widths of psf.wavelength"
    notes = _beyond_notes(setup, table, what, "the PSF")
    scale, side = getattr(settings, "file_scale", None), setup.config.instrument.pixel_scale
    if is_image and scale is not None and scale > side * (1 + FIT_TOLERANCE):
        notes.append(
            Note(
                "psf.coarse_image",
                f"instrument.psf.file_scale: {scale:g} arcsec, the side of a pixel of {settings.file}, is larger than "
                f"a spaxel ({side:g} arcsec), so that the PSF is coarse; give a finer image, or the scale that it has",
                WARNING,
            )
        )
    return notes


def _lsf_notes(setup: Setup) -> list[Note]:
    """Says so where the detector sees wavelengths beyond those at which its line spread is given."""
    lsf = setup.config.instrument.lsf
    return [] if lsf is None else _beyond_notes(setup, lsf.wavelength, "the widths of lsf.wavelength", "the LSF", _NEAR)


def _beyond_notes(
    setup: Setup, table: ArrayLike | Sequence[float] | None, what: str, name: str, near: float = 0.0
) -> list[Note]:
    """Says so where bins lie beyond the wavelengths (Angstrom) of a table, by more than `near` of them."""
    if table is None:
        return []
    first, last = (float(end) for end in np.asarray(table)[[0, -1]])
    wavelength = setup.instrument.bins.wavelength
    beyond = np.mean((wavelength < first * (1 - near)) | (wavelength > last * (1 + near)))
    if beyond == 0:
        return []
    return [
        Note(
            "instrument.beyond_table",
            f"{what} reach from {first:.6g} to {last:.6g} Angstrom: in {percent(beyond)} of the bins, which lie "
            f"beyond, {name} is that of the nearest end; the bins reach from {wavelength[0]:.6g} to "
            f"{wavelength[-1]:.6g}",
            WARNING,
        )
    ]


def _observation_notes(setup: Setup) -> list[Note]:
    """Says so where a distance is not that of the redshift, and where the detector sees no light of stars at rest."""
    observation, bins = setup.config.observation, setup.instrument.bins
    notes = []
    if observation.distance is not None and observation.redshift >= _FAR:
        expected = observed_distance(observation.cosmology, observation.redshift, None)
        ratio = observation.distance / expected
        if not 0.5 <= ratio <= 2:
            notes.append(
                Note(
                    "observation.distance",
                    f"observation.distance: {observation.distance:g} Mpc is {ratio:.3g} times that of redshift "
                    f"{observation.redshift:g} in {observation.cosmology}, {expected:.4g} Mpc; null takes that",
                    WARNING,
                )
            )
    last = float(bins.wavelength[-1]) / (1 + observation.redshift)
    if last < LYMAN_LIMIT:
        notes.append(
            Note(
                "instrument.far_ultraviolet",
                f"instrument.wavelength: the bins end at {last:.4g} Angstrom at rest, where hydrogen absorbs the "
                f"light of stars (below {LYMAN_LIMIT:g}); numbers without a unit are in Angstrom",
                WARNING,
            )
        )
    return notes


def _component_notes(setup: Setup) -> list[Note]:
    """Says so where smooth components are not aligned, painted wider than they are, or too faint."""
    config, deposit = setup.config, setup.painting.deposit
    if not isinstance(config.galaxy, ComponentsReader):
        return []
    notes = []
    if config.observation.align not in (None, "none"):
        notes.append(
            Note(
                "settings.without_effect",
                f"observation.align: {config.observation.align} has no effect on smooth components, which lie face-on "
                f"as they are and are turned by their angles",
                WARNING,
            )
        )
    gas = {component.name: component.lines for component in config.galaxy.components if component.lines}
    notes += [
        Note(
            "components.line_flux",
            f"galaxy.{name}.lines.flux: {lines.flux:g} x 1e-20 erg/s/cm2 is fainter than any line that is observed; "
            f"give the unit, e.g. flux: {lines.flux:g} erg/s/cm2",
            WARNING,
        )
        for name, lines in gas.items()
        if lines.flux is not None and lines.flux < _FAINTEST_LINE
    ]
    if deposit != "nearest" and (setup.instrument.psf is None or not setup.pipeline.blurs):
        notes.append(
            Note(
                "components.no_psf",
                f"without a PSF images are as wide as engine.deposit: {deposit} makes them, which shares each "
                f"quadrature point among the spaxels around it (a point source keeps about half of its light in one); "
                f"give instrument.psf, of which that is taken off, or engine.deposit: nearest, which has no gradients "
                f"of places",
                WARNING,
            )
        )
    return notes


def _screen_notes(setup: Setup) -> list[Note]:
    """Says so where a screen of dust leaves no light in any bin."""
    screen = setup.config.screen
    if screen is None or not setup.pipeline.has_cube_stage("dust"):
        return []
    bins = setup.instrument.bins
    least = screen.a_v * float(np.min(np.asarray(relative_attenuation(setup, bins.to_vacuum(bins.wavelength)))))
    if least < _OPAQUE:
        return []
    key = "dust" if setup.config.dust is screen else "dust.foreground"
    return [
        Note(
            "dust.opaque",
            f"{key}.a_v: {screen.a_v:g} mag dims every bin by {least:.3g} mag or more: no light is left; lower it",
            WARNING,
        )
    ]


def _unused_notes(setup: Setup) -> list[Note]:
    """Says so where the pipeline has no stage for a section, or no PSF that takes light from cells to spaxels."""
    config, pipeline = setup.config, setup.pipeline
    listed = {stage.name for stage in pipeline.stages}
    listed |= {NEBULAE} if AGN in listed else set()
    screen = "dust" if config.dust is config.screen else "dust.foreground"
    own = {"dust": (screen, config.screen), LINE_SOURCE: ("lines", config.lines), NEBULAE: ("nebular", config.nebular)}
    sections = {stage: name for stage, (name, settings) in own.items() if settings is not None}
    sections |= {name: name for name in config.model_extra or {}}
    notes = [
        Note(
            "settings.without_effect",
            f"the pipeline '{pipeline.name}' has no stage '{stage}': the section {name} has no effect",
            WARNING,
        )
        for stage, name in sections.items()
        if stage not in listed
    ]
    if isinstance(config.dust, ParticleDustSettings) and not pipeline.has_field(DUST_COLUMN):
        notes.append(
            Note(
                "settings.without_effect",
                f"the pipeline '{pipeline.name}' has no field '{DUST_COLUMN}': the section dust has no effect",
                WARNING,
            )
        )
    notes += _without_effect(setup)
    wanted = config.engine.oversampling
    if wanted not in ("auto", setup.painting.cells):
        notes.append(
            Note(
                "settings.without_effect",
                f"engine.oversampling: {wanted} has no effect without a PSF, or where stage 'psf' is not the first of "
                f"the cube",
                WARNING,
            )
        )
    return notes


def _without_effect(setup: Setup) -> list[Note]:
    """Says so where settings are not their defaults, but something else keeps them from being used."""
    config, observation, deposit = setup.config, setup.config.observation, setup.painting.deposit
    notes = []
    if deposit != "smoothed":
        unused = ["engine.smoothing"] if _is_changed(config.engine, "smoothing") else []
        if getattr(config.galaxy, "smoothing_length", None) != "neighbours" and _is_changed(
            config.galaxy, "neighbours"
        ):
            unused.append("galaxy.neighbours")
        notes += [
            Note(
                "settings.without_effect",
                f"{key} has no effect with deposit {deposit}; set engine.deposit: smoothed",
                WARNING,
            )
            for key in unused
        ]
    turns = [f"observation.{name}" for name in ("inclination", "position_angle") if getattr(observation, name)]
    if turns and not any(stage.name == "orient" for stage in setup.pipeline.scene):
        notes.append(
            Note(
                "settings.without_effect",
                f"{' and '.join(turns)} has no effect: the pipeline '{setup.pipeline.name}' has no stage 'orient'",
                WARNING,
            )
        )
    if config.resolved_align == "none" and _is_changed(observation, "align_radius"):
        notes.append(
            Note(
                "settings.without_effect",
                "observation.align_radius has no effect without an alignment; set observation.align: stars",
                WARNING,
            )
        )
    return notes


def _is_changed(section: Any, key: str) -> bool:
    """Whether settings have a key, with another value than its default."""
    field = type(section).model_fields.get(key) if section is not None else None
    return field is not None and getattr(section, key) != field.get_default(call_default_factory=True)


def _library_notes(setup: Setup) -> list[Note]:
    """Says so where old populations of a library shine as none does: its wavelengths or spectra have other units."""
    library = setup.library
    first_old = int(np.searchsorted(library.log_age, _OLD))
    if STAR_SOURCE not in setup.sources or first_old == len(library.log_age):
        return []
    notes = []
    spectra = np.asarray(library.spectra)[:, first_old:]  # views: a library may be large
    steps = np.gradient(np.asarray(library.rest_wavelength))
    n_blue = int(np.searchsorted(library.rest_wavelength, LYMAN_LIMIT))
    light, blue = (spectra @ steps).mean(), (spectra[..., :n_blue] @ steps[:n_blue]).mean()
    if light > _BRIGHT:
        notes.append(
            Note(
                "ssp.too_bright",
                f"populations older than 1 Gyr in the SSP library '{library.name}' have {light:.3g} Lsun per Msun; "
                f"check that its spectra are in Lsun / Angstrom / Msun",
                WARNING,
            )
        )
    if blue > _BLUE * light:
        notes.append(
            Note(
                "ssp.too_blue",
                f"{percent(blue / light)} of the light of populations older than 1 Gyr in the SSP library "
                f"'{library.name}' is below {LYMAN_LIMIT:g} Angstrom; check that its rest_wavelength is in Angstrom",
                WARNING,
            )
        )
    return notes


def _noise_notes(setup: Setup) -> list[Note]:
    """Says so where a width has no window, and where a target is the median over bins of which most hold no line."""
    noise, painted = setup.config.noise, [source.name for source in setup.pipeline.paint]
    if noise is None or noise.signal_to_noise is None or noise.wavelength is not None:
        return []
    notes = []
    if _is_changed(noise, "width"):
        notes.append(
            Note(
                "settings.without_effect",
                f"noise.width: {noise.width:g} Angstrom has no effect without noise.wavelength, its middle",
                WARNING,
            )
        )
    if painted == [LINE_SOURCE]:
        notes.append(
            Note(
                "noise.empty_bins",
                f"noise.signal_to_noise: {noise.signal_to_noise:g} is that of the median bin, and most bins of lines "
                f"alone are empty; give noise.wavelength and noise.width around a line",
                WARNING,
            )
        )
    return notes


def _line_notes(setup: Setup) -> list[Note]:
    """Says so where the detector does not see some of the lines that the user named, or none of a table."""
    notes = [
        Note(
            "lines.none_seen",
            f"{section}: the detector sees no line of the table: its gas shines in the continuum alone",
            WARNING,
        )
        for name, section in ((NEBULAE, "nebular"), (AGN, "nebular.agn"))
        if name in setup.sources and not isinstance(setup.sources[name].templates, LineTemplates)
    ]
    plan = setup.sources.get(LINE_SOURCE)
    if plan is not None and plan.unseen:
        notes.append(
            Note("lines.not_seen", f"lines.wavelengths: the detector does not see {', '.join(plan.unseen)}", WARNING)
        )
    return notes


def _accuracy_notes(sources: tuple[AbstractSource, ...], config: RunConfig) -> list[Note]:
    """Says so where the error of a spectrum, or of terms of the PSF, is more than the tolerance allows for."""
    tolerance = config.engine.tolerance
    reports = [report for source in sources for report in source.painter.report().items()]
    errors = [error for name, error in reports if name.endswith("basis_spectrum_error")]
    painters = [source.painter for source in sources if isinstance(source.painter, BasisPainter)]
    refused = [own.psf_error for own in painters if own.psf_error is not None and not own.by_terms]
    inaccurate = [
        Note(
            "engine.inaccurate",
            f"method basis reaches an rms error of {error:.1e} instead of engine.tolerance, {tolerance:g}; use method "
            f"direct where that is too much",
            WARNING,
        )
        for error in errors
        if error > 1.2 * tolerance
    ]
    steep = [
        Note(
            "engine.steep_psf",
            f"the PSF changes too much with wavelength to act on coefficients within engine.tolerance, {tolerance:g} "
            f"(it would err by {float(error):.1e} of its peak): every bin's image is convolved, which takes longer; a "
            f"larger engine.tolerance avoids it",
        )
        for error in refused
    ]
    return inaccurate + steep


def _star_notes(setup: Setup, census: Census | None) -> tuple[Note, ...]:
    """Says so where the particles are no galaxy's (but for stars at rest on purpose), or stars are too old."""
    if census is None:
        return ()
    found = implausible_galaxy(census.sums, is_at_rest=setup.config.is_at_rest)
    return (*found, *_age_notes(setup, census))


def _age_notes(setup: Setup, census: Census) -> tuple[Note, ...]:
    """Says so when stars are older than the Universe at the redshift where the galaxy is put."""
    if not census.n_older:
        return ()
    return (
        Note(
            "galaxy.older_than_universe",
            f"{counted(census.n_older, 'star is', 'stars are')} older than the Universe at redshift "
            f"{setup.config.observation.redshift:g} ({10 ** (log_universe_age(setup.config) - 9):.3g} Gyr); they are "
            f"observed as they are",
            WARNING,
        ),
    )


@dataclass(frozen=True)
class Planned:
    """A run before it is compiled; `lines`: the emission lines that have maps; `notes` are sentences for the user."""

    plan: Plan
    tables: Tables
    setup: Setup
    notes: tuple[str, ...]
    alignment: Alignment | None
    lines: LineAxes | None

    @property
    def projected(self) -> tuple[tuple[int, int], ...]:
        """Of each source the spaxels that are projected onto the detector, and from how many coefficients each."""
        n_spaxel = self.tables.grid.footprint.n_element
        return tuple((n_spaxel, source.painter.n_coefficient) for source in self.tables.paint)


def plan_run(config: RunConfig, resolved: Resolved, census: Census | None) -> Planned:
    """Sizes, tables and stages of a run, for the galaxy of a census if any; ConfigError for what cannot be observed."""
    if census is None and config.resolved_align != "none":
        raise ConfigError(
            f"observation.align: expected 'none' for a pipeline that is built without a galaxy, got "
            f"'{config.resolved_align}'; pass the galaxy to Pipeline.from_config, or set 'align: none'"
        )
    setup = make_setup(config, resolved, census)
    alignment, pipeline = setup.alignment, resolved.pipeline
    if config.noise is not None and not pipeline.has_cube_stage("noise"):
        raise ConfigError(
            f"noise: expected a pipeline with the stage 'noise', got '{pipeline.name}'; add it to the pipeline's cube "
            f"list, or set noise: null"
        )
    paint = tuple(
        _made(source, PAINT_STAGES.find(source.name).build, (AbstractSource,), setup, setup.sources[source.name])
        for source in setup.pipeline.paint
    )
    for entry, source in zip(setup.pipeline.paint, paint, strict=True):
        returned(source.painter, AbstractPainter, f"source '{entry.name}': `painter`", "a painter (build_painter)")
    lists = (
        (FIELDS.find, pipeline.fields, (AbstractField, type(None))),
        (SCENE_STAGES.find, pipeline.scene, (AbstractSceneStage,)),
        (_cube_stage, pipeline.cube, (AbstractCubeStage,)),
    )
    painted = (PAINT_STAGES, pipeline.paint)
    named = ((FIELDS, pipeline.fields), (SCENE_STAGES, pipeline.scene), painted, (CUBE_STAGES, pipeline.cube))
    hidden = [note for registry, stages in named for note in registry.hidden(stage.name for stage in stages)]
    listed, scene, cube = (
        tuple(_made(stage, find(stage.name).build, kind, setup) for stage in stages) for find, stages, kind in lists
    )
    fields = {own.name: field for own, field in zip(pipeline.fields, listed, strict=True) if field is not None}
    _check_fields(pipeline, fields, scene, paint, cube)
    margin = _margin(cube, pipeline.cube)
    lines = choose_lines(setup)
    deposit, cells = setup.painting
    beyond = 0 if setup.widths is None else setup.widths.reach
    painted = setup.instrument.footprint.painted(margin, cells).painted(beyond)
    grid = SpaxelGrid(painted, deposit, setup.widths)
    tables = Tables(
        alignment=None if alignment is None else alignment.rotation,
        arcsec_per_kpc=np.asarray(resolved.arcsec_per_kpc),
        footprint=setup.instrument.footprint,
        grid=grid,
        scene=scene,
        paint=paint,
        cube=cube,
        kernel=build_kernel(config.engine.kernel),
        products=plan_products(setup, paint, cube, fields, lines, census),
        fields=tuple(field.on_grid(grid) for field in fields.values()),
        scene_names=tuple(stage.name for stage in pipeline.scene),
        cube_names=tuple(stage.name for stage in pipeline.cube),
    )
    notes = (
        *(() if alignment is None else alignment.notes),
        *run_notes(setup, paint, census),
        *products_notes(setup, census),
        *line_notes(setup, lines),
        *hidden,
    )
    return Planned(_plan(setup, margin, tuple(fields)), tables, setup, notes, alignment, lines)


def _plan(setup: Setup, margin: int, fields: tuple[str, ...]) -> Plan:
    """The sizes and switches; `margin` in spaxels, without what wide stars need beyond; `fields`: those with a use."""
    engine, instrument, cells = setup.config.engine, setup.instrument, setup.painting.cells
    return Plan(
        sources=tuple(setup.sources),
        method=", ".join(dict.fromkeys(plan.method for plan in setup.sources.values())),
        deposit=setup.painting.deposit,
        dtype=engine.precision,
        margin=margin + (0 if setup.widths is None else -(-setup.widths.reach // cells)),
        cells=cells,
        n_wave=instrument.bins.n_wave,
        n_fibre=0 if instrument.fibres is None else len(instrument.fibres),
        chunk=rates_here().chunk if engine.chunk == "auto" else engine.chunk,
        fields=fields,
        scene=tuple(stage.name for stage in setup.pipeline.scene),
        cube=tuple(stage.name for stage in setup.pipeline.cube),
    )


def _check_fields(
    pipeline: PipelineSettings,
    made: Mapping[str, AbstractField],
    scene: tuple[Any, ...],
    paint: tuple[Any, ...],
    cube: tuple[Any, ...],
) -> None:
    """Raise ConfigError for a field that is listed twice, one that is read but missing or empty, or read too early, and
    for one whose map has no unit and description."""
    for name, field in made.items():
        if field.map is not None:
            returned(
                field.map, [str, str], f"field '{name}': `map`", 'a unit and a description, ("", "number of stars")'
            )
    names = [field.name for field in pipeline.fields]
    if len(set(names)) < len(names):
        raise ConfigError(f"pipeline.fields: expected each field once, got {', '.join(names)}")
    for key, stages in (("scene", pipeline.scene), ("cube", pipeline.cube)):
        twice = [stage.name for stage in stages if stages.count(stage) > 1]
        if twice:
            raise ConfigError(f"pipeline.{key}: expected each stage once, got '{twice[0]}' twice; take out one of them")
    for entry, stage in zip(pipeline.stages, (*scene, *paint, *cube), strict=True):
        for name in expect(
            stage.reads, (tuple, list), f"stage '{entry.name}': reads", 'names in brackets, e.g. ("dust_column",)'
        ):
            if name not in names:
                raise ConfigError(
                    f"pipeline.fields: expected '{name}' (stage '{entry.name}' reads it), got "
                    f"{', '.join(names) or 'none'}; add it to the pipeline's fields"
                )
            if name not in made:
                raise ConfigError(
                    f"pipeline.fields: expected a '{name}' that holds something (stage '{entry.name}' reads it), got "
                    f"one that this run leaves empty; give the section that it needs, or take out the stage"
                )
    reads = [bool(stage.reads) for stage in scene]
    for number in range(1, len(scene)):
        if reads[number - 1] and not reads[number]:
            early, late = pipeline.scene[number - 1].name, pipeline.scene[number].name
            raise ConfigError(
                f"pipeline.scene: expected '{late}' before '{early}' (which reads fields: they are summed over the "
                f"scene of all stages that read none), got the other order; swap them"
            )


@named_arguments
def make_setup(config: RunConfig, resolved: Resolved, census: Census | None) -> Setup:
    """The objects that stages may look at, the plans of the pipeline's sources among them; raises ConfigError for what
    cannot be."""
    resolved.checked_for(config)
    lengths = None if census is None else census.all_lengths
    pipeline, scale, cells = resolved.pipeline, resolved.arcsec_per_kpc, resolved.painting.cells
    by, radius = config.resolved_align, config.observation.align_radius
    widths, width_note = plan_widths(config.engine, config.instrument, pipeline, lengths, scale, cells)
    shared = Setup(
        config=config,
        pipeline=pipeline,
        library=resolved.library,
        instrument=resolved.instrument,
        luminosity_distance=resolved.distance,
        arcsec_per_kpc=scale,
        widths=widths,
        painting=resolved.painting,
        particles={} if census is None else _motions(census),
        notes=tuple(note for note in (resolved.deposit.note, width_note) if note),
        deposit_reason=resolved.deposit.reason,
        psf_terms=_psf_terms(config, resolved),
        alignment=None if census is None or by == "none" else align(by, radius, census.sample),
    )
    return replace(shared, sources=_source_plans(shared, resolved.velocity_steps))


def _psf_terms(config: RunConfig, resolved: Resolved) -> PSFTerms | None:
    """The terms of a PSF that follows wavelength, where it acts before all other stages of the cube."""
    psf, settings = resolved.instrument.psf, config.instrument.psf
    if psf is None or psf.nodes is None or settings is None or not resolved.pipeline.blurs_first:
        return None
    if config.instrument.is_refracted:
        return None
    widths = {name: np.asarray(value) for name, value in settings.numbers().items()}
    return find_terms(resolved.instrument.psf_field or psf, PSFParameters(**widths))


def _motions(census: Census) -> dict[str, FastParticles]:
    """The motions of the particles of each kind, where they are known."""
    found = {"stars": census.fast, "gas": census.gas, YOUNG_STARS: census.young}
    return {kind: fast if fast.number else FastParticles.at_rest() for kind, fast in found.items() if fast is not None}


def _source_plans(setup: Setup, steps: Mapping[str, float]) -> dict[str, SourcePlan]:
    """The plan of each source by name; raises ConfigError where one is painted twice."""
    names = [source.name for source in setup.pipeline.paint]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"pipeline.paint: expected each source once (its light would be counted twice), got {', '.join(names)}"
        )
    plans = {
        source.name: _made(source, PAINT_STAGES.find(source.name).plan, (SourcePlan,), setup)
        for source in setup.pipeline.paint
    }
    return {name: replace(plan, step=steps.get(name)) for name, plan in plans.items()}


def _cube_stage(name: str) -> Any:
    """A stage on the cube, those that only instruments and systematic errors bring among them."""
    return next((stages for stages in (FIBRE_STAGES, SYSTEMATIC_STAGES) if name in stages), CUBE_STAGES).find(name)


def _made(
    stage: StageSettings,
    make: Callable[..., Any],
    kinds: tuple[type, ...],
    *planned: Setup | SourcePlan,
    section: str = "pipeline",
    kind: str = "stage",
) -> Any:
    """What a stage or product makes of its options and of what is planned, of these kinds; raises ConfigError for
    options of another kind, and where it makes something else."""
    who = f"{kind} '{stage.name}'"
    call = f"{who}: `{'plan' if SourcePlan in kinds else 'build'}`"
    with plug_in_named(call, make):
        made = _called(stage, make, planned, f"{section}: {who}")
    expected = " or ".join(kind.__name__.replace("NoneType", "None") for kind in kinds)
    for path, leaf in jax.tree_util.tree_leaves_with_path(made):
        if isinstance(leaf, str):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ConfigError(
                f"{who}: {name}: expected a number, got {leaf!r}; check the {kind}'s options, or in its "
                f"class mark a field of text as static (eqx.field(static=True))"
            )
    return returned(made, kinds, call, f"an instance of {expected}")


def _called(stage: StageSettings, make: Callable[..., Any], planned: tuple[Any, ...], place: str) -> Any:
    """The result of a plug-in's `build` or `plan`; ConfigError says which methods its class lacks, and which of its
    options is a setting of its section."""
    member = getattr(make, "__self__", None)
    lacking = sorted({*getattr(member, "__abstractmethods__", ()), *getattr(member, "__abstractvars__", ())})
    names = ", ".join(f"`{name}`" for name in lacking)
    absent = ConfigError(
        f"{place}: expected {names} in the class {getattr(member, '__name__', member)}, got none; define them "
        f"(docs/how-to-extend.md)"
    )
    if getattr(make, "__name__", "") in lacking:
        raise absent
    try:
        return make(*planned, dict(stage.options))
    except TypeError as error:
        if lacking and "abstract" in str(error):
            raise absent from error
        raise ConfigError(f"{place} cannot be built from {dict(stage.options)}: {error}") from error
    except ConfigError as error:
        keys = getattr(getattr(member, "section_type", None), "model_fields", {})
        moved = [key for key in stage.options if key in keys and f"no option '{key}'" in str(error)]
        if not moved:
            raise
        raise ConfigError(f"{error}; `{moved[0]}` is a setting of the section `{stage.name}`") from error


def _margin(stages: tuple[AbstractCubeStage, ...], settings: tuple[StageSettings, ...]) -> int:
    """Spaxels to paint beyond the field; stages that need them come before those that do not."""
    margins = [stage.margin for stage in stages]
    for margin, stage in zip(margins, settings, strict=True):
        expect_count(margin, f"stage '{stage.name}': margin", 0)
    last = max((number for number, margin in enumerate(margins) if margin), default=-1)
    for number in range(last):
        if margins[number] == 0:
            raise ConfigError(
                f"pipeline.cube: expected '{settings[last].name}' before '{settings[number].name}' (it needs light "
                f"from outside the field), got the other order; swap them"
            )
    return sum(margins)


def call_notes(counters: Counters | None) -> tuple[Note, ...]:
    """Sentences on the stars of a call of a pipeline: no galaxy's mass, or most of it beyond the SSP library."""
    if counters is None or isinstance(counters.mass_total, Tracer):
        return ()
    found: Counters = jax.device_get(own_copy(counters))
    mass = float(found.mass_total)
    notes = [*implausible_mass(mass)]
    for name, beyond, meant in (
        ("ages", found.mass_clamped_age, "log10(age / yr)"),
        ("metallicities", found.mass_clamped_metallicity, "mass fractions (the Sun's is about 0.0134)"),
    ):
        if float(beyond) > _MOST_BEYOND * mass:
            notes.append(
                Note(
                    "ssp.beyond",
                    f"{percent(float(beyond) / mass)} of the stars' mass has {name} beyond the SSP library, whose "
                    f"nearest is taken: are they {meant}?",
                    WARNING,
                )
            )
    return tuple(notes)
