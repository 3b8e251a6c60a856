"""Names for plug-ins (docs/how-to-extend.md), and for scripts beside those of `rubix_like` itself.

| to write | needs |
|---|---|
| a reader | `AbstractSettings`, types of settings (`Kpc`, `Number` ...), `parse_quantity` |
| a map of fields of a simulation | `load_field_map`, which checks it |
| a kind of smooth component | `AbstractKind`, and `AbstractLight`, `AbstractHeight`, `AbstractRotation` ... |
| a stage on the scene | `AbstractSceneStage`, `Setup`, `make_setup`, `refuse_options` |
| a field | `AbstractField`, `spread`, `painted_field`, `PaintedField`; `Counted`, `SourceCounters` |
| maps of particles | `AbstractParticleMaps`, `MapLabel`, `Summed` |
| parameters of a stage or source | `AbstractSettings`, `Parameter`, types of settings |
| a source of light | `AbstractSource`, `Templates`, `TemplateAxes`, `SourcePlan`, `plan_source`, `build_painter`, ... |
| a source behind dust of its particles | `behind_dust`, and the coordinates `A_V` and `A_V_BIRTH` of its scene |
| a source of lines | `AbstractSource`, `LineTemplates`, `plan_lines`, `build_line_painter`, `with_dispersion` |
| a stage on the cube | `AbstractCubeStage`, `PaintedCube`, `Footprint`, `StageReport`, `per_bin`, ... |
| the PSF that such a stage is | `Spatial`; `WavelengthSpatial` where it varies with wavelength |
| a method of painting | `AbstractPainter` |
| a deposit kernel | `AbstractDepositKernel`, `Factors` |
| a layout of a cube's file | `FileLayout`, `FileFormat`, `Packing`, `WavelengthBins` |
| an SSP format | `SourceFormat`, `SSPTable` |
| a format of nebular tables | `SourceFormat`, `NebularTable` |
| a model of a galaxy, for fits | `AbstractGalaxyModel`; from YAML also `AbstractModelReader` |
| a prior by its quantile function | `AbstractQuantile` |
| a distribution of errors, or residuals, of a likelihood | `AbstractErrorDistribution`, `AbstractResiduals` |
| a sampler of chains | `AbstractChainSampler`, `AbstractChainSettings`, `AbstractKernel`, `ChainState`, `Statistic` |
| a sampler of another kind | `AbstractSampler`, `Sampled`, `Statistic` |
| a dust curve | `DustCurve` |
| an executor for catalogues | nothing: it is called with its words and the section `devices` |
| an optional package | `import_optional` |

Scripts, as the documentation shows them, use

| for | |
|---|---|
| libraries of spectra | `import_library`, `read_population`, `write_table`, `read_table`, `ionising_photons` |
| wavelengths in air and vacuum | `to_vacuum`, `to_air` |
| nebular lines | `line_grid`, `fixed`, `nebular_continuum`, `energy_per_photon`, `ratio_to_h_beta` |
| galaxies | `draw_base`, `AgeRecipe`, `draw_log_ages`, `open_selected` |
| runs in parts | `resolve`, `take_census`, `plan_share`, `Progress`, `in_parts`, `write_cube`, `coverage` |
| the header of a user cube | `Meta` |
| free-form populations | `Populations` |
| observed cubes, training sets | `observed_from`, `on_grid_of`, `check_same_grid`, `Simulations` |
| packaged files, and those in the cache | `resource`, `resource_names`, `cache_directory` |
| pictures | `Choice`, `save_figure`, `save_bpt`, `save_attenuation`, `write_page` |
| the BPT diagram | `bpt_ratios`, `draw_bpt`, `kauffmann_2003`, `kewley_2013` |

`Galaxy`, `Stars`, `Scene`, `Parameters`, `ConfigError` and the like come from `rubix_like` itself. Names stay here when
modules inside the package move.
"""

