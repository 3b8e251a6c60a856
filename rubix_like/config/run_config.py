"""The settings of a run: one frozen model per section of the YAML, and `RunConfig` that holds them all."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, get_args, get_origin, runtime_checkable

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    InstanceOf,
    StrictBool,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from rubix_like.config.file_layouts import Compression, LayoutName, Packing, check_layout, check_packing, find_format
from rubix_like.config.parameters import Parameter, declarations, parameter_values
from rubix_like.config.plug_ins import (
    COSMOLOGIES,
    KERNELS,
    METHODS,
    READERS,
    STAGES,
    find_reader,
    member_of,
    reader_names,
    section_of_stage,
    stage_sections,
    usable_sections,
)
from rubix_like.config.quantities import WITH_UNITS, Arcsec, Degree, Integer, Kms, Mpc, Number, parse_integer
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.dust import Dust, DustSettings, ParticleDustSettings
from rubix_like.config.sections.fit import FitSettings, SimulateSettings
from rubix_like.config.sections.instrument import InstrumentSettings
from rubix_like.config.sections.nebular import NEBULAE, NebularSettings
from rubix_like.config.sections.noise import NoiseSettings, SystematicsSettings
from rubix_like.config.sections.observation import AlignRadius, Observations, Pointings
from rubix_like.config.sections.pipeline import load_pipeline, stage_names
from rubix_like.config.sections.products import LINE_SOURCE, LinesSettings, ProductsSettings
from rubix_like.config.settings import AbstractSettings, described_schema, read_with_sections, schema_with_sections
from rubix_like.config.yaml_files import find_file, format_yaml
from rubix_like.errors import ConfigError, nearest_words, suggest
from rubix_like.galaxy.limits import MOST_VELOCITY_RANGE
from rubix_like.physics.centering import Radius
from rubix_like.runtime.registry import plug_in_place
from rubix_like.runtime.resources import resource_names

if TYPE_CHECKING:
    from rubix_like.galaxy.particles import Galaxy, GalaxyInfo

Align = Literal["stars", "angular_momentum", "none"]


class SSPSettings(AbstractSettings):
    """The library of simple stellar populations."""

    instead: ClassVar[Mapping[str, str]] = {"name": "give library, e.g. library: popstar"}

    library: str = "popstar"
    """A name from `rubix-like ssp list`, or the path of a converted library."""


_LEAST_REDSHIFT = 1e-9


class ObservationSettings(AbstractSettings):
    """The galaxy's place and orientation, and the direction of the field."""

    redshift: Annotated[Number, Field(ge=0, le=1000)]
    """Cosmological redshift; without a distance at least 1e-9 (4 pc)."""
    distance: Annotated[Mpc, Field(ge=1e-6, le=1e6)] | None = None
    """Luminosity distance in Mpc; null: from redshift and cosmology (so it is required at redshift 0)."""
    cosmology: str = "Planck18"
    """A cosmology of astropy, by name."""
    align: Align | None = None
    """What is turned face-on first: 'stars', by the short axis of their shape; 'angular_momentum', by theirs; 'none':
    the axes are left as they are; null: stars if there is a reader."""
    align_radius: AlignRadius = Radius(2.0)
    """Within which stars are aligned by: a bare number in half-mass radii of the stars, or a length (5 kpc)."""
    inclination: Annotated[Degree | None, Parameter(moves=True, role="inclination")] = None
    """Angle of the disc's axis to the line of sight: 0 is face-on."""
    position_angle: Annotated[Degree | None, Parameter(moves=True, role="position_angle")] = None
    """Angle of the receding major axis, from North through East."""
    ra: Annotated[Degree, Field(ge=0, le=360)] = 150.0
    """Right ascension of the field's centre in deg (ICRS); of what pointings are displaced from."""
    dec: Annotated[Degree, Field(ge=-90, le=90)] = 2.0
    """Declination of the field's centre in deg (ICRS)."""
    offset: Annotated[tuple[Arcsec, Arcsec], Parameter(moves=True, role="centre")] = (0.0, 0.0)
    """(East, North) on the sky of the galaxy's centre from (ra, dec), however the field is turned."""
    velocity_offset: Annotated[Kms, Parameter(role="systemic")] = 0.0
    """Velocity added along the line of sight, + receding."""
    field_angle: Annotated[Degree | None, Parameter(moves=True)] = None
    """Angle of the field's own +y axis, from North through East; null: North is up."""
    pointings: Pointings | None = None
    """Fields displaced from (ra, dec), each with a cube of its own; null: one, at (ra, dec)."""
    mosaic: StrictBool = True
    """Whether several pointings are also combined into one North-up cube, at `output.path`."""

    @field_validator("cosmology")
    @classmethod
    def _check_cosmology(cls, value: str) -> str:
        if value not in COSMOLOGIES:
            raise ConfigError(f"unknown cosmology '{value}'{suggest(value, COSMOLOGIES)}")
        return value

    @model_validator(mode="after")
    def _check_distance(self) -> "ObservationSettings":
        if self.redshift < _LEAST_REDSHIFT and self.distance is None:
            raise ValueError(
                f"redshift {self.redshift:g} says nothing of the distance: expected a distance (e.g. 10 Mpc), got none"
            )
        return self

    @property
    def is_turned(self) -> bool:
        """Whether the field, or that of any pointing, has an angle (also one of 0)."""
        angles = (self.field_angle, *(pointing.field_angle for pointing in self.pointings or ()))
        return any(angle is not None for angle in angles)


