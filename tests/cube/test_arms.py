"""Arms of a spectrograph: settings, runs, and cubes joined as numpy joins them."""

import dataclasses

import numpy as np
import pytest
import yaml
from small import fibre_spectra, instrument_settings, make_cube, small_disc

import rubix_like as rl
from rubix_like import ConfigError
from rubix_like.config.loading import arms_of
from rubix_like.cube.arms import join_arms
from rubix_like.extend import WavelengthBins, on_grid_of
from rubix_like.runs import run as run_module
from rubix_like.runs.batch.entries import read_entries

GRID = WavelengthBins(5000.0, 1e-4, 14, "log", "vacuum")
BLUE, RED = slice(0, 9), slice(6, 14)
RNG = np.random.default_rng(8)


def arm(at, seed, **changes):
    """A cube of 3 x 5 spaxels in some bins of `GRID`, with noise."""
    rng, n = np.random.default_rng(seed), at.stop - at.start
    flux = rng.uniform(1, 2, (3, 5, n))
    fields = {
        "flux": flux,
        "variance": rng.uniform(0.1, 3, flux.shape),
        "truth": flux + 0.1,
        "mask": np.zeros(flux.shape, int),
        "bins": GRID.part(at.start, at.stop),
        "lsf_fwhm": np.full(n, 2.0 + seed),
    }
    return make_cube(n_wave=n, **fields | changes)


def joined(*cubes):
    return join_arms(cubes, GRID, "both", "arms: 2")


def test_spectra_are_weighted_by_their_inverse_variance():
    """numpy's mean in the overlap, each arm's own numbers elsewhere; a flagged voxel leaves the other arm's alone."""
    mask = np.zeros((3, 5, 9), int)
    mask[1, 2, 7], mask[0, 0, 8], mask[0, 1, 2] = 4, 2, 1
    red_mask = np.zeros((3, 5, 8), int)
    red_mask[0, 0, 2] = 8  # bin 8 of the grid
    blue, red = arm(BLUE, 1, mask=mask), arm(RED, 2, mask=red_mask)
    cube = joined(blue, red)
    np.testing.assert_array_equal(cube.flux[..., :6], blue.flux[..., :6])
    np.testing.assert_array_equal(cube.flux[..., 9:], red.flux[..., 3:])
    one, other = (1 / np.asarray(cube.variance) for cube in (blue, red))
    one, other = one[..., 6:], other[..., :3]
    expected = (one * blue.flux[..., 6:] + other * red.flux[..., :3]) / (one + other)
    variance, bits = 1 / (one + other), np.zeros((3, 5, 14), int)
    expected[1, 2, 1], variance[1, 2, 1] = red.flux[1, 2, 1], red.variance[1, 2, 1]
    mean = 0.5 * (blue.flux[0, 0, 8] + red.flux[0, 0, 2])
    expected[0, 0, 2], variance[0, 0, 2] = mean, 0.25 * (blue.variance[0, 0, 8] + red.variance[0, 0, 2])
    bits[0, 0, 8], bits[0, 1, 2] = 2 | 8, 1
    np.testing.assert_allclose(cube.flux[..., 6:9], expected, rtol=1e-14)
    np.testing.assert_allclose(cube.variance[..., 6:9], variance, rtol=1e-14)
    np.testing.assert_array_equal(cube.mask, bits)
    np.testing.assert_allclose(cube.truth[..., :6], blue.truth[..., :6], rtol=0)
    np.testing.assert_array_equal(cube.lsf_fwhm[[0, -1]], [3.0, 4.0])
    assert (cube.lsf_fwhm[6:9] > 3).all()
    assert (cube.lsf_fwhm[6:9] < 4).all()
    assert cube.bins == GRID
    assert cube.meta["instrument"] == "both"


