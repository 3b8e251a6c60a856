"""The axes, mask and header that all cubes of a pipeline share and no device needs."""

import functools
import operator
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from rubix_like.arguments import check_returned_shapes, expect_fields, plug_in_named, returned
from rubix_like.config.sections.dust import DUST_COLUMN, DustSettings, ParticleDustSettings
from rubix_like.config.sections.instrument import InstrumentSettings
from rubix_like.config.sections.nebular import AGN, NEBULAE
from rubix_like.config.sections.products import LINE_SOURCE
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_spectra import CubeWeights, FibrePlaces
from rubix_like.cube.footprint import AbstractCube, Footprint
from rubix_like.cube.maps import ProductAxes
from rubix_like.cube.meta import OUTSIDE_SSP, Meta, MetaValue, note_entries
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.planning import Planned, product_axes
from rubix_like.forward.products.bands import load_band
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.forward.stages.base import StageReport
from rubix_like.forward.stages.noise import describe_noise
from rubix_like.forward.stages.through_fibres import FibreCube
from rubix_like.forward.tables import Plan
from rubix_like.galaxy.limits import require
from rubix_like.galaxy.particles import GalaxyInfo
from rubix_like.instrument.pointing import Pointing, pointings_of
from rubix_like.instrument.psf_images import load_psf_image
from rubix_like.instrument.sky import load_sky
from rubix_like.nebular import load_nebular
from rubix_like.physics.dust_curves import find_curve
from rubix_like.runtime.arrays_on_disk import digest_of
from rubix_like.runtime.notes import as_notes
from rubix_like.version import __version__

Report = Mapping[str, Any]
"""What a painter or a stage says of itself: entries of `Cube.meta`."""

_PACKAGES = ("jax", "jaxlib", "equinox", "numpy", "astropy", "dust_extinction")


def describe_run(
    setup: Setup, plan: Plan, info: GalaxyInfo | None, reports: Sequence[Report], notes: tuple[str, ...]
) -> Meta:
    """Settings, versions and the galaxy's origin under the names of `fits.META_CARDS`; `config` is the whole YAML.

    `reports`: what the painters know of their accuracy, and the cube stages of what they did.
    """
    config = setup.config
    known = {name: value for report in reports for name, value in report.items()}
    accuracy = {"tolerance": config.engine.tolerance} if "basis" in plan.method.split(", ") else {}
    entries = {"object": "" if info is None else info.name, **setting_entries(setup, plan)}
    entries |= accuracy | known | _library_entries(setup) | _dust_entries(setup)
    element = "spaxel" if setup.instrument.fibres is None else "fibre"
    named = () if config.systematics is None else config.systematics.names
    entries |= _nebular_entries(setup)
    entries |= describe_noise(config.noise, element, sky_errors="sky_residual" in named)
    if config.systematics is not None:
        entries |= {"systematics": ", ".join(named), "systematics_seed": config.systematics.seed}
    if info is not None:
        entries |= _galaxy_entries(info)
        notes = (*info.notes, *notes)
    entries |= note_entries(notes)
    entries |= {f"version_{package}": version(package) for package in _PACKAGES}
    entries |= {"version_rubix_like": __version__, "version_python": platform.python_version()}
    entries |= describe_tables(setup)
    return Meta({**entries, "config": config.to_yaml()})


def describe_tables(setup: Setup) -> dict[str, str]:
    """`context`, the id of the package's version and of all data tables of a run, and `context_NAME`, that of each.

    An id is a hash of numbers, so it does not depend on where a table is stored, nor on what is done with it. `ssp`:
    the library; `lines`, `agn_lines`: the tables of nebular lines; `templates_NAME`: those of a source that has
    templates; `psf`, `lsf`, `detector`: the instrument's; `sky`; `dust`: the package with the curves; `filters`.
    """
    config = setup.config
    tables = {**_light_tables(setup), **_instrument_tables(config.instrument)}
    sky = None if config.noise is None or config.noise.exposure is None else load_sky(config.noise.exposure.sky)
    if sky is not None:
        tables["sky"] = (sky.wavelength, sky.emission, sky.transmission)
    if _dust_entries(setup):
        tables["dust"] = (version("dust_extinction"),)
    bands = () if config.products is None else (*config.products.filters, config.products.band)
    found = [load_band(name) for name in bands if name is not None]
    if found:
        tables["filters"] = tuple(curve for band in found for curve in (band.wavelength, band.response))
    ids = {f"context_{name}": digest_of(*parts) for name, parts in tables.items()}
    return {"context": digest_of(__version__, *sorted(ids.items())), **ids}


