"""Calls from Python with arguments of a wrong kind, without checks of types at run time: prints the errors as JSON."""

import json
from pathlib import Path

import numpy as np
from small import few_stars, make_cube, muse

import rubix_like as rl
from rubix_like.extend import Footprint, WavelengthBins, save_figure, write_page

ONE, PLACES = np.ones(2), np.ones((2, 3))
STARS = {"position": PLACES, "velocity": PLACES, "initial_mass": ONE, "log_age": 9 * ONE, "metallicity": 0.02 * ONE}
RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 20},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": muse(5000, 5060, 20, "2 arcsec"),
    "devices": {"data": 1},
}
BINS = {"first": 5000.0, "step": 1.0, "n_wave": 3, "sampling": "linear", "medium": "vacuum"}
CUBE = {
    "flux": np.ones((2, 2, 3)),
    "variance": None,
    "used": np.ones((2, 2, 3), bool),
    "bins": WavelengthBins(**BINS),
    "footprint": Footprint(2, 2, 0.2),
}
NO_NUMBERS = {
    "texts": ["a", "b"],
    "array of texts": np.array(["a", "b"]),
    "objects": np.array([None, {}], object),
    "complex": np.ones(2) + 1j,
    "dict": {"a": 1},
    "path": Path("x.hdf5"),
    "times": np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"),
    "lists of different lengths": [[1], [1, 2]],
}
NO_GALAXY = {"None": None, "dict": STARS, "path": Path("x.hdf5"), "text": "x.hdf5", "stars": few_stars(2, 0.1).stars}
NO_PATH = {"None": None, "dict": {}, "number": 3, "list": ["x"], "empty": ""}
PIPELINE = rl.Pipeline.from_config(RUN)
GALAXY = rl.Galaxy(stars=rl.Stars(**STARS))
DRAWN = {"observation.inclination": {"uniform": [5, 85]}}


