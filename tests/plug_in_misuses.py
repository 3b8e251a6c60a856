"""Plug-ins that return something wrong, with the words of the error that names each; cases of `misuses.py`."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

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


class Unreported(extend.AbstractCubeStage):
    """A stage that reports nothing, and needs no word on its margin."""

    @classmethod
    def build(cls, setup, options):
        return cls()

    def spatial(self, parameters):
        return None

    def __call__(self, cube, parameters, key):
        return cube


class Lengths(extend.AbstractSettings):
    """A section without a parameter."""

    length: extend.Number = 1.0


class Classed(extend.AbstractSettings):
    """The class in place of a mark."""

    length: Annotated[extend.Number, extend.Parameter] = 1.0


class HalfMarked(Lengths):
    """A section with one parameter of two settings."""

    width: Annotated[extend.Number, extend.Parameter()] = 1.0


class Moved(CubeStage):
    """Its only number is in its section."""

    section_type: ClassVar = HalfMarked

    @classmethod
    def build(cls, setup, options):
        extend.refuse_options("moved", options)
        return cls()


class Narrow(CubeStage):
    """A margin that is no size."""

    margin: int = eqx.field(static=True, default=-2)


class Wide(CubeStage):
    """Returns the cube with its margin."""

    margin: int = eqx.field(static=True, default=2)


class Worded(CubeStage):
    """Keeps an option's text as its number."""

    factor: Any = "half"


class Dark(extend.AbstractLight):
    """A density below 0."""

    core: Any

    @property
    def scale(self):
        return self.core

    def surface(self, place):
        return 1 - place


class DarkLight(extend.AbstractKind):
    """The keys of Dark."""

    built_by: ClassVar[str] = "plug_in_misuses:Dark"
    profile: Literal["dark"]
    core: Annotated[float, extend.Parameter(moves=True)]


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


class Displaced(extend.AbstractErrorDistribution):
    """Highest at 3."""

    kind: ClassVar = "displaced"

    def log_density(self, residual):
        return -0.5 * (residual - 3) ** 2 - 0.5 * np.log(2 * np.pi)


class Added(extend.AbstractResiduals):
    """One number."""

    kind: ClassVar = "added"

    def residuals(self, residual, data, model, inverse_sigma):
        return residual.sum()


class Rooted(extend.AbstractResiduals):
    """Roots of numbers below 0."""

    kind: ClassVar = "rooted"

    def residuals(self, residual, data, model, inverse_sigma):
        return jnp.sqrt(residual)