def test_without_noise_arms_count_the_same():
    blue, red = (arm(at, seed, variance=None) for at, seed in ((BLUE, 1), (RED, 2)))
    cube = joined(blue, red)
    np.testing.assert_allclose(cube.flux[..., 6:9], 0.5 * (blue.flux[..., 6:] + red.flux[..., :3]), rtol=1e-15)
    np.testing.assert_allclose(cube.lsf_fwhm[6:9], np.sqrt(0.5 * (9 + 16)))
    assert cube.variance is None


def test_spectra_of_fibres_are_joined_before_the_cube_is_made():
    """The cube is the map of the joined fibres, its variance the map's squares of theirs: covariance stays known."""
    arms = []
    for at, seed in ((BLUE, 1), (RED, 2)):
        cube = arm(at, seed)
        fibres = fibre_spectra(cube)
        rng = np.random.default_rng(seed + 10)
        flux = rng.uniform(1, 2, fibres.flux.shape)
        moved = np.broadcast_to(1e-3 * (cube.wavelength - 5000)[:, None], (1, cube.shape[2], 2))  # by refraction
        places = dataclasses.replace(fibres.places, moved=moved)
        fibres = dataclasses.replace(fibres, flux=flux, variance=rng.uniform(0.1, 3, flux.shape), places=places)
        matrix = fibres.weights.matrix().toarray()
        shape = cube.flux.shape
        images = {"flux": (matrix @ flux).reshape(shape), "variance": (matrix**2 @ fibres.variance).reshape(shape)}
        arms.append(dataclasses.replace(cube, truth=None, fibres=fibres, **images))
    cube = joined(*arms)
    one, other = (np.asarray(cube.fibres.variance) for cube in arms)
    weight = other[:, :3] / (one[:, 6:] + other[:, :3])
    mixed = weight * arms[0].fibres.flux[:, 6:] + (1 - weight) * arms[1].fibres.flux[:, :3]
    np.testing.assert_allclose(cube.fibres.flux[:, 6:9], mixed, rtol=1e-14)
    np.testing.assert_allclose(cube.fibres.places.moved[0, :, 1], 1e-3 * (GRID.wavelength - 5000), atol=1e-9)
    matrix = cube.fibres.weights.matrix().toarray()
    np.testing.assert_allclose(np.asarray(cube.flux).reshape(15, -1), matrix @ cube.fibres.flux, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(cube.variance).reshape(15, -1), matrix**2 @ cube.fibres.variance, rtol=1e-12)
    covariance = cube.covariance(GRID.wavelength[7]).matrix
    expected = matrix @ np.diag(cube.fibres.variance[:, 7]) @ matrix.T
    np.testing.assert_allclose(covariance.toarray(), expected, rtol=1e-10, atol=1e-12)


def test_flags_and_errors_of_fibres_are_joined_with_them():
    """A bin that one arm flags is the other's; where both do, the cube is made of the other fibres, whose weights keep
    their sum. What an error adds is joined like the light."""
    arms = []
    for at, seed in ((BLUE, 1), (RED, 2)):
        cube = arm(at, seed)
        fibres = fibre_spectra(cube)
        added, bits = {"flat_field": 0.01 * fibres.flux}, np.zeros(fibres.flux.shape, np.int32)
        bits[1, 7 - at.start] = 32
        bits[2, 8 - at.start] = 32 if at is BLUE else 0
        fibres = dataclasses.replace(fibres, bits=bits, contributions=added, truth=0.9 * fibres.flux)
        voxels = {"flat_field": np.full(cube.flux.shape, 0.5)}
        arms.append(dataclasses.replace(cube, fibres=fibres, contributions=voxels))
    cube = joined(*arms)
    fibres = cube.fibres
    assert fibres.bits.shape == fibres.flux.shape == fibres.contributions["flat_field"].shape == (3, 14)
    np.testing.assert_array_equal(np.argwhere(fibres.bits), [[1, 7]])
    assert fibres.flux[2, 8] == arms[1].fibres.flux[2, 2]
    np.testing.assert_allclose(fibres.contributions["flat_field"], 0.01 * fibres.flux)
    weights = fibres.weights.matrix().toarray()
    kept = weights * np.array([1, 0, 1])
    kept *= (weights.sum(axis=1) / kept.sum(axis=1))[:, None]
    for number, matrix in ((6, weights), (7, kept), (8, weights)):
        np.testing.assert_allclose(cube.flux[..., number].ravel(), matrix @ fibres.flux[:, number])
        np.testing.assert_allclose(cube.variance[..., number].ravel(), matrix**2 @ fibres.variance[:, number])
        added = matrix @ fibres.contributions["flat_field"][:, number]
        np.testing.assert_allclose(cube.contributions["flat_field"][..., number].ravel(), added)
    np.testing.assert_array_equal(cube.contributions["flat_field"][..., :6], 0.5)


