"""Several observations of a galaxy: the cubes of each one's own run, in one pass where they see the particles alike."""

import pickle

import jax
import numpy as np
import pytest
import yaml
from hlo import collectives
from quick_compiler import kept_programs
from small import few_stars

import rubix_like as rl
from rubix_like import ConfigError
from rubix_like.forward.pipeline import PipelineGroup, separate_observations
from rubix_like.runs.batch.entries import read_entries

GALAXY = few_stars(40, 0.3)
ARMS = {
    "blue": {"wavelength": {"start": 3900, "stop": 4060, "step": 4}, "lsf": {"fwhm": 20}},
    "red": {"wavelength": {"start": 6500, "stop": 6700, "step": 4}, "lsf": {"fwhm": 40}},
}
FIELDS = [{"offset": [0.1, 0.0]}, {"offset": [-0.2, 0.1], "field_angle": 20, "name": "west"}]
RUN = {
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": {"name": "muse", "fov": "1 arcsec", "psf": {"fwhm": "0.4 arcsec"}, "arms": ARMS},
    "engine": {"method": "basis", "precision": "float64", "tolerance": 3e-4, "deposit": "cic", "velocity_range": 300},
    "devices": {"data": 2},
}
MUSE = {
    "name": "muse", "fov": "1 arcsec", "psf": {"fwhm": "0.4 arcsec"}, "lsf": {"fwhm": 25},
    "wavelength": {"start": 6000, "stop": 6200, "step": 10},
}  # fmt: skip
NIRSPEC = {"name": "nirspec_prism", "fov": "0.6 arcsec", "wavelength": {"start": 6000, "stop": 9000, "step": 100}}
TWO = {
    "observation": RUN["observation"],
    "observations": {
        "muse": {"instrument": MUSE},
        "nirspec": {"instrument": NIRSPEC, "observation": {"offset": [0.1, 0]}},
    },
    "engine": {"method": "direct", "precision": "float64", "deposit": "cic", "velocity_range": 300},
    "devices": {"data": 2},
}  # fmt: skip


def planned(sections, mesh=None, *, alike=False):
    """The pipeline of both arms; `alike`: with velocities that are the same."""
    arms = {name: arm | {"lsf": {"fwhm": 30}} for name, arm in ARMS.items()} if alike else ARMS
    return rl.Pipeline.from_config(
        RUN | {"instrument": RUN["instrument"] | {"arms": arms}} | sections, GALAXY, mesh=mesh
    )


@pytest.fixture(scope="module")
def two():
    """The pipeline of both instruments."""
    return rl.Pipeline.from_config(TWO, GALAXY)


@pytest.fixture(scope="module")
def arms():
    """The pipeline of two arms that see the particles alike."""
    return planned({}, alike=True)


def same(cube, other, limit=1e-12):
    for name in ("flux", "variance", "mean_v_los"):
        found, expected = getattr(cube, name), getattr(other, name)
        assert (found is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=limit * np.nanmax(np.abs(expected)))


@pytest.mark.slow(12)
def test_arms_painted_together_are_the_arms_alone():
    """With maps, at two pointings, on two devices: cubes and maps of each arm's own program on one, to 1e-12, with as
    many sums over devices as one arm has."""
    sections = {"products": {"losvd": None}, "observation": RUN["observation"] | {"pointings": FIELDS}}
    both = planned(sections, alike=True)
    group = list(both.observations.values())
    cubes = both.observe(GALAXY)
    assert list(cubes) == ["blue_1", "blue_west", "red_1", "red_west"]
    one = rl.make_mesh(1)
    for name, arm in planned(sections, one, alike=True).observations.items():
        for label, cube in arm.observe(GALAXY).items():
            found = cubes[f"{name}_{label.removeprefix(name + '_')}"]
            same(found, cube)
            for key in ("light", "v_light", "sigma_mass", "log_age_light"):
                seen, expected = (getattr(maps.after, key) for maps in (found.maps, cube.maps))
                np.testing.assert_allclose(seen, expected, rtol=1e-9, atol=1e-12 * np.nanmax(expected))
    assert not np.allclose(cubes["blue_1"].maps.before.light, cubes["red_1"].maps.before.light, rtol=1e-3)
    lowered = PipelineGroup(group).lower(GALAXY), group[0].lower(GALAXY)
    sums = [collectives(own.compile().as_text()) for own in lowered]
    assert sums[0] == sums[1] != []