class Interpolated(extend.AbstractQuantile):
    """Quantiles by numpy."""

    kind: ClassVar = "interpolated"
    numbers: ClassVar = ("low", "high")
    low: Any
    high: Any

    def quantile(self, probability):
        return np.interp(probability, [0, 1], [self.low, self.high])


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
    "narrower": (
        {"spatial": lambda *_: lambda images: images[:, :-1]},
        "`spatial` must return images of 100 spaxels, got 90",
    ),
    "overwriting": ({"report": report(meta={"redshift": 9.0})}, "`report` must not give the entry 'redshift'"),
    "uncertain": (
        {"__call__": lambda self, cube, *_: replace(cube, variance=-jnp.ones_like(cube.flux))},
        "makes them first",
    ),
    "unnamed": ({"__call__": lambda self, cube, *_: cube.fields["a"]}, "`__call__` ended with KeyError: 'a'"),
    "spatial": ({"spatial": lambda *_: 5}, "`spatial` must return a function of images, a WavelengthSpatial or None,"),
    **{
        f"flux_{dtype}": (
            {"__call__": flux(lambda cube, dtype=dtype: cube.flux.astype(dtype))},
            f"`__call__` must return flux as float32, the type of cube.flux, got {dtype}",
        )
        for dtype in ("int32", "float16", "bool", "complex64")
    },
    "nan_spread": (
        {"report": report(lsf_fwhm=np.array([1, 1, np.nan, 1]))},
        "`report`: StageReport.lsf_fwhm: expected finite widths >= 0, got nan at index 2",
    ),
    "negative_spread": ({"report": report(lsf_fwhm=-np.ones(4))}, "`report`: StageReport.lsf_fwhm: expected finite"),
    "note": ({"report": report(notes="text")}, "`report`: StageReport.notes: expected a list, got 'text'"),
    "unmarked": (
        {"section_type": Lengths, "__call__": lambda self, cube, parameters, _: parameters.unmarked.length},
        "`__call__` ended with AttributeError: 'Parameters' object has no attribute 'unmarked'; no setting of the "
        "section 'unmarked' is marked",
    ),
    "half_marked": (
        {"section_type": HalfMarked, "__call__": lambda self, cube, parameters, _: parameters.half_marked.length},
        "`__call__` ended with AttributeError: 'Parameters' object has no attribute 'length'; the setting 'length' is "
        "not marked",
    ),
    "unread": ({"build": lambda *_: int("x")}, "`build`: invalid literal for int() with base 10: 'x'"),
}
SCENE = {
    "vanished": ({"__call__": lambda *_: None}, "`__call__` must return a Scene, got None"),
    "lost": ({"__call__": amount(lambda own: own[:1])}, "`__call__` must return amount of shape ("),
    "negative": ({"__call__": amount(lambda own: -own)}, "makes them; repair it"),
    "complex": ({"__call__": amount(lambda own: own + 1j)}, "`__call__` must return amount as float32, got complex64"),
    "boolean": ({"__call__": amount(lambda own: own > 0)}, "`__call__` must return amount as float32, got bool"),
    "placeless": (
        {"__call__": lambda self, scene, _: replace(scene, coordinates={})},
        "`__call__` must keep the coordinate 'age'",
    ),
    "numpy": ({"__call__": amount(np.sqrt)}, "`__call__` ended with TracerArrayConversionError"),
    "branching": (
        {"__call__": lambda self, scene, _: scene if scene.amount.sum() > 0 else None},
        "`__call__` ended with TracerBoolConversionError",
    ),
    "dustless": (
        {"__call__": lambda self, scene, parameters: eqx.tree_at(lambda s: s.amount, scene, parameters.dust.a_v)},
        "`__call__` ended with AttributeError",
    ),
    "text": ({"reads": "dust_column"}, "reads: expected names in brackets"),
}


class Field(extend.AbstractField):
    """Sums masses, without a map."""

    cells: int = eqx.field(static=True)
    kind: ClassVar = "stars"

    @classmethod
    def build(cls, setup, options):
        return cls(setup.painting.cells)

    def n_cell(self, grid):
        return grid.n_spaxel

    def deposit(self, particles, scene, grid):
        return extend.spread(scene.weight, scene, grid)

    def finish(self, sums, grid):
        return extend.painted_field(sums, grid, self.cells)


def parts(change):
    """A deposit of something else."""
    return lambda self, particles, scene, grid: change(*extend.spread(scene.weight, scene, grid))


FIELD_FAULTS = {
    "negative_cells": ({"n_cell": lambda *_: -1}, "Wrong: `n_cell`: expected a whole number of 0 or more, got -1"),
    "text_cells": ({"n_cell": lambda *_: "3"}, "Wrong: `n_cell`: expected a whole number of 0 or more, got '3'"),
    "unmapped": ({"map": "text"}, "field 'unmapped': `map` must return a unit and a description, "),
    "few_cells": ({"n_cell": lambda *_: 3}, "field 'few_cells': `finish` ended with TypeError"),
    "no_parts": ({"deposit": parts(lambda *_: None)}, "Wrong: `deposit` must return a pair (cells, amounts), got None"),
    "swapped_parts": ({"deposit": parts(lambda row, part: (part, row))}, "Wrong: `deposit` must return cells as whole"),
    "flat_parts": ({"deposit": parts(lambda row, part: (row, part[:, 0]))}, "Wrong: `deposit` must return amounts of"),
    "unfinished": (
        {"finish": lambda *_: None, "map": ("", "wrong")},
        "field 'unfinished': `finish` must return a PaintedField",
    ),
    "dark": ({"kind": "dark matter"}, "Wrong.kind must be 'stars' or 'gas', got 'dark matter'"),
}
FIELDS = SimpleNamespace(**{name: type("Wrong", (Field,), methods) for name, (methods, _) in FIELD_FAULTS.items()})