def test_arms_that_are_not_on_the_grid_are_refused():
    off = arm(RED, 2, bins=WavelengthBins(GRID.at(np.array([6.3])).item(), 1e-4, 8, "log", "vacuum"))
    with pytest.raises(ValueError, match="join: expected the bins of an arm among those of the joined cube"):
        joined(arm(BLUE, 1), off)


ARMS = {"blue": {"wavelength": {"start": 4900, "stop": 5000}}, "red": {"wavelength": {"start": 6500, "stop": 6560}}}
RUN = small_disc(300) | {
    "instrument": {"name": "sami", "fov": "2 arcsec", "aperture": None, "psf": None, "arms": ARMS},
    "noise": {"signal_to_noise": 30},
}


def test_an_instrument_with_arms():
    """Each arm has its preset's detector and the instrument's field; a recorded section gives the same again."""
    settings = instrument_settings({"name": "sami", "fov": "10 arcsec"})
    assert instrument_settings(settings.model_dump()) == settings
    for name, config in arms_of(rl.load_config(RUN)).items():
        found, preset = config.instrument, instrument_settings({"name": f"sami_{name}"})
        assert found.lsf == preset.lsf
        assert (found.wavelength.step, found.fov) == (preset.wavelength.step, (2.0, 2.0))
        assert (found.label, found.arms, found.join) == (f"sami_{name}", None, False)
    manga = instrument_settings({"name": "manga_arms"})
    whole = instrument_settings({"name": "manga"})
    assert (manga.wavelength, manga.lsf) == (whole.wavelength, whole.lsf)
    assert manga.arms["red"].wavelength.start < manga.arms["blue"].wavelength.stop
    assert "arms" not in whole.model_dump()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"name": "sami", "wavelength": {"stop": 5000}},
            r"wavelength: expected it in one of the arms, e\.g\. arms\.blue",
        ),
        (
            {"name": "muse", "wavelength": {"stop": 7000}, "arms": ARMS},
            r"instrument: wavelength\.stop: every arm \(blue, red\) has its own, so that it would change nothing",
        ),
        (
            {"name": "muse", "lsf": {"fwhm": 3}, "arms": {name: {"name": f"sami_{name}"} for name in ARMS}},
            r"instrument: lsf: every arm \(blue, red\) has its own",
        ),
        ({"name": "sami", "arm": "green"}, "arm: expected one of blue, red, got 'green'"),
        ({"name": "muse", "arm": "red"}, "arm: expected null for an instrument without arms, got 'red'"),
        ({"name": "muse", "join": True}, "join: expected arms beside it, got none"),
        ({"name": "sami", "join": "maybe"}, r"instrument\.join: expected true or false, got 'maybe'"),
        (
            {"name": "muse", "arms": {"blue": "sami", "red": "sami_red"}},
            "arms: expected an instrument without arms as one of them, got 'sami', which has blue, red",
        ),
        ({"name": "sami", "arms": {"red": {"lsf": {"fwhm": -1}}}}, r"arms\.red\.lsf\.fwhm"),
        ({"name": "muse", "arms": {"a": "muse"}}, "arms: expected two or more"),
        ({"name": "muse", "wavelength": {"stop": 7000}, "arms": {}}, "arms: expected two or more.*got none"),
        ({"name": "muse", "wavelength": 5000, "arms": ARMS}, r"wavelength: every arm \(blue, red\) has its own"),
        (
            {"name": "sami", "arms": {"blue": {"lsf": {"polynomial": [1, -1]}}}},
            r"arm 'blue': lsf\.polynomial: exp",
        ),
        (
            {"name": "sami", "arms": {"blue": {"lsff": 1}}},
            r"^[^ ]+ unknown key 'instrument\.arms\.blue\.lsff'",
        ),
        ({"name": "sami", "arms": {"blue": 3}}, r"instrument\.arms\.blue: expected a section .* got 3"),
        ({"name": "sami", "join": True}, "join: expected arms whose bins lie on one grid .* got 0.6 and 1.05"),
        (
            {"name": "manga_arms", "arms": {"blue": {"wavelength": {"stop": 5500}}}},
            r"join: expected .* got one that ends at 5500 and one that begins at 5900\.65 Angstrom",
        ),
        (
            {"name": "manga_arms", "arms": {"red": {"wavelength": {"start": 5901}}}},
            r"got arms\.red\.wavelength\.start 5901, which is 2120\.\d+ bins from .* arms\.blue; set it to 5900\.65",
        ),
    ],
)
def test_arms_that_are_refused(section, message):
    with pytest.raises(ConfigError, match=message):
        rl.load_config({"observation": {"redshift": 0.05}, "instrument": section})


