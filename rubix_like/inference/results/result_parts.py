"""The parts that files of results have in common: parameters by name, latents, where they come from, errors."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from rubix_like.config.sections.fit import CorrelatedSettings
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import in_parts
from rubix_like.cube.files.hdf5_cube import read_group, write_group
from rubix_like.errors import ConfigError
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.checks.verdict import SetVerdict, Verdict
from rubix_like.inference.described_trees import add_dataset, numbers_of, read_tree, texts_of, write_tree
from rubix_like.inference.posterior.free import Free, FreeParameter, read_prior
from rubix_like.inference.posterior.free_parameters import read_correlated
from rubix_like.inference.posterior.prior_kinds import section_of
from rubix_like.inference.posterior.quality import Quality
from rubix_like.inference.results.set_result import read_set_results, read_set_verdicts, write_sets
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5, writing_hdf5
from rubix_like.runtime.files.outputs import date_words, replacing
from rubix_like.runtime.files.writers import CREATOR, check_outputs
from rubix_like.runtime.words import reason_of

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
                self._check(file)
                return self.parse(file)
        except UNREADABLE as error:
            raise ValueError(
                f"{path} is not a complete {self.name} ({reason_of(error)}); expected an HDF5 file written by "
                f"{self.writers}; open others with h5py"
            ) from error

    def _check(self, file: Any) -> None:
        """Raise ValueError for a file of another kind, or of another layout."""
        form, layout = file.attrs.get("format"), file.attrs.get("layout")
        if form != self.format:
            raise ValueError(f"its attribute 'format' is {form!r}, not {self.format!r}")
        if layout != self.layout:
            raise ValueError(
                f"its layout is {layout}, that of another version; this one reads layout {self.layout}: run it again"
            )


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
    _write_verdict(result.verdict, verdict, file.create_group("verdict"))
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
    return {
        "quality": Quality(**read_tree(Quality, file)),
        "verdict": _read_verdict(file["verdict"], n_number, read_set_verdicts(file)),
        **_read_cubes(file, cubes, with_variance),
        "sets": read_set_results(file),
        "config": texts_of(file["config"]),
        "versions": {package: texts_of(data) for package, data in file["versions"].items()},
        "notes": tuple(texts_of(file["notes"])),
    }


def _write_verdict(verdict: Verdict, text: str, group: Any) -> None:
    """Whether the model describes the data."""
    write_tree(verdict, group)
    group.attrs.update({"text": text, "misfit": verdict.misfit, "matters": verdict.matters})
    add_dataset(group, "tests", list(verdict.tests), "names of the tests", dtype=TEXT, shape=(len(verdict.tests),))
    found = np.array(list(verdict.tests.values()), float)
    add_dataset(group, "probabilities", found, "of such residuals, if the model is true, by each of the tests")
    add_dataset(group, "doubtful", verdict.doubtful, "which numbers have too small an uncertainty")


def _read_verdict(group: Any, count: int, sets: Mapping[str, SetVerdict]) -> Verdict:
    names, found = texts_of(group["tests"]), numbers_of(group["probabilities"]).tolist()
    tests = dict(zip(names, found, strict=True))
    return Verdict(tests=tests, sets=sets, **read_tree(Verdict, group, {"latent": count}))


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
