"""Two counter-rotating stellar discs made by numpy, fitted by two smooth components, and by one that cannot be right.

    export PYTHONPATH=tests:tests/benchmarks
    python tests/benchmarks/fits/counter_rotating.py run found.jsonl [--seeds 3] [--spaxels 17]
    python tests/benchmarks/fits/counter_rotating.py report found.jsonl

A galaxy like that of Jethwa et al. (2025, arXiv:2511.03663): a ground truth that resembles a counter-rotating galaxy,
at S/N from 20 to 200. Of that paper only the abstract could be read, so the numbers of the discs are our own (`DISCS`):
a main disc, and a younger, more metal-poor, smaller and colder one that turns the other way. Each is an infinitely thin
exponential disc with an arctan curve and one population of bc03-miles (`rubix-like ssp get bc03-miles`), at the
library's own resolution (2.5 Angstrom), summed by `tests/foreign_cube.py` without any part of this package. S/N is that
of every spaxel's spectrum, per bin of 1.6 Angstrom, as of Voronoi bins; the paper's definition could not be read.

Model `two` has 17 numbers free under wide priors, `one` has 10. Both begin at the values of `component`, 15 to 40 % off
and more than 7 deg in both angles; with `--blind` the search is given no start. Records are JSON lines: what the file
has is not fitted again. `report` prints a table, and what is missed of: both velocities within 2 km/s and metallicities
within 0.05 dex at S/N 100, `one` told in the first line of every result, `two` in none.
"""

import tempfile
import time
from pathlib import Path

import foreign_cube
import numpy as np
from astropy.io import fits
from measuring import add_record, described, head, records, run_or_report

from rubix_like import fit
from rubix_like.extend import cache_directory

GRID = {"N_SPAXEL": 11, "SPAXEL": 0.7, "MARGIN": 5, "FINE": 14, "FIRST": 4900.0, "LAST": 5400.0, "STEP": 1.6}
"""Constants of the foreign cube."""

SHARED = {"observation.inclination": 60.0, "observation.position_angle": 120.0, "observation.velocity_offset": 25.0}
SEEING = 0.9
"""FWHM in arcsec, known to the fit."""

DISCS = {
    "main": {
        "mass": 1e10, "light.scale_length": 0.9, "rotation.velocity": 200.0, "rotation.turnover_radius": 0.3,
        "dispersion": 60.0, "population.log_age": 9.85, "population.metallicity": 0.025,
    },
    "counter": {
        "mass": 4e9, "light.scale_length": 0.6, "rotation.velocity": -150.0, "rotation.turnover_radius": 0.25,
        "dispersion": 40.0, "population.log_age": 9.4, "population.metallicity": 0.01,
    },
}  # fmt: skip
"""Msun at birth, kpc, km/s."""

OF_FOREIGN = {
    "mass": "galaxy.stellar_mass",
    "light.scale_length": "galaxy.disc_scale_length",
    "rotation.velocity": "galaxy.rotation_velocity",
    "rotation.turnover_radius": "galaxy.turnover_radius",
    "dispersion": "galaxy.disc_dispersion",
    "population.log_age": "galaxy.disc_log_age",
    "population.metallicity": "galaxy.disc_metallicity",
}
PRIORS = {
    "mass": {"log_uniform": ["1e8 Msun", "1e11 Msun"]},
    "light.scale_length": {"log_uniform": ["0.2 kpc", "4 kpc"]},
    "rotation.turnover_radius": {"log_uniform": ["0.05 kpc", "2 kpc"]},
    "dispersion": {"uniform": ["10 km/s", "350 km/s"]},
    "population.log_age": {"uniform": [8.5, 10.1]},
    "population.metallicity": {"log_uniform": [0.002, 0.05]},
}
SPEEDS = {"main": ["0 km/s", "450 km/s"], "counter": ["-450 km/s", "0 km/s"], "disc": ["-450 km/s", "450 km/s"]}
"""Priors of the speeds: with the half of the sky on which the receding side of `main` lies, they name the discs."""

ANGLES = ["30 deg", "210 deg"]
RATIOS = (20, 50, 100, 200)
VELOCITY_BOUND, METAL_BOUND, AT_RATIO = 2.0, 0.05, 100
"""km/s and dex, at this S/N."""


def disc_flux(disc, library):
    """Flux (y, x, wave) of one disc without noise, by numpy; a negative speed turns the other way."""
    foreign_cube.TRUTH |= SHARED | {"instrument.psf.fwhm": SEEING}
    foreign_cube.TRUTH |= {OF_FOREIGN[key]: value for key, value in disc.items()}
    speed = disc["rotation.velocity"]
    foreign_cube.TRUTH["galaxy.rotation_velocity"] = abs(speed)
    velocity, density = foreign_cube.line_of_sight_distribution()
    rows = foreign_cube.channel_spectra(velocity if speed > 0 else -velocity, library)
    return density @ rows