def test_what_stands_beside_arms_is_for_those_without_their_own():
    arms = {"blue": ARMS["blue"] | {"lsf": {"fwhm": 2}}, "red": ARMS["red"]}
    changes = {"instrument": {"name": "muse", "arms": arms}, "instrument.lsf.fwhm": 3, "instrument.wavelength.step": 4}
    found = rl.load_config({"observation": {"redshift": 0.05}}, changes).instrument.arms
    assert [arm.lsf.fwhm for arm in found.values()] == [(2,), (3,)]
    assert [(arm.wavelength.stop, arm.wavelength.step) for arm in found.values()] == [(5000, 4), (6560, 4)]
    section = {"name": "muse", "lsf": None, "detector": None, "arms": ARMS}
    assert all(arm.lsf is None for arm in instrument_settings(section).arms.values())


def test_overrides_of_an_arm_hold_for_records_too():
    """The same for a preset as for a configuration that records every arm; refused without the choice of an arm."""
    wide = {"fwhm": 9}
    for name in ("sami", "manga_arms"):
        preset = {"observation": {"redshift": 0.05}, "instrument": {"name": name}}
        record = rl.load_config(preset)
        for changes in (
            {"instrument.arm": "red", "instrument.lsf": wide},
            {"instrument.wavelength.stop": 7000, "instrument.arm": "red"},
            {"instrument.arms.blue.lsf": wide},
            {"instrument.arms.red.lsf": wide, "instrument.arm": "red"},
            {"instrument.join": False},
        ):
            assert rl.load_config(record, changes) == rl.load_config(preset, changes)
        found = rl.load_config(record, {"instrument.arm": "red", "instrument.lsf": wide}).instrument
        assert (found.label, found.lsf.fwhm) == (f"{name}_red", (9.0,))
        red = rl.load_config(record, {"instrument.arm": "red"})
        assert rl.load_config(red, {"instrument.arm": "red"}) == red
        recorded = rf"records every value of '{name}, arm red', .* arm: "
        for source, changes, message in (
            (record, {"lsf": wide}, r"override 'instrument\.lsf': expected .* instrument\.arms\.blue\.lsf, or"),
            (record, {"arm": "green"}, r"instrument: arm: expected one of blue, red, got 'green'"),
            (preset, {"arms.redd.lsf": wide}, r"arms\.redd\.lsf': expected one of the arms blue, red, got 'redd'"),
            (record, {"arms.redd.lsf": wide}, r"arms\.redd\.lsf': expected one of the arms blue, red, got 'redd'"),
            (red, {"arm": "blue"}, recorded + "blue}"),
            (red, {"arm": None}, recorded + "null}"),
        ):
            with pytest.raises(ConfigError, match=message):
                rl.load_config(source, {f"instrument.{key}": value for key, value in changes.items()})
    muse = rl.load_config({"observation": {"redshift": 0.05}, "instrument": {"name": "muse"}})
    with pytest.raises(ConfigError, match=r"records every value of 'muse', .*name: muse, arm: red"):
        rl.load_config(muse, {"instrument.arm": "red"})


