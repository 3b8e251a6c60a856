"""The registries of everything that a configuration can name: built-in members by import path, others by entry point.

Names alone are known here; a member is imported when it is asked for. Configurations check names against these lists.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import AfterValidator

from rubix_like.config.yaml_files import SUFFIXES
from rubix_like.errors import ConfigError, nearest, or_install, suggest
from rubix_like.runtime.registry import Registry, plug_in_names, plug_in_place
from rubix_like.runtime.resources import resource_names

READERS = Registry(
    "reader",
    "rubix_like.readers",
    {
        "synthetic": "rubix_like.readers.synthetic:SyntheticReader",
        "components": "rubix_like.config.readers.components:ComponentsReader",
        "auto": "rubix_like.config.readers.snapshot:SnapshotReader",
    },
    needs=("model_validate", "load"),
)
"""A reader is a frozen settings model of the keys under `galaxy:`, with `load() -> (Galaxy, GalaxyInfo)`."""

READING: Mapping[str, str] = {
    "build_components": "rubix_like.readers.model_readers:build_components",
    "load_components": "rubix_like.readers.model_readers:load_components",
    "load_snapshot": "rubix_like.readers.snapshot:load_snapshot",
    "open_snapshot_galaxy": "rubix_like.readers.snapshot:open_snapshot_galaxy",
    "snapshot_has_more_stars": "rubix_like.readers.mapped_files:snapshot_has_more_stars",
}
"""The functions of the built-in readers that make galaxies; they need JAX, and are imported when one is read."""

FIELDS = Registry(
    "field",
    "rubix_like.fields",
    {
        "surface_density": "rubix_like.forward.fields.densities:SurfaceDensity",
        "dust_column": "rubix_like.forward.fields.dust_column:DustColumn",
        "nucleus": "rubix_like.forward.fields.densities:Nucleus",
    },
    needs=("kind", "build"),
)
SCENE_STAGES = Registry(
    "scene stage",
    "rubix_like.scene_stages",
    {"orient": "rubix_like.forward.stages.scene:Orient", "point": "rubix_like.forward.stages.scene:Point"},
    needs=("build",),
)
PAINT_STAGES = Registry(
    "paint stage",
    "rubix_like.paint_stages",
    {
        "stars": "rubix_like.forward.sources.stars:StarsSource",
        "lines": "rubix_like.forward.sources.lines:SectionLines",
        "nebulae": "rubix_like.forward.sources.nebulae:Nebulae",
        "agn": "rubix_like.forward.sources.nebulae:NarrowLines",
    },
    needs=("kind", "plan", "build"),
)
CUBE_STAGES = Registry(
    "cube stage",
    "rubix_like.cube_stages",
    {
        "psf": "rubix_like.forward.stages.optics:PSFStage",
        "dust": "rubix_like.forward.stages.scene:Dust",
        "degrade_lsf": "rubix_like.forward.stages.optics:DegradeLSF",
        "aperture": "rubix_like.forward.stages.optics:Aperture",
        "noise": "rubix_like.forward.stages.noise:Noise",
    },
    needs=("build",),
)

PRODUCTS = Registry("product", "rubix_like.products", {}, needs=("kind", "labels", "build"))
"""Maps that the section `products` can add to those of the package."""

FIBRE_STAGES = Registry(
    "stage of fibres",
    "rubix_like.fibre_stages",
    {
        "fibres": "rubix_like.forward.stages.through_fibres:FibreStage",
        "fibre_cube": "rubix_like.forward.stages.through_fibres:FibreCube",
    },
    needs=("build",),
)
"""Stages on the cube that an instrument with fibres puts into every pipeline; no pipeline names them."""

_ERRORS = "rubix_like.forward.systematics"

SYSTEMATIC_STAGES = Registry(
    "stage of systematic errors",
    "rubix_like.systematic_stages",
    {
        "lsf_variation": f"{_ERRORS}.calibration_errors:LSFVariation",
        "wavelength_solution": f"{_ERRORS}.calibration_errors:WavelengthSolution",
        "saturation": f"{_ERRORS}.detector_errors:Saturation",
        "cosmic_rays": f"{_ERRORS}.detector_errors:CosmicRays",
        "flat_field": f"{_ERRORS}.calibration_errors:FlatField",
        "sky_residual": f"{_ERRORS}.calibration_errors:SkyResidual",
        "telluric": f"{_ERRORS}.calibration_errors:Telluric",
        "flux_calibration": f"{_ERRORS}.calibration_errors:FluxCalibration",
        "missing": f"{_ERRORS}.detector_errors:Missing",
    },
    needs=("build",),
)
"""Stages on the cube that sections of `systematics` put into every pipeline; no pipeline names them."""

STAGES: tuple[Registry, ...] = (SCENE_STAGES, PAINT_STAGES, CUBE_STAGES)
"""A stage or source from outside may bring the settings of the section that bears its name, as `section_type`."""

METHODS = Registry(
    "method",
    "rubix_like.methods",
    {
        "basis": "rubix_like.engine.basis_plan:build_basis_painter",
        "direct": "rubix_like.engine.direct:DirectPainter.build",
    },
)
"""Painters by the name that `engine.method` gives them."""

LINE_METHODS = Registry(
    "line method",
    "rubix_like.line_methods",
    {
        "basis": "rubix_like.engine.lines.line_plan:build_line_nodes",
        "direct": "rubix_like.engine.lines.line_direct:DirectLinePainter.build",
    },
)
"""Painters of lines by the same names."""

KERNELS = Registry(
    "deposit kernel",
    "rubix_like.kernels",
    {"scatter": "rubix_like.engine.kernels.kernel:ScatterKernel"},
    needs=("add",),
)
"""Ways to add what particles give to rows of sums, by the name that `engine.kernel` gives them."""

FILE_LAYOUTS = Registry(
    "file layout",
    "rubix_like.file_layouts",
    {
        "default": "rubix_like.cube.files.known_layouts:DEFAULT",
        "manga": "rubix_like.cube.files.known_layouts:MANGA",
        "hsim": "rubix_like.cube.files.known_layouts:HSIM",
        "scopesim": "rubix_like.cube.files.known_layouts:SCOPESIM",
        "sami": "rubix_like.cube.files.known_layouts:SAMI",
    },
    needs=("formats",),
)
"""A layout of `output.layout` is a `FileLayout`: its formats, chosen by the end of the file's name."""

