"""What a cube says of its galaxy's parameters, and what it does not: the numbers and the picture of docs/fitting.md.

    python tests/benchmarks/fit_limits.py [--library popstar] [--picture docs/fit-limits.png] [--only noise]

Prints Markdown tables: standard deviations and correlations at the truth (Gauss-Newton matrix of a noiseless mock, all
parameters of FREE free) for several S/N, wavelength ranges and inclinations, and how far models with other base draws
are from each other. The picture shows profiles of chi^2, for which all other parameters are fitted at every point.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import RectBivariateSpline

import rubix_like as rl
from rubix_like.inference.posterior.posterior import Posterior

RANGES: dict[str, tuple[float, float]] = {"4800-5600": (4800.0, 5600.0), "3700-9000": (3700.0, 9000.0)}
SIGNAL_TO_NOISE: tuple[int, ...] = (10, 30, 100)
N_BIN: int = 300
FREE: dict[str, Any] = {
    "observation.inclination": {"uniform": [0, 90]},
    "observation.position_angle": {"normal": [30, 30]},
    "observation.velocity_offset": {"normal": [0, 50]},
    "dust.a_v": {"uniform": [0, 1.5]},
    "galaxy.stellar_mass": {"log_normal": [1e10, 0.5]},
    "galaxy.bulge_fraction": {"uniform": [0, 0.5]},
    "galaxy.disc_scale_length": {"log_uniform": [0.5, 4]},
    "galaxy.disc_scale_height": {"log_uniform": [0.05, 1]},
    "galaxy.rotation_velocity": {"uniform": [0, 500]},
    "galaxy.disc_dispersion": {"log_uniform": [10, 100]},
    "galaxy.disc_log_age": {"uniform": [8.5, 10.1]},
    "galaxy.disc_metallicity": {"log_uniform": [0.002, 0.05]},
}
TRUTH: dict[str, float] = {
    "observation.inclination": 60.0,
    "observation.position_angle": 30.0,
    "observation.velocity_offset": 0.0,
    "dust.a_v": 0.3,
    "galaxy.stellar_mass": 1e10,
    "galaxy.bulge_fraction": 0.2,
    "galaxy.disc_scale_length": 1.5,
    "galaxy.disc_scale_height": 0.2,
    "galaxy.rotation_velocity": 180.0,
    "galaxy.disc_dispersion": 30.0,
    "galaxy.disc_log_age": 9.6,
    "galaxy.disc_metallicity": 0.02,
}
Pair = tuple[str, str]
AGE: Pair = ("galaxy.disc_log_age", "galaxy.disc_metallicity")
ROTATION: Pair = ("observation.inclination", "galaxy.rotation_velocity")
HEIGHT: Pair = ("observation.inclination", "galaxy.disc_scale_height")


def configuration(library: str, low: float, high: float, **changes: Any) -> rl.RunConfig:
    """10 x 10 spaxels of 1 arcsec, MaNGA's PSF and LSF, S/N 30 per bin in the brightest spaxel."""
    step = (high - low) / (N_BIN - 1)
    wavelength = {"sampling": "linear", "medium": "vacuum", "start": low, "stop": high, "step": step}
    overrides = {
        "galaxy.n_stars": 5000,
        "ssp.library": library,
        "observation.align": "none",
        "instrument": {"name": "manga", "fov": 10, "pixel_scale": 1, "aperture": None, "wavelength": wavelength},
        "dust": {"a_v": 0.3, "curve": "calzetti"},
        "engine.deposit": "tsc",
        "engine.method": "basis",
        "engine.velocity_range": 1500,
        "noise": {"signal_to_noise": 30, "seed": 1},
    }
    return rl.load_config("quickstart", overrides={**overrides, **changes})


def posterior_of(config: rl.RunConfig) -> Posterior:
    """Of a mock of the configuration's galaxy, of which only the errors are used, at S/N 1."""
    galaxy = rl.load_galaxy(config)
    mock = rl.Pipeline.from_config(config, galaxy=galaxy)(galaxy)
    return with_errors(rl.log_posterior(config, mock, FREE).problem.posterior, 1 / 30)


def with_errors(posterior: Posterior, factor: float) -> Posterior:
    """The errors divided by a factor."""
    return eqx.tree_at(lambda p: p.likelihood.inverse_sigma, posterior, replace_fn=lambda old: old * factor)


@eqx.filter_jit
def jacobian(posterior: Posterior, latent: Any) -> tuple[Any, Any]:
    """Model / sigma, and its derivatives by the latents."""

    def scaled(latent: Any) -> Any:
        return (posterior.model(latent) * posterior.likelihood.inverse_sigma).ravel()

    return scaled(latent), jax.jacfwd(scaled)(latent)


