"""The deposit that `auto` stands for: what is counted, and what is chosen by it, from readers to headers."""

import functools

import numpy as np
import pytest
from astropy.io import fits
from small import muse
from small_snapshots import write_small
from thread_team import run_team

import rubix_like as rl
from rubix_like import ConfigError, Galaxy, Pipeline, Stars, load_config, make_mesh
from rubix_like.extend import resolve, take_census
from rubix_like.inference.posterior.model_settings import deposit_of_fit, notes_on_run
from rubix_like.instrument.crowding import ENOUGH, Crowding, choose_deposit, element_side
from rubix_like.runs.batch.blocks import load_for
from rubix_like.runs.batch.entries import read_entries
from rubix_like.runs.particles_on_disk import hold_galaxy

FOV, PIXEL = 4.0, 0.2


def config(psf=None, deposit="auto", fov=FOV, **others):
    sections = {
        "observation": {"redshift": 0.05, "align": "none"},
        "instrument": muse(5000, 5020, 10, fov=fov) | {"psf": psf, "pixel_scale": PIXEL},
        "engine": {"deposit": deposit, "method": "direct"},
    }
    return load_config(sections | others)


STELLAR = resolve(config()).pipeline


def places(number, seed=1, width=FOV):
    """Spread evenly over a cube (arcsec) and a little beyond the field."""
    return np.random.default_rng(seed).uniform(-0.55 * width, 0.55 * width, (number, 3))


def galaxy(number, lengths=True, **columns):
    """Such stars at 1 kpc per arcsec or so."""
    values = {
        "position": places(number),
        "velocity": np.zeros((number, 3)),
        "initial_mass": np.full(number, 1e8),
        "log_age": np.full(number, 9.5),
        "metallicity": np.full(number, 0.02),
        "smoothing_length": np.full(number, 0.5) if lengths else None,
    }
    return Galaxy(stars=Stars(**(values | columns)))


def test_stars_are_counted_as_numpy_counts_them():
    """In every element of the three views, with an element that does not divide the field."""
    psf = {"fwhm": 0.5}
    side = 0.5 / np.sqrt(8 * np.log(2)) * np.sqrt(4 * np.pi)
    n_side = int(np.ceil(FOV / side))
    edges = (np.arange(n_side + 1) - n_side / 2) * side
    stars = places(5000)
    found = Crowding.of(stars / 0.7, config(psf).instrument, STELLAR, 0.7)
    for counts_of_view, (first, second) in zip(found.counts, ((0, 1), (1, 2), (2, 0)), strict=True):
        expected = np.histogram2d(stars[:, second], stars[:, first], bins=(edges, edges))[0]
        np.testing.assert_array_equal(counts_of_view.reshape(n_side, n_side), expected)


def test_parts_add_up_and_what_is_nowhere_is_not_counted():
    stars, run = places(3000), config()
    whole = Crowding.of(stars, run.instrument, STELLAR, 1.0)
    first, *others = (Crowding.of(part, run.instrument, STELLAR, 1.0) for part in np.array_split(stars, 7))
    joined = functools.reduce(Crowding.joined, others, first)
    np.testing.assert_array_equal(joined.counts, whole.counts)
    lost = np.concatenate([stars, [[np.nan, 0, 0], [50.0, 50.0, 50.0]]])
    np.testing.assert_array_equal(
        Crowding.of(lost, run.instrument, STELLAR, 1.0).counts.sum(axis=1)[1], whole.counts[1].sum() + 1
    )
    assert Crowding.of(stars + 100.0, run.instrument, STELLAR, 1.0).typical == np.inf


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([10, 10, 10, 10], 10),  # nine tenths of 40 take all four
        ([90, 4, 3, 3], 90),  # one element alone holds them
        ([60, 30, 5, 5], 45),  # two of them
        ([0, 0, 100, 100, 1, 1, 1], 100),  # a thin halo does not count
    ],
)
def test_the_typical_number_is_that_of_the_elements_with_most_stars(counts, expected):
    assert Crowding(np.array([counts] * 3)).typical == expected


