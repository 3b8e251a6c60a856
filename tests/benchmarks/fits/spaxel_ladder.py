"""RUBIX's ladder: 2 x 2 spaxels with 1, 2 and 10 stars each, sampled by NUTS and geoVI; how often intervals are right.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/fits/spaxel_ladder.py run found.jsonl [--stars 1]
    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/fits/spaxel_ladder.py report found.jsonl
    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/fits/spaxel_ladder.py equation

Mocks are numpy's (`tests/foreign_stars.py`): true values drawn from the priors, noise of the same standard deviation in
all voxels of all mocks. One program of each kind serves all mocks of a number of stars. Where a spaxel has one star its
own values are judged. Stars of one spaxel have no order, so of several the means weighted by light, and the mass of
all, are. `run` adds a line for each mock to a file, and leaves out those that it has.

`equation` counts samples of geoVI for whose equation least squares find no solution, by numpy and scipy alone: with
many ages and metallicities, and with so few that there are no kinks within the priors.

Priors are on the light of stars in the fitted bins: a spectrum tells it to a percent, whatever the age. With a prior on
their mass, which follows age and metallicity along a bent valley, NUTS takes several times as many gradients. Of two
stars or more they are on the light of the spaxel and on the shares of its stars: the data tell the sum to a percent,
which is a thin bent sheet where the light of each star is a parameter.

With several stars there is no search for a best fit. Samplers begin at the medians of the priors and the measured
light, and NUTS moves in the metric of the mean information at draws from the priors, the same for all mocks.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import posterior_calibration
import scipy.optimize
import scipy.stats
from fit_calibration import best_of, loss_of
from foreign_stars import Library, interpolated, light_table, read_library, star_spectra
from measuring import add_record, described, head, records, run_or_report
from scipy.special import ndtr

import rubix_like as rl
from rubix_like.extend import AbstractGalaxyModel, Footprint, WavelengthBins, import_optional
from rubix_like.galaxy.galaxy_model import with_named_leaves
from rubix_like.inference.checks.uncertainties import from_information, laplace
from rubix_like.inference.posterior.problem import Problem, with_rows
from rubix_like.inference.samplers.samplers import make_sampler
from rubix_like.physics.cosmology import arcsec_per_kpc, observed_distance
from rubix_like.ssp import SHELF

LADDER = (1, 2, 10)
LIBRARY = "bc03-miles"
REDSHIFT = 0.02
FIRST, STEP, N_BIN = 3950.0, 2.0, 150
"""Bins of vacuum wavelength, Angstrom: from Ca II K to H delta at rest."""

SPEED, DEX = 150.0, 0.2
LOG_AGE, METALLICITY = (9.0, 10.1), (1e-3, 0.045)
"""Priors: standard deviation of velocities (km/s); scatter (dex) of the light of spaxels about the same
median, and of the weights whose ratios are stars' shares; ends of the uniform ones of log age and log Z."""

MASS, SIGNAL_TO_NOISE = 1e6, 20.0
"""Mass (Msun) at median age and metallicity of a star that is alone with median light; S/N of its median voxel."""

LEVEL = 0.9
QUANTITIES = ("velocity", "log age", "log metallicity", "log mass")
METHODS = {
    "nuts": {"chains": 2, "warmup": 100, "draws": 300, "target_acceptance": 0.8},
    "geovi": {"samples": 16, "draws": 198},
}
OF_NUTS = {1: {}, 2: {"target_acceptance": 0.65}, 10: {"target_acceptance": 0.65, "warmup": 60, "draws": 100}}
"""Stars in a spaxel -> settings of NUTS that differ."""

N_TYPICAL = 24
"""Draws from the priors over which the metric for several stars is averaged."""
NAMES = ("galaxy.velocity", "galaxy.total", "galaxy.log_age", "galaxy.log_metallicity", "galaxy.weight")
"""Of what is free; weights where stars share the light of their spaxel."""

STEPS = (1.0, 1e-4, 1e-4, 1e-4)
"""Of the differences of Fisher's matrix: km/s, dex."""