def _number_or(*words: str, what: str) -> BeforeValidator:
    """One of the words, or a whole number >= 1."""

    def parse(value: object) -> object:
        if value in words:
            return value
        try:
            number = parse_integer(value)
        except ValueError:
            number = 0
        if number < 1:
            raise ValueError(f"expected {', '.join(map(repr, words))} or a number of {what} >= 1, got {value!r}")
        return number

    return BeforeValidator(parse)


class SmoothingSettings(AbstractSettings):
    """How wide stars are with deposit smoothed: Gaussians, by their smoothing lengths."""

    sigma: Annotated[Number, Field(gt=0)] = 0.2739
    """Standard deviation along an axis per smoothing length; 0.2739 is that of a cubic spline whose support ends at the
    smoothing length (Dehnen & Aly 2012, MNRAS 425, 1068, table 1)."""
    largest: Annotated[Arcsec, Field(gt=0)] | None = None
    """Largest sigma in arcsec (the painted field grows with it); null: 1/8 of the field."""


class EngineSettings(AbstractSettings):
    """How the cube is computed: method, precision, deposit and sizes."""

    method: Annotated[str, member_of(METHODS, "auto")] = "auto"
    """'basis': fast, within `tolerance`; 'direct': every particle's spectrum is summed; 'auto': the faster one."""
    tolerance: Annotated[Number, Field(gt=0, lt=1)] = 1e-3
    """Of method basis: largest rms error of a spectrum relative to its mean."""
    deposit: Literal["auto", "nearest", "cic", "tsc", "smoothed"] = "auto"
    """How a particle is shared among spaxels: 1, 4 or 9 of them, or as wide as its smoothing length says; auto:
    smoothed where few stars share a resolution element, else nearest. All but nearest have gradients of positions."""
    oversampling: Annotated[
        Literal["auto"] | Annotated[Integer, Field(ge=1, le=16)], _number_or("auto", what="cells")
    ] = "auto"
    """Cells along the side of a spaxel that stars are painted on before the PSF; auto: as many as its width needs."""
    smoothing: SmoothingSettings = SmoothingSettings()
    chunk: Annotated[Literal["auto"] | Annotated[Integer, Field(ge=1)], _number_or("auto", what="particles")] = "auto"
    """Particles computed at once on one device; auto: as many as suit its platform."""
    kernel: Annotated[str, member_of(KERNELS, "auto")] = "auto"
    """How what particles give is added up: 'scatter', or one from outside; auto: the fastest on this platform."""
    slab: Annotated[Literal["auto", "all"] | Integer, _number_or("auto", "all", what="stars")] = "auto"
    """Stars that are read and painted before the next are read; all: in one go; auto: all, or slab by slab where they
    would take more than half of the memory."""
    precision: Literal["float32", "float64"] = "float32"
    velocity_range: Annotated[Kms, Field(gt=0, le=MOST_VELOCITY_RANGE)] | None = None
    """Largest |v_los| to be prepared for in km/s; null: from the galaxy."""


