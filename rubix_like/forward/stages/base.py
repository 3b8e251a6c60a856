"""Stages: pytrees of their tables with one method, built once on the host from a `Setup`."""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rubix_like.arguments import named_arguments
from rubix_like.config.settings import AbstractSettings
from rubix_like.cube.footprint import Footprint
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError, suggest
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.scene import Scene
from rubix_like.runtime.mesh.bin_split import WHOLE, BinSplit


class Voxels(NamedTuple):
    """Arrays (y, x, wave) of a cube, or (fibre, wave) of the spectra that it is made of; fields as in `PaintedCube`.

    Each device holds the bins of its part. Where the parts are not even the last ones have bins beyond the detector's,
    to be left out.
    """

    flux: Float[Array, "*place wave"]
    variance: Float[Array, "*place wave"] | None
    truth: Float[Array, "*place wave"] | None
    bits: Int[Array, "*place wave"] | None = None
    contributions: Mapping[str, Float[Array, "*place wave"]] | None = None


class PaintedCube(eqx.Module):
    """The cube inside the model: flux and variance (element, wave) in 1e-20 erg/s/cm2/Angstrom (squared).

    An element is a spaxel of the `footprint`, which turns spectra into images and back. moments (element, moment) are
    sums over particles of what is not of one wavelength, which a stage treats like light of the detector's whole range:
    light, light times v_los (km/s), and what the products sum. `truth` (element, wave) is the flux before noise and
    systematic errors, `contributions` what each of these adds to it, `bits` mask bits of single voxels; `fields` is
    what the pipeline's fields hold, by name; `fibres` the spectra that the cube was made of, if any.

    `split`: a device may hold a part of the bins only (of flux, variance and truth, and of the tables that a stage
    marks as `per_bin`); the moments are the same on all devices.
    """

    flux: Float[Array, "element wave"]
    moments: Float[Array, "element moment"]
    footprint: Footprint
    variance: Float[Array, "element wave"] | None = None
    truth: Float[Array, "element wave"] | None = None
    fields: Mapping[str, Any] = eqx.field(default_factory=dict)
    split: BinSplit = eqx.field(static=True, default=WHOLE)
    fibres: Voxels | None = None
    bits: Int[Array, "element wave"] | None = None
    contributions: Mapping[str, Float[Array, "element wave"]] = eqx.field(default_factory=dict)


Spatial = Callable[[Float[Array, "y x k"]], Float[Array, "inner_y inner_x k"]]
"""A linear map of images, the same for each of them."""


class WavelengthSpatial(NamedTuple):
    """A linear map of images that depends on wavelength, and keeps wavelengths apart.

    `bins` takes the images of the bins that the device finishes, one for each. It is approximated by the sum over
    `terms` of `shares` (bin, term) times each term's map; `terms` takes groups of images, of the sizes given, one
    for each. `middle` is for images of no one wavelength.
    """

    middle: Spatial
    bins: Spatial
    terms: Callable[[Float[Array, "y x k"], tuple[int, ...]], Float[Array, "inner_y inner_x k"]]
    shares: Float[Array, "bin term"]


@dataclass(frozen=True)
class StageReport:
    """The effects of a stage on a cube beside its values.

    `spaxel_bits` (y, x) and `wave_bits` (wave,): mask bits that it sets; `voxel_bits`: those that it may set in single
    voxels (`PaintedCube.bits`); `lsf_fwhm` (wave,): the effective LSF after it
    (Angstrom); `meta`: entries of `Cube.meta`; `notes`: sentences for the user (`Note`).
    """

    spaxel_bits: Int[np.ndarray, "y x"] | None = None
    wave_bits: Int[np.ndarray, " wave"] | None = None
    lsf_fwhm: Float[np.ndarray, " wave"] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    voxel_bits: int = 0


class AbstractSceneStage(eqx.Module):
    """Scene to scene: moves, turns or dims the particles of every source.

    A stage that reads fields of the pipeline names them in `reads` and finds them in `scene.fields`. It comes after all
    stages that read none: fields are summed over the scene as those leave it.

    `section_type`: settings of the section of the stage's name, which a stage from outside may bring; what is
    marked as a `Parameter` there reaches the call as `parameters.NAME`, the rest is `setup.config.section(NAME)`.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    section_type: ClassVar[type[AbstractSettings] | None] = None

    @classmethod
    @abstractmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "AbstractSceneStage":
        """The stage for one run; raises ConfigError for options that it does not know."""

    @abstractmethod
    def __call__(self, scene: Scene, parameters: Parameters) -> Scene:
        """The scene after this stage."""


class AbstractCubeStage(eqx.Module):
    """Cube to cube, on the sum over all particles and devices.

    A stage with a `margin` gets a field that is larger by that many spaxels on each side and returns it without, on
    `cube.footprint.within(margin)`. One that reads fields of the pipeline names them in `reads` and finds them in
    `cube.fields`; `section_type` is as in `AbstractSceneStage`.

    `key_number`: what its random key is made by; None: its place among the stages that have None.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    section_type: ClassVar[type[AbstractSettings] | None] = None
    key_number: ClassVar[int | None] = None
    margin: eqx.AbstractVar[int]

    @classmethod
    @abstractmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "AbstractCubeStage":
        """The stage for one run; raises ConfigError for options that it does not know."""

    @abstractmethod
    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:
        """The cube after this stage; `key` belongs to this stage alone."""

    @abstractmethod
    def spatial(self, parameters: Parameters) -> Spatial | WavelengthSpatial | None:
        """The whole stage as a map of images, where it is linear and keeps wavelengths apart; None where not.

        Such a stage at the head of the list acts on sums over particles before they are projected onto wavelengths, if
        it is the same at all of them or a sum of a few such maps (`WavelengthSpatial`, at most one in a list).
        """

    @abstractmethod
    def report(self) -> StageReport:
        """Its effects beside changing the cube's values."""


class AbstractSpectraStage(AbstractCubeStage):
    """A stage without a margin that is no linear map of images; its report is empty unless it makes one."""

    margin: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """None: it cannot act on images before projection."""
        return

    def report(self) -> StageReport:
        """An empty report."""
        return StageReport()


@named_arguments
def refuse_options(
    stage: str, options: Mapping[str, Any], known: tuple[str, ...] = (), place: str = "pipeline: stage"
) -> None:
    """Raise ConfigError for an option of a pipeline's stage, or of what `place` says, that it does not have."""
    for name in options:
        if name not in known:
            raise ConfigError(f"{place} '{stage}' has no option '{name}'{suggest(name, known)}")


def refuse_noisy(stage: str, cube: PaintedCube, why: str) -> None:
    """Raise ConfigError where a stage that must come before `noise` gets a cube with noise."""
    if cube.variance is not None:
        raise ConfigError(f"pipeline.cube: expected '{stage}' before 'noise' ({why}), got the other order; swap them")


def split_keys(key: PRNGKeyArray | None, stages: tuple[AbstractCubeStage, ...]) -> list[PRNGKeyArray | None]:
    """One key per cube stage, the same on any number of devices."""
    places = itertools.count()
    numbers = [next(places) if stage.key_number is None else stage.key_number for stage in stages]
    return [None if key is None else jax.random.fold_in(key, number) for number in numbers]