def write_cube(path, library, ratio, seed, grid=GRID):
    """The cube of both discs; the errors of a spaxel are its median flux over `ratio`."""
    for name, value in grid.items():
        setattr(foreign_cube, name, value)
    both = sum(disc_flux(own, library) for own in DISCS.values())
    error = np.broadcast_to(np.median(both, axis=2, keepdims=True) / ratio, both.shape)
    seen = both + error * np.random.default_rng(seed).standard_normal(both.shape)
    foreign_cube.write_foreign_cube(path, library, None)
    with fits.open(path, mode="update") as hdus:
        for name, values in (("DATA", seen), ("STAT", error**2)):
            hdus[name].data = np.moveaxis(values, 2, 0).astype(np.float32)
    return path


def component(name):
    """A disc that begins 15 to 40 % off in lengths, speeds and masses, and 0.1 to 0.15 dex in age and metallicity."""
    main = name != "counter"
    return {
        "name": name,
        "mass": "8e9 Msun" if main else "5e9 Msun",
        "light": {"profile": "exponential", "scale_length": "1.05 kpc" if main else "0.7 kpc"},
        "height": {"profile": "thin"},
        "rotation": {
            "curve": "arctan", "velocity": "165 km/s" if main else "-125 km/s", "turnover_radius": "0.35 kpc",
        },
        "dispersion": "75 km/s" if main else "55 km/s",
        "population": {"log_age": 9.75 if main else 9.5, "metallicity": 0.018 if main else 0.013},
    }  # fmt: skip


def flat(disc):
    """A component's numbers by key."""
    sections = {name: own for name, own in disc.items() if isinstance(own, dict)}
    own = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    return {key: value for key, value in (disc | own).items() if key in PRIORS or key == "rotation.velocity"}


def configuration(names, library, blind=True):
    """Discs of these names, all of their numbers free; not `blind`: the search begins at the values written here."""
    free = {
        "observation.inclination": {"isotropic": ["10 deg", "85 deg"]},
        "observation.position_angle": {"uniform": ANGLES},
        "observation.velocity_offset": {"normal": [0, "100 km/s"]},
    }
    for name in names:
        free |= {f"galaxy.{name}.{key}": prior for key, prior in PRIORS.items()}
        free[f"galaxy.{name}.rotation.velocity"] = {"uniform": SPEEDS[name]}
    discs = [component(name) for name in names]
    start = {"observation.inclination": 53, "observation.position_angle": 110} | {
        f"galaxy.{own['name']}.{key}": value for own in discs for key, value in flat(own).items()
    }
    return {
        "galaxy": {"reader": "components", "components": discs},
        "ssp": {"library": str(library)},
        "observation": {"redshift": foreign_cube.REDSHIFT, "inclination": 45, "position_angle": 100},
        "instrument": {"name": "muse", "psf": {"kind": "gaussian", "fwhm": SEEING}, "lsf": None},
        "pipeline": "stellar",
        "engine": {"method": "basis", "velocity_range": 1500},
        "devices": {"data": 1},
        "fit": {"free": free, "starts": 1, "start": None if blind else start},
    }


def truth():
    """True values by the names of model `two`."""
    own = {f"galaxy.{name}.{key}": value for name, disc in DISCS.items() for key, value in disc.items()}
    return SHARED | own


def fitted(cube, model, library, blind=False):
    """What a record says of one fit."""
    begun, wall = time.process_time(), time.time()
    names = tuple(DISCS) if model == "two" else ("disc",)
    result = fit(configuration(names, library, blind), cube)
    seconds = time.process_time() - begun
    return {
        "seconds": seconds,
        "wall": time.time() - wall,
        "values": {name: float(own) for name, own in result.values.items()},
        "sigma": {name: float(own) for name, own in result.sigma.items()},
        "first_line": str(result).splitlines()[0],
        "misfit": result.verdict.misfit,
        "matters": result.verdict.matters,
        "tests": dict(result.verdict.tests),
        "converged": result.converged,
        "optima": len(result.other_optima),
        "steps": np.ravel(result.starts.n_step).tolist(),
        "notes": list(result.notes),
    }