def test_a_pipeline_does_not_join_arms():
    with pytest.raises(ConfigError, match=r"instrument\.arm: expected one of blue, red for a pipeline"):
        rl.Pipeline.from_config(RUN | {"instrument": {"name": "manga_arms"}})


def test_an_instrument_is_of_one_arm():
    assert rl.load_instrument("sami", arm="red").bins.wavelength[0] > 6000
    with pytest.raises(ConfigError, match=r"'sami': arm: expected one of blue, red, got null; e\.g\. .*arm='blue'\)"):
        rl.load_instrument("sami")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"noise": {"exposure": {"time": 60, "sky": "infrared"}}},
            r"arm 'red' of sami: noise\.exposure\.sky: exp",
        ),
        ({"instrument.arms.red.lsf": {"fwhm": 500}}, r"arm 'red' of sami: instrument\.lsf: expected a line spread"),
    ],
)
def test_errors_of_planning_name_the_arm(changes, message):
    config = rl.load_config(RUN | {"observation": {"redshift": 0.02, "align": "none"}}, changes)
    with pytest.raises(ConfigError, match=message):
        rl.Pipeline.from_config(arms_of(config)["red"])


def test_a_fit_takes_the_arm_that_saw_the_data():
    cube = rl.ObservedCube(
        flux=np.ones((4, 4, 50)), variance=None, used=np.ones((4, 4, 50), bool), source="a mock",
        bins=WavelengthBins(6510.0, 0.6, 50, "linear", "air"), footprint=make_cube().footprint.of((4, 4, 50), 0.5),
    )  # fmt: skip
    config = on_grid_of(RUN, cube)
    assert (config.instrument.arm, config.instrument.arms) == ("red", None)
    assert config.instrument.lsf.fwhm == (1.59,)


def test_a_catalogue_has_an_entry_for_each_arm(tmp_path):
    entries = read_entries(RUN, [{"name": "one", "galaxy.seed": 3}], folder=tmp_path)
    assert [entry.path.name for entry in entries] == ["one_blue.fits", "one_red.fits"]
    assert len({entry.loading for entry in entries}) == 1
    assert len({entry.config.noise.seed for entry in entries}) == 2
    joins = RUN | {"instrument": {"name": "manga_arms"}}
    with pytest.raises(ConfigError, match=r"instrument\.join: expected false in a catalogue, got true"):
        read_entries(joins, [{"name": "one", "galaxy.seed": 3}], folder=tmp_path)


def test_each_arm_has_the_gaps_that_it_sees_and_errors_of_its_own():
    errors = {"gaps": [[4950, 4960], [6510, 6520]], "missing": [{"wavelength": [4900, 4910]}, {"x": [0, 1]}]}
    apart = arms_of(rl.load_config(RUN | {"noise": None, "systematics": errors}))
    blue, red = (apart[name].systematics for name in ("blue", "red"))
    assert (blue.gaps, red.gaps) == (((4950.0, 4960.0),), ((6510.0, 6520.0),))
    assert (len(blue.missing), len(red.missing)) == (2, 1)
    assert blue.seed != red.seed
    listed = read_entries(RUN | {"noise": None, "systematics": errors}, [{"name": "one", "galaxy.seed": 3}])
    assert [entry.config.systematics for entry in listed] == [blue, red]
    nowhere = arms_of(rl.load_config(RUN | {"systematics": {"gaps": [[8000, 8010]]}}))
    assert all(config.systematics.gaps for config in nowhere.values())  # so that each arm refuses it