def brute_side(profile, fov=40.0, step=0.01):
    """Side of the effective area of a profile of r, 1 / (integral of P^2), summed on a grid."""
    x = np.arange(-fov / 2, fov / 2, step)
    values = profile(np.hypot(x[:, None], x[None, :]))
    return np.sqrt(np.sum(values) ** 2 / np.sum(values**2)) * step


def test_an_element_is_as_large_as_the_psf(tmp_path):
    """Against sums over the profile; at least a spaxel; that alone where no stage applies a PSF."""
    sigma = 0.8 / np.sqrt(8 * np.log(2))
    gaussian = brute_side(lambda r: np.exp(-((r / sigma) ** 2) / 2), fov=8)
    image, x = tmp_path / "psf.fits", np.arange(-3, 3.01, 0.05)
    values = np.exp(-((x[:, None] / sigma) ** 2 + (x[None, :] / sigma) ** 2) / 2)
    fits.writeto(image, values.astype(np.float32))
    table = {"fwhm": [1.2, 0.8], "wavelength": [4800, 9000]}
    several = {"kind": "gaussians", "components": [{"fwhm": 0.8, "fraction": 1}, {"fwhm": 2, "fraction": 0.1}]}
    psfs = ({"fwhm": 0.8}, table, several, {"kind": "image", "file": str(image), "file_scale": 0.05})
    for psf in psfs:
        assert element_side(config(psf).instrument, STELLAR) == pytest.approx(gaussian, rel=1e-3), psf
    assert element_side(config().instrument, STELLAR) == PIXEL
    assert element_side(config({"fwhm": 0.01}).instrument, STELLAR) == PIXEL
    assert element_side(config({"fwhm": 0.8}).instrument, STELLAR.model_copy(update={"cube": ()})) == PIXEL


N_ELEMENT = (FOV / PIXEL) ** 2


@pytest.mark.parametrize(
    ("number", "settings", "n_lacking", "expected", "reason"),
    [
        (ENOUGH - 1, {}, 0, "smoothed", "few stars in a resolution element (99)"),
        (ENOUGH, {}, 0, "nearest", "many stars in a resolution element"),
        (ENOUGH - 1, {}, 3, "nearest", "few stars in a resolution element (99), but no smoothing lengths"),
        (ENOUGH - 1, {"deposit": "tsc"}, 0, "tsc", "asked for"),
        (None, {}, 0, "nearest", "no galaxy to count the stars of"),
        (ENOUGH - 1, {"pipeline": "lines", "lines": {"wavelengths": "Ha"}}, 0, "nearest", "no stars"),
    ],
)
def test_the_choice(number, settings, n_lacking, expected, reason):
    run = config(**settings)
    crowding = None if number is None else Crowding(np.full((3, 9), number))
    found = choose_deposit(run.engine, run.instrument, resolve(run).pipeline, crowding, n_lacking)
    assert found.deposit == expected
    assert found.reason.startswith(reason)
    assert ("smoothing lengths" in found.note) == reason.startswith("few")


@pytest.mark.parametrize(
    ("psf", "lengths", "deposit", "n_devices"),
    [
        (None, True, "smoothed", 4),  # 5 in a spaxel
        (None, False, "nearest", 1),
        ({"fwhm": 1.5}, True, "nearest", 1),  # the same stars, blurred
    ],
)
def test_a_pipeline_settles_it_once_for_its_galaxy(psf, lengths, deposit, n_devices):
    """The header, the notes and the plan agree, on any number of devices, with those where the deposit is named."""
    stars = galaxy(2000, lengths)
    found = Pipeline.from_config(config(psf), stars, mesh=make_mesh(n_devices))
    assert (found.plan.deposit, found.frame.meta["deposit"]) == (deposit, deposit)
    assert len([note for note in found.notes if "smoothing lengths" in note]) == (psf is None)
    if n_devices > 1:
        asked = Pipeline.from_config(config(psf, deposit), stars, mesh=make_mesh(1))
        assert asked.plan == found.plan


