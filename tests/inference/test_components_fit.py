"""A fit of smooth components to the small smooth cube that numpy made: no bias; the quadrature's error is stated."""

import dataclasses
import io
from types import SimpleNamespace

import equinox as eqx
import foreign_cube
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from free_numbers import search_of, statuses
from quick_compiler import optimised_programs

from rubix_like import ConfigError, fit, load_config, log_posterior
from rubix_like.config.parameters import declarations
from rubix_like.config.readers.components import SECTIONS, component_declarations
from rubix_like.extend import Progress, read_table, write_table
from rubix_like.inference import fitting
from rubix_like.inference.checks.finite_points import QuadratureError
from rubix_like.inference.fitting import like_fitted, places_of, points_of, with_points
from rubix_like.inference.posterior.free_parameters import check_free, find_parameter, leaf_of
from rubix_like.inference.request import read_request

SMALL = {"N_SPAXEL": 12, "MARGIN": 6, "FINE": 10, "LAST": 5000.0}
"""Constants of the foreign cube."""

TRUTH = {
    "observation.inclination": 50.0,
    "instrument.psf.fwhm": 0.9,
    "galaxy.disc.mass": 1e10,
    "galaxy.disc.light.scale_length": 0.8,
    "galaxy.disc.rotation.velocity": 210.0,
    "galaxy.disc.population.log_age": 9.512,
}
FREE = {
    "observation.inclination": {"uniform": ["20 deg", "80 deg"]},
    "instrument.psf.fwhm": {"uniform": ["0.5 arcsec", "1.5 arcsec"]},
    "galaxy.disc.mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc.light.scale_length": {"log_uniform": ["0.3 kpc", "3 kpc"]},
    "galaxy.disc.rotation.velocity": {"normal": ["210 km/s", "100 km/s"]},
    "galaxy.disc.population.log_age": {"normal": [9.512, 0.15]},
}
START = {"observation.inclination": 42, "galaxy.disc.light.scale_length": 1.0}


def configuration():
    disc = {
        "name": "disc",
        "mass": "1.2e10 Msun",
        "light": {"profile": "exponential", "scale_length": "1 kpc"},
        "rotation": {"curve": "arctan", "velocity": "180 km/s", "turnover_radius": "0.4 kpc"},
        "dispersion": "45 km/s",
        "population": {"log_age": 9.3, "metallicity": 0.02},
    }
    return {
        "galaxy": {"reader": "components", "components": [disc]},
        "ssp": {"library": "popstar"},
        "observation": {"redshift": 0.02, "inclination": 45, "position_angle": 120},
        "instrument": {"name": "muse", "psf": {"kind": "gaussian", "fwhm": 1.0}, "lsf": None},
        "pipeline": "stellar",
        "engine": {"method": "basis", "velocity_range": 1000},
        "devices": {"data": 1},
        "fit": {"free": FREE, "start": START, "starts": 1},
    }


