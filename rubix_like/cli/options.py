"""The options of every command, and messages in their words; nothing here takes time to import."""

import argparse
import difflib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rubix_like.errors import ConfigError, nearest_words
from rubix_like.runtime.places import found_at
from rubix_like.runtime.processes.timeouts import CONNECT_TIMEOUT, PEER_TIMEOUT
from rubix_like.runtime.resources import resource_names

Options = Mapping[str, Mapping[str, Any]]
"""Options by their names, with the keywords of `add_argument`."""


class Group(NamedTuple):
    """Options under a title of their own."""

    options: Options
    title: str
    description: str | None = None


_OVERWRITE = "also replace files that another configuration or program made"


_CONFIG: Options = {
    "config": {"metavar": "CONFIG", "help": "a YAML file, or the name of a packaged configuration"},
    "--set": {
        "metavar": "KEY=VALUE",
        "nargs": "+",
        "action": "extend",
        "default": [],
        "help": "override settings (after CONFIG), e.g. "
        '--set observation.inclination="40 deg" noise.signal_to_noise=50',
    },
}
"""CONFIG and --set."""

PROCESS = Group(
    {
        "--distributed": {"action": "store_true", "help": "this is one of several processes (see docs)"},
        "--coordinator": {"metavar": "HOST:PORT", "help": "where process 0 is (without a launcher)"},
        "--num-processes": {"type": int, "metavar": "N", "help": "how many processes there are"},
        "--process-id": {"type": int, "metavar": "I", "help": "number of this process, from 0"},
        "--connect-timeout": {
            "type": float,
            "metavar": "SECONDS",
            "help": f"how long processes wait for each other at the start (default {CONNECT_TIMEOUT:g})",
        },
        "--peer-timeout": {
            "type": float,
            "metavar": "SECONDS",
            "help": f"after which silence of one process all end (default {PEER_TIMEOUT:g})",
        },
    },
    "several processes",
    "the same command is started in every process, by srun, mpirun, Kubernetes or by hand",
)
"""The options of a run by several processes."""

CATALOGUE = Group(
    {
        "--catalogue": {"metavar": "LIST.csv", "help": "one run per row; columns are settings, and 'name'"},
        "--views": {"metavar": "VIEWS.csv", "help": "settings with which every galaxy of the list is observed"},
        "--part": {"metavar": "K/N", "help": "only the K-th of N shares of the galaxies, for job arrays"},
        "--executor": {
            "metavar": "NAME",
            "help": "compute in other processes: processes, processes:4, mpi, dask, dask:ADDRESS, parsl:FILE.py "
            "(default: in this one)",
        },
        "--block": {
            "type": int,
            "metavar": "N",
            "help": "entries that a process gets at a time (default: a galaxy in all views)",
        },
        "--redo": {"action": "store_true", "help": "the same as --overwrite, until version 0.4"},
    },
    "many galaxies",
)
"""The options of a catalogue."""

_INFERENCE: Options = {
    **_CONFIG,
    "--data": {"metavar": "CUBE", "help": "the observed cube (default: fit.data)"},
    "--overwrite": {"action": "store_true", "help": _OVERWRITE},
    "--restart": {"action": "store_true", "help": "start from scratch, also if there is a checkpoint"},
}

FIT: Options = {
    **_INFERENCE,
    "--output": {"metavar": "PATH", "help": "the result's file, .h5 (default: fit.output)"},
    "--plot": {"action": "store_true", "help": "also draw steps, spectra, maps and parameters as PNG"},
}

SAMPLE: Options = {
    **_INFERENCE,
    "--fitted": {"metavar": "FIT", "help": "the result of a fit to begin at (default: fit first)"},
    "--output": {"metavar": "PATH", "help": "the result's file, .h5 (default: fit.sampling.output)"},
    "--plot": {"action": "store_true", "help": "also draw corner, traces and predictions as PNG"},
}

SIMULATE: Options = {
    **_CONFIG,
    "--n": {"type": int, "metavar": "N", "help": "how many cubes (default: simulate.n)"},
    "--output": {"metavar": "FOLDER", "help": "where the files go (default: simulate.output)"},
    "--overwrite": {"action": "store_true", "help": "also replace a set that another configuration made"},
    "--restart": {"action": "store_true", "help": "start from scratch, also if there are files already"},
}

OBSERVED = Group(
    {
        "--medium": {"choices": ("air", "vacuum"), "help": "of the wavelengths"},
        "--units": {"metavar": "UNIT", "help": "of the fluxes, e.g. '1e-16 erg/s/cm2/Angstrom'"},
        "--pixel-scale": {"type": float, "metavar": "ARCSEC", "help": "side of the spaxels"},
        "--hdu": {"metavar": "HDU", "help": "name or number of the HDU with the fluxes"},
    },
    "cubes of telescopes and other programs",
    "see docs/observed-cubes.md",
)
"""What a cube of another program does not say, as `rubix_like.read_observed` takes it."""