@pytest.mark.slow(12)
def test_a_run_of_two_arms(tmp_path, monkeypatch):
    """A file of each arm with noise of its own, made from particles that are read once; the recorded run of an arm
    makes its cube again, bit for bit."""
    opened, read = run_module.open_source, []
    monkeypatch.setattr(run_module, "open_source", lambda *arguments: read.append(1) or opened(*arguments))
    cube = rl.run(RUN, tmp_path / "cube.fits")
    blue, red = (rl.load_cube(tmp_path / f"cube_{name}.fits") for name in ("blue", "red"))
    assert len(read) == 1
    np.testing.assert_array_equal(red.flux, cube.flux)
    assert (blue.meta["instrument"], red.meta["instrument"]) == ("sami_blue", "sami_red")
    again = rl.run(yaml.safe_load(red.meta["config"]), tmp_path / "again.fits", overwrite=True)
    np.testing.assert_array_equal(again.flux, red.flux)


@pytest.mark.slow(8)
def test_a_run_of_joined_arms(tmp_path, monkeypatch):
    """MaNGA's two cameras about their overlap, painted together from particles that are read once: numpy's mean there,
    weighted by the inverse variances of the arms' own cubes, whose noise is not the same."""
    opened, join, arms = run_module.open_source, run_module.join_arms, []
    first = instrument_settings({"name": "manga_arms"}).arms["red"].wavelength.start
    ranges = {"blue": (first * 10**-0.002, first * 10**0.0029), "red": (first, first * 10**0.0049)}
    section = {name: {"wavelength": {"start": low, "stop": high}} for name, (low, high) in ranges.items()}
    instrument = {"name": "manga_arms", "fov": "2 arcsec", "aperture": None, "psf": None, "arms": section}
    read = []
    monkeypatch.setattr(run_module, "open_source", lambda *arguments: read.append(1) or opened(*arguments))
    monkeypatch.setattr(run_module, "join_arms", lambda cubes, *others: arms.extend(cubes) or join(cubes, *others))
    monkeypatch.setattr(run_module, "plan_and_compile", None)  # the way of arms apart
    engine = {"method": "basis", "precision": "float64"}
    cube = rl.run(RUN | {"instrument": instrument, "engine": engine, "output": {"maps": False}}, tmp_path / "cube.fits")
    assert len(read) == 1
    n_both, n_blue = arms[0].bins.n_wave, cube.bins.n_wave - arms[1].bins.n_wave
    assert (n_blue, n_both) == (np.sum(cube.wavelength < first), 50) == (20, 50)
    blue, other = (np.asarray(arm.flux) for arm in arms)
    np.testing.assert_array_equal(cube.flux[..., :n_blue], blue[..., :n_blue])
    np.testing.assert_array_equal(cube.flux[..., n_both:], other[..., n_both - n_blue :])
    one, two = 1 / np.asarray(arms[0].variance)[..., n_blue:], 1 / np.asarray(arms[1].variance)[..., : n_both - n_blue]
    mean = (one * blue[..., n_blue:] + two * other[..., : n_both - n_blue]) / (one + two)
    np.testing.assert_allclose(cube.flux[..., n_blue:n_both], mean, rtol=1e-12)
    np.testing.assert_allclose(cube.variance[..., n_blue:n_both], 1 / (one + two), rtol=1e-12)
    assert not np.allclose(blue[..., n_blue:], other[..., : n_both - n_blue], rtol=1e-3, atol=0)
