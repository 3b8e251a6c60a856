"""Plug-ins: built-in members by name, members of other distributions by entry point."""

import sys
from dataclasses import replace

import h5py
import numpy as np
import pytest
from command_line import main
from installed_package import write_dist_info
from small import muse
from snapshot_files import write_cutout

from rubix_like import ConfigError, Pipeline, list_readers, load_config, load_galaxy
from rubix_like.config.plug_ins import (
    CUBE_STAGES,
    EXECUTORS,
    FIELD_MAP_GROUP,
    FIELDS,
    FILE_LAYOUTS,
    KERNELS,
    METHODS,
    PAINT_STAGES,
    READERS,
    SAMPLERS,
    SCENE_STAGES,
    field_map_names,
    find_reader,
    reader_names,
)
from rubix_like.extend import (
    AbstractPainter,
    TemplateAxes,
    build_painter,
    load_field_map,
    make_setup,
    plan_source,
    resolve,
)
from rubix_like.runtime.registry import Registry
from rubix_like.ssp import FORMATS

ALL = (METHODS, KERNELS, READERS, FORMATS, FIELDS, SCENE_STAGES, PAINT_STAGES, CUBE_STAGES, EXECUTORS)
SHAPES = Registry("shape", "rubix_like_test.shapes", {"square": "plug_in_shapes:SQUARE", "disc": "math:pi"})


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution: `install(name, group, **{name: "module:attribute"})`."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(distribution, group, **members):
        lines = [f"[{group}]", *(f"{name} = {target}" for name, target in members.items())]
        write_dist_info(tmp_path, distribution, "\n".join(lines) + "\n")
        return tmp_path

    return write


@pytest.fixture
def plug_in(install, monkeypatch):
    """An installed distribution with two entry points, one of which takes a built-in name."""
    folder = install(
        "plug-in-shapes", "rubix_like_test.shapes", star="plug_in_shapes:STAR", square="plug_in_shapes:OTHER"
    )
    (folder / "plug_in_shapes.py").write_text("STAR = 'a star'\nSQUARE = 'the built-in square'\nOTHER = 'taken'\n")
    monkeypatch.delitem(sys.modules, "plug_in_shapes", raising=False)


def test_names_and_members_from_outside(plug_in):
    assert SHAPES.names() == ("square", "disc", "star")
    assert SHAPES.find("star") == "a star"


def test_a_builtin_name_cannot_be_taken_over(plug_in):
    assert SHAPES.find("square") == "the built-in square"
    assert SHAPES.hidden(["disc", "star"]) == ()
    place = f"{SHAPES.kind} 'square' of the installed package plug-in-shapes 1.0"
    assert SHAPES.hidden(["square"])[0].startswith(f"{place} is left out, as that name is built in")


def test_a_stage_with_a_builtin_name_is_noted(install):
    install("other-psf", "rubix_like.cube_stages", psf="other_psf:PSF")
    run = {"observation": {"redshift": 0.05, "align": "none"}, "instrument": muse(5000, 5060, 20, "2 arcsec")}
    (note,) = (note for note in Pipeline.from_config(run).notes if "left out" in note)
    assert note.startswith("cube stage 'psf' of the installed package other-psf 1.0 is left out")


def test_members_are_imported_only_when_asked_for(plug_in):
    SHAPES.names()
    SHAPES.find("disc")
    assert "plug_in_shapes" not in sys.modules
    SHAPES.find("star")
    assert "plug_in_shapes" in sys.modules


def test_unknown_name_suggests_the_nearest():
    assert SHAPES.names() == ("square", "disc")
    with pytest.raises(ConfigError, match=r"unknown shape 'sqare'; did you mean 'square'\?"):
        SHAPES.find("sqare")
    with pytest.raises(ConfigError, match=r"unknown shape 'xyz'; known: disc, square"):
        SHAPES.find("xyz")


