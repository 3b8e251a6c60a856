"""A whole run: configuration in, files out: the cube, or one per pointing and their mosaic.

A run is compiled once for all pointings; its particles are in memory, or come slab by slab.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig, load_config
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.cube.arms import join_arms
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube, noiseless, put_together, sums_of
from rubix_like.cube.files.cube_files import write_cube, writing_bytes
from rubix_like.cube.files.maps_file import maps_file_size
from rubix_like.cube.mosaic import make_mosaic
from rubix_like.cube.survey_files.spectra_files import write_spectra
from rubix_like.errors import ConfigError, expect_path
from rubix_like.forward.census import Census, CensusRules
from rubix_like.forward.pipeline import Pipeline, alike_groups, named_pipeline, plan_together
from rubix_like.forward.resolved import Resolved, resolve
from rubix_like.galaxy.particles import GalaxyInfo
from rubix_like.readers.synthetic import SyntheticReader
from rubix_like.runs.observers import Observer, compile_program, of_processes
from rubix_like.runs.particles_on_disk import (
    Source,
    check_together,
    connect_devices,
    loading_words,
    open_source,
    serves,
)
from rubix_like.runs.run_files import (
    CubeRun,
    OutputFile,
    check_output,
    cube_bytes,
    cube_runs,
    missing_maps_lines,
    output_files,
    why_no_maps,
    with_default_maps,
)
from rubix_like.runs.run_summary import (
    accuracy_lines,
    alignment_lines,
    closing_lines,
    emitters,
    planned_dust_lines,
    remark_lines,
)
from rubix_like.runtime.files.outputs import Named, check_writable, given_files, remove_abandoned
from rubix_like.runtime.memory import (
    MemoryNeed,
    available_memory,
    check_making,
    check_memory,
    fits_memory,
    making_bytes,
    process_bytes,
)
from rubix_like.runtime.mesh.mesh import process_count
from rubix_like.runtime.notes import Note, checking_lines
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Progress, progress_here
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import counted, format_bytes

_MOST_PLANNED = 1 << 20
"""Synthetic particles of a kind that are made to plan a run which is only checked."""

_MOST_COLUMNS = 11
"""Numbers of a synthetic star or gas particle on the devices, or nearly so."""


class Result(NamedTuple):
    """The end of a run: the mosaic, the only cube or the last pointing's, its file, (what, where) of the other files,
    and lines on other observations."""

    cube: Cube | ShardedCube
    path: Path
    others: tuple[tuple[str, Path], ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A run that is loaded, planned and compiled, but not computed; to be closed where its particles are in a file."""

    config: RunConfig
    info: GalaxyInfo
    observer: Observer
    need: MemoryNeed
    files: ExitStack
    source: Source | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the observation."""
        return self.observer.pipeline

    def __enter__(self) -> "Prepared":
        return self

    def __exit__(self, *error: object) -> None:
        self.files.close()


class PreparedCube(NamedTuple):
    """A cube of a run that is prepared: by its only observation, or by those of the arms that are joined in it."""

    run: CubeRun
    parts: tuple[Prepared, ...]
    path: Path


@named_arguments
@exits_as_errors()
def run(
    config: RunConfig | str | Path | dict[str, Any],
    output: str | Path | None = None,
    team: AbstractProcessGroup | None = None,
    *,
    overwrite: bool = False,
    quiet: bool | None = None,
) -> Cube | ShardedCube:
    """Load, observe and write: the cube of a configuration, also written to `output` or the configuration's path.

    A file that another configuration made, or that is none of ours, is replaced only with `overwrite`; a configuration
    is known by the name of its file, one given as a dict by none. In a notebook and on a terminal the steps, the
    summary and the notes are shown as the command shows them; `quiet=True` shows nothing, `quiet=False` shows it
    everywhere.

    Of several pointings it is their mosaic (with `observation.mosaic: false` the last pointing's cube); each pointing's
    cube is written beside it, as cube_NAME.fits. Of several `observations`, or of arms that are not joined, it is
    the last one's; each is written as cube_NAME.fits. Every process of a `team` (`join_processes`) calls the same; each
    reads its share of the particles, all get the cube, and process 0 writes; of a sharded cube each gets and writes its
    parts. Raises ConfigError, ValueError or OSError before anything is computed where settings, particles or the
    output path cannot be used.
    """
    read = tuple(given_files({"configuration": config}))
    config = with_default_maps(load_config(config))
    path = Path(config.output.path if output is None else expect_path(output, "output"))
    group = team or SINGLE
    progress = progress_here(quiet if group.number == 0 else True)
    cube, path, others, remarks = compute(config, path, progress, group, read, overwrite=overwrite)
    if any(group.exchange(lambda: progress.stream is not None)):
        sums = sums_of(cube, group) if isinstance(cube, ShardedCube) else None
        if progress.stream is not None:
            lines = closing_lines(cube, path, others, progress.timings, config.output.layout, sums, remarks)
            print(*lines, *missing_maps_lines(config), sep="\n", file=progress.stream, flush=True)
    return put_together(cube) if team is None else cube


def prepare(
    config: RunConfig, progress: Progress, path: Path | None = None, team: AbstractProcessGroup = SINGLE, name: str = ""
) -> Prepared:
    """Load the galaxy, plan the run and compile it; what can be refused early is refused before the galaxy is read.

    `path`: where the cube will go (None: the configuration's); `name`: that of one of several observations.
    """
    with ExitStack() as files:
        resolved, source = _loaded(config, progress, files, team)
        prepared = plan_and_compile(config, resolved, source, progress, path, name=name)
        return replace(prepared, files=files.pop_all())


def _loaded(
    config: RunConfig, progress: Progress, files: ExitStack, team: AbstractProcessGroup
) -> tuple[Resolved, Source]:
    """The resolved settings and the particles; open files are left to `files`."""
    if config.galaxy is None:
        raise ConfigError("galaxy: expected a section with a reader, got none; e.g. galaxy: {reader: synthetic}")
    check_together(config, team)
    with progress.step("load", loading_words(team)) as report:
        resolved = team.each(lambda: resolve(config))
        return resolved, open_source(config, resolved, files, report, team)


def plan_and_compile(
    config: RunConfig,
    resolved: Resolved,
    source: Source,
    progress: Progress,
    path: Path | None = None,
    mesh: Mesh | None = None,
    name: str = "",
) -> Prepared:
    """A run of particles that are at hand, on the devices of `mesh` (None: the configuration's), by its team."""
    with progress.step("plan", "planning the run"):
        pipeline = Pipeline.from_config(config, mesh=mesh, info=source.info, census=source.census, resolved=resolved)
        pipeline = named_pipeline(pipeline, name) if name else pipeline
        connect_devices(pipeline.mesh, source.team)
    with progress.step("compile", "compiling"):
        source = source.placed(pipeline)
        observer = Observer(compile_program(source, [pipeline]))
        source.team.exchange(lambda: None)
    need = _need(config, path or config.output.path, observer)
    return Prepared(config, source.info, observer, need, ExitStack(), source)


def turned(prepared: Prepared, config: RunConfig, path: Path) -> Prepared:
    """A run of the same particles with other angles (`planned_alike`), whose cube goes to `path`."""
    observer = Observer(replace(prepared.observer.program, pipelines=(prepared.pipeline.turned(config),)))
    return replace(prepared, config=config, observer=observer, need=_need(config, path, observer))


def _need(config: RunConfig, path: Path, observer: Observer) -> MemoryNeed:
    """The memory that the run takes here: one pointing at a time, on top of the finished ones that wait for the
    mosaic."""
    files, layout = output_files(config, path), observer.pipeline.layout
    first, last = files[0], files[-1]
    mask = first.n_voxel * np.dtype(np.int32).itemsize // (1 if layout.gathered else process_count(layout.mesh))
    writing = writing_bytes(first.n_bytes, first.packing) + expected_maps_size(observer.pipeline)
    need = observer.program.need(mask + writing)
    if not last.is_mosaic:
        return need
    waiting = [cube_bytes(config, file.n_voxel) for file in files]
    mosaic = sum(waiting) + writing_bytes(last.n_bytes, first.packing)
    return replace(need, host=max(need.host + sum(waiting[:-2]), mosaic))


def compute(
    config: RunConfig,
    path: Path,
    progress: Progress,
    team: AbstractProcessGroup = SINGLE,
    read: Sequence[Named] = (),
    *,
    overwrite: bool = False,
) -> Result:
    """Prepare, compute and write one run; its times are left in `progress.timings`.

    `read`, `overwrite`: as in `check_replaced`.
    Observations that see the particles alike are painted together where memory allows, others one after the other.
    Each cube is written as soon as it is computed, of a `team` by process 0; a run that is stopped leaves the finished
    ones.
    """
    n_writing = team.size if config.devices.is_sharded else 1
    team.in_first(lambda: remove_abandoned(check_output(config, path, n_writing, read, overwrite=overwrite)))
    names = [run.name for run in cube_runs(config)]
    last, others, remarks = None, dict[str, list[tuple[str, Path]]](), dict[str, list[str]]()
    for cubes in prepare_cubes(config, progress, path, team):
        for need, mesh in _needs(cubes):
            team.exchange(lambda need=need, mesh=mesh: check_memory(need, mesh))
        for cube, result in zip(cubes, write_in_step(cubes, progress, team), strict=True):
            name = cube.run.name
            what = f"{'Arm' if config.observations is None else 'Observation'} {name}"
            others[name] = [*([(what, result.path)] if name else []), *result.others]
            if name == names[-1]:
                last = result
            else:
                remarks[name] = remark_lines(name, result.cube)
    assert last is not None
    every = [other for name in names for other in others[name]]
    return last._replace(others=tuple(every), remarks=tuple(line for name in names for line in remarks.get(name, ())))


def _needs(cubes: Sequence[PreparedCube]) -> Iterator[tuple[MemoryNeed, Mesh]]:
    """The memory that each observation of cubes that are made at a time takes, with what waits for the mosaics of the
    others, and its devices."""
    parts = [(part, output_files(part.config, cube.path)) for cube in cubes for part in cube.parts]
    waiting = [
        sum(cube_bytes(part.config, file.n_voxel) for file in files[:-1]) if files[-1].is_mosaic else 0
        for part, files in parts
    ]
    for (part, _), bytes_here in zip(parts, waiting, strict=True):
        yield replace(part.need, host=part.need.host + sum(waiting) - bytes_here), part.pipeline.mesh


def prepare_cubes(
    config: RunConfig, progress: Progress, path: Path | None = None, team: AbstractProcessGroup = SINGLE
) -> Iterator[list[PreparedCube]]:
    """The cubes of a run, loaded, planned and compiled when they are asked for; several at a time where one program
    observes them. Particles are opened once for all observations that they serve.
    """
    whole, waiting = path or config.output.path, cube_runs(config)
    if len(waiting) == 1 and len(waiting[0].seen) == 1:  # keeps only the particles on the devices
        ((name, only),) = waiting[0].seen.items()
        with waiting[0].naming():
            alone = prepare(only, progress, waiting[0].path(whole), team, name)
        with alone as prepared:
            yield [PreparedCube(waiting[0], (prepared,), waiting[0].path(whole))]
        return
    while waiting:
        run = waiting[0]
        first = next(iter(run.seen.values()))
        with ExitStack() as files:  # read with what the first observation needs
            with run.naming():
                resolved, source = _loaded(first, progress, files, team)
            served = _served(waiting, source, resolved, progress)
            if served:
                yield from _prepare_served(served, source, progress, whole)
                names = {cube.run.name for cube in served}
                waiting = [run for run in waiting if run.name not in names]
                continue
            with run.naming():
                (name, _), *others = run.seen.items()
                parts = [plan_and_compile(first, resolved, source, progress, run.path(whole), name=name)]
                parts += [
                    files.enter_context(prepare(arm, progress, run.path(whole), team, name)) for name, arm in others
                ]
            yield [PreparedCube(run, tuple(parts), run.path(whole))]
        waiting = waiting[1:]


class ServedRun(NamedTuple):
    """A cube's run, and what planning each of its observations needs, by name."""

    run: CubeRun
    resolved: Mapping[str, Resolved]
    census: Mapping[str, Census]

    def pipelines(self, info: GalaxyInfo) -> list[Pipeline]:
        """The pipelines of its observations."""
        with self.run.naming():
            return list(plan_together(self.run.seen, self.resolved, self.census, info).values())


def _served(runs: Sequence[CubeRun], source: Source, first: Resolved, progress: Progress) -> list[ServedRun]:
    """The runs that can use these particles, which were opened for the first observation; `first` resolves it.

    Smooth components are made for an instrument, so they serve the first run alone.
    """
    runs = runs[:1] if isinstance(runs[0].config.galaxy, ComponentsReader) else runs
    every = [(run, name, observation) for run in runs for name, observation in run.seen.items()]
    (_, first_name, _), *others = every
    resolved, rules = {first_name: first}, dict[str, CensusRules]()
    for run, name, observation in others:
        with run.naming():
            check_together(observation, source.team)
            resolved[name] = source.team.each(lambda observation=observation: resolve(observation))
            rules[name] = CensusRules.build(observation, resolved[name])
    census = {first_name: source.census}
    if rules:
        with progress.step("load", f"counting particles for {counted(len(others), 'other observation')}") as report:
            census |= zip(rules, source.counted(list(rules.values()), report), strict=True)
    return [
        ServedRun(run, {name: resolved[name] for name in run.seen}, {name: census[name] for name in run.seen})
        for run in runs
        if all(serves(source, observation, census[name]) for name, observation in run.seen.items())
    ]


def _prepare_served(
    served: Sequence[ServedRun], source: Source, progress: Progress, whole: Path
) -> Iterator[list[PreparedCube]]:
    """The cubes of such runs, as many at a time as one program makes: first each cube of joined arms, then the
    others."""
    single = [cube for cube in served if len(cube.run.seen) == 1]
    batches = [[cube] for cube in served if len(cube.run.seen) > 1] + ([single] if single else [])
    for batch in batches:
        with progress.step("plan", "planning the run"):
            groups = alike_groups([pipeline for cube in batch for pipeline in cube.pipelines(source.info)])
            for mesh in dict.fromkeys(group[0].mesh for group in groups):
                connect_devices(mesh, source.team)
        runs = {name: cube.run for cube in batch for name in cube.run.seen}
        prepared = (_prepared_group(group, runs, source, progress, whole) for group in groups)
        if batch is not single:
            every = {name: part for parts, _ in prepared for name, part in parts.items()}
            ((run, _, _),) = batch
            yield [PreparedCube(run, tuple(every[name] for name in run.seen), run.path(whole))]
            continue
        for parts, in_step in prepared:
            cubes = [PreparedCube(runs[name], (part,), runs[name].path(whole)) for name, part in parts.items()]
            yield from [cubes] if in_step else ([cube] for cube in cubes)


def _prepared_group(
    group: Sequence[Pipeline], runs: Mapping[str, CubeRun], source: Source, progress: Progress, whole: Path
) -> tuple[dict[str, Prepared], bool]:
    """The runs of observations by one program, or where there is no memory for it by one for each; whether by one."""
    with progress.step("compile", "compiling"):
        placed = source.placed(group[0])
        program = compile_program(placed, group)
        observers = [Observer(program, number) for number in range(len(group))]
        found = _prepared_by(observers, runs, placed, whole)
        needs = [prepared.need for prepared in found.values()]
        if len(group) == 1 or all(source.team.exchange(lambda: all(map(fits_memory, needs)))):
            return found, True
        observers = [Observer(compile_program(placed, [pipeline])) for pipeline in group]
        return _prepared_by(observers, runs, placed, whole), False


def _prepared_by(
    observers: Sequence[Observer], runs: Mapping[str, CubeRun], placed: Source, whole: Path
) -> dict[str, Prepared]:
    found = {}
    for observer in observers:
        name = observer.pipeline.name
        config = runs[name].seen[name]
        need = _need(config, runs[name].path(whole), observer)
        found[name] = Prepared(config, placed.info, observer, need, ExitStack(), placed)
    return found


def prepare_for_check(
    config: RunConfig, progress: Progress, team: AbstractProcessGroup = SINGLE
) -> Iterator[tuple[str, Prepared]]:
    """Every observation of `prepare_cubes` by name, without making a large synthetic galaxy: each is planned with fewer
    of its particles, and its memory is that of all. Raises ConfigError where there is no memory to make them."""
    reader = config.galaxy
    if not isinstance(reader, SyntheticReader) or max(reader.n_stars, reader.n_gas) <= _MOST_PLANNED:
        yield from _every_part(config, progress, team)
        return
    check_making(reader.n_stars + reader.n_gas, jax.dtypes.canonicalize_dtype(float).itemsize)
    fewer = {name: min(getattr(reader, name), _MOST_PLANNED) for name in ("n_stars", "n_gas")}
    planned = config.model_copy(update={"galaxy": reader.model_copy(update=fewer)})
    for name, prepared in _every_part(planned, progress, team):
        info, mesh = prepared.info, prepared.pipeline.mesh
        n_bytes = 2 * _MOST_COLUMNS * np.dtype(prepared.pipeline.plan.dtype).itemsize
        more = n_bytes * (reader.n_stars - info.n_stars + reader.n_gas - info.n_gas) // prepared.pipeline.layout.n_data
        n_here = len(mesh.local_devices) if mesh.devices.flat[0].platform == "cpu" else 0
        need = MemoryNeed(prepared.need.device + more, prepared.need.host + more * n_here)
        note = Note(
            "run.planned_with_fewer",
            f"planned with {info.n_stars} stars and {info.n_gas} gas particles; the memory is that of all",
        )
        info = replace(info, n_stars=reader.n_stars, n_gas=reader.n_gas, notes=(*info.notes, note))
        yield name, replace(prepared, info=info, need=need)


def _every_part(config: RunConfig, progress: Progress, team: AbstractProcessGroup) -> Iterator[tuple[str, Prepared]]:
    """Every observation by name, with the memory that it takes beside those that are made at a time."""
    for cubes in prepare_cubes(config, progress, team=team):
        needs = _needs(cubes)
        for cube in cubes:
            for name, part in zip(cube.run.seen, cube.parts, strict=True):
                config = cube.run.config if len(cube.parts) > 1 else part.config  # of joined arms one file
                yield name, replace(part, config=config, need=next(needs)[0])


def begin(prepared: Prepared) -> Prepared:
    """Set the devices to work on the only field, while the host does something else; several fields wait.

    Raises ConfigError where there is not enough memory.
    """
    check_memory(prepared.need, prepared.pipeline.mesh)
    return replace(prepared, observer=prepared.observer.begun())


def write_results(prepared: Prepared, path: Path, progress: Progress, team: AbstractProcessGroup = SINGLE) -> Result:
    """Compute what is not computed yet of a run of one observation, and write each cube."""
    config = prepared.config
    cube = PreparedCube(CubeRun("", config, {"": config}), (prepared,), path)
    return write_in_step([cube], progress, team)[0]


def write_in_step(cubes: Sequence[PreparedCube], progress: Progress, team: AbstractProcessGroup) -> list[Result]:
    """Compute and write the cubes of one program, all of them at each pointing."""
    writers = {number: _writing(cube, progress, team) for number, cube in enumerate(cubes)}
    results: dict[int, Result] = {}
    while writers:
        for number, writer in list(writers.items()):
            try:
                next(writer)
            except StopIteration as end:
                results[number] = end.value
                del writers[number]
    return [results[number] for number in range(len(cubes))]


def _writing(prepared: PreparedCube, progress: Progress, team: AbstractProcessGroup) -> Generator[None, None, Result]:
    """Write the cube of each pointing, with a pause after each, and their mosaic."""
    files = output_files(prepared.run.config, prepared.path)
    maps_size = expected_maps_size(prepared.parts[0].pipeline)
    for maps in (file.maps for file in files if file.maps is not None):
        team.in_first(lambda maps=maps: check_writable(maps, maps_size))
    waiting: list[Cube | ShardedCube] = []
    for cube, file in zip(_observed(prepared, progress), files, strict=False):
        _write_together(cube, file, progress, team)
        if files[-1].is_mosaic:
            waiting.append(jax.tree.map(np.asarray, replace(put_together(cube), maps=None)))
        else:
            waiting = [cube]
        yield
    if files[-1].is_mosaic:
        with progress.step("mosaic", f"combining {counted(len(waiting), 'pointing')}"):
            waiting = [make_mosaic([put_together(cube) for cube in waiting])]
        _write_together(waiting[0], files[-1], progress, team)
    pointings = tuple(("Pointing", file.path) for file in files[:-1])
    return Result(waiting[0], files[-1].path, pointings + tuple(other for file in files for other in file.others))


def _observed(prepared: PreparedCube, progress: Progress) -> Iterator[Cube | ShardedCube]:
    """The cube of every pointing, or the only one, each computed when it is asked for; of several arms joined."""
    config, parts = prepared.run.config, [_with_fitted_maps(part, progress) for part in prepared.parts]
    if len(parts) == 1:
        yield from parts[0]
        return
    bins = WavelengthBins.build(config.instrument.wavelength)
    for cubes in zip(*parts, strict=True):
        with progress.step("join", f"joining {len(cubes)} arms"):
            held = [jax.tree.map(np.asarray, put_together(cube)) for cube in cubes]
            joined = join_arms(held, bins, config.instrument.label, config.to_yaml())
            joined = replace(joined, meta=joined.meta.replace(observation=prepared.run.name or None))
        yield joined


def _with_fitted_maps(prepared: Prepared, progress: Progress) -> Iterator[Cube | ShardedCube]:
    for which, cube in prepared.observer.cubes(progress):
        if cube.maps is None or cube.maps.velocity is None:
            yield cube
            continue
        with progress.step("maps", "fitting velocity distributions" + which):
            fitted = cube.maps.fitted()
        yield replace(cube, maps=fitted)


def _write_together(cube: Cube | ShardedCube, file: OutputFile, progress: Progress, team: AbstractProcessGroup) -> None:
    """Parts are written by the processes that have them, a whole cube by process 0."""
    if isinstance(cube, ShardedCube):
        _write(cube, file, progress, team)
    else:
        team.in_first(lambda: _write(cube, file, progress, SINGLE))


def _write(cube: Cube | ShardedCube, file: OutputFile, progress: Progress, team: AbstractProcessGroup) -> None:
    """Write a cube and what goes beside it; of a team, every process its parts and process 0 the maps."""
    beside = "" if file.maps is None or cube.maps is None else f" and {file.maps}"
    with progress.step("write", f"writing {file.path}{beside}"):
        write_cube(cube, file.path, file.layout, team, file.packing, overwrite=True)
        if file.truth is not None:
            write_cube(noiseless(cube), file.truth, team=team, packing=file.packing, overwrite=True)
        if file.maps is not None and cube.maps is not None:
            maps, path = cube.maps, file.maps
            team.exchange(lambda: str(maps.write(path, overwrite=True)) if team.number == 0 else None)
        if file.spectra and cube.fibres is not None:
            layout = cube.fibres.layout
            team.exchange(lambda: str(write_spectra(cube, file.spectra, layout)) if team.number == 0 else None)


def expected_maps_size(pipeline: Pipeline) -> int:
    """Bytes of the file of maps of a run, 0 without `products`."""
    frame = pipeline.frame
    return 0 if frame.products is None else maps_file_size(frame.footprint, frame.products)


def check_lines(prepared: Prepared) -> list[str]:
    """Lines on what a run would do: sizes, memory, devices, notes."""
    pipeline, info = prepared.pipeline, prepared.info
    plan, frame = pipeline.plan, pipeline.frame
    meta, bins = frame.meta, frame.bins
    painted = frame.footprint.painted(plan.margin, plan.cells)
    lines = [
        f"galaxy      {info.name}: {counted(info.n_stars, emitters(meta))}, {counted(info.n_gas, 'gas particle')} "
        f"({info.reader})",
        *([f"ssp         {meta['ssp_library']}"] if "ssp_library" in meta else []),
        f"distance    {meta['luminosity_distance']:.6g} Mpc (redshift {meta['redshift']:g}, {meta['cosmology']}); "
        f"{float(pipeline.tables.arcsec_per_kpc):.4g} arcsec per kpc",
        f"cube        {frame.n_y} x {frame.n_x} spaxels of {frame.pixel_scale:g} arcsec, {plan.n_wave} bins of "
        f"{bins.first:.6g}-{bins.wavelength[-1]:.6g} Angstrom ({bins.medium}, {bins.sampling}); "
        f"painted on {painted.n_y} x {painted.n_x}",
        f"velocities  up to {float(pipeline.velocity_limit):g} km/s",
        f"engine      method {plan.method} ({meta['method_reason']}), deposit {plan.deposit} "
        f"({meta['deposit_reason']}), {plan.dtype}",
        *(f"alignment   {line.removeprefix('Alignment: ')}" for line in alignment_lines(meta)),
        *(f"dust        {line.removeprefix('Dust').lstrip(': ')}" for line in planned_dust_lines(meta)),
        *(f"accuracy    {line.removeprefix('Accuracy: ')}" for line in accuracy_lines(meta)),
        f"particles   {prepared.observer.program.words()}",
        f"devices     {pipeline.mesh.size} x {pipeline.mesh.devices.flat[0].device_kind}{of_processes(pipeline.mesh)}; "
        f"{_layout_words(pipeline)}",
        _memory_line(prepared),
        *_file_lines(prepared),
        *_maps_lines(prepared),
    ]
    return lines + checking_lines((*info.notes, *pipeline.notes))


def _memory_line(prepared: Prepared) -> str:
    info, need, making = prepared.info, prepared.need, None
    if isinstance(prepared.config.galaxy, SyntheticReader):
        making = making_bytes(info.n_stars + info.n_gas, jax.dtypes.canonicalize_dtype(float).itemsize)
    taken, available = format_bytes(process_bytes(need, making)), format_bytes(available_memory())
    return (
        f"memory      about {taken} on this computer, with Python, JAX and programs "
        f"({format_bytes(need.device)} on each device); available {available}"
    )


def _layout_words(pipeline: Pipeline) -> str:
    layout, split = pipeline.layout, pipeline.layout.split
    apart = f", {layout.painted.n_shard} parts of the bins painted apart" if layout.painted.n_shard > 1 else ""
    kept = "the whole cube" if layout.gathered else f"its own {split.n_own} of the {pipeline.plan.n_wave} bins"
    return f"particles in {counted(layout.n_data, 'part')}{apart}; each device keeps {kept}"


def _file_lines(prepared: Prepared) -> list[str]:
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
    spectra = [path.name for file in files for path in file.spectra]
    if spectra:
        size = format_bytes(sum(file.spectra_bytes for file in files))
        lines.append(f"spectra     of the fibres, {size}: {', '.join(spectra)}")
    return [*lines, *([f"truth       {format_bytes(truth)}, in a second file"] if truth else [])]


def _maps_lines(prepared: Prepared) -> list[str]:
    axes = prepared.pipeline.frame.products
    if axes is None:
        reason = why_no_maps(prepared.config)
        return [f"maps        none, as {reason} (output.maps)"] if reason else []
    bins = "" if axes.velocity is None else f", {len(axes.velocity)} velocities up to {axes.velocity[-1]:g} km/s"
    filters = f", images in {', '.join(axes.filters)}" if axes.filters else ""
    others = ["gas"] if axes.has_gas else []
    others += [] if axes.lines is None else [line.name for line in axes.lines.lines]
    fields = "".join(f", {name}" for name in (*others, *(label.name for label in axes.fields)))
    size = format_bytes(expected_maps_size(prepared.pipeline))
    return [f"maps        weighted by light in {axes.band}{bins}{filters}{fields}; {size}"]