SAMPLERS = Registry(
    "sampler",
    "rubix_like.samplers",
    {
        "nuts": "rubix_like.inference.samplers.nuts:NutsSampler",
        "geovi": "rubix_like.inference.samplers.variational:GeoVISampler",
    },
    needs=("section_type", "title", "run"),
)
"""Samplers by the name that `fit.sampling.method` gives them; each brings the settings of its section."""

PRIOR_KINDS = Registry("prior", "rubix_like.priors", {}, needs=("kind", "numbers", "quantile"))
"""Quantile functions from outside, by the name that a prior in `fit.free` gives them."""

LIKELIHOODS = Registry(
    "likelihood",
    "rubix_like.likelihoods",
    {"student_t": "rubix_like.inference.likelihoods.voxel_errors:StudentT"},
    needs=("kind", "residuals"),
)
"""Distributions of errors, and user residuals, by the name that `fit.likelihood.kind` gives them."""

EXECUTORS = Registry(
    "executor",
    "rubix_like.executors",
    {
        "processes": "rubix_like.runs.batch.executors:open_processes",
        "mpi": "rubix_like.runs.batch.executors:open_mpi",
        "dask": "rubix_like.runs.batch.executors:open_dask",
        "parsl": "rubix_like.runs.batch.executors:open_parsl",
    },
    needs=("__call__",),
)
"""Called with the words after `NAME:` and the section `devices`, one opens a `concurrent.futures.Executor`."""

SHARED_SECTIONS: Mapping[str, str] = {"geovi": "variational"}
"""Method -> its section under `fit.sampling`, where it shares one; that of all others has the method's name."""