def test_groups_and_kinds_differ():
    assert len({registry.group for registry in ALL}) == len({registry.kind for registry in ALL}) == len(ALL)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import a_module_that_nobody_has", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
        ("OTHER = 1", "AttributeError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
    ],
)
def test_a_member_that_cannot_be_imported_is_blamed_on_its_distribution(install, monkeypatch, source, reason):
    folder = install("broken-things", SHAPES.group, broken="broken_things:MEMBER")
    (folder / "broken_things.py").write_text(source)
    monkeypatch.delitem(sys.modules, "broken_things", raising=False)
    with pytest.raises(ConfigError) as caught:
        SHAPES.find("broken")
    message = str(caught.value)
    assert "shape 'broken' of the installed package broken-things 1.0" in message
    assert f"'broken_things:MEMBER' cannot be imported ({reason}" in message
    assert "repair or uninstall broken-things 1.0" in message


def test_broken_plug_ins_hurt_only_themselves(monkeypatch, tmp_path, capsys):
    """Nothing of a package that cannot be imported is in the way of commands that do not use it."""
    groups = {FIELD_MAP_GROUP, *(registry.group for registry in (*ALL, SAMPLERS, FILE_LAYOUTS))}
    entry_points = "\n".join(f"[{group}]\nbroken = broken_things:MEMBER" for group in groups)
    write_dist_info(tmp_path, "all-broken", entry_points + "\n")
    (tmp_path / "broken_things.py").write_text("1 / 0")
    monkeypatch.delitem(sys.modules, "broken_things", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    write_cutout(tmp_path / "cutout.hdf5")
    for command in (["inspect", "cutout.hdf5"], ["list", "readers"], ["list", "stages"], ["schema"]):
        assert main(command) == 0, command
    text = capsys.readouterr()
    assert text.err.count("left out: ") == 5  # readers, samplers, three kinds of stages
    assert "all-broken 1.0: 'broken_things:MEMBER' cannot be imported (ZeroDivisionError" in text.err
    load_config("quickstart")
    h5py.File(tmp_path / "other.hdf5", "w").close()
    with pytest.raises(ConfigError, match="not tried: field map 'broken' of the installed package all-broken"):
        load_galaxy("other.hdf5")


def test_a_member_of_another_kind_is_refused(install):
    for registry in (registry for registry in ALL if registry.needs):
        install(f"odd-{registry.group}", registry.group, odd="math:pi")
        words = rf"{registry.kind} 'odd' of .* odd-{registry.group} 1.0: expected something with .*3.14"
        with pytest.raises(ConfigError, match=words):
            registry.find("odd")


def test_two_distributions_with_one_name_are_refused(install):
    install("one-shapes", "rubix_like_test.shapes", star="math:pi")
    install("two-shapes", "rubix_like_test.shapes", star="math:e")
    assert SHAPES.names() == ("square", "disc", "star")
    with pytest.raises(ConfigError, match=r"'star': expected one .* got one-shapes 1.0 and two-shapes 1.0; uninstall"):
        SHAPES.find("star")


def test_a_broken_member_does_not_hide_the_others_in_a_list(install):
    install("broken-things", READERS.group, broken="a_module_that_nobody_has:MEMBER")
    rows = dict(list_readers().rows)
    assert rows["broken"].startswith("cannot be used: reader 'broken' of the installed package broken-things 1.0")
    assert "Illustris" in rows["illustris"]


def test_a_reader_cannot_take_the_name_of_a_packaged_simulation(install):
    install("greedy", READERS.group, illustris="math:pi", synthetic="math:pi")
    assert find_reader("illustris").__name__ == "SnapshotReader"
    assert find_reader("synthetic").__name__ == "SyntheticReader"
    assert sorted(set(reader_names())) == sorted(reader_names())


MAP = """
title: Toy
source: made up
recognise: [{has: [PartType4/Positions]}]
stars:
  groups: PartType4
  fields:
    position: {dataset: Positions, unit: kpc}
    mass: {dataset: Masses, unit: Msun}
"""


@pytest.fixture
def install_map(install, monkeypatch):
    """Installs a distribution `toy-maps` that announces a field map of the given text; returns the map's path."""

    def write(text, name="toy"):
        folder = install("toy-maps", FIELD_MAP_GROUP, **{name: "toy_maps:MAP"})
        (folder / "toy_maps.py").write_text(
            "from pathlib import Path\nMAP = Path(__file__).with_name('the_map.yaml')\n"
        )
        monkeypatch.delitem(sys.modules, "toy_maps", raising=False)
        path = folder / "the_map.yaml"
        path.write_text(text)
        return path

    return write


def test_a_field_map_from_outside(install_map):
    install_map(MAP)
    assert field_map_names()[-1] == "toy"
    assert (load_field_map("toy").title, load_field_map("toy").name) == ("Toy", "toy")
    assert find_reader("toy").__name__ == "SnapshotReader"
    assert dict(list_readers().rows)["toy"] == "Toy"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("position:", "positon:", "stars.fields: unknown quantity 'positon'; did you mean 'position'?"),
        ("{dataset: Masses", "{datset: Masses", "unknown key 'stars.fields.mass.datset'; did you mean 'dataset'?"),
        ("groups: PartType4", "group: PartType4", "unknown key 'stars.group'; did you mean 'groups'?"),
        ("recognise:", "recognize:", "unknown key 'recognize'; did you mean 'recognise'?"),
        ("unit: kpc", "unit: kps", "stars.fields.position.unit: expected a unit that astropy knows"),
        ("unit: kpc", "unit: Msun", "position: expected a unit of kpc, got 'Msun'"),
        ("{has: ", "{hass: ", "unknown key 'recognise[0].hass'; did you mean 'has'?"),
    ],
)
def test_a_typo_in_a_field_map_from_outside_names_file_key_and_nearest_word(install_map, right, wrong, message):
    assert MAP.count(right) == 1
    path = install_map(MAP.replace(right, wrong))
    with pytest.raises(ConfigError) as caught:
        load_field_map("toy")
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_field_map_from_outside_cannot_take_over_a_packaged_name(install_map):
    install_map(MAP, name="eagle")
    assert field_map_names().count("eagle") == 1
    assert load_field_map("eagle").title == "EAGLE"


