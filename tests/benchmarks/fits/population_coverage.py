"""Coverage of the errors of free-form populations: histories of six kinds, made by numpy, and draws of their masses.

    PYTHONPATH=tests:tests/physics python tests/benchmarks/fits/population_coverage.py
        [--mocks 17] [--seeds 1 2] [--output coverage.json]

Spectra are sums over all ages and metallicities of the library `popstar` (node by node as the detector sees them, from
3900 to 7000 Angstrom in bins of 10, z = 0.02, V = 50 km/s, sigma = 120 km/s), with weights that numpy makes of a
formula, and normal noise. Masses are drawn with fewer ages (about 0.17 dex apart, up to 13.8 Gyr) and four
metallicities, V and sigma given, as a fit of components draws them at its best place. Each part of a history has a
normal distribution of log10(Z), 0.12 dex wide, about a value between 0.009 and 0.04. Kinds: `tau` (SFR exp(-t / tau),
begun 2 to 13.5 Gyr ago, tau 0.5 to 10 Gyr), `delayed` (t exp(-t / tau)), `continuity` (SFR in 7 bins of age, log10 of
the ratios of neighbours of Student's t with 2 degrees of freedom, 0.3 dex wide), `two` bursts, 0.3 dex wide each, the
younger of 1 to 50 % of the mass, a `single` burst, 0.14 dex wide, and a `mixture` of tau and a burst 0.14 dex wide of 1
to 30 % of the mass, younger than 1 Gyr.

Counted: in how many of the mocks the truth lies within the central 68.3 and 95 % of the draws. Masses are counted where
they are at least 1 % of the whole; of smaller ones, in how many the truth is below what 97.5 % of the draws lie below.
A count that is right lies within the central 99.7 % of a binomial distribution, corrected for the number of counts;
others are marked (- too few, + too many). `--prior smooth` takes the smoothness prior of strength 20 instead. Mocks
whose records are in the file are not made again.
"""

import argparse
import functools
import json
import time
from itertools import pairwise, product
from pathlib import Path

import independent
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.stats

import rubix_like as rl
from rubix_like.inference.populations.mixtures import nonnegative_least_squares
from rubix_like.inference.populations.weight_draws import (
    Reduced,
    draw_by_ratios,
    draw_weights,
    neighbours_of,
    smoothness_rows,
)

KINDS = ("tau", "delayed", "continuity", "two", "single", "mixture")
LEVELS = (0.6827, 0.95)
REDSHIFT, MOTION, MASS = 0.02, (50.0, 120.0), 1e10
EDGES = np.arange(3895.0, 7000.0, 10.0)
"""Of the bins, in Angstrom of air."""

YOUNGEST, OLDEST, SPREAD = 7.0, 10.14, 0.12
METALS = slice(2, None)
"""Of the library: 0.004 to 0.05."""

FINE = np.linspace(YOUNGEST, OLDEST, 629)
"""log10(age / yr) at which histories are made."""

LEAST_SHARE = 0.01
WARM, DRAWS = 100, 300


def hats(nodes, places):
    """The shares of the nodes in linear interpolation at each place, (node, place)."""
    return np.array([np.interp(places, nodes, unit) for unit in np.eye(len(nodes))])


def burst(place, width):
    """Masses of a normal distribution of log10(age)."""
    shares = np.exp(-0.5 * ((FINE - place) / width) ** 2)
    return shares / shares.sum()


def formed(rate):
    """Masses from a rate of star formation at each age: mass per dex of age is rate times age."""
    mass = rate * 10.0**FINE
    return mass / mass.sum()


def declining(random, *, is_delayed):
    """SFR exp(-t / tau), or t exp(-t / tau), t since the beginning."""
    since = random.uniform(2, 13.5) - 10 ** (FINE - 9)
    tau = 10 ** random.uniform(-0.3, 1)
    ramp = np.maximum(since, 0) if is_delayed else since > 0
    return formed(ramp * np.exp(-np.maximum(since, 0) / tau))


