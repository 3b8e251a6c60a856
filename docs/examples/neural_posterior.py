"""A neural posterior of galaxy parameters, trained on cubes of `rubix_like.simulate`, and the test of its calibration.

    python neural_posterior.py --cubes 5000 --checks 500 --output neural-posterior.png

Cubes of 25 x 25 spaxels and 300 bins, of 10,000 stars, with random inclination, PSF, dust and noise. Each cube becomes
coefficients on a few principal spectra as soon as it is computed, so that none is kept; a small convolutional network
and a conditional flow are trained on them together. Then fresh cubes are simulated: where the posterior is right, the
rank of the true value among draws from it is uniform (Talts et al. 2018, arXiv:1804.06788). Needs
`pip install 'rubix-like[fit,plots]'`.
"""

import argparse
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats

import rubix_like as rl
from rubix_like.extend import Simulations

CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 10000},
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "5 arcsec",
        "psf": {"fwhm": "1.2 arcsec"},
        "wavelength": {"start": 4800, "stop": 5173.75},
    },
    "dust": {"a_v": 0.3},
    "noise": {"signal_to_noise": 20},
    "engine": {"method": "basis", "velocity_range": "1000 km/s"},
}
PRIORS = {
    "observation.inclination": {"uniform": [0, 90]},
    "instrument.psf.fwhm": {"uniform": [0.5, 1.2]},
    "dust.a_v": {"uniform": [0, 1]},
    "noise.signal_to_noise": {"log_uniform": [5, 50]},
}

N_BIN, LEAST = 16, 1e-3
"""Bins of the flow's splines, and the least width, height and slope of one."""


class Examples(NamedTuple):
    """What the networks see of cubes, and the parameters as the prior's cumulative probability, from 0 to 1.

    `images` (n, coefficient, y, x): coefficients over the noise, as asinh; `levels` (n, 2): log10 of the noise and of
    the mean flux, about 0 and with a spread of about 1; `place` (n, parameter).
    """

    images: jax.Array
    levels: jax.Array
    place: jax.Array


