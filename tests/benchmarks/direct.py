"""Time and memory of method `direct` against the number of particles, side by side with RUBIX where it is at hand.

    python tests/benchmarks/direct.py [--sizes 1e3 1e4 1e5] [--repeat 5] [--gradient]
        [--peer PYTHON_OF_AN_ENVIRONMENT_WITH_RUBIX --peer-script run_rubix.py]

The same work for both: RUBIX's MUSE grid (25 x 25 spaxels, 3721 bins), the BC03 low-resolution library, an
exponential disc at redshift 0.1, no PSF, LSF or noise on our side; times after block_until_ready, medians. RUBIX is
timed by a script that prints one JSON line with `run_median_s` (its pipeline jitted once). Needs
`rubix-like ssp get bc03-lr`.
"""

import argparse
import json
import resource
import statistics
import subprocess
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rubix_like import Galaxy, Pipeline, Stars, load_config

CONFIG = {
    "ssp": {"library": "bc03-lr"},
    "observation": {"redshift": 0.1, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "5 arcsec",
        "wavelength": {"start": 4700.15, "stop": 9350.15, "step": 1.25},
        "psf": None,
        "lsf": None,
    },
}


def disc(n_stars: int) -> Galaxy:
    """An exponential disc with flat ages and log-flat metallicities, inclined by 60 degrees."""
    rng = np.random.default_rng(42)
    radius, angle = rng.gamma(2.0, 3.0, n_stars), rng.uniform(0, 2 * np.pi, n_stars)
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), rng.laplace(0.0, 0.3, n_stars)], axis=1)
    speed = 200.0 * np.tanh(radius)
    velocity = np.stack([-speed * np.sin(angle), speed * np.cos(angle), np.zeros(n_stars)], axis=1)
    velocity += rng.normal(0, 30.0, (n_stars, 3))
    cosine, sine = 0.5, np.sqrt(0.75)
    turn = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
    stars = Stars(
        position=jnp.asarray(position @ turn.T, jnp.float32),
        velocity=jnp.asarray(velocity @ turn.T, jnp.float32),
        initial_mass=jnp.full(n_stars, 1e10 / n_stars, jnp.float32),
        log_age=jnp.asarray(np.log10(rng.uniform(1e9, 1e10, n_stars)), jnp.float32),
        metallicity=jnp.asarray(10 ** rng.uniform(-3, np.log10(0.04), n_stars), jnp.float32),
    )
    return Galaxy(stars=stars)


def timed(function: Any, repeat: int) -> tuple[float, float]:
    """(first call, median of `repeat` further calls) in seconds."""
    times = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[1:])


def ours(n_stars: int, repeat: int, gradient: bool) -> dict[str, float]:
    galaxy = disc(n_stars)
    pipeline = Pipeline.from_config(load_config(CONFIG), galaxy)
    first, run = timed(lambda: pipeline(galaxy).flux, repeat)
    row = {"first": first, "run": run}
    if gradient:
        loss = jax.jit(jax.grad(lambda galaxy: jnp.sum(pipeline(galaxy).flux ** 2)))
        row["gradient"] = timed(lambda: loss(galaxy), repeat)[1]
    row["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return row


def peer(options: argparse.Namespace, n_stars: int, method: str) -> float:
    command = [options.peer, options.peer_script, str(n_stars), "MUSE", str(options.repeat), "--method", method]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])["run_median_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=float, default=[1e3, 1e4, 1e5])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--peer")
    parser.add_argument("--peer-script")
    options = parser.parse_args()
    print(
        "| particles | first call s | run s | gradient s | peak GB | RUBIX linear s | ratio | RUBIX cubic s | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for size in options.sizes:
        row = ours(int(size), options.repeat, options.gradient)
        cells = [f"{size:.0e}", f"{row['first']:.2f}", f"{row['run']:.3f}"]
        cells += [f"{row['gradient']:.2f}" if options.gradient else "-", f"{row['peak_gb']:.2f}"]
        for method in ("linear", "cubic"):
            if options.peer is None:
                cells += ["-", "-"]
                continue
            seconds = peer(options, int(size), method)
            cells += [f"{seconds:.2f}", f"{seconds / row['run']:.1f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
