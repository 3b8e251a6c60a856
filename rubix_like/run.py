"""A whole run: configuration in, files out: the cube, or one per pointing and their mosaic."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from rubix_like.atomic import check_writable
from rubix_like.census import Census
from rubix_like.config import RunConfig, load_config
from rubix_like.cube import Cube
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy, GalaxyInfo
from rubix_like.memory import MemoryNeed, available_memory, check_cube_fits, check_memory, format_bytes, memory_need
from rubix_like.mosaic import make_mosaic
from rubix_like.output import OutputFile, cube_bytes, output_files
from rubix_like.pipeline import Pipeline
from rubix_like.products.maps_file import maps_file_size
from rubix_like.products.planning import check_bands
from rubix_like.progress import Progress
from rubix_like.readers import load
from rubix_like.ssp.catalogue import locate
from rubix_like.summary import accuracy_lines
from rubix_like.truth import noiseless


class Result(NamedTuple):
    """What a run ends with: the mosaic, the only cube or the last pointing's, its file, and (what, where) of the other
    files."""

    cube: Cube
    path: Path
    others: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A run that is loaded, placed on its devices, planned and compiled; `first`: what its only field will be, where
    that is being computed (see `begin`)."""

    config: RunConfig
    galaxy: Galaxy
    info: GalaxyInfo
    pipeline: Pipeline
    compiled: Any
    need: MemoryNeed
    first: Any = None


def run(config: RunConfig | str | Path | dict[str, Any], output: str | Path | None = None) -> Cube:
    """Load, observe and write: the cube of a configuration, also written to `output` or the configuration's path.

    Of several pointings it is their mosaic (with `observation.mosaic: false` the last pointing's cube); each pointing's
    own cube is written beside it, as cube_NAME.fits. Raises ConfigError, ValueError or OSError before anything is
    computed where settings, particles or the output path cannot be used.
    """
    config = load_config(config)
    return compute(config, Path(config.output.path if output is None else output), Progress()).cube


def prepare(config: RunConfig, progress: Progress, path: Path | None = None) -> Prepared:
    """Load the galaxy, plan the run and compile it; what can be refused early is refused before the galaxy is read.

    `path`: where the cube will go (None: the configuration's).
    """
    if config.galaxy is None:
        raise ConfigError("galaxy: expected a section with a reader, got none; e.g. galaxy: {reader: synthetic}")
    check_cube_fits(*config.instrument.n_spaxel_xy, config.instrument.wavelength.n_wave)
    locate(config.ssp.library)
    check_bands(config.products)
    galaxy, info = read_galaxy(config, progress)
    return plan_and_compile(config, galaxy, info, progress, path)


def read_galaxy(config: RunConfig, progress: Progress) -> tuple[Galaxy, GalaxyInfo]:
    """The galaxy of a run and what is known of it."""
    with progress.step("load", "loading the galaxy") as report:
        return load(config, report)


def plan_and_compile(
    config: RunConfig,
    galaxy: Galaxy,
    info: GalaxyInfo,
    progress: Progress,
    path: Path | None = None,
    mesh: Mesh | None = None,
    census: Census | None = None,
) -> Prepared:
    """A run of a loaded galaxy, placed already or not.

    `mesh`: its devices (None: the configuration's); `census`: that of the galaxy for such a run, where it is known.
    """
    with progress.step("plan", "planning the run"):
        pipeline = Pipeline.from_config(config, None if census else galaxy, mesh, info, census)
    with progress.step("compile", "compiling"):
        placed = pipeline.arguments(galaxy)[2]
        compiled = pipeline.lower(placed).compile()
    need = _need(config, path or config.output.path, compiled, pipeline)
    return Prepared(config, placed, info, pipeline, compiled, need)


def _need(config: RunConfig, path: Path, compiled: Any, pipeline: Pipeline) -> MemoryNeed:
    """What the run takes: one pointing at a time, on top of the finished ones that wait for the mosaic."""
    files = output_files(config, path)
    own = files[0]
    mask = own.n_voxel * np.dtype(np.int32).itemsize
    need = memory_need(compiled, pipeline.mesh, mask + own.n_bytes + expected_maps_size(config, pipeline))
    if not files[-1].is_mosaic:
        return need
    waiting = [cube_bytes(config, file.n_voxel) for file in files]
    return replace(need, host=max(need.host + sum(waiting[:-2]), sum(waiting) + files[-1].n_bytes))


def compute(config: RunConfig, path: Path, progress: Progress) -> Result:
    """Prepare, compute and write one run; its times are left in `progress.timings`.

    Each cube is written as soon as it is computed; a run that is stopped leaves the finished ones.
    """
    check_output(config, path)
    prepared = prepare(config, progress, path)
    check_memory(prepared.need, prepared.pipeline.mesh)
    return finish(prepared, path, progress)


def begin(prepared: Prepared) -> Prepared:
    """Hand the only field to its devices, which compute it while the host does something else; several fields wait.

    Raises ConfigError where there is not enough memory.
    """
    check_memory(prepared.need, prepared.pipeline.mesh)
    if len(prepared.pipeline.pointings) > 1:
        return prepared
    ((_, view),) = _views(prepared)
    return replace(prepared, first=prepared.compiled(*view.arguments(prepared.galaxy)))