def test_the_same_for_any_turn_of_the_galaxy():
    """Views of one galaxy share a deposit: an angle changes none."""
    stars = galaxy(2000)
    angles = [{"observation": {"redshift": 0.05, "align": "none", "inclination": angle}} for angle in (0, 80)]
    found = [
        take_census(run, resolve(run), [stars]).crowding for run in (config(**observation) for observation in angles)
    ]
    np.testing.assert_array_equal(found[0].counts, found[1].counts)


def synthetic(number, **engine):
    return load_config(config(), overrides={"galaxy": {"reader": "synthetic", "n_stars": number}, "engine": engine})


@pytest.mark.parametrize(("number", "deposit"), [(300, "smoothed"), (60_000, "nearest")])
def test_a_galaxy_is_read_with_the_lengths_that_it_needs(number, deposit):
    run = synthetic(number)
    stars = rl.load_galaxy(run).stars
    assert (stars.smoothing_length is not None) == (deposit == "smoothed")
    pipeline = Pipeline.from_config(run, Galaxy(stars=stars), mesh=make_mesh(1))
    assert pipeline.plan.deposit == deposit


def test_processes_that_read_parts_smooth_as_one_does(galaxy_file):
    """Lengths are the distances to neighbours among all stars, whoever holds them."""
    run = load_config(config(), overrides={"galaxy": {"path": str(galaxy_file)}})
    alone = hold_galaxy(run, resolve(run), lambda *_: None)
    assert alone.info.smoothing_length.startswith("distance to neighbour")
    for held in run_team(2, lambda team: hold_galaxy(run, resolve(run), lambda *_: None, team)):
        assert not isinstance(held, Exception), held
        share = slice(*held.team.share(len(alone.galaxy.stars.initial_mass)))
        np.testing.assert_array_equal(held.galaxy.stars.smoothing_length, alone.galaxy.stars.smoothing_length[share])
        np.testing.assert_array_equal(held.census.crowding.counts, alone.census.crowding.counts)


@pytest.fixture
def galaxy_file(tmp_path):
    """A few stars in the layout of Illustris, without smoothing lengths."""

    def without_lengths(file):
        del file["PartType4/StellarHsml"]
        file["PartType4/GFM_InitialMass"][:] = 1.5 * file["PartType4/Masses"][:]

    return write_small(tmp_path / "few.hdf5", "illustris", without_lengths)


FREE = {
    "observation.inclination": {"uniform": [0, 80]},
    "dust.a_v": {"uniform": [0, 2]},
}


@pytest.mark.parametrize(
    ("free", "asked", "expected"),
    [
        (["observation.inclination", "dust.a_v"], "auto", "tsc"),
        (["dust.a_v"], "auto", "nearest"),
        (["observation.inclination"], "cic", "cic"),
    ],
)
def test_a_fit_has_the_deposit_that_its_gradient_needs(free, asked, expected):
    settings = config(fit={"free": {name: FREE[name] for name in free}}).fit
    assert deposit_of_fit(config(deposit=asked), settings) == expected


@pytest.fixture(scope="module")
def sparse():
    """A few stars with smoothing lengths, the configuration of their mock, which smooths them, and the mock."""
    generator = np.random.default_rng(3)
    number = 40
    stars = Stars(
        position=generator.normal(size=(number, 3)),
        velocity=generator.normal(size=(number, 3)) * 50,
        initial_mass=np.full(number, 1e8),
        log_age=np.full(number, 9.5),
        metallicity=np.full(number, 0.02),
        smoothing_length=generator.uniform(0.5, 1.5, number),
    )
    free = {"dust.a_v": {"uniform": [0, 2]}, "observation.offset": {"normal": [0, 0.2]}}
    fit = {"free": free, "starts": 1, "discreteness": None}
    others = {"dust": {"a_v": 0.5}, "noise": {"signal_to_noise": 20, "seed": 2}, "fit": fit}
    run = load_config(config(psf={"fwhm": 0.8}, **others), overrides={"instrument.wavelength.medium": "vacuum"})
    galaxy = Galaxy(stars)
    return galaxy, run, Pipeline.from_config(run, galaxy, mesh=make_mesh(1))(galaxy)