class DevicesSettings(AbstractSettings):
    """The mesh of devices that a run is spread over."""

    data: Annotated[Literal["all"] | int, _number_or("all", what="devices")] = "all"
    """Parts of the particles, each painted by its own devices; all: the available devices, divided by `wave`."""
    wave: Annotated[Integer, Field(ge=1)] = 1
    """Parts of the detector's bins that are painted separately, each by `data` devices."""
    output: Literal["replicated", "sharded"] | None = None
    """replicated: every device ends with the whole cube; sharded: with its own part of the wavelengths; null:
    replicated for `wave: 1`, else sharded."""

    @property
    def is_sharded(self) -> bool:
        """Whether the cube is spread over the devices."""
        return self.wave > 1 if self.output is None else self.output == "sharded"


def _parse_maps(value: object) -> object:
    """A word, a switch or a path; null is auto."""
    if value is not None and not isinstance(value, str | bool | Path):
        raise ValueError(f"expected auto, true, false or a path, got {value!r}")
    return "auto" if value is None else value


class OutputSettings(AbstractSettings):
    """The files that a run writes, and their layout."""

    path: Path = Path("cube.fits")
    """A .fits or .fits.gz file; in the default layout also HDF5 (.h5, .hdf5) or Zarr (.zarr)."""
    layout: LayoutName = "default"
    """`default` for most programs; `manga`: like a MaNGA LOGCUBE; `sami`: like a cube of SAMI, of
    fibres alone; `hsim`, `scopesim`: a scene for HSIM, for ScopeSim."""
    maps: Annotated[Literal["auto"] | StrictBool | Path, BeforeValidator(_parse_maps)] = "auto"
    """The file of maps, those of `products` or else of light, velocity, dispersion, age, metallicity and mass: a path
    (.fits or .fits.gz); true: beside the cube, as <name>_maps.fits; auto: there, without `products` only where they are
    cheap; false: none."""
    compression: Compression = "none"
    """Of the cube: `gzip` loses nothing; `rice` (FITS only) rounds fluxes, but neither mask nor variance."""
    quantize: Annotated[Number, Field(gt=0)] | None = None
    """With `rice`: fluxes are rounded to the noise in their plane divided by this number, such as 16."""
    configuration: str | None = None
    """Name of the configuration, kept in the header: a run replaces files of that name only; null: that of its file."""

    @field_validator("maps")
    @classmethod
    def _check_suffix(cls, value: str | bool | Path) -> str | bool | Path:
        if isinstance(value, Path) and not value.name.lower().endswith((".fits", ".fits.gz")):
            raise ValueError(f"expected auto, true, false or a path that ends in .fits or .fits.gz, got '{value}'")
        return value

    @property
    def packing(self) -> Packing:
        """How the cube's file is compressed."""
        return Packing(self.compression, self.quantize)


@runtime_checkable
class Reader(Protocol):
    """Settings of a `galaxy` section (a frozen pydantic model) that can read a galaxy."""

    def load(self) -> "tuple[Galaxy, GalaxyInfo]":
        """The galaxy and what is known of it beside its particles."""
        ...