def _light_tables(setup: Setup) -> dict[str, tuple[Any, ...]]:
    tables: dict[str, tuple[Any, ...]] = {}
    if _library_entries(setup) or setup.config.products is not None:
        library = setup.library
        axes = (library.metallicity, library.log_age, library.rest_wavelength, library.fwhm)
        tables["ssp"] = (np.asarray(library.spectra, np.float32), *map(np.asarray, axes))  # in 32 bits, as it is stored
    for name, plan in setup.sources.items():
        if name not in (STAR_SOURCE, NEBULAE, AGN):
            templates = plan.templates
            tables[f"templates_{name}"] = (templates.rest_wavelength, templates.table, templates.fwhm)
    nebular = setup.config.nebular
    if nebular is not None and NEBULAE in setup.sources:
        tables["lines"] = _line_table(nebular.table)
    if nebular is not None and nebular.agn is not None and AGN in setup.sources:
        tables["agn_lines"] = _line_table(nebular.agn.table)
    return tables


def _line_table(name: str) -> tuple[Any, ...]:
    table = load_nebular(name)
    return (table.lines, *table.axes, *table.axes.values(), table.per_photon, table.temperature)


def _instrument_tables(instrument: InstrumentSettings) -> dict[str, tuple[Any, ...]]:
    """PSF, line spread and detector, as far as the instrument has them; not its field, spaxels and bins."""
    parts = {name: getattr(instrument, name) for name in ("psf", "lsf", "detector")}
    tables: dict[str, tuple[Any, ...]] = {
        name: (part.model_dump(mode="json", exclude={"file": True, "field": {"__all__": {"file"}}}),)
        for name, part in parts.items()
        if part is not None
    }
    if instrument.psf is not None and instrument.psf.kind == "image":
        for place in instrument.psf.every_place:
            planes, scale, wavelength = load_psf_image(place)
            tables["psf"] += (planes, scale)
            if place.wavelength is None and wavelength is not None:
                tables["psf"] += (wavelength,)
    return tables


def setting_entries(setup: Setup, plan: Plan) -> dict[str, MetaValue]:
    """Entries from the configuration and the plan."""
    config = setup.config
    observation, instrument = config.observation, config.instrument
    reasons = [source.reason for source in setup.sources.values()]
    if len(set(reasons)) > 1:
        reasons = [f"{name}: {reason}" for name, reason in zip(setup.sources, reasons, strict=True)]
    names = ("ra", "dec", "field_angle", "redshift", "inclination", "position_angle")
    return {
        **{name: getattr(observation, name) for name in names},
        "configuration": config.output.configuration,
        "telescope": instrument.telescope,
        "instrument": instrument.label,
        "luminosity_distance": setup.luminosity_distance,
        "cosmology": observation.cosmology if observation.distance is None else "explicit distance",
        "align": config.resolved_align,
        "lsf_includes_pixel": instrument.lsf is not None and instrument.lsf.includes_pixel,
        "lsf_not_of": ", ".join(setup.narrower) or None,
        "pipeline": setup.pipeline.name,
        "method": plan.method,
        "method_reason": "; ".join(dict.fromkeys(reasons)),
        "deposit": plan.deposit,
        "deposit_reason": setup.deposit_reason,
        "precision": plan.dtype,
        "git_revision": git_revision(),
    }


def _library_entries(setup: Setup) -> dict[str, str]:
    """The SSP library that the light is made of: none where the run paints only lines, or what a nucleus ionises."""
    if set(setup.sources) <= {LINE_SOURCE, AGN}:
        return {}
    return {"ssp_library": setup.library.name, "ssp_citation": setup.library.citation}