def steps(random):
    """SFR of 7 bins of age."""
    edges = np.array([7.5, 8.0, 8.5, 9.0, 9.4, 9.8])
    log_rate = np.concatenate([[0.0], np.cumsum(0.3 * random.standard_t(2, size=len(edges)))])
    return formed(10 ** log_rate[np.searchsorted(edges, FINE)])


def history(kind, random):
    """(share of the mass, masses at `FINE`) of each part."""
    if kind in ("tau", "delayed"):
        return [(1.0, declining(random, is_delayed=kind == "delayed"))]
    if kind == "continuity":
        return [(1.0, steps(random))]
    if kind == "single":
        return [(1.0, burst(random.uniform(7.8, 10.0), 0.14))]
    if kind == "two":
        young, old = burst(random.uniform(7.8, 9.0), 0.3), burst(random.uniform(9.3, 10.0), 0.3)
        share = 10 ** random.uniform(-2, -0.3)
        return [(share, young), (1 - share, old)]
    share = 10 ** random.uniform(-2, -0.5)
    old = declining(random, is_delayed=False)
    return [(1 - share, old), (share, burst(random.uniform(7.8, 9.0), 0.14))]


def seen(library):
    """Fluxes (metal, age, wave) per Msun of the library's nodes, in 1e-20 erg/s/cm2/Angstrom: means over the bins of
    spectra that are linear between their wavelengths, summed over velocities."""
    wavelength = np.asarray(library.rest_wavelength, float)
    spectra = np.asarray(library.spectra, float)
    steps = 0.5 * np.diff(wavelength) * (spectra[..., 1:] + spectra[..., :-1])
    whole = np.concatenate([np.zeros((*spectra.shape[:2], 1)), np.cumsum(steps, axis=-1)], axis=-1)
    places = np.linspace(-5, 5, 101)
    shares = np.exp(-0.5 * places**2)
    total = 0.0
    for place, share in zip(places, shares / shares.sum(), strict=True):
        stretch = (1 + REDSHIFT) * np.exp((MOTION[0] + MOTION[1] * place) / independent.C_KMS)
        to = independent.air_to_vacuum(EDGES) / stretch
        index = np.searchsorted(wavelength, to) - 1
        part = (to - wavelength[index]) / np.diff(wavelength)[index]
        here = spectra[..., index] + part * (spectra[..., index + 1] - spectra[..., index])
        integral = whole[..., index] + 0.5 * (to - wavelength[index]) * (spectra[..., index] + here)
        total = total + share * np.diff(integral, axis=-1)
    scale = independent.flux_of_one_lsun(independent.luminosity_distance(REDSHIFT))
    return scale * total / np.diff(EDGES)


class Setting:
    """Templates of the whole library, the nodes of the fit, and the edges of bins of age."""

    def __init__(self):
        library = rl.load_ssp("popstar")
        self.age, self.metal = np.asarray(library.log_age, float), np.asarray(library.metallicity, float)
        self.spectra = seen(library)
        even = np.linspace(YOUNGEST, OLDEST, 20)
        self.nodes = self.age[np.unique(np.abs(self.age - even[:, None]).argmin(axis=1))]
        middle = 0.5 * (self.nodes[1:] + self.nodes[:-1])
        self.edges = {
            str(len(wanted) + 1): [-np.inf, *(middle[np.abs(middle - own).argmin()] for own in wanted), np.inf]
            for wanted in ((9.2,), (8.5, 9.2, 9.7))
        }

    def weights(self, parts, random):
        """Masses of the library's nodes."""
        log_metal = np.log10(self.metal)
        fine = np.linspace(log_metal[METALS][0], log_metal[-1], 241)
        total = 0.0
        for share, mass in parts:
            place = random.uniform(np.log10(0.009), np.log10(0.04))
            metals = np.exp(-0.5 * ((fine - place) / SPREAD) ** 2)
            metals = hats(log_metal, fine) @ (metals / metals.sum())
            total = total + MASS * share * np.outer(metals, hats(self.age, FINE) @ mass)
        return total

    def quantities(self, mass, age, metal, light, fine=None):
        """Numbers of masses (..., metal, age) by name; `fine`: masses at `FINE` of the truth."""
        along = mass.sum(axis=-2)
        at, of_age = (age, along) if fine is None else (FINE, fine)
        found = {"mass": of_age.sum(axis=-1)}
        for name, edges in self.edges.items():
            for number, (low, high) in enumerate(pairwise(edges)):
                found[f"mass {number + 1}/{name}"] = of_age[..., (at >= low) & (at < high)].sum(axis=-1)
        seen = mass * light
        for word, own in (("light", seen), ("mass", mass)):
            whole = own.sum(axis=(-2, -1))
            found[f"log age, {word}"] = (own * age).sum(axis=(-2, -1)) / whole
            found[f"log Z, {word}"] = (own * np.log10(metal)[:, None]).sum(axis=(-2, -1)) / whole
        return found