def galaxy_of(components):
    """The model of these components."""
    return load_config({**configuration(), "galaxy": {"reader": "components", "components": components}}).galaxy.build()


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Of the cube without noise, its errors those of S/N 30; it begins with fewer points than would do. It was stopped
    between the two searches, and went on."""
    place = tmp_path_factory.mktemp("foreign") / "small.fits"
    output = place.with_name("fit.h5")
    with pytest.MonkeyPatch.context() as patch, optimised_programs():
        patch.setattr(fitting, "AT_FIRST", 2048)
        for name, value in SMALL.items():
            patch.setattr(foreign_cube, name, value)
        foreign_cube.write_foreign_cube(place, seed=None)
        with patch.context() as stopped:
            stopped.setattr(fitting, "parts_wanted", interrupt)
            with pytest.raises(KeyboardInterrupt):
                fit(configuration(), place, output=output)
        (checkpoint,) = output.parent.glob(".fit.h5*checkpoint.npz")
        said = io.StringIO()
        found = fit(configuration(), place, output=output, progress=Progress(said))
        assert "going on after" in said.getvalue()
        assert not checkpoint.exists()
        return found


def interrupt(*_):
    raise KeyboardInterrupt


def points_in(result):
    """The number of quadrature points that a result was found with."""
    return load_config(yaml.safe_load(result.config)).galaxy.points


@pytest.mark.slow(20)
def test_the_truth_comes_back_without_bias_by_as_many_points_as_it_needs(result):
    assert result.converged
    for name, true in TRUTH.items():
        assert abs(result.values[name] - true) < 0.3 * result.sigma[name], name
    assert 0.1 < result.sigma["observation.inclination"] < 1  # deg: so that this says something
    assert result.sigma["instrument.psf.fwhm"] < 0.05
    points = points_in(result)
    at_first, note = [note for note in result.notes if "quadrature" in note]
    assert at_first.startswith("the quadrature points chosen at first (2048 of disc) erred by ")
    assert at_first.endswith(f"the fit was repeated from there with galaxy.points: {points}")
    assert 2048 < points <= 16384
    assert "errs by 0.0" in note
    assert "set galaxy.points" not in note
    assert "sigma and all others by less" in note
    trace = result.starts.trace_loss
    assert trace.shape[0] == 1, "one start went on with more points"
    assert np.count_nonzero(np.isfinite(trace[0])) == result.starts.n_step[0]
    assert any("fit.starts: 1" in note for note in result.notes)
    request = read_request(configuration(), result.model, None, None, {})  # a sampling that begins there
    assert request.config.galaxy.points is None
    assert points_of(like_fitted(request, result).config) == points
    assert like_fitted(with_points(request, 4096), result).model.galaxy.points == 4096


@pytest.mark.slow(20)
def test_the_model_of_many_points_is_the_mean_of_its_parts(result):
    """It is that which is posed with all its points at once."""
    config = load_config(configuration(), overrides={"galaxy.points": points_in(result)})
    whole = log_posterior(config, result.model, sigma=1.0)
    at = whole.to_unconstrained(result.values)
    peak = np.max(result.model.flux)
    assert np.max(np.abs(np.asarray(whole.flux(at)) - result.model.flux)) < 1e-4 * peak  # engine.tolerance: 1e-3
    assert float(whole.problem.posterior.forward.source.numbers[0]) == points_in(result)


@pytest.mark.parametrize(
    ("loss", "latent", "kept"),
    [
        ([3.0, 1.0, 2.0], [[0.0], [1.0], [1.001]], [1.0, 0.0]),  # two of three are one place
        ([3.0, 1.0, 2.0], [[0.0], [1.0], [-1.0]], [1.0, -1.0, 0.0]),
        ([8.0, 1.0, 2.0], [[0.0], [1.0], [-1.0]], [1.0, -1.0]),  # the first fits worse
    ],
)
def test_a_second_search_begins_at_every_place_that_fits(loss, latent, kept):
    found = search_of(loss, statuses("CONVERGED") * len(loss), latent, start=np.array(latent))
    assert places_of(found)[:, 0].tolist() == kept


def write_narrow_lines(path):
    """popstar between 4900 and 5500 Angstrom with an absorption line of 0.8 Angstrom (sigma) every 25 Angstrom."""
    wavelength = np.arange(4900.0, 5500.0, 0.5)
    offset = (wavelength - 4910) % 25
    lines = 1 - 0.5 * np.exp(-0.5 * (np.minimum(offset, 25 - offset) / 0.8) ** 2)
    table = read_table(foreign_cube.POPSTAR)
    known, spectra = np.asarray(table.rest_wavelength), np.asarray(table.spectra)
    rows = np.array([np.interp(wavelength, known, row) for row in spectra.reshape(-1, len(known))])
    narrow = {
        "rest_wavelength": wavelength,
        "spectra": (rows * lines).reshape(*spectra.shape[:2], -1).astype(spectra.dtype),
        "fwhm": np.full(len(wavelength), 0.5),
    }
    write_table(dataclasses.replace(table, **narrow), path)
    return path


@pytest.mark.long
def test_one_disc_fitted_to_two_that_counter_rotate_is_told(tmp_path, monkeypatch):
    """Equal thin discs made by numpy, at S/N 20, with narrow lines: the rotation is fitted away, the line widths are
    not, although the dispersion is free, and chi^2 sees nothing. They are wrong along the major axis, at 120 deg."""
    for name, value in {**SMALL, "FIRST": 5150.0, "LAST": 5400.0, "STEP": 2.5, "SIGNAL_TO_NOISE": 20.0}.items():
        monkeypatch.setattr(foreign_cube, name, value)
    velocity, density = foreign_cube.line_of_sight_distribution()
    both = 0.5 * (density + density[:, :, ::-1])  # channels are symmetric about 0
    monkeypatch.setattr(foreign_cube, "line_of_sight_distribution", lambda: (velocity, both))
    library = write_narrow_lines(tmp_path / "narrow.h5")
    cube = foreign_cube.write_foreign_cube(tmp_path / "two.fits", library)
    config = configuration() | {"ssp": {"library": str(library)}}
    config["instrument"]["psf"]["fwhm"] = 0.9
    free = {name: prior for name, prior in FREE.items() if name != "instrument.psf.fwhm"}
    free["galaxy.disc.dispersion"] = {"uniform": ["10 km/s", "300 km/s"]}
    config["fit"] = {"free": free, "start": {**START, "galaxy.disc.dispersion": 150}, "starts": 1}
    result = fit(config, cube)
    assert result.verdict.misfit
    tests = result.verdict.tests
    assert min(tests["line widths of the spaxels"], tests["map of the line widths"]) < 1e-4
    assert abs(result.verdict.excess) < 3
    assert "does not describe the data" in result.verdict.sentence
    assert "line widths" in result.verdict.sentence


def test_more_points_are_advised_where_they_matter():
    """In a note, and where they are far too few in the first line."""
    numbers = {"disc": 8192}
    assert "set" not in QuadratureError(0.05, 0.01, {"a": 0.1}, numbers).note
    assert QuadratureError(0.35, 0.01, {"a": 0.1}, numbers).note.endswith("set galaxy.points: 32768")
    assert QuadratureError(0.05, 0.01, {"a": 0.1, "b": -2.1}, numbers).note.endswith("set galaxy.points: 65536")
    assert QuadratureError(0.9, 0.01, None, {"disc": 64}).trouble == ""
    trouble = QuadratureError(25.0, 4.0, None, {"disc": 64, "halo": 128}).trouble
    assert trouble == "the quadrature points are too few (64 of disc, 128 of halo: they err by 25 of the noise)"
    trouble = QuadratureError(0.4, 0.1, {"a": 0.1, "b": -2.1}, {"disc": 64}).trouble
    assert trouble.endswith("err by 0.4 of the noise, which moves b by -2.1 sigma)")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("galaxy.disk.mass", r"the name of a component after 'galaxy\.' \(disc\), got 'disk'; did you mean 'disc'"),
        ("galaxy.stellar_mass", r"after 'galaxy\.' \(disc\), got 'stellar_mass'"),
        (
            "galaxy.disc.empty",
            "expected values to begin with as galaxy.disc.empty, got none: .* leave it out of",
        ),
        ("galaxy.disc.rotation.halo_radius", r"expected a number as galaxy\.disc\.rotation\.halo_radius"),
    ],
)
def test_a_number_that_the_components_do_not_have(name, words):
    (disc,) = galaxy_of(configuration()["galaxy"]["components"]).components
    known = SimpleNamespace(rotation=disc.rotation, empty=np.zeros(0))
    with pytest.raises(ConfigError, match=words):
        leaf_of(name, {"galaxy.": SimpleNamespace(disc=known)})


def test_a_key_means_the_same_in_every_kind_of_a_section():
    known = component_declarations()
    for section, registry in SECTIONS.items():
        for kind in registry.built_in:
            for key, declared in declarations(registry.find(kind), f"{section}.").items():
                assert (declared.unit, declared.mark, declared.form, declared.meaning) == (
                    known[key].unit,
                    known[key].mark,
                    known[key].form,
                    known[key].meaning,
                ), (kind, key)


UNITS = {
    "galaxy.disc.mass": "Msun",
    "galaxy.disc.dispersion": "km/s",
    "galaxy.disc.rotation.velocity": "km/s",
    "galaxy.disc.population.log_age": "",
    "galaxy.a_b.warp.tilt": "deg / kpc",
}


def test_parameters_are_found_by_their_names():
    assert {name: find_parameter(name).unit for name in UNITS} == UNITS
    with pytest.raises(ConfigError, match=r"did you mean 'galaxy\.disc\.rotation\.velocity'"):
        check_free({"galaxy.disc.rotation.velocty": {"uniform": (1.0, 2.0)}})
    with pytest.raises(ConfigError, match="expected"):
        check_free({"galaxy.disc.rotation.velocity": {"uniform": ("1 kpc", "2 kpc")}})


@pytest.mark.slow(4)
def test_gradients_are_those_of_differences():
    """Emitters are smooth in every parameter: by central differences in 64 bits."""
    galaxy = galaxy_of(configuration()["galaxy"]["components"])
    points = galaxy.points((256,))

    def total(galaxy):
        stars = galaxy.emitters(points).stars
        return (stars.initial_mass / 1e10) @ (stars.position**2).sum(axis=1) + (stars.velocity**2).mean() / 1e4

    slopes = jax.grad(total)(galaxy)
    for name in ("light.scale_length", "rotation.velocity", "rotation.turnover_radius"):
        section, key = name.split(".")
        value = getattr(getattr(galaxy.components[0], section), key)
        step = 1e-5 * value

        def moved(by, section=section, key=key):
            return float(total(eqx.tree_at(lambda g: getattr(getattr(g.components[0], section), key), galaxy, by)))

        found = float(getattr(getattr(slopes.components[0], section), key))
        assert found == pytest.approx((moved(value + step) - moved(value - step)) / (2 * float(step)), rel=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


HALO = {"curve": "mass_model", "halo_density": "1e7 Msun / kpc3", "halo_radius": "2 kpc", "disc_mass": "1e8 Msun"}
TRUNCATED = {
    "profile": "truncated",
    "scale_length": "1 kpc",
    "truncation_radius": "2 kpc",
    "outer_scale_length": "0.3 kpc",
}
SEEN = {"metallicity": 0.02, "metallicity_gradient": -0.05}


SECTIONS_OF_COMPONENTS = [
    {
        "light": {"profile": "sersic", "effective_radius": "1 kpc", "index": 0.6},
        "rotation": {"curve": "tanh", "velocity": "200 km/s", "turnover_radius": "0.1 kpc"},
        "population": {"history": "log_normal", "log_age": 10.2, "age_scatter": 0.3, **SEEN},
    },
    {
        "light": {"profile": "sersic", "effective_radius": "1 kpc", "index": 5},
        "rotation": {"curve": "multi_parameter", "velocity": 200, "turnover_radius": 0.5, "beta": 0.1, "gamma": 50},
        "population": {"history": "tau", "oldest": 10.1, "tau": "1 Gyr", **SEEN},
    },
    {
        "light": {"profile": "ring", "radius": "1 kpc", "width": "0.05 kpc"},
        "rotation": {"curve": "spline", "radii": [1, 3, 8], "speeds": [100, 180, 200]},
        "population": {"history": "delayed_tau", "oldest": 10.1, "tau": "1 Gyr", **SEEN},
    },
    {
        "light": TRUNCATED,
        "rotation": HALO | {"halo": "nfw"},
        "dispersion": {"profile": "exponential", "central": "80 km/s", "scale_length": "0.1 kpc"},
        "population": {"history": "continuity", "edges": [6, 8, 9, 10], "log_ratios": [0.1, -0.2], **SEEN},
    },
    {
        "rotation": HALO | {"halo": "burkert"},
        "dispersion": {"profile": "from_height"},
        "height": {"profile": "sech2", "scale_height": "0.3 kpc"},
    },
    {"rotation": HALO | {"halo": "isothermal"}, "dispersion": "90 km/s"},
]


def test_emitters_and_slopes_are_finite_in_single_precision():
    """Out to 30 scale lengths, where powers and exponentials leave the range of 32 bits; ages stay those of stars."""
    (disc,) = configuration()["galaxy"]["components"]
    components = [{**disc, **one, "name": f"c{number}"} for number, one in enumerate(SECTIONS_OF_COMPONENTS)]
    galaxy = galaxy_of(components)
    points = galaxy.points((4096,) * len(components))
    galaxy, points = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (galaxy, points))

    @jax.jit
    def slopes_and_stars(galaxy):
        def total(galaxy):
            stars = galaxy.emitters(points).stars
            columns = (stars.position, stars.velocity, stars.random_velocity, stars.log_age, stars.metallicity)
            return sum(jnp.mean(leaf) for leaf in columns) + jnp.mean(stars.initial_mass) / 1e6, stars

        return jax.grad(total, has_aux=True)(galaxy)

    slopes, stars = slopes_and_stars(galaxy)
    for path, leaf in jax.tree_util.tree_leaves_with_path((stars, slopes)):
        assert np.isfinite(leaf).all(), path
    assert np.asarray(stars.log_age).max() <= 10.3