def test_two_instruments_see_one_galaxy(two, arms):
    """MUSE and NIRSpec: the cubes of their own runs, and the galaxy in both where each one looks; only arms, on one
    grid, with the same velocities and by `basis`, are painted together."""
    cubes = two.observe(GALAXY)
    assert list(cubes) == ["muse", "nirspec"]
    for name, cube in cubes.items():
        recorded = yaml.safe_load(cube.meta["config"])
        assert "observations" not in recorded
        same(cube, rl.Pipeline.from_config(recorded, GALAXY)(GALAXY))
        assert cube.meta["instrument"].lower().startswith(name)
    with pytest.raises(ConfigError, match=r"got one of muse, nirspec; use pipeline\.observe\(galaxy\)"):
        two(GALAXY)
    assert (two.groups, arms.groups) == ((("muse",), ("nirspec",)), (("blue", "red"),))
    assert planned({"engine": RUN["engine"] | {"method": "direct"}}, alike=True).groups == (("blue",), ("red",))


def test_gradients_through_both_instruments(two):
    """With respect to an angle that both have, to the PSF of one and the offset of the other: central differences."""
    names = (
        "observation.inclination",
        "observations.muse.instrument.psf.fwhm",
        "observations.nirspec.observation.offset",
    )
    place = {names[0]: np.array(40.0), names[1]: np.array(0.4), names[2]: np.array([0.1, 0.0])}

    @jax.jit
    @jax.value_and_grad
    def total(values):
        cubes = two.observe(GALAXY, values)
        return sum((cube.flux[:3] ** 2).sum() / scale for cube, scale in zip(cubes.values(), scales, strict=True))

    scales = [float((np.asarray(cube.flux) ** 2).sum()) for cube in two.observe(GALAXY).values()]
    _, slopes = total(place)
    for name, step in zip(names, (1e-4, 1e-6, 1e-6), strict=True):
        shift = np.zeros_like(place[name])
        shift.flat[0] = step
        ends = [float(total(place | {name: place[name] + sign * shift})[0]) for sign in (1, -1)]
        np.testing.assert_allclose(np.asarray(slopes[name]).flat[0], (ends[0] - ends[1]) / (2 * step), rtol=2e-5)


def test_numbers_of_a_call_are_of_all_or_of_one(two):
    """An angle turns both, an offset for one moves that one alone: as its own pipeline does."""
    values = {"observation.inclination": 70, "observations.nirspec.observation.offset": [0.0, 0.1]}
    cubes, each = two.observe(GALAXY, values), two.observations
    same(cubes["muse"], each["muse"](GALAXY, {"observation.inclination": 70}))
    same(cubes["nirspec"], each["nirspec"](GALAXY, {"observation.inclination": 70, "observation.offset": [0.0, 0.1]}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"instrument.psf.fwhm": 0.5}, r"write 'observations\.muse\.instrument\.psf\.fwhm'"),
        (
            {"observations.mose.observation.offset": [0, 0]},
            r"one of the observations.*muse, nirspec.*did you mean 'muse'",
        ),
        ({"observations.muse": 0.8}, r"'observations\.NAME\.KEY'.* got 'observations\.muse'"),
        ({"observations.muse.instrument.psf.fwhm": -1}, r"observations\.muse: parameters\['instrument\.psf\.fwhm'\]"),
        ({"observations.muse.observation.inclination": 5}, r"expected 'observation\.inclination' for all observations"),
        ({"observations.muse.observation.ofset": [0, 0]}, r"observations\.muse: .*observation\.offset"),
        ({"muse.instrument.psf.fwhm": 0.5}, r"expected 'observations\.muse\.instrument\.psf\.fwhm'"),
        ({"noise.signal_to_noise": 30}, r"which its configuration does not have"),
        ({"observation.inclinatoin": 30}, r"observation\.inclination"),
    ],
)
def test_numbers_that_none_has(two, values, message):
    with pytest.raises(ConfigError, match=message):
        two.observe(GALAXY, values)


