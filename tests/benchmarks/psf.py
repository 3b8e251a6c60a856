"""Ways to apply a PSF, side by side: shifted sums, FFT, banded matrices; before projection and after it; whole cubes.

    python tests/benchmarks/psf.py [--repeat 5]
    python tests/benchmarks/psf.py --tables cubes --repeat 3                 # 1e6 stars, 300 x 300 x 3721: 5 GB
    python tests/benchmarks/psf.py --tables cubes --side 100 --size 13143 --library bc03-miles

Every time is that of a compiled function whose result is waited for; the median of `--repeat` runs that take turns. Of
cubes it is processor time of all cores; with `--peak` each kind of PSF also runs in a process of its own for its peak
memory. The galaxy and the instrument are those of `engine.py`; needs `rubix-like ssp get bc03-lr` or `bc03-miles`.
"""

import argparse
import copy
import functools
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from engine import CONFIG, disc
from jax import lax
from measuring import head, medians, peak_gb

from rubix_like import Pipeline, load_config
from rubix_like.instrument import blur
from rubix_like.instrument.psf import moffat_image
from rubix_like.physics.gaussian import gaussian_weights

FIELDS = ((25, 3), (25, 10), (25, 35), (100, 6), (100, 35), (300, 6), (300, 35))
"""(spaxels of the field's side, reach of the PSF)."""

N_IMAGES = 64


def wall_of(ways, repeat):
    """Median seconds of each (function, *arguments), compiled."""
    calls = {name: functools.partial(jax.jit(function), *arguments) for name, (function, *arguments) in ways.items()}
    return medians(calls, repeat, time.perf_counter)


def by_fft(images, psf):
    """Every image by FFT, whatever the sizes."""
    spectrum = jnp.fft.rfft2(psf, blur._fft_shape(*images.shape[:2]))
    stack = jnp.moveaxis(images, 2, 0)
    one = lax.map(lambda image: blur._by_fft(image, spectrum, len(psf)), stack, batch_size=blur._IMAGES_AT_ONCE)
    return jnp.moveaxis(one, 0, 2)


def kinds(repeat):
    """Milliseconds per image of each way, and which one the rule takes."""
    print(head("field", "PSF", "shifted sums", "FFT", "the rule takes", "Gaussian: bands"))
    rng = np.random.default_rng(1)
    for n, reach in FIELDS:
        side = n + 2 * reach
        images = jnp.asarray(rng.random((side, side, N_IMAGES), dtype=np.float32))
        psf = moffat_image(jnp.float32(3.0), jnp.float32(2.5), reach)
        weights = ((jnp.float32(1.0), gaussian_weights(jnp.float32(reach / 3.72), reach)),)
        ways = {"fft": (by_fft, images, psf), "bands": (blur.blur_separable, images, weights)}
        if n**2 * (2 * reach + 1) ** 2 < 2e8:
            ways["shifts"] = (blur._by_shifts, images, psf)
        ways["rule"] = (blur.blur, images, psf)
        found = {name: 1e3 * seconds / N_IMAGES for name, seconds in wall_of(ways, repeat).items()}
        shifts = f"{found['shifts']:.3f}" if "shifts" in found else "-"
        width = 2 * reach + 1
        numbers = f"{shifts} | {found['fft']:.3f} | {found['rule']:.3f} | {found['bands']:.3f}"
        print(f"| {n} x {n} | {width} x {width} | {numbers} |", flush=True)