PLOT: Options = {
    "cube": {
        "metavar": "CUBE",
        "help": "a cube of `rubix-like run` or of a telescope (all that `rubix_like.read_observed` takes), or a "
        "file of maps, `fit` or `sample`",
    },
    "--output": {
        "metavar": "PATH",
        "help": "file to write: .png, .pdf or .svg (default: CUBE_plot.png beside it), .html with --html (CUBE.html)",
    },
    "--spaxel": {
        "metavar": "X,Y",
        "nargs": "+",
        "action": "extend",
        "default": [],
        "help": "spaxels whose spectra to draw: column and row, counted from 0 (default: the brightest one)",
    },
    "--band": {"metavar": "LOW-HIGH", "help": "also an image of this band (Angstrom): mean over its bins"},
    "--maps": {
        "metavar": "FILE",
        "help": "FITS file with 2-D maps to draw as well (default: CUBE_maps.fits if it exists)",
    },
    "--html": {"action": "store_true", "help": "write one self-contained interactive page instead of a picture"},
    "--overwrite": {"action": "store_true", "help": _OVERWRITE},
}

INSPECT: Options = {
    "files": {
        "metavar": "FILE",
        "nargs": "+",
        "help": "a snapshot, cut-out or table of particles, a cube of a telescope, or a file of rubix-like; several: "
        "the files of one snapshot",
    },
    "--reader": {
        "metavar": "NAME",
        "help": "the simulation (`rubix-like list readers`) or a field map's .yaml file (default: recognised)",
    },
    "--set": {
        "metavar": "KEY=VALUE",
        "nargs": "+",
        "action": "extend",
        "default": [],
        "help": "other keys of the section galaxy, as of `run`, e.g. --set galaxy.sphere.radius='30 kpc'",
    },
    "--json": {"action": "store_true", "help": "print everything as JSON"},
}

COMPARE: Options = {
    "one": {"metavar": "A", "help": "a name from `rubix-like ssp list`, or a path"},
    "other": {"metavar": "B", "help": "another"},
    "--output": {"metavar": "PATH", "help": "file to write: .png, .pdf or .svg (default: ssp_A_B.png here)"},
    "--overwrite": {"action": "store_true", "help": _OVERWRITE},
}

RUN: Options = {
    **_CONFIG,
    "--output": {"metavar": "PATH", "help": "file, or folder of a catalogue (default: output.path)"},
    "--plot": {"action": "store_true", "help": "also write a quick-look PNG beside the cube"},
    "--overwrite": {"action": "store_true", "help": f"{_OVERWRITE}; of a catalogue, entries of other settings"},
}

CHECK: Options = {
    **_CONFIG,
    "--catalogue": {"metavar": "LIST.csv", "help": "check every run of this list, too"},
    "--views": {"metavar": "VIEWS.csv", "help": "the views that go with it"},
}

NEW: Options = {
    "path": {"metavar": "PATH", "nargs": "?", "help": "the file to write, .yaml (default: mine.yaml)"},
    "--instrument": {"metavar": "NAME", "help": "a preset, see `rubix-like list instruments`"},
    "--galaxy": {"metavar": "FILE", "help": "a snapshot, cut-out or table; or 'synthetic'"},
    "--overwrite": {"action": "store_true", "help": "replace a file that is there"},
}

COMPLETION: Options = {"shell": {"metavar": "SHELL", "help": "bash, zsh or fish"}}

_KINDS = ("instruments", "ssp", "readers", "configs", "pipelines", "stages", "fields", "products", "lines")

LIST: Options = {"kind": {"choices": (*_KINDS, "kernels", "samplers", "executors", "notes")}}

LIBRARY: Options = {"name": {"help": "a name from `rubix-like ssp list`, or a path"}}

GET: Options = {
    "name": {"help": "bc03-miles, bc03-lr (both fetched) or fsps (computed with python-fsps)"},
    "--force": {"action": "store_true", "help": "do it again"},
}

IMPORT: Options = {
    "file": {"help": "a file, or a folder (E-MILES, BC03); docs/ssp.md lists the layouts"},
    "--name": {"help": "the name to give it (default: that of its library, or the file's)"},
    "--overwrite": {"action": "store_true", "help": "replace what has this name"},
}

TABLE: Options = {"name": {"help": "a name from `rubix-like nebular list`, or a path"}}

GET_TABLE: Options = {
    "name": {"help": "nlr, bagpipes (both fetched) or fsps (read from the folder $SPS_HOME)"},
    "--force": {"action": "store_true", "help": "do it again"},
}