def _parse_reader(section: object) -> object:
    """The reader (a model from the registry) that a `galaxy` section describes; a reader and null pass through."""
    if section is None or isinstance(section, Reader):
        return section
    if not isinstance(section, Mapping):
        remedy = f"; write galaxy: {{{'reader' if section in reader_names() else 'path'}: {section}}}"
        raise ConfigError(
            f"expected a section with the key 'path' or 'reader', got {section!r}"
            f"{remedy if isinstance(section, str) else ''}"
        )
    name = section.get("reader", "auto" if "path" in section else None)
    if not isinstance(name, str):
        raise ConfigError(
            f"expected the key 'path' (of a file that is recognised) or 'reader': one of {', '.join(reader_names())}; "
            f"got {name!r}"
        )
    reader = find_reader(name)
    unknown = [str(key) for key in section if key not in reader.model_fields]
    if unknown:
        texts = [f"unknown key '{key}' of the reader '{name}'{suggest(key, reader.model_fields)}" for key in unknown]
        raise ConfigError("; ".join(texts))
    if name not in READERS.builtin and name in READERS:
        _check_announced(name, reader)
    return reader.model_validate(dict(section))


def _check_announced(name: str, reader: Any) -> None:
    """Raise ConfigError for a reader from outside whose key `reader` does not take the name that it is announced by."""
    field = reader.model_fields.get("reader")
    known = get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else (name,)
    if name not in known:
        raise ConfigError(
            f"{plug_in_place(READERS.kind, READERS.group, name)}: expected the name that it is announced by among "
            f"those of its field `reader`, Literal[{', '.join(map(repr, known))}]; make both names the same"
        )


