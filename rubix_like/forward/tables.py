"""The split of a run into static sizes (`Plan`), arrays (`Tables`) and what can be varied (`Parameters`)."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.arguments import check_returned_shapes, plug_in_named, returned
from rubix_like.cube.footprint import Footprint
from rubix_like.engine.kernels.kernel import AbstractDepositKernel
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError
from rubix_like.forward.fields.field import AbstractField
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.product import AbstractProduct
from rubix_like.forward.sources.source import AbstractSource, ReadsParticles
from rubix_like.forward.stages.base import AbstractCubeStage, AbstractSceneStage, PaintedCube
from rubix_like.galaxy.scene import Scene
from rubix_like.runtime.mesh.mesh import as_dtype


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
    that are painted, also beyond the field; the stages hold their tables; `scene_names`, `cube_names`: theirs;
    `kernel`: adds up fields and products; `products`: what maps are made of (none: no maps).
    """

    alignment: Float[Array | ndarray, "3 3"] | None
    arcsec_per_kpc: Float[Array | ndarray, ""]
    footprint: Footprint
    grid: SpaxelGrid
    scene: tuple[AbstractSceneStage, ...]
    paint: tuple[AbstractSource, ...]
    cube: tuple[AbstractCubeStage, ...]
    kernel: AbstractDepositKernel
    products: tuple[AbstractProduct, ...] = ()
    fields: tuple[AbstractField, ...] = ()
    scene_names: tuple[str, ...] = eqx.field(static=True, default=())
    cube_names: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def painted(self) -> tuple[ReadsParticles, ...]:
        """The readers of particles in the painting pass: the sources, then the products that read particles."""
        products = [product for product in self.products if product.kind is not None]
        return (*self.paint, *products)  # pyright: ignore[reportReturnType]

    @property
    def reads_gas(self) -> bool:
        """Whether a field, a source or maps read the gas, so that it must be there."""
        return any(reader.kind == "gas" for reader in (*self.fields, *self.painted))

    def scene_after(self, number: int, scene: Scene, parameters: Parameters) -> Scene:
        """The scene after one of the stages; raises ConfigError for a stage that returns none of these particles."""
        stage, call = self.scene[number], f"stage '{self.scene_names[number]}': `__call__`"
        with plug_in_named(call, stage):
            after = returned(stage(scene, parameters), Scene, call, "a Scene")
        kept = {name: getattr(scene, name) for name in ("position", "velocity", "amount", "weight")}
        shapes = {name: (getattr(after, name), np.shape(before)) for name, before in kept.items()}
        check_returned_shapes(call, shapes, scene.amount.dtype)
        lost = scene.coordinates.keys() - after.coordinates.keys()
        if lost:
            raise ConfigError(f"{call} must keep the coordinate '{min(lost)}', got a Scene without it")
        if after.weight is scene.weight:
            return after
        return replace(after, weight=jnp.minimum(after.weight, scene.weight))  # particles can be taken out alone

    def cube_after(
        self, number: int, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None
    ) -> PaintedCube:
        """The cube after one of the stages; raises ConfigError for a stage that returns none of the shape it must."""
        stage, call = self.cube[number], f"stage '{self.cube_names[number]}': `__call__`"
        with plug_in_named(call, stage):
            after = returned(stage(cube, parameters, key), PaintedCube, call, "a PaintedCube")
        if stage.margin and after.footprint.shape == cube.footprint.shape:
            raise ConfigError(
                f"{call} must return the cube on cube.footprint.within({stage.margin}), as its margin says, got it on "
                f"all of cube.footprint; see docs/how-to-extend.md"
            )
        voxels = (after.footprint.n_element, cube.flux.shape[1])
        arrays = {name: getattr(after, name) for name in ("flux", "variance", "truth", "bits")} | after.contributions
        moments = {"moments": (after.moments, (voxels[0], cube.moments.shape[1]))}
        check_returned_shapes(call, {name: (array, voxels) for name, array in arrays.items()} | moments)
        dtypes = {name: array.dtype for name, array in arrays.items() if array is not None and name != "bits"}
        for name, dtype in (dtypes | {"moments": after.moments.dtype}).items():
            if not np.issubdtype(dtype, np.floating) or np.promote_types(dtype, cube.flux.dtype) != dtype:
                raise ConfigError(
                    f"{call} must return {name} as {cube.flux.dtype}, the type of cube.flux, got {dtype}; return "
                    f"{name}.astype(cube.flux.dtype)"
                )
        made = {name: getattr(after, name) for name in ("flux", "variance", "truth", "moments", "contributions")}
        return replace(after, **as_dtype(made, str(cube.flux.dtype)))  # a stage's tables may be in 64 bits