def mocks_of(setting, kind, signal, count, seed):
    """Spectra with noise, errors, true numbers."""
    random = np.random.default_rng([seed, KINDS.index(kind), int(signal)])
    light = setting.spectra.mean(axis=2)
    flux, truths = [], []
    for _ in range(count):
        parts = history(kind, random)
        mass = setting.weights(parts, random)
        flux.append(np.einsum("za,zaw->w", mass, setting.spectra))
        fine = MASS * sum(share * own for share, own in parts)
        truths.append(setting.quantities(mass, setting.age, setting.metal, light, fine))
    flux = np.array(flux)
    sigma = np.median(flux, axis=1, keepdims=True) / signal * np.ones_like(flux)
    return flux + sigma * random.standard_normal(flux.shape), sigma, truths


@functools.partial(jax.jit, static_argnames="is_smooth")
def drawn(design, target, rows, neighbours, key, is_smooth):
    """Best masses and draws, from templates (wave, node) and a spectrum in units of the errors."""
    orthogonal, upper = jnp.linalg.qr(design)
    first = nonnegative_least_squares(upper, orthogonal.T @ target).weights
    problem = Reduced(upper, orthogonal.T @ target, rows if is_smooth else rows[:0])
    if is_smooth:
        groups, strength = jnp.zeros(len(rows), jnp.int32), jnp.full(1, 20.0)
        draws = draw_weights(problem, first, strength, groups, key, WARM, DRAWS, held=(True,)).weights
    else:
        draws = draw_by_ratios(problem, first, neighbours, key, WARM, DRAWS)
    return first, draws


def fit(setting, flux, sigma, prior, seed):
    """Draws (spectrum, draw, metal, age) of the masses, and chi^2 of the best masses."""
    ages = np.array([np.interp(setting.nodes, setting.age, unit) for unit in np.eye(len(setting.age))])
    templates = np.einsum("zaw,an->znw", setting.spectra[METALS], ages)
    shape, templates = templates.shape[:2], templates.reshape(-1, templates.shape[2])
    light = templates.mean(axis=1)
    grid = np.log10(setting.metal[METALS]), setting.nodes, light
    neighbours, rows = neighbours_of(*grid), smoothness_rows(*grid)
    found = []
    for number, (spectrum, error) in enumerate(zip(flux, sigma, strict=True)):
        design, target = (templates / error).T, spectrum / error
        key = jax.random.fold_in(jax.random.key(seed), number)
        mean = (scipy.optimize.nnls(design, target)[0] * light).mean() / light.mean()
        best, draws = drawn(design, target, rows / mean, neighbours, key, prior == "smooth")
        found.append((draws.reshape(-1, *shape), np.sum((target - design @ best) ** 2)))
    return light.reshape(shape), *map(np.array, zip(*found, strict=True))


def records_of(setting, kind, signal, seed, arguments):
    """A record for each mock: of each number the truth, median, half of the 68 % interval, the rank of the truth."""
    flux, sigma, truths = mocks_of(setting, kind, signal, arguments.mocks, seed)
    began = time.process_time()
    light, draws, chi_square = fit(setting, flux, sigma, arguments.prior, seed)
    spent = (time.process_time() - began) / len(truths)
    records = []
    for number, truth in enumerate(truths):
        found = setting.quantities(draws[number], setting.nodes, setting.metal[METALS], light)
        record = {
            "kind": kind,
            "signal": signal,
            "seed": seed,
            "chi_square": float(chi_square[number]),
            "seconds": spent,
        }
        for name, true in truth.items():
            low, middle, high = np.percentile(found[name], [15.865, 50, 84.135])
            rank = float(np.mean(found[name] < true))
            record[name] = [float(true), float(middle), 0.5 * float(high - low), rank]
        records.append(record)
    return records