def with_muse(**changes):
    return {"observations": TWO["observations"] | {"muse": {"instrument": MUSE} | changes}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instrument": MUSE | {"fov": "2 arcsec"}}, r"every observation \(muse, nirspec\) has its own"),
        ({"instrument": {"fov": 1}}, r"every observation \(muse, nirspec\) has its own"),
        ({"observations": {"mu.se": {}}}, r"observations: expected names of at most 60 letters"),
        ({"observations": {"a": {"instrument": MUSE}, "A": {}}}, r"differ in more than capitals.* 'a' and 'A'"),
        ({"observations": {"a": {"instrument": MUSE}, "a_1": {"instrument": MUSE}}}, r"begins with another and _"),
        ({"observations": {"muse": "muse"}}, r"write muse: \{instrument: \{name: muse\}\}"),
        (
            {"observations": {"a": {"instrument": MUSE}, "b": {}}},
            r"observations\.b\.instrument: expected a section with",
        ),
        (with_muse(observation={"redshift": 1}), r"give observation\.redshift beside observations"),
        (
            with_muse(observation={"ofset": [0, 0]}),
            r"observations\.muse: unknown key 'observation\.ofset'",
        ),
        (with_muse(engine={"precision": "float32"}), r"give engine\.precision beside observations"),
        (with_muse(instrument=MUSE | {"fov": "-1 arcsec"}), r"observations\.muse\.instrument: .*fov"),
        (with_muse(instrument={"name": "mus"}), r"observations\.muse\.instrument: unknown instrument 'mus'; did"),
        (with_muse(dust={"a_v": 1}), r"every observation sees the same dust"),
        (
            {"instrument.fov": 1},
            r"every observation \(muse, nirspec\) has its own.*give observations\.muse\.instrument",
        ),
        ({"observations.mus.instrument.psf.fwhm": 1}, r"one of the observations muse, nirspec, got 'mus'; did"),
    ],
)
def test_observations_that_cannot_be(changes, message):
    with pytest.raises(ConfigError, match=message) as error:
        rl.load_config(TWO, changes)
    assert "problems" not in str(error.value)


def test_configurations_of_observations_are_read_back():
    """As YAML and as objects, with sections for all; overrides of one hold, and one can be left out."""
    config = rl.load_config(TWO | {"noise": {"signal_to_noise": 20}, "products": {}})
    recorded = yaml.safe_load(config.to_yaml())
    assert rl.load_config(recorded) == config
    changes = {"observations.muse.instrument.psf.fwhm": "0.6 arcsec", "observations.nirspec": None}
    one = rl.load_config(TWO, changes)
    assert list(one.observations) == ["muse"]
    assert float(rl.Pipeline.from_config(one, GALAXY).parameters.instrument.psf.fwhm) == 0.6
    for source in (rl.load_config(TWO), yaml.safe_load(rl.load_config(TWO).to_yaml())):
        assert rl.load_config(source, changes) == one


def test_errors_of_planning_name_the_observation():
    """Also those of a run, before anything is written."""
    sections = with_muse(noise={"exposure": {"time": 60, "sky": "infrared"}}) | {"galaxy": {"reader": "synthetic"}}
    for act in (lambda: rl.Pipeline.from_config(TWO | sections, GALAXY), lambda: rl.run(TWO | sections)):
        with pytest.raises(ConfigError, match=r"observations\.muse: noise\.exposure\.sky"):
            act()


