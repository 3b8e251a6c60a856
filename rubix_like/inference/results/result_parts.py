"""Files of results: where they go, and the parts that those of fits and of samplings have in common."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import h5py
import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from rubix_like.config import RunConfig
from rubix_like.config.file_layouts import file_size, find_format
from rubix_like.config.sections.fit import CorrelatedSettings
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import in_parts
from rubix_like.cube.files.cube_files import write_cube
from rubix_like.cube.files.hdf5_cube import read_group, write_group
from rubix_like.errors import ConfigError
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.checks.verdict import Quality, SetVerdict, Verdict
from rubix_like.inference.described_trees import add_dataset, numbers_of, read_tree, texts_of, write_tree
from rubix_like.inference.posterior.free import Free, FreeParameter, read_prior
from rubix_like.inference.posterior.free_parameters import read_correlated
from rubix_like.inference.posterior.priors import section_of
from rubix_like.inference.samplers.predictive import Pointwise
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5, writing_hdf5
from rubix_like.runtime.files.outputs import check_writable, date_words, replacing, with_addition
from rubix_like.runtime.files.writers import CREATOR, CUBE, check_outputs, configuration_words
from rubix_like.runtime.words import reason_of

GROUP: str = "data_sets"
"""Of a result's file."""

POINTWISE: str = "log_likelihood"
"""The group of ln(likelihood) point by point."""


@dataclass(frozen=True, eq=False)
class SetResult:
    """One of several sets of data.

    | field | |
    |---|---|
    | kind | cube, image or spectrum |
    | model, residual | Cubes on the grid of its data, as those of the whole result; of an image (y, x, 1), of a |
    | | spectrum (1, 1, wave) |
    | predictive | of samples: what the data should be; None of a fit |
    | pointwise | of samples: ln(likelihood) of each spaxel or voxel at some of the draws; None: not asked for, or the |
    | | errors of its voxels are correlated |
    """

    kind: str
    model: Cube
    residual: Cube
    predictive: Cube | None = None
    pointwise: Pointwise | None = None

    @property
    def cubes(self) -> dict[str, Cube]:
        """Its cubes by name."""
        found = {"model": self.model, "predictive": self.predictive, "residual": self.residual}
        return {name: cube for name, cube in found.items() if cube is not None}


def place_of_set(path: Path, name: str) -> Path:
    """The file of a set's cube beside that of the first cube: fit_model_NAME.fits."""
    return with_addition(path, f"_{name}")


