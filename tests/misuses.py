"""Calls from Python with arguments of a wrong kind, without checks of types at run time: prints the errors as JSON."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import numpy as np
import plug_in_misuses
import user_mistakes
from astropy import units
from astropy.coordinates import SkyCoord
from small import few_stars, make_cube, muse
from small_results import fit_result

import rubix_like as rl
from rubix_like import extend
from rubix_like.extend import Footprint, WavelengthBins, resolve, to_vacuum

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
NOISY = rl.Pipeline.from_config({**RUN, "noise": {"signal_to_noise": 30}})
PIPELINE_AT_REST = rl.Pipeline.from_config({**RUN, "galaxy": None})
GALAXY = rl.Galaxy(stars=rl.Stars(**STARS))
GAS = {"position": PLACES, "velocity": PLACES, "mass": ONE}
DRAWN = {"observation.inclination": {"uniform": [5, 85]}}


def cases():
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
    of_none = "edges: expected a list of numbers or an array, got None"
    yield "of_table, None", of_none, lambda: WavelengthBins.of_table([1.0], None, "air")
    turned = np.ones((3, 2))
    for kind, given in ((rl.Stars, STARS), (rl.Gas, {"position": PLACES, "velocity": PLACES, "mass": ONE})):
        place = f"{kind.__name__}.position: expected shape (2, 3), got (3, 2)"
        yield place, place, lambda kind=kind, given=given: kind(**{**given, "position": turned})
    yield from of_records()
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
    yield "load_nebular", "name_or_path: ", lambda: rl.load_nebular(3)
    for kind, bad in {"None": None, "number": 3, "list": [1]}.items():
        yield f"load_config, {kind}", "source: ", lambda bad=bad: rl.load_config(bad)
        yield f"load_galaxy, {kind}", "source: ", lambda bad=bad: rl.load_galaxy(bad)
        yield f"run, {kind}", "config: ", lambda bad=bad: rl.run(bad)
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
    yield from of_values()
    yield from of_kinds()
    yield from of_remedies()
    yield from of_calls()
    yield from of_arguments()
    yield from of_fields()
    yield from of_particles()
    yield from of_fits()
    yield from of_formulas()


def wrong(record, given, fields):
    """Each wrong value in a record that is right else; the error begins with its field, what follows a comma aside."""
    for name, values in fields.items():
        field = name.partition(",")[0]
        for bad in values:
            changed = {**given, field.partition("[")[0]: bad}
            place = f"{record.__name__}.{field}"
            yield f"{place}: {bad!r:.20} of {len(given)}", place, lambda changed=changed: record(**changed)


def of_records():
    """Fields of records whose other fields are right."""
    flux, nan, library = np.ones((2, 2, 3)), float("nan"), vars(rl.load_ssp("popstar"))
    ages = library["log_age"]
    fields = {"position": [None], "velocity": [None], "metallicity": [ONE > 0]}
    yield from wrong(rl.Stars, STARS, fields | {name: [None, ONE > 0] for name in ("initial_mass", "log_age")})
    fields = {name: [None] for name in ("flux", "used", "bins", "footprint")}
    fields |= {name: [nan, [1.0, 2.0]] for name in ("ra", "dec", "field_angle")}
    yield from wrong(rl.ObservedCube, CUBE, fields)
    fields = {"ra": [500], "dec": [95], "name": [5], "notes": ["abc"], "notes[0]": [[3]], "source": [None]}
    fields |= {"meta": [{}], "correlations": [5]}
    yield from wrong(rl.ObservedCube, {**CUBE, "ra": 10.0, "dec": 5.0}, fields)
    yield from wrong(rl.ObservedCube, CUBE, {"ra": [10.0], "dec": [5.0]})
    cube = {"flux": flux, "mask": np.zeros(flux.shape, int), "bins": CUBE["bins"], "footprint": CUBE["footprint"]}
    bits = [np.full(flux.shape, 2**40), np.full(flux.shape, 2**31, np.uint32)]
    bits += [jax.numpy.full(flux.shape, 2**31, jax.numpy.uint32)]
    fields = {"variance": [-flux], "mask": [0.5 * flux, -np.ones(flux.shape, int), None, *bits], "meta": ["x"]}
    fields |= {"counters": ["x"], "bins": [np.arange(3.0)], "footprint": [(2, 2, 0.2)], "maps": ["x"], "fibres": ["x"]}
    fields |= {"lsf_fwhm": [-np.ones(3)], "contributions": [[1]], "source_counters": ["x"], "correlations": [5]}
    yield from wrong(rl.Cube, cube, fields | {"noise_sources": [PIPELINE(GALAXY)]})
    numbers = {"flux": 1e300, "flux, infinite": np.inf, "variance": nan, "variance, large": 1e60, "truth": nan}
    for name, bad in numbers.items():
        field = name.partition(",")[0]
        fields = {**cube, field: bad * flux}
        yield f"Cube.{name}", f"Cube.{field}: ", lambda fields=fields: rl.Cube(**fields).write("unreadable.fits")
    fields = {"step": [-1, 0, nan, None], "first": [-1.0, 0.0, float("inf"), 4800 * units.kpc]}
    fields |= {"n_wave": [0, -1, 2.5, "3", True], "medium": ["water", None, 3, np.array(["air", "vacuum"])]}
    yield from wrong(WavelengthBins, BINS, fields | {"sampling": ["even", None, np.array(["linear", "log"])]})
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]")
    nodes = [days, ("a", "b", "c"), (1, np.nan, 3), (3, 2, 1)]
    yield from wrong(WavelengthBins, {**BINS, "n_wave": 1, "sampling": "table"}, {"nodes": nodes})
    sizes = {"n_y": [0, -1, 2.5, True], "n_x": [0, "2", np.True_], "pixel_scale": [0.0, -0.2, nan, None, [1, 1]]}
    yield from wrong(Footprint, {"n_y": 2, "n_x": 2, "pixel_scale": 0.2}, sizes)
    fields = {"redshift": ["z"], "universe_age": [13.8], "n_stars": [-3], "n_gas": [2.5], "center": [(1, 2)]}
    fields |= {"name": [5]}
    fields |= {"bulk_velocity": [3.0], "notes": ["a note"], "notes[1]": [("a", 1)], "ages": [None]}
    yield from wrong(rl.GalaxyInfo, {"name": "a", "reader": "b", "source": "c"}, fields)
    yield from wrong(rl.Counters, {}, {"n_particles": ["a"], "mass_total": [None]})
    pointing = {"number": 1, "name": "a", "reference": (0.0, 0.0), "offset": (0.0, 0.0)}
    pointing |= {"field_angle": 0.0, "turn": 0.0}
    fields = {"number": [0], "name": [None], "reference": [(0.0,)], "offset": [(np.nan, 0.0)], "field_angle": ["x"]}
    yield from wrong(rl.Pointing, pointing, fields | {"turn": [1 * units.kpc]})
    curve = {"relative": np.ones_like, "wavelength_range": (1e3, 2e4), "r_v": 3.1, "r_v_range": (2.0, 6.0)}
    curve |= {"source": ""}
    fields = {"relative": ["x"], "wavelength_range": [(2e4, 1e3)], "r_v_range": [(-1.0, 6.0)], "r_v": [7.0]}
    yield from wrong(extend.DustCurve, curve, fields)
    fields = {"log_age": [10**ages, ages[::-1], list("abc"), ages * units.yr, None], "fwhm": [-library["fwhm"], None]}
    waves = library["rest_wavelength"]
    fields |= {"rest_wavelength": [-waves[::-1], waves * units.kg], "spectra": [library["spectra"] * 1e9, "x"]}
    fields |= {"metallicity": [library["metallicity"] * 1e3, {}], "name": [5, None], "source_medium": ["glass"]}
    fields |= {"surviving_fraction": [np.full(library["spectra"].shape[:2], 1.5)], "solar_metallicity": ["solar"]}
    for name, words, call in wrong(rl.SSPLibrary, library, fields):
        yield name, words.removeprefix("SSPLibrary."), call


def of_values():
    """Numbers and shapes that cannot be, and values of another kind in records."""
    gas = {"position": PLACES, "velocity": PLACES, "mass": ONE}
    for name, bad in {
        "position": 1e40 * PLACES,
        "velocity": 3e5 * PLACES,
        "initial_mass": 1e40 * ONE,
        "smoothing_length": 1e40 * ONE,
        "random_velocity": 3e5 * ONE,
        "east": 1e40 * ONE,
        "line_light": -np.ones((2, 1)),
        "log_age": 5e9 * ONE,
    }.items():
        yield (
            f"validate, stars.{name}",
            f"stars.{name}: expected ",
            lambda name=name, bad=bad: rl.validate(rl.Galaxy(rl.Stars(**{**STARS, name: bad}))),
        )
    yield (
        "pipeline, impossible masses",
        "galaxy: expected finite positions, velocities, amounts and properties, amounts from 0, ",
        lambda: PIPELINE(rl.Galaxy(rl.Stars(**{**STARS, "initial_mass": -ONE}))),
    )
    neutral = rl.Gas(**gas, hi_fraction=0.8 * ONE, h2_fraction=0.8 * ONE)
    yield (
        "validate, neutral",
        "gas.hi_fraction + gas.h2_fraction: ",
        lambda: rl.validate(rl.Galaxy(GALAXY.stars, neutral)),
    )
    yield "validate, Gyr", "universe_age: expected a number of yr", lambda: rl.validate(GALAXY, 13.8)
    yield (
        "draw_log_ages, Gyr",
        "universe_age: expected a number of yr",
        lambda: extend.draw_log_ages(extend.AgeRecipe(), [0], 13.8),
    )
    for bad in ([-1.0], [0.5], [np.nan]):
        yield f"draw_log_ages, {bad}", "row: ", lambda bad=bad: extend.draw_log_ages(extend.AgeRecipe(), np.array(bad))
    yield "SyntheticGalaxy", "SyntheticGalaxy.disc_log_age: ", lambda: rl.SyntheticGalaxy(disc_log_age=None)
    yield from of_cubes()
    yield from of_tables()


def of_cubes():
    """Fields of cubes and bins of wavelength."""
    flux = np.ones((2, 2, 3))
    cube = {"flux": flux, "mask": np.zeros(flux.shape, int), "bins": CUBE["bins"], "footprint": CUBE["footprint"]}
    for ra, dec in ((10.0, 0.0), (330.0, 0.0), (120.0, 30.0)):  # 140, 180 and 41 deg away
        places = [extend.Meta({"ra": east, "dec": north}) for east, north in ((150.0, 0.0), (ra, dec))]
        far = [rl.Cube(**{**cube, "meta": meta}) for meta in places]
        away = SkyCoord(150, 0, unit="deg").separation(SkyCoord(ra, dec, unit="deg")).deg
        fault = f"cubes: expected fields that fit into memory as one mosaic, got cubes[1] {away:.4g} deg from cubes[0]"
        yield f"mosaic, {ra} {dec}", fault, lambda far=far: rl.make_mosaic(far)
    axes = SimpleNamespace(dims=("x", "y", "wave"), shape=flux.shape, dtype=flux.dtype, ndim=3)  # as of xarray
    for record, given in ((rl.Cube, cube), (rl.ObservedCube, CUBE)):
        place = f"{record.__name__}.flux: expected an array without names of axes"
        yield place, place, lambda record=record, given=given: record(**{**given, "flux": axes})
    for name, angle in {"ra": 400.0, "dec": 120.0, "field_angle": "ten"}.items():
        meta = extend.Meta({name: angle})
        yield f"meta, {name}", f"Cube.meta['{name}']: ", lambda meta=meta: rl.Cube(**{**cube, "meta": meta})
    for bad in ("object", {3: "x"}):
        yield f"Meta, {bad}", "items: ", lambda bad=bad: extend.Meta(bad)
    for bad in (CUBE, flux):
        yield f"observed_from, {type(bad)}", "cube: ", lambda bad=bad: extend.observed_from(bad)
    yield "image", "band: expected one within the cube's", lambda: rl.Cube(**cube).image((4000, 5001))
    noisy = [rl.Cube(**{**cube, "variance": variance * flux}) for variance in (1.0, 0.0)]
    yield "mosaic, no errors", "cubes[1].variance: ", lambda: rl.make_mosaic(noisy)
    turned = [rl.Cube(**{**cube, "meta": extend.Meta({"inclination": angle})}) for angle in (60.0, 10.0)]
    yield "mosaic, turned", "got another inclination in cube 2", lambda: rl.make_mosaic(turned)
    yield "used", "ObservedCube.used: ", lambda: rl.ObservedCube(**{**CUBE, "used": 2 * np.ones(flux.shape, int)})
    yield "bins, dex", "WavelengthBins.step: ", lambda: WavelengthBins(4800.0, 20.0, 5, "log", "air")
    yield "bins, nodes", "WavelengthBins.nodes: ", lambda: WavelengthBins(4800.0, 20.0, 5, "table", "air")
    for start, stop in ((1, 99), (-1, 2), (2, 2)):
        yield (
            f"part, {start} {stop}",
            "bins: expected 0 <= start < stop <= 3",
            lambda start=start, stop=stop: CUBE["bins"].part(start, stop),
        )


def of_tables():
    """Tables and records of plug-in authors, and the gas of nebulae."""
    axes = {
        "log_age": np.array([6.0, 7.0]),
        "metallicity": np.array([0.01, 0.02]),
        "rest_wavelength": 1e3 + np.arange(4),
    }
    texts = dict.fromkeys(("name", "imf", "citation", "licence", "source"), "")
    library = {**axes, **texts, "medium": "vacuum", "solar_metallicity": 0.02, "fwhm": np.ones(4)}
    yield "SSPTable", "spectra: expected light >= 0", lambda: extend.SSPTable(**library, spectra=-np.ones((2, 2, 4)))
    for temperature, density, name in ((-1e4, 100, "temperature"), (4, 100, "temperature"), (1e4, -100, "density")):
        at = np.array([float(temperature)]), np.array([float(density)])
        for line in ("Ha", "Hb"):
            yield f"{line} {at}", f"{name}: ", lambda line=line, at=at: extend.energy_per_photon(line, *at)
            yield f"ratio {line} {at}", f"{name}: ", lambda line=line, at=at: extend.ratio_to_h_beta(line, *at)
        yield f"continuum {at}", f"{name}: ", lambda at=at: extend.nebular_continuum(np.array([5e3]), *at)
    for helium in (-5.0, 5.0):
        yield "continuum, helium", "helium: ", lambda he=helium: extend.nebular_continuum(np.array([5e3]), 1e4, 1e2, he)
    for wave in ([-5e3], [0.5]):
        yield "continuum, wavelength", "wavelength: ", lambda wave=wave: extend.nebular_continuum(wave, 1e4, 1e2)
    table = extend.SSPTable(**library, spectra=np.ones((2, 2, 4)))
    yield (
        "SSPTable, surviving_fraction",
        "surviving_fraction: expected values from 0 to 1",
        lambda: extend.SSPTable(**vars(table) | {"surviving_fraction": np.full((2, 2), 1.5)}),
    )
    yield "write_table, compression", "compression: ", lambda: extend.write_table(table, Path("t.h5"), 99)
    for bad in ([-5000.0], [0.0], [np.nan]):
        yield f"to_vacuum, {bad}", "air: expected wavelengths above 0", lambda bad=bad: to_vacuum(np.array(bad))
        yield f"to_air, {bad}", "vacuum: expected wavelengths above 0", lambda bad=bad: extend.to_air(np.array(bad))
    yield "section", "expected a section that a plug-in brings", lambda: rl.load_config(RUN).section("observaton")
    for name, amount, place, scale in (
        ("amount", np.ones(3), {}, 1.0),
        ("age", ONE, {"age": np.ones(3)}, 1.0),
        ("arcsec_per_kpc", ONE, {}, -1.0),
        ("arcsec_per_kpc", ONE, {}, 1 * units.kg),
    ):
        yield (
            f"to_scene, {name}, {scale}",
            f"to_scene: {name}: ",
            lambda amount=amount, place=place, scale=scale: extend.to_scene(GALAXY.stars, amount, place, None, scale),
        )
    yield "Parameters", "parameters['lsf.fwhm']: ", lambda: rl.Parameters.of({"lsf.fwhm": "x"})
    yield "per_bin, axis", "axis: ", lambda: extend.per_bin("a")
    yield "per_bin, pad", "pad: ", lambda: extend.per_bin(pad="mean")
    yield "InUnit", "'kgg' did not parse as unit", lambda: extend.InUnit("kgg")
    yield "TemplateAxes, names", "TemplateAxes.nodes: ", lambda: extend.TemplateAxes((ONE,), ())
    yield (
        "TemplateAxes, falling",
        "TemplateAxes.nodes: age: ",
        lambda: extend.TemplateAxes((np.array([3.0, 1]),), ("age",)),
    )


def of_formulas():
    """What plug-in authors call with numbers that cannot be."""
    for bad in (2 * np.eye(3), np.eye(2)):
        yield (
            f"to_scene, alignment {bad.shape}",
            "to_scene: alignment: expected a rotation",
            lambda bad=bad: extend.to_scene(GALAXY.stars, ONE, {}, bad, 1.0),
        )
    setup = extend.make_setup(rl.load_config(RUN), extend.resolve(rl.load_config(RUN)), None)
    lines = extend.LineTemplates("x", extend.TemplateAxes((), ()), ("a",), 4800 * ONE[:1], np.ones((1, 1)), 0 * ONE[:1])
    for name, bad in {"narrowest": -5.0, "velocity_range": -100.0, "method": "fast", "kind": "gaz"}.items():
        given = {"kind": "stars", "narrowest": 60.0, name: bad}
        yield f"plan_lines, {name}", f"{name}: ", lambda given=given: extend.plan_lines(setup, lines, **given)
    yield "plan_source", "kind: ", lambda: extend.plan_source(setup, rl.load_ssp("popstar").templates(), "gaz")
    yield "build_painter", "plan: ", lambda: extend.build_painter(None, setup)
    yield "build_line_painter", "plan: ", lambda: extend.build_line_painter(3, setup)
    yield "load_field_map", "name: ", lambda: extend.load_field_map(3)
    yield "elements", "images: ", lambda: Footprint(2, 3, 0.2).elements(np.ones((3, 2, 4)))
    yield "images", "values: ", lambda: Footprint(2, 3, 0.2).images(np.ones((7, 4)))
    for bad in (ONE * units.m, np.ma.masked_array(ONE, [0, 1])):
        for curve in (extend.kauffmann_2003, extend.kewley_2013):
            yield f"{curve.__name__}, {type(bad)}", "nitrogen: ", lambda curve=curve, bad=bad: curve(bad)


def of_kinds():
    """Arguments of another kind than their annotation states, and quantities of another dimension."""
    config = rl.load_config(RUN)
    galaxy = rl.load_galaxy(config)
    cube, observed = PIPELINE(galaxy), rl.ObservedCube(**CUBE)
    table, library = rl.load_nebular("mappings-hii"), rl.load_ssp("popstar")
    noisy = NOISY(galaxy)
    posterior = rl.log_posterior(config, noisy, DRAWN)
    other_mesh = jax.make_mesh((1,), ("x",))
    elsewhere = extend.resolve(rl.load_config(config, {"observation.redshift": 0.2}))
    for call, name, given, *named in (
        (rl.fit, "free", (RUN, cube, ["observation.inclination"])),
        (rl.fit, "free", (RUN, DRAWN, cube)),
        (rl.fit, "data", (RUN, 3)),
        (rl.sample, "free", (RUN, cube, "inclination")),
        (rl.simulate, "draws", (RUN, [10.0, 20.0])),
        (rl.simulate, "draws", (RUN, {3: [1.0]})),
        (rl.simulate, "draws", (RUN, "x.csv")),
        (rl.simulate, "n", (RUN, None, DRAWN, "3")),
        (rl.simulate, "galaxies", (RUN, None, DRAWN), {"galaxies": iter([galaxy])}),
        (rl.load_config, "overrides", (RUN, {3: 4})),
        (rl.load_config, "overrides", (RUN, ["observation.redshift"])),
        (rl.log_posterior, "free", (RUN, cube, "x")),
        (rl.log_posterior, "model", (RUN, cube, DRAWN), {"model": extend.AbstractGalaxyModel}),
        (rl.run, "output", (RUN, 3)),
        (rl.run, "team", (RUN, "r.fits", 3)),
        (rl.run, "overwrite", (RUN, "r.fits"), {"overwrite": "no"}),
        (rl.fit, "resume", (RUN, cube, DRAWN), {"resume": "no"}),
        (rl.run_catalogue, "redo", (RUN, [{"name": "a"}]), {"output": "cubes", "redo": "no"}),
        (rl.run_catalogue, "catalogue, row 2", (RUN, [{"name": "a"}, 3]), {"output": "cubes"}),
        (rl.Gas, "Gas.mass", (PLACES, PLACES, None)),
        (cube.spectrum, "at", (), {"at": 0}),
        (cube.spectrum, "offset", (), {"offset": 3}),
        (rl.shard, "mesh", (galaxy, "cpu")),
        (rl.shard, "mesh", (galaxy, other_mesh)),
        (rl.shard, "galaxy", (galaxy.stars, rl.make_mesh(1))),
        (rl.shard_local, "team", (galaxy, rl.make_mesh(1), None)),
        (rl.make_mosaic, "cubes", (cube,)),
        (rl.lines, "source", ("cube.fits",)),
        (rl.load_simulations, "start", ("simulations", "a")),
        (rl.read_observed, "units", ("cube.fits",), {"units": 3}),
        (rl.read_observed, "hdu", ("cube.fits",), {"hdu": 1.5}),
        (rl.run_catalogue, "part", (RUN, [{"name": "a"}]), {"output": "cubes", "part": (1, 2)}),
        (PIPELINE.at, "pointing", (0,)),
        (PIPELINE.observe_slabs, "slabs", (galaxy,)),
        (rl.Pipeline.from_config, "census", (RUN,), {"census": galaxy}),
        (rl.Pipeline.from_config, "galaxy", (RUN, galaxy.stars)),
        (cube.image, "band", (4850,)),
        (cube.image, "band", ((1, 2, 3),)),
        (cube.image, "band", (("1 kpc", "2 kpc"),)),
        (cube.cut, "wavelength", (4850,)),
        (cube.cut, "size", (), {"offset": (0, 0), "size": "1 kpc"}),
        (cube.spectrum, "x", (float("nan"), 0)),
        (cube.spectrum, "radius", (), {"offset": (0, 0), "radius": float("nan")}),
        (cube.spectrum, "offset", (), {"offset": ("1 kpc", 0), "radius": 1}),
        (noisy.covariance, "wavelength", ("red",)),
        (cube.map, "name", (None,)),
        (cube.write, "path", (None,)),
        (rl.Cube.read, "path", (None,)),
        (observed.crop, "low", ("x", 4850)),
        (observed.crop, "high", (4850, "1 kg")),
        (rl.FitResult.read, "path", (None,)),
        (rl.SampleResult.read, "path", (3,)),
        (cube.bins.part, "start", ("a", 2)),
        (posterior.draw, "seed", (2, -1)),
        (posterior.draw, "seed", (2, "x")),
        (posterior.to_unconstrained, "observation.inclination", ({"observation.inclination": [1, 2]},)),
        (rl.SyntheticGalaxy().sample, "draws", (50,)),
        (table.line, "name", (6563,)),
        (extend.draw_base, "n_stars", (10.5, 0, 1)),
        (extend.draw_base, "n_stars", ("10", 0, 1)),
        (extend.draw_base, "seed", (10, 0, -1)),
        (extend.draw_base, "seed", (10, 0, 1.5)),
        (extend.draw_base, "draws", (10, 0, 1, "halton")),
        (extend.ionising_photons, "library", ("popstar",)),
        (extend.energy_per_photon, "line", ("[O III] 5007", ONE * 1e4, ONE * 100)),
        (extend.ratio_to_h_beta, "line", ("zz", ONE * 1e4, ONE * 100)),
        (extend.ratio_to_h_beta, "temperature", ("Ha", "hot", ONE * 100)),
        (extend.fixed, "table", (library,)),
        (extend.fixed, "log_u", (table,), {"log_u": [-3, -2]}),
        (extend.line_grid, "steps", (table, {"log_uu": 0.1})),
        (extend.line_grid, "steps", (table, {"log_u": 0.0})),
        (extend.resolve, "config", (RUN,)),
        (extend.make_setup, "census", (config, extend.resolve(config), galaxy)),
        (extend.make_setup, "config", (extend.resolve(config), config, None)),
        (extend.make_setup, "resolved", (config, elsewhere, None)),
        (extend.take_census, "resolved", (config, elsewhere, [galaxy])),
        (extend.take_census, "config", (RUN, None, galaxy)),
        (extend.coverage, "cubes", (cube,)),
        (extend.in_parts, "cube", ("cube.fits",)),
        (extend.on_grid_of, "observed", (config, cube)),
        (extend.bpt_ratios, "maps", (cube,)),
        (extend.save_bpt, "maps", ("cube.fits", "o.png")),
        (extend.save_attenuation, "maps", (cube, "o.png")),
        (extend.save_figure, "cube", ("cube.fits", "o.png")),
        (extend.save_figure, "choice", (cube, "o.png", {"spaxels": [(1, 1)]})),
        (extend.write_page, "cube", ("cube.fits", "p.html")),
        (extend.write_cube, "packing", (cube, "w.fits"), {"packing": "gzip"}),
        (extend.write_cube, "cube", ("w.fits", cube)),
        (extend.write_table, "table", (library, Path("t.h5"))),
        (extend.draw_log_ages, "recipe", ({"oldest": 3}, ONE)),
        (extend.open_selected, "settings", (config.galaxy,)),
        (extend.import_library, "path", (None,)),
    ):
        keywords = named[0] if named else {}
        yield (
            f"{call.__qualname__}, {name}",
            f"{name}: ",
            lambda call=call, given=given, keywords=keywords: call(*given, **keywords),
        )


def of_remedies():
    """Arguments that the command line has, too: they are called by their names in Python."""
    cube = PIPELINE(GALAXY)
    other = rl.Pipeline.from_config(rl.load_config(RUN, {"instrument.wavelength.step": 10}))(GALAXY)
    yield "coordinator", "coordinator: ", rl.join_processes("nohost", 2, 0).__enter__
    yield "process_id", "process_id: ", rl.join_processes("localhost:1", 2, 5).__enter__
    yield "two of three", "num_processes, process_id: ", rl.join_processes("localhost:1").__enter__
    yield "late", "join_processes: ", rl.join_processes("localhost:1", 2, 0).__enter__
    yield "timeout", "connect_timeout: ", rl.join_processes("localhost:1", 2, 0, connect_timeout=-1).__enter__
    rows = [{"name": "a"}]
    yield "part", "part: ", lambda: rl.run_catalogue(RUN, rows, output="folder", part="x")
    yield "block", "block: ", lambda: rl.run_catalogue(RUN, rows, output="folder", block=2)
    yield "executor", "executor: ", lambda: rl.run_catalogue(RUN, rows, output="folder", executor="mpi:4")
    yield "catalogue, output", "output: ", lambda: rl.run_catalogue(RUN, rows, output="a.fits")
    yield "plot, spaxels", "spaxels: ", lambda: cube.plot([(99, 9)])
    yield "plot, band", "band: ", lambda: cube.plot(band=(5050, 5000))
    yield "save_figure, path", "path: ", lambda: extend.save_figure(cube, "picture.xyz")
    yield "write_page, path", "path: ", lambda: extend.write_page(cube, "page.xyz")
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
    yield "load_instrument", "name: ", lambda: rl.load_instrument(3)
    yield "fit without data", "; and data: ", lambda: rl.fit(RUN)
    yield "fit, no data", "data: ", lambda: rl.fit(RUN, free=DRAWN)
    bright = {**CUBE, "variance": np.full((2, 2, 3), 1e-9)}
    yield "plausible", "an ObservedCube: ", lambda: rl.fit(RUN, rl.ObservedCube(**bright), DRAWN)


def of_calls():
    """What goes into the call of a pipeline, and into formulas of `extend`."""
    dusty = rl.Pipeline.from_config(rl.load_config(RUN, {"dust": {"a_v": 1}, "observation.inclination": 40}))
    name = "observation.inclination"
    place = f"parameters['{name}']: "
    no_angle = {
        "mask": np.ma.masked,
        "None": None,
        "true": True,
        "nan": np.nan,
        "inf": np.inf,
        "kpc": 3 * units.kpc,
        "text": "30 deg",
        "two": np.ones(2),
    }
    for kind, bad in no_angle.items():
        yield f"dict, {kind}", place, lambda bad=bad: dusty(GALAXY, {name: bad})
        tree = eqx.tree_at(lambda p: p.observation.inclination, dusty.parameters, bad)
        yield f"tree, {kind}", place, lambda tree=tree: dusty(GALAXY, tree)
        yield f"slabs, {kind}", place, lambda tree=tree: dusty.observe_slabs([GALAXY], tree)
        yield f"lower, {kind}", place, lambda tree=tree: dusty.lower(GALAXY, tree)
    for a_v in (-1.0, np.float32(-1), np.array(-0.1), -1 * units.mag, 2e6):
        words = f"parameters['dust.a_v']: expected a value within the parameter's limits, got {np.float64(a_v):.4g} mag"
        yield f"a_v {a_v!r}", words, lambda a_v=a_v: dusty(GALAXY, {"dust.a_v": a_v})
    bright = eqx.tree_at(lambda own: own.parameters.dust.a_v, dusty, -1.0)
    yield "a_v of a pipeline", "parameters['dust.a_v']: ", lambda: bright(GALAXY)
    yield "parameters of another", "which its configuration does not have", lambda: PIPELINE(GALAXY, dusty.parameters)
    yield "parameters of a bare one", "parameters['dust.a_v']: ", lambda: dusty(GALAXY, PIPELINE.parameters)
    remedy = f"got '{name}', which its configuration does not have; give {name} there"
    yield "a name that is null", remedy, lambda: PIPELINE_AT_REST(GALAXY, {name: 30.0})
    yield "a name that is none", "did you mean 'dust.a_v'", lambda: dusty(GALAXY, {"dust.av": 1.0})
    yield "a number for a name", "parameters: ", lambda: dusty(GALAXY, {3: 4})
    for key, value in {
        "instrument.fov": "5 arcsec",
        "observation.redshift": 0.1,
        "engine.deposit": "tsc",
        "pipeline": "nebular",
    }.items():
        other = resolve(rl.load_config(RUN, {key: value}))
        yield f"resolved, {key}", "resolved: ", lambda other=other: rl.Pipeline.from_config(RUN, resolved=other)
    pointing = rl.Pointing(1, "x", (0.0, 0.0), (50.0, 0.0), 0.0, 0.0)
    yield "pointing", "pointing: expected one of pipeline.pointings (it has none)", lambda: PIPELINE.at(pointing)
    yield "pointing, number", "pointing: ", lambda: PIPELINE.at(0)
    wavelengths = {"kg": ONE * units.kg, "mask": np.ma.masked_array(ONE, [0, 1]), "None": None, "bool": ONE > 0}
    for kind, bad in wavelengths.items():
        yield f"to_vacuum, {kind}", "air: ", lambda bad=bad: to_vacuum(bad)
        yield f"bins, {kind}", "wavelength: ", lambda bad=bad: WavelengthBins(**BINS).to_vacuum(bad)


def of_arguments():
    """Keys, slabs, shapes and names of files, and what plug-ins call."""
    noisy = NOISY
    key = jax.random.key(1)
    no_key = {"number": 3, "text": "a", "generator": np.random.default_rng(0), "keys": jax.random.split(key, 3)}
    for kind, bad in no_key.items():
        yield f"key, {kind}", "key: expected one key", lambda bad=bad: noisy(GALAXY, key=bad)
        yield f"slabs, key, {kind}", "key: expected one key", lambda bad=bad: noisy.observe_slabs([GALAXY], key=bad)
        yield f"normal_row, {kind}", "key: ", lambda bad=bad: extend.normal_row(bad, PLACES, extend.BinSplit())
    for bad in (None, GALAXY.stars):
        yield (
            f"slab, {type(bad)}",
            "slabs[1]: expected an rl.Galaxy",
            lambda bad=bad: noisy.observe_slabs([GALAXY, bad]),
        )
    yield "changed", "values: expected a dict", lambda: noisy.parameters.changed("x")
    lists = {name: column.tolist() for name, column in STARS.items()}
    fast = rl.Galaxy(rl.Stars(**{**lists, "velocity": (1e4 * PLACES).tolist()}))
    remedy = f"to {math.ceil(1e4 * np.linalg.norm(PLACES, axis=1).max())} km/s, or build the pipeline from this galaxy"
    narrow = rl.load_config(RUN, {"engine.velocity_range": 1000})
    yield (
        "fast, in lists",
        f"got 2 of 2 stars beyond; set engine.velocity_range {remedy}",
        lambda: rl.Pipeline.from_config(narrow)(fast),
    )
    beyond_light = rl.Galaxy(rl.Stars(**{**STARS, "velocity": np.full((2, 3), 2e5)}))
    yield "beyond light", "stars.velocity: expected speeds of at most 299792", lambda: rl.validate(beyond_light)
    yield "beyond light, planned", "check the unit of velocities", lambda: rl.Pipeline.from_config(narrow)(beyond_light)
    yield "range", "engine.velocity_range", lambda: rl.load_config(RUN, {"engine.velocity_range": 346411})
    too_fast = rl.Galaxy(rl.Stars(**{**STARS, "velocity": 1e6 * PLACES}))
    yield "too fast", "stars.velocity: expected ", lambda: rl.Pipeline.from_config(RUN, too_fast)
    cube = noisy(GALAXY)
    covariance = cube.covariance(5030)
    for shape in ((3,), (1, *covariance.shape), (*covariance.shape, 1)):
        yield f"chi2, {shape}", "residual: expected an image", lambda shape=shape: covariance.chi2(np.zeros(shape))
    image, masked = np.ones(covariance.shape), np.ma.masked_equal([[0, 1]] * 2, 0)
    for bad in (image * units.m, image + 1j, np.ma.masked_equal(image, 1), image > 0, None, "x"):
        yield f"chi2, {bad!r}", "residual: expected ", lambda bad=bad: covariance.chi2(bad)
    for bad in (image / 2, image * np.nan, masked, image * units.m, [[True]], [[9, 9]], None, "x"):
        for name in ("binned_sigma", "calibration"):
            yield f"{name}, {bad!r}", "spaxels: expected ", lambda n=name, bad=bad: getattr(covariance, n)(bad)
    for bad in (-1, 1.5, "a", jax.random.key(1)):
        yield f"seed of noise images, {bad!r}", "seed: expected ", lambda bad=bad: covariance.draw(bad)
    for bad in (-3, 1.5, "2"):
        yield f"noise images, {bad!r}", "number: ", lambda bad=bad: covariance.draw(1, bad)
    for bad in ((1, 1), [(1, 1, 1)]):
        yield f"plot, {bad}", "spaxels: expected pairs (x, y)", lambda bad=bad: cube.plot(bad)
    yield "result", "path: expected a path that ends in .h5 or .hdf5", lambda: fit_result().write("result.fits")
    yield (
        "draws, text",
        "draws: expected one of 'random', 'sobol', got 'halton'",
        lambda: extend.draw_base(20, 0, 1, "halton"),
    )
    for unit in (None, "kpcc"):
        yield "parse_quantity", "unit: ", lambda unit=unit: extend.parse_quantity("3", unit)
    yield "refuse_options", "options: ", lambda: extend.refuse_options("a stage", None)
    yield "import_optional", "module: ", lambda: extend.import_optional(None, "a plug-in")


def of_particles():
    """Particles in a call of a pipeline that is planned for others."""
    wide = {
        kind: rl.Stars(**STARS, smoothing_length=length * ONE) for kind, length in (("planned", 0.3), ("call", 3.0))
    }
    smoothed = rl.load_config(RUN, {"engine.deposit": "smoothed"})
    planned = rl.Pipeline.from_config(smoothed, rl.Galaxy(wide["planned"]))
    place = "stars.smoothing_length: expected at most "
    yield "lengths", place, lambda: planned(rl.Galaxy(wide["call"]))
    yield "lengths of slabs", place, lambda: planned.observe_slabs([rl.Galaxy(wide["call"])])
    mapped = rl.Pipeline.from_config({**RUN, "products": {"gas": True}}, rl.Galaxy(GALAXY.stars, rl.Gas(**GAS)))
    yield "maps of gas", "galaxy.gas: ", lambda: mapped(rl.Galaxy(GALAXY.stars, rl.Gas(**{**GAS, "mass": -ONE})))
    for kind, change in {"one star": lambda leaf: leaf[0], "stacked": lambda leaf: np.stack([leaf, leaf])}.items():
        several = jax.tree.map(change, GALAXY)
        yield f"{kind}, call", "galaxy: expected one galaxy", lambda several=several: PIPELINE(several)
        yield f"{kind}, shard", "galaxy: expected one galaxy", lambda several=several: rl.shard(several, PIPELINE.mesh)
    for kind, call in {"from_config": lambda own: rl.Pipeline.from_config(RUN, own), "validate": rl.validate}.items():
        yield f"{kind}, traced", "galaxy: expected arrays with values", lambda call=call: jax.jit(call)(GALAXY)
    info = rl.GalaxyInfo(name="a", reader="b", source="c", n_stars=7)
    yield "info", "info: ", lambda: rl.Pipeline.from_config(RUN, GALAXY, info=info)
    for name in ("n_stars", "n_gas", "info", "read_stars", "read_gas"):
        unopened = rl.open_galaxy(RUN)
        yield name, "open_galaxy: expected a with block", lambda name=name, parts=unopened: getattr(parts, name)


def of_fits():
    """Settings of a fit."""
    cube = NOISY(GALAXY)
    blurred = rl.load_config(RUN, {"instrument.psf": {"fwhm": 1}})
    wide = {"instrument.psf.fwhm": {"uniform": [0.1, 1000]}}
    windows = {"windows": [[6000, 7000]]}
    places = extend.Meta({"ra": 150.0, "dec": 0.0}), extend.Meta({"ra": 10.0, "dec": 0.0})
    placed, far = (rl.Cube(**vars(cube) | {"meta": meta}) for meta in places)
    for place, call in {
        "fit.windows[0]: ": lambda: rl.log_posterior(RUN, cube, DRAWN, **windows),
        "fit.data.a.windows[0]: ": lambda: rl.log_posterior(RUN, {"a": {"cube": cube, **windows}}, DRAWN),
        "fit.free.instrument.psf.fwhm: the prior reaches": lambda: rl.log_posterior(blurred, cube, wide),
        "did you mean 'fit.sampling.nuts.draws'": lambda: rl.sample(RUN, cube, DRAWN, sampling={"draws": 100}),
        "fit.data.b.image: ": lambda: rl.log_posterior(RUN, {"a": cube, "b": {"image": cube}}, DRAWN),
        "fit.data.b.spectrum: ": lambda: rl.log_posterior(RUN, {"a": cube, "b": {"spectrum": cube}}, DRAWN),
        "fit.data: expected fields of one galaxy, got b 140": lambda: rl.log_posterior(
            RUN, {"a": placed, "b": far}, DRAWN
        ),
        "with_data: flux: ": lambda: rl.log_posterior(RUN, cube, DRAWN).with_data(cube),
        "fit.polynomial.degree: expected a number <= 30": lambda: rl.log_posterior(RUN, cube, DRAWN, polynomial=50),
    }.items():
        yield place, place, call


def of_fields():
    """Fields of records whose arrays are right, and what methods take."""
    cube = PIPELINE(GALAXY)
    for bad in (3.0, [], None, "x", 5 * units.deg):
        yield (
            f"draws, {bad}",
            "draws.observation.inclination: expected an array with one value per simulation",
            lambda bad=bad: rl.simulate(RUN, draws={"observation.inclination": bad}),
        )
    for place, call in {
        "band: ": lambda: cube.image("V"),
        "band": lambda: cube.plot(band=(5000,)),
        "at: ": lambda: cube.spectrum(at=(0, 100)),
        "at: expected a cube with ra and dec": lambda: rl.Cube(**vars(cube) | {"meta": extend.Meta()}).spectrum(
            at=(0, 0)
        ),
        "at: expected (RA, Dec)": lambda: cube.cut(at=5, size=1),
        "spaxels: ": lambda: cube.plot([("a", 1)]),
        "spaxels: expected pairs (x, y) of whole": lambda: cube.plot([(0.5, 1)]),
        "spaxels": lambda: extend.Choice(spaxels=3),
        "engine.precision: ": lambda: rl.load_config(RUN, {"engine.precision": np.float64}),
        "stream: ": lambda: extend.Progress(5),
        "cubes[1]: ": lambda: extend.coverage([cube, "a.fits"]),
        "medium: ": lambda: WavelengthBins.of_table([1.0], [0.5, 1.5], "water"),
    }.items():
        yield f"method, {place}", place, call
    noisy = NOISY(GALAXY)
    covariance, table = noisy.covariance(5030), rl.load_nebular("mappings-hii")
    bins = CUBE["bins"]
    posterior = rl.log_posterior(RUN, noisy, DRAWN)
    axes = extend.TemplateAxes((ONE.cumsum(),), ("age",))
    names = {"name": "a", "axes": axes, "table": np.ones((2, 3)), "fwhm": np.ones(3), "covered": (1.0, 3.0)}
    for name, call in {
        "residual": lambda: covariance.chi2("x"),
        "spaxels": lambda: covariance.binned_sigma("x"),
        "spaxels: expected a mask of": lambda: covariance.calibration(np.zeros(covariance.shape, bool)),
        "seed": lambda: covariance.draw(None),
        "seed: expected a whole number of 0": lambda: covariance.draw(-1),
        "cubes: expected at least one": lambda: rl.make_mosaic([]),
        "cubes": lambda: extend.coverage(3 * units.kg),
        "cubes[0]": lambda: rl.make_mosaic(ONE),
        "galaxies[1]": lambda: rl.simulate(RUN, priors=DRAWN, galaxies=[GALAXY, 3]),
        "log_u": lambda: extend.fixed(table, log_u=None),
        "temperature, density": lambda: extend.energy_per_photon("Ha", [1e4], [1e2, 1e2]),
        "count": lambda: posterior.draw(0),
        "values": lambda: posterior.to_unconstrained({3: 4}),
        "other": lambda: bins.agrees("x"),
        "index": lambda: bins.at(None),
        "wavelength": lambda: bins.width_at("x"),
        "edges": lambda: WavelengthBins.through([1.0, 2.0], "x", "linear", "air"),
        "shape": lambda: Footprint.of(None, 1.0),
        "margin": lambda: CUBE["footprint"].painted("x"),
        "Stars.log_age": lambda: rl.Stars(**{**STARS, "log_age": np.float64}),
        "TemplateAxes.nodes: age": lambda: extend.TemplateAxes(([3.0, 1.0],), ("age",)),
        "TemplateAxes.names": lambda: extend.TemplateAxes((ONE.cumsum(),), "a"),
        "Templates.rest_wavelength": lambda: extend.Templates(rest_wavelength=np.array([3.0, 2, 1]), **names),
        "Templates.name": lambda: extend.Templates(rest_wavelength=np.arange(3.0), **{**names, "name": 3}),
        "solar_metallicity": lambda: extend.NebularTable(**{**vars(table), "solar_metallicity": -1.0}),
        "NebularTable.name": lambda: extend.NebularTable(**{**vars(table), "name": None}),
        "Parameter.moves": lambda: extend.Parameter(moves="yes"),
        "SourceFormat.read": lambda: extend.SourceFormat(print, None),
        "FileFormat.suffixes": lambda: extend.FileFormat(print, ".fits", 1),
        "Simulations.units": lambda: extend.Simulations(ONE, {}, [], ONE, ONE, ONE),
        "InUnit.unit": lambda: extend.InUnit(3.0),
        "Choice.maps": lambda: extend.Choice(maps=3),
        "name": lambda: extend.Progress().step(3, "a"),
    }.items():
        yield f"argument, {name}", name if ": " in name else f"{name}: ", call
    with rl.open_galaxy(RUN) as parts:
        for name, given in {"start": ("a", 5), "stop": (0, 5.5)}.items():
            yield f"read_stars, {name}", f"{name}: ", lambda given=given: parts.read_stars(*given)
    yield from plug_in_misuses.cases(RUN, GALAXY, NOISY(GALAXY))
    yield from user_mistakes.cases()


def error_of(call):
    """Type and words of the error, or what was given instead."""
    try:
        return "", repr(call())
    except Exception as error:
        return type(error).__name__, str(error)


if __name__ == "__main__":
    print(json.dumps([[name, words, *error_of(call)] for name, words, call in cases()]))