def counts_of(records, names):
    """For each number: how many are counted, of which how many within each level, pulls' mean and scatter."""
    found = {}
    for name in names:
        own = np.array([one[name] for one in records])
        kept = own[own[:, 0] >= LEAST_SHARE * MASS] if name.startswith("mass") else own
        off = np.abs(kept[:, 3] - 0.5)
        within = [int((off <= 0.5 * level).sum()) for level in LEVELS]
        pulls = (kept[:, 1] - kept[:, 0]) / kept[:, 2]
        scale = MASS if name.startswith("mass") else 1.0
        error = np.sqrt(np.mean((kept[:, 1] - kept[:, 0]) ** 2)) / scale
        found[name] = (len(kept), within, pulls.mean(), pulls.std(), kept[:, 2].mean() / scale, error)
    return found


def mark(count, number, level, n_tests):
    """Whether a count is outside the central 99.7 % of its binomial distribution, corrected for the number of tests."""
    low, high = scipy.stats.binom.interval(1 - 0.003 / n_tests, number, level)
    return "-" if count < low else "+" if count > high else " "


def print_table(records, signal):
    """Coverage of every number over all kinds, then of all numbers for each kind."""
    names = [name for name in records[0] if isinstance(records[0][name], list)]
    n_tests = 2 * len(names)
    print(f"\nS/N {signal:g}, {len(records)} spectra, {np.mean([own['seconds'] for own in records]):.2f} s each")
    print(f"{'':16s}   n   68 %    95 %   mean pull  scatter  error  rms off")
    for name, (number, within, mean, scatter, half, error) in counts_of(records, names).items():
        shown = [
            f"{100 * own / number:5.1f}{mark(own, number, level, n_tests)}"
            for own, level in zip(within, LEVELS, strict=True)
        ]
        print(f"{name:16s} {number:4d} {shown[0]} {shown[1]}   {mean:6.2f}   {scatter:6.2f}   {half:.3f}   {error:.3f}")
    small = [one[name] for one in records for name in names if name.startswith("mass ")]
    ranks = np.array([rank for true, _, _, rank in small if true < LEAST_SHARE * MASS])
    print(f"masses below 1 %: {len(ranks)}, truth below 84, 97.5 % of draws: ", end="")
    print(f"{100 * np.mean(ranks < 0.84135):.1f}, {100 * np.mean(ranks < 0.975):.1f} %")
    print("by kind, 68 / 95 % (mean pull): " + ", ".join(names))
    for kind in KINDS:
        own = counts_of([one for one in records if one["kind"] == kind], names)
        words = [
            f"{100 * w[0] / n:.0f}/{100 * w[1] / n:.0f} ({mean:.1f})" if n else "-" for n, w, mean, *_ in own.values()
        ]
        whole = [sum(one[1][place] for one in own.values()) / sum(one[0] for one in own.values()) for place in (0, 1)]
        print(f"{kind:10s} all {100 * whole[0]:.0f}/{100 * whole[1]:.0f}: " + ", ".join(words))


def main():
    """Make the mocks that are not in the file, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mocks", type=int, default=17)
    parser.add_argument("--signal", type=float, nargs="+", default=[30.0, 100.0])
    parser.add_argument("--prior", choices=("ratios", "smooth"), default="ratios")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--output", type=Path, default=Path("population_coverage.json"))
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    records = json.loads(arguments.output.read_text()) if arguments.output.exists() else []
    setting = Setting()
    for seed, signal, kind in product(arguments.seeds, arguments.signal, KINDS):
        if not any((own["seed"], own["signal"], own["kind"]) == (seed, signal, kind) for own in records):
            records += records_of(setting, kind, signal, seed, arguments)
            arguments.output.write_text(json.dumps(records))
    for signal in arguments.signal:
        print_table([own for own in records if own["signal"] == signal], signal)


if __name__ == "__main__":
    main()