def uncertainties(posterior: Posterior, truth: dict[str, float]) -> Callable[[float], tuple[Any, Any]]:
    """S/N -> standard deviations of the values by name, and the correlation of two parameters."""
    latent = posterior.free.latent(truth)
    _, slopes = jacobian(posterior, latent)
    matrix = np.asarray(slopes.T @ slopes)
    step = np.diag(np.asarray(jax.jacfwd(lambda own: jnp.stack(list(posterior.free.values(own).values())))(latent)))

    def at(signal_to_noise: float) -> tuple[dict[str, float], Callable[[Pair], float]]:
        covariance = np.linalg.inv(signal_to_noise**2 * matrix + np.eye(len(matrix)))
        sigma = np.sqrt(np.diag(covariance))
        names = posterior.free.names

        def correlation(pair: Pair) -> float:
            one, other = (names.index(name) for name in pair)
            return float(covariance[one, other] / sigma[one] / sigma[other])

        return dict(zip(names, np.abs(step) * sigma, strict=True)), correlation

    return at


def profile(posterior: Posterior, truth: dict[str, float], pair: Pair, grid: Sequence[Any]) -> Any:
    """chi^2 (at the posterior's S/N) of a noiseless mock where two parameters have the values of a grid and all others
    are fitted: a Gauss-Newton step from where the Gauss-Newton matrix at the truth puts them."""
    names = posterior.free.names
    fixed = [names.index(name) for name in pair]
    others = [number for number in range(len(names)) if number not in fixed]
    middle = np.asarray(posterior.free.latent(truth))
    data, slopes = (np.asarray(array) for array in jacobian(posterior, jnp.asarray(middle)))
    matrix = slopes.T @ slopes + np.eye(len(names))
    found = np.zeros((len(grid[1]), len(grid[0])))
    for row, column in np.ndindex(found.shape):
        values = {pair[0]: float(grid[0][column]), pair[1]: float(grid[1][row])}
        latent = np.array(posterior.free.latent({**truth, **values}))
        across = matrix[np.ix_(others, fixed)] @ (latent[fixed] - middle[fixed])
        latent[others] = middle[others] - np.linalg.solve(matrix[np.ix_(others, others)], across)
        model, own = (np.asarray(array) for array in jacobian(posterior, jnp.asarray(latent)))
        found[row, column] = _least(data - model, own[:, others])
    return found


def _least(residual: Any, slopes: Any) -> float:
    """The squared residual that is left after the step that fits it best."""
    matrix, vector = slopes.T @ slopes, slopes.T @ residual
    return float(residual @ residual - vector @ np.linalg.solve(matrix + np.diag(1e-9 * np.diag(matrix)), vector))


def print_age_metallicity(posteriors: dict[str, Posterior]) -> None:
    """Table: S/N and wavelength range against sigma(log age), sigma(log Z), their correlation."""
    print("\n| wavelengths (Å) | S/N | σ(log age) | σ(Z)/Z | σ(A_V) | correlation of log age and log Z |")
    print("|---|---|---|---|---|---|")
    for name, posterior in posteriors.items():
        at = uncertainties(posterior, TRUTH)
        for signal_to_noise in SIGNAL_TO_NOISE:
            sigma, correlation = at(signal_to_noise)
            relative = sigma[AGE[1]] / TRUTH[AGE[1]]
            numbers = f"{sigma[AGE[0]]:.4f} | {relative:.4f} | {sigma['dust.a_v']:.4f} | {correlation(AGE):+.2f}"
            print(f"| {name} | {signal_to_noise} | {numbers} |")


def print_rotation(posterior: Posterior) -> None:
    """Table: inclination against sigma(inclination), sigma(V), their correlation, at S/N 30."""
    print("\n| inclination | σ(inclination) | σ(V) | σ(height)/height | correlation (i, V) | correlation (i, height) |")
    print("|---|---|---|---|---|---|")
    for inclination in (5.0, 10.0, 20.0, 40.0, 60.0, 80.0):
        sigma, correlation = uncertainties(posterior, TRUTH | {ROTATION[0]: inclination})(30)
        relative = sigma[HEIGHT[1]] / TRUTH[HEIGHT[1]]
        numbers = f"{sigma[ROTATION[0]]:.2f}° | {sigma[ROTATION[1]]:.1f} km/s | {relative:.2f}"
        print(f"| {inclination:g}° | {numbers} | {correlation(ROTATION):+.2f} | {correlation(HEIGHT):+.2f} |")


