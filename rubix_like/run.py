"""A whole run: configuration in, FITS file out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from rubix_like.atomic import check_writable
from rubix_like.config import RunConfig, load_config
from rubix_like.cube import Cube
from rubix_like.errors import ConfigError
from rubix_like.fits import check_suffix, file_size
from rubix_like.galaxy import Galaxy, GalaxyInfo
from rubix_like.memory import MemoryNeed, available_memory, check_cube_fits, check_memory, format_bytes, memory_need
from rubix_like.pipeline import Pipeline
from rubix_like.progress import Progress
from rubix_like.readers import load
from rubix_like.ssp.catalogue import locate
from rubix_like.summary import accuracy_lines
from rubix_like.truth import noiseless, truth_path

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
        cube.write(path)
        if cube.truth is not None:
            noiseless(cube).write(truth_path(path))
    return cube


def check_output(config: RunConfig, path: Path) -> None:
    """Raise ConfigError or OSError where the run's files could not be written at `path` and beside it."""
    path = check_suffix(path)
    truth = expected_truth_size(config)
    check_writable(path, expected_file_size(config) + truth)
    if truth:
        check_writable(truth_path(path), truth)


def expected_file_size(config: RunConfig) -> int:
    """Bytes of the FITS file of a run."""
    n_x, n_y = config.instrument.n_spaxel_xy
    return file_size(n_y, n_x, config.instrument.wavelength.n_wave, config.noise is not None)


def expected_truth_size(config: RunConfig) -> int:
    """Bytes of the second file, of the noiseless cube; 0 where none is kept."""
    if config.noise is None or not config.noise.keep_truth:
        return 0
    n_x, n_y = config.instrument.n_spaxel_xy
    return file_size(n_y, n_x, config.instrument.wavelength.n_wave, noise=False)


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
    truth = expected_truth_size(prepared.config)
    lines += [f"truth       {format_bytes(truth)}, in a second file"] if truth else []
    return lines + [f"note        {note}" for note in (*info.notes, *pipeline.notes)]