def test_a_field_map_that_is_no_path_or_no_file(install):
    install("odd-things", FIELD_MAP_GROUP, odd="math:pi", gone="string:digits")
    with pytest.raises(
        ConfigError, match=r"field map 'odd' of .* odd-things 1.0: expected the path of a YAML file, got 3"
    ):
        load_field_map("odd")
    with pytest.raises(ConfigError, match=r"0123456789: expected a readable YAML file"):
        load_field_map("gone")
    assert "odd-things 1.0" in dict(list_readers().rows)["odd"]


def setup_for(method):
    """A field of one spaxel, 21 bins."""
    wavelength = {"start": 5000, "stop": 5100, "step": 5}
    config = load_config(
        {
            "observation": {"redshift": 0, "distance": "10 Mpc", "align": "none"},
            "instrument": {"name": "muse", "fov": "0.2 arcsec", "psf": None, "wavelength": wavelength},
            "engine": {"method": method, "velocity_range": 500},
        }
    )
    return make_setup(config, resolve(config), None)


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_builds_a_painter_of_the_templates_it_is_given(name):
    """Two templates on the library's wavelengths, on axes of any names; as fast as the setup says."""
    setup = setup_for(name)
    axes = TemplateAxes((np.array([0.0]), np.array([1.0, 2.0])), ("one", "other"))
    library = setup.library.templates()
    templates = replace(library, axes=axes, table=np.asarray(setup.library.spectra)[2, [30, 60]])
    plan = plan_source(setup, templates, "stars")
    painter = build_painter(plan, setup)
    assert plan.method == name
    assert isinstance(painter, AbstractPainter)
    assert painter.axes.names == ("one", "other")
    assert painter.axes.n_template == 2
    np.testing.assert_allclose(float(painter.velocity_limit), 500.0, rtol=1e-6)


def test_an_unknown_method_is_refused():
    setup = setup_for("direct")
    with pytest.raises(ConfigError, match="unknown method 'dirct'; did you mean 'direct'"):
        build_painter(replace(setup.sources["stars"], method="dirct"), setup)
