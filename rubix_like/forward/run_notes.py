"""Notes of a run: what its settings, tables and particles make of its spectra that the user should know."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import ArrayLike

from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.config.sections.nebular import AGN, NEBULAE
from rubix_like.config.sections.products import LINE_SOURCE
from rubix_like.config.sections.wavelength import FIT_TOLERANCE
from rubix_like.constants import LYMAN_LIMIT
from rubix_like.cube.meta import Counters
from rubix_like.engine.basis import BasisPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.forward.census import Census, log_universe_age
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.forward.stages.scene import relative_attenuation
from rubix_like.physics.cosmology import observed_distance
from rubix_like.physics.plausibility import implausible_galaxy, implausible_mass
from rubix_like.physics.templates import LineTemplates
from rubix_like.runtime.mesh.mesh import own_copy
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import counted, percent

_OLD = 9.0
"""log10 age / yr from which on almost no star is hot enough to shine mostly below the Lyman limit."""

_BLUE = 0.1
"""Share of their light below the Lyman limit, which none of them reaches."""

_BRIGHT = 100.0
"""Lsun per Msun at birth: populations of 1 Gyr and solar metals have 1.5 (bc03-miles) to 1.8 (popstar)."""

_FAR = 0.01
"""Redshift from which on a galaxy's peculiar velocity changes its distance by less than half."""

_NEAR = 1e-3
"""How far beyond the ends of a table of the LSF, relative to the wavelength, bins may lie without a note: those of
MaNGA do by 0.4 Angstrom."""

_FAINTEST_LINE = 0.01
"""1e-20 erg/s/cm2: a hundredth of what the deepest spectra of galaxies show."""

_OPAQUE = 25.0
"""mag: less than 1e-10 of the light is left."""

_MOST_BEYOND = 0.5
"""Share of the stars' mass beyond the SSP library, above which a call of a pipeline says so."""


def run_notes(setup: Setup, sources: tuple[AbstractSource, ...], census: Census | None) -> Iterator[str]:
    """Sentences on the spectra, on settings without effect, on the accuracy of `sources`, on stars and their maps."""
    yield from setup.notes
    for plan in setup.sources.values():
        yield from _source_notes(plan)
    for name, widths in setup.narrower.items():
        yield Note(
            "lsf.several",
            f"the file's LSF table holds the widest line spread; that of source '{name}' is narrower where templates "
            f"of another are coarser than the instrument (FWHM {widths.min():.3g} to {widths.max():.3g} Angstrom as "
            f"painted)",
        )
    yield from _psf_notes(setup)
    lsf = setup.config.instrument.lsf
    if lsf is not None:
        yield from _beyond_notes(setup, lsf.wavelength, "the widths of lsf.wavelength", "the LSF", _NEAR)
    yield from _library_notes(setup)
    yield from _observation_notes(setup)
    yield from _component_notes(setup)
    yield from _screen_notes(setup)
    yield from _unused_notes(setup)
    yield from _noise_notes(setup)
    yield from _line_notes(setup)
    yield from _accuracy_notes(sources, setup.config.engine.tolerance)
    if census is not None:
        yield from implausible_galaxy(census.sums, is_at_rest=setup.config.is_at_rest)
    if census is not None and census.n_older:
        yield Note(
            "galaxy.older_than_universe",
            f"{counted(census.n_older, 'star is', 'stars are')} older than the Universe at redshift "
            f"{setup.config.observation.redshift:g} ({10 ** (log_universe_age(setup.config) - 9):.3g} Gyr); they are "
            f"observed as they are",
            WARNING,
        )
    yield from _product_notes(setup, census)


def _source_notes(plan: SourcePlan) -> Iterator[str]:
    if plan.method == "basis" and plan.motion.note:
        yield plan.motion.note
    templates, spread = plan.templates, plan.spread
    _, effective, instrument = spread.widths(spread.bins.wavelength)
    coarser = spread.settings is not None and effective > instrument * (1 + 1e-6)
    if np.any(coarser):
        share, worst = np.mean(coarser), np.max(effective / np.maximum(instrument, 1e-12))
        remedy = f"; {templates.remedy}" if templates.remedy else ""
        yield Note(
            "lsf.coarse_templates",
            f"{templates.name} is coarser than the instrument in {percent(share)} of the bins (up to {worst:.1f} times "
            f"its LSF); the file's LSF table holds the effective width{remedy}",
            WARNING,
        )
    if not plan.covered.all():
        yield Note(
            "spectra.not_covered",
            f"{percent(np.mean(~plan.covered), 1)} of the detector's bins lie outside {templates.name} and are flagged "
            f"in the mask (bit 1)",
            WARNING,
        )


