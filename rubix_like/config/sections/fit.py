"""Settings of a fit: the data, what is free, the likelihood, the optimiser."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StrictBool,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from rubix_like.config.data_sets import (
    Continuum,
    Covariance,
    FitData,
    Window,
    Windows,
    check_windows,
)
from rubix_like.config.parameters import Prior, PriorsByName
from rubix_like.config.plug_ins import SAMPLERS, SHARED_SECTIONS, member_of
from rubix_like.config.quantities import Arcsec, Integer, Number
from rubix_like.config.settings import AbstractSettings, read_with_sections, schema_with_sections


def _check_suffix(value: Path) -> Path:
    if value.suffix.lower() not in {".h5", ".hdf5"}:
        raise ValueError(f"expected a path that ends in .h5 or .hdf5, got '{value}'")
    return value


ResultPath = Annotated[Path, AfterValidator(_check_suffix)]


class AbstractChainSettings(AbstractSettings):
    """The settings of every sampler of chains: the number of chains, of warm-up steps and of draws."""

    chains: Annotated[Integer, Field(ge=1)] = 4
    """Independent chains, each with its own adaptation; at least four, to see whether they agree."""
    warmup: Annotated[Integer, Field(ge=20)] = 300
    """Discarded steps in which a chain adapts its step size and mass matrix."""
    draws: Annotated[Integer, Field(ge=1)] = 500
    """Steps kept from each chain."""


class NutsSettings(AbstractChainSettings):
    """The No-U-Turn sampler: chains that each adapt for themselves and then draw."""

    target_acceptance: Annotated[Number, Field(gt=0.5, lt=1)] = 0.9
    """Mean acceptance that the step size is adapted to: 0.95 or 0.99 makes shorter steps, where draws diverge."""
    tree_depth: Annotated[Integer, Field(ge=1, le=15)] = 8
    """A trajectory has at most 2^this leapfrog steps, each with a gradient of the model."""


class VariationalSettings(AbstractSettings):
    """Variational inference: samples about a mean, which is moved to where they resemble the posterior most."""

    samples: Annotated[Integer, Field(ge=2, multiple_of=2)] = 16
    """Samples used to find the mean, in pairs mirrored about it."""
    iterations: Annotated[Integer, Field(ge=1)] = 20
    """Largest number of updates of the mean."""
    tolerance: Annotated[Number, Field(gt=0)] = 0.05
    """The mean has converged when it moves by less, in standard deviations of the samples."""
    draws: Annotated[Integer, Field(ge=2, multiple_of=2)] = 200
    """Samples drawn about the mean at the end, in pairs mirrored about it."""


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "nuts": NutsSettings,
    "variational": VariationalSettings,
}
"""Settings of samplers that are known without importing the samplers, which takes a second."""


class SamplingSettings(AbstractSettings):
    """The section `fit.sampling`: how the posterior is sampled, and where the result goes.

    Beside these keys there is a section for each sampler (`nuts`, `variational`), with the settings that it brings.
    """

    model_config = ConfigDict(extra="allow")

    method: Annotated[str, member_of(SAMPLERS)] = "nuts"
    """nuts: chains, exact in the limit of many draws; geovi: variational, faster, approximate (its samples follow
    the curvature of the model); or the name of another sampler that is installed."""
    groups: Annotated[Integer, Field(ge=1)] | None = None
    """Groups of devices, each of which computes chains or samples of its own; null: one group for every chain or
    sample, while devices last."""
    at_once: Annotated[Integer, Field(ge=1)] = 1
    """Chains or samples that a group computes at the same time; more take more memory, and may be faster on GPUs."""
    predictive: Annotated[Integer, Field(ge=2)] = 128
    """Draws whose models make the posterior-predictive cube, the same number of each chain (at least one); all, if
    there are fewer."""
    log_likelihood: Literal["spaxels", "voxels"] | None = "spaxels"
    """Whether the result has ln(likelihood) of every spaxel, or of every voxel, at the draws of `predictive`, for
    ArviZ's loo and waic; null: neither."""
    seed: Annotated[Integer, Field(ge=0)] = 1
    """Seed of all random numbers of the sampler."""
    output: ResultPath | None = None
    """The result's file; null: beside that of the fit, fit_samples.h5."""

    @property
    def section(self) -> Any:
        """The settings of the method, from the method's section."""
        return (self.model_extra or {})[self.section_name]

    @property
    def section_name(self) -> str:
        """The key of the method's section under `fit.sampling`."""
        return SHARED_SECTIONS.get(self.method, self.method)

    @classmethod
    def sections(cls, *methods: str) -> dict[str, type[BaseModel]]:
        """The settings of each section, by its key: of the built-in samplers, and of these `methods`."""
        found = dict(_SECTIONS)
        for name in SAMPLERS.names():
            if name in {*SAMPLERS.builtin, *methods} and SHARED_SECTIONS.get(name, name) not in found:
                found[name] = SAMPLERS.find(name).section_type
        return found

    @classmethod
    def section_names(cls) -> tuple[str, ...]:
        """The keys of the sections of all samplers."""
        return tuple(dict.fromkeys(SHARED_SECTIONS.get(name, name) for name in SAMPLERS.names()))

    @model_validator(mode="wrap")
    @classmethod
    def _read_sections(cls, given: Any, handler: Callable[[Any], "SamplingSettings"]) -> "SamplingSettings":
        """Each sampler's section as its settings, with the defaults of those that are left out."""
        if not isinstance(given, Mapping):
            return handler(given)
        names = (str(given.get("method", "nuts")), *map(str, given))
        return read_with_sections(cls, given, handler, cls.sections(*names))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema with the sections of all samplers that can be used, and no other keys."""
        return schema_with_sections(cls, schema, handler, cls.sections(*SAMPLERS.usable_names()))


class ModelErrorSettings(AbstractSettings):
    """Particle noise of the model beside the errors of the data: estimated from models with other base draws."""

    draws: Annotated[Integer, Field(ge=4)] = 64
    """How many other sets of base draws: every second one for the weights, the others for the covariance. As many cubes
    are held in memory, about three times."""
    seed: Annotated[Integer, Field(ge=0)] = 1000
    """Of the first of them."""


class DiscretenessSettings(AbstractSettings):
    """How far the best values of a synthetic galaxy move with many more base draws: measured after the fit."""

    times: Annotated[Integer, Field(ge=2, le=64)] = 8
    """How many times the galaxy's own stars; as many models with derivatives are computed, one to eight times."""


