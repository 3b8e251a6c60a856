"""The commands `rubix-like fit CONFIG` and `rubix-like sample CONFIG`."""

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

from rubix_like.cli.options import read_overrides
from rubix_like.config import load_config
from rubix_like.config.sections.fit import FitSettings
from rubix_like.inference.fitting import FitFiles, fit
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.inference.sampling import SampleFiles, default_output, sample
from rubix_like.plots.style import require_matplotlib
from rubix_like.runtime.progress import Progress, terminal_progress

FIT_HELP = "fit free parameters of a model to an observed cube: best values, uncertainties, residuals"

SAMPLE_HELP = "draw from the posterior of free parameters given an observed cube: NUTS, geoVI or MGVI, on all devices"


def add_inference_commands(
    add: Callable[..., argparse.ArgumentParser],
    add_config: Callable[[argparse.ArgumentParser], None],
    set_up: Callable[[str], None],
) -> None:
    """Give the command line both: `add` makes a command of its name, its function and its help, `add_config` gives it
    CONFIG and --set, and `set_up` is called with the precision before anything is computed."""
    fitting = add("fit", lambda options: run_fit(options, set_up), FIT_HELP)
    add_config(fitting)
    add_fit_options(fitting)
    sampling = add("sample", lambda options: run_sample(options, set_up), SAMPLE_HELP)
    add_config(sampling)
    add_sample_options(sampling)


def add_fit_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options of a fit, beside CONFIG and --set."""
    parser.add_argument("--data", metavar="CUBE", help="the observed cube (default: fit.data)")
    parser.add_argument("--output", metavar="PATH", help="the result's file, .h5 (default: fit.output)")
    parser.add_argument("--restart", action="store_true", help="start anew, also where a checkpoint is left")
    parser.add_argument("--plot", action="store_true", help="also draw steps, spectra, maps and parameters as PNG")


def run_fit(options: argparse.Namespace, set_up: Callable[[str], None]) -> None:
    """The command: fit, write, say what came out."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    set_up("float64")
    if options.plot:
        require_matplotlib()
    progress = terminal_progress()
    settings = config.fit or FitSettings()
    output = Path(options.output or settings.output)
    result = fit(config, options.data, output=output, resume=not options.restart, progress=progress)
    files = FitFiles.beside(output)
    written = f"Result written to {files.result}, its model to {files.model}, residuals to {files.residual}"
    _say(result, files.result, written, progress, "drawing the fit" if options.plot else None)


def add_sample_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options of a sampling, beside CONFIG and --set."""
    parser.add_argument("--data", metavar="CUBE", help="the observed cube (default: fit.data)")
    parser.add_argument("--fitted", metavar="FIT", help="the result of a fit to begin at (default: fit first)")
    parser.add_argument("--output", metavar="PATH", help="the result's file, .h5 (default: fit.sampling.output)")
    parser.add_argument("--restart", action="store_true", help="start anew, also where a checkpoint is left")
    parser.add_argument("--plot", action="store_true", help="also draw corner, traces and predictions as PNG")


def run_sample(options: argparse.Namespace, set_up: Callable[[str], None]) -> None:
    """The command: sample, write, say what came out."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    set_up("float64")
    if options.plot:
        require_matplotlib()
    progress = terminal_progress()
    output = Path(options.output or default_output(config.fit or FitSettings()))
    result = sample(
        config, options.data, fitted=options.fitted, output=output, resume=not options.restart, progress=progress
    )
    files = SampleFiles.beside(output)
    written = f"Draws written to {files.result}, the mean model to {files.model}, the prediction to {files.predictive}"
    _say(result, files.result, written, progress, "drawing the posterior" if options.plot else None)


def _say(result: FitResult | SampleResult, place: Path, written: str, progress: Progress, drawing: str | None) -> None:
    """What came out, where it is (`written`), how to look at it; `drawing`: what is said while pictures are made."""
    print(result.summary())
    print("Time: " + ", ".join(f"{step} {seconds:.3g} s" for step, seconds in progress.timings.items()))
    print(written)
    if drawing is not None:
        with progress.step("plot", drawing):
            pictures = result.plot(place.with_suffix(""))
        print(f"Pictures: {', '.join(map(str, pictures))}")
    print(f"Look at it: rubix-like plot {shlex.quote(str(place))}")
    print(f"In Python: result = rubix_like.{type(result).__name__}.read({str(place)!r})")
