"""The commands `rubix-like fit CONFIG`, `rubix-like sample CONFIG` and `rubix-like simulate CONFIG`."""

import argparse
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rubix_like.cli.options import read_overrides
from rubix_like.config import RunConfig, load_config
from rubix_like.config.loading import observation_overrides
from rubix_like.config.sections.fit import FitSettings, SimulateSettings
from rubix_like.inference.fitting import FIRST_STEP, default_output, fit, sample
from rubix_like.inference.results.result_pictures import FIT_PICTURES, SAMPLE_PICTURES
from rubix_like.inference.results.results import FitResult, ResultFiles, SampleResult, result_lines
from rubix_like.inference.simulation.training_sets import simulate, simulate_observations
from rubix_like.plots.style import import_matplotlib
from rubix_like.runs.run_files import named_files
from rubix_like.runtime.compiled_programs import set_up_jax
from rubix_like.runtime.files.outputs import given_files, with_addition
from rubix_like.runtime.files.writers import PICTURE, check_outputs
from rubix_like.runtime.progress import Progress, terminal_progress
from rubix_like.runtime.words import counted


def run_fit(options: argparse.Namespace) -> None:
    """Fit, write, and print the result."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    files = ResultFiles.of_fit(Path(options.output or (config.fit or FitSettings()).output))
    written = "Result written to {}, its model to {}, residuals to {}"
    _run(options, config, fit, files, FIT_PICTURES, written, "the fit")


def run_sample(options: argparse.Namespace) -> None:
    """Sample, write, and print the result."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    files = ResultFiles.of_samples(Path(options.output or default_output(config.fit or FitSettings())))
    written = "Draws written to {}, the mean model to {}, the prediction to {}"
    _run(options, config, partial(sample, fitted=options.fitted), files, SAMPLE_PICTURES, written, "the posterior")


def _run(
    options: argparse.Namespace,
    config: RunConfig,
    infer: Callable[..., FitResult | SampleResult],
    files: ResultFiles,
    pictures: Sequence[str],
    written: str,
    drawn: str,
) -> None:
    """Infer, print the result, where it is, and how to look at it; `pictures`: the ends of their names.

    Raises ConfigError first where pictures could not be drawn, or would replace what is read or a file of others.
    """
    set_up_jax("float64")
    progress = terminal_progress()
    if options.plot:
        import_matplotlib()
        places = (with_addition(files.result.with_suffix(".png"), f"_{end}") for end in pictures)
        read = (*named_files(config), *given_files({"--data": options.data, "CONFIG": options.config}))
        check_outputs(places, [PICTURE], "output", read, overwrite=options.overwrite)
    chosen = {"restart": options.restart, "overwrite": options.overwrite}
    result = infer(config, options.data, output=files.result, progress=progress, **chosen)
    print(result.summary())
    print(_time_line(progress))
    if FIRST_STEP in progress.processor:
        steps = ("import", "load", "plan", "compile", FIRST_STEP)
        spent = {step: progress.processor[step] for step in steps if step in progress.processor}
        parts = ", ".join(f"{step} {seconds:.3g} s" for step, seconds in spent.items())
        print(f"Processor time to the first step: {sum(spent.values()):.3g} s ({parts})")
    print(written.format(files.result, *files.cubes.values()))
    if options.plot:
        with progress.step("plot", f"drawing {drawn}"):
            drawings = result.plot(files.result.with_suffix(""), overwrite=True)
        print(f"Pictures: {', '.join(map(str, drawings))}")
    print(*result_lines(files.result, type(result).__name__), sep="\n")


def _time_line(progress: Progress) -> str:
    return "Time: " + ", ".join(f"{step} {seconds:.3g} s" for step, seconds in progress.timings.items())


def run_simulations(options: argparse.Namespace) -> None:
    """Simulate, write, and print what is in the training sets and how to read them."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    set_up_jax(config.engine.precision)
    progress = terminal_progress()
    folder = Path(options.output or (config.simulate or SimulateSettings()).output)
    chosen = {"restart": options.restart, "overwrite": options.overwrite}
    if observation_overrides(config):
        by_name = simulate_observations(config, n=options.n, output=folder, progress=progress, **chosen)
        folders = {folder / name: simulations for name, simulations in by_name.items()}
    else:
        folders = {folder: simulate(config, n=options.n, output=folder, progress=progress, **chosen)}
    for place, simulations in folders.items():
        if len(folders) > 1:
            print(f"{place.name}:")
        size, n_kept = " x ".join(map(str, simulations.mask.shape)), simulations.n_kept
        kept = f" ({len(simulations) - n_kept} new, {n_kept} kept)" if n_kept else ""
        print(f"{counted(len(simulations), 'simulation')}{kept}: cubes of {size} (y, x, wavelength)")
        for name, values in simulations.parameters.items():
            unit = f" {simulations.units[name]}" if simulations.units[name] else ""
            print(f"  {name:32s} {np.min(values):.4g} to {np.max(values):.4g}{unit}")
    print(_time_line(progress))
    for place in folders:
        print(f"Simulations written to {place}")
        print(f"Look at them: rubix-like inspect {shlex.quote(str(place))}")
        print(f"In Python: simulations = rubix_like.load_simulations({str(place)!r})")