def run(given):
    """Fit what the file does not have yet."""
    done = {(own["ratio"], own["seed"], own["model"]) for own in known(given)}
    for ratio in given.ratios:
        for seed in range(1, given.seeds + 1):
            missing = [own for own in given.models if (ratio, seed, own) not in done]
            if not missing:
                continue
            with tempfile.TemporaryDirectory() as folder:
                grid = GRID | {"N_SPAXEL": given.spaxels, "LAST": given.last}
                cube = write_cube(Path(folder) / "two.fits", given.library, ratio, seed, grid)
                for model in missing:
                    record = {"ratio": ratio, "seed": seed, "model": model}
                    record |= {"spaxels": given.spaxels, "last": given.last}
                    record |= fitted(cube, model, given.library, given.blind)
                    add_record(given.file, record)
                    print(ratio, seed, model, f"{record['seconds']:.0f} s", record["first_line"], flush=True)


def known(given):
    """What the file has of this field and this range of wavelengths."""
    field = given.spaxels, given.last
    return [own for own in records(given.file) if (own["spaxels"], own["last"]) == field]


def errors_of(record):
    """Errors of each number of model `two` (dex of masses, lengths and metallicities), and pulls."""
    error, pull = {}, {}
    for name, true in truth().items():
        found, sigma = record["values"][name], record["sigma"][name]
        pull[name] = (found - true) / sigma
        relative = name.endswith(("mass", "scale_length", "turnover_radius", "metallicity"))
        error[name] = np.log10(found / true) if relative else found - true
    return error, pull


def report(given):
    """Print the table, and what is missed."""
    found = known(given)
    numbers = [f"{name} {disc}" for name in ("V", "[M/H]", "log age") for disc in DISCS]
    print(head("S/N", "fits", *numbers, "largest pull", "s of two, one", "two told", "one told", "by"))
    missed = []
    for ratio in sorted({own["ratio"] for own in found}):
        both = [own for own in found if own["ratio"] == ratio and own["model"] == "two"]
        alone = [own for own in found if own["ratio"] == ratio and own["model"] == "one"]
        errors, pulls = zip(*map(errors_of, both), strict=True)
        cells = [
            cell([own[f"galaxy.{disc}.{key}"] for own in errors], digits)
            for key, digits in (("rotation.velocity", 2), ("population.metallicity", 3), ("population.log_age", 3))
            for disc in DISCS
        ]
        largest = max((abs(value), name) for own in pulls for name, value in own.items())
        seconds = ", ".join(f"{np.median([own['seconds'] for own in group]):.0f}" for group in (both, alone) if group)
        told = [sum(own["misfit"] for own in group) for group in (both, alone)]
        by = sorted({min(own["tests"], key=own["tests"].get) for own in alone if own["misfit"]})
        print(
            f"| {ratio} | {len(both)} | " + " | ".join(cells) + f" | {largest[0]:.1f} ({largest[1]}) | {seconds} | "
            f"{told[0]}/{len(both)} | {told[1]}/{len(alone)} | {', '.join(by)} |"
        )  # fmt: skip
        missed += missed_of(ratio, errors, both, alone)
    for own in missed:
        print("missed:", own)
    for own in found:
        if own["model"] == "one" and own["seed"] == 1:
            print(f"one disc, S/N {own['ratio']}: {own['first_line']}")


def cell(values, digits):
    """Mean and largest error."""
    mean, largest = np.mean(values), max(values, key=abs)
    return f"{mean:+.{digits}f} ({largest:+.{digits}f})"


def missed_of(ratio, errors, both, alone):
    """In words, what is beyond its bound."""
    missed = [f"one disc at S/N {ratio}, seed {own['seed']} is not told" for own in alone if not own["misfit"]]
    missed += [f"two discs at S/N {ratio}, seed {own['seed']} are told" for own in both if own["misfit"]]
    if ratio != AT_RATIO:
        return missed
    for disc in DISCS:
        speeds = [abs(own[f"galaxy.{disc}.rotation.velocity"]) for own in errors]
        bias = abs(np.mean([own[f"galaxy.{disc}.population.metallicity"] for own in errors]))
        if max(speeds) > VELOCITY_BOUND:
            missed.append(f"the velocity of {disc} is {max(speeds):.2f} km/s off")
        if bias > METAL_BOUND:
            missed.append(f"[M/H] of {disc} is {bias:.3f} dex off")
    return missed


def main():
    """Run, or report."""
    parser = described(__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--ratios", type=int, nargs="+", default=RATIOS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=("two", "one"), default=("two", "one"))
    parser.add_argument("--spaxels", type=int, default=GRID["N_SPAXEL"], help="along a side of the field")
    parser.add_argument("--last", type=float, default=GRID["LAST"], help="end of the spectra, Angstrom")
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--library", type=Path, default=cache_directory() / "ssp" / "bc03-miles.h5")
    run_or_report(parser, {"run": run, "report": report})


if __name__ == "__main__":
    main()