def _psf_notes(setup: Setup) -> Iterator[Note]:
    """Notes where the detector sees wavelengths beyond those at which its PSF is given, and of coarse images."""
    psf, settings = setup.instrument.psf, setup.config.instrument.psf
    if psf is None or settings is None or not setup.pipeline.blurs:
        return
    if psf.kind != "image":
        yield from _beyond_notes(setup, psf.table_wavelength, "the widths of psf.wavelength", "the PSF")
        return
    yield from _beyond_notes(setup, psf.node_wavelength, f"the planes of {settings.file or 'psf.field'}", "the PSF")
    scale, side = settings.file_scale, setup.config.instrument.pixel_scale
    if scale is not None and scale > side * (1 + FIT_TOLERANCE):
        yield Note(
            "psf.coarse_image",
            f"instrument.psf.file_scale: {scale:g} arcsec, the side of a pixel of {settings.file}, is larger than a "
            f"spaxel ({side:g} arcsec), so that the PSF is coarse; give a finer image, or the scale that it has",
            WARNING,
        )


def _beyond_notes(
    setup: Setup, table: ArrayLike | Sequence[float] | None, what: str, name: str, near: float = 0.0
) -> Iterator[Note]:
    """A note where bins lie beyond the wavelengths (Angstrom) of a table, by more than `near` of them."""
    if table is None:
        return
    first, last = (float(end) for end in np.asarray(table)[[0, -1]])
    wavelength = setup.instrument.bins.wavelength
    beyond = np.mean((wavelength < first * (1 - near)) | (wavelength > last * (1 + near)))
    if beyond:
        yield Note(
            "instrument.beyond_table",
            f"{what} reach from {first:.6g} to {last:.6g} Angstrom: in {percent(beyond)} of the bins, which lie "
            f"beyond, {name} is that of the nearest end; the bins reach from {wavelength[0]:.6g} to "
            f"{wavelength[-1]:.6g}",
            WARNING,
        )


def _library_notes(setup: Setup) -> Iterator[Note]:
    """Notes where old populations of a library shine as none does: its wavelengths or spectra have other units."""
    library = setup.library
    first_old = int(np.searchsorted(library.log_age, _OLD))
    if STAR_SOURCE not in setup.sources or first_old == len(library.log_age):
        return
    spectra = np.asarray(library.spectra)[:, first_old:]  # views: a library may be large
    steps = np.gradient(np.asarray(library.rest_wavelength))
    n_blue = int(np.searchsorted(library.rest_wavelength, LYMAN_LIMIT))
    light, blue = (spectra @ steps).mean(), (spectra[..., :n_blue] @ steps[:n_blue]).mean()
    if light > _BRIGHT:
        yield Note(
            "ssp.too_bright",
            f"populations older than 1 Gyr in the SSP library '{library.name}' have {light:.3g} Lsun per Msun; check "
            f"that its spectra are in Lsun / Angstrom / Msun",
            WARNING,
        )
    if blue > _BLUE * light:
        yield Note(
            "ssp.too_blue",
            f"{percent(blue / light)} of the light of populations older than 1 Gyr in the SSP library '{library.name}' "
            f"is below {LYMAN_LIMIT:g} Angstrom; check that its rest_wavelength is in Angstrom",
            WARNING,
        )


def _observation_notes(setup: Setup) -> Iterator[Note]:
    observation, bins = setup.config.observation, setup.instrument.bins
    if observation.distance is not None and observation.redshift >= _FAR:
        expected = observed_distance(observation.cosmology, observation.redshift, None)
        ratio = observation.distance / expected
        if not 0.5 <= ratio <= 2:
            yield Note(
                "observation.distance",
                f"observation.distance: {observation.distance:g} Mpc is {ratio:.3g} times that of redshift "
                f"{observation.redshift:g} in {observation.cosmology}, {expected:.4g} Mpc; null takes that",
                WARNING,
            )
    last = float(bins.wavelength[-1]) / (1 + observation.redshift)
    if last < LYMAN_LIMIT:
        yield Note(
            "instrument.far_ultraviolet",
            f"instrument.wavelength: the bins end at {last:.4g} Angstrom at rest, where hydrogen absorbs the light of "
            f"stars (below {LYMAN_LIMIT:g}); numbers without a unit are in Angstrom",
            WARNING,
        )