COSMOLOGIES: tuple[str, ...] = ("Planck13", "Planck15", "Planck18", "WMAP1", "WMAP3", "WMAP5", "WMAP7", "WMAP9")
"""Names of astropy's cosmologies; importing them takes a second."""

FIELD_MAPS = "simulations"
"""Folder of the packaged field maps."""

FIELD_MAP_GROUP = "rubix_like.field_maps"
"""Entry-point group of field maps from outside: each loads to the path of a YAML file."""

TABLE = "table"
"""The reader's name for a plain table of particles."""


def member_of(registry: Registry, *words: str) -> AfterValidator:
    """Checks that a setting is the name of a member of a registry, or one of the `words`."""

    def check(value: str) -> str:
        if value not in words and value not in registry:
            known = (*words, *registry.names())
            raise ValueError(f"expected one of {', '.join(known)}, got '{value}'{nearest(value, known)}")
        return value

    return AfterValidator(check)


def find_reader(name: str) -> Any:
    """The class behind `galaxy.reader`: a registered reader, or the one of snapshots for a simulation's field map.

    A field map is named, or given as the path of a .yaml file; the name of a packaged one cannot be taken over.
    Raises ConfigError with the nearest known name.
    """
    if name in READERS and (name in READERS.builtin or name not in resource_names(FIELD_MAPS)):
        return READERS.find(name)
    if name == TABLE or name in field_map_names() or Path(name).suffix in SUFFIXES:
        return READERS.find("auto")
    raise ConfigError(f"unknown reader '{name}'{or_install(suggest(name, reader_names()))}")


def reader_names() -> tuple[str, ...]:
    """Values of `galaxy.reader`: the registered readers, plain tables, then the simulations with a field map."""
    return tuple(dict.fromkeys((*READERS.names(), TABLE, *field_map_names())))


def field_map_names() -> tuple[str, ...]:
    """Names of the packaged field maps, then of those from entry points."""
    packaged = resource_names(FIELD_MAPS)
    return packaged + tuple(name for name in plug_in_names(FIELD_MAP_GROUP) if name not in packaged)


def section_of_stage(registry: Registry, name: str) -> Any:
    """The settings that a stage or source from outside brings; None where it brings none, and for any other name.

    Raises ConfigError where it brings something that is no class of settings.
    """
    is_plug_in = name not in registry.builtin and name in registry
    section = getattr(registry.find(name), "section_type", None) if is_plug_in else None
    if section is not None and getattr(section, "model_validate", None) is None:
        raise ConfigError(
            f"{plug_in_place(registry.kind, registry.group, name)}: section_type must be a class derived from "
            f"AbstractSettings, got {section!r}; see docs/how-to-extend.md"
        )
    return section


def usable_sections() -> dict[str, Any]:
    """The sections of all stages and sources from outside, but for those that cannot be used."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for registry in STAGES for name in registry.names()):
        with suppress(ConfigError):
            found |= stage_sections([name])
    return found


def detector_sections() -> tuple[str, ...]:
    """The sections of stages from outside that work on the cube alone: what they say may differ between observations of
    one galaxy."""
    before = {name for registry in (SCENE_STAGES, PAINT_STAGES) for name in registry.names()}
    names = [name for name in CUBE_STAGES.names() if name not in CUBE_STAGES.builtin and name not in before]
    sections = usable_sections() if names else {}
    return tuple(name for name in names if name in sections)


def stage_sections(names: Iterable[str]) -> dict[str, Any]:
    """The settings that stages and sources from outside, of these names, bring to the section of their name.

    Raises ConfigError where one cannot be imported, or where two of one name bring different ones.
    """
    found: dict[str, Any] = {}
    for name in names:
        for registry in STAGES:
            section = section_of_stage(registry, name)
            if section is not None and found.setdefault(name, section) is not section:
                raise ConfigError(f"section '{name}': expected settings of one stage or source, got those of two")
    return found