class _AnyReader:
    """JSON schema of the `galaxy` section: that of any registered reader, or null."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        named = []
        for name in READERS.usable_names():
            reader = READERS.find(name)
            described = described_schema(reader, reader.__pydantic_core_schema__, handler)
            named.append({"allOf": [described, {"required": ["path" if name == "auto" else "reader"]}]})
        return {"anyOf": [*named, {"type": "null"}]}


class RunConfig(AbstractSettings):
    """A whole run: what is observed, with which instrument, through which pipeline, and where the cube goes.

    Beside these sections there may be one for each stage or source of a plug-in, with the settings that it brings.
    """

    model_config = ConfigDict(extra="allow")

    galaxy: Annotated[InstanceOf[Reader] | None, BeforeValidator(_parse_reader), _AnyReader()] = None
    """A reader (`path: galaxy.hdf5`, `reader: synthetic`, ...) and its keys; null for a galaxy given as arrays."""
    ssp: SSPSettings = SSPSettings()
    observation: ObservationSettings
    instrument: InstrumentSettings
    observations: Annotated[Observations | None, Field(exclude_if=lambda value: value is None)] = None
    """Several observations of the same galaxy by name, each with the settings that it changes; null: one. The run
    itself then needs no instrument."""
    dust: Dust | None = None
    """A screen of dust, or with `kind: particles` that of the gas; null: none."""
    lines: LinesSettings | None = None
    """Lines that the source `lines` paints; null: a pipeline with that source is refused."""
    pipeline: str = "stellar"
    """Name of a packaged pipeline, or the path of a .yaml file."""
    nebular: Annotated[NebularSettings | None, Field(validate_default=True)] = None
    """What shines in the source `nebulae`; null: its defaults where the pipeline paints it, else none."""
    engine: EngineSettings = EngineSettings()
    noise: NoiseSettings | None = None
    systematics: Annotated[SystematicsSettings | None, Field(exclude_if=lambda value: value is None)] = None
    """Errors of calibration and detector beside the noise; null: none."""
    products: ProductsSettings | None = None
    """Maps, velocity distributions and images beside the cube; null: none."""
    devices: DevicesSettings = DevicesSettings()
    output: OutputSettings = OutputSettings()
    fit: FitSettings | None = None
    """What `rubix-like fit` does; null: nothing is fitted."""
    simulate: SimulateSettings | None = None
    """The training set that `rubix-like simulate` makes; null: its defaults, with the priors of `fit`."""

    @classmethod
    def sections(cls, *names: str) -> dict[str, type[BaseModel]]:
        """The settings of the sections that plug-ins bring, of those stages and sources among `names` that do."""
        return stage_sections([name for name in names if name not in cls.model_fields])

    @classmethod
    def section_names(cls) -> tuple[str, ...]:
        """The keys of the sections that plug-ins bring, without those of plug-ins that cannot be used."""
        return tuple(usable_sections())

    @model_validator(mode="wrap")
    @classmethod
    def _read_sections(cls, given: Any, handler: Callable[[Any], "RunConfig"]) -> "RunConfig":
        """The sections of plug-ins as their settings: of the pipeline's stages, and what else is given and not null."""
        if not isinstance(given, Mapping):
            return handler(given)
        stages = stage_names(given.get("pipeline"))
        null = [key for key, value in given.items() if value is None and key not in (*cls.model_fields, *stages)]
        left_out = usable_sections() if null else {}
        given = {key: value for key, value in given.items() if key not in null or key not in left_out}
        return read_with_sections(cls, given, handler, cls.sections(*stages, *map(str, given)))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """With the sections of all plug-ins that can be used, and no other keys."""
        sections = {name: section for name, section in usable_sections().items() if name not in cls.model_fields}
        found = schema_with_sections(cls, schema, handler, sections)
        whole = handler.resolve_ref_schema(found)
        whole["required"] = [name for name in whole["required"] if name != "instrument"]
        whole["anyOf"] = [{"required": ["instrument"]}, {"required": ["observations"]}]
        return found

    @field_validator("pipeline")
    @classmethod
    def _check_pipeline(cls, value: str) -> str:
        """The name of a packaged pipeline, or the whole path of a file."""
        pipeline = load_pipeline(value)
        for registry, stages in zip(STAGES, (pipeline.scene, pipeline.paint, pipeline.cube), strict=True):
            for name in (stage.name for stage in stages if stage.name in cls.model_fields):
                if section_of_stage(registry, name) is not None:
                    raise ValueError(
                        f"expected a stage whose section has a name of its own, got '{name}' of a plug-in, which "
                        f"brings settings beside the section '{name}' of every run; give the stage another name"
                    )
        return value if value in resource_names("pipelines") else str(find_file("pipelines", value).resolve())

    @field_validator("nebular", mode="before")
    @classmethod
    def _paint_nebulae(cls, value: object, info: Any) -> object:
        if value is not None or "pipeline" not in info.data:
            return value
        painted = {source.name for source in load_pipeline(info.data["pipeline"]).paint}
        return {} if NEBULAE in painted else None

    @model_validator(mode="after")
    def _check_layout(self) -> "RunConfig":
        bins = self.instrument.wavelength
        chosen = find_format(self.output.path, self.output.layout)
        noise = self.noise is not None
        is_mosaic = self.observation.mosaic and len(self.observation.pointings or ()) > 1
        fibres = self.instrument.fibres is not None and not is_mosaic
        layout, medium, sampling = self.output.layout, bins.medium, bins.sampling
        check_layout(chosen, layout, noise=noise, medium=medium, sampling=sampling, fibres=fibres)
        check_packing(chosen, self.output.path, self.output.packing)
        if chosen.keeps_all and self.systematics is not None and self.systematics.keep_contributions:
            raise ValueError(
                f"systematics.keep_contributions: expected an output.path that ends in .fits, got "
                f"'{self.output.path.name}'; other files have no place for them"
            )
        return self

    @model_validator(mode="after")
    def _check_joined(self) -> "RunConfig":
        """Joined arms have no maps: these are weighted with the light of one detector."""
        if self.instrument.join and (self.products is not None or self.output.maps not in ("auto", False)):
            raise ValueError(
                "instrument.join: expected no products (output.maps: false) beside joined arms, got some; set "
                "join: false, or observe one arm (instrument.arm)"
            )
        return self

    @model_validator(mode="after")
    def _check_components(self) -> "RunConfig":
        """Smooth components are shared among spaxels unless a deposit is given; stars and lines are both painted."""
        if not isinstance(self.galaxy, ComponentsReader):
            return self
        self._check_painted(self.galaxy)
        if self.engine.deposit != "auto":
            return self
        return self.model_copy(update={"engine": self.engine.model_copy(update={"deposit": "tsc"})})

    def _check_painted(self, reader: ComponentsReader) -> None:
        """Raise ValueError for components that the pipeline paints no light of."""
        gas = [component.name for component in reader.components if component.lines is not None]
        if not gas:
            return
        if self.lines is not None:
            raise ValueError(
                f"lines: expected null beside a component with lines of its own ('{gas[0]}'), got a section; leave it "
                f"out"
            )
        painted = {source.name for source in load_pipeline(self.pipeline).paint}
        wanted = {LINE_SOURCE} if len(gas) == len(reader.components) else {"stars", LINE_SOURCE}
        if painted & {"stars", LINE_SOURCE} != wanted:
            name = "lines" if wanted == {LINE_SOURCE} else "stellar_lines"
            raise ValueError(
                f"pipeline: expected one that paints what the components have ({', '.join(sorted(wanted))}), got "
                f"'{self.pipeline}'; set pipeline: {name}"
            )

    @property
    def resolved_align(self) -> Align:
        """`observation.align`; where it is null, 'stars' with a reader and 'none' without. For smooth components
        'none': they are on the galaxy's axes as they are."""
        if isinstance(self.galaxy, ComponentsReader):
            return "none"
        return self.observation.align or ("none" if self.galaxy is None else "stars")

    @property
    def keeps_truth(self) -> bool:
        """Whether the flux without noise and systematic errors is kept beside the observed one."""
        noise, systematics = self.noise, self.systematics
        with_noise = noise is not None and noise.keep_truth
        return with_noise or (systematics is not None and systematics.keep_contributions)

    @property
    def screen(self) -> DustSettings | None:
        """The screen of dust in front of all the light; None where there is none."""
        return self.dust.foreground if isinstance(self.dust, ParticleDustSettings) else self.dust

    def section(self, name: str) -> Any:
        """The settings of the section that the plug-in `name` brings; ConfigError where there is none."""
        sections = self.model_extra or {}
        if name not in sections:
            known = ", ".join(sorted(sections)) or "this run has none"
            near = nearest_words(name, type(self).model_fields, 1) or ["observation"]
            raise ConfigError(
                f"name: expected a section that a plug-in brings ({known}), got '{name}'; those of every run are "
                f"attributes, such as config.{near[0]}"
            )
        return sections[name]

    def numbers(self) -> dict[str, Any]:
        """The values of the run's parameters by dotted name; those that it has none of are left out."""
        found = parameter_values(self)
        if self.is_oriented:
            found = {"observation.inclination": 0.0, "observation.position_angle": 0.0} | found
        if self.observation.is_turned:
            found.setdefault("observation.field_angle", 0.0)
        psf = self.instrument.psf
        sections = {} if psf is None else {"instrument.psf": psf.numbers()}
        sections |= {name: parameter_values(section) for name, section in (self.model_extra or {}).items()}
        return found | {f"{name}.{key}": value for name, values in sections.items() for key, value in values.items()}

    @property
    def is_oriented(self) -> bool:
        """Whether the galaxy is turned on the sky: by an alignment, or by an angle (also one of 0)."""
        angles = (self.observation.inclination, self.observation.position_angle)
        is_smooth = isinstance(self.galaxy, ComponentsReader)  # components have angles beside these
        return is_smooth or self.resolved_align != "none" or angles != (None, None)

    @property
    def frees_places(self) -> bool:
        """Whether the fit may move particles, on the sky or along the line of sight."""
        free = () if self.fit is None else self.fit.free
        declared = declarations(RunConfig)
        return any(
            name.startswith(("galaxy.", "stars.")) or (name in declared and declared[name].mark.moves) for name in free
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether the particles of a file have no velocities, as the user wants it."""
        return getattr(self.galaxy, "velocities", "") == "zero"

    def to_yaml(self) -> str:
        """The whole configuration, every quantity with its unit, as YAML that `load_config` reads back equal."""
        return format_yaml(self.model_dump(mode="json", context={WITH_UNITS: True}))


def json_schema() -> dict[str, Any]:
    """JSON schema of a run's YAML, for editors; the readers' keys are under `galaxy`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RunConfig.model_json_schema()}