def order(repeat):
    """Seconds for PSF and projection of a field, in both orders."""
    print("\n" + head("field", "coefficients x bins", "before projection", "after it", "ratio"))
    rng = np.random.default_rng(2)
    for n, reach, columns, n_wave in ((25, 10, 1000, 3721), (25, 35, 1000, 3721), (75, 35, 1000, 3721)):
        side = n + 2 * reach
        painted = jnp.asarray(rng.random((side, side, columns), dtype=np.float32))
        matrix = jnp.asarray(rng.random((columns, n_wave), dtype=np.float32))
        psf = moffat_image(jnp.float32(3.0), jnp.float32(2.5), reach)

        def project(images, matrix=matrix):
            return jnp.matmul(images, matrix, precision=lax.Precision.HIGHEST)

        ways = {
            "before": (lambda painted, psf: project(blur.blur(painted, psf)), painted, psf),
            "after": (lambda painted, psf: blur.blur(project(painted), psf), painted, psf),
        }
        found = wall_of(ways, repeat)
        numbers = f"{found['before']:.2f} s | {found['after']:.2f} s | {found['after'] / found['before']:.1f}"
        print(f"| {n} x {n}, reach {reach} | {columns} x {n_wave} | {numbers} |", flush=True)


PSFS = {
    "none": None,
    "Gaussian": {"fwhm": 0.8},
    "Moffat": {"kind": "moffat", "fwhm": 0.8, "beta": 2.8},
    "Moffat, chromatic": {"kind": "moffat", "beta": 2.8, "wavelength": [4750, 7000, 9350], "fwhm": [0.9, 0.8, 0.7]},
}
"""PSFs of the whole cubes, 0.8 arcsec (4 spaxels) wide in the middle of the range."""


def pipeline_of(name, galaxy, options):
    """The pipeline of a cube with one of the PSFs."""
    config = copy.deepcopy(CONFIG)
    config["ssp"] = {"library": options.library}
    config["instrument"] |= {"fov": 0.2 * options.side, "psf": PSFS[name]}
    return Pipeline.from_config(load_config(config), galaxy)


def peak(name, options):
    """GB of a process that makes one cube twice."""
    command = [sys.executable, __file__, "--tables", "cubes", "--one", name, "--library", options.library]
    command += ["--side", str(options.side), "--size", str(options.size)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])["gb"]


def cubes(options):
    """Processor seconds and memory of whole cubes, with each PSF."""
    galaxy = disc(int(options.size))
    names = list(PSFS) if options.one is None else [options.one]
    pipelines = {name: pipeline_of(name, galaxy, options) for name in names}
    calls = {name: lambda pipeline=pipeline: pipeline(galaxy).flux for name, pipeline in pipelines.items()}
    found = medians(calls, options.repeat if options.one is None else 1)
    if options.one is not None:
        print(json.dumps({"gb": peak_gb()}))
        return
    n_wave = pipelines["none"].plan.n_wave
    print(f"\n{options.size:g} stars, {options.side} x {options.side} x {n_wave}, {options.library}, method basis\n")
    print(head("PSF", "images convolved", "processor s", "ratio", "error", "peak GB"))
    for name, pipeline in pipelines.items():
        coefficients = pipeline.tables.paint[0].painter.coefficient_map
        n_image = 0 if name == "none" else sum(coefficients.sizes)
        error = pipeline.frame.meta.get("basis_psf_error")
        gb, stated = f"{peak(name, options):.1f}" if options.peak else "-", "-" if error is None else f"{error:.1e}"
        ratio = found[name] / found["none"]
        print(f"| {name} | {n_image} | {found[name]:.3g} | {ratio:.2f} | {stated} | {gb} |", flush=True)


def main():
    """The tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tables", nargs="+", default=["kinds", "order"], choices=["kinds", "order", "cubes"])
    parser.add_argument("--library", default="bc03-lr")
    parser.add_argument("--side", type=int, default=300)
    parser.add_argument("--size", type=float, default=1e6)
    parser.add_argument("--peak", action="store_true", help="also the peak memory of each cube, in its own process")
    parser.add_argument("--one", choices=list(PSFS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is None:
        print(f"{jax.devices()[0].device_kind} x {jax.device_count()}, JAX {jax.__version__}\n")
    if "kinds" in options.tables:
        kinds(options.repeat)
    if "order" in options.tables:
        order(options.repeat)
    if "cubes" in options.tables:
        cubes(options)


if __name__ == "__main__":
    main()
