"""Which files of the package three things pass on their way: a star's position from a snapshot to the spaxels, a bin of
the detector from the settings to the cube's file, a free parameter from the settings to the file of the fit; and which
name a whole configuration.

`python tests/walks.py` follows one small run and one small fit call by call, and prints the files with their functions.
A file counts where a function deals with the thing itself, by its name, and hands it on; of a free parameter, wherever
a function deals with it. It does not count where all particles, all settings or all free numbers pass as one object and
no name is spoken, nor where positions or bins are only looked at (the search for a centre, checks, line spreads). Of a
configuration a file counts that mentions `RunConfig`, wherever it stands, and again if it is one of those below
`resolve`, which are given what a run's settings stand for.
"""

import ast
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
from small import few_stars
from small_snapshots import GADGET_HEADER
from snapshot_files import write_snapshot

import rubix_like
from rubix_like import Cube, Galaxy, Pipeline, fit, run
from rubix_like.extend import WavelengthBins

ROOT = Path(rubix_like.__file__).parent

PARAMETER = "observation.inclination"
SETTINGS_OF_FIT = {"free": {PARAMETER: {"uniform": [10, 80]}}, "starts": 1, "candidates": 4}

_KEYED = dict | MappingProxyType
"""Not any mapping: open files are some, too."""


class Walk(NamedTuple):
    """What a function deals with when it returns.

    `names` are attributes in its code; `texts` are in its code, or the value, key or member of a variable; `arrays` are
    variables with three numbers in a row. `holds`: what it returns must be or hold the thing itself, but for the
    functions where the way begins or `ends`.
    """

    names: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    arrays: frozenset[str] = frozenset()
    holds: Callable[[Any], bool] | None = None
    ends: frozenset[str] = frozenset()

    def passes(self, frame: FrameType, returned: Any) -> bool:
        """Whether a function that returns has dealt with it."""
        is_end = self.holds is None or frame.f_code.co_name in self.ends
        return self._speaks(frame, returned) and (is_end or self.holds(returned))

    def _speaks(self, frame: FrameType, returned: Any) -> bool:
        code, own = frame.f_code, frame.f_locals
        if self.names & set(code.co_names) or any(self._has(value) for value in code.co_consts):
            return True
        if any(_is_vectors(own[name]) for name in self.arrays & set(own)):
            return True
        return code.co_name != "<module>" and any(self._has(value) for value in (*own.values(), returned))

    def _has(self, value: Any) -> bool:
        if isinstance(value, str):
            return value in self.texts
        if isinstance(value, _KEYED | list | tuple | set | frozenset) and len(value) < 200:
            return any(isinstance(member, str) and member in self.texts for member in value)
        return False