def places_of_sets(names: Iterable[str] | None, paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files of the cubes of all sets; none of one cube (None)."""
    return tuple(place_of_set(path, name) for path in paths for name in names or ())


def cubes_of_sets(sets: Mapping[str, SetResult], paths: Mapping[str, Path]) -> dict[Path, Cube]:
    """The cubes of all sets by their files; `paths`: what they show -> the file of the first cube's."""
    return {place_of_set(path, name): own.cubes[what] for name, own in sets.items() for what, path in paths.items()}


def write_sets(sets: Mapping[str, SetResult], verdicts: Mapping[str, SetVerdict], file: Any) -> None:
    """The group `data_sets` with the cubes of each set, and what is said of it; none without sets."""
    if not sets:
        return
    group = file.create_group(GROUP, track_order=True)
    for name, own in sets.items():
        place = group.create_group(name)
        place.attrs["kind"] = own.kind
        if name in verdicts:
            write_tree(verdicts[name], place)
        for what, cube in own.cubes.items():
            write_group(in_parts(cube), place.create_group(what))
        if own.pointwise is not None:
            write_tree(own.pointwise, place.create_group(POINTWISE))


def read_set_results(file: Any) -> dict[str, SetResult]:
    """The results that `write_sets` wrote; empty where there is one cube."""
    found = {}
    for name, place in file.get(GROUP, {}).items():
        cubes = {what: read_group(place[what]) for what in ("model", "residual", "predictive") if what in place}
        pointwise = Pointwise(**read_tree(Pointwise, place[POINTWISE])) if POINTWISE in place else None
        found[name] = SetResult(str(place.attrs["kind"]), **cubes, pointwise=pointwise)
    return found


@runtime_checkable
class Writable(Protocol):
    """A result that has a file."""

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the result to its places."""
        ...


def check_places(places: Iterable[Path], cube: Path, shape: tuple[int, int, int]) -> None:
    """Raise OSError if they cannot be written, with cubes of the shape of `cube`."""
    size = file_size(find_format(cube, "default"), shape, noise=True)
    for path in places:
        check_writable(path, 6 * size)


def check_results(
    kind: str, result: Path, cubes: Iterable[Path], config: RunConfig, setting: str, *, overwrite: bool
) -> None:
    """Raise ConfigError, naming `setting`, where the file of a result or of its cubes is there and is not replaced."""
    maker = configuration_words(config.output.configuration)
    check_outputs([result], [kind], setting, overwrite=overwrite, maker=maker)
    check_outputs(cubes, [CUBE], setting, overwrite=overwrite, maker=maker)


def result_lines(path: Path, name: str) -> list[str]:
    """How to look at the file of a result, of the public class `name`."""
    return [
        f"Look at it: rubix-like plot {shlex.quote(str(path))}",
        f"In Python: result = rubix_like.{name}.read({str(path)!r})",
    ]


def write_in_order(result: Writable, place: Path, cubes: Mapping[Path, Cube], checkpoints: Iterable[Path]) -> None:
    """The cubes, and the result last, so that what has a result is complete; then the checkpoints go."""
    for path, cube in cubes.items():
        write_cube(cube, path, overwrite=True)
    result.write(place, overwrite=True)
    for checkpoint in checkpoints:
        checkpoint.unlink(missing_ok=True)


TEXT = h5py.string_dtype()


@dataclass(frozen=True)
class ResultKind:
    """A kind of file.

    `format`, `layout`: attributes by which it is known (the second is to be raised when what is in it changes);
    `description`: the attribute that says what it holds; of errors, `name`: what it is called, `writers`: what makes
    such a file, `place`: which setting says where. `fill` writes a result into an open file, `parse` reads it.
    """

    format: str
    layout: int
    description: str
    name: str
    writers: str
    place: str
    fill: Callable[[Any, Any], None]
    parse: Callable[[Any], Any]

    def write(self, result: Any, path: Path, *, overwrite: bool = False) -> Path:
        """Write a result, whole or not at all; raises ConfigError for a name of another suffix and (without
        `overwrite`) where there is a file of another kind, OSError with the remedy where it cannot be written."""
        path = path.expanduser()
        if path.suffix.lower() not in {".h5", ".hdf5"}:
            raise ConfigError(f"path: expected a path that ends in .h5 or .hdf5, got '{path}'")
        check_outputs([path], [self.format], overwrite=overwrite)
        known = {name: getattr(self, name) for name in ("format", "layout", "description")}
        known["configuration"] = result.model.meta.get("configuration") or ""
        with replacing(path) as temporary, writing_hdf5(temporary) as file:
            file.attrs.update({**known, "creator": CREATOR, "date": date_words()})
            self.fill(result, file)
        return path

    def read(self, path: Path) -> Any:
        """The result in a file; FileNotFoundError, or ValueError if it is no complete file of this kind.

        float64 needs 64-bit numbers switched on in JAX, else arrays of JAX are float32.
        """
        path = path.expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"no such result: {path}; check the path ({self.place})")
        try:
            with opened_hdf5(path) as file:
                form, layout = file.attrs.get("format"), file.attrs.get("layout")
                if form != self.format:
                    raise ValueError(f"its attribute 'format' is {form!r}, not {self.format!r}")
                if layout != self.layout:
                    raise ValueError(
                        f"its layout is {layout}, that of another version; this one reads layout {self.layout}: "
                        f"run it again"
                    )
                return self.parse(file)
        except UNREADABLE as error:
            raise ValueError(
                f"{path} is not a complete {self.name} ({reason_of(error)}); expected an HDF5 file written by "
                f"{self.writers}; open others with h5py"
            ) from error


class Column(NamedTuple):
    """One array of every parameter: values by name, what they are; `pure`: numbers without the parameter's unit."""

    values: Mapping[str, Shaped[ndarray, "..."]]
    meaning: str
    pure: bool = False


def write_free(free: Free, columns: Mapping[str, Column], file: Any) -> None:
    """The group `parameters`, with the columns of each, its unit and its prior; and the labels."""
    parameters = file.create_group("parameters", track_order=True)
    for parameter in free.parameters:
        group = parameters.create_group(parameter.name)
        group.attrs.update({"unit": parameter.unit, "description": parameter.meaning})
        for name, column in columns.items():
            add_dataset(
                group, name, column.values[parameter.name], column.meaning, "" if column.pure else parameter.unit
            )
        prior = json.dumps(section_of(parameter.prior))
        add_dataset(
            group, "prior", prior, "the prior as in the section fit.free, {kind: numbers in the unit}", dtype=TEXT
        )
    if free.correlated:
        groups = []
        for correlated in free.correlated:
            half = np.asarray(correlated.half)
            groups.append({"parameters": correlated.names, "correlation": (half @ half.T).tolist()})
        meaning = "groups of priors that are correlated, as fit.correlated"
        add_dataset(file, "correlated", json.dumps(groups), meaning, dtype=TEXT)
    meaning = "names of the free numbers, in the order of matrices and of the latents"
    add_dataset(file, "labels", list(free.labels), meaning, dtype=TEXT)


def read_free_from_file(file: Any, of: str) -> Free:
    """The free parameters of a file; `of`: a column that has their shape."""
    parameters = []
    for name, own in file["parameters"].items():
        section = json.loads(texts_of(own["prior"]))
        unit, meaning = (str(own.attrs[what]) for what in ("unit", "description"))
        parameters.append(FreeParameter(read_prior(name, section, unit), name, own[of].shape, unit, meaning))
    groups = json.loads(texts_of(file["correlated"])) if "correlated" in file else []
    return Free(tuple(parameters), read_correlated(map(CorrelatedSettings.model_validate, groups), parameters))


def read_column(file: Any, column: str, *, finite: bool = False) -> dict[str, ndarray]:
    """One array of every parameter; h5py gives scalars where there were arrays without axes."""
    return {name: numbers_of(group[column], finite=finite) for name, group in file["parameters"].items()}


def check_alike(one: Mapping[str, ndarray], other: Mapping[str, ndarray], what: str) -> None:
    """Raise ValueError where two arrays of a parameter differ in shape."""
    for name in one:
        if one[name].shape != other[name].shape:
            raise ValueError(f"{name}: {what}: expected shape {one[name].shape}, got {other[name].shape}")


def write_best(latent: ndarray, laplace: Laplace | None, group: Any) -> None:
    """The best latents and, where there is one, the Gaussian approximation about them."""
    add_dataset(group, "best", latent, "the best values as latents, whose priors are N(0, 1)")
    if laplace is not None:
        write_tree(laplace, group)


def read_best(free: Free, group: Any) -> tuple[ndarray, Laplace | None]:
    """The latents and their approximation that `write_best` wrote."""
    size = len(free.labels)
    latent = numbers_of(group["best"], (size,), finite=True)
    if "covariance" not in group:
        return latent, None
    return latent, Laplace(free=free, latent=latent, **read_tree(Laplace, group, {"latent": size}))


def write_shared(result: Any, verdict: str, cubes: Sequence[str], file: Any) -> None:
    """Write what results of fits and of samplings have alike: the quality as attributes, the verdict with the first
    line of the summary, these cubes, what was run, with what, and the notes."""
    quality = result.quality
    write_tree(quality, file)
    file.attrs.update({"degrees_of_freedom": quality.degrees_of_freedom, "reduced_chi_square": quality.reduced})
    group = file.create_group("verdict")
    write_tree(result.verdict, group)
    group.attrs.update({"text": verdict, "misfit": result.verdict.misfit, "matters": result.verdict.matters})
    add_dataset(
        group, "tests", list(result.verdict.tests), "names of the tests", dtype=TEXT, shape=(len(result.verdict.tests),)
    )
    found = np.array(list(result.verdict.tests.values()), float)
    add_dataset(group, "probabilities", found, "of such residuals, if the model is true, by each of the tests")
    add_dataset(group, "doubtful", result.verdict.doubtful, "which numbers have too small an uncertainty")
    for name in cubes:
        write_group(in_parts(getattr(result, name)), file.create_group(name))
    write_sets(result.sets, result.verdict.sets, file)
    file["config"] = result.config
    file.create_dataset("notes", data=list(result.notes), dtype=TEXT, shape=(len(result.notes),))
    packages = file.create_group("versions", track_order=True)
    for package, version in result.versions.items():
        packages[package] = version


def read_shared(file: Any, n_number: int, cubes: Sequence[str], with_variance: Sequence[str]) -> dict[str, Any]:
    """The fields of a result with this number of latents that `write_shared` wrote, by name.

    Raises ValueError for arrays of other shapes, and where one of the cubes `with_variance` has none.
    """
    group = file["verdict"]
    groups = file.get(GROUP, {}).items()
    sets = {name: SetVerdict(**read_tree(SetVerdict, place)) for name, place in groups if "p" in place.attrs}
    names, found = texts_of(group["tests"]), numbers_of(group["probabilities"]).tolist()
    tests = dict(zip(names, found, strict=True))
    return {
        "quality": Quality(**read_tree(Quality, file)),
        "verdict": Verdict(tests=tests, sets=sets, **read_tree(Verdict, group, {"latent": n_number})),
        **_read_cubes(file, cubes, with_variance),
        "sets": read_set_results(file),
        "config": texts_of(file["config"]),
        "versions": {package: texts_of(data) for package, data in file["versions"].items()},
        "notes": tuple(texts_of(file["notes"])),
    }


def _read_cubes(file: Any, names: Sequence[str], with_variance: Sequence[str]) -> dict[str, Cube]:
    """The cubes, by the names of their groups; ValueError where they differ in shape, or one lacks its variance."""
    cubes = {name: read_group(file[name]) for name in names}
    for name, cube in cubes.items():
        expected = np.shape(cubes[names[0]].flux)
        if np.shape(cube.flux) != expected:
            raise ValueError(
                f"{name}/flux: expected the shape of {names[0]}/flux, {expected}, got {np.shape(cube.flux)}"
            )
        if name in with_variance and cube.variance is None:
            raise ValueError(f"{name}/variance: expected a variance in every voxel, got none")
    return cubes