def finish(prepared: Prepared, path: Path, progress: Progress) -> Result:
    """Compute what is not computed yet, and write each cube."""
    config = prepared.config
    files = output_files(config, path)
    for maps in _maps_of(files):
        check_writable(maps, expected_maps_size(config, prepared.pipeline))
    waiting = []
    for cube, file in zip(_observed(prepared, progress), files, strict=False):
        _write(cube, file, progress)
        waiting = [*waiting, _without_maps(cube)] if files[-1].is_mosaic else [cube]
    if files[-1].is_mosaic:
        with progress.step("mosaic", f"combining {len(waiting)} pointings"):
            waiting = [make_mosaic(waiting)]
        _write(waiting[0], files[-1], progress)
    pointings = tuple(("Pointing", file.path) for file in files[:-1])
    return Result(waiting[0], files[-1].path, pointings + tuple(other for file in files for other in file.others))


def _without_maps(cube: Cube) -> Cube:
    """What a mosaic needs of a cube, on the host."""
    return jax.tree.map(np.asarray, replace(cube, maps=None))


def _maps_of(files: tuple[OutputFile, ...]) -> tuple[Path, ...]:
    return tuple(file.maps for file in files if file.maps is not None)


def _views(prepared: Prepared) -> list[tuple[str, Pipeline]]:
    """What is observed, for messages, and how: every pointing, or the only field."""
    pipeline = prepared.pipeline
    views = [(f" (pointing {pointing.name})", pipeline.at(pointing)) for pointing in pipeline.pointings]
    return views or [("", pipeline)]


def _observed(prepared: Prepared, progress: Progress) -> Iterator[Cube]:
    """The cube of every pointing, or the only one, each but the first computed when it is asked for."""
    begun = prepared.first
    for which, view in _views(prepared):
        stars = f"painting {prepared.info.n_stars} stars on {prepared.pipeline.mesh.size} device(s)"
        with progress.step("run", stars + which):
            begun = prepared.compiled(*view.arguments(prepared.galaxy)) if begun is None else begun
            cube = view.to_cube(jax.block_until_ready(begun))
        begun = None
        if cube.maps is not None:
            with progress.step("maps", "fitting velocity distributions" + which):
                cube = replace(cube, maps=cube.maps.fitted())
        yield cube


def _write(cube: Cube, file: OutputFile, progress: Progress) -> None:
    with progress.step("write", f"writing {file.path}"):
        cube.write(file.path, file.layout)
        if file.truth is not None:
            noiseless(cube).write(file.truth)
        if file.maps is not None and cube.maps is not None:
            cube.maps.write(file.maps)


def check_output(config: RunConfig, path: Path) -> None:
    """Raise ConfigError or OSError where the cubes could not be written at `path`, and beside it, after the run."""
    files = output_files(config, path)
    every = [own for file in files for own in (file.path, *(other for _, other in file.others))]
    for own in every:
        if every.count(own) > 1:
            raise ConfigError(
                f"output: expected another file for every cube and its maps, got '{own}' for two of them; change "
                f"output.path, output.maps or the name of a pointing"
            )
        check_writable(own, sum(file.all_bytes for file in files))


def expected_maps_size(config: RunConfig, pipeline: Pipeline) -> int:
    """Bytes of the file of maps of a run, 0 without `products`."""
    n_x, n_y = config.instrument.n_spaxel_xy
    return 0 if pipeline.frame.products is None else maps_file_size(n_y, n_x, pipeline.frame.products)


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
        *_file_lines(prepared),
        *_maps_lines(prepared),
    ]
    return lines + [f"note        {note}" for note in (*info.notes, *pipeline.notes)]


def _file_lines(prepared: Prepared) -> list[str]:
    """Where each pointing looks and what is written."""
    files = output_files(prepared.config, prepared.config.output.path)
    lines = [
        f"pointing    {pointing.name}: RA {pointing.center[0]:.6f}, Dec {pointing.center[1]:+.6f} deg "
        f"({pointing.offset[0]:+g}, {pointing.offset[1]:+g} arcsec East, North), +y at "
        f"{pointing.field_angle:g} deg; {file.path}"
        for pointing, file in zip(prepared.pipeline.pointings, files, strict=False)
    ]
    if files[-1].is_mosaic:
        lines.append(f"mosaic      {files[-1].n_y} x {files[-1].n_x} spaxels, North up; {files[-1].path}")
    total = format_bytes(sum(file.n_bytes for file in files))
    lines.append(f"file        {total}" if len(files) == 1 else f"files       {len(files)}, {total} in all")
    truth = sum(file.truth_bytes for file in files)
    return [*lines, *([f"truth       {format_bytes(truth)}, in a second file"] if truth else [])]


def _maps_lines(prepared: Prepared) -> list[str]:
    """The maps beside the cube, in words."""
    axes = prepared.pipeline.frame.products
    if axes is None:
        return []
    bins = "" if axes.velocity is None else f", {len(axes.velocity)} velocities up to {axes.velocity[-1]:g} km/s"
    filters = f", images in {', '.join(axes.filters)}" if axes.filters else ""
    size = format_bytes(expected_maps_size(prepared.config, prepared.pipeline))
    return [f"maps        weighted by light in {axes.band}{bins}{filters}; {size}"]
