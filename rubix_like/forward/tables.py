"""The split of a run into static sizes (`Plan`), arrays (`Tables`) and what can be varied (`Parameters`)."""

from dataclasses import dataclass

import equinox as eqx
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.forward.fields.field import AbstractField
from rubix_like.forward.products.sums import ProductTables
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.forward.stages.base import AbstractCubeStage, AbstractSceneStage


@dataclass(frozen=True)
class Plan:
    """Sizes and switches, fixed on the host before anything is compiled; hashable, so equal plans share compilations.

    `sources`: names of what is painted; `method`: theirs, with ", " between those that differ; `n_y`, `n_x`: the field
    in spaxels; `margin`: spaxels painted beyond it on each side; `chunk`: particles per step; `cells`: along the side
    of a spaxel, of the grid that is painted; `fields`: names of the fields.
    """

    sources: tuple[str, ...]
    method: str
    deposit: str
    dtype: str
    n_y: int
    n_x: int
    margin: int
    n_wave: int
    chunk: int
    cells: int = 1
    fields: tuple[str, ...] = ()


class Tables(eqx.Module):
    """Arrays that no particle changes: arguments of the compiled function, never constants in it.

    `alignment`: rotation to the body axes (None: the axes of the arrays); the stages hold their own tables;
    `products`: what maps are summed with (None: no maps).
    """

    alignment: Float[Array | ndarray, "3 3"] | None
    arcsec_per_kpc: Float[Array | ndarray, ""]
    grid: SpaxelGrid
    scene: tuple[AbstractSceneStage, ...]
    paint: tuple[AbstractSource, ...]
    cube: tuple[AbstractCubeStage, ...]
    products: ProductTables | None = None
    fields: tuple[AbstractField, ...] = ()