N_RANKED = 99
"""Draws among which the truth has a rank."""


class LadderStars(AbstractGalaxyModel):
    """Stars by their light in the fitted bins at rest, of which a spectrum tells more directly than of their mass.

    `total`: light of groups of stars, of one or of a spaxel's, over that of the median; `weight`: they share it as
    theirs; `median`: luminosity in Lsun of a star that has an even share of the median; `table`: luminosities
    (Lsun/Msun) of the library between its `ages` and `metals` (log10).
    """

    velocity: Any
    total: Any
    weight: Any
    log_age: Any
    log_metallicity: Any
    position: Any
    median: Any
    table: Any
    ages: Any
    metals: Any

    def emitters(self, parameters):
        """The stars."""
        own = with_named_leaves(self, parameters)
        (metal, above), (age, older) = (
            self.between(own.metals, own.log_metallicity),
            self.between(own.ages, own.log_age),
        )
        low, high = ((1 - older) * own.table[row, age] + older * own.table[row, age + 1] for row in (metal, metal + 1))
        luminosity = (1 - above) * low + above * high
        zero = jnp.zeros_like(own.velocity)
        velocity = jnp.stack([zero, zero, own.velocity], axis=1)
        mass = shared(own.total, own.weight) * own.median / luminosity
        return rl.Galaxy(stars=rl.Stars(own.position, velocity, mass, own.log_age, 10**own.log_metallicity))

    @staticmethod
    def between(nodes, place):
        """(index of the lower node, weight of the upper one) of linear interpolation."""
        lower = jnp.clip(jnp.searchsorted(nodes, place, side="right") - 1, 0, len(nodes) - 2)
        return lower, (place - nodes[lower]) / (nodes[lower + 1] - nodes[lower])


def shared(total, weight):
    """Light (..., star), over an even share of the median, of totals (..., group) and weights (..., star)."""
    parted = weight.reshape(*weight.shape[:-1], total.shape[-1], -1)
    return (total[..., None] * parted / parted.mean(axis=-1, keepdims=True)).reshape(weight.shape)


@dataclasses.dataclass(frozen=True)
class Rung:
    """A number of stars per spaxel: the posterior whose data are replaced, and numpy's model.

    `typical`: the mean information of the data at draws from the priors, where nothing is searched for.
    """

    stars: int
    problem: Problem
    model: "Foreign"
    typical: np.ndarray | None = None


class Foreign:
    """Numpy's mocks: the library, the bins, the standard deviation of the noise."""

    def __init__(self, library=LIBRARY):
        self.edges = FIRST + STEP * (np.arange(N_BIN + 1) - 0.5)
        ends = self.edges[[0, -1]] / (1 + REDSHIFT)
        self.library = read_library(SHELF.get(library), *ends)
        self.light = light_table(self.library, *ends)
        middle = np.array([np.mean(LOG_AGE)]), np.array([np.mean(np.log10(METALLICITY))])
        spectrum = self.spectra(np.zeros(1), np.array([MASS]), *middle)
        self.sigma, self.flux_of_median = float(np.median(spectrum)) / SIGNAL_TO_NOISE, float(spectrum.sum())
        self.median = MASS * float(self.luminosity(*middle)[0])

    def luminosity(self, log_age, log_metallicity):
        """In the fitted bins at rest, Lsun/Msun."""
        return interpolated(self.library, self.light, log_age, log_metallicity)

    def spectra(self, velocity, mass, log_age, log_metallicity):
        """(star, wave)."""
        return star_spectra(self.library, self.edges, REDSHIFT, velocity, mass, log_age, log_metallicity)

    def flux(self, values):
        """(y, x, wave) of values (4, star), the stars of a spaxel one after the other."""
        velocity, log_mass, log_age, log_metallicity = values
        stars = self.spectra(velocity, 10**log_mass, log_age, log_metallicity)
        return stars.reshape(2, 2, -1, N_BIN).sum(axis=2)

    def quantities(self, values):
        """(4, ..., spaxel) of values (4, ..., star): means weighted by light, and the logarithm of the mass of all."""
        velocity, log_mass, log_age, log_metallicity = values
        light = 10**log_mass * self.luminosity(log_age, log_metallicity)
        parted = [own.reshape(*own.shape[:-1], 4, -1) for own in (velocity, log_age, log_metallicity, light)]
        means = [np.sum(parted[3] * own, axis=-1) / np.sum(parted[3], axis=-1) for own in parted[:3]]
        return np.stack([*means, np.log10(np.sum((10**log_mass).reshape(*log_mass.shape[:-1], 4, -1), axis=-1))])

    def cramer_rao(self, values):
        """Standard deviation of the velocity of stars that are alone in their spaxels: by the inverse of Fisher's
        matrix of all four numbers, from differences of the noiseless spectra."""

        def spectra(own):
            return self.spectra(own[0], 10 ** own[1], own[2], own[3])

        unit = np.eye(4)[:, :, None] * np.array(STEPS)[:, None, None]
        slope = np.stack([(spectra(values + own) - spectra(values - own)) for own in unit], axis=1)
        slope = slope / (2 * np.array(STEPS)[:, None] * self.sigma)
        return np.sqrt(np.linalg.inv(slope @ np.swapaxes(slope, 1, 2))[:, 0, 0])


