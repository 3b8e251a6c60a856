"""The files that a fit or a sampling writes: whether they can be written, writing them in order, looking at them."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from rubix_like.config import RunConfig
from rubix_like.config.file_layouts import file_size, find_format
from rubix_like.cube.cube import Cube
from rubix_like.cube.files.cube_files import write_cube
from rubix_like.runtime.files.outputs import check_writable
from rubix_like.runtime.files.writers import CUBE, check_outputs, configuration_words


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
