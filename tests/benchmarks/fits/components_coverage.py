"""Coverage of fits of a smooth component: mocks made by numpy, their truths drawn from the priors.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/fits/components_coverage.py run found.jsonl
    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/fits/components_coverage.py report found.jsonl

A mock is the thin disc of `tests/foreign_cube.py` in one line (numpy and scipy alone), on 12 x 12 spaxels of 0.5" and
32 bins of 1.1 Angstrom, with numpy's noise, the same in all voxels of all mocks: S/N 20 in the brightest voxel of the
disc at the medians of the priors (`--light stars`: popstar's spectra on 150 bins of 2.5 Angstrom, S/N 30). All
parameters that are free are drawn from their priors. Each mock takes the place of the data of one `rl.log_posterior`
(`with_data`), so that its search, its Laplace approximation and its chain run the programs that the first mock has
compiled; how many are compiled later is counted. Searches begin at the truth: `starts_components.py` asks whether they
get there from elsewhere.

Pulls are (best - true) / sigma in the parameters' normal variables (`LogPosterior.to_unconstrained`), of chains (mean -
true) / standard deviation. Intervals are central. Ranks are those of the truth in Laplace's approximation, or among 60
draws of the chain (Talts et al. 2018, arXiv:1804.06788): of each parameter; of all of them whitened, which are nearly
independent, in one (by Laplace: values whitened by the covariance of 500 draws (`Laplace.sample`), ranks among these;
by chains: the normal variables, whitened by Laplace's covariance); and of the posterior density at the truth, by
Laplace chi^2 of twice its fall from the best place. A count is `off` beyond the central 99.7 % of the
binomial distribution, with the rest divided by the number of parameters. Each mock is a line of the file as soon as it
is done; a run that was ended goes on.
"""

import dataclasses
import tempfile
import time
from pathlib import Path

import foreign_cube
import jax
import numpy as np
from fit_calibration import laplace_at
from foreign_components import OF_SYNTHETIC, configuration
from measuring import add_record, described, records, run_or_report
from posterior_calibration import chi_square, ranks, run
from scipy import stats

import rubix_like as rl
from rubix_like.inference.posterior.problem import with_rows
from rubix_like.inference.search.search import search

SHARED = {
    "observation.inclination": {"uniform": ["30 deg", "70 deg"]},
    "observation.position_angle": {"uniform": ["80 deg", "160 deg"]},
    "observation.velocity_offset": {"normal": [0, "50 km/s"]},
    "instrument.psf.fwhm": {"uniform": ["1.3 arcsec", "1.9 arcsec"]},
    "galaxy.disc.light.scale_length": {"log_uniform": ["0.5 kpc", "1.2 kpc"]},
    "galaxy.disc.rotation.velocity": {"uniform": ["120 km/s", "300 km/s"]},
}
LINE, FLUX, LINE_SPREAD = 6564.632, 1e4, 3.0
"""Vacuum Angstrom, 1e-20 erg/s/cm2, FWHM in Angstrom."""

FREE = {
    "lines": SHARED
    | {
        "galaxy.disc.lines.flux": {"log_normal": [FLUX, 0.3]},
        "galaxy.disc.dispersion": {"uniform": ["40 km/s", "90 km/s"]},
        "galaxy.disc.rotation.turnover_radius": {"log_uniform": ["0.2 kpc", "0.8 kpc"]},
    },
    "stars": SHARED
    | {
        "galaxy.disc.mass": {"log_normal": ["1e10 Msun", 0.3]},
        "galaxy.disc.population.log_age": {"uniform": [9.2, 9.8]},
    },
}
CENTRE = LINE * (1 + foreign_cube.REDSHIFT) / 1.000276
GRID = {"N_SPAXEL": 12, "MARGIN": 8, "FINE": 10}
BINS = {
    "lines": {"FIRST": CENTRE - 15.5 * 1.1, "LAST": CENTRE + 15.5 * 1.1, "STEP": 1.1},
    "stars": {"FIRST": 5000.0, "LAST": 5372.5, "STEP": 2.5},
}
SIGNAL_TO_NOISE = {"lines": 20.0, "stars": 30.0}
CHAIN = {"chains": 1, "warmup": 30, "draws": 60}
"""It begins in coordinates in which Laplace's approximation is N(0, 1); of the 60 draws 19 are independent (median)."""

