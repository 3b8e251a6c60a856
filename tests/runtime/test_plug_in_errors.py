"""An error inside a plug-in is the plug-in's by name, on the command line; so is its attempt to end the process."""

import sys
from pathlib import Path

import pytest
from command_line import main
from installed_package import write_dist_info

import rubix_like as rl
from rubix_like import ConfigError
from rubix_like.runtime.registry import Registry, exits_as_errors, failed_plug_in

STAGE = """
import sys
import equinox as eqx
from rubix_like.extend import AbstractCubeStage, StageReport

class Stage(AbstractCubeStage):
    @classmethod
    def build(cls, setup, options):
        {line}
"""
CASES = {
    "a bug": (
        "return {}['x']",
        "`build` ended with KeyError: 'x'; see docs/how-to-extend.md (from the plug-in plug-in-faulty 1.0)",
    ),
    "an exit": ("sys.exit(0)", "the plug-in plug-in-faulty 1.0 failed: SystemExit: 0"),
    "a refusal": (
        "raise ValueError('no stars')",
        "stage 'faulty': `build`: no stars (from the plug-in plug-in-faulty 1.0)",
    ),
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution with one module and one stage on the cube, `faulty`."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plug_in_faulty", raising=False)

    def write(text):
        write_dist_info(tmp_path, "plug-in-faulty", "[rubix_like.cube_stages]\nfaulty = plug_in_faulty:Stage\n")
        (tmp_path / "plug_in_faulty.py").write_text(text)

    return write


@pytest.mark.parametrize(("line", "words"), CASES.values(), ids=CASES)
def test_an_error_is_that_of_the_plug_in(install, capsys, jax_settings, line, words):
    install(STAGE.format(line=line))
    Path("faulty.yaml").write_text("fields: []\nscene: []\npaint: [stars]\ncube: [faulty]\n")
    settings = ["pipeline=faulty.yaml", "noise=null", "galaxy.n_stars=20", "devices.data=1"]
    code = main(["check", "quickstart", "--set", *settings])
    error = capsys.readouterr().err
    assert code == 2
    assert words in error
    assert "a bug" not in error


def test_a_plug_in_that_exits_at_import_is_refused(install):
    install("raise SystemExit(0)")
    with pytest.raises(ConfigError, match=r"plug-in-faulty 1\.0: 'plug_in_faulty:Stage' cannot be imported"):
        Registry("stage", "rubix_like.cube_stages", {}).find("faulty")


EXITS = (
    STAGE.format(line="return cls()")
    + """
    margin: int = eqx.field(static=True, default=0)

    def spatial(self, parameters):
        return None

    def report(self):
        return StageReport()

    def __call__(self, cube, parameters, key):
        sys.exit(0)
"""
)


@pytest.mark.parametrize("text", [STAGE.format(line="sys.exit(0)"), EXITS], ids=["planned", "called"])
def test_a_plug_in_that_exits_is_an_error_in_python(install, text):
    """Of its methods, too: a script does not end in silence."""
    install(text)
    Path("faulty.yaml").write_text("fields: []\nscene: []\npaint: [stars]\ncube: [faulty]\n")
    small = {"galaxy.n_stars": 20, "devices.data": 1, "instrument.fov": 1, "instrument.wavelength.stop": 4800}
    config = rl.load_config("quickstart", {"pipeline": "faulty.yaml", "noise": "null", **small})
    galaxy = rl.load_galaxy(config)
    calls = [lambda: rl.run(config, "cube.fits"), lambda: rl.Pipeline.from_config(config, galaxy)(galaxy)]
    for call in calls:
        with pytest.raises(ConfigError, match=r"the plug-in plug-in-faulty 1\.0 failed: SystemExit: 0"):
            call()


def test_an_exit_of_the_program_itself_stays_one():
    with pytest.raises(SystemExit), exits_as_errors():
        sys.exit(143)


def test_a_stage_of_the_package_with_an_entry_point_makes_no_plug_in_of_its_errors(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    place = "rubix_like.forward.stages.optics:PSFStage"
    write_dist_info(tmp_path, "inside", f"[rubix_like.cube_stages]\ninside = {place}\n")
    with pytest.raises(ConfigError) as refused:
        rl.load_config("quickstart", overrides={"galaxy.n_star": 3})
    assert failed_plug_in(refused.value) is None