class OptimiserSettings(AbstractSettings):
    """How the best fit is looked for."""

    name: Literal["levenberg_marquardt", "lbfgs"] = "levenberg_marquardt"
    """By residuals and their Jacobian (levenberg_marquardt), or by the gradient of the loss."""
    steps: Annotated[Integer, Field(ge=1)] = 200
    """Most steps of one start."""
    tolerance: Annotated[Number, Field(gt=0)] = 1e-3
    """A start has converged once the loss, half of chi^2, would fall by less if the residuals were linear (lbfgs:
    once steps change it by less)."""


class CorrelatedSettings(AbstractSettings):
    """Free parameters whose priors, `normal` or `log_normal`, are correlated: one normal distribution of them all."""

    parameters: Annotated[tuple[str, ...], Field(min_length=2)]
    """Their dotted names, each with its prior in `fit.free`."""
    correlation: tuple[tuple[Number, ...], ...]
    """Correlation matrix in their order; of log_normal priors that of the logarithms."""

    @model_validator(mode="after")
    def _check_matrix(self) -> "CorrelatedSettings":
        count = len(self.parameters)
        if any(len(row) != count for row in self.correlation) or len(self.correlation) != count:
            raise ValueError(f"correlation: expected {count} rows of {count} numbers, got others")
        matrix = np.array(self.correlation)
        if not (np.allclose(matrix, matrix.T) and np.allclose(np.diag(matrix), 1)):
            raise ValueError(f"correlation: expected a symmetric matrix with 1 on its diagonal, got {matrix.tolist()}")
        if not np.min(np.linalg.eigvalsh(matrix)) > 0:
            raise ValueError(
                "correlation: expected a positive definite matrix, got one with an eigenvalue that is not above 0; "
                "take smaller correlations"
            )
        return self