LAPLACE_DRAWS = 500
LEVELS = (0.6827, 0.95)
CHANCE = 0.997


def flux_of(light, values):
    """The foreign cube (y, x, wave) of these values by our names, without noise."""
    foreign_cube.TRUTH |= {OF_SYNTHETIC.get(name, name): float(value) for name, value in values.items()}
    for name, value in {**GRID, **BINS[light], "SIGNAL_TO_NOISE": SIGNAL_TO_NOISE[light]}.items():
        setattr(foreign_cube, name, value)
    if light == "stars":
        return foreign_cube.foreign_flux()
    return foreign_cube.foreign_line_flux({LINE: float(values["galaxy.disc.lines.flux"])}, LINE_SPREAD)


def settings_of(light, points):
    """Of the run: the disc of the priors' medians."""
    made = configuration(points, start=None)
    disc = made["galaxy"]["components"][0]
    if light == "lines":
        del disc["mass"], disc["population"]
        disc["lines"] = {"wavelengths": [LINE], "flux": FLUX}
        made["pipeline"], made["instrument"]["lsf"] = "lines", {"fwhm": LINE_SPREAD}
    made["engine"]["velocity_range"] = 800
    return made | {"fit": {"free": FREE[light], "starts": 1}}


def write_blank(path, shape):
    """A file with the grid of the mocks, as MUSE writes them."""
    made, foreign_cube.foreign_flux = foreign_cube.foreign_flux, lambda library: np.ones(shape)
    foreign_cube.write_foreign_cube(path, seed=None)
    foreign_cube.foreign_flux = made
    return path


def make(light, points=None):
    """(the posterior that all mocks share, sigma of their noise)."""
    free = FREE[light]
    shape = flux_of(light, {"galaxy.disc.lines.flux": FLUX}).shape
    with tempfile.TemporaryDirectory() as folder:
        own = rl.log_posterior(settings_of(light, points), write_blank(Path(folder) / "blank.fits", shape))
    own = dataclasses.replace(own, problem=with_rows(own.problem, 1))
    median = own.to_physical(np.zeros(own.size))
    return own, float(flux_of(light, {name: median[name] for name in free}).max() / SIGNAL_TO_NOISE[light])


class Compilations:
    """Programs that have been compiled, and the seconds that it took."""

    def __init__(self):
        self.seconds = []
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            self.seconds.append(seconds)


def draw_mock(light, own, sigma, number):
    """(true x, the posterior of the mock)."""
    generator = np.random.default_rng([29, number])
    truth = generator.standard_normal(own.size)
    clean = flux_of(light, own.to_physical(truth))
    return truth, own.with_data(clean + sigma * generator.standard_normal(clean.shape), sigma)


def fit_mock(light, own, sigma, number, chain):
    """What is known of one mock: pulls and ranks by Laplace, and by a chain if there is to be one."""
    truth, mock = draw_mock(light, own, sigma, number)
    problem, begun = dataclasses.replace(mock.problem, start=truth), time.process_time()
    *_, last = search(problem)
    best = last.latent[last.best]
    approximation = laplace_at(problem, best)
    whiten = np.linalg.inv(np.linalg.cholesky(approximation.covariance))
    pull = (best - truth) / approximation.sigma
    lower = mock(best) - mock(truth)
    rank = laplace_ranks(approximation, truth, lower, number)
    found = {
        "light": light,
        "number": number,
        "seconds": time.process_time() - begun,
        "converged": bool(last.converged[last.best]),
        "steps": int(np.sum(last.n_step)),
        "sigma": approximation.sigma.tolist(),
        "laplace": {"pull": pull.tolist(), "rank": rank.tolist()},
    }
    true_loss = float(last.loss[last.best]) + lower
    return found | (sampled(problem, best, approximation, whiten, truth, true_loss, number) if chain else {})


