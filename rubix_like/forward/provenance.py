"""What a run was made of, for the cube's header."""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rubix_like.config.sections.dust import DUST_COLUMN, DustSettings, ParticleDustSettings
from rubix_like.config.sections.lines import LINE_SOURCE
from rubix_like.config.sections.nebular import AGN, NEBULAE
from rubix_like.cube.meta import Meta, MetaValue
from rubix_like.engine.setup import Setup
from rubix_like.forward.stages.noise_models import describe_noise
from rubix_like.forward.tables import Plan
from rubix_like.galaxy.particles import GalaxyInfo
from rubix_like.physics.dust_curves import CURVES
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
    entries = {"object": "" if info is None else info.name, **_setting_entries(setup, plan)}
    entries |= accuracy | known | _library_entries(setup) | _dust_entries(setup)
    entries |= _nebular_entries(setup) | _agn_entries(setup) | describe_noise(config.noise)
    if info is not None:
        entries |= _galaxy_entries(info)
        notes = info.notes + notes
    entries |= {f"note_{number}": note for number, note in enumerate(notes, start=1)}
    entries |= {f"version_{package}": version(package) for package in _PACKAGES}
    entries |= {"version_rubix_like": __version__, "version_python": platform.python_version()}
    return Meta({**entries, "config": config.to_yaml()})


def _setting_entries(setup: Setup, plan: Plan) -> dict[str, MetaValue]:
    """What the configuration and the plan say."""
    config = setup.config
    observation, instrument = config.observation, config.instrument
    return {
        "configuration": config.output.configuration,
        "telescope": instrument.telescope,
        "instrument": instrument.label,
        "ra": observation.ra,
        "dec": observation.dec,
        "field_angle": observation.field_angle,
        "redshift": observation.redshift,
        "luminosity_distance": setup.luminosity_distance,
        "cosmology": observation.cosmology if observation.distance is None else "explicit distance",
        "align": config.resolved_align,
        "inclination": observation.inclination,
        "position_angle": observation.position_angle,
        "lsf_includes_pixel": instrument.lsf is not None and instrument.lsf.includes_pixel,
        "lsf_not_of": ", ".join(setup.narrower) or None,
        "pipeline": setup.pipeline.name,
        "method": plan.method,
        "method_reason": _reasons(setup),
        "precision": plan.dtype,
        "git_revision": git_revision(),
    }


def _reasons(setup: Setup) -> str:
    """Why each source is painted by its method."""
    found = {name: plan.reason for name, plan in setup.sources.items()}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{name}: {reason}" for name, reason in found.items())


def _library_entries(setup: Setup) -> dict[str, str]:
    """The SSP library that the light is made of: none where the run paints only lines, or what a nucleus ionises."""
    if set(setup.sources) <= {LINE_SOURCE, AGN}:
        return {}
    return {"ssp_library": setup.library.name, "ssp_citation": setup.library.citation}


def _slope(dust: DustSettings | ParticleDustSettings) -> float | None:
    """That of the curve, where it has one."""
    return CURVES.find(dust.curve).slope if dust.slope is None else dust.slope


def _dust_entries(setup: Setup) -> dict[str, str | int | float | None]:
    """The dust that the light went through: none where the pipeline has no stage or field for it."""
    dust, screen = setup.config.dust, setup.config.screen
    entries: dict[str, str | int | float | None] = {}
    if screen is not None and setup.pipeline.has_cube_stage("dust"):
        entries |= {
            "dust_a_v": screen.a_v,
            "dust_r_v": screen.resolved_r_v,
            "dust_curve": screen.curve,
            "dust_slope": _slope(screen),
            "dust_place": screen.place,
        }
    if isinstance(dust, ParticleDustSettings) and setup.pipeline.has_field(DUST_COLUMN):
        entries |= {
            "dust_kind": dust.kind,
            "dust_gas_curve": dust.curve,
            "dust_gas_r_v": dust.resolved_r_v,
            "dust_gas_slope": _slope(dust),
            "dust_to_metal": dust.dust_to_metal,
            "dust_opacity": dust.opacity,
            "dust_cold": dust.cold,
            "dust_hot": dust.hot_dust,
            "dust_a_v_birth": dust.a_v_birth,
            "dust_birth_age": dust.birth_age,
            "dust_largest": dust.largest,
            "dust_cells": dust.cells,
        }
        if dust.has_birth_clouds:
            entries |= {"dust_birth_curve": dust.resolved_birth_curve}
            entries |= {} if dust.birth_slope is None else {"dust_birth_slope": dust.birth_slope}
    return entries


def _nebular_entries(setup: Setup) -> dict[str, str | float | None]:
    """How the gas shines: none where the pipeline does not paint it."""
    nebular = setup.config.nebular
    if nebular is None or NEBULAE not in setup.sources:
        return {}
    return {
        "nebular_table": nebular.table,
        "nebular_source": nebular.source,
        "nebular_log_u": nebular.log_u.at_solar,
        "nebular_log_u_slope": nebular.log_u.slope,
        "nebular_log_pressure": nebular.log_pressure,
        "nebular_escape_fraction": nebular.escape_fraction,
        "nebular_dust_fraction": nebular.dust_fraction,
        "nebular_velocity_dispersion": nebular.velocity_dispersion,
        "nebular_diffuse_fraction": None if nebular.diffuse is None else nebular.diffuse.fraction,
    }


def _agn_entries(setup: Setup) -> dict[str, str | float | None]:
    """The active nucleus, and how the gas shines that it ionises: none where the pipeline does not paint it."""
    nebular = setup.config.nebular
    if nebular is None or nebular.agn is None or AGN not in setup.sources:
        return {}
    own = nebular.agn
    return {
        "agn_table": own.table,
        "agn_log_luminosity": own.log_luminosity,
        "agn_radius": own.radius,
        "agn_covering_fraction": own.covering_fraction,
        "agn_log_u": own.log_u,
        "agn_log_pressure": own.log_pressure,
        "agn_log_peak_energy": own.log_peak_energy,
        "agn_oxygen_abundance": own.oxygen_abundance,
        "agn_velocity_dispersion": own.velocity_dispersion,
    }


def _galaxy_entries(info: GalaxyInfo) -> dict[str, str | int | float | None]:
    entries: dict[str, str | int | float | None] = {
        "galaxy_reader": info.reader,
        "galaxy_source": info.source,
        "galaxy_simulation": info.simulation,
        "galaxy_redshift": info.redshift,
        "galaxy_cosmology": info.cosmology,
        "galaxy_initial_mass": info.initial_mass,
        "galaxy_ages": info.ages,
        "galaxy_metallicities": info.metallicities,
        "galaxy_velocities": info.velocities,
        "galaxy_smoothing_length": info.smoothing_length or None,
        "galaxy_stars": info.n_stars,
        "galaxy_gas": info.n_gas,
    }
    for name, vector in (("center_kpc", info.center), ("bulk_velocity_km_s", info.bulk_velocity)):
        if vector is not None:
            entries[f"galaxy_{name}"] = " ".join(f"{value:.8g}" for value in vector)
    return entries


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