def truth_of(number, rung):
    """Values (4, star) drawn from the priors: velocity, log mass, log age, log Z; and the generator of the noise."""
    generator = np.random.default_rng([22, rung.stars, number])
    normal = generator.standard_normal((4, 4 * rung.stars))
    ages, metals = np.array(LOG_AGE), np.log10(METALLICITY)
    log_age = ages[0] + np.diff(ages) * ndtr(normal[2])
    log_metallicity = metals[0] + np.diff(metals) * ndtr(normal[3])
    total, weight = 10 ** (DEX * normal[1]), 1.0
    if rung.stars > 1:
        total, weight = 10 ** (DEX * generator.standard_normal(4)), total
    return physical(rung, SPEED * normal[0], total, log_age, log_metallicity, weight), generator


def physical(rung, velocity, total, log_age, log_metallicity, weight):
    """Values (4, ..., star) of those that are free."""
    light = shared(total, np.broadcast_to(weight, velocity.shape))
    mass = light * rung.model.median / rung.stars / rung.model.luminosity(log_age, log_metallicity)
    return np.stack([velocity, np.log10(mass), log_age, log_metallicity])


def make_rung(stars, model=None, library=LIBRARY, **engine):
    """The posterior of so many stars in each spaxel."""
    model = model or Foreign(library)
    scale = 0.5 / arcsec_per_kpc(observed_distance("Planck18", REDSHIFT, None), REDSHIFT)
    x, y = (np.repeat(own.ravel() * scale, stars) for own in np.meshgrid([0.5, -0.5], [-0.5, 0.5]))
    same, own, several = np.ones(4 * stars), model.library, stars > 1
    base = LadderStars(
        velocity=0 * same,
        total=np.ones(4) if several else same,
        weight=same,
        log_age=np.mean(LOG_AGE) * same,
        log_metallicity=np.mean(np.log10(METALLICITY)) * same,
        position=np.stack([x, y, 0 * x], axis=1),
        median=model.median / stars,
        table=model.light,
        ages=own.log_age,
        metals=own.log_metallicity,
    )
    config = {
        "ssp": {"library": library},
        "observation": {"redshift": REDSHIFT, "align": "none"},
        "instrument": {"name": "manga", "fov": "1 arcsec", "aperture": None, "psf": None, "lsf": None},
        "engine": {"precision": "float64", "deposit": "cic", "velocity_range": 6 * SPEED, "method": "direct"} | engine,
        "devices": {"data": 1},
    }
    priors = (
        {"normal": [0, SPEED]},
        {"log_normal": [1, DEX]},
        {"uniform": LOG_AGE},
        {"uniform": np.log10(METALLICITY).tolist()},
        {"log_normal": [1, DEX]},
    )
    n_free = len(NAMES) if several else len(NAMES) - 1
    free = dict(zip(NAMES[:n_free], priors[:n_free], strict=True))
    blank = rl.ObservedCube(
        flux=np.ones((2, 2, N_BIN)),
        variance=np.full((2, 2, N_BIN), model.sigma**2),
        used=np.ones((2, 2, N_BIN), bool),
        bins=WavelengthBins(FIRST, STEP, N_BIN, "linear", "vacuum"),
        footprint=Footprint.of((2, 2), 0.5),
        source="numpy",
    )
    function = rl.log_posterior(config, blank, free, model=base, candidates=16)
    problem = with_rows(function.problem, 1)
    if not several:
        return Rung(stars, problem, model)
    draws = np.random.default_rng(stars).standard_normal((N_TYPICAL, problem.posterior.free.n_latent))
    typical = sum(laplace(problem.posterior, jnp.asarray(own)).information for own in draws) / N_TYPICAL
    return Rung(stars, problem, model, typical)


