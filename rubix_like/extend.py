"""All that a plug-in imports: the classes to derive from, and what they are built with (docs/how-to-extend.md).

| to write | needs |
|---|---|
| a reader | `AbstractSettings`, types of settings (`Kpc`, `Number` ...), `parse_quantity` |
| a stage on the scene | `AbstractSceneStage`, `Setup`, `refuse_options` |
| a field | `AbstractField`, `spread`, `painted_field`, `PaintedField`; `Counted`, `SourceCounters` |
| parameters of a stage or source | `AbstractSettings`, `Parameter`, types of settings |
| a source of light | `AbstractSource`, `Templates`, `TemplateAxes`, `SourcePlan`, `plan_source`, `build_painter`, ... |
| a source behind dust of its own | `behind_dust`, and the coordinates `A_V` and `A_V_BIRTH` of its scene |
| a source of lines | `AbstractSource`, `LineTemplates`, `plan_lines`, `build_line_painter`, `with_dispersion` |
| a stage on the cube | `AbstractCubeStage`, `PaintedCube`, `Footprint`, `StageReport`, `Spatial`, `per_bin`, ... |
| a method of painting | `AbstractPainter` |
| a deposit kernel | `AbstractDepositKernel`, `Factors` |
| a layout of a cube's file | `FileLayout`, `FileFormat`, `Packing`, `WavelengthBins` |
| an SSP format | `SourceFormat`, `SSPTable` |
| a format of nebular tables | `SourceFormat`, `NebularTable` |
| a sampler of chains | `AbstractChainSampler`, `AbstractChainSettings`, `AbstractKernel`, `ChainState`, `Statistic` |
| a sampler of another kind | `AbstractSampler`, `Sampled`, `Statistic` |
| an executor for catalogues | nothing: it is called with its words and the section `devices` |
| an optional package | `import_optional` |

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
from rubix_like.config.sections.fit import AbstractChainSettings
from rubix_like.config.settings import AbstractSettings
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors
from rubix_like.engine.lines.line_plan import with_dispersion
from rubix_like.engine.lines.line_planning import plan_lines
from rubix_like.engine.methods import build_line_painter, build_painter
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.source_planning import plan_source
from rubix_like.forward.fields.field import AbstractField, Counted, PaintedField, painted_field, spread
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.forward.stages.base import (
    AbstractCubeStage,
    AbstractSceneStage,
    PaintedCube,
    Spatial,
    StageReport,
    refuse_options,
)
from rubix_like.forward.stages.noise_models import normal_row
from rubix_like.galaxy.scene import to_scene
from rubix_like.inference.samplers.chains import (
    AbstractChainSampler,
    AbstractKernel,
    ChainState,
    LogDensity,
)
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled, Statistic
from rubix_like.nebular.table_file import NebularTable
from rubix_like.physics.templates import A_V, A_V_BIRTH, LineTemplates, TemplateAxes, Templates, behind_dust
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.runtime.mesh.bin_split import BinSplit, per_bin
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.ssp.library_file import SSPTable

__all__ = [
    "A_V",
    "A_V_BIRTH",
    "AbstractChainSampler",
    "AbstractChainSettings",
    "AbstractCubeStage",
    "AbstractDepositKernel",
    "AbstractField",
    "AbstractKernel",
    "AbstractPainter",
    "AbstractSampler",
    "AbstractSceneStage",
    "AbstractSettings",
    "AbstractSource",
    "Angstrom",
    "Arcsec",
    "BinSplit",
    "ChainState",
    "Counted",
    "Degree",
    "Dex",
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
    "Mpc",
    "Msun",
    "NebularTable",
    "Number",
    "Packing",
    "PaintedCube",
    "PaintedField",
    "Parameter",
    "SSPTable",
    "Sampled",
    "Second",
    "Setup",
    "SourceCounters",
    "SourceFormat",
    "SourcePlan",
    "Spatial",
    "StageReport",
    "Statistic",
    "TemplateAxes",
    "Templates",
    "WavelengthBins",
    "behind_dust",
    "build_line_painter",
    "build_painter",
    "import_optional",
    "normal_row",
    "painted_field",
    "parse_integer",
    "parse_number",
    "parse_quantity",
    "per_bin",
    "plan_lines",
    "plan_source",
    "refuse_options",
    "spread",
    "to_scene",
    "with_dispersion",
]
