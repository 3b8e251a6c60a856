"""Where a run lies on its mesh: the particles along one axis, the bins of the detector in parts."""

from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Num

from rubix_like.runtime.mesh.bin_split import WHOLE, BinSplit
from rubix_like.runtime.mesh.mesh import DATA_AXIS, WAVE_AXIS, mesh_of_shape


@dataclass(frozen=True)
class DeviceLayout:
    """What the devices of a mesh hold of the detector's bins.

    `painted`: while particles are painted, parts along "wave"; `split`: once they are added up, the same parts or
    finer ones, along "data", too; `gathered`: every device gets the whole cube in the end.
    """

    mesh: Mesh
    painted: BinSplit
    split: BinSplit
    gathered: bool

    @classmethod
    def build(cls, mesh: Mesh, n_wave: int, *, sharded: bool, shared: bool = False) -> "DeviceLayout":
        """`sharded`: every device ends with its own part of the cube; `shared`: it has only such a part to finish."""
        n_data, n_part = mesh.shape[DATA_AXIS], mesh.shape.get(WAVE_AXIS, 1)
        parts = (WAVE_AXIS,) if n_part > 1 else ()
        axes = (*parts, DATA_AXIS) if sharded or shared else parts
        n_shard = n_part * (n_data if sharded or shared else 1)
        split = BinSplit(n_wave, n_shard, axes) if axes else WHOLE
        painted = BinSplit(split.n_padded, n_part, parts) if parts else WHOLE
        return cls(mesh, painted, split, gathered=not sharded)

    def __reduce__(self) -> tuple[Any, ...]:
        """What pickle keeps: devices are those of a process, so only their number along each axis."""
        return _unpickled, (dict(self.mesh.shape), self.painted, self.split, self.gathered)

    @property
    def n_data(self) -> int:
        """Devices along "data"."""
        return self.mesh.shape[DATA_AXIS]

    @property
    def scatters(self) -> bool:
        """Whether what is added up along "data" is kept in parts there."""
        return DATA_AXIS in self.split.axes

    def own_bins(self, painted: Num[Array, "... part"]) -> Num[Array, "... own"]:
        """The bins that are finished here, of an array over those that are painted here."""
        if not self.scatters:
            return painted
        start = lax.axis_index(DATA_AXIS) * self.split.n_own
        return lax.dynamic_slice_in_dim(painted, start, self.split.n_own, axis=painted.ndim - 1)

    def shardings(self, specs: Any) -> Any:
        """The tree of shardings for a tree of PartitionSpecs."""
        return jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), specs, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec)
        )


def _unpickled(shape: dict[str, int], painted: BinSplit, split: BinSplit, gathered: bool) -> DeviceLayout:
    """The layout on the first devices of this process; raises ConfigError where there are fewer."""
    return DeviceLayout(mesh_of_shape(shape), painted, split, gathered)