def with_data(rung, flux, number):
    """The problem with the data of a mock."""
    posterior = rung.problem.posterior
    posterior = eqx.tree_at(lambda own: own.likelihood.flux, posterior, jnp.asarray(flux))
    settings = rung.problem.settings.model_copy(update={"seed": number})
    return dataclasses.replace(rung.problem, posterior=posterior, settings=settings)


def values_of(rung, latent):
    """(4, ..., star) of latents."""
    own = rung.problem.posterior.named_values(latent)
    return physical(rung, *(np.asarray(own.get(name, 1.0)) for name in NAMES))


def latent_of(rung, values):
    """Latents of values (4, star), with the weights of least chi^2 of their prior."""
    velocity, log_mass, log_age, log_metallicity = values
    light = 10**log_mass * rung.model.luminosity(log_age, log_metallicity) / (rung.model.median / rung.stars)
    parted = light.reshape(4 if rung.stars > 1 else len(light), -1)
    weight = (parted / np.exp(np.log(parted).mean(axis=1, keepdims=True))).ravel()
    free = rung.problem.posterior.free
    given = dict(zip(NAMES, (velocity, parted.mean(axis=1), log_age, log_metallicity, weight), strict=True))
    return jnp.asarray(free.latent({name: given[name] for name in free.names}))


def judged(rung, latent, truth, noise):
    """Mean, standard deviation, ends of the interval and rank of the truth, of every quantity and spaxel; (4, spaxel).

    `latent`: (chain, draw, latent). Mirrored pairs of samples are ranked by one of each.
    """
    own = rung.model.quantities(values_of(rung, latent))
    flat = own.reshape(4, -1, 4)
    low, high = np.quantile(flat, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=1)
    chosen = np.linspace(0, flat.shape[1] - 1, N_RANKED).round().astype(int)
    if len(latent) == 1:
        chosen = np.arange(0, flat.shape[1], 2)[:N_RANKED]
    rank = (np.sum(flat[:, chosen] < truth[:, None], axis=1) + noise) / (len(chosen) + 1)
    found = {"mean": flat.mean(axis=1), "sigma": flat.std(axis=1), "low": low, "high": high, "rank": rank}
    return own, {name: value.tolist() for name, value in found.items()}


def convergence(own):
    """R-hat (largest) and independent draws (fewest) of the quantities: (4, chain, draw, spaxel)."""
    arviz = import_optional("arviz", "spaxel_ladder")
    columns = np.moveaxis(own, 3, 1).reshape(16, *own.shape[1:3])
    return {"r_hat": max(map(float, map(arviz.rhat, columns))), "ess": min(map(float, map(arviz.ess, columns)))}


def begun(rung, problem, flux, truth):
    """(latents at which samplers begin, the approximation that they move in, what there is to know of both)."""
    posterior = problem.posterior
    if rung.typical is None:
        best, loss, converged = best_of(problem)
        above = loss - float(loss_of(posterior, latent_of(rung, truth)))
        return best, laplace(posterior, jnp.asarray(best)), {"converged": converged, "above_truth": above}
    total = flux.sum(axis=2).ravel() / rung.model.flux_of_median
    start = np.zeros(posterior.free.n_latent)
    start[posterior.free.places["galaxy.total"]] = np.log10(total) / DEX
    return start, from_information(posterior.free, start, rung.typical), {}


