"""The files of a run: those that it reads, and names and sizes of those that it writes, known before it computes."""

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from rubix_like.config import ProductsSettings, RunConfig, load_pipeline
from rubix_like.config.file_layouts import UNPACKED, Packing, check_packing, check_several, file_size, find_format
from rubix_like.config.loading import arms_of, naming_observation, observations_of
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_files import correlation_bytes, fibres_bytes
from rubix_like.cube.files.maps_file import maps_file_size, maps_path
from rubix_like.cube.footprint import AbstractGridded, Footprint
from rubix_like.cube.mosaic_noise import Field, grid_around
from rubix_like.cube.survey_files.spectra_files import spectra_bytes, spectra_paths
from rubix_like.errors import ConfigError
from rubix_like.instrument.crowding import paints_stars
from rubix_like.instrument.fibres.bundle import cube_weights, fibre_places
from rubix_like.instrument.pointing import pointings_of
from rubix_like.readers.containers.snapshot_files import sisters
from rubix_like.runtime.files.outputs import Named, check_writable, paths_in, with_addition
from rubix_like.runtime.files.writers import CUBE, FOREIGN, MAPS, check_outputs, configuration_words
from rubix_like.runtime.notes import Note, note_lines
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.words import percent
from rubix_like.ssp.formats import SHELF

_OF_RUNS = (CUBE, FOREIGN, MAPS)
"""Kinds of files that runs write."""


def named_paths(config: RunConfig) -> Iterator[Named]:
    """Every path among the settings, and the library of spectra that is no packaged one.

    Not those of `output`, which are written, nor of `fit`, which a run does not look at.
    """
    yield from paths_in(config.model_dump(exclude={"output", "fit"}))
    library = config.ssp.library
    if library not in SHELF.embedded:
        yield "ssp.library", SHELF.locate(library)


def named_files(config: RunConfig) -> Iterator[Named]:
    """The files that these paths stand for."""
    for name, path in named_paths(config):
        yield from ((name, file) for file in files_at(path) or [path])


def files_at(path: Path) -> list[Path]:
    """The files that a path may stand for: those of a folder or a pattern, a numbered one with its sisters."""
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file())
    if path.is_file():
        return sisters(path)
    return sorted(file for file in map(Path, glob.glob(str(path))) if file.is_file())


@dataclass(frozen=True)
class OutputFile(AbstractGridded):
    """A cube that a run will write, and what goes beside it.

    `truth`: the noiseless cube, in the layout 'default'; None where there is none, or the same file holds it.
    `spectra`: files of the spectra of fibres that it is made of.
    """

    path: Path
    footprint: Footprint
    n_wave: int
    n_bytes: int
    layout: str = "default"
    packing: Packing = UNPACKED
    truth: Path | None = None
    truth_bytes: int = 0
    is_mosaic: bool = False
    maps: Path | None = None
    spectra: tuple[Path, ...] = ()
    spectra_bytes: int = 0

    @property
    def others(self) -> tuple[tuple[str, Path], ...]:
        """The files beside the cube."""
        spectra = (("Fibre spectra", path) for path in self.spectra)
        found = (("Noiseless cube", self.truth), ("Maps", self.maps), *spectra)
        return tuple((what, path) for what, path in found if path is not None)

    @property
    def n_voxel(self) -> int:
        """Voxels of the cube."""
        return self.footprint.n_element * self.n_wave


@dataclass(frozen=True)
class CubeRun:
    """A cube that a run writes; with several pointings, one for each.

    `config`: its configuration; `seen`: the configurations of the observations that it is made of, by name: one, or
    that of each joined arm. `name`: empty for a run of one cube; `observation`: its name in `observations`, or empty.
    """

    name: str
    config: RunConfig
    seen: Mapping[str, RunConfig]
    observation: str = ""

    def naming(self) -> AbstractContextManager[None]:
        """Names the observation in every ConfigError raised inside."""
        return naming_observation(self.observation)

    def path(self, path: Path) -> Path:
        """The file of the cube, of a run that is written to `path`."""
        return with_addition(path, f"_{self.name}") if self.name else path


