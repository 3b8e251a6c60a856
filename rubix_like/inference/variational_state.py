"""Variational inference between two of its steps, in host arrays."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, UInt32
from numpy import ndarray

from rubix_like.config.sampling import SamplingSettings

_INACCURATE = 0.01
"""Standard deviations by which a sample may miss its equation."""


class Group(NamedTuple):
    """Samples: latents, by how many standard deviations each misses the equation that defines it, losses."""

    latent: Float[ndarray, "draw latent"]
    error: Float[ndarray, " draw"]
    loss: Float[ndarray, " draw"]


@dataclass(frozen=True)
class VariationalState:
    """Everything that is known after a step; enough to go on bit for bit.

    `keys`: of all pairs of mirrored samples, those for the mean first. `means`: where the samples were drawn about, the
    best fit first; `kl`: the mean loss of the samples about each of them once it had been moved to the next, and
    `shift` by how much, in standard deviations of the samples (largest of all latents). `latent`, `error`, `loss`: the
    draws about the last mean.
    """

    keys: UInt32[ndarray, "pair 2"]
    means: Float[ndarray, "mean latent"]
    kl: Float[ndarray, " iteration"]
    shift: Float[ndarray, " iteration"]
    latent: Float[ndarray, "draw latent"]
    error: Float[ndarray, " draw"]
    loss: Float[ndarray, " draw"]
    n_draw: Int[ndarray, ""]
    tolerance: Float[ndarray, ""]

    @classmethod
    def begin(cls, settings: SamplingSettings, best_latent: Float[ndarray, " latent"]) -> "VariationalState":
        """Before the first iteration: the keys are split here, and nowhere else."""
        chosen = settings.variational
        n_pair = (chosen.samples + chosen.draws) // 2
        start, none = np.asarray(best_latent)[None], np.zeros(0, np.asarray(best_latent).dtype)
        return cls(
            keys=np.asarray(jax.random.split(jax.random.PRNGKey(settings.seed), n_pair)),
            means=start,
            kl=none,
            shift=none,
            latent=start[:0],
            error=none,
            loss=none,
            n_draw=np.array(chosen.draws),
            tolerance=np.array(chosen.tolerance),
        )

    @property
    def mean(self) -> Float[ndarray, " latent"]:
        """Where samples are drawn about now."""
        return self.means[-1]

    @property
    def best(self) -> Float[ndarray, " latent"]:
        """The best fit, about which the first samples were drawn."""
        return self.means[0]

    @property
    def draw_keys(self) -> UInt32[ndarray, "draw 2"]:
        """The key of each draw; mirrored ones have the same."""
        return np.repeat(self.keys[len(self.keys) - int(self.n_draw) // 2 :], 2, axis=0)

    @property
    def n_iteration(self) -> int:
        """How often the mean has been moved."""
        return len(self.kl)

    @property
    def n_done(self) -> int:
        """How many draws there are."""
        return len(self.latent)

    @property
    def finished(self) -> bool:
        """Whether all draws have been made."""
        return self.n_done == int(self.n_draw)

    @property
    def n_ended(self) -> int:
        """Stages that are over: the search for the mean, the draws."""
        return int(self.n_done > 0) + int(self.finished)

    @property
    def converged(self) -> bool:
        """Whether the mean was moved by less than the tolerance at last."""
        return bool(len(self.shift)) and bool(self.shift[-1] < self.tolerance)

    def moved(self, mean: Float[ndarray, " latent"], kl: float, shift: float) -> "VariationalState":
        """After an iteration."""
        return dataclasses.replace(
            self,
            means=np.concatenate([self.means, mean[None]]),
            kl=np.append(self.kl, kl).astype(self.kl.dtype),
            shift=np.append(self.shift, shift).astype(self.shift.dtype),
        )

    def drawn(self, group: Group) -> "VariationalState":
        """With more draws."""
        return dataclasses.replace(
            self,
            latent=np.concatenate([self.latent, group.latent]),
            error=np.concatenate([self.error, group.error]),
            loss=np.concatenate([self.loss, group.loss]),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the result must know, once it is finished."""
        notes = []
        if not self.converged:
            notes.append(
                f"variational inference: the mean has not converged after {self.n_iteration} iterations: it moved by "
                f"{self.shift[-1]:.3g} standard deviations in the last one (fit.sampling.variational.tolerance "
                f"{float(self.tolerance):g}); allow more iterations, or more samples"
            )
        poor = int(np.count_nonzero(~(self.error <= _INACCURATE)))
        if poor:
            notes.append(
                f"variational inference: {poor} of {self.n_done} samples miss geoVI's equation by more than "
                f"{_INACCURATE:g} standard deviations: the posterior is strongly curved there; compare with NUTS"
            )
        lost = int(np.count_nonzero(~np.isfinite(self.loss)))
        if lost:
            notes.append(f"variational inference: the loss of {lost} of {self.n_done} samples is not a finite number")
        return tuple(notes)

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name; `from_arrays` is the inverse."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ndarray]) -> "VariationalState":
        """The state of what `arrays` returned; KeyError where something is missing."""
        return cls(**{field.name: arrays[field.name] for field in dataclasses.fields(cls)})