def cases():  # noqa: PLR0912
    """(what is called, the words that the message begins with or holds, the call)."""
    for kind, bad in NO_NUMBERS.items():
        for name in ("position", "initial_mass", "log_age", "line_light"):
            yield (
                f"Stars.{name}, {kind}",
                f"Stars.{name}: ",
                lambda name=name, bad=bad: rl.Stars(**{**STARS, name: bad}),
            )
        gas = {"position": PLACES, "velocity": PLACES, "mass": bad}
        yield f"Gas.mass, {kind}", "Gas.mass: ", lambda gas=gas: rl.Gas(**gas)
        for name in ("flux", "variance", "ra", "field_angle"):
            place = f"ObservedCube.{name}: "
            yield place + kind, place, lambda name=name, bad=bad: rl.ObservedCube(**{**CUBE, name: bad})
        yield f"universe_age, {kind}", "universe_age: ", lambda bad=bad: rl.validate(GALAXY, bad)
        yield f"around, {kind}", "wavelength: ", lambda bad=bad: WavelengthBins.around(bad, "air")
        yield f"of_table, {kind}", "edges: ", lambda bad=bad: WavelengthBins.of_table([1.0], bad, "air")
        yield f"first, {kind}", "WavelengthBins.first: ", lambda bad=bad: WavelengthBins(**{**BINS, "first": bad})
        yield f"pixel_scale, {kind}", "Footprint.pixel_scale: ", lambda bad=bad: Footprint(2, 2, bad)
    for name in ("position", "velocity", "initial_mass", "log_age"):
        yield f"Stars.{name}, None", f"Stars.{name}: ", lambda name=name: rl.Stars(**{**STARS, name: None})
    for name in ("flux", "used", "bins", "footprint"):
        yield f"cube.{name}, None", f"ObservedCube.{name}: ", lambda name=name: rl.ObservedCube(**{**CUBE, name: None})
    for name, bad in {
        "step": (-1, 0, float("nan"), None),
        "first": (-1.0, 0.0, float("inf")),
        "n_wave": (0, -1, 2.5, "3", True),
        "medium": ("water", None, 3, np.array(["air", "vacuum"])),
        "sampling": ("even", None),
    }.items():
        for value in bad:
            yield (
                f"WavelengthBins.{name}, {value}",
                f"WavelengthBins.{name}: ",
                lambda name=name, value=value: WavelengthBins(**{**BINS, name: value}),
            )
    for name, bad in {"n_y": (0, -1, 2.5), "n_x": (0, "2"), "pixel_scale": (0.0, -0.2, float("nan"), None)}.items():
        for value in bad:
            sizes = {"n_y": 2, "n_x": 2, "pixel_scale": 0.2, name: value}
            yield f"Footprint.{name}, {value}", f"Footprint.{name}: ", lambda sizes=sizes: Footprint(**sizes)
    for kind, bad in NO_GALAXY.items():
        yield f"validate, {kind}", "galaxy: ", lambda bad=bad: rl.validate(bad)
        yield f"pipeline, {kind}", "galaxy: ", lambda bad=bad: PIPELINE(bad)
        yield f"shard, {kind}", "galaxy: ", lambda bad=bad: rl.shard(bad, PIPELINE.mesh)
        yield f"shardings, {kind}", "galaxy: ", lambda bad=bad: rl.particle_shardings(bad, PIPELINE.mesh)
        yield f"simulate, {kind}", "galaxies[0]: ", lambda bad=bad: rl.simulate(RUN, priors=DRAWN, galaxies=[bad])
    yield "Galaxy.stars", "Galaxy.stars: ", lambda: rl.Galaxy(stars=STARS)
    yield "Galaxy.gas", "Galaxy.gas: ", lambda: rl.Galaxy(stars=GALAXY.stars, gas={})
    yield "from_config, galaxy", "galaxy: ", lambda: rl.Pipeline.from_config(RUN, galaxy=Path("x"))
    yield "from_config, mesh", "mesh: ", lambda: rl.Pipeline.from_config(RUN, mesh=2)
    yield "from_config, info", "info: ", lambda: rl.Pipeline.from_config(RUN, info={})
    yield "shard, mesh", "mesh: ", lambda: rl.shard(GALAXY, None)
    yield "pipeline, parameters", "parameters: ", lambda: PIPELINE(GALAXY, Path("x"))
    for kind, bad in NO_PATH.items():
        yield f"load_cube, {kind}", "path: ", lambda bad=bad: rl.load_cube(bad)
        yield f"Cube.read, {kind}", "path: ", lambda bad=bad: rl.Cube.read(bad)
        yield f"read_observed, {kind}", "path: ", lambda bad=bad: rl.read_observed(bad)
        yield f"load_simulations, {kind}", "folder: ", lambda bad=bad: rl.load_simulations(bad)
        if bad != "":
            yield f"load_ssp, {kind}", "config_or_name: ", lambda bad=bad: rl.load_ssp(bad)
        if bad is not None:
            yield f"run, output, {kind}", "output: ", lambda bad=bad: rl.run(RUN, bad)
            yield f"simulate, output, {kind}", "output: ", lambda bad=bad: rl.simulate(RUN, priors=DRAWN, output=bad)
            yield f"fit, output, {kind}", "output: ", lambda bad=bad: rl.fit(RUN, make_cube(), DRAWN, output=bad)
    yield "load_nebular", "nebular", lambda: rl.load_nebular(3)
    for kind, bad in {"None": None, "number": 3, "list": [1]}.items():
        yield f"load_config, {kind}", "configuration: ", lambda bad=bad: rl.load_config(bad)
        yield f"load_galaxy, {kind}", "configuration: ", lambda bad=bad: rl.load_galaxy(bad)
        yield f"run, {kind}", "configuration: ", lambda bad=bad: rl.run(bad)
    yield "overrides", "overrides: ", lambda: rl.load_config(RUN, "observation.redshift=1")
    yield "run, plot", "'plot'", lambda: rl.run(RUN, plot=True)
    yield "catalogue", "catalogue: ", lambda: rl.run_catalogue(RUN, None)
    yield "lines", "source: ", lambda: rl.lines(None)
    yield "make_mosaic, dict", "cubes: ", lambda: rl.make_mosaic({"a": 1})
    yield "make_mosaic, path", "cubes[0]: ", lambda: rl.make_mosaic(["a.fits"])
    yield "make_mesh", "n_devices: ", lambda: rl.make_mesh("all")
    yield "make_mesh, wave", "wave: ", lambda: rl.make_mesh(1, 0)
    yield "fit, data", "data: ", lambda: rl.fit(RUN, 3, DRAWN)
    yield "medium", "medium: ", lambda: rl.read_observed(__file__, medium=3)
    yield "units", "units: ", lambda: rl.read_observed(__file__, units=3)
    yield "pixel_scale", "pixel_scale: ", lambda: rl.read_observed(__file__, pixel_scale={})
    yield from of_remedies()