def test_noise_of_observations_is_their_own():
    """Its seed is another for each, counting arms, unless it is stated."""
    noise = {"signal_to_noise": 20, "seed": 5}
    several = {
        "arms": {"instrument": {"name": "sami", "fov": "2 arcsec"}},
        "muse": {"instrument": MUSE},
        "again": {"instrument": MUSE, "noise": noise | {"seed": 8}},
        "quiet": {"instrument": MUSE, "noise": None},
    }
    config = rl.load_config({"observation": RUN["observation"], "observations": several, "noise": noise})
    every = {name: run.noise for name, (_, run) in separate_observations(config).items()}
    assert list(every) == ["arms_blue", "arms_red", "muse", "again", "quiet"]
    assert [noise and noise.seed for noise in every.values()] == [5, 1000008, 2000011, 8, None]


def test_maps_of_one_observation_of_a_group():
    """An observation with maps and one without are made by programs of their own: they read other particles."""
    sections = {"products": {"gas": True, "losvd": None}}
    pair = {"a": {"instrument": MUSE}, "b": {"instrument": MUSE, **sections}}
    engine = TWO["engine"] | {"method": "basis"}
    gas = rl.Gas(
        **{name: np.ones((5, 3)) for name in ("position", "velocity")}, mass=np.ones(5), metallicity=np.full(5, 0.01)
    )
    galaxy = rl.Galaxy(stars=GALAXY.stars, gas=gas)
    pipeline = rl.Pipeline.from_config(TWO | {"observations": pair, "engine": engine}, galaxy)
    assert pipeline.groups == (("a",), ("b",))
    shapes = jax.eval_shape(pipeline.observe, galaxy)
    assert shapes["a"].maps is None
    assert shapes["b"].maps is not None


def test_a_run_of_one_named_observation(tmp_path):
    """In slabs; of several without: `test_a_run_of_two_instruments`."""
    sections = {**TWO, "observations": {"muse": {"instrument": MUSE}}, "galaxy": {"reader": "synthetic", "n_stars": 60}}
    cube = rl.run(sections | {"engine": TWO["engine"] | {"slab": 50}}, tmp_path / "cube.fits")
    written = rl.load_cube(tmp_path / "cube_muse.fits")
    np.testing.assert_allclose(written.flux, cube.flux, rtol=1e-6)
    assert written.meta["observation"] == "muse"


def test_a_pipeline_of_several_is_an_argument_of_jit_and_pickled(arms):
    expected = arms.observe(GALAXY)
    for cubes in (
        jax.jit(lambda pipeline, galaxy: pipeline.observe(galaxy))(arms, GALAXY),
        pickle.loads(pickle.dumps(arms)).observe(GALAXY),
    ):
        for name in ("blue", "red"):
            same(cubes[name], expected[name])


def group_of(pipeline):
    """The program of all observations of a pipeline that see the particles alike."""
    return PipelineGroup(list(pipeline.observations.values()))


def test_smooth_components_are_made_for_each_instrument(tmp_path):
    """A second instrument that tells more apart gets the quadrature points that its own run has."""
    disc = {"name": "disc", "mass": 1e10, "light": {"profile": "exponential", "scale_length": 1}, "dispersion": 60}
    disc |= {"population": {"history": "single", "log_age": 9.5, "metallicity": 0.02}}
    coarse = MUSE | {"psf": {"fwhm": "3 arcsec"}}
    pair = {"coarse": {"instrument": coarse}, "fine": {"instrument": MUSE}}
    sections = {**TWO, "observations": pair, "galaxy": {"reader": "components", "components": [disc]}}
    rl.run(sections, tmp_path / "cube.fits")
    fine = rl.load_cube(tmp_path / "cube_fine.fits")
    alone = rl.load_galaxy(yaml.safe_load(fine.meta["config"]))
    coarse = rl.load_cube(tmp_path / "cube_coarse.fits").counters.n_particles
    assert float(fine.counters.n_particles) == len(alone.stars.initial_mass) > float(coarse)