def laplace_ranks(approximation, truth, lower, number):
    """Of each parameter by the interval that a result states, of the whitened values among draws, of the density."""
    alone = stats.norm.cdf((truth - approximation.latent) / approximation.sigma)
    draws, values = approximation.sample(number, LAPLACE_DRAWS), np.asarray(approximation.free.flat(truth))
    whiten = np.linalg.inv(np.linalg.cholesky(np.cov(draws, rowvar=False)))
    noise = np.random.default_rng([37, number]).random(len(truth))
    together = ranks(draws @ whiten.T, whiten @ values, noise)
    return np.concatenate([alone, together, [stats.chi2(len(truth)).cdf(2 * lower)]])


def sampled(problem, best, approximation, whiten, truth, true_loss, number):
    """The same by a chain, and how it went."""
    begun = time.process_time()
    latent, loss, told = run(problem, "nuts", best, approximation, seed=number, **CHAIN)
    draws = latent.reshape(-1, len(truth))
    noise = np.random.default_rng([31, number]).random(2 * len(truth) + 1)
    own = np.column_stack([draws, draws @ whiten.T, loss.reshape(-1)])
    rank = ranks(own, np.concatenate([truth, whiten @ truth, [true_loss]]), noise)
    pull = (draws.mean(axis=0) - truth) / draws.std(axis=0)
    own = {"pull": pull.tolist(), "rank": rank.tolist(), "seconds": time.process_time() - begun}
    return {"nuts": own | {name: told[name] for name in ("ess_bulk", "divergences", "gradients")}}


def expected_counts(count, level, n_parameter):
    """The least and the largest number of `count` intervals that hold the truth by chance, of any parameter."""
    tail = 0.5 * (1 - CHANCE) / n_parameter
    return [int(own) for own in stats.binom.ppf([tail, 1 - tail], count, level)]


def summary(labels, mocks, method):
    """Of every parameter: counts within the intervals, mean and scatter of the pulls, p of uniform ranks."""
    pull = np.array([own[method]["pull"] for own in mocks])
    rank = np.array([own[method]["rank"] for own in mocks])
    size, lines = len(labels), []
    for number, label in enumerate(labels):
        held = [int(np.sum(np.abs(rank[:, number] - 0.5) < level / 2)) for level in LEVELS]
        bounds = [expected_counts(len(mocks), level, size) for level in LEVELS]
        lines.append(
            {
                "parameter": label,
                "held": held,
                "off": [not low <= own <= high for own, (low, high) in zip(held, bounds, strict=True)],
                "mean": float(pull[:, number].mean()),
                "scatter": float(pull[:, number].std(ddof=1)),
                "p": uniform(rank[:, number]),
            }
        )
    pooled = {"all, whitened": rank[:, size:-1].reshape(-1), "posterior density": rank[:, -1]}
    return lines, {name: uniform(own) for name, own in pooled.items()}


def uniform(rank):
    """p of uniform ranks: Kolmogorov and Smirnov's test, and chi^2 of a histogram."""
    return [float(stats.kstest(rank, "uniform").pvalue), chi_square(rank)]


def faults(lines, pooled):
    """What is not as it should be."""
    counts = [f"{own['parameter']}: counts {own['held']}" for own in lines if any(own["off"])]
    uneven = [f"{own['parameter']}: p of ranks {own['p']}" for own in lines if min(own["p"]) < 0.01 / (2 * len(lines))]
    return counts + uneven + [f"{name}: p of ranks {own}" for name, own in pooled.items() if min(own) < 0.01]