def cube_runs(config: RunConfig) -> list[CubeRun]:
    """The cubes of a run: one, or one for each of its observations, and of their arms that are not joined."""
    several = observations_of(config)
    if not several:
        return [CubeRun("", config, arms_of(config) or {"": config})]
    found = []
    for name, observation in several.items():
        for run in cube_runs(with_default_maps(observation)):
            long = f"{name}_{run.name}" if run.name else name
            seen = {f"{name}_{arm}" if arm else name: config_ for arm, config_ in run.seen.items()}
            found.append(CubeRun(long, run.config, seen, name if config.observations is not None else ""))
    return found


def output_files(config: RunConfig, path: Path) -> tuple[OutputFile, ...]:
    """The cubes of a run in the order in which they are written: those of the pointings, then the mosaic.

    A run of several observations writes those of each, called after `path` and the observation; so do arms that are
    not joined.
    A run with one field writes one cube, `path`. With several, the cube of each is called after `path` and the
    pointing's name or number, cube_1.fits, and `path` is the mosaic, unless `observation.mosaic` is false.
    Maps are made of each pointing, not of the mosaic.
    """
    path = path.expanduser()
    find_format(path, config.output.layout)  # refuses what is no file's name, before others are called after it
    runs = cube_runs(config)
    if runs[0].name:
        return tuple(file for run in runs for file in output_files(run.config, run.path(path)))
    pointings = pointings_of(config.observation)
    footprint = Footprint.build(config.instrument)
    chosen = config.output.maps
    maps = None if config.products is None or chosen is False else maps_path(path, chosen)
    if len(pointings) < 2:
        return (replace(_file(config, path, footprint), maps=maps),)
    files = tuple(
        replace(
            _file(config, with_addition(path, f"_{pointing.name}"), footprint),
            maps=None if maps is None else with_addition(maps, f"_{pointing.name}"),
        )
        for pointing in pointings
    )
    if not config.observation.mosaic:
        return files
    fields = [Field(pointing.offset, pointing.field_angle, footprint) for pointing in pointings]
    grid = grid_around(pointings[0].reference, fields)
    return (*files, _file(config, path, grid.footprint, is_mosaic=True))


def check_output(
    config: RunConfig, path: Path, n_processes: int = 1, read: Sequence[Named] = (), *, overwrite: bool = False
) -> list[Path]:
    """The files of a run; ConfigError or OSError where they cannot be written at `path` or under the names made
    from it.

    `n_processes`: how many write each cube together; `read` and `overwrite` as in `check_replaced`.
    """
    files = output_files(config, path)
    for file in files:
        check_several(file.path, n_processes, file.packing)
        package = find_format(file.path, file.layout).package
        if package is not None:
            import_optional(package, f"output.path: '{file.path.name}'")
    every = check_replaced(config, path, read, overwrite=overwrite)
    for file_path in every:
        if every.count(file_path) > 1:
            raise ConfigError(
                f"output: expected another file for every cube and its maps, got '{file_path}' for two of them; change "
                f"output.path, output.maps, or the name of a pointing or observation"
            )
        check_writable(file_path, sum(file.n_bytes + file.truth_bytes + file.spectra_bytes for file in files))
    return every


def check_replaced(config: RunConfig, path: Path, read: Sequence[Named] = (), *, overwrite: bool = False) -> list[Path]:
    """Every file that a run writes; raises ConfigError where one of them is read, or (without `overwrite`) is a file
    of another configuration or program.

    Configurations are told apart by the name of their file (`output.configuration`); those without one, given in
    Python, count as one. `read`: files beside those that the settings name which must not be replaced.
    """
    files = output_files(config, path)
    every = [written for file in files for written in (file.path, *(other for _, other in file.others))]
    maker = configuration_words(config.output.configuration)
    check_outputs(every, _OF_RUNS, "output", (*named_files(config), *read), overwrite=overwrite, maker=maker)
    return every


def cube_bytes(config: RunConfig, n_voxel: int) -> int:
    """Bytes of a cube on the host: flux and mask, with noise the variance, and the truth where it is kept."""
    flux = 8 if config.engine.precision == "float64" else 4
    n_arrays = 1 + (config.noise is not None) + config.keeps_truth + _n_contribution(config)
    return n_voxel * (flux * n_arrays + 4)


