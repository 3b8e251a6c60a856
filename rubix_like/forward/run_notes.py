"""What the user should know of a planned run: what has no effect, what is less accurate, what is no galaxy's."""

import jax
import numpy as np
from jax.core import Tracer

from rubix_like.config import RunConfig
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.config.sections.lines import LINE_SOURCE
from rubix_like.config.sections.nebular import AGN, NEBULAE
from rubix_like.cube.meta import Counters
from rubix_like.engine.basis import BasisPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.forward.census import Census, log_universe_age
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.physics.plausibility import implausible_galaxy, implausible_mass
from rubix_like.physics.templates import LineTemplates
from rubix_like.runtime.mesh.placement import own_copy
from rubix_like.runtime.words import counted, percent

_MOST_BEYOND = 0.5
"""Share of the stars' mass beyond the SSP library, above which a call of a pipeline says so."""


def run_notes(setup: Setup, sources: tuple[AbstractSource, ...], census: Census | None) -> tuple[str, ...]:
    """Sentences on the spectra, on settings without effect, on the accuracy of `sources` and on the stars."""
    return (
        *setup.notes,
        *(note for plan in setup.sources.values() for note in _source_notes(plan)),
        *_spread_notes(setup),
        *_psf_notes(setup),
        *_component_notes(setup),
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
            f"{templates.name} is coarser than the instrument in {percent(share)} of the bins (up to {worst:.1f} times "
            f"its LSF); the file's LSF table holds the effective width{remedy}"
        )
    if not plan.covered.all():
        notes.append(
            f"{percent(np.mean(~plan.covered), 1)} of the detector's bins lie outside {templates.name} and are flagged "
            f"in the mask (bit 1)"
        )
    return notes


def _spread_notes(setup: Setup) -> list[str]:
    """Says so where sources have different line spreads, of which the file's table holds the widest."""
    return [
        f"the file's LSF table holds the widest line spread; that of source '{name}' is narrower where templates of "
        f"another are coarser than the instrument (FWHM {own.min():.3g} to {own.max():.3g} Angstrom as painted)"
        for name, own in setup.narrower.items()
    ]


def _psf_notes(setup: Setup) -> list[str]:
    """Says so where the detector sees wavelengths beyond those at which its PSF is given."""
    psf, settings = setup.instrument.psf, setup.config.instrument.psf
    if psf is None or settings is None or not setup.pipeline.blurs:
        return []
    is_image = psf.kind == "image"
    table = psf.node_wavelength if is_image else psf.table_wavelength
    if table is None:
        return []
    first, last = (float(end) for end in np.asarray(table)[[0, -1]])
    wavelength = setup.instrument.bins.wavelength
    beyond = np.mean((wavelength < first) | (wavelength > last))
    if beyond == 0:
        return []
    what = f"the planes of {settings.file or 'psf.field'}" if is_image else "the widths of psf.wavelength"
    return [
        f"{what} reach from {first:.6g} to {last:.6g} Angstrom: in {percent(beyond)} of the bins, which lie beyond, "
        f"the PSF is that of the nearest end; the bins reach from {wavelength[0]:.6g} to {wavelength[-1]:.6g}"
    ]


def _component_notes(setup: Setup) -> list[str]:
    """Says so where smooth components are not aligned, or painted wider than they are."""
    config, deposit = setup.config, setup.painting.deposit
    if not isinstance(config.galaxy, ComponentsReader):
        return []
    notes = []
    if config.observation.align not in (None, "none"):
        notes.append(
            f"observation.align: {config.observation.align} has no effect on smooth components, which lie face-on as "
            f"they are and are turned by their angles"
        )
    if deposit != "nearest" and (setup.instrument.psf is None or not setup.pipeline.blurs):
        notes.append(
            f"without a PSF images are as wide as engine.deposit: {deposit} makes them, which shares each quadrature "
            f"point among the spaxels around it (a point source keeps about half of its light in one); give "
            f"instrument.psf, of which that is taken off, or engine.deposit: nearest, which has no gradients of places"
        )
    return notes


