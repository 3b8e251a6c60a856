"""The command `rubix-like new`: a configuration with comments, for an instrument and a galaxy."""

import argparse
import math
import shlex
import sys
from pathlib import Path

import yaml

from rubix_like.config import InstrumentSettings
from rubix_like.config.loading import check_sections
from rubix_like.config.yaml_files import SUFFIXES, parse_yaml
from rubix_like.errors import ConfigError, suggest
from rubix_like.readers.inspection.report import inspect_galaxy
from rubix_like.runtime.files.outputs import check_writable, replacing
from rubix_like.runtime.resources import resource_names
from rubix_like.runtime.words import reason_of

_SYNTHETIC = "synthetic"
DEFAULTS = {"path": "mine.yaml", "instrument": "muse", "galaxy": _SYNTHETIC}
"""What is taken for an option that is not given where nobody can be asked."""

_WIDEST = 100
"""Spaxels along a side of the field that is proposed; the field of a preset may have far more."""

_SYNTHETIC_GALAXY = """\
galaxy:
  reader: synthetic              # a disc with a bulge, made on the spot; or, for a file: path: cutout.hdf5
  n_stars: 50000
  seed: 1                        # the same seed makes the same galaxy
"""

_GALAXY_OF_FILE = """\
galaxy:
  path: {path}    # {found}
  center: null                   # null finds it; or [x, y, z] in the file's own unit of length
{more}"""

_REST = """
ssp:
  library: popstar               # embedded, coarse; a finer one: rubix-like ssp get bc03-miles, then bc03-miles

observation:
  redshift: 0.05                 # where the galaxy is put; its distance follows (cosmology: Planck18)
  align: stars                   # turn the stellar disc face-on first; none: leave the galaxy's axes as they are
  inclination: 60 deg            # 0 is face-on, 90 edge-on
  position_angle: 30 deg         # of the receding major axis, from North through East

instrument:
  name: {instrument}    # {telescope}; rubix-like list instruments
{field}
pipeline: stellar                # rubix-like list pipelines; nebular adds the light of ionised gas

noise: null                      # none; or {{signal_to_noise: 50, seed: 1}}, or {{exposure: {{time: 1 h}}}}

products: null                   # maps beside the cube; {{losvd: null}}: V, sigma, ages, metallicities and masses

output:
  path: {cube}    # .fits; .h5 and .zarr keep everything
"""


def write_configuration(options: argparse.Namespace) -> None:
    """`rubix-like new`: asks for what the options leave open where there is a terminal, then writes the file."""
    path = Path(_chosen(options.path, "path", "File to write")).expanduser()
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"new: expected a name ending in {' or '.join(SUFFIXES)}, got '{path}'")
    if path.exists() and not options.overwrite:
        raise ConfigError(f"new: '{path}' exists; choose another name, or replace it with --overwrite")
    instrument = _chosen(options.instrument, "instrument", "Instrument (rubix-like list instruments)")
    if instrument not in resource_names("instruments"):
        known = resource_names("instruments")
        raise ConfigError(f"--instrument: no preset '{instrument}'{suggest(instrument, known)}")
    galaxy = _chosen(options.galaxy, "galaxy", "File of the galaxy, or 'synthetic'")
    text = configuration_text(path, instrument, galaxy)
    check_sections(parse_yaml(text, str(path)), str(path))
    check_writable(path, len(text))
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"Configuration written to {path}")
    name = shlex.quote(str(path))
    print(f"To look at what it would do: rubix-like check {name}")
    print(f"To run it: rubix-like run {name} --plot")


def _chosen(given: str | None, name: str, question: str) -> str:
    """The option, else the answer of who sits at the terminal, else the default."""
    default = DEFAULTS[name]
    if given is not None:
        return given
    if not sys.stdin.isatty():
        return default
    return input(f"{question} [{default}]: ").strip() or default


def configuration_text(path: Path, instrument: str, galaxy: str) -> str:
    """The YAML of a run, with comments on what to change.

    Raises FileNotFoundError or ConfigError for a galaxy that is not there or not recognised.
    """
    preset = InstrumentSettings.model_validate({"name": instrument})
    what, section = "a synthetic disc galaxy", _SYNTHETIC_GALAXY
    if galaxy != _SYNTHETIC:
        recognised, more = _kind_and_settings(galaxy)
        what = _in_comment(Path(galaxy).name)
        section = _GALAXY_OF_FILE.format(path=_in_yaml(galaxy), found=recognised, more=more)
    name = _in_comment(shlex.quote(path.name))
    head = (
        f"# A run of rubix-like: {what} seen by {preset.label}.\n#\n"
        f"#   rubix-like check {name}\n#   rubix-like run {name} --plot\n\n"
    )
    field, (n_x, n_y) = "", preset.n_spaxel_xy
    if max(n_x, n_y) > _WIDEST and preset.aperture is None:  # very many spaxels
        side, whole = _WIDEST * preset.pixel_scale, " x ".join(f"{side:g}" for side in preset.fov)
        field = f"  fov: {side:g} arcsec    # {_WIDEST} x {_WIDEST} spaxels; the whole field is {whole} arcsec\n"
    rest = _REST.format(
        instrument=instrument, telescope=preset.telescope or "preset", field=field, cube=_in_yaml(f"{path.stem}.fits")
    )
    return head + section + rest


def _in_yaml(text: str) -> str:
    """A text between double quotes, with what YAML would take for something else escaped."""
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()


def _in_comment(text: str) -> str:
    """On one line, with a question mark for what cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _kind_and_settings(galaxy: str) -> tuple[str, str]:
    """The kind that a file was recognised as, and lines for the settings that it needs beside its path; raises
    ConfigError, with the reason, where it cannot be used."""
    inspection = inspect_galaxy({"path": galaxy})
    if inspection.problems:
        raise ConfigError(
            f"--galaxy: '{galaxy}' cannot be used as it is: {reason_of(ValueError(inspection.problems[0]))}; look at "
            f"it with rubix-like inspect {shlex.quote(galaxy)}"
        )
    needed = parse_yaml(inspection.galaxy, galaxy)["galaxy"]
    lines = []
    for key, value in needed.items():
        if key != "path":
            plain = yaml.safe_dump(value, default_flow_style=True, width=math.inf).removesuffix("...\n").strip()
            lines.append(f"  {key}: {plain}    # the file needs it\n")
    return inspection.facts["recognised"], "".join(lines)
