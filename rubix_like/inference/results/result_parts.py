"""What the files of results have in common: parameters by name, latents, where they come from, errors."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import h5py
import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.files.hdf5_cube import read_group
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.checks.verdict import Verdict
from rubix_like.inference.described_trees import describe_dataset, numbers_of, read_tree, write_tree
from rubix_like.inference.posterior.free import Free, FreeParameter, read_prior
from rubix_like.inference.posterior.priors import section_of
from rubix_like.inference.posterior.quality import Quality
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import replacing
from rubix_like.runtime.files.writers import CREATOR
from rubix_like.runtime.files.writing_date import date_words
from rubix_like.runtime.words import reason_of

Result = TypeVar("Result")

TEXT = h5py.string_dtype()


class ResultKind(NamedTuple):
    """A kind of file.

    `format`, `layout`: attributes by which it is known (the second is to be raised when what is in it changes);
    `description`: the attribute that says what it holds; of errors, `name`: what it is called, `writers`: what makes
    such a file, `place`: which setting says where.
    """

    format: str
    layout: int
    description: str
    name: str
    writers: str
    place: str


class Column(NamedTuple):
    """One array of every parameter: values by name, what they are; `pure`: numbers without the parameter's unit."""

    values: Mapping[str, Shaped[ndarray, "..."]]
    meaning: str
    pure: bool = False


def write_whole(path: Path, kind: ResultKind, write: Callable[[Any], None]) -> Path:
    """Write a file of this kind, whole or not at all; raises OSError with the remedy where it cannot be written."""
    path = path.expanduser()
    with replacing(path) as temporary:
        try:
            with h5py.File(temporary, "w", rdcc_nbytes=0) as file:
                file.attrs.update(
                    {
                        "format": kind.format,
                        "layout": kind.layout,
                        "creator": CREATOR,
                        "date": date_words(),
                        "description": kind.description,
                    }
                )
                write(file)
        except RuntimeError as error:  # from closing a file that could not be written, with the OSError as its context
            raise OSError(f"HDF5: {error}") from error
    return path


def read_whole(path: Path, kind: ResultKind, read: Callable[[Any], Result]) -> Result:
    """What `read` makes of an open file of this kind; FileNotFoundError, or ValueError if it is not a complete one."""
    path = path.expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such result: {path}; check the path ({kind.place})")
    try:
        with opened_hdf5(path) as file:
            _check_kind(file, kind)
            return read(file)
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete {kind.name} ({reason_of(error)}); expected an HDF5 file written by "
            f"{kind.writers}; open others with h5py"
        ) from error


def _check_kind(file: Any, kind: ResultKind) -> None:
    """Raise ValueError for a file of another kind, or of another layout."""
    form, layout = file.attrs.get("format"), file.attrs.get("layout")
    if form != kind.format:
        raise ValueError(f"its attribute 'format' is {form!r}, not {kind.format!r}")
    if layout != kind.layout:
        raise ValueError(
            f"its layout is {layout}, that of another version; this one reads layout {kind.layout}: run it again"
        )


def write_free(free: Free, columns: Mapping[str, Column], file: Any) -> None:
    """The group `parameters`, with the columns of each, its unit and its prior; and the labels."""
    parameters = file.create_group("parameters", track_order=True)
    for own in free.parameters:
        group = parameters.create_group(own.name)
        group.attrs.update({"unit": own.unit, "description": own.meaning})
        for name, column in columns.items():
            data = group.create_dataset(name, data=column.values[own.name])
            describe_dataset(data, "" if column.pure else own.unit, column.meaning)
        prior = group.create_dataset("prior", data=json.dumps(section_of(own.prior)), dtype=TEXT)
        describe_dataset(prior, "", "the prior as in the section fit.free, {kind: numbers in the unit}")
    labels = file.create_dataset("labels", data=list(free.labels), dtype=TEXT)
    describe_dataset(labels, "", "names of the free numbers, in the order of matrices and of the latents")


def read_free_from_file(file: Any, of: str) -> Free:
    """The free parameters of a file; `of`: a column that has their shape."""
    parameters = []
    for name, own in file["parameters"].items():
        section = json.loads(own["prior"].asstr()[()])
        unit, meaning = (str(own.attrs[what]) for what in ("unit", "description"))
        parameters.append(FreeParameter(read_prior(name, section, unit), name, own[of].shape, unit, meaning))
    return Free(tuple(parameters))


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
    best = group.create_dataset("best", data=latent)
    describe_dataset(best, "", "the best values as latents, whose priors are N(0, 1)")
    if laplace is None:
        return
    write_tree(laplace, group)


def read_best(free: Free, group: Any) -> tuple[ndarray, Laplace | None]:
    """What `write_best` wrote."""
    size = len(free.labels)
    latent = numbers_of(group["best"], (size,), finite=True)
    if "covariance" not in group:
        return latent, None
    return latent, Laplace(free=free, latent=latent, **read_tree(Laplace, group, {"latent": size}))


def write_origin(config: str, versions: Mapping[str, str], notes: tuple[str, ...], file: Any) -> None:
    """What was run, with what, and what should be known of it."""
    file["config"] = config
    file.create_dataset("notes", data=list(notes), dtype=TEXT, shape=(len(notes),))
    packages = file.create_group("versions", track_order=True)
    for package, version in versions.items():
        packages[package] = version


def read_origin(file: Any) -> dict[str, Any]:
    """`config`, `versions` and `notes`."""
    return {
        "config": file["config"].asstr()[()],
        "versions": {package: data.asstr()[()] for package, data in file["versions"].items()},
        "notes": tuple(file["notes"].asstr()[()]),
    }


def write_quality(quality: Quality, file: Any) -> None:
    """How well the model fits, as attributes."""
    own = {"degrees_of_freedom": quality.degrees_of_freedom, "reduced_chi_square": quality.reduced}
    write_tree(quality, file)
    file.attrs.update(own)


def write_verdict(verdict: Verdict, text: str, file: Any) -> None:
    """Whether the model describes the data, in the group `verdict`; `text`: the first line of the summary."""
    group = file.create_group("verdict")
    write_tree(verdict, group)
    group.attrs.update({"text": text, "misfit": verdict.misfit, "matters": verdict.matters})
    names = group.create_dataset("tests", data=list(verdict.tests), dtype=TEXT, shape=(len(verdict.tests),))
    describe_dataset(names, "", "names of the tests")
    found = group.create_dataset("probabilities", data=np.array(list(verdict.tests.values()), float))
    describe_dataset(found, "", "of such residuals, if the model is true, by each of the tests")
    describe_dataset(
        group.create_dataset("doubtful", data=verdict.doubtful), "", "which numbers have too small an uncertainty"
    )


def read_verdict(file: Any, count: int) -> Verdict:
    """What `write_verdict` wrote, for this number of latents; raises ValueError for arrays of other shapes."""
    group = file["verdict"]
    names, found = group["tests"].asstr()[()], numbers_of(group["probabilities"]).tolist()
    return Verdict(tests=dict(zip(names, found, strict=True)), **read_tree(Verdict, group, {"latent": count}))


def read_quality(file: Any) -> Quality:
    """What `write_quality` wrote."""
    return Quality(**read_tree(Quality, file))


def read_cubes(file: Any, names: Sequence[str], with_variance: Sequence[str]) -> dict[str, Cube]:
    """The cubes of a result by the names of their groups; ValueError where they differ in shape, or one of
    `with_variance` has none."""
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