class LikelihoodSettings(AbstractSettings):
    """How the errors of the data are distributed."""

    kind: str = "gaussian"
    """gaussian; student_t, whose outliers pull less; or the name of a distribution, or of residuals, of one's own."""
    degrees_of_freedom: Annotated[Number, Field(gt=0, le=1e6)] | None = None
    """Of student_t: 1 has the heaviest tails, 30 is nearly normal; null: 4."""
    parameters: dict[str, Number] = Field(default_factory=dict)
    """Numbers of a kind of one's own, by their names; free as `likelihood.NAME`."""
    covariance: Covariance = "auto"
    """Correlations between voxels, of kind gaussian. data: between spaxels, as the data give them, which must; auto:
    the same if the data give some and the other settings allow it, with a note if not; null: voxels are independent; a
    section: a matrix of one's own."""

    @model_validator(mode="after")
    def _check_together(self) -> "LikelihoodSettings":
        if self.degrees_of_freedom is not None and self.kind != "student_t":
            raise ValueError(f"degrees_of_freedom: expected null for kind '{self.kind}', got a number; leave it out")
        if self.asks_for_covariance and self.kind != "gaussian":
            raise ValueError(f"covariance: expected kind gaussian, got '{self.kind}'; leave one of them out")
        if self.parameters and self.kind in {"gaussian", "student_t"}:
            raise ValueError(f"parameters: expected none for kind '{self.kind}', got {', '.join(self.parameters)}")
        return self

    @property
    def plain(self) -> bool:
        """Whether errors are normal and no correlations are required."""
        return self.kind == "gaussian" and not self.asks_for_covariance

    @property
    def asks_for_covariance(self) -> bool:
        """Whether correlations are required: those of the data, or a matrix."""
        return self.covariance not in (None, "auto")

    @property
    def asked_covariance(self) -> str:
        """Which correlations are required, in words."""
        return "data" if self.covariance == "data" else "a matrix"


class FitSettings(AbstractSettings):
    """The section `fit`: which data, what is free, with which likelihood, how, and where the result goes."""

    data: FitData | None = None
    """An observed cube (FITS or HDF5), or several data sets by name; null where the data are given in Python."""
    data_medium: Literal["air", "vacuum"] | None = None
    """Of the file's wavelengths; null: as its header says, or known of its instrument."""
    data_units: str | None = None
    """Of the file's fluxes, e.g. 1e-16 erg/s/cm2/Angstrom; null: as its header says, or known of its instrument."""
    data_pixel_scale: Annotated[Arcsec, Field(gt=0)] | None = None
    """Side of the file's spaxels; null: as its header says."""
    accept_implausible: bool = False
    """Whether data or a galaxy with numbers that no observation or galaxy has, mostly from a wrong unit or mask, are
    fitted with a note; false: they are refused."""
    data_hdu: str | int | None = None
    """HDU of the file's fluxes, its name or number; null: as docs/observed-cubes.md says."""
    free: PriorsByName = Field(default_factory=dict)
    """Dotted name of a parameter -> its prior, e.g. `observation.inclination: {uniform: [10 deg, 80 deg]}`."""
    correlated: tuple[CorrelatedSettings, ...] = ()
    """Priors that are correlated with each other, e.g. [{parameters: [a, b], correlation: [[1, 0.5], [0.5, 1]]}]."""
    windows: Windows | None = None
    """Wavelengths that are fitted; null: all."""
    exclude: tuple[Window, ...] = ()
    """Wavelengths that are left out, e.g. sky lines."""
    sigma: Annotated[Number, Field(gt=0)] | None = None
    """Standard deviation (1e-20 erg/s/cm2/Angstrom) of every voxel of data that have no variance; null: the data's."""
    polynomial: Continuum | None = None
    """A multiplicative continuum; a number alone is the degree; null: none."""
    noise_scale: Prior | None = None
    """Prior of the factor on the data's standard deviations, e.g. {log_uniform: [0.5, 2]}; null: 1."""
    inflate_sigma: bool = False
    """Whether the standard deviations of a fit are multiplied by the root of chi^2 per degree of freedom where that is
    above 1. The first line of the summary then says so; a wrong model stays wrong."""
    likelihood: LikelihoodSettings = LikelihoodSettings()
    """Distribution of the data's errors."""
    model_error: ModelErrorSettings | None = None
    """Particle noise of the model; null: none."""
    discreteness: DiscretenessSettings | None = DiscretenessSettings()
    """The shift by the synthetic galaxy's finite draws, which enlarges the errors; null: not measured. Nor is it with
    `model_error`, which takes account of particle noise itself."""
    optimiser: OptimiserSettings = OptimiserSettings()
    starts: Annotated[Integer, Field(ge=1)] = 4
    """Independent starts; the best end is the result. 1: one start, beside which nothing else is looked at."""
    start: dict[str, Any] | None = None
    """Values at which the first start begins, e.g. `observation.inclination: 40 deg`, those that are left out at the
    medians of their priors, `galaxy` standing for a galaxy's own; null: it is drawn from the prior like the others."""
    candidates: Annotated[Integer, Field(ge=1)] = 16
    """Guesses for every start. Searches begin at the best ones; the next best replace starts that are given up."""
    starts_from: Literal["cube", "prior"] = "cube"
    """Whether the guesses go by what the cube shows (centre, size, axis, velocities), or are draws from the prior."""
    generations: Annotated[Integer, Field(ge=0)] = 100
    """Where parameters of single stars are free: how often the candidates of a start are mixed, each spaxel's stars for
    themselves, before the best is started from; each time as many models as there are candidates. 0: not at all."""
    seed: Annotated[Integer, Field(ge=0)] = 1
    """Of the draws from the prior."""
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    """How `rubix-like sample` draws from the posterior about the best fit."""
    output: ResultPath = Path("fit.h5")
    """The result's file; the model's and the residuals' cubes, pictures and checkpoints go beside it."""

    @field_validator("start", mode="before")
    @classmethod
    def _check_start(cls, value: object) -> object:
        if value is not None and not isinstance(value, Mapping):
            raise ValueError(
                f"expected parameters with values, e.g. {{observation.inclination: 40 deg}}, got {value!r}"
            )
        return None if value is None else {str(name): start for name, start in value.items()}

    @model_validator(mode="after")
    def _check_together(self) -> "FitSettings":
        check_windows(self.windows, self.exclude)
        self._check_sets()
        if self.inflate_sigma and self.noise_scale is not None:
            raise ValueError(
                "inflate_sigma: expected false beside noise_scale, which fits the size of errors, got both; keep one"
            )
        if self.polynomial is not None and self.model_error is not None:
            raise ValueError("expected polynomial or model_error, got both; set one of them to null")
        self._check_likelihood()
        return self

    def _check_likelihood(self) -> None:
        """Raise ValueError for a likelihood that does not go with a polynomial or the model's error."""
        other = next((name for name in ("polynomial", "model_error") if getattr(self, name) is not None), None)
        if other is None or self.likelihood.plain:
            return
        key, wanted, got = "kind", "gaussian", f"'{self.likelihood.kind}'"
        if self.likelihood.asks_for_covariance:
            key, wanted, got = "covariance", "auto or null", self.likelihood.asked_covariance
        raise ValueError(f"likelihood.{key}: expected {wanted} beside {other}, got {got}; leave one of them out")

    def _check_sets(self) -> None:
        """Raise ValueError for what is said of one cube where there are several sets."""
        if not isinstance(self.data, Mapping):
            return
        given = [name for name in _OF_ONE_CUBE if getattr(self, name)]
        if given:
            place = f"data.{next(iter(self.data))}.{_OF_ONE_CUBE[given[0]]}"
            raise ValueError(f"{given[0]}: expected null beside several data sets, got a value; give it as {place}")
        if self.likelihood.asks_for_covariance:
            cube = next((name for name, data in self.data.items() if data.kind == "cube"), "NAME")
            raise ValueError(
                f"likelihood.covariance: expected auto or null beside several data sets, got "
                f"{self.likelihood.asked_covariance}; each set has its own: fit.data.{cube}.covariance"
            )


