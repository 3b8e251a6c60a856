"""Settings that would not end or overflow: pipes and devices as files, and numbers beyond what there is."""

import functools
import os
import signal

import pytest
from command_line import main

from rubix_like import ConfigError, RunConfig, load_config, read_observed, run_catalogue

BASE = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse", "fov": "1 arcsec"}}
TEXTS = (
    "galaxy.reader",
    "instrument.fibres.bundle",
    "instrument.wavelength.centres",
    "instrument.wavelength.edges",
    "nebular.table",
    "noise.exposure.sky",
    "pipeline",
    "products.filters[]",
    "ssp.library",
)
"""Settings of text that may be the path of a file."""


def settings_of(schema, node, key="", above=()):
    """(dotted key, schema) of every setting; the keys of mappings are NAME, those of lists end in []."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name in above:
            return
        node, above = schema["$defs"][name], (*above, name)
    yield key, node
    for name, inner in node.get("properties", {}).items():
        yield from settings_of(schema, inner, f"{key}.{name}".strip("."), above)
    for inner in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ()), *node.get("prefixItems", ())):
        yield from settings_of(schema, inner, key, above)
    for name, mark in (("items", "[]"), ("additionalProperties", ".NAME")):
        if isinstance(node.get(name), dict):
            yield from settings_of(schema, node[name], key + mark, above)


@functools.cache
def known_settings():
    schema = RunConfig.model_json_schema()
    return list(settings_of(schema, schema))


def path_settings():
    return sorted({key for key, node in known_settings() if node.get("format") == "path"})


def placed(key, value):
    """Sections with a value at a dotted key."""
    for name in reversed(key.split(".")):
        value = {name.removesuffix("[]"): [value] if name.endswith("[]") else value}
    return value


@pytest.fixture(params=["pipe", "device"])
def endless(request, tmp_path):
    if request.param == "device":
        return "/dev/zero"
    os.mkfifo(tmp_path / "pipe.fits")
    return str(tmp_path / "pipe.fits")


@pytest.fixture(autouse=True)
def soon():
    """An error after a while, also while a file is opened."""

    def end(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_no_setting_takes_a_pipe_or_a_device(endless):
    for key in (*path_settings(), *TEXTS):
        words = rf"{key.replace('[]', '')}: expected a file or a folder, got '{endless}', which is a pipe"
        with pytest.raises(ConfigError, match=words):
            load_config({**BASE, **placed(key, endless)})


def test_the_schema_has_the_settings_that_are_looked_at():
    """The walk comes to sections below lists and mappings, and to every key of text that is named here."""
    assert {"fit.data.NAME.covariance.matrix", "instrument.psf.field[].file", "instrument.aperture.file"} <= {
        *path_settings()
    }
    assert {key.removesuffix("[]") for key in TEXTS} <= {key for key, _ in known_settings()}


def test_files_that_settings_are_in(endless, tmp_path):
    """A file of an instrument, a list of galaxies, a configuration."""
    (tmp_path / "mine.yaml").write_text(f"name: mine\npsf: {{kind: image, file: {endless}}}\n")
    with pytest.raises(ConfigError, match=r"psf\.file: expected a file or a folder"):
        load_config({**BASE, "instrument": {"name": str(tmp_path / "mine.yaml")}})
    with pytest.raises((OSError, ConfigError), match=f"no file '{endless}'"):
        run_catalogue(BASE, endless, output=str(tmp_path / "many"))
    with pytest.raises(OSError, match="no such cube"):
        read_observed(endless)


@pytest.mark.usefixtures("jax_settings")
def test_commands(endless, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(load_config(BASE).to_yaml())
    for words in (["fit", "--data", endless], ["check", "--catalogue", endless], ["run", "--set", f"psf={endless}"]):
        assert main([words[0], str(tmp_path / "run.yaml"), *words[1:]]) == 2
    assert main(["check", endless]) == 2
    assert all(line.startswith("rubix-like: ") for line in capsys.readouterr().err.splitlines())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"instrument.pixel_scale": 1e-320}, r"instrument.pixel_scale: expected a number >= 1e-06, got 1e-320"),
        ({"instrument.pixel_scale": 1e308}, r"instrument.pixel_scale: expected a number <= 1e.09"),
        ({"instrument.fov": 1e308}, r"instrument.fov: expected a field of at most 100000 spaxels of 0.2 arcsec"),
        ({"instrument.wavelength.step": 1e-320}, r"instrument.wavelength: expected at most 1000000 bins"),
        ({"observation.redshift": 1e-12}, r"observation: redshift 1e-12 says nothing of the distance"),
        ({"observation.redshift": 1e308}, r"observation.redshift: expected a number <= 1000"),
        ({"dust.a_v": 1e308}, r"dust.a_v: expected a number <= 1e.06"),
        ({"dust": {"kind": "particles", "a_v_birth": 1e308}}, r"dust.a_v_birth: expected a number <= 1e.06"),
        ({"observation.redshift": 10**400}, r"observation.redshift: expected a finite number, got 1000"),
        ({"dust.a_v": 10**400}, r"dust.a_v: expected a quantity in mag .*, got 1000"),
    ],
)
def test_numbers_beyond_what_there_is(settings, words):
    with pytest.raises(ConfigError, match=words):
        load_config(BASE, settings)


def test_the_limits_leave_what_there_is():
    """A redshift of zero or next to it has a distance of its own; the smallest spaxels are of a telescope of 100 km."""
    near = load_config(BASE, {"observation.redshift": 1e-12, "observation.distance": "1 kpc"})
    assert near.observation.distance == 1e-3
    assert load_config(BASE, {"observation.redshift": 1e-9}).observation.redshift == 1e-9
    tiny = load_config(BASE, {"instrument.pixel_scale": 1e-6, "instrument.fov": 1e-5})
    assert tiny.instrument.n_spaxel_xy == (10, 10)
