"""Ways to apply a PSF, side by side: shifted sums, FFT, banded matrices; before projection and after it.

    python tests/benchmarks/psf.py [--repeat 5]

Every time is that of a compiled function whose result is waited for; the median of `--repeat` runs that take turns.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rubix_like.instrument import blur
from rubix_like.instrument.psf import moffat_image
from rubix_like.physics.gaussian import gaussian_weights

FIELDS = ((25, 3), (25, 10), (25, 35), (100, 6), (100, 35), (300, 6), (300, 35))
"""(spaxels of the field's side, reach of the PSF)."""

N_IMAGES = 64


def medians(ways, repeat):
    """Median seconds of each (function, arguments)."""
    compiled = {name: (jax.jit(function), arguments) for name, (function, arguments) in ways.items()}
    times = {name: [] for name in ways}
    for turn in range(repeat + 1):
        for name, (function, arguments) in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def by_fft(images, psf):
    """Every image by FFT, whatever the sizes."""
    spectrum = jnp.fft.rfft2(psf, blur._fft_shape(*images.shape[:2]))
    stack = jnp.moveaxis(images, 2, 0)
    one = lax.map(lambda image: blur._by_fft(image, spectrum, len(psf)), stack, batch_size=blur._IMAGES_AT_ONCE)
    return jnp.moveaxis(one, 0, 2)


def kinds(repeat):
    """Milliseconds per image of each way, and which one the rule takes."""
    print("| field | PSF | shifted sums | FFT | the rule takes | Gaussian: bands |\n|---|---|---|---|---|---|")
    rng = np.random.default_rng(1)
    for n, reach in FIELDS:
        side = n + 2 * reach
        images = jnp.asarray(rng.random((side, side, N_IMAGES), dtype=np.float32))
        psf = moffat_image(jnp.float32(3.0), jnp.float32(2.5), reach)
        weights = ((jnp.float32(1.0), gaussian_weights(jnp.float32(reach / 3.72), reach)),)
        ways = {"fft": (by_fft, (images, psf)), "bands": (blur.blur_separable, (images, weights))}
        if n**2 * (2 * reach + 1) ** 2 < 2e8:
            ways["shifts"] = (blur._by_shifts, (images, psf))
        ways["rule"] = (blur.blur, (images, psf))
        found = {name: 1e3 * seconds / N_IMAGES for name, seconds in medians(ways, repeat).items()}
        shifts = f"{found['shifts']:.3f}" if "shifts" in found else "-"
        width = 2 * reach + 1
        print(
            f"| {n} x {n} | {width} x {width} | {shifts} | {found['fft']:.3f} | {found['rule']:.3f} | "
            f"{found['bands']:.3f} |",
            flush=True,
        )


def order(repeat):
    """Seconds for PSF and projection of a field, in both orders."""
    print("\n| field | coefficients x bins | before projection | after it | ratio |\n|---|---|---|---|---|")
    rng = np.random.default_rng(2)
    for n, reach, columns, n_wave in ((25, 10, 1000, 3721), (25, 35, 1000, 3721), (75, 35, 1000, 3721)):
        side = n + 2 * reach
        painted = jnp.asarray(rng.random((side, side, columns), dtype=np.float32))
        matrix = jnp.asarray(rng.random((columns, n_wave), dtype=np.float32))
        psf = moffat_image(jnp.float32(3.0), jnp.float32(2.5), reach)

        def project(images, matrix=matrix):
            return jnp.matmul(images, matrix, precision=lax.Precision.HIGHEST)

        ways = {
            "before": (lambda painted, psf: project(blur.blur(painted, psf)), (painted, psf)),
            "after": (lambda painted, psf: blur.blur(project(painted), psf), (painted, psf)),
        }
        found = medians(ways, repeat)
        print(
            f"| {n} x {n}, reach {reach} | {columns} x {n_wave} | {found['before']:.2f} s | {found['after']:.2f} s | "
            f"{found['after'] / found['before']:.1f} |",
            flush=True,
        )


def main():
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    print(f"{jax.devices()[0].device_kind} x {jax.device_count()}, JAX {jax.__version__}, milliseconds per image\n")
    kinds(repeat)
    order(repeat)


if __name__ == "__main__":
    main()