class Kernel(extend.AbstractDepositKernel):
    """Adds nothing."""

    def add(self, total, factors):
        return None


class Plain:
    """No kernel."""

    def add(self, total, factors):
        return total


class Idle(extend.AbstractDepositKernel):
    """Adds nothing, in silence."""

    def add(self, total, factors):
        return total


KERNEL_FAULTS = {
    "Kernel": "Kernel: `add` must return an array, got None",
    "Plain": "deposit kernel 'Plain': expected a class derived from AbstractDepositKernel, got a value of type Plain",
    "Idle": "deposit kernel 'Idle': `add` must add share x window x own of each particle to its rows, expected [",
}


CURVE_FAULTS = {
    "no_number": (lambda wave, r_v: wave * np.nan, "`relative` must return finite numbers, got nan at 1000 Angstrom"),
    "one_number": (lambda wave, r_v: 1.0, "`relative` must return real numbers of shape (101,), one A(lambda)"),
    "text_curve": (lambda wave, r_v: "1", "`relative` must return real numbers of shape (101,), one A(lambda)"),
    "shorter": (lambda wave, r_v: wave[1:], "`relative` must return real numbers of shape (101,), one A(lambda)"),
    "raising": (lambda wave, r_v: {}["a"], "`relative` ended with KeyError: 'a'"),
    "refusing": (lambda wave, r_v: float("a"), "`relative`: could not convert string to float: 'a'"),
    "one_argument": (lambda wave: wave, "`relative` ended with TypeError: <lambda>() takes 1 positional argument"),
    "of_excess": (
        lambda wave, r_v: r_v * 5500 / wave,
        "expected A(lambda) / A(V), which is 1 at 5500 Angstrom, got",
    ),
    "through": (
        lambda wave, r_v: 10 ** (-2200 / wave),
        "expected A(lambda) / A(V), which is 1 at 5500 Angstrom, got",
    ),
    "below": (lambda wave, r_v: -5500 / wave, "expected A(lambda) / A(V) of 0 or more at its own R(V), 3.1, got -5.5"),
}
CURVES = SimpleNamespace(
    **{name: extend.DustCurve(own, (1e3, 2e4), 3.1, (2.0, 6.0), "") for name, (own, _) in CURVE_FAULTS.items()}
)


class Switching(extend.AbstractGalaxyModel):
    """Five stars, and a branch on a parameter."""

    mass: float = 1e9
    count: int = eqx.field(static=True, default=5)

    def sample(self, draws):
        still, one = jnp.zeros((self.count, 3)), jnp.ones(self.count)
        return rl.Galaxy(rl.Stars(still, still, self.mass * one, 9 * one, 0.02 * one))


MODEL_FAULTS = {
    "branch": lambda self, draws: Switching.sample(self, draws) if self.mass > 0 else None,
    "count": lambda self, draws: Switching.sample(Switching(count=int(self.mass / 1e8)), draws),
    "selection": lambda self, draws: jnp.ones(5)[jnp.ones(5) * self.mass > 3],
}


