"""Plug-ins that return something wrong, with the words of the error that names each; cases of `misuses.py`."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from installed_package import write_dist_info

import rubix_like as rl
from rubix_like import extend


class SceneStage(extend.AbstractSceneStage):
    """Changes nothing."""

    @classmethod
    def build(cls, setup, options):
        return cls()

    def __call__(self, scene, parameters):
        return scene


class CubeStage(extend.AbstractCubeStage):
    """Changes nothing."""

    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup, options):
        return cls()

    def spatial(self, parameters):
        return None

    def report(self):
        return extend.StageReport()

    def __call__(self, cube, parameters, key):
        return cube


class NoMethods(extend.AbstractCubeStage):
    """A stage without methods."""

    margin: int = eqx.field(static=True, default=0)


class Narrow(CubeStage):
    """A margin that is no size."""

    margin: int = eqx.field(static=True, default=-2)


class Wide(CubeStage):
    """Returns the cube with its margin."""

    margin: int = eqx.field(static=True, default=2)


class Reader(extend.AbstractSettings):
    """Loads nothing."""

    reader: Literal["none", "alone", "swapped"] = "none"

    def load(self):
        galaxy = rl.Galaxy(rl.Stars(np.zeros((1, 3)), np.zeros((1, 3)), np.ones(1), 9 * np.ones(1), 0.02 * np.ones(1)))
        pair = rl.GalaxyInfo(name="a", reader="b", source="c"), galaxy
        return {"none": None, "alone": galaxy, "swapped": pair}[self.reader]


class Prior(extend.AbstractQuantile):
    """Quantiles of a wrong kind or shape."""

    kind: ClassVar = "wrong"
    numbers: ClassVar = ("low", "high")
    low: Any
    high: Any

    def quantile(self, probability):
        return None if self.low == 0 else jnp.ones(3) * probability


class Errors(extend.AbstractErrorDistribution):
    """No density."""

    kind: ClassVar = "wrong"

    def log_density(self, residual):
        return None


def flux(change):
    """A call of a cube stage that changes the flux."""
    return lambda self, cube, parameters, key: eqx.tree_at(lambda c: c.flux, cube, change(cube))


def amount(change):
    """A call of a scene stage that changes amounts."""
    return lambda self, scene, parameters: eqx.tree_at(lambda s: s.amount, scene, change(scene.amount))


def report(**keys):
    """A report of a cube stage."""
    return lambda self: extend.StageReport(**keys)


CUBE = {
    "nothing": ({"__call__": lambda *_: None}, "`__call__` must return a PaintedCube, got None"),
    "array": ({"__call__": lambda self, cube, *_: cube.flux}, "`__call__` must return a PaintedCube, got an array of"),
    "fewer": (
        {"__call__": flux(lambda cube: cube.flux[:, :2])},
        "`__call__` must return flux of shape (100, 4), got (100, 2)",
    ),
    "images": (
        {"__call__": flux(lambda cube: cube.footprint.images(cube.flux))},
        "`__call__` must return flux of shape (100, 4), got (10, 10, 4)",
    ),
    "unreported": ({"report": lambda self: None}, "`report` must return a StageReport, got None"),
    "dict": ({"report": lambda self: {}}, "`report` must return a StageReport, got a value of type dict"),
    "spread": ({"report": report(lsf_fwhm=np.ones(5))}, "`report` must return lsf_fwhm of shape (4,), got (5,)"),
    "bits": (
        {"report": report(spaxel_bits=np.ones((2, 2), int))},
        "`report` must return spaxel_bits of shape (10, 10), got (2, 2)",
    ),
    "unbuilt": ({"build": lambda *_: None}, "`build` must return an instance of AbstractCubeStage, got None"),
    "spatial": ({"spatial": lambda *_: 5}, "`spatial` must return a function of images, a WavelengthSpatial or None,"),
}
SCENE = {
    "vanished": ({"__call__": lambda *_: None}, "`__call__` must return a Scene, got None"),
    "lost": ({"__call__": amount(lambda own: own[:1])}, "`__call__` must return amount of shape ("),
    "negative": ({"__call__": amount(lambda own: -own)}, "makes them; repair it"),
    "text": ({"reads": "dust_column"}, "reads: expected names in brackets"),
}
WORDS = {
    **{name: words for name, (_, words) in (CUBE | SCENE).items()},
    "bare": "`build` must return an instance of AbstractCubeStage, got None",
    "narrow": "margin: expected a whole number of 0 or more, got -2",
    "wide": "`__call__` must return the cube on cube.footprint.within(2)",
    "settings": "section_type must be a class derived from AbstractSettings, got <class 'dict'>",
}
STAGES = SimpleNamespace(
    **{name: type("Wrong", (CubeStage,), methods) for name, (methods, _) in CUBE.items()},
    **{name: type("Wrong", (SceneStage,), methods) for name, (methods, _) in SCENE.items()},
    bare=NoMethods,
    narrow=Narrow,
    wide=Wide,
    settings=type("Wrong", (CubeStage,), {"section_type": dict}),
)
FORMAT = extend.SourceFormat(recognises=lambda path: path.suffix == ".wrong", read=lambda path: None)


def announce(folder):
    """Install the plug-ins in a folder, which is put on Python's path."""
    stages = {"scene": SCENE, "cube": [name for name in WORDS if name not in SCENE]}
    groups = {f"{kind}_stages": {name: f"STAGES.{name}" for name in names} for kind, names in stages.items()}
    groups |= {"readers": dict.fromkeys(("none", "alone", "swapped"), "Reader"), "ssp_formats": {"wrong": "FORMAT"}}
    lines = [
        line
        for group, members in groups.items()
        for line in (f"[rubix_like.{group}]", *(f"{name} = plug_in_misuses:{own}" for name, own in members.items()))
    ]
    write_dist_info(folder, "wrong-things", "\n".join(lines) + "\n")
    sys.path.insert(0, str(folder))