def _dust_entries(setup: Setup) -> dict[str, MetaValue]:
    """The dust that the light went through: none where the pipeline has no stage or field for it."""
    dust, screen = setup.config.dust, setup.config.screen
    entries: dict[str, MetaValue] = {}
    if screen is not None and setup.pipeline.has_cube_stage("dust"):
        entries = {"dust_a_v": screen.a_v, "dust_place": screen.place, **_curve_entries(screen, "dust")}
    if isinstance(dust, ParticleDustSettings) and setup.pipeline.has_field(DUST_COLUMN):
        names = ("kind", "opacity", "cold", "a_v_birth", "birth_age", "largest", "cells")
        entries |= _curve_entries(dust, "dust_gas") | {f"dust_{name}": getattr(dust, name) for name in names}
        entries |= {"dust_to_metal": dust.dust_to_metal, "dust_hot": dust.hot_dust}
        if dust.has_birth_clouds:
            entries |= {"dust_birth_curve": dust.resolved_birth_curve}
            entries |= {} if dust.birth_slope is None else {"dust_birth_slope": dust.birth_slope}
    return entries


def _curve_entries(dust: DustSettings | ParticleDustSettings, prefix: str) -> dict[str, MetaValue]:
    slope = find_curve(dust.curve).slope if dust.slope is None else dust.slope
    return {f"{prefix}_curve": dust.curve, f"{prefix}_r_v": dust.resolved_r_v, f"{prefix}_slope": slope}


def _nebular_entries(setup: Setup) -> dict[str, MetaValue]:
    """How gas shines around stars and around an active nucleus: none of what the pipeline does not paint."""
    nebular = setup.config.nebular
    entries: dict[str, MetaValue] = {}
    if nebular is not None and NEBULAE in setup.sources:
        names = ("table", "source", "log_pressure", "escape_fraction", "dust_fraction", "velocity_dispersion")
        entries = {f"nebular_{name}": getattr(nebular, name) for name in names}
        entries |= {"nebular_log_u": nebular.log_u.at_solar, "nebular_log_u_slope": nebular.log_u.slope}
        entries["nebular_diffuse_fraction"] = None if nebular.diffuse is None else nebular.diffuse.fraction
    if nebular is not None and nebular.agn is not None and AGN in setup.sources:
        entries |= {f"agn_{name}": value for name, value in nebular.agn}
    return entries


def _galaxy_entries(info: GalaxyInfo) -> dict[str, MetaValue]:
    names = ("reader", "source", "simulation", "redshift", "cosmology")
    names += ("initial_mass", "ages", "metallicities", "velocities")
    entries: dict[str, MetaValue] = {f"galaxy_{name}": getattr(info, name) for name in names}
    entries |= {"galaxy_smoothing_length": info.smoothing_length or None}
    entries |= {"galaxy_stars": info.n_stars, "galaxy_gas": info.n_gas}
    for name, vector in (("center_kpc", info.center), ("bulk_velocity_km_s", info.bulk_velocity)):
        if vector is not None:
            entries[f"galaxy_{name}"] = " ".join(f"{value:.8g}" for value in vector)
    return entries


@functools.cache
def git_revision() -> str | None:
    """Revision of the checkout that the package runs from; None for an installed package."""
    folder = Path(__file__).resolve().parent.parent.parent
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


class FibreFrame(NamedTuple):
    """Places of fibres, their map to spaxels and the file's layout, which all cubes of a pipeline share."""

    places: FibrePlaces
    weights: CubeWeights
    layout: str


@dataclass(frozen=True, eq=False)
class Header(AbstractCube):
    """Axes, mask and header that all cubes of a pipeline share and no device needs (host arrays, float64).

    The mask of a voxel is `spaxel_bits | wave_bits`: kept apart, so that planning needs no memory of a cube's size;
    `voxel_bits`: which bits single voxels may have beside them.
    """

    bins: WavelengthBins
    lsf_fwhm: ndarray
    spaxel_bits: Int[ndarray, "y x"]
    wave_bits: Int[ndarray, " wave"]
    footprint: Footprint
    meta: Meta
    notes: tuple[str, ...]
    pointings: tuple[Pointing, ...]
    products: ProductAxes | None
    fibres: FibreFrame | None = None
    voxel_bits: int = 0

    def mask(self) -> Int[ndarray, "y x wave"]:
        """The bits of every voxel (read-only: where all spaxels are alike, they share the memory of one)."""
        if self.spaxel_bits.any():
            return self.spaxel_bits[:, :, None] | self.wave_bits
        return np.broadcast_to(self.wave_bits, (*self.spaxel_bits.shape, len(self.wave_bits)))