def of_remedies():
    """Arguments that the command line has, too: they are called by their names in Python."""
    cube = PIPELINE(GALAXY)
    other = rl.Pipeline.from_config(rl.load_config(RUN, {"instrument.wavelength.step": 10}))(GALAXY)
    yield "coordinator", "coordinator: ", rl.join_processes("nohost", 2, 0).__enter__
    yield "process_id", "process_id: ", rl.join_processes("localhost:1", 2, 5).__enter__
    yield "two of three", "num_processes, process_id: ", rl.join_processes("localhost:1").__enter__
    yield "timeout", "connect_timeout: ", rl.join_processes("localhost:1", 2, 0, connect_timeout=-1).__enter__
    rows = [{"name": "a"}]
    yield "part", "part: ", lambda: rl.run_catalogue(RUN, rows, output="folder", part="x")
    yield "block", "block: ", lambda: rl.run_catalogue(RUN, rows, output="folder", block=2)
    yield "executor", "executor: ", lambda: rl.run_catalogue(RUN, rows, output="folder", executor="mpi:4")
    yield "catalogue, output", "output: ", lambda: rl.run_catalogue(RUN, rows, output="a.fits")
    yield "plot, spaxels", "spaxels: ", lambda: cube.plot([(99, 9)])
    yield "plot, band", "band: ", lambda: cube.plot(band=(5050, 5000))
    yield "save_figure, path", "path: ", lambda: save_figure(cube, "picture.xyz")
    yield "write_page, path", "path: ", lambda: write_page(cube, "page.xyz")
    yield "make_mesh, too many", "n_devices, ", lambda: rl.make_mesh(99)
    folder = Path(__file__).parent
    yield "write, folder", f"got the folder '{folder}'", lambda: cube.write(folder)
    yield "write, None", "path: ", lambda: cube.write(None)
    yield "map", "name: ", lambda: cube.map(None)
    yield "map of another name", "did you mean 'velocity'", lambda: cube.map("velocty")
    yield (
        "mosaic",
        "mosaic: expected cubes of one instrument, got another wavelength bins",
        lambda: rl.make_mosaic([cube, other]),
    )
    for name in ("ra", "dec", "field_angle"):
        for bad in (float("nan"), [1.0, 2.0]):
            angle = {**CUBE, name: bad}
            yield f"{name}, {bad}", f"ObservedCube.{name}: ", lambda angle=angle: rl.ObservedCube(**angle)
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]")
    for kind, bad in {"dates": days, "texts": ("a", "b", "c"), "NaN": (1, np.nan, 3), "falling": (3, 2, 1)}.items():
        table = {**BINS, "n_wave": 1, "sampling": "table", "nodes": bad}
        yield f"nodes, {kind}", "WavelengthBins.nodes: ", lambda table=table: WavelengthBins(**table)
    yield "load_instrument", "name: ", lambda: rl.load_instrument(3)
    yield "fit without data", "; and data: ", lambda: rl.fit(RUN)
    yield "fit, no data", "data: ", lambda: rl.fit(RUN, free=DRAWN)
    bright = {**CUBE, "variance": np.full((2, 2, 3), 1e-9)}
    yield "plausible", "an ObservedCube: ", lambda: rl.fit(RUN, rl.ObservedCube(**bright), DRAWN)


def error_of(call):
    """Type and words of the error, or what was given instead."""
    try:
        return "", repr(call())
    except Exception as error:
        return type(error).__name__, str(error)


if __name__ == "__main__":
    print(json.dumps([[name, words, *error_of(call)] for name, words, call in cases()]))