from rubix_like.config.file_layouts import FileFormat, FileLayout, Packing
from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import (
    Angstrom,
    Arcsec,
    Degree,
    Dex,
    Gyr,
    Integer,
    InUnit,
    Kms,
    Kpc,
    Mag,
    Mpc,
    Msun,
    Number,
    Second,
    parse_integer,
    parse_number,
    parse_quantity,
)
from rubix_like.config.readers.components import AbstractKind
from rubix_like.config.readers.snapshot import AgeRecipe
from rubix_like.config.sections.fit import AbstractChainSettings
from rubix_like.config.settings import AbstractSettings
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube_parts import in_parts
from rubix_like.cube.files.cube_files import write_cube
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.maps import MapLabel
from rubix_like.cube.meta import Meta, SourceCounters
from rubix_like.cube.mosaic import coverage
from rubix_like.cube.observed import observed_from
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors
from rubix_like.engine.lines.line_plan import with_dispersion
from rubix_like.engine.lines.line_planning import plan_lines
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan, build_line_painter, build_painter
from rubix_like.engine.source_planning import plan_source
from rubix_like.forward.census import take_census
from rubix_like.forward.fields.field import AbstractField, Counted, PaintedField, painted_field, spread
from rubix_like.forward.planning import make_setup
from rubix_like.forward.products.product import AbstractParticleMaps, Summed
from rubix_like.forward.resolved import resolve
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.forward.stages.base import (
    AbstractCubeStage,
    AbstractSceneStage,
    PaintedCube,
    Spatial,
    StageReport,
    WavelengthSpatial,
    refuse_options,
)
from rubix_like.forward.stages.noise import normal_row
from rubix_like.galaxy.components.light import AbstractHeight, AbstractLight
from rubix_like.galaxy.components.populations import AbstractPopulation, Born
from rubix_like.galaxy.components.rotation import AbstractDispersion, AbstractRotation
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel
from rubix_like.galaxy.scene import to_scene
from rubix_like.galaxy.synthetic import draw_base
from rubix_like.importers.fsps import read_population
from rubix_like.inference.data_grid import check_same_grid, on_grid_of
from rubix_like.inference.likelihoods.voxel_errors import AbstractErrorDistribution, AbstractResiduals
from rubix_like.inference.populations.populations import Populations
from rubix_like.inference.posterior.priors import AbstractQuantile
from rubix_like.inference.samplers.chains import AbstractChainSampler, AbstractKernel, ChainState, LogDensity
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled, Statistic
from rubix_like.inference.simulation.simulation_files import Simulations
from rubix_like.nebular import energy_per_photon, nebular_continuum, ratio_to_h_beta
from rubix_like.nebular.line_grid import fixed, line_grid
from rubix_like.nebular.table_file import NebularTable
from rubix_like.physics.air import to_air, to_vacuum
from rubix_like.physics.dust_curves import DustCurve
from rubix_like.physics.templates import A_V, A_V_BIRTH, LineTemplates, TemplateAxes, Templates, behind_dust
from rubix_like.plots.figure import (
    bpt_ratios,
    draw_bpt,
    kauffmann_2003,
    kewley_2013,
    save_attenuation,
    save_bpt,
    save_figure,
)
from rubix_like.plots.images import Choice
from rubix_like.plots.page import write_page
from rubix_like.readers.fields.field_map import load_field_map
from rubix_like.readers.mapped_files import open_selected
from rubix_like.readers.model_readers import AbstractModelReader
from rubix_like.readers.stellar_ages import draw_log_ages
from rubix_like.runs.particles_on_disk import plan_share
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.runtime.mesh.bin_split import BinSplit, per_bin
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.progress import Progress
from rubix_like.runtime.resources import cache_directory, resource, resource_names
from rubix_like.ssp import import_library
from rubix_like.ssp.ionising_photons import ionising_photons
from rubix_like.ssp.library_file import SSPTable, read_table, write_table

__all__ = [
    "A_V",
    "A_V_BIRTH",
    "AbstractChainSampler",
    "AbstractChainSettings",
    "AbstractCubeStage",
    "AbstractDepositKernel",
    "AbstractDispersion",
    "AbstractErrorDistribution",
    "AbstractField",
    "AbstractGalaxyModel",
    "AbstractHeight",
    "AbstractKernel",
    "AbstractKind",
    "AbstractLight",
    "AbstractModelReader",
    "AbstractPainter",
    "AbstractParticleMaps",
    "AbstractPopulation",
    "AbstractQuantile",
    "AbstractResiduals",
    "AbstractRotation",
    "AbstractSampler",
    "AbstractSceneStage",
    "AbstractSettings",
    "AbstractSource",
    "AgeRecipe",
    "Angstrom",
    "Arcsec",
    "BinSplit",
    "Born",
    "ChainState",
    "Choice",
    "Counted",
    "Degree",
    "Dex",
    "DustCurve",
    "Factors",
    "FileFormat",
    "FileLayout",
    "Footprint",
    "Gyr",
    "InUnit",
    "Integer",
    "Kms",
    "Kpc",
    "LineTemplates",
    "LogDensity",
    "Mag",
    "MapLabel",
    "Meta",
    "Mpc",
    "Msun",
    "NebularTable",
    "Number",
    "Packing",
    "PaintedCube",
    "PaintedField",
    "Parameter",
    "Populations",
    "Progress",
    "SSPTable",
    "Sampled",
    "Second",
    "Setup",
    "Simulations",
    "SourceCounters",
    "SourceFormat",
    "SourcePlan",
    "Spatial",
    "StageReport",
    "Statistic",
    "Summed",
    "TemplateAxes",
    "Templates",
    "WavelengthBins",
    "WavelengthSpatial",
    "behind_dust",
    "bpt_ratios",
    "build_line_painter",
    "build_painter",
    "cache_directory",
    "check_same_grid",
    "coverage",
    "draw_base",
    "draw_bpt",
    "draw_log_ages",
    "energy_per_photon",
    "fixed",
    "import_library",
    "import_optional",
    "in_parts",
    "ionising_photons",
    "kauffmann_2003",
    "kewley_2013",
    "line_grid",
    "load_field_map",
    "make_setup",
    "nebular_continuum",
    "normal_row",
    "observed_from",
    "on_grid_of",
    "open_selected",
    "painted_field",
    "parse_integer",
    "parse_number",
    "parse_quantity",
    "per_bin",
    "plan_lines",
    "plan_share",
    "plan_source",
    "ratio_to_h_beta",
    "read_population",
    "read_table",
    "refuse_options",
    "resolve",
    "resource",
    "resource_names",
    "save_attenuation",
    "save_bpt",
    "save_figure",
    "spread",
    "take_census",
    "to_air",
    "to_scene",
    "to_vacuum",
    "with_dispersion",
    "write_cube",
    "write_page",
    "write_table",
]
