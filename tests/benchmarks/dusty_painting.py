"""Time of painting stars behind dust of the gas beside that of the same stars without dust.

    python tests/benchmarks/dusty_painting.py --size 1e6 --repeat 5

RUBIX's MUSE grid and disc (`engine.py`), method `basis`. `paint` starts from known columns; `call` is the whole
compiled function, which finds the columns of as many gas particles, too. All programs are compiled first, then called
in turn in one process; processor time of all threads. Needs `rubix-like ssp get bc03-miles`.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import engine
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array

import rubix_like as rl
from rubix_like.forward.model import add_up, paint

DUST = {"kind": "particles", "curve": "cardelli", "cold": None}
FIELD = "dust_column"


class Known(eqx.Module):
    """Columns by a formula, from 0 to a few mag."""

    def at(self, position: Array) -> Array:
        """The column in front of each place."""
        return 0.1 * jnp.abs(position[:, 2]) + 0.04 * jnp.abs(position[:, 0])


def galaxy(size: int) -> rl.Galaxy:
    """The disc of stars, and as many gas particles at their places."""
    stars = engine.disc(size).stars
    count = len(stars.initial_mass)
    gas = rl.Gas(
        np.asarray(stars.position)[::-1],
        np.asarray(stars.velocity)[::-1],
        np.full(count, 5e9 / count, np.float32),
        np.full(count, 0.02, np.float32),
        smoothing_length=np.full(count, 0.3, np.float32),
    )
    return rl.Galaxy(stars=stars, gas=gas)


def programs(library: str, dust: dict[str, Any] | None, own: rl.Galaxy) -> dict[str, Callable[[], Any]]:
    """Calls of the compiled painting and of the whole compiled function."""
    config = rl.load_config(engine.CONFIG | {"ssp": {"library": library}, "dust": dust, "devices": {"data": 1}})
    pipeline = rl.Pipeline.from_config(config, own)
    arguments, whole = pipeline.arguments(own), pipeline.lower(own).compile()
    tables, parameters, placed, _ = arguments
    fields = {} if dust is None else {FIELD: Known()}

    def sums(tables: Any, parameters: Any, stars: Any) -> Any:
        return add_up(pipeline.layout, tables, paint(pipeline.plan, tables, parameters, fields, (stars,)))

    everywhere, split = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(
        sums, mesh=pipeline.layout.mesh, in_specs=(everywhere, everywhere, split), out_specs=everywhere
    )
    painted = jax.jit(mapped)
    return {
        "paint": lambda: jax.block_until_ready(painted(tables, parameters, placed.stars)),
        "call": lambda: jax.block_until_ready(whole(*arguments)),
    }


def main() -> None:
    """Print a table of medians and ratios for two libraries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=1e6, help="stars, and gas particles")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    own = galaxy(int(options.size))
    print("| library | paint s | behind dust s | ratio | call s | behind dust s |\n|---|---|---|---|---|---|")
    for library in ("popstar", "bc03-miles"):
        cases = {name: programs(library, dust, own) for name, dust in (("free", None), ("dusty", DUST))}
        calls = {(name, part): call for name, own_calls in cases.items() for part, call in own_calls.items()}
        times: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
        for turn in range(options.repeat + 1):
            for key, call in calls.items():
                start = time.process_time()
                call()
                if turn:  # the first one compiles
                    times[key].append(time.process_time() - start)
        found = {key: statistics.median(each) for key, each in times.items()}
        ratio = statistics.median(
            behind / free for behind, free in zip(times["dusty", "paint"], times["free", "paint"], strict=True)
        )
        print(
            f"| {library} | {found['free', 'paint']:.3f} | {found['dusty', 'paint']:.3f} | {ratio:.2f} | "
            f"{found['free', 'call']:.2f} | {found['dusty', 'call']:.2f} |"
        )


if __name__ == "__main__":
    main()