IMPORT_TABLE: Options = {
    "file": {"help": "a file; docs/nebular.md lists the layouts"},
    "--name": {"help": "the name to give it (default: that of its table, or the file's)"},
    "--overwrite": {"action": "store_true", "help": "replace what has this name"},
}

_OTHER_NAMES = {"--spaxel": "spaxels"}
"""Options that are not called like the argument that they stand for."""


def read_overrides(pairs: Sequence[str]) -> dict[str, str]:
    """`["a.b=1", ...]` as `{"a.b": "1", ...}`; raises ConfigError for one without a key or value."""
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(
                f"--set: expected KEY=VALUE (e.g. noise.signal_to_noise=50, or noise=null for nothing), got '{pair}'"
            )
        overrides[key.strip()] = value
    return overrides


def read_stated(options: argparse.Namespace) -> dict[str, Any]:
    """Those options that are given, as keywords of `read_observed`."""
    stated = {name: getattr(options, name) for name in ("medium", "units", "pixel_scale", "hdu")}
    return {name: value for name, value in stated.items() if value is not None}


def options_in(usage: str) -> list[str]:
    """The options that a command's line of usage names."""
    return re.findall(r"--[a-z][a-z-]*", usage)


def in_options(message: str, options: Iterable[str]) -> str:
    """The message with these `options` in place of arguments: `overwrite=True` is `--overwrite`, `part: ` at its begin
    `--part: `, `output=...` and `process_id` also within it `--output ...` and `--process-id`."""
    for option in options:
        name = _OTHER_NAMES.get(option, option.removeprefix("--").replace("-", "_"))
        places = [rf"^{name}(?=[:,])", rf"(?<![\w.'-]){name}=True\b"]
        places += [rf"(?<![\w.'-]){re.escape(name)}(?!\w)"] if "_" in name or "=" in name else []
        message = re.sub("|".join(places), option, message)
        message = re.sub(rf"(?<![\w.'-])(?:{name}|{option})=(?=[\w.])", f"{option} ", message)
        message = re.sub(rf"(?<![\w.'-])(?:{name}|{option})=", option, message)
    return message


_MODEL = "rubix_like.config.run_config:RunConfig"
_KEYS_NEAR = "rubix_like.config.dotted_keys:keys_near"
"""Imported only where something is wrong: the settings take half a second."""

_PATH = {"output": "output.path", "library": "ssp.library", "instrument": "instrument.name", "galaxy": "galaxy.path"}
"""Words that stand for one setting of the section of that name."""

_MOST = 3
"""Settings that are named at most."""


def hint_for_words(words: Sequence[str], usage: str, section: str | None) -> str:
    """A hint at what unknown words of a command may mean: an option in its `usage`, or, where it takes settings, one of
    these; empty where nothing is near."""
    hints = []
    pairs: list[tuple[str, str]] = []  # `--name value`, `--name=value`, `name=value`
    for word in words:
        name, equals, value = word.partition("=")
        if pairs and not word.startswith("-") and not equals and not pairs[-1][1]:
            pairs[-1] = (pairs[-1][0], word)
        else:
            pairs.append((name, value))
    for word, value in pairs:
        name = word.lstrip("-")
        keys = [] if section is None else _keys(name, section)
        options = nearest_words(name, re.findall(r"--([a-z-]+)", usage), 1) if word.startswith("--") else []
        if options and not (keys and _likeness(name, keys[0].rpartition(".")[2]) >= _likeness(name, options[0])):
            hints.append(f"--{options[0]}")
        elif keys:
            hints.append(_setting(keys, value))
    return f"; did you mean {', '.join(dict.fromkeys(hints))}?" if hints else ""


def _keys(word: str, section: str) -> list[str]:
    """The settings that a word may stand for; that of the command's own section alone, where it has such a one."""
    if word in _PATH:
        return [_PATH[word]]
    keys = found_at(_KEYS_NEAR)(word, found_at(_MODEL))
    return [key for key in keys if key.startswith(f"{section}.")] or keys[:_MOST]


def _likeness(word: str, other: str) -> float:
    """From 0 to 1, dashes and underlines being the same."""
    return difflib.SequenceMatcher(None, word.replace("-", "_"), other.replace("-", "_")).ratio()


def _setting(keys: Sequence[str], value: str) -> str:
    """`--set observation.inclination=30`."""
    first, *others = keys
    if first == "instrument.name" and (presets := nearest_words(value, resource_names("instruments"), 1)):
        value, others = presets[0], []
    more = f" (or {' or '.join(others)})" if others else ""
    pair = f"{first}={value or 'VALUE'}"
    return f"--set {shlex.quote(pair)}{more}"