def sampled_by(method, rung, problem, best, approximation, seed):
    """(draws of the latents (chain, draw, latent), what there is to know of the run)."""
    section, own = "variational", METHODS[method]
    if method == "nuts":
        section, own = "nuts", own | OF_NUTS[rung.stars]
    fit = {"free": {"dust.a_v": {"uniform": [0, 1]}}, "sampling": {"method": method, "seed": seed, section: own}}
    sampler = make_sampler(rl.load_config("quickstart", overrides={"fit": fit}).fit.sampling)
    *_, last = sampler.run(problem.posterior, problem.pipeline.mesh, best, approximation, None)
    sampled = sampler.sampled(last)
    told = {"trouble": sampled.trouble}
    if method == "nuts":
        told["divergences"] = int(sampled.statistics["diverging"].sum())
        told["gradients"] = int(last.steps["n_leapfrog"].sum())
    else:
        told |= {
            "converged": bool(last.converged),
            "iterations": int(last.n_iteration),
            "missed": float(last.error.max()),
        }
    return sampled.latent, told


def run_mock(rung, number, methods):
    """A line of the file: truth, and what each method finds."""
    truth, generator = truth_of(number, rung)
    clean = rung.model.flux(truth)
    flux = clean + rung.model.sigma * generator.standard_normal(clean.shape)
    own, clock = with_data(rung, flux, number + 1), time.process_time()
    best, approximation, told = begun(rung, own, flux, truth)
    true = rung.model.quantities(truth)
    found = {
        "stars": rung.stars,
        "number": number,
        "truth": true.tolist(),
        "seconds": {"search": time.process_time() - clock},
    } | told
    if rung.stars == 1:
        found["cramer_rao"] = rung.model.cramer_rao(truth).tolist()
    noise = generator.random(true.shape)
    for method in methods:
        clock = time.process_time()
        latent, told = sampled_by(method, rung, own, best, approximation, number + 1)
        found["seconds"][method] = time.process_time() - clock
        draws, found[method] = judged(rung, latent, true, noise)
        found[method] |= told | (convergence(draws) if method == "nuts" else {})
    return found


def run(given):
    """Mocks that the file lacks, number by number, all rungs in turn."""
    lines = records(given.file)
    done = {(own["stars"], own["number"]) for own in lines if "number" in own}
    model, rungs = Foreign(), {}
    for number in range(given.mocks):
        for stars in given.stars:
            if (stars, number) in done:
                continue
            if stars not in rungs:
                clock = time.process_time()
                rungs[stars] = make_rung(stars, model)
                first = run_mock(rungs[stars], 10**6, given.methods)
                seconds = time.process_time() - clock
                add_record(given.file, {"stars": stars, "first": seconds, "of": first["seconds"]})
            found = run_mock(rungs[stars], number, given.methods)
            add_record(given.file, found)
            print(stars, number, {name: round(own, 2) for name, own in found["seconds"].items()}, flush=True)


def report(given):
    """Print the tables of a file."""
    for stars in LADDER:
        lines = [line for line in records(given.file) if line["stars"] == stars]
        mocks = [line for line in lines if "number" in line]
        if mocks:
            print(f"\n{stars} stars in each of 4 spaxels, {len(mocks)} mocks\n\n{table(mocks)}\n\n{told(mocks)}")
            print(times(mocks, [line for line in lines if "first" in line]))


def bounds(count, level=LEVEL):
    """Smallest and largest number of intervals that hold the truth, of so many: the central 99.7 % of the binomial
    distribution, corrected for the number of quantities."""
    tail = (1 - 0.9973) / 2 / len(QUANTITIES)
    return tuple(int(own) for own in scipy.stats.binom.ppf([tail, 1 - tail], count, level))