def print_particle_noise(library: str) -> None:
    """Table: number of stars against the difference of two draws, and chi^2 of one with the other as the model."""
    print("\n| stars | draws | white light of a spaxel | shape of its spectrum | χ² per voxel at S/N 30 | at S/N 100 |")
    print("|---|---|---|---|---|---|")
    for n_stars, kind in itertools.product((5000, 20_000, 100_000), ("random", "sobol")):
        one, other, variance = draws_of(library, n_stars, kind)
        light = [cube.sum(axis=2) for cube in (one, other)]
        bright = light[0] > np.median(light[0])
        factor = light[1] / light[0]
        white = np.sqrt(np.mean((factor - 1)[bright] ** 2))
        shape = np.sqrt(np.mean((other / one / factor[..., None] - 1)[bright] ** 2))
        excess = float(np.mean((one - other) ** 2 / variance))
        chi_square = f"{1 + excess:.2f} | {1 + excess * (100 / 30) ** 2:.2f}"
        print(f"| {n_stars} | {kind} | {100 * white:.2f} % | {100 * shape:.2f} % | {chi_square} |")


def draws_of(library: str, n_stars: int, kind: str) -> tuple[Any, Any, Any]:
    """Noiseless cubes of two draws of the same galaxy, and the variance of the first one's mock."""
    changes = {"galaxy.n_stars": n_stars, "galaxy.draws": kind}
    configs = [configuration(library, *RANGES["4800-5600"], **changes, **{"galaxy.seed": seed}) for seed in (1, 2)]
    galaxies = [rl.load_galaxy(config) for config in configs]
    noisy = rl.Pipeline.from_config(configs[0], galaxy=galaxies[0])
    clean = rl.Pipeline.from_config(rl.load_config(configs[0], overrides={"noise": None}), galaxy=galaxies[0])
    one, other = (np.asarray(clean(galaxy).flux, float) for galaxy in galaxies)
    return one, other, np.asarray(noisy(galaxies[0]).variance, float)


def draw(posteriors: dict[str, Posterior], path: Path, count: int) -> None:
    """Profiles of chi^2 over age and metallicity, and over inclination and thickness."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (an optional extra)

    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    cases = (("4800-5600", 10, "#d55e00"), ("4800-5600", 30, "#0072b2"), ("3700-9000", 30, "#009e73"))
    for name, signal_to_noise, color in cases:
        own = (AGE, signal_to_noise, color, f"{name} Å, S/N {signal_to_noise}", count)
        _draw_profile(left, posteriors[name], TRUTH, *own)
    for signal_to_noise, color in ((10, "#d55e00"), (30, "#0072b2")):
        own = (HEIGHT, signal_to_noise, color, f"S/N {signal_to_noise}", count)
        _draw_profile(right, posteriors["4800-5600"], TRUTH, *own)
    left.set(xlabel="log10(age / yr) at the disc's centre", ylabel="metallicity Z there", title="age and metallicity")
    right.set(xlabel="inclination (deg)", ylabel="scale height of the disc (kpc)", title="inclination and thickness")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
        axes.grid(color="#dddddd", linewidth=0.5)
    figure.savefig(path, dpi=110)
    print(f"\nPicture: {path}")


def _draw_profile(
    axes: Any, posterior: Posterior, truth: Any, pair: Pair, signal_to_noise: int, color: str, label: str, count: int
) -> None:
    """68 % and 95 % contours of two parameters: chi^2 2.30 and 5.99 above the lowest."""
    sigma, _ = uncertainties(posterior, truth)(signal_to_noise)
    grid = [around(posterior, name, truth[name], sigma[name], count) for name in pair]
    chi_square = profile(with_errors(posterior, signal_to_noise), truth, pair, grid)
    fine = [np.linspace(nodes[0], nodes[-1], 101) for nodes in grid]
    smooth = RectBivariateSpline(grid[0], grid[1], chi_square.T)(*fine).T
    axes.contour(*fine, smooth, levels=[2.30, 5.99], colors=color, linewidths=(1.6, 0.8))
    axes.plot([], [], color=color, label=label)
    axes.plot(truth[pair[0]], truth[pair[1]], "+", color="black")


def around(posterior: Posterior, name: str, value: float, sigma: float, count: int) -> Any:
    """Values of a parameter up to 3.2 standard deviations of its latent away."""
    (prior,) = [own.prior for own in posterior.free.parameters if own.name == name]
    middle = prior.latent(jnp.asarray(value))
    reach = 3.2 * sigma / abs(float(jax.grad(prior.value)(middle)))
    return np.asarray(prior.value(middle + jnp.linspace(-reach, reach, count)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="popstar")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--points", type=int, default=7, help="of the profiles' grids, along each side")
    parser.add_argument("--only", choices=("derivatives", "noise"))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.only != "noise":
        posteriors = {name: posterior_of(configuration(options.library, *span)) for name, span in RANGES.items()}
        print_age_metallicity(posteriors)
        print_rotation(posteriors["4800-5600"])
        if options.picture:
            draw(posteriors, options.picture, options.points)
    if options.only != "derivatives":
        print_particle_noise(options.library)


if __name__ == "__main__":
    main()