def _unused_notes(setup: Setup) -> list[str]:
    """Says so where the pipeline has no stage for a section, or no PSF that takes light from cells to spaxels."""
    config, pipeline = setup.config, setup.pipeline
    listed = {stage.name for stage in pipeline.stages}
    listed |= {NEBULAE} if AGN in listed else set()
    screen = "dust" if config.dust is config.screen else "dust.foreground"
    own = {"dust": (screen, config.screen), LINE_SOURCE: ("lines", config.lines), NEBULAE: ("nebular", config.nebular)}
    sections = {stage: name for stage, (name, settings) in own.items() if settings is not None}
    sections |= {name: name for name in config.model_extra or {}}
    notes = [
        f"the pipeline '{pipeline.name}' has no stage '{stage}': the section {name} has no effect"
        for stage, name in sections.items()
        if stage not in listed
    ]
    if isinstance(config.dust, ParticleDustSettings) and not pipeline.has_field(DUST_COLUMN):
        notes.append(f"the pipeline '{pipeline.name}' has no field '{DUST_COLUMN}': the section dust has no effect")
    wanted = config.engine.oversampling
    if wanted not in ("auto", setup.painting.cells):
        notes.append(
            f"engine.oversampling: {wanted} has no effect without a PSF, or where stage 'psf' is not the first of the "
            f"cube"
        )
    return notes


def _noise_notes(setup: Setup) -> list[str]:
    """Says so where a target is the median over bins of which most hold no line."""
    noise, painted = setup.config.noise, [source.name for source in setup.pipeline.paint]
    if noise is None or noise.signal_to_noise is None or noise.wavelength is not None or painted != [LINE_SOURCE]:
        return []
    return [
        f"noise.signal_to_noise: {noise.signal_to_noise:g} is that of the median bin, and most bins of lines alone are "
        f"empty; give noise.wavelength and noise.width around a line"
    ]


def _line_notes(setup: Setup) -> list[str]:
    """Says so where the detector does not see some of the lines that the user named, or none of a table."""
    notes = [
        f"{section}: the detector sees no line of the table: its gas shines in the continuum alone"
        for name, section in ((NEBULAE, "nebular"), (AGN, "nebular.agn"))
        if name in setup.sources and not isinstance(setup.sources[name].templates, LineTemplates)
    ]
    plan = setup.sources.get(LINE_SOURCE)
    if plan is not None and plan.unseen:
        notes.append(f"lines.wavelengths: the detector does not see {', '.join(plan.unseen)}")
    return notes


def _accuracy_notes(sources: tuple[AbstractSource, ...], config: RunConfig) -> list[str]:
    """Says so where the error of a spectrum, or of terms of the PSF, is more than the tolerance allows for."""
    tolerance = config.engine.tolerance
    reports = [report for source in sources for report in source.painter.report().items()]
    errors = [error for name, error in reports if name.endswith("basis_spectrum_error")]
    painters = [source.painter for source in sources if isinstance(source.painter, BasisPainter)]
    refused = [own.psf_error for own in painters if own.psf_error is not None and not own.by_terms]
    inaccurate = [
        f"method basis reaches an rms error of {error:.1e} instead of engine.tolerance, {tolerance:g}; use method "
        f"direct where that is too much"
        for error in errors
        if error > 1.2 * tolerance
    ]
    steep = [
        f"the PSF changes too much with wavelength to act on coefficients within engine.tolerance, {tolerance:g} (it "
        f"would err by {float(error):.1e} of its peak): every bin's image is convolved, which takes longer; a "
        f"larger engine.tolerance avoids it"
        for error in refused
    ]
    return inaccurate + steep


def _star_notes(setup: Setup, census: Census | None) -> tuple[str, ...]:
    """Says so where the particles are no galaxy's (but for stars at rest on purpose), or stars are too old."""
    if census is None:
        return ()
    found = implausible_galaxy(census.sums, is_at_rest=setup.config.is_at_rest)
    return (*found, *_age_notes(setup, census))


def _age_notes(setup: Setup, census: Census) -> tuple[str, ...]:
    """Says so when stars are older than the Universe at the redshift where the galaxy is put."""
    if not census.n_older:
        return ()
    return (
        f"{counted(census.n_older, 'star is', 'stars are')} older than the Universe at redshift "
        f"{setup.config.observation.redshift:g} ({10 ** (log_universe_age(setup.config) - 9):.3g} Gyr); they are "
        f"observed as they are",
    )


def call_notes(counters: Counters | None) -> tuple[str, ...]:
    """Sentences on the stars of a call of a pipeline: no galaxy's mass, or most of it beyond the SSP library."""
    if counters is None or isinstance(counters.mass_total, Tracer):
        return ()
    counters = jax.device_get(own_copy(counters))
    mass = float(counters.mass_total)
    notes = [*implausible_mass(mass)]
    for name, beyond, meant in (
        ("ages", counters.mass_clamped_age, "log10(age / yr)"),
        ("metallicities", counters.mass_clamped_metallicity, "mass fractions (the Sun's is about 0.0134)"),
    ):
        if float(beyond) > _MOST_BEYOND * mass:
            notes.append(
                f"{percent(float(beyond) / mass)} of the stars' mass has {name} beyond the SSP library, whose nearest "
                f"is taken: are they {meant}?"
            )
    return tuple(notes)
