"""Run the notebooks: `python docs/run_notebooks.py --data FOLDER`, in the root of the clone.

Every cell is run, in the order of the page, and what it prints and draws replaces what the page shows. FOLDER has the
files of real galaxies that the captions name. Names of pages run those alone. `--small` runs them as the tests do, on
a synthetic galaxy, and writes nothing.
"""

import argparse
import contextlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
from notebook_pages import NOTEBOOKS, cells, with_outputs
from small_cutout import write_cutout

SMALL: Mapping[str, Mapping[str, Any]] = {
    "2-cutout-to-ppxf": {"cutout": "cutout.hdf5", "library": "popstar", "field": "6 arcsec", "stop": 5200},
    "3-emission-lines": {
        "cutout": "cutout.hdf5",
        "library": "popstar",
        "field": "6 arcsec",
        "scale": "2 arcsec",
        "diffuse": None,
    },
    "4-dust": {"cutout": "cutout.hdf5", "field": "4 arcsec", "step": "100 Angstrom", "cells": 16, "deposit": "nearest"},
    "5-fit-and-posterior": {"n_stars": 512, "scale": "2 arcsec", "draws": 20, "warmup": 20},
    "7-training-sets": {"n": 12},
}
"""Values of the cell of parameters of a page where it is run small."""

_RESOLUTION = 80
"""Dots per inch of the pictures."""


@dataclass
class Ran:
    """What a cell gave."""

    text: str = ""
    pictures: list[bytes] = field(default_factory=list)
    skipped: str | None = None


def run_page(page: Path, parameters: Mapping[str, Any] | None = None, with_long: bool = True) -> Iterator[Ran]:
    """Run the cells of a page in the current folder, in one namespace.

    `parameters` replace values of the cell that is marked so; cells that are marked long can be left out.
    """
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for _, cell in cells(page.read_text(encoding="utf-8")):
        if cell.needs and importlib.util.find_spec(cell.needs) is None:
            yield Ran(skipped=cell.needs)
            continue
        if cell.is_long and not with_long:
            yield Ran(skipped="long")
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * cell.line + cell.code, str(page), "exec"), namespace)
        if cell.mark == "parameters":
            unknown = set(parameters or {}) - set(namespace)
            if unknown:
                raise KeyError(f"{page.name}: the cell of parameters has no {', '.join(sorted(unknown))}")
            namespace |= parameters or {}
        yield Ran(printed.getvalue(), list(drawn()))


def drawn() -> Iterator[bytes]:
    """The open figures as PNG, each closed."""
    from matplotlib import pyplot  # noqa: PLC0415

    for number in pyplot.get_fignums():
        stream = io.BytesIO()
        pyplot.figure(number).savefig(stream, dpi=_RESOLUTION, bbox_inches="tight", metadata={"Software": None})
        pyplot.close(number)
        yield stream.getvalue()


def rewrite(page: Path, found: list[Ran]) -> None:
    """Put what the cells gave into the page and its pictures; what was skipped stays as it is."""
    text = page.read_text(encoding="utf-8")
    known = [cell for _, cell in cells(text)]
    for cell, ran in zip(known, found, strict=True):
        if ran.skipped:
            continue
        if len(cell.pictures) != len(ran.pictures):
            raise ValueError(f"{page}:{cell.line}: {len(ran.pictures)} figures, {len(cell.pictures)} pictures named")
        for (_, path), picture in zip(cell.pictures, ran.pictures, strict=True):
            (page.parent / path).parent.mkdir(exist_ok=True)
            (page.parent / path).write_bytes(picture)
    texts = [(cell.output or "") if ran.skipped else ran.text for cell, ran in zip(known, found, strict=True)]
    page.write_text(with_outputs(text, texts), encoding="utf-8")


@contextlib.contextmanager
def desk(small: bool, data: Path) -> Iterator[None]:
    """A folder to work in, with the galaxy that the small runs take, or links to the files of real ones."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if small:
            write_cutout(Path("cutout.hdf5"))
        else:
            for path in data.glob("*"):
                Path(path.name).symlink_to(path.resolve())
        yield


def main() -> None:
    """Run the pages that the command names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="pages, by the beginning of their names; all")
    parser.add_argument("--data", type=Path, default=Path(), help="folder with the files of real galaxies")
    parser.add_argument("--small", action="store_true", help="as the tests do; nothing is written")
    options = parser.parse_args()
    mpl.use("Agg")
    chosen = [page for page in NOTEBOOKS if not options.names or page.stem.startswith(tuple(options.names))]
    if len(chosen) > 1 and not options.small:  # each begins with a fresh JAX
        for page in chosen:
            subprocess.run([sys.executable, __file__, page.stem, "--data", str(options.data)], check=True)
        return
    for page in chosen:
        begin = time.process_time()
        with desk(options.small, options.data.resolve()):
            found = list(run_page(page, SMALL.get(page.stem) if options.small else None))
        skipped = {ran.skipped for ran in found if ran.skipped}
        note = f"; not run, as it is not installed: {', '.join(sorted(skipped))}" if skipped else ""
        print(f"{page.stem}: {time.process_time() - begin:.1f} s of processor time{note}")
        if not options.small:
            rewrite(page, found)


if __name__ == "__main__":
    main()