class Compression(NamedTuple):
    """Principal spectra (wave, coefficient), orthonormal; mean and spread of the levels of the cubes they are of."""

    basis: jax.Array
    mean: jax.Array
    spread: jax.Array

    @classmethod
    def of(cls, flux: jax.Array, n_coefficient: int) -> "Compression":
        """Those of some cubes."""
        spectra = flux.reshape(-1, flux.shape[-1])
        basis = jnp.linalg.eigh(spectra.T @ spectra)[1][:, -n_coefficient:]
        _, levels = cls(basis, jnp.zeros(2), jnp.ones(2))(flux)
        return cls(basis, levels.mean(axis=0), levels.std(axis=0))

    @jax.jit
    def __call__(self, flux: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Images and levels of cubes (n, y, x, wave)."""
        coefficients = flux @ self.basis
        n_wave, n_coefficient = self.basis.shape
        left = (flux - coefficients @ self.basis.T) ** 2
        noise = jnp.sqrt(left.mean(axis=(1, 2, 3)) * n_wave / (n_wave - n_coefficient))
        images = jnp.arcsinh(coefficients / noise[:, None, None, None])
        levels = jnp.log10(jnp.stack([noise, jnp.abs(flux.mean(axis=(1, 2, 3)))], axis=1))
        return jnp.moveaxis(images, 3, 1), (levels - self.mean) / self.spread


def places(parameters: Mapping[str, np.ndarray], priors: Mapping[str, Any]) -> np.ndarray:
    """Cumulative probability of each parameter by its prior, uniform or log-uniform: (n, parameter)."""
    columns = []
    for name, prior in priors.items():
        ((kind, ends),) = prior.items()
        scale = {"uniform": np.asarray, "log_uniform": np.log}[kind]
        low, high = scale(np.asarray(ends, float))
        columns.append((scale(parameters[name]) - low) / (high - low))
    return np.stack(columns, axis=1)


def simulate_examples(
    config: Any, priors: Mapping[str, Any], n: int, seed: int, compression: Compression | None, n_coefficient: int = 12
) -> tuple[Examples, Compression]:
    """`n` cubes, each compressed on the device where it was made; a new compression suits the first batch."""
    images, levels = [], []
    compressed = compression

    def take(batch: Simulations) -> None:
        nonlocal compressed
        compressed = compressed or Compression.of(batch.flux, n_coefficient)
        image, level = compressed(batch.flux)
        images.append(np.asarray(image))
        levels.append(np.asarray(level))

    made = rl.simulate(config, priors=priors, n=n, seed=seed, sink=take, variance=False)
    assert compressed is not None
    place = np.asarray(places(made.parameters, priors), np.float32)
    arrays = np.concatenate(images), np.concatenate(levels), np.clip(place, 1e-6, 1 - 1e-6)
    return Examples(*map(jnp.asarray, arrays)), compressed


def spline(raw: jax.Array, x: jax.Array, *, inverse: bool) -> tuple[jax.Array, jax.Array]:
    """A monotone rational-quadratic function from (0, 1) onto itself (Durkan et al. 2019, arXiv:1906.04032, eqs. 4 to
    8), or its inverse: the value and the log of the function's slope there. `raw` has 3 N_BIN + 1 numbers."""
    widths, heights = (LEAST + (1 - N_BIN * LEAST) * jax.nn.softmax(own) for own in jnp.split(raw[: 2 * N_BIN], 2))
    slopes = LEAST + jax.nn.softplus(raw[2 * N_BIN :] + math.log(math.e - 1))
    left, low = (jnp.concatenate([jnp.zeros(1), jnp.cumsum(own)[:-1]]) for own in (widths, heights))
    k = jnp.clip(jnp.searchsorted(low if inverse else left, x, side="right") - 1, 0, N_BIN - 1)
    width, height, first, last = widths[k], heights[k], slopes[k], slopes[k + 1]
    mean = height / width
    bend = first + last - 2 * mean
    if inverse:
        y = x - low[k]
        a, b, c = height * (mean - first) + y * bend, height * first - y * bend, -mean * y
        t = jnp.clip(2 * c / (-b - jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0))), 0, 1)
    else:
        t = jnp.clip((x - left[k]) / width, 0, 1)
    below = mean + bend * t * (1 - t)
    value = left[k] + t * width if inverse else low[k] + height * (mean * t**2 + first * t * (1 - t)) / below
    slope = mean**2 * (last * t**2 + 2 * mean * t * (1 - t) + first * (1 - t) ** 2) / below**2
    return value, jnp.log(slope)