def table(lines, pooled, count):
    """In Markdown."""
    bounds = [expected_counts(count, level, len(lines)) for level in LEVELS]
    head = [f"within {100 * level:.0f} % ({low}-{high})" for level, (low, high) in zip(LEVELS, bounds, strict=True)]
    rows = [f"| parameter | {head[0]} | {head[1]} | mean pull | scatter | p of ranks (KS, chi^2) |", "|---" * 6 + "|"]
    for own in lines:
        cells = [f"{held}{' off' if off else ''}" for held, off in zip(own["held"], own["off"], strict=True)]
        p = ", ".join(f"{value:.2f}" for value in own["p"])
        rows.append(f"| `{own['parameter']}` | {' | '.join(cells)} | {own['mean']:+.2f} | {own['scatter']:.2f} | {p} |")
    rows += [f"| {name} | | | | | {', '.join(f'{value:.2g}' for value in own)} |" for name, own in pooled.items()]
    return "\n".join(rows)


def told(mocks, method):
    """Time, searches, chains, programs."""
    if method == "laplace":
        seconds = np.median([own["seconds"] for own in mocks])
        words = f"{sum(own['converged'] for own in mocks)} of {len(mocks)} converged, {seconds:.2f} s a mock (median)"
    else:
        chains = [own["nuts"] for own in mocks]
        fewest = [min(own["ess_bulk"]) for own in chains]
        words = (
            f"{np.median([own['seconds'] for own in chains]):.1f} s a mock (median), "
            f"{np.median([own['gradients'] for own in chains]):.0f} gradients, independent "
            f"draws at least {min(fewest):.0f} (median {np.median(fewest):.0f}), "
            f"{sum(own['divergences'] for own in chains)} divergences"
        )
    later = [own for own in mocks if not own["first"]]
    return words + f"; programs compiled for {len(later)} mocks: {sum(own['programs'] for own in later)}"


def run_all(given):
    """Make and fit what the file does not have yet."""
    known = [own for own in records(given.file) if own["light"] == given.light]
    done, chained = {own["number"] for own in known}, {own["number"] for own in known if "nuts" in own}
    compiled, begun = Compilations(), time.process_time()
    own, sigma = make(given.light, given.points)
    print(f"planned in {time.process_time() - begun:.1f} s, {own.problem.posterior.forward.source.numbers} points")
    seen = set()
    for number in range(max(given.laplace, given.nuts)):
        chain = number < given.nuts
        if number in (chained if chain else done):
            continue
        before, start = len(compiled.seconds), time.process_time()
        found = fit_mock(given.light, own, sigma, number, chain)
        programs = compiled.seconds[before:]
        found |= {"labels": list(own.labels), "first": chain not in seen, "programs": len(programs)}
        seen.add(chain)
        if found["first"]:
            print(f"first mock: {time.process_time() - start:.1f} s, {sum(programs):.1f} s of them in the compiler")
        add_record(given.file, found)
        print(number, np.round(found["laplace"]["pull"], 2), f"{found['seconds']:.2f} s", flush=True)


def report(given):
    """Print the tables."""
    for light in FREE:
        mocks = {own["number"]: own for own in records(given.file) if own["light"] == light}
        for method in ("laplace", "nuts"):
            own = [mock for mock in mocks.values() if method in mock]
            if own:
                lines, pooled = summary(own[0]["labels"], own, method)
                print(f"\n{light}, {method}, {len(own)} mocks: {told(own, method)}\n")
                print(table(lines, pooled, len(own)))
                print("\n".join(["", *(f"off: {words}" for words in faults(lines, pooled))]))


def main():
    """Run, or report."""
    parser = described(__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--light", choices=tuple(FREE), default="lines")
    parser.add_argument("--laplace", type=int, default=400)
    parser.add_argument("--nuts", type=int, default=0)
    parser.add_argument("--points", type=int, default=None)
    run_or_report(parser, {"run": run_all, "report": report})


if __name__ == "__main__":
    main()
