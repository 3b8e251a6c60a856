"""A whole run: configuration in, file out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from rubix_like.atomic import check_writable
from rubix_like.config import RunConfig, load_config
from rubix_like.cube import Cube
from rubix_like.cube_files import file_size, find_format
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy, GalaxyInfo
from rubix_like.memory import MemoryNeed, available_memory, check_cube_fits, check_memory, format_bytes, memory_need
from rubix_like.pipeline import Pipeline
from rubix_like.progress import Progress
from rubix_like.readers import load
from rubix_like.ssp.catalogue import locate
from rubix_like.summary import accuracy_lines

_BYTES_OF_MASK = 4


@dataclass(frozen=True)
class Prepared:
    """A run that is loaded, planned and compiled, but not computed."""

    config: RunConfig
    galaxy: Galaxy
    info: GalaxyInfo
    pipeline: Pipeline
    compiled: Any
    need: MemoryNeed


def run(config: RunConfig | str | Path | dict[str, Any], output: str | Path | None = None) -> Cube:
    """Load, observe and write: the cube of a configuration, also written to `output` or the configuration's path.

    Raises ConfigError, ValueError or OSError before anything is computed where settings, particles or the output
    path cannot be used.
    """
    config = load_config(config)
    return compute(config, Path(config.output.path if output is None else output), Progress())


def prepare(config: RunConfig, progress: Progress) -> Prepared:
    """Load the galaxy, plan the run and compile it; what can be refused early is refused before the galaxy is read."""
    if config.galaxy is None:
        raise ConfigError("galaxy: expected a section with a reader, got none; e.g. galaxy: {reader: synthetic}")
    check_cube_fits(*config.instrument.n_spaxel_xy, config.instrument.wavelength.n_wave)
    locate(config.ssp.library)
    with progress.step("load", "loading the galaxy"):
        galaxy, info = load(config)
    with progress.step("plan", "planning the run"):
        pipeline = Pipeline.from_config(config, galaxy, info=info)
    with progress.step("compile", "compiling"):
        compiled = pipeline.lower(galaxy).compile()
    n_x, n_y = config.instrument.n_spaxel_xy
    mask = _BYTES_OF_MASK * n_x * n_y * config.instrument.wavelength.n_wave
    need = memory_need(compiled, pipeline.mesh, mask + expected_file_size(config))
    return Prepared(config, galaxy, info, pipeline, compiled, need)


def compute(config: RunConfig, path: Path, progress: Progress) -> Cube:
    """Prepare, compute and write one run; its times are left in `progress.timings`."""
    check_output(config, path)
    prepared = prepare(config, progress)
    pipeline = prepared.pipeline
    check_memory(prepared.need, pipeline.mesh)
    with progress.step("run", f"painting {prepared.info.n_stars} stars on {pipeline.mesh.size} device(s)"):
        arguments = pipeline.arguments(prepared.galaxy)
        cube = pipeline.to_cube(*jax.block_until_ready(prepared.compiled(*arguments)))
    with progress.step("write", f"writing {path}"):
        cube.write(path, config.output.layout)
    return cube


def check_output(config: RunConfig, path: Path) -> None:
    """Raise ConfigError or OSError where the cube could not be written at `path` after the run."""
    check_writable(path, expected_file_size(config, path))


def expected_file_size(config: RunConfig, path: Path | None = None) -> int:
    """Bytes of the file of a run at `path` (null: the configuration's); raises ConfigError if its ending is unknown."""
    n_x, n_y = config.instrument.n_spaxel_xy
    shape = (n_y, n_x, config.instrument.wavelength.n_wave)
    chosen = find_format(path or config.output.path, config.output.layout)
    return file_size(chosen, shape, noise=config.noise is not None, float64=config.engine.precision == "float64")


def check_lines(prepared: Prepared) -> list[str]:
    """What a run would do: sizes, memory, devices, notes."""
    pipeline, info = prepared.pipeline, prepared.info
    plan, frame, need = pipeline.plan, pipeline.frame, prepared.need
    meta = frame.meta
    painted = (plan.n_y + 2 * plan.margin, plan.n_x + 2 * plan.margin)
    lines = [
        f"galaxy      {info.name}: {info.n_stars} stars, {info.n_gas} gas particles ({info.reader})",
        f"ssp         {meta['ssp_library']}",
        f"distance    {meta['luminosity_distance']:.6g} Mpc (redshift {meta['redshift']:g}, {meta['cosmology']}); "
        f"{float(pipeline.tables.arcsec_per_kpc):.4g} arcsec per kpc",
        f"cube        {plan.n_y} x {plan.n_x} spaxels of {frame.pixel_scale:g} arcsec, {plan.n_wave} bins of "
        f"{frame.wavelength[0]:.6g}-{frame.wavelength[-1]:.6g} Angstrom ({frame.medium}, {frame.sampling}); "
        f"painted on {painted[0]} x {painted[1]}",
        f"velocities  up to {float(pipeline.velocity_limit):g} km/s",
        f"engine      method {plan.method}, deposit {plan.deposit}, {plan.dtype}",
        *(f"accuracy    {line.removeprefix('Accuracy: ')}" for line in accuracy_lines(meta)),
        f"devices     {pipeline.mesh.size} x {pipeline.mesh.devices.flat[0].device_kind}",
        f"memory      {format_bytes(need.host)} on this computer ({format_bytes(need.device)} on each device); "
        f"available {format_bytes(available_memory())}",
        f"file        {format_bytes(expected_file_size(prepared.config))}",
    ]
    return lines + [f"note        {note}" for note in (*info.notes, *pipeline.notes)]
