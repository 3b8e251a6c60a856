"""The command `rubix-like simulate CONFIG`."""

import argparse
import shlex
from pathlib import Path

import numpy as np

from rubix_like.cli.options import read_overrides
from rubix_like.config import load_config
from rubix_like.config.loading import observation_overrides
from rubix_like.config.sections.fit import SimulateSettings
from rubix_like.inference.simulation.simulation_files import Simulations
from rubix_like.inference.simulation.training_sets import simulate, simulate_observations
from rubix_like.runtime.compiled_programs import set_up_jax
from rubix_like.runtime.progress import terminal_progress
from rubix_like.runtime.words import counted


def run_simulations(options: argparse.Namespace) -> None:
    """The command: simulate, write, say what came out and how to read it."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    set_up_jax(config.engine.precision)
    progress = terminal_progress()
    folder = Path(options.output or (config.simulate or SimulateSettings()).output)
    chosen = {"restart": options.restart, "overwrite": options.overwrite}
    if observation_overrides(config):
        made = simulate_observations(config, n=options.n, output=folder, progress=progress, **chosen)
        folders = {folder / name: simulations for name, simulations in made.items()}
    else:
        folders = {folder: simulate(config, n=options.n, output=folder, progress=progress, **chosen)}
    for place, simulations in folders.items():
        if len(folders) > 1:
            print(f"{place.name}:")
        print(*_lines(simulations), sep="\n")
    print("Time: " + ", ".join(f"{step} {seconds:.3g} s" for step, seconds in progress.timings.items()))
    for place in folders:
        print(f"Simulations written to {place}")
        print(f"Look at them: rubix-like inspect {shlex.quote(str(place))}")
        print(f"In Python: simulations = rubix_like.load_simulations({str(place)!r})")


def _lines(made: Simulations) -> list[str]:
    size = " x ".join(map(str, made.mask.shape))
    kept = f" ({len(made) - made.n_kept} new, {made.n_kept} kept)" if made.n_kept else ""
    lines = [f"{counted(len(made), 'simulation')}{kept}: cubes of {size} (y, x, wavelength)"]
    for name, values in made.parameters.items():
        unit = f" {made.units[name]}" if made.units[name] else ""
        lines.append(f"  {name:32s} {np.min(values):.4g} to {np.max(values):.4g}{unit}")
    return lines
