"""Time of a galaxy in slabs against all of it at once, by both methods.

    python tests/benchmarks/streaming.py [N_STARS]

25 x 25 spaxels and 3681 bins; slabs are cut from arrays in memory, so that no disk is measured. Times are the least of
three, after everything is compiled; processor seconds beside them, for a machine that is shared.
"""

import itertools
import sys
import time

import jax
import numpy as np

from rubix_like import Pipeline, load_config, load_galaxy


def timed(act):
    """Least wall and processor seconds of three, after a first time."""
    act()
    found = []
    for _ in range(3):
        wall, processor = time.perf_counter(), time.process_time()
        act()
        found.append((time.perf_counter() - wall, time.process_time() - processor))
    return tuple(min(column) for column in zip(*found, strict=True))


def rows(method, n_stars):
    config = load_config(
        {
            "galaxy": {"reader": "synthetic", "n_stars": n_stars},
            "observation": {"redshift": 0.1, "inclination": 40, "position_angle": 0},
            "instrument": {"name": "muse", "fov": "5 arcsec"},
            "engine": {"method": method},
            "devices": {"data": 1},
        }
    )
    galaxy = jax.tree.map(np.asarray, load_galaxy(config))
    pipeline = Pipeline.from_config(config, galaxy)
    yield "all at once", timed(lambda: jax.block_until_ready(pipeline(galaxy).flux))
    for n_slab in (1, 4, 16, 64):
        yield (
            f"{n_slab} slabs",
            timed(lambda n=n_slab: jax.block_until_ready(pipeline.observe_slabs(cut(galaxy, n)).flux)),
        )


def cut(galaxy, n_slab):
    """The galaxy in slabs of the same size."""
    edges = np.linspace(0, len(galaxy.stars.initial_mass), n_slab + 1).astype(int)
    for first, last in itertools.pairwise(edges):
        yield jax.tree.map(lambda leaf, first=first, last=last: leaf[first:last], galaxy)


def main(n_stars):
    print("| method | stars | | seconds | processor seconds |\n|---|---|---|---|---|")
    for method, share in (("basis", 1), ("direct", 100)):
        for way, (wall, processor) in rows(method, n_stars // share):
            print(f"| {method} | {n_stars // share} | {way} | {wall:.3g} | {processor:.3g} |", flush=True)


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000)