def _is_vectors(value: Any) -> bool:
    shape = getattr(value, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2 and shape[0] > 3 and shape[1] == 3


def holds_positions(value: Any) -> bool:
    """Vectors of particles, alone or as the positions of stars, a scene, a table or a galaxy."""
    if isinstance(value, _KEYED):
        return _is_vectors(value.get("position"))
    if isinstance(value, list | tuple) and len(value) < 20:
        return any(map(holds_positions, value))
    return any(_is_vectors(own) for own in (value, getattr(value, "position", None))) or (
        isinstance(value, Galaxy) and holds_positions(value.stars)
    )


def holds_bins(value: Any) -> bool:
    """Bins, alone or as those of what becomes a cube."""
    own = value.get("bins") if isinstance(value, _KEYED) else getattr(value, "bins", value)
    return isinstance(own, WavelengthBins)


OF_A_RUN = {
    "A star's position": Walk(*[frozenset({"position"})] * 3, holds_positions, frozenset({"weights"})),
    "A bin of the detector": Walk(
        names=frozenset({"bins", "n_wave", "sampling"}),
        texts=frozenset({"bins"}),
        holds=holds_bins,
        ends=frozenset({"n_wave", "spectral_cards", "default_members", "write_cube"}),
    ),
}
OF_A_FIT = {"A free parameter": Walk(names=frozenset({"inclination"}), texts=frozenset({PARAMETER}))}


def followed(walks: Mapping[str, Walk], work: Callable[[], Any]) -> dict[str, dict[str, list[str]]]:
    """The files that each walk passes in some work, in order, with their functions."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in walks}

    def look(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event != "return" or not code.co_filename.startswith(str(ROOT)):
            return
        file = str(Path(code.co_filename).relative_to(ROOT))
        for name, walk in walks.items():
            if code.co_name not in found[name].get(file, ()) and walk.passes(frame, value):
                found[name].setdefault(file, []).append(code.co_name)

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def snapshot(path: Path) -> Path:
    """A disc of 300 stars in an Illustris cut-out."""
    rng, count = np.random.default_rng(1), 300
    stars = {
        "Coordinates": 500 + rng.normal(0, 1, (count, 3)) * [1, 1, 0.2],
        "Velocities": rng.normal(0, 50, (count, 3)),
        "Masses": np.full(count, 1e-5),
        "GFM_InitialMass": np.full(count, 2e-5),
        "GFM_Metallicity": rng.uniform(0.01, 0.03, count),
        "GFM_StellarFormationTime": rng.uniform(0.2, 0.4, count),
    }
    return write_snapshot(path, {"PartType4": stars}, GADGET_HEADER)


def settings(**sections: Any) -> dict[str, Any]:
    """A run of few spaxels and bins."""
    return {
        "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0},
        "instrument": {
            "name": "muse",
            "fov": "1.6 arcsec",
            "psf": None,
            "lsf": None,
            "wavelength": {"start": 5000, "stop": 5100, "step": 20},
        },
        "engine": {"method": "basis", "precision": "float64", "deposit": "tsc"},
        "devices": {"data": 1},
        **sections,
    }


def observe(folder: Path) -> Cube:
    """From the snapshot to the cube."""
    return run(settings(galaxy={"path": str(snapshot(folder / "cutout.hdf5"))}), folder / "cube.fits")


def fit_angle(observed: Cube, folder: Path) -> None:
    """From the cube to the file of its fit."""
    fit(settings(fit=SETTINGS_OF_FIT), observed, galaxy=few_stars(40, 1.0), output=folder / "fit.h5")


def data() -> Cube:
    """What the model shows, with an error in every voxel."""
    cube = Pipeline.from_config(settings(), galaxy=few_stars(40, 1.0))(few_stars(40, 1.0))
    flux = np.asarray(cube.flux)
    return replace(cube, variance=np.full(flux.shape, (0.01 * flux.mean()) ** 2))


HANDS_DOWN = ("__init__.py", "cli/", "config/", "inference/", "plots/", "readers/", "runs/")
"""Above `resolve`, and the configuration itself."""


def naming_a_configuration() -> dict[str, dict[str, list[str]]]:
    """The files that mention `RunConfig`, with the functions and classes that do; all of them, and those below
    `resolve`."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    every = {file: _naming(text) for file, text in texts.items() if "RunConfig" in text}
    below = {file: functions for file, functions in every.items() if not file.startswith(HANDS_DOWN)}
    return {"A configuration": every, "A configuration, below `resolve`": below}


def _naming(text: str) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [own.name for own in functions if any(_is_configuration(node) for node in ast.walk(own))]


def _is_configuration(node: ast.AST) -> bool:
    return getattr(node, "id", "") == "RunConfig" or "RunConfig" in str(getattr(node, "value", ""))


def show(found: Mapping[str, Mapping[str, Collection[str]]]) -> None:
    """Walks as tables."""
    for name, files in found.items():
        print(f"\n{name}: {len(files)} files")
        for file, functions in files.items():
            print(f"  {file:45s} {', '.join(functions)}")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        show(followed(OF_A_RUN, lambda: observe(place)))
        observed = data()
        show(followed(OF_A_FIT, lambda: fit_angle(observed, place)))
    show(naming_a_configuration())