@pytest.mark.parametrize(("name", "layout"), [("a.fits", "default"), ("a.hdf5", "default"), ("a.fits", "manga")])
def test_the_deposit_of_a_run_travels_in_its_file(sparse, tmp_path, name, layout):
    galaxy, run, cube = sparse
    cube.write(tmp_path / name, layout=layout)
    meta = rl.read_observed(tmp_path / name).meta
    assert meta["deposit"] == "smoothed"
    assert "deposit: smoothed" in str(meta["config"])
    assert deposit_of_fit(run, run.fit, galaxy, meta) == "smoothed"


@pytest.mark.parametrize(
    ("made", "free", "expected"),
    [("tsc", "dust.a_v", "tsc"), ("nearest", "dust.a_v", "nearest"), ("nearest", "observation.inclination", "tsc")],
)
def test_a_fit_takes_the_deposit_of_its_data(made, free, expected):
    settings = config(fit={"free": {free: FREE[free]}}).fit
    assert deposit_of_fit(config(), settings, data={"deposit": made}) == expected


@pytest.mark.slow
def test_a_smoothed_mock_is_fitted_by_its_own_configuration(sparse):
    """The dust and the place of few stars within four standard deviations, by `auto` in the run and in the fit."""
    galaxy, run, mock = sparse
    result = rl.fit(run, mock, galaxy=galaxy)
    assert 0.9 < result.quality.reduced < 1.1
    for name, true in {"dust.a_v": 0.5, "observation.offset": np.zeros(2)}.items():
        assert np.all(np.abs(result.values[name] - true) < 4 * result.sigma[name])


def test_smoothed_data_are_refused_for_a_model_without_lengths():
    """Of a synthetic galaxy with few stars; the remedy, tsc in both, is taken."""
    free = {"fit": {"free": {"galaxy.stellar_mass": {"log_normal": [1e10, 0.3]}}}}
    run = config(psf={"fwhm": 0.5}, galaxy={"reader": "synthetic", "n_stars": 50}, **free)
    frame = Pipeline.from_config(run, rl.load_galaxy(run), mesh=make_mesh(1)).frame
    data = {**frame.meta, "galaxy_reader": "synthetic"}
    with pytest.raises(ConfigError, match=r"engine.deposit: expected stars with smoothing lengths .*: tsc"):
        deposit_of_fit(run, run.fit, data=data)
    tsc = load_config(run, overrides={"engine.deposit": "tsc"})
    assert deposit_of_fit(tsc, tsc.fit, data=data) == "tsc"
    (note,) = notes_on_run(data, {**data, "deposit": "tsc"})
    assert "engine.deposit: smoothed, the model with tsc" in note


def test_an_unknown_deposit_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'auto'"):
        config(deposit="aut")


def test_views_that_smooth_have_lengths_whatever_view_came_first():
    """A galaxy that a coarse view had read without lengths is read again for a fine one, not for a turned one."""
    base = {
        "galaxy": {"reader": "synthetic", "n_stars": 3000},
        "observation": {"redshift": 0.05, "align": "none", "inclination": 0},
        "instrument": muse(5000, 5020, 10, fov=FOV) | {"psf": {"fwhm": 1.5}},
    }
    views = [
        {"name": "coarse"},
        {"name": "turned", "observation.inclination": 80},
        {"name": "fine", "instrument.psf.fwhm": 0.1},
    ]
    coarse, turned, fine = read_entries(base, [{"name": "g"}], views)
    mesh = make_mesh(1)
    first, second = load_for(coarse, mesh), load_for(fine, mesh)
    assert first.source.galaxy.stars.smoothing_length is None
    assert second.source.galaxy.stars.smoothing_length is not None
    assert [first.serves(view.config) for view in (coarse, turned, fine)] == [True, True, False]
    assert [second.serves(view.config) for view in (coarse, turned, fine)] == [True, True, True]
    found = [prepare_plan(view, second) for view in (fine, coarse)]
    assert found == ["smoothed", "nearest"]


def prepare_plan(entry, loaded):
    """The deposit that a view is planned with."""
    resolved = resolve(entry.config)
    census = take_census(entry.config, resolved, [loaded.source.galaxy])
    return Pipeline.from_config(entry.config, census=census, resolved=resolved, mesh=make_mesh(1)).plan.deposit
