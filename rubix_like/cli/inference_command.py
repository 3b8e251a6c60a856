"""The commands `rubix-like fit CONFIG` and `rubix-like sample CONFIG`."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rubix_like.cli.options import read_overrides
from rubix_like.config import RunConfig, load_config
from rubix_like.config.sections.fit import FitSettings
from rubix_like.inference.fitting import FIRST_STEP, default_output, fit, sample
from rubix_like.inference.results.result_pictures import FIT_PICTURES, SAMPLE_PICTURES
from rubix_like.inference.results.results import FitResult, ResultFiles, SampleResult, result_lines
from rubix_like.plots.style import import_matplotlib
from rubix_like.runs.run_files import named_files
from rubix_like.runtime.compiled_programs import set_up_jax
from rubix_like.runtime.files.outputs import given_files, with_addition
from rubix_like.runtime.files.writers import PICTURE, check_outputs
from rubix_like.runtime.progress import terminal_progress


def run_fit(options: argparse.Namespace) -> None:
    """The command: fit, write, say what came out."""
    config = _config(options)
    files = ResultFiles.of_fit(Path(options.output or (config.fit or FitSettings()).output))
    written = "Result written to {}, its model to {}, residuals to {}"
    _run(options, config, fit, files, FIT_PICTURES, written, "the fit")


def run_sample(options: argparse.Namespace) -> None:
    """The command: sample, write, say what came out."""
    config = _config(options)
    files = ResultFiles.of_samples(Path(options.output or default_output(config.fit or FitSettings())))
    written = "Draws written to {}, the mean model to {}, the prediction to {}"
    _run(options, config, partial(sample, fitted=options.fitted), files, SAMPLE_PICTURES, written, "the posterior")


def _config(options: argparse.Namespace) -> RunConfig:
    config = load_config(options.config, overrides=read_overrides(options.set))
    set_up_jax("float64")
    return config


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
    progress = terminal_progress()
    if options.plot:
        import_matplotlib()
        places = (with_addition(files.result.with_suffix(".png"), f"_{end}") for end in pictures)
        read = (*named_files(config), *given_files({"--data": options.data, "CONFIG": options.config}))
        check_outputs(places, [PICTURE], "output", read, overwrite=options.overwrite)
    chosen = {"restart": options.restart, "overwrite": options.overwrite}
    result = infer(config, options.data, output=files.result, progress=progress, **chosen)
    print(result.summary())
    print("Time: " + ", ".join(f"{step} {seconds:.3g} s" for step, seconds in progress.timings.items()))
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