class Source(extend.AbstractSource):
    """A line."""

    painter: Any
    kind: ClassVar = "stars"

    @classmethod
    def plan(cls, setup, options):
        axes, one = extend.TemplateAxes((), ()), np.ones(1)
        lines = extend.LineTemplates("a glow", axes, ("x",), 4800.0 * one, np.ones((1, 1)), 0 * one)
        return extend.plan_lines(setup, lines, cls.movers, narrowest=60.0)

    movers: ClassVar = "stars"

    @classmethod
    def build(cls, setup, plan, options):
        return cls(extend.build_line_painter(plan, setup))

    def scene(self, particles, alignment, arcsec_per_kpc):
        return extend.to_scene(particles, jnp.asarray(particles.initial_mass), {}, alignment, arcsec_per_kpc)


SOURCE_FAULTS = {
    "mistaken": ({"movers": "gaz"}, "kind: expected one of 'stars', 'gas', 'young_stars', 'agn', got 'gaz'"),
    "unpainted": ({"build": classmethod(lambda cls, *_: cls(None))}, "source 'unpainted': `painter` must return"),
    "unseen": ({"scene": lambda *_: None}, "source Wrong: `scene` must return a Scene (by to_scene), got None"),
    "unshining": ({"shining": lambda self, own: jnp.ones(3, bool)}, "source 'unshining' ended with TypeError"),
    "dim": ({"shine": lambda *_: None}, "source 'dim' ended with AttributeError"),
}
SOURCES = SimpleNamespace(**{name: type("Wrong", (Source,), methods) for name, (methods, _) in SOURCE_FAULTS.items()})


LABEL = extend.MapLabel("wrong", "", "a map")


class Product(extend.AbstractParticleMaps):
    """The number of stars."""

    kind: ClassVar = "stars"
    labels: ClassVar = (LABEL,)

    @classmethod
    def build(cls, setup, options):
        extend.refuse_options("wrong", options, place="products.extra: product")
        return cls()

    def columns(self, particles, scene, parameters):
        return {"number": jnp.ones_like(scene.amount)}

    def make(self, summed):
        return {"wrong": summed.images["number"]}


PRODUCT_FAULTS = {
    "unlabelled": (
        {"labels": ()},
        "product 'unlabelled' (Wrong): `labels`: expected a MapLabel for each map, got an empty tuple",
    ),
    "plain": ({"labels": (("wrong", "", "a map"),)}, "'plain' (Wrong): `labels` must return a MapLabel for each map"),
    "single": ({"labels": "wrong"}, "product 'single' (Wrong): `labels`: expected a tuple of MapLabel, got 'wrong'"),
    "no_comma": (
        {"labels": LABEL},
        "`labels`: expected a tuple of MapLabel, got a MapLabel; put a comma after it: (Ma",
    ),
    "no_unit": (
        {"labels": property(lambda _: (extend.MapLabel("wrong"),))},
        "`labels` ended with TypeError: MapLabel.__new__() missing 2 required positional arguments: 'unit' and 'text'",
    ),
    "kindless": ({"kind": None}, "and build, got <class 'abc.Wrong'>; set kind, now None or missing (docs"),
    "empty": ({"columns": lambda *_: {}}, "product 'empty' (Wrong): `columns` must return at least one column"),
    "listed": ({"columns": lambda *_: [1.0]}, "product 'listed' (Wrong): `columns` must return columns by name"),
    "scalar": (
        {"columns": lambda *_: {"number": 1.0}},
        "product 'scalar' (Wrong): `columns` must return number of shape",
    ),
    "unread": (
        {"columns": lambda self, own, *_: {"number": own.masses}},
        "product 'unread' (Wrong): `columns` ended with",
    ),
    "unmade": (
        {"make": lambda *_: {}},
        "product 'unmade' (Wrong): `make` must return the maps of its labels, wrong, got none",
    ),
    "deep": (
        {"make": lambda self, own: {"wrong": own.images["number"][..., None]}},
        "`make` must return wrong of shape",
    ),
    "imaginary": ({"make": lambda self, own: {"wrong": own.images["number"] * 1j}}, "must return wrong as floats"),
    "nan": (
        {"columns": lambda self, own, scene, _: {"number": scene.amount / 0}},
        "product 'nan' (Wrong): `columns`: expected finite numbers for all particles, got NaN or inf in 'number'",
    ),
    "misspelt": (
        {"labels": (extend.MapLabel("wrong", "solMas", "a map"),)},
        "expected a unit as FITS spells",
    ),
    "accented": (
        {"labels": (extend.MapLabel("wrong", "", "été"),)},
        "expected a name of letters, digits and _",
    ),
    "dark_matter": (
        {"kind": "dark"},
        "product 'dark_matter' (Wrong): `kind` must be 'stars' or 'gas', got 'dark'",
    ),
    "unbuilt": (
        {"build": classmethod(lambda *_: None)},
        "product 'unbuilt': `build` must return an instance of Abstract",
    ),
}
PRODUCTS = SimpleNamespace(**{name: type("Wrong", (Product,), own) for name, (own, _) in PRODUCT_FAULTS.items()})