def _component_notes(setup: Setup) -> Iterator[Note]:
    config, deposit = setup.config, setup.painting.deposit
    if not isinstance(config.galaxy, ComponentsReader):
        return
    if config.observation.align not in (None, "none"):
        yield _without_effect(
            f"observation.align: {config.observation.align}",
            "on smooth components, which lie face-on as they are and are turned by their angles",
        )
    for component in config.galaxy.components:
        flux = None if component.lines is None else component.lines.flux
        if flux is not None and flux < _FAINTEST_LINE:
            yield Note(
                "components.line_flux",
                f"galaxy.{component.name}.lines.flux: {flux:g} x 1e-20 erg/s/cm2 is fainter than any line that is "
                f"observed; give the unit, e.g. flux: {flux:g} erg/s/cm2",
                WARNING,
            )
    if deposit != "nearest" and (setup.instrument.psf is None or not setup.pipeline.blurs):
        yield Note(
            "components.no_psf",
            f"without a PSF images are as wide as engine.deposit: {deposit} makes them, which shares each quadrature "
            f"point among the spaxels around it (a point source keeps about half of its light in one); give "
            f"instrument.psf, of which that is taken off, or engine.deposit: nearest, which has no gradients of places",
            WARNING,
        )


def _screen_notes(setup: Setup) -> Iterator[Note]:
    screen = setup.config.screen
    if screen is None or not setup.pipeline.has_cube_stage("dust"):
        return
    bins = setup.instrument.bins
    least = screen.a_v * float(np.min(np.asarray(relative_attenuation(setup, bins.to_vacuum(bins.wavelength)))))
    if least >= _OPAQUE:
        yield Note(
            "dust.opaque",
            f"{_screen_section(setup)}.a_v: {screen.a_v:g} mag dims every bin by {least:.3g} mag or more: no light is "
            f"left; lower it",
            WARNING,
        )


def _screen_section(setup: Setup) -> str:
    return "dust" if setup.config.dust is setup.config.screen else "dust.foreground"


def _without_effect(settings: str, why: str) -> Note:
    return Note("settings.without_effect", f"{settings} has no effect {why}", WARNING)


def _unused_notes(setup: Setup) -> Iterator[Note]:
    """Notes where the pipeline has no stage for a section, or something else keeps settings from being used."""
    config, pipeline = setup.config, setup.pipeline
    listed = {stage.name for stage in pipeline.stages}
    listed |= {NEBULAE} if AGN in listed else set()
    known = {
        "dust": (_screen_section(setup), config.screen),
        LINE_SOURCE: ("lines", config.lines),
        NEBULAE: ("nebular", config.nebular),
    }
    sections = {stage: name for stage, (name, settings) in known.items() if settings is not None}
    sections |= {name: name for name in config.model_extra or {}}
    lacks = f"the pipeline '{pipeline.name}' has no"
    for stage, name in sections.items():
        if stage not in listed:
            text = f"{lacks} stage '{stage}': the section {name} has no effect"
            yield Note("settings.without_effect", text, WARNING)
    if isinstance(config.dust, ParticleDustSettings) and not pipeline.has_field(DUST_COLUMN):
        text = f"{lacks} field '{DUST_COLUMN}': the section dust has no effect"
        yield Note("settings.without_effect", text, WARNING)
    yield from _unused_key_notes(setup)
    wanted = config.engine.oversampling
    if wanted not in ("auto", setup.painting.cells):
        yield _without_effect(
            f"engine.oversampling: {wanted}", "without a PSF, or where stage 'psf' is not the first of the cube"
        )


def _unused_key_notes(setup: Setup) -> Iterator[Note]:
    config, observation, deposit = setup.config, setup.config.observation, setup.painting.deposit
    if deposit != "smoothed":
        why = f"with deposit {deposit}; set engine.deposit: smoothed"
        if _is_changed(config.engine, "smoothing"):
            yield _without_effect("engine.smoothing", why)
        is_counted = getattr(config.galaxy, "smoothing_length", None) == "neighbours"
        if not is_counted and _is_changed(config.galaxy, "neighbours"):
            yield _without_effect("galaxy.neighbours", why)
    turns = [f"observation.{name}" for name in ("inclination", "position_angle") if getattr(observation, name)]
    if turns and not any(stage.name == "orient" for stage in setup.pipeline.scene):
        text = f"{' and '.join(turns)} has no effect: the pipeline '{setup.pipeline.name}' has no stage 'orient'"
        yield Note("settings.without_effect", text, WARNING)
    if config.resolved_align == "none" and _is_changed(observation, "align_radius"):
        yield _without_effect("observation.align_radius", "without an alignment; set observation.align: stars")