class Posterior(eqx.Module):
    """The density of the parameters given a cube: summaries by convolutions, then one spline for each parameter, which
    depends on the summaries and on the parameters before it."""

    convolutions: list[eqx.nn.Conv2d]
    summary: eqx.nn.Linear
    flows: list[eqx.nn.MLP]

    def __init__(self, shape: tuple[int, ...], n_parameter: int, key: jax.Array, width: int = 64) -> None:
        """For images of this shape (coefficient, y, x)."""
        *keys, last = jax.random.split(key, 4 + n_parameter)
        channels, side = (shape[0], 24, 32, 32), np.asarray(shape[1:])
        self.convolutions = [
            eqx.nn.Conv2d(one, other, 3, stride=2, padding=1, key=own)
            for one, other, own in zip(channels[:-1], channels[1:], keys[:3], strict=True)
        ]
        for _ in self.convolutions:
            side = -(-side // 2)
        self.summary = eqx.nn.Linear(channels[-1] * int(side.prod()) + 2, width, key=last)
        self.flows = [
            eqx.nn.MLP(width + number, 3 * N_BIN + 1, width, 2, key=own) for number, own in enumerate(keys[3:])
        ]

    def summaries(self, image: jax.Array, levels: jax.Array) -> jax.Array:
        """What the flow knows of one cube."""
        for layer in self.convolutions:
            image = jax.nn.silu(layer(image))
        return jax.nn.silu(self.summary(jnp.append(image.ravel(), levels)))

    def log_density(self, image: jax.Array, levels: jax.Array, place: jax.Array) -> jax.Array:
        """Log of the density of one cube's parameters, relative to the prior."""
        known, total = self.summaries(image, levels), jnp.zeros(())
        for flow, own in zip(self.flows, place, strict=True):
            total += spline(flow(known), own, inverse=False)[1]
            known = jnp.append(known, 2 * own - 1)
        return total

    def draws(self, image: jax.Array, levels: jax.Array, n: int, key: jax.Array) -> jax.Array:
        """Draws from the posterior of one cube: (n, parameter), as the prior's cumulative probability."""
        summaries = self.summaries(image, levels)

        def draw(uniform: jax.Array) -> jax.Array:
            known, found = summaries, []
            for flow, own in zip(self.flows, uniform, strict=True):
                place, _ = spline(flow(known), own, inverse=True)
                known = jnp.append(known, 2 * place - 1)
                found.append(place)
            return jnp.stack(found)

        return jax.vmap(draw)(jax.random.uniform(key, (n, len(self.flows))))


def loss(posterior: Posterior, examples: Examples) -> jax.Array:
    """Minus the mean log density of the true parameters."""
    return -jax.vmap(posterior.log_density)(*examples).mean()


def some(examples: Examples, rows: Any) -> Examples:
    """Some of the examples."""
    return jax.tree.map(lambda leaf: leaf[rows], examples)


def train(
    examples: Examples, epochs: int = 20, batch: int = 64, rate: float = 2e-3, seed: int = 1, left_out: float = 0.1
) -> tuple[Posterior, np.ndarray]:
    """The posterior of the epoch with the lowest loss of the share of examples that is left out, and the losses
    (epoch, 2): of the others, and of these."""
    key, own = jax.random.split(jax.random.key(seed))
    n_left_out = int(left_out * len(examples.place))
    kept_apart, used = some(examples, slice(n_left_out)), some(examples, slice(n_left_out, None))
    n_step = len(used.place) // batch
    rates = optax.cosine_decay_schedule(rate, epochs * n_step)
    optimiser = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(rates, weight_decay=1e-3))
    weights, form = eqx.partition(Posterior(examples.images.shape[1:], examples.place.shape[1], own), eqx.is_array)

    def loss_of(weights: Any, own: Examples) -> jax.Array:
        return loss(eqx.combine(weights, form), own)

    def step(carry: Any, rows: jax.Array) -> tuple[Any, jax.Array]:
        weights, state = carry
        value, slope = jax.value_and_grad(loss_of)(weights, some(used, rows))
        change, state = optimiser.update(slope, state, weights)
        return (optax.apply_updates(weights, change), state), value

    @jax.jit
    def epoch(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        rows = jax.random.permutation(key, len(used.place))[: n_step * batch].reshape(n_step, batch)
        carry, values = jax.lax.scan(step, carry, rows)
        return carry, jnp.stack([values.mean(), loss_of(carry[0], kept_apart)])

    carry, best, losses = (weights, optimiser.init(weights)), weights, []
    for own in jax.random.split(key, epochs):
        carry, value = epoch(carry, own)
        losses.append(np.asarray(value))
        best = carry[0] if losses[-1][1] <= min(other[1] for other in losses) else best
    return eqx.combine(best, form), np.stack(losses)


class Check(NamedTuple):
    """Of fresh cubes: true parameters, mean and standard deviation of the posterior (all as the prior's cumulative
    probability), and the rank of the truth among the draws, from 0 to 1: each (cube, parameter)."""

    truth: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    rank: np.ndarray

    @property
    def p_values(self) -> np.ndarray:
        """Probability that uniform ranks are as uneven as these (Kolmogorov-Smirnov), of each parameter."""
        return np.array([scipy.stats.kstest(own, "uniform").pvalue for own in self.rank.T])

    @property
    def errors(self) -> np.ndarray:
        """RMS distance of the posterior's mean from the truth over that of the prior's mean, of each parameter."""
        return np.sqrt(((self.mean - self.truth) ** 2).mean(axis=0) / ((self.truth - 0.5) ** 2).mean(axis=0))


def check(posterior: Posterior, fresh: Examples, n_draw: int = 500, seed: int = 2) -> Check:
    """Draw from the posterior of each cube."""

    @jax.jit
    def one(image: jax.Array, levels: jax.Array, key: jax.Array) -> jax.Array:
        return posterior.draws(image, levels, n_draw, key)

    keys = jax.random.split(jax.random.key(seed), len(fresh.place))
    draws = np.stack([np.asarray(one(*own)) for own in zip(fresh.images, fresh.levels, keys, strict=True)])
    truth = np.asarray(fresh.place)
    below = (draws < truth[:, None]).sum(axis=1)
    rank = (below + np.random.default_rng(seed).random(below.shape)) / (n_draw + 1)
    return Check(truth, draws.mean(axis=1), draws.std(axis=1), rank)


def table(found: Check, names: list[str]) -> str:
    """A line for each parameter."""
    lines = [
        "| parameter | width of the posterior / prior | error of its mean / prior's | p of the ranks |",
        "|---|---|---|---|",
    ]
    widths = np.sqrt((found.deviation**2).mean(axis=0) * 12)
    for name, *own in zip(names, widths, found.errors, found.p_values, strict=True):
        lines.append(f"| {name} | {own[0]:.3f} | {own[1]:.3f} | {own[2]:.3f} |")
    return "\n".join(lines)


def draw(found: Check, losses: np.ndarray, names: list[str], path: str) -> None:
    """Truth against the posterior's mean and width, and the ranks, of each parameter."""
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(2, len(names), figsize=(3.2 * len(names), 6), layout="constrained", squeeze=False)
    bins = np.linspace(0, 1, 21)
    expected = len(found.truth) / (len(bins) - 1)
    for (upper, lower), name, truth, mean, deviation, rank in zip(
        axes.T, names, found.truth.T, found.mean.T, found.deviation.T, found.rank.T, strict=True
    ):
        upper.errorbar(truth, mean, deviation, fmt=".", markersize=3, elinewidth=0.5, alpha=0.5)
        upper.plot([0, 1], [0, 1], "k--", linewidth=0.8)
        upper.set(title=name, xlabel="truth (quantile of the prior)", ylabel="posterior", xlim=(0, 1), ylim=(0, 1))
        lower.hist(rank, bins=bins)
        lower.axhspan(expected - 2 * expected**0.5, expected + 2 * expected**0.5, color="0.8", zorder=0)
        lower.set(xlabel="rank of the truth", ylabel="cubes")
    figure.suptitle(f"loss {losses[:, 1].min():.2f} of cubes left out of the training")
    figure.savefig(path, dpi=80)


def main() -> None:
    """Simulate, train, check; print seconds and the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--cubes", type=int, default=5000, help="cubes to train on")
    parser.add_argument("--checks", type=int, default=500, help="fresh cubes whose ranks are tested")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--output", help="a picture of the check (.png)")
    options = parser.parse_args()

    seconds = {}

    def timed(name: str, work: Any) -> Any:
        wall, processor = time.perf_counter(), time.process_time()
        made = work()
        seconds[name] = time.perf_counter() - wall, time.process_time() - processor
        print(f"{name}: {seconds[name][0]:.0f} s, {seconds[name][1]:.0f} s of processor time", flush=True)
        return made

    examples, compression = timed(
        f"{options.cubes} cubes", lambda: simulate_examples(CONFIG, PRIORS, options.cubes, 1, None)
    )
    posterior, losses = timed(f"{options.epochs} epochs", lambda: train(examples, options.epochs))
    print("loss of training, of cubes left out: " + "; ".join(f"{one:.2f}, {other:.2f}" for one, other in losses[::5]))
    fresh, _ = timed(
        f"{options.checks} fresh cubes", lambda: simulate_examples(CONFIG, PRIORS, options.checks, 2, compression)
    )
    found = timed("ranks", lambda: check(posterior, fresh))
    print(table(found, list(PRIORS)))
    if options.output:
        draw(found, losses, list(PRIORS), options.output)


if __name__ == "__main__":
    main()