def make_frame(planned: Planned, info: GalaxyInfo | None) -> Header:
    """The cube's axes, mask and header for a planned run."""
    setup = planned.setup
    bins, footprint = setup.instrument.bins, setup.instrument.footprint
    stages = _stage_reports(planned)
    reports = [source.painter.report() for source in planned.tables.paint]
    later = zip(planned.plan.sources[1:], reports[1:], strict=True)
    painters = [
        dict(reports[0]),
        *({f"{name}_{key}": value for key, value in report.items()} for name, report in later),
    ]
    widths = [stage.lsf_fwhm for stage in stages if stage.lsf_fwhm is not None]
    if len(widths) > 1:
        raise ConfigError(
            f"pipeline.cube: expected one 'degrade_lsf' (each starts from the instrument's line spread), got "
            f"{len(widths)}; keep the widest"
        )
    aligned = [] if setup.alignment is None else [setup.alignment.meta]
    notes = as_notes((*planned.notes, *(note for stage in stages for note in stage.notes)))
    return Header(
        bins=bins,
        lsf_fwhm=widths[-1] if widths else setup.lsf_fwhm,
        spaxel_bits=_combined([stage.spaxel_bits for stage in stages], footprint.shape),
        wave_bits=_combined(
            [np.where(setup.covered, 0, OUTSIDE_SSP), *(stage.wave_bits for stage in stages)], (bins.n_wave,)
        ),
        footprint=footprint,
        meta=describe_run(setup, planned.plan, info, [*aligned, *painters, *(stage.meta for stage in stages)], notes),
        notes=notes,
        pointings=pointings_of(setup.config.observation),
        products=product_axes(setup, planned.tables.products, planned.lines),
        fibres=_fibres(planned),
        voxel_bits=functools.reduce(operator.or_, (stage.voxel_bits for stage in stages), 0),
    )


def _fibres(planned: Planned) -> FibreFrame | None:
    setup = planned.setup
    places, settings = setup.instrument.fibres, setup.config.instrument.fibres
    if places is None or settings is None:
        return None
    stage = next(stage for stage in planned.tables.cube if isinstance(stage, FibreCube))
    return FibreFrame(places, stage.weights, settings.spectra)


def _stage_reports(planned: Planned) -> list[StageReport]:
    instrument, found = planned.setup.instrument, []
    of_run = setting_entries(planned.setup, planned.plan).keys()
    for name, stage in zip(planned.tables.cube_names, planned.tables.cube, strict=True):
        call, per_bin = f"stage '{name}': `report`", (instrument.bins.n_wave,)
        with plug_in_named(call, stage):
            report = returned(stage.report(), StageReport, call, "a StageReport")
        expect_fields(report, f"{call}: ")
        shapes = {"spaxel_bits": instrument.footprint.shape, "wave_bits": per_bin, "lsf_fwhm": per_bin}
        check_returned_shapes(call, {key: (getattr(report, key), shape) for key, shape in shapes.items()})
        if report.lsf_fwhm is not None:
            widths = np.asarray(report.lsf_fwhm)
            good = np.isfinite(widths) & (widths >= 0)
            require(good, widths, f"{call}: StageReport.lsf_fwhm", "finite widths >= 0", "give the FWHM in Angstrom")
        taken = sorted(of_run & report.meta.keys())
        if taken:
            raise ConfigError(f"{call} must not give the entry '{taken[0]}' of the header, which is the run's")
        found.append(report)
    return found


def _combined(bits: list[ndarray | None], shape: tuple[int, ...]) -> Int[ndarray, "..."]:
    known = [mask.astype(np.int32) for mask in bits if mask is not None]
    return functools.reduce(np.bitwise_or, known, np.zeros(shape, dtype=np.int32))