def _is_changed(section: Any, key: str) -> bool:
    field = type(section).model_fields.get(key) if section is not None else None
    return field is not None and getattr(section, key) != field.get_default(call_default_factory=True)


def _noise_notes(setup: Setup) -> Iterator[Note]:
    noise = setup.config.noise
    if noise is None or noise.signal_to_noise is None or noise.wavelength is not None:
        return
    if _is_changed(noise, "width"):
        yield _without_effect(f"noise.width: {noise.width:g} Angstrom", "without noise.wavelength, its middle")
    if [source.name for source in setup.pipeline.paint] == [LINE_SOURCE]:
        yield Note(
            "noise.empty_bins",
            f"noise.signal_to_noise: {noise.signal_to_noise:g} is that of the median bin, and most bins of lines alone "
            f"are empty; give noise.wavelength and noise.width around a line",
            WARNING,
        )


def _line_notes(setup: Setup) -> Iterator[Note]:
    for name, section in ((NEBULAE, "nebular"), (AGN, "nebular.agn")):
        if name in setup.sources and not isinstance(setup.sources[name].templates, LineTemplates):
            text = f"{section}: the detector sees no line of the table: its gas shines in the continuum alone"
            yield Note("lines.none_seen", text, WARNING)
    plan = setup.sources.get(LINE_SOURCE)
    if plan is not None and plan.unseen:
        text = f"lines.wavelengths: the detector does not see {', '.join(plan.unseen)}"
        yield Note("lines.not_seen", text, WARNING)


def _accuracy_notes(sources: tuple[AbstractSource, ...], tolerance: float) -> Iterator[Note]:
    """Notes where the error of a spectrum, or of terms of the PSF, is more than the tolerance allows for."""
    for source in sources:
        for name, error in source.painter.report().items():
            if name.endswith("basis_spectrum_error") and error > 1.2 * tolerance:
                yield Note(
                    "engine.inaccurate",
                    f"method basis reaches an rms error of {error:.1e} instead of engine.tolerance, {tolerance:g}; use "
                    f"method direct where that is too much",
                    WARNING,
                )
    for source in sources:
        painter = source.painter
        if isinstance(painter, BasisPainter) and painter.psf_error is not None and not painter.by_terms:
            yield Note(
                "engine.steep_psf",
                f"the PSF changes too much with wavelength to act on coefficients within engine.tolerance, "
                f"{tolerance:g} (it would err by {float(painter.psf_error):.1e} of its peak): every bin's image is "
                f"convolved, which takes longer; a larger engine.tolerance avoids it",
            )


def _product_notes(setup: Setup, census: Census | None) -> Iterator[Note]:
    products, library = setup.config.products, setup.library
    if products is None:
        return
    if STAR_SOURCE not in setup.sources:
        yield Note(
            "products.no_stars",
            "products: the pipeline paints no stars; maps of them, and of their light, show what is not in the cube",
            WARNING,
        )
    if products.losvd is not None and census is not None and census.n_beyond_losvd:
        yield Note(
            "products.losvd_limit",
            f"{census.n_beyond_losvd} of {census.n_stars} stars may be faster (up to {census.fast.speed[0]:.0f} km/s) "
            f"than products.losvd.limit, {products.losvd.limit:g} km/s: their light is in the outermost velocity bins",
            WARNING,
        )
    if census is not None and not census.n_without_mass:
        return
    if library.surviving_fraction is None:
        yield Note(
            "products.mass_at_birth",
            f"the galaxy has no current masses and the SSP library '{library.name}' no surviving fractions: the maps "
            f"of current mass hold the mass at birth",
            WARNING,
        )
    else:
        text = f"maps of current mass: mass at birth times the surviving fraction of '{library.name}'"
        yield Note("products.surviving_mass", text)


def call_notes(counters: Counters | None) -> Iterator[Note]:
    """Sentences on the stars of a call of a pipeline: no galaxy's mass, or most of it beyond the SSP library."""
    if counters is None or isinstance(counters.mass_total, Tracer):
        return
    found: Counters = jax.device_get(own_copy(counters))
    mass = float(found.mass_total)
    yield from implausible_mass(mass)
    for name, beyond, meant in (
        ("ages", found.mass_clamped_age, "log10(age / yr)"),
        ("metallicities", found.mass_clamped_metallicity, "mass fractions (the Sun's is about 0.0134)"),
    ):
        if float(beyond) > _MOST_BEYOND * mass:
            yield Note(
                "ssp.beyond",
                f"{percent(float(beyond) / mass)} of the stars' mass has {name} beyond the SSP library, whose nearest "
                f"is taken: are they {meant}?",
                WARNING,
            )