def test_a_run_of_two_instruments(tmp_path, capsys):
    """A file of each, which its recorded run makes again, bit for bit (of the last one); the last cube is returned, and
    what is not in the others is said, too."""
    sections = TWO | with_muse(observation={"offset": [300, 0]}) | {"galaxy": {"reader": "synthetic", "n_stars": 60}}
    cube = rl.run(sections, tmp_path / "cube.fits", quiet=False)
    assert "muse: 60 of 60 stars (100 % of the mass) are outside the field" in "".join(capsys.readouterr())
    muse, nirspec = (rl.load_cube(tmp_path / f"cube_{name}.fits") for name in ("muse", "nirspec"))
    np.testing.assert_allclose(nirspec.flux, cube.flux, rtol=1e-6)
    assert (muse.meta["observation"], nirspec.meta["observation"]) == ("muse", "nirspec")
    again = rl.run(yaml.safe_load(nirspec.meta["config"]), tmp_path / "again.fits")
    np.testing.assert_array_equal(again.flux, cube.flux)


def test_observations_in_slabs(tmp_path, capsys):
    """Each slab is read once for both of a group, at two pointings: the cubes of all particles at once, with noise and
    maps; a mosaic is made of the cubes, whatever made these."""
    lsf = {"lsf": {"fwhm": 30}}
    pair = {name: {"instrument": MUSE | arm | lsf} for name, arm in ARMS.items()}
    sections = {"observation": RUN["observation"] | {"pointings": FIELDS, "mosaic": False}, "observations": pair}
    sections |= {"galaxy": {"reader": "synthetic", "n_stars": 60, "n_gas": 20}, "noise": {"signal_to_noise": 20}}
    sections["devices"] = RUN["devices"]
    sections["products"] = {"losvd": None, "gas": True}
    for slab in ("all", "25"):
        (tmp_path / slab).mkdir()
        engine = RUN["engine"] | {"slab": yaml.safe_load(slab)}
        rl.run(sections | {"engine": engine}, tmp_path / slab / "cube.fits", quiet=False)
    lines = capsys.readouterr().err.splitlines()
    label = "painting 60 stars for 2 observations in 3 slabs on 2 devices (pointings 1 to 2)"
    assert [line.startswith(label) for line in lines if " in 3 slabs" in line] == [True] * 2  # its beginning, its end
    names = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert sorted(path.name for path in (tmp_path / "25").iterdir()) == names
    assert len(names) == 8  # of each: two cubes and their maps
    for name in (name for name in names if "maps" not in name):
        same(*(rl.load_cube(tmp_path / slab / name) for slab in ("25", "all")), 1e-6)
    for name in (name for name in names if "maps" in name):
        found, expected = (rl.Maps.read(tmp_path / slab / name).before.gas_mass for slab in ("25", "all"))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.max(expected))


def test_particles_that_lack_lengths_are_read_again(tmp_path):
    """Of two instruments one smooths few stars (deposit auto): its cube does not depend on which is read first, nor
    whether all are held at once."""
    coarse = MUSE | {"pixel_scale": "2 arcsec", "fov": "8 arcsec", "psf": None}
    pair = {"coarse": {"instrument": coarse}, "fine": {"instrument": MUSE}}
    galaxy = {"reader": "synthetic", "n_stars": 900}
    found = []
    for names, slab in ((["fine", "coarse"], "all"), (["coarse", "fine"], "all"), (["coarse", "fine"], 1000)):
        sections = {
            "galaxy": galaxy,
            "observation": RUN["observation"],
            "observations": {name: pair[name] for name in names},
            "engine": {"slab": slab},
            "devices": RUN["devices"],
        }
        with kept_programs(tmp_path / "programs"):
            rl.run(sections, tmp_path / "cube.fits", overwrite=True)
        found.append([rl.load_cube(tmp_path / f"cube_{name}.fits") for name in ("coarse", "fine")])
    for cubes in found[1:]:
        for one, other in zip(found[0], cubes, strict=True):
            assert one.meta["deposit_reason"] == other.meta["deposit_reason"]
            same(one, other, 1e-6)
    assert [cube.meta["deposit"] for cube in found[0]] == ["nearest", "smoothed"]