def judgement(mocks, method):
    """Of every quantity: how many intervals hold the truth and may, p of the ranks, mean and scatter of the pulls."""
    truth = np.array([own["truth"] for own in mocks])
    own = {name: np.array([mock[method][name] for mock in mocks]) for name in ("mean", "sigma", "low", "high", "rank")}
    inside = (own["low"] <= truth) & (truth <= own["high"])
    pulls = (own["mean"] - truth) / own["sigma"]
    found = []
    for number, name in enumerate(QUANTITIES):
        ranks = own["rank"][:, number].ravel()
        held, (low, high) = int(inside[:, number].sum()), bounds(ranks.size)
        p = scipy.stats.kstest(ranks, "uniform").pvalue, posterior_calibration.chi_square(ranks)
        found.append(
            {
                "quantity": name,
                "held": held,
                "of": ranks.size,
                "bounds": (low, high),
                "p": tuple(map(float, p)),
                "mean pull": float(pulls[:, number].mean()),
                "scatter": float(pulls[:, number].std()),
                "sigma": float(np.median(own["sigma"][:, number])),
                "mean error": float(np.abs(own["mean"] - truth)[:, number].mean()),
                "right": low <= held <= high and min(p) > 0.01,
            }
        )
    return found


def table(mocks):
    """The judgement in Markdown."""
    columns = "by", "quantity", "in 90 %", "of", "may be", "p (KS)", "p (chi^2)", "mean pull", "scatter", "sigma"
    rows = [
        f"| {method} | {own['quantity']} | {own['held']} | {own['of']} | {own['bounds'][0]}-{own['bounds'][1]} "
        f"| {own['p'][0]:.2g} | {own['p'][1]:.2g} | {own['mean pull']:+.2f} | {own['scatter']:.2f} "
        f"| {own['sigma']:.3g} | {own['mean error']:.3g} | {'' if own['right'] else 'wrong'} |"
        for method in METHODS
        if method in mocks[0]
        for own in judgement(mocks, method)
    ]
    return "\n".join([head(*columns, "mean error", ""), *rows])


def beside_limit(mocks, method):
    """Root mean square of the errors of the velocity over its Cramer-Rao limit, and the bounds of chi^2 for it."""
    limit = np.array([own["cramer_rao"] for own in mocks])
    off = np.array([np.array(own[method]["mean"][0]) - own["truth"][0] for own in mocks]) / limit
    tail = (1 - 0.9973) / 2
    low, high = np.sqrt(scipy.stats.chi2.ppf([tail, 1 - tail], off.size) / off.size)
    return float(np.sqrt(np.mean(off**2))), float(low), float(high)


def told(mocks):
    """Velocities beside the Cramer-Rao limit, and how the searches and samplers went."""
    lines = []
    if "above_truth" in mocks[0]:
        below = sum(own["above_truth"] < 0.01 for own in mocks)
        lines.append(f"search: best fit at or below the loss of the truth in {below} of {len(mocks)}")
    for method in METHODS:
        if method not in mocks[0]:
            continue
        own = [mock[method] for mock in mocks]
        words = f"{method}: "
        if mocks[0]["stars"] == 1:
            words += "error of the velocity {:.3f} of the Cramer-Rao limit (may be {:.3f}-{:.3f}); ".format(
                *beside_limit(mocks, method)
            )
        if method == "nuts":
            ratios, draws = [one["r_hat"] for one in own], [one["ess"] for one in own]
            words += (
                f"R-hat at most {max(ratios):.3f} (median {np.median(ratios):.3f}), independent draws of the worst "
                f"quantity at least {min(draws):.0f} (median {np.median(draws):.0f}), "
                f"{sum(one['divergences'] for one in own)} divergences, "
                f"{np.median([one['gradients'] for one in own]):.0f} gradients"
            )
        else:
            words += (
                f"{sum(one['converged'] for one in own)} of {len(own)} converged, "
                f"{sum(bool(one['trouble']) for one in own)} with draws that the verdict calls doubtful, equations "
                f"missed by {np.median([one['missed'] for one in own]):.2g} sigma (median of the worst samples)"
            )
        lines.append(words)
    return "\n".join(lines)


