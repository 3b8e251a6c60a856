"""Mean and variance over samples that lie on rows of devices, without keeping what they are of.

Counts, means and sums of squared deviations are merged as by Chan, Golub & LeVeque (1979, Stanford CS-79-773).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float

from rubix_like.inference.posterior.device_rows import Kernel, Placed, on_rows
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS


class Moments(eqx.Module):
    """Moments of some samples: their number, and pytrees of their mean and of the sum of squared deviations from it."""

    count: Float[Array | np.ndarray, ""]
    mean: Any
    square: Any

    @property
    def variance(self) -> Any:
        """Variance of the samples about their mean: the sum of squares divided by their number."""
        return jax.tree.map(lambda square: square / self.count, self.square)

    def with_sample(self, sample: Any) -> "Moments":
        """The moments with one more sample."""
        count = self.count + 1
        mean = jax.tree.map(lambda old, new: old + (new - old) / count, self.mean, sample)
        deviations = jax.tree.map(lambda new, old, now: (new - old) * (new - now), sample, self.mean, mean)
        return Moments(count, mean, jax.tree.map(jnp.add, self.square, deviations))

    def of_all_rows(self) -> "Moments":
        """The moments of all rows together; inside a `jax.shard_map` only."""
        count = lax.psum(self.count, SAMPLE_AXIS)
        mean = jax.tree.map(lambda own: lax.psum(self.count * own, SAMPLE_AXIS) / count, self.mean)

        def merged(square: Array, own: Array, together: Array) -> Array:
            return lax.psum(square + self.count * (own - together) ** 2, SAMPLE_AXIS)

        return Moments(count, mean, jax.tree.map(merged, self.square, self.mean, mean))


def moments_over_samples(kernel: Kernel, mesh: Mesh, posterior: SquaredLoss, samples: Placed, *shared: Any) -> Moments:
    """Moments of `kernel(posterior, sample, *shared)`, a pytree of arrays, over all samples; to be called inside a jit.

    Each row of the mesh takes its own samples one after the other and holds two such pytrees; all devices get the
    moments of all. They are kept with 64 bits where JAX has them.
    """

    def alone(posterior: SquaredLoss, sample: Any, *shared: Any) -> tuple[Any, None]:
        return kernel(posterior, sample, *shared), None

    return moments_and_each(alone, mesh, posterior, samples, *shared)[0]


def moments_and_each(
    kernel: Kernel, mesh: Mesh, posterior: SquaredLoss, samples: Placed, *shared: Any
) -> tuple[Moments, Any]:
    """The same of the first of two pytrees that the kernel returns, and the second of every sample, small arrays that
    are kept with the axis `sample` first."""
    dtype = jax.dtypes.canonicalize_dtype(float)

    def on_each_device(
        posterior: SquaredLoss, real: Bool[Array | np.ndarray, " own"], own: Any, shared: Any
    ) -> tuple[Moments, Any]:
        def made(sample: Any) -> tuple[Any, Any]:
            summed, each = kernel(posterior, sample, *shared)
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), summed), each

        def step(moments: Moments, item: tuple[Any, Any]) -> tuple[Moments, Any]:
            """What only fills a row up is not computed."""
            is_real, sample = item

            def added() -> tuple[Moments, Any]:
                summed, each = made(sample)
                return moments.with_sample(summed), each

            return lax.cond(is_real, added, lambda: (moments, nothing[1]))

        shapes = jax.eval_shape(lambda: made(jax.tree.map(lambda leaf: leaf[0], own)))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        moments, each = lax.scan(step, Moments(jnp.zeros((), dtype), nothing[0], nothing[0]), (real, own))
        return moments.of_all_rows(), each

    specs = (PartitionSpec(), PartitionSpec(SAMPLE_AXIS))
    return on_rows(on_each_device, mesh, posterior, samples, shared, specs)