def _file(config: RunConfig, path: Path, footprint: Footprint, *, is_mosaic: bool = False) -> OutputFile:
    n_wave = config.instrument.wavelength.n_wave
    shape = (*footprint.shape, n_wave)
    layout, chosen = config.output.layout, find_format(path, config.output.layout)
    noise, wide = config.noise is not None, config.engine.precision == "float64"
    n_bytes = file_size(chosen, shape, noise=noise, truth=config.keeps_truth, float64=wide)
    fibres = None if is_mosaic else config.instrument.fibres
    if fibres is not None and (layout != "default" or chosen.keeps_fibres):
        weights, bins = cube_weights(fibres.cube, fibre_places(fibres), footprint), config.instrument.wavelength
        total = correlation_bytes(weights, config.output.layout, WavelengthBins.build(bins))
        if chosen.keeps_fibres:
            number = 8 if config.engine.precision == "float64" else 4
            bytes_per_bin = number * (1 + (config.noise is not None) + config.keeps_truth)
            bytes_per_bin += 4 * (config.systematics is not None)
            total += 16 * bins.n_wave * len(fibres.dithers) * (fibres.refraction is not None)
            total += fibres_bytes(weights, bins.n_wave, bytes_per_bin)
        n_bytes += total
    truth, truth_bytes = None, 0
    if config.keeps_truth and not chosen.keeps_all:
        truth = with_addition(path, "_truth")
        truth_bytes = file_size(find_format(truth, "default"), shape, noise=False)
        truth_bytes += _n_contribution(config) * 4 * footprint.n_element * n_wave
    packing = config.output.packing
    for file in (path, truth):
        if file is not None:
            check_packing(chosen if file is path else find_format(file, "default"), file, packing)
    spectra = spectra_paths(path, fibres)
    return OutputFile(
        path,
        footprint,
        n_wave,
        n_bytes,
        layout,
        packing,
        truth,
        truth_bytes,
        is_mosaic,
        spectra=spectra,
        spectra_bytes=0 if fibres is None else spectra_bytes(fibres, n_wave),
    )


def _n_contribution(config: RunConfig) -> int:
    """How many images of systematic errors are kept beside the truth."""
    return 0 if config.systematics is None else config.systematics.n_kept


_LARGEST_SHARE = 0.1
"""Of the cube's file, which maps take at most where nobody asks for them."""

_PLAIN = ProductsSettings(losvd=None)
"""Light, velocity, dispersion, ages, metallicities and masses; no velocity distributions."""


def with_default_maps(config: RunConfig) -> RunConfig:
    """The run with the plain maps that `output.maps` stands for: as it is where it has `products`.

    Call it for one run, not for those of a catalogue.
    """
    if config.observations is not None:  # each for itself: `cube_runs`
        return config
    if config.products is not None or config.output.maps is False or why_no_maps(config):
        return config
    return config.model_copy(update={"products": _PLAIN})


def with_asked_maps(config: RunConfig) -> RunConfig:
    """The configuration for a run of a catalogue, which makes maps only where they are asked for."""
    return config if config.output.maps == "auto" else with_default_maps(config)


def why_no_maps(config: RunConfig) -> str:
    """Why a run makes no maps unasked, in words; empty where it makes them.

    They are cheap where their file is at most a tenth of the fluxes of the cube in 32 bits: about as many numbers of
    every spaxel are summed, convolved and written.
    """
    if config.products is not None or config.output.maps != "auto":
        return ""
    if config.instrument.join:
        return "the arms are joined"
    if not paints_stars(load_pipeline(config.pipeline)):
        return "the pipeline paints no stars"
    if config.devices.is_sharded:
        return "the cube is spread over the devices"
    if len(config.observation.pointings or ()) > 1:
        return "there are several pointings"
    footprint = Footprint.build(config.instrument)
    share = maps_file_size(footprint) / (4 * footprint.n_element * config.instrument.wavelength.n_wave)
    return "" if share <= _LARGEST_SHARE else f"they would take {percent(share)} of what the cube takes"


def missing_maps_lines(config: RunConfig) -> list[str]:
    """A note for the end of a run that makes no maps, though nobody said so."""
    if config.observations is not None:
        runs = [(run.name, why_no_maps(run.config)) for run in cube_runs(config)]
        where = [f"the cube of {name}, as {reason}" for name, reason in runs if reason]
    else:
        reason = why_no_maps(config)
        remedy = "observe one of them (instrument.arm)" if config.instrument.join else "output.maps: true makes them"
        where = [f"the cube, as {reason}; {remedy}"] if reason else []
    return note_lines(Note("products.no_maps", f"no maps beside {place}") for place in where)
