"""The commands `rubix-like fit CONFIG` and `rubix-like sample CONFIG`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rubix_like.cli.jax_settings import set_up_jax
from rubix_like.cli.options import read_overrides
from rubix_like.config import RunConfig, load_config
from rubix_like.config.sections.fit import FitSettings
from rubix_like.inference.fitting import FIRST_STEP, FitFiles, fit
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.inference.results.result_pictures import FIT_PICTURES, SAMPLE_PICTURES
from rubix_like.inference.results.result_places import result_lines
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.inference.sampling import SampleFiles, default_output, sample
from rubix_like.plots.style import import_matplotlib
from rubix_like.runs.run_files import named_files
from rubix_like.runtime.files.outputs import given_files, with_addition
from rubix_like.runtime.files.writers import PICTURE, check_outputs
from rubix_like.runtime.progress import Progress, terminal_progress


def run_fit(options: argparse.Namespace) -> None:
    """The command: fit, write, say what came out."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    set_up_jax("float64")
    progress = terminal_progress()
    settings = config.fit or FitSettings()
    output = Path(options.output or settings.output)
    _check_pictures(options, config, output, FIT_PICTURES)
    result = fit(
        config, options.data, output=output, restart=options.restart, overwrite=options.overwrite, progress=progress
    )
    files = FitFiles.beside(output)
    written = f"Result written to {files.result}, its model to {files.model}, residuals to {files.residual}"
    _say(result, files.result, written, progress, "drawing the fit" if options.plot else None)


def run_sample(options: argparse.Namespace) -> None:
    """The command: sample, write, say what came out."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    set_up_jax("float64")
    progress = terminal_progress()
    output = Path(options.output or default_output(config.fit or FitSettings()))
    _check_pictures(options, config, output, SAMPLE_PICTURES)
    result = sample(
        config,
        options.data,
        fitted=options.fitted,
        output=output,
        restart=options.restart,
        overwrite=options.overwrite,
        progress=progress,
    )
    files = SampleFiles.beside(output)
    written = f"Draws written to {files.result}, the mean model to {files.model}, the prediction to {files.predictive}"
    _say(result, files.result, written, progress, "drawing the posterior" if options.plot else None)


def _check_pictures(options: argparse.Namespace, config: RunConfig, output: Path, ends: Sequence[str]) -> None:
    """Raise ConfigError where pictures could not be drawn, or would replace what is read or a file of others; `ends`:
    of their names."""
    if not options.plot:
        return
    import_matplotlib()
    pictures = (with_addition(output.with_suffix(".png"), f"_{end}") for end in ends)
    read = (*named_files(config), *given_files({"--data": options.data, "CONFIG": options.config}))
    check_outputs(pictures, [PICTURE], "output", read, overwrite=options.overwrite)


def _say(result: FitResult | SampleResult, place: Path, written: str, progress: Progress, drawing: str | None) -> None:
    """Print the result, where it is (`written`), and how to look at it; `drawing`: what is said while pictures are
    made."""
    print(result.summary())
    print("Time: " + ", ".join(f"{step} {seconds:.3g} s" for step, seconds in progress.timings.items()))
    if FIRST_STEP in progress.processor:
        steps = ("import", "load", "plan", "compile", FIRST_STEP)
        spent = {step: progress.processor[step] for step in steps if step in progress.processor}
        parts = ", ".join(f"{step} {seconds:.3g} s" for step, seconds in spent.items())
        print(f"Processor time to the first step: {sum(spent.values()):.3g} s ({parts})")
    print(written)
    if drawing is not None:
        with progress.step("plot", drawing):
            pictures = result.plot(place.with_suffix(""), overwrite=True)
        print(f"Pictures: {', '.join(map(str, pictures))}")
    print(*result_lines(place, type(result).__name__), sep="\n")