def cases(run, galaxy):
    """As `misuses.cases`; files go into the current folder."""
    announce(Path.cwd())
    for name, words in WORDS.items():
        lists = {"scene": ["point"], "cube": []}
        lists["scene" if name in SCENE else "cube"].append(name)
        text = "".join(f"{key}: [{', '.join(names)}]\n" for key, names in lists.items())
        Path(f"{name}.yaml").write_text(f"description: a wrong stage\npaint: [stars]\n{text}")
        wrong = {**run, "pipeline": f"{name}.yaml", "engine": {"deposit": "nearest"}}
        place = f"stage '{name}'" + (" " if words.startswith("makes") else ": ")
        place = "" if name == "settings" else place
        yield (
            f"stage, {name}",
            place + words,
            lambda wrong=wrong: rl.Pipeline.from_config(wrong, galaxy)(galaxy),
        )
    for name, got in {"none": "None", "alone": "a value of type Galaxy", "swapped": "(GalaxyInfo, Galaxy)"}.items():
        words = f"reader '{name}': `load` must return a pair (Galaxy, GalaxyInfo), got {got}"
        yield f"reader, {name}", words, lambda name=name: rl.load_galaxy({**run, "galaxy": {"reader": name}})
    Path("a.wrong").write_text("a")
    words = "a.wrong: SSP format 'wrong': `read` must return an instance of SSPTable, got None"
    yield "format", words, lambda: extend.import_library("a.wrong")
    noisy = rl.Pipeline.from_config({**run, "noise": {"signal_to_noise": 30}})(galaxy)
    offset, place = "observation.velocity_offset", "fit.free.observation.velocity_offset: prior 'wrong': "
    for low, words in {
        0: "`quantile` must return an array, got None",
        1: "`quantile` must return values of shape (), got (3,)",
        "a": "low: expected real numbers",
    }.items():
        prior = Prior(low, 5.0)
        yield f"prior, {low}", place + words, lambda prior=prior: rl.log_posterior(run, noisy, {offset: prior})
    words = "likelihood 'wrong': `log_density` must return an array, got None"
    free = {offset: {"normal": [0, 50]}}
    yield "density", words, lambda: rl.log_posterior(run, noisy, free, likelihood={"kind": "wrong"})
    yield "spread", "scene: ", lambda: extend.spread(1, 2, 3)
