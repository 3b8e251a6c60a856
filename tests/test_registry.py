"""Plug-ins: built-in members by name, members of other distributions by entry point."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from rubix_like import load_config, load_ssp
from rubix_like.errors import ConfigError
from rubix_like.lookup import TemplateAxes
from rubix_like.methods import METHODS, build_painter
from rubix_like.painter import AbstractPainter
from rubix_like.planning import make_setup
from rubix_like.readers import READERS
from rubix_like.registry import Registry
from rubix_like.ssp import FORMATS
from rubix_like.stages import CUBE_STAGES, PAINT_STAGES, SCENE_STAGES

ALL = (METHODS, READERS, FORMATS, SCENE_STAGES, PAINT_STAGES, CUBE_STAGES)
SHAPES = Registry("shape", "rubix_like_test.shapes", {"square": "plug_in_shapes:SQUARE", "disc": "math:pi"})


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """An installed distribution with two entry points, one of which takes a built-in name."""
    (tmp_path / "plug_in_shapes.py").write_text("STAR = 'a star'\nSQUARE = 'the built-in square'\nOTHER = 'taken'\n")
    folder = tmp_path / "plug_in_shapes-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in-shapes\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[rubix_like_test.shapes]\nstar = plug_in_shapes:STAR\nsquare = plug_in_shapes:OTHER\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plug_in_shapes", raising=False)


def test_names_and_members_from_outside(plug_in):
    assert SHAPES.names() == ("square", "disc", "star")
    assert SHAPES.find("star") == "a star"


def test_a_builtin_name_cannot_be_taken_over(plug_in):
    assert SHAPES.find("square") == "the built-in square"


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


@pytest.mark.parametrize("registry", ALL, ids=lambda registry: registry.kind)
def test_every_builtin_member_exists(registry):
    assert registry.names()
    for name in registry.names():
        assert registry.find(name) is not None


def test_groups_and_kinds_differ():
    assert len({registry.group for registry in ALL}) == len({registry.kind for registry in ALL}) == len(ALL)


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
    return make_setup(config, load_ssp("popstar"), None)


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_builds_a_painter_of_the_templates_it_is_given(name):
    """Two templates on the library's wavelengths, on axes of any names; as fast as the setup says."""
    setup = setup_for(name)
    axes = TemplateAxes((np.array([0.0]), np.array([1.0, 2.0])), ("one", "other"))
    templates = np.asarray(setup.library.spectra)[2, [30, 60]]
    painter = build_painter(templates, axes, setup)
    assert setup.method == name
    assert isinstance(painter, AbstractPainter)
    assert painter.axes.names == ("one", "other")
    assert painter.axes.n_template == 2
    np.testing.assert_allclose(float(painter.velocity_limit), 500.0, rtol=1e-6)


def test_an_unknown_method_is_refused():
    setup = setup_for("direct")
    templates, axes = np.ones((1, len(setup.library.rest_wavelength))), TemplateAxes((np.zeros(1),), ("one",))
    with pytest.raises(ConfigError, match="unknown method 'dirct'; did you mean 'direct'"):
        build_painter(templates, axes, replace(setup, method="dirct"))