_OF_ONE_CUBE: Mapping[str, str] = {
    "data_medium": "medium",
    "data_units": "units",
    "data_pixel_scale": "pixel_scale",
    "data_hdu": "hdu",
    "windows": "windows",
    "exclude": "exclude",
    "sigma": "sigma",
    "polynomial": "nuisance.polynomial",
}
"""What is said of one cube -> the key of one of several sets."""


class SimulateSettings(AbstractSettings):
    """The section `simulate`: cubes of random parameters, for the training of networks."""

    free: PriorsByName | None = None
    """Dotted name of a parameter -> its prior, as in `fit.free`; parameters of the noise may be among them. null: those
    of `fit.free`."""
    n: Annotated[Integer, Field(ge=1)] = 1000
    """How many cubes."""
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 1
    """Seed of parameters, particles and noise. Those of cube i depend on the seed and on i alone."""
    galaxies: Annotated[tuple[Path, ...], Field(min_length=1)] | None = None
    """Files of galaxies that are observed in turn, each in place of `galaxy.path`; null: the galaxy of the section
    `galaxy`."""
    particles: Literal["new", "same"] = "new"
    """Of a synthetic galaxy: other random numbers for the particles of every cube, or the same for all, as in a fit."""
    variance: StrictBool = True
    """Whether the variance of the noise is kept."""
    batch: Annotated[Integer, Field(ge=1)] | None = None
    """Cubes that one call of the compiled program makes; null: as many as take 128 MB. It changes no number."""
    at_once: Annotated[Integer, Field(ge=1)] = 1
    """Cubes that a device computes at the same time; more take more memory, and may be faster on GPUs."""
    shard: Annotated[Integer, Field(ge=1)] | None = None
    """Cubes in a file; null: as many as take 256 MB."""
    files: Literal["hdf5", "zarr"] = "hdf5"
    """Format of the files: HDF5 (netCDF-4), or Zarr stores; xarray opens both."""
    output: Path = Path("simulations")
    """Folder of the files."""