def no_executor(where, devices):
    """No context manager."""
    return 3


WORDS = {
    **{name: words for name, (_, words) in (CUBE | SCENE).items()},
    "bare": "expected `__call__`, `build`, `report`, `spatial` in the class NoMethods, got none; define them (docs/how",
    "reportless": "expected `margin`, `report` in the class Unreported, got none; define them (docs/how-to-extend.md)",
    "narrow": "margin: expected a whole number of 0 or more, got -2",
    "worded": "factor: expected a number, got 'half'; check the stage's options",
    "wide": "`__call__` must return the cube on cube.footprint.within(2)",
    "settings": "section_type must be a class derived from AbstractSettings, got <class 'dict'>",
    "classed": "Classed.length: expected the mark Parameter(), got the class Parameter; write its parentheses",
}
STAGES = SimpleNamespace(
    **{name: type("Wrong", (CubeStage,), methods) for name, (methods, _) in CUBE.items()},
    **{name: type("Wrong", (SceneStage,), methods) for name, (methods, _) in SCENE.items()},
    bare=NoMethods,
    narrow=Narrow,
    wide=Wide,
    worded=Worded,
    reportless=Unreported,
    settings=type("Wrong", (CubeStage,), {"section_type": dict}),
    classed=type("Wrong", (CubeStage,), {"section_type": Classed}),
    moved=Moved,
)
FORMAT = extend.SourceFormat(recognises=lambda path: path.suffix == ".wrong", read=lambda path: None)


def announce(folder):
    """Install the plug-ins in a folder, which is put on Python's path."""
    stages = {"scene": SCENE, "cube": ["moved", *(name for name in WORDS if name not in SCENE)]}
    groups = {f"{kind}_stages": {name: f"STAGES.{name}" for name in names} for kind, names in stages.items()}
    groups |= {
        "fields": {name: f"FIELDS.{name}" for name in FIELD_FAULTS},
        "kernels": {name: name for name in KERNEL_FAULTS},
        "dust_curves": {name: f"CURVES.{name}" for name in CURVE_FAULTS},
        "paint_stages": {name: f"SOURCES.{name}" for name in SOURCE_FAULTS},
        "products": {name: f"PRODUCTS.{name}" for name in PRODUCT_FAULTS} | {"right": "Product"},
        "executors": {"nobody": "no_executor"},
        "light_profiles": {"dark": "DarkLight"},
    }
    groups |= {
        "readers": dict.fromkeys(("none", "alone", "swapped", "misnamed"), "Reader"),
        "ssp_formats": {"wrong": "FORMAT"},
    }
    lines = [
        line
        for group, members in groups.items()
        for line in (f"[rubix_like.{group}]", *(f"{name} = plug_in_misuses:{own}" for name, own in members.items()))
    ]
    write_dist_info(folder, "wrong-things", "\n".join(lines) + "\n")
    sys.path.insert(0, str(folder))


