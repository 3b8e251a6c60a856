"""The split of a run into static sizes (`Plan`), arrays (`Tables`) and what can be varied (`Parameters`)."""

from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.footprint import Footprint
from rubix_like.engine.kernels.kernel import AbstractDepositKernel
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.forward.fields.field import AbstractField
from rubix_like.forward.products.dust_sums import AttenuationTables
from rubix_like.forward.products.gas_sums import GasTables
from rubix_like.forward.products.line_sums import LineTables
from rubix_like.forward.products.sums import ProductTables
from rubix_like.forward.sources.source import AbstractSource, ReadsParticles
from rubix_like.forward.stages.base import AbstractCubeStage, AbstractSceneStage


@dataclass(frozen=True)
class Plan:
    """Sizes and switches, fixed on the host before anything is compiled; hashable, so equal plans share compilations.

    `sources`: names of what is painted; `method`: theirs, with ", " between those that differ; `margin`: spaxels
    painted beyond the field on each side; `chunk`: particles per step; `cells`: along the side
    of a spaxel, of the grid that is painted; `fields`: names of the fields; `n_fibre`: fibres of all exposures that
    the cube is made of, 0 where it is made of spaxels; `scene`, `cube`: names of the stages.
    """

    sources: tuple[str, ...]
    method: str
    deposit: str
    dtype: str
    margin: int
    n_wave: int
    chunk: int
    cells: int = 1
    fields: tuple[str, ...] = ()
    n_fibre: int = 0
    scene: tuple[str, ...] = ()
    cube: tuple[str, ...] = ()


class Tables(eqx.Module):
    """Arrays that no particle changes: arguments of the compiled function, never constants in it.

    `alignment`: rotation to the body axes (None: the axes of the arrays); `footprint`: the field; `grid`: the cells
    that are painted, also beyond the field; the stages hold their own tables;
    `kernel`: adds up fields; `products`, `gas`, `lines`: tables for maps of stars, of gas and of emission lines (None:
    no maps); `attenuation`: for the curve that goes with maps of dust.
    """

    alignment: Float[Array | ndarray, "3 3"] | None
    arcsec_per_kpc: Float[Array | ndarray, ""]
    footprint: Footprint
    grid: SpaxelGrid
    scene: tuple[AbstractSceneStage, ...]
    paint: tuple[AbstractSource, ...]
    cube: tuple[AbstractCubeStage, ...]
    kernel: AbstractDepositKernel
    products: ProductTables | None = None
    fields: tuple[AbstractField, ...] = ()
    gas: GasTables | None = None
    lines: LineTables | None = None
    attenuation: AttenuationTables | None = None

    @property
    def painted(self) -> tuple[ReadsParticles, ...]:
        """The readers of particles in the painting pass: the sources, the maps of stars where none of the sources
        paints stars, then the maps of gas."""
        products = self.products if self.products is not None and self.products.reader == len(self.paint) else None
        return (*self.paint, *(own for own in (products, self.gas) if own is not None))
