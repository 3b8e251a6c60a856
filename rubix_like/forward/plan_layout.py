"""Where a run lies on its mesh, by its settings and its size."""

from jax.sharding import Mesh

from rubix_like.config.run_config import DevicesSettings
from rubix_like.engine.cost import rates_here
from rubix_like.runtime.mesh.mesh import DATA_AXIS, WAVE_AXIS, DeviceLayout, check_mesh, make_mesh


def mesh_of(devices: DevicesSettings) -> Mesh:
    """The devices that the settings name; ConfigError where there are fewer."""
    return make_mesh(None if devices.data == "all" else devices.data, devices.wave)


def plan_layout(
    devices: DevicesSettings, mesh: Mesh | None, n_wave: int, projected: tuple[tuple[int, int], ...]
) -> DeviceLayout:
    """A run's devices (None: as the settings say) and what each of them holds; ConfigError where that cannot be.

    `projected`: of each source the spaxels that are projected on the detector, and from how many coefficients each.
    Where that takes long, devices share the bins even if all of them get the whole cube in the end.
    """
    used = mesh_of(devices) if mesh is None else mesh
    check_mesh(used)
    sharded = devices.output == "sharded" or (devices.output is None and WAVE_AXIS in used.axis_names)
    n_data = used.shape[DATA_AXIS]
    rates = rates_here()
    alone = sum(rates.projection_seconds(n_spaxel, n_coefficient, n_wave) for n_spaxel, n_coefficient in projected)
    together = sum(rates.gather_seconds(n_spaxel * n_wave) for n_spaxel, _ in projected)
    return DeviceLayout.build(used, n_wave, sharded=sharded, shared=alone * (1 - 1 / n_data) > together)