def cases(run, galaxy, noisy):
    """As `misuses.cases`; files go into the current folder."""
    announce(Path.cwd())
    for name, words in WORDS.items():
        lists = {"scene": ["point"], "cube": []}
        lists["scene" if name in SCENE else "cube"].append(name)
        text = "".join(f"{key}: [{', '.join(names)}]\n" for key, names in lists.items())
        Path(f"{name}.yaml").write_text(f"description: a wrong stage\npaint: [stars]\n{text}")
        wrong = {**run, "pipeline": f"{name}.yaml", "engine": {"deposit": "nearest"}}
        place = f"stage '{name}'" + (" " if words.startswith("makes") else ": ")
        place = "" if name in {"settings", "classed"} else place
        yield (
            f"stage, {name}",
            place + words,
            lambda wrong=wrong: rl.Pipeline.from_config(wrong, galaxy)(galaxy),
        )
    in_pipelines = {
        "{moved: {width: 2}}": "stage 'moved' has no option 'width'; `width` is a setting of the section `moved`",
        "drift": "unknown cube stage 'drift'; did you mean 'dict'? If it is a plug-in, install its",
        "apertur": "did you mean 'aperture'? If it is a plug-in, install its package (docs/how-to-extend.md)",
    }
    for number, (stage, words) in enumerate(in_pipelines.items()):
        Path(f"listed_{number}.yaml").write_text(f"description: wrong\npaint: [stars]\ncube: [{stage}]\n")
        wrong = {**run, "pipeline": f"listed_{number}.yaml"}
        yield f"listed, {stage}", words, lambda wrong=wrong: rl.Pipeline.from_config(wrong, galaxy)
    Path("fibres.yaml").write_text("description: fibres as images\npaint: [stars]\ncube: [psf, images]\n")
    fibres = {"name": "sami_blue", "fov": "6.5 arcsec", "aperture": None, "lsf": None, "fibres": "manga-19"}
    fibres |= {"psf": {"kind": "gaussian", "fwhm": 1.5}, "wavelength": run["instrument"]["wavelength"]}
    wrong = {**run, "pipeline": "fibres.yaml", "instrument": fibres}
    words = (
        "stage 'images': `__call__`: images: expected spaxels, got 57 spectra of fibres, which are no image; work on"
    )
    yield "fibres", words, lambda wrong=wrong: rl.Pipeline.from_config(wrong, galaxy)(galaxy)
    listed = {
        "fields": FIELD_FAULTS,
        "paint": SOURCE_FAULTS,
        "scene": {"orient": (None, "scene: expected each stage once, got 'o")},
    }
    for key, members in listed.items():
        for name, (_, words) in members.items():
            lists = {"fields": [], "scene": ["orient", "point"], "paint": ["stars"], "cube": []}
            lists[key] = [*lists[key], name]
            text = "".join(f"{key}: [{', '.join(names)}]\n" for key, names in lists.items())
            Path(f"{name}.yaml").write_text(f"description: wrong\n{text}")
            wrong = {**run, "pipeline": f"{name}.yaml", "engine": {"deposit": "nearest"}, "products": {"losvd": None}}
            yield f"{key}, {name}", words, lambda wrong=wrong: rl.Pipeline.from_config(wrong, galaxy)(galaxy)
    wrongly = {name: ([name], words) for name, (_, words) in PRODUCT_FAULTS.items()} | {
        "twice": (["right", "right"], "products.extra: expected maps of different names"),
        "unknown": (["rihgt"], "products.extra: unknown product 'rihgt'; did you mean 'right'? If it is a "),
        "options": ([{"right": {"unit": 2}}], "products.extra: product 'wrong' has no option 'unit'"),
        "number": ([3], "products.extra[0]: expected a name, or a name with options"),
    }
    for name, (extra, words) in wrongly.items():
        wrong = {**run, "engine": {"deposit": "nearest"}, "products": {"losvd": None, "extra": extra}}
        yield f"product, {name}", words, lambda wrong=wrong: rl.Pipeline.from_config(wrong, galaxy)(galaxy)
    for name, words in KERNEL_FAULTS.items():
        wrong = {**run, "engine": {"kernel": name, "method": "basis"}}
        yield f"kernel, {name}", words, lambda wrong=wrong: rl.Pipeline.from_config(wrong, galaxy)
    for name, (_, words) in CURVE_FAULTS.items():
        wrong = {**run, "dust": {"a_v": 1, "curve": name}}
        yield f"curve, {name}", f"dust.curve: dust curve '{name}': {words}", lambda wrong=wrong: rl.load_config(wrong)
    words = (
        "reader 'misnamed' of the installed package wrong-things 1.0: expected the name that it is announced by among"
    )
    yield "reader, misnamed", words, lambda: rl.load_config({**run, "galaxy": {"reader": "misnamed"}})
    disc = {"name": "disc", "mass": 1e10, "light": {"profile": "dark", "core": 1.5}}
    disc |= {"population": {"log_age": 9.5, "metallicity": 0.02}}
    words, smooth = (
        "light profile 'dark': `surface` must return densities of 0 or more, got -",
        {"reader": "components"},
    )
    yield "light", words, lambda: rl.load_galaxy({**run, "galaxy": {**smooth, "components": [disc]}})
    words = "executor 'nobody' must return a context manager, got a value of type int"
    yield "executor", words, lambda: rl.run_catalogue(run, [{"name": "a"}], output="nobody", executor="nobody")
    for name, got in {"none": "None", "alone": "a value of type Galaxy", "swapped": "(GalaxyInfo, Galaxy)"}.items():
        words = f"reader '{name}': `load` must return a pair (Galaxy, GalaxyInfo), got {got}"
        yield f"reader, {name}", words, lambda name=name: rl.load_galaxy({**run, "galaxy": {"reader": name}})
    Path("a.wrong").write_text("a")
    words = "a.wrong: SSP format 'wrong': `read` must return an instance of SSPTable, got None"
    yield "format", words, lambda: extend.import_library("a.wrong")
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
    words = "fit.likelihood: expected a density that is highest at a residual of 0"
    yield "peak", words, lambda: rl.log_posterior(run, noisy, free, likelihood={"kind": "displaced"})
    words = "likelihood Added: `residuals` must return residuals of shape ("
    yield "residuals", words, lambda: rl.log_posterior(run, noisy, free, likelihood={"kind": "added"})(np.zeros(1))
    words = "likelihood Rooted: `residuals` must return finite numbers, got nan in "
    yield "roots", words, lambda: rl.log_posterior(run, noisy, free, likelihood={"kind": "rooted"})
    bare, prior = {**run, "galaxy": None}, {"galaxy.mass": {"log_uniform": [1e8, 1e10]}}
    for name, sample in MODEL_FAULTS.items():
        model = type("Wrong", (Switching,), {"sample": sample})()
        yield (
            f"model, {name}",
            "Wrong.sample ended with ",
            lambda model=model: rl.log_posterior(bare, noisy, prior, model=model),
        )
    words = "fit.free.galaxy.mass: expected a prior with which Switching has no masses below 0, got {normal: ["
    below = {"galaxy.mass": {"normal": [1e9, 1e9]}}
    yield "model, mass", words, lambda: rl.log_posterior(bare, noisy, below, model=Switching())
    words = "prior 'interpolated': `quantile` ended with TracerArrayConversionError"
    prior = {offset: {"interpolated": [-50, 50]}}
    yield "quantile by numpy", words, lambda: rl.log_posterior(run, noisy, prior)(np.zeros(1))
    yield "spread", "scene: ", lambda: extend.spread(1, 2, 3)