def times(mocks, firsts):
    """Processor seconds of a mock, and what the first one took more: planning and compiling."""
    medians = {name: float(np.median([own["seconds"][name] for own in mocks])) for name in mocks[0]["seconds"]}
    words = ", ".join(f"{name} {seconds:.2f}" for name, seconds in medians.items())
    more = min((own["first"] for own in firsts), default=np.nan) - sum(medians.values())
    return f"processor s a mock: {words}; planning and compiling once: {more:.0f} s"


class CoarseForeign(Foreign):
    """Numpy's model with evenly spaced nodes of a library, so many ages and metallicities."""

    def __init__(self, n_age, n_metal):
        super().__init__()
        ages, metals = np.linspace(8.9, 10.2, n_age), np.linspace(-3.1, -1.31, n_metal)
        spectra = interpolated(self.library, self.library.spectra, *np.meshgrid(ages, metals))
        self.library = Library(self.library.wavelength, ages, metals, spectra)
        self.light = light_table(self.library, *(self.edges[[0, -1]] / (1 + REDSHIFT)))

    def of_latent(self, latent):
        """Flux over sigma of stars (..., 4) given by latents: velocity, light, log age, log Z."""
        normal = np.atleast_2d(latent).T
        log_age = LOG_AGE[0] + np.ptp(LOG_AGE) * ndtr(normal[2])
        log_metallicity = np.log10(METALLICITY[0]) + np.ptp(np.log10(METALLICITY)) * ndtr(normal[3])
        mass = 10 ** (DEX * normal[1]) * self.median / self.luminosity(log_age, log_metallicity)
        return self.spectra(SPEED * normal[0], mass, log_age, log_metallicity) / self.sigma


def missed_by_geovi(model, stars=25, samples=8, step=1e-4):
    """By how many sigma samples about `stars` miss geoVI's equation at the best, (star x sample,).

    x - c + J(c)^T (f(x) - f(c)) = d, with d drawn from N(0, J(c)^T J(c) + 1), in units in which that is 1; by least
    squares from the solution of a linear f on.
    """
    generator, found = np.random.default_rng(1), []
    for centre in generator.standard_normal((stars, 4)):
        unit = step * np.eye(4)
        slope = ((model.of_latent(centre + unit) - model.of_latent(centre - unit)) / (2 * step)).T
        values, axes = np.linalg.eigh(slope.T @ slope + np.eye(4))
        white, flux = (axes / np.sqrt(values)) @ axes.T, model.of_latent(centre)[0]
        for _ in range(samples):
            drawn = slope.T @ generator.standard_normal(len(flux)) + generator.standard_normal(4)

            def missing(way, white=white, slope=slope, centre=centre, flux=flux, drawn=drawn):
                moved = white @ way
                return white @ (moved + slope.T @ (model.of_latent(centre + moved)[0] - flux) - drawn)

            found.append(np.sqrt(2 * scipy.optimize.least_squares(missing, white @ drawn, max_nfev=60).cost))
    return np.array(found)


def equation(_):
    """Print how often no solution is found."""
    print(head("ages x metallicities", "samples that miss their equation by more than 0.1 sigma"))
    for shape in ((2, 2), (2, 40), (80, 2), (80, 40)):
        print(f"| {shape[0]} x {shape[1]} | {np.mean(missed_by_geovi(CoarseForeign(*shape)) > 0.1):.3f} |")


def main():
    """Run, or report."""
    parser = described(__doc__)
    parser.add_argument("command", choices=("run", "report", "equation"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("spaxel_ladder.jsonl"))
    parser.add_argument("--mocks", type=int, default=100)
    parser.add_argument("--stars", type=int, nargs="+", choices=LADDER, default=LADDER)
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    run_or_report(parser, {"run": run, "report": report, "equation": equation})


if __name__ == "__main__":
    main()