@pytest.mark.slow(12)
def test_joined_arms_at_several_pointings(tmp_path):
    """Each pointing's joined cube is that of a run with its offset, and the mosaic is made of these."""
    arms = {"blue": {"wavelength": {"start": 5000, "stop": 5200, "step": 10}, "lsf": {"fwhm": 30}}}
    arms["red"] = {"wavelength": {"start": 5150, "stop": 5400, "step": 10}, "lsf": {"fwhm": 30}}
    section = {"name": "muse", "fov": "1 arcsec", "psf": {"fwhm": "0.4 arcsec"}, "arms": arms, "join": True}
    sections = RUN | {"instrument": section, "galaxy": {"reader": "synthetic", "n_stars": 60}}
    fields = [{"offset": [0.2, 0.0]}, {"offset": [-0.2, 0.2]}]
    observation = RUN["observation"] | {"pointings": fields}
    mosaic = rl.run(sections | {"observation": observation}, tmp_path / "cube.fits")
    cubes = [rl.load_cube(tmp_path / f"cube_{number}.fits") for number in (1, 2)]
    for number, (cube, field) in enumerate(zip(cubes, fields, strict=True)):
        offset = [-own for own in field["offset"]]
        moved = sections | {"observation": RUN["observation"] | {"offset": offset}}
        rl.run(moved, tmp_path / f"moved{number}.fits")
        same(cube, rl.load_cube(tmp_path / f"moved{number}.fits"), 1e-6)
    np.testing.assert_allclose(rl.make_mosaic(cubes).flux, mosaic.flux, rtol=1e-6, atol=1e-6 * mosaic.flux.max())


def test_a_catalogue_has_an_entry_for_each_observation(tmp_path):
    """With settings of its own; a recorded run makes its cube again, bit for bit."""
    sections = TWO | {"galaxy": {"reader": "synthetic", "n_stars": 30}}
    offset = {"observations.muse.observation.offset": [0.1, 0.0]}
    with kept_programs(tmp_path / "programs"):
        rl.run_catalogue(sections, [{"name": "one", "galaxy.seed": 3}, {"name": "two", **offset}], output=tmp_path)
    names = [f"{row}_{instrument}" for row in ("one", "two") for instrument in ("muse", "nirspec")]
    configs = [yaml.safe_load(rl.load_cube(tmp_path / f"{name}.fits").meta["config"]) for name in names]
    assert [config["galaxy"]["seed"] for config in configs] == [3, 3, 1, 1]
    offsets = [rl.load_config(config).observation.offset for config in configs]
    np.testing.assert_array_equal(offsets, [[0, 0], [0.1, 0], [0.1, 0], [0.1, 0]])
    with kept_programs(tmp_path / "programs"):
        rl.run(configs[1], tmp_path / "again.fits")
    np.testing.assert_array_equal(*(rl.load_cube(tmp_path / f"{name}.fits").flux for name in ("again", "one_nirspec")))
    (muse, _) = read_entries(sections, [{"name": "two", "observations.muse.instrument.fov": "0.6 arcsec"}])
    assert (muse.path.name, muse.config.instrument.n_spaxel_xy) == ("two_muse.fits", (3, 3))
    with pytest.raises(ConfigError, match=r"every observation .* give observations\.muse\.instrument\.fov"):
        rl.run_catalogue(sections, [{"name": "one", "instrument.fov": "1 arcsec"}], output=tmp_path)
