"""Line cubes of discs made by KinMS and by GalPaK3D, fitted by this package, GalPaK3D and kinms_fitter.

    PYTHONPATH=tests/benchmarks python tests/benchmarks/fits/line_cubes.py run found.jsonl --galpak PYTHON
                                                                       --kinms PYTHON [--only 10,60]
    PYTHONPATH=tests/benchmarks python tests/benchmarks/fits/line_cubes.py report found.jsonl

54 cubes: S/N of the brightest voxel 3, 10, 30; half-light radius over seeing 1, 1.5, 3; inclination 30, 60, 80 deg; two
seeds of noise and of the position angle, of which KinMS makes the cube of the first and GalPaK3D that of the second.
33 x 33 spaxels of a third of the seeing, 37 bins; an exponential disc, 200 km/s with a turnover of a third of the
half-light radius, dispersion 35 km/s, line spread sigma 30 km/s. Each fit of each cube is a line of the file as soon as
it is done; a run that was ended goes on. `--only S/N,inclination` takes those cubes alone (either may be empty).

KinMS draws cloudlets: a cube is used only if that of other cloudlets differs by less than a tenth of the noise in every
voxel. GalPaK3D's disc is as thin as 0.05 of its half-light radius, so that the dispersion that it adds itself is small,
and is made in cells of a third of a spaxel. All begin at the angle of the velocity gradient of the cube without noise
and the same other values. `--kinms-method simple` is kinms_fitter's minimisation, which gives no errors. What does not
end within `--limit` is a line of the file too, and counted by the report.
"""

import itertools
import json
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from astropy.io import fits
from measuring import add_record, described, head, records
from posterior_calibration import chi_square
from scipy.stats import binom, kstest, norm

import rubix_like as rl

PEERS = Path(__file__).parent / "line_peers.py"
LIGHT = 299792.458
REST, STEP, N_WAVE, N_SPAXEL = 7221.095, 0.6, 37, 33
"""Angstrom of the line as it is seen, and of a bin."""

SPAXEL, SEEING = 0.25, 3.0
"""arcsec, and FWHM in spaxels."""

CHANNEL, SPREAD_SIGMA = STEP / REST * LIGHT, 30.0
"""km/s."""

LINE_SPREAD = SPREAD_SIGMA / LIGHT * REST * np.sqrt(8 * np.log(2))
VELOCITY, DISPERSION, ASPECT, HALF_LIGHT = 200.0, 35.0, 0.05, 1.67834699
N_CLOUD, MOST_CLOUDS = 2_000_000, 512_000_000
BOUNDS = {"inclination": 0.03, "position_angle": 0.03, "velocity": 0.05}
"""Largest median bias over seeds for S/N 10 and more, R_half / FWHM >= 1.5 and i >= 60 (of PA relative to 180 deg)."""

LEVELS = {0.6827: 1.0, 0.95: 1.96}
"""Probability of an interval -> half its width in sigma."""

GAS = "galaxy.gas."
OWN = {
    "inclination": "observation.inclination",
    "position_angle": "observation.position_angle",
    "velocity": f"{GAS}rotation.velocity",
    "turnover": f"{GAS}rotation.turnover_radius",
    "half_light": f"{GAS}light.scale_length",
    "dispersion": f"{GAS}dispersion",
}
"""Name in the table -> our parameter."""

PROGRAMS = {"ours": "rubix_like", "kinms": "kinms_fitter", "galpak": "GalPaK3D"}
MAKERS = {1: "KinMS", 2: "GalPaK3D"}
"""By the seed."""


def well_resolved(signal, ratio, inclination, seed):
    """Whether the bounds are stated for a cube."""
    del seed
    return signal >= 10 and ratio >= 1.5 and inclination >= 60


CUBES = {
    "all": lambda *cube: True,
    "S/N >= 10, R_half / FWHM >= 1.5, i >= 60°": well_resolved,
    "i = 30°": lambda *cube: cube[2] == 30,
    "S/N 10, R_half / FWHM >= 1.5, i >= 60°": lambda *cube: well_resolved(*cube) and cube[0] == 10,
    "S/N 3": lambda *cube: cube[0] == 3,
    "S/N 10": lambda *cube: cube[0] == 10,
    "S/N 30": lambda *cube: cube[0] == 30,
}
"""Rows of the report."""


def all_cubes():
    """(S/N, R_half / FWHM, inclination, seed) of every cube."""
    return list(itertools.product((3, 10, 30), (1.0, 1.5, 3.0), (30, 60, 80), (1, 2)))


def truth_of(cube):
    """Parameters of a cube, lengths in spaxels."""
    _, ratio, inclination, seed = cube
    half_light = ratio * SEEING
    angle = float(np.random.default_rng([seed, inclination, round(2 * ratio)]).uniform(0, 360))
    return {
        "inclination": float(inclination), "position_angle": angle, "velocity": VELOCITY, "turnover": half_light / 3,
        "half_light": half_light, "dispersion": DISPERSION,
    }  # fmt: skip


def job_of(cube, **others):
    """What a peer is told."""
    return {
        "n_spaxel": N_SPAXEL, "n_wave": N_WAVE, "spaxel": SPAXEL, "seeing": SEEING, "line_spread": LINE_SPREAD,
        "line_spread_sigma": SPREAD_SIGMA, "first": REST - STEP * (N_WAVE // 2), "step": STEP, "channel": CHANNEL,
        "aspect": ASPECT, "seed": cube[3], **others,
    }  # fmt: skip


def called(python, command, job, suffix, limit=None):
    """The file that a peer writes, read; RuntimeError if it fails, or needs more than `limit` s of processor time."""
    with tempfile.TemporaryDirectory() as folder:
        place, out = Path(folder) / "job.json", Path(folder) / f"out{suffix}"
        place.write_text(json.dumps(job))
        words = ["prlimit", f"--cpu={limit}"] if limit else []
        words += [python, str(PEERS), command, str(place), str(out)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
        if limit and done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise RuntimeError(f"{command}: it did not end within {limit} s of processor time")
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
        return np.load(out) if suffix == ".npy" else json.loads(out.read_text())


def clean_cube(cube, given):
    """Flux (wave, y, x) without noise, brightest voxel 1; of KinMS with so many cloudlets that they do not show."""
    truth, seed = truth_of(cube), cube[3]
    if seed == 2:
        made = called(given.galpak, "make-galpak", job_of(cube, **truth), ".npy")
        return made / made.max()
    n_cloud = N_CLOUD
    while n_cloud <= MOST_CLOUDS:
        jobs = [job_of(cube, **truth, n_cloud=n_cloud, cloud_seed=own) for own in (0, 100_000)]
        one, two = (called(given.kinms, "make-kinms", job, ".npy") for job in jobs)
        if np.abs(one - two).max() / one.max() < 0.1 / cube[0]:
            return one / one.max()
        n_cloud *= 4
    raise RuntimeError(f"{cube}: {MOST_CLOUDS} cloudlets still show; the cube is not used")


def start_of(flux):
    """Where all begin: the angle of the velocity gradient, and fixed values (lengths in spaxels)."""
    light = np.clip(flux, 0, None).sum(axis=0)
    bright = light > 0.3 * light.max()
    channel = np.arange(len(flux))[:, None, None]
    mean = ((np.clip(flux, 0, None) * channel).sum(axis=0) / light)[bright]
    y, x = np.nonzero(bright)
    weight = np.sqrt(light[bright])
    design = np.stack([np.ones_like(x), x, y], axis=1) * weight[:, None]
    _, along_x, along_y = np.linalg.lstsq(design, mean * weight, rcond=None)[0]
    angle = float(np.degrees(np.arctan2(-along_x, along_y)) % 360)
    return {"inclination": 50.0, "position_angle": angle, "velocity": 150.0, "turnover": 1.5, "half_light": 5.0}


def configuration(start, made_by_galpak, half_light):
    """A disc of gas; of a distance at which 1 kpc is 1 arcsec."""
    scale = SPAXEL
    gas = {
        "name": "gas",
        "lines": {"wavelengths": [REST], "flux": 1e3},
        "light": {"profile": "exponential", "scale_length": start["half_light"] * scale / HALF_LIGHT},
        "rotation": {"curve": "arctan", "velocity": start["velocity"], "turnover_radius": start["turnover"] * scale},
        "dispersion": 50,
    }
    if made_by_galpak:
        gas["height"] = {"profile": "sech2", "scale_height": ASPECT * half_light * scale / 0.88}
    angle = start["position_angle"]
    free = {
        OWN["inclination"]: {"uniform": [5, 89]},
        OWN["position_angle"]: {"uniform": [angle - 90, angle + 90]},
        "observation.offset": {"normal": [0, 0.5]},
        "observation.velocity_offset": {"normal": [0, 50]},
        f"{GAS}lines.flux": {"log_normal": [1e3, 3.0]},
        OWN["half_light"]: {"log_uniform": [0.05, 5]},
        OWN["velocity"]: {"uniform": [10, 450]},
        OWN["turnover"]: {"log_uniform": [0.02, 4]},
        OWN["dispersion"]: {"uniform": [2, 120]},
    }
    return {
        "galaxy": {"reader": "components", "components": [gas]},
        "ssp": {"library": "popstar"},
        "observation": {
            "redshift": 0, "distance": "206.264806 Mpc", "inclination": start["inclination"], "position_angle": angle,
            "offset": [0, 0], "velocity_offset": 0,
        },
        "instrument": {
            "name": "muse", "psf": {"kind": "gaussian", "fwhm": SEEING * SPAXEL}, "lsf": {"fwhm": LINE_SPREAD},
        },
        "pipeline": "lines",
        "engine": {"method": "basis", "velocity_range": 900},
        "devices": {"data": 1},
        "fit": {"free": free, "starts": 1},
    }  # fmt: skip


def write_cube(path, flux, sigma):
    """As MUSE writes them, in vacuum."""
    header = fits.Header(
        {
            "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "WAVE", "CUNIT1": "deg", "CUNIT2": "deg",
            "CUNIT3": "Angstrom", "CRPIX1": (N_SPAXEL + 1) / 2, "CRPIX2": (N_SPAXEL + 1) / 2, "CRPIX3": 1.0,
            "CRVAL1": 150.0, "CRVAL2": 2.0, "CRVAL3": REST - STEP * (N_WAVE // 2), "CD1_1": -SPAXEL / 3600,
            "CD2_2": SPAXEL / 3600, "CD3_3": STEP, "CD1_2": 0.0, "CD2_1": 0.0,
        }
    )  # fmt: skip
    parts = [fits.PrimaryHDU()]
    for name, values, power in (("DATA", flux, 1), ("STAT", np.full_like(flux, sigma**2), 2)):
        own = header.copy()
        own["BUNIT"] = f"(10**(-20)*erg/s/cm**2/Angstrom)**{power}"
        parts.append(fits.ImageHDU(values.astype(np.float32), own, name))
    fits.HDUList(parts).writeto(path, overwrite=True)


def fitted_by_us(flux, sigma, start, cube):
    """The maximum of the posterior and Laplace's errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cube.fits"
        write_cube(path, flux, sigma)
        begun, wall = time.process_time(), time.time()
        result = rl.fit(configuration(start, cube[3] == 2, truth_of(cube)["half_light"]), path)
        seconds, wall = time.process_time() - begun, time.time() - wall
    found = {"seconds": seconds, "wall": wall, "evaluations": int(np.sum(result.starts.n_step))}
    for name, own in OWN.items():
        factor = {"turnover": 1 / SPAXEL, "half_light": HALF_LIGHT / SPAXEL}.get(name, 1.0)
        found |= {name: float(result.values[own]) * factor, f"{name}_sigma": float(result.sigma[own]) * factor}
    found["position_angle"] %= 360
    return found | {"converged": result.converged, "chi2": float(result.quality.reduced)}


def fitted_by_peer(which, flux, sigma, start, cube, given):
    """By GalPaK3D or kinms_fitter."""
    with tempfile.TemporaryDirectory() as folder:
        arrays = {"flux": flux, "variance": np.full_like(flux, sigma**2)}
        for name, values in arrays.items():
            np.save(Path(folder) / f"{name}.npy", values)
        paths = {name: str(Path(folder) / f"{name}.npy") for name in arrays}
        others = {"iterations": given.iterations, "scale": 1.0, "start": start, "n_cloud": given.clouds}
        others["method"] = given.kinms_method
        python = {"galpak": given.galpak, "kinms": given.kinms}[which]
        return called(python, f"fit-{which}", job_of(cube, **paths, **others), ".json", given.limit)


def run(given):
    """Make and fit what the file does not have yet."""
    done = {(tuple(own["cube"]), own["fitter"]) for own in records(given.file)}
    signal, _, tilt = given.only.partition(",")
    for cube in all_cubes():
        if (signal and cube[0] != int(signal)) or (tilt and cube[2] != int(tilt)):
            continue
        missing = [own for own in given.fitters.split(",") if (cube, own) not in done]
        if not missing:
            continue
        try:
            clean = clean_cube(cube, given)
        except RuntimeError as error:
            write(given.file, {"cube": cube, "fitter": "made", "error": str(error)})
            continue
        sigma = 1.0 / cube[0]
        noise = np.random.default_rng([cube[3], cube[0], cube[2], round(2 * cube[1])]).standard_normal(clean.shape)
        flux = 100 * (clean + sigma * noise)
        start = start_of(clean)
        for fitter in missing:
            try:
                if fitter == "ours":
                    found = fitted_by_us(flux, 100 * sigma, start, cube)
                else:
                    found = fitted_by_peer(fitter, flux, 100 * sigma, start, cube, given)
            except RuntimeError as error:
                found = {"error": str(error)}
            write(given.file, {"cube": cube, "fitter": fitter, "truth": truth_of(cube)} | found)


def write(path, record):
    """One more line."""
    add_record(path, record)
    print({key: own for key, own in record.items() if key not in ("truth", "labels")}, flush=True)


def errors_of(record):
    """Relative error of each parameter (position angle: over 180 deg), and pulls."""
    relative, pull = {}, {}
    for name, true in record["truth"].items():
        error = record[name] - true
        if name == "position_angle":
            error = (error + 180) % 360 - 180
        relative[name] = error / (180.0 if name == "position_angle" else true)
        sigma = record.get(f"{name}_sigma") or np.nan
        pull[name] = error / sigma if np.isfinite(sigma) and sigma > 0 else np.nan
    return relative, pull


def report(given):
    """Median bias, scatter and coverage of each fitter and maker, and what is beyond the bounds."""
    everything = [own for own in records(given.file) if "truth" in own]
    found = [own for own in everything if "error" not in own]
    for fitter in PROGRAMS:
        failed = [own for own in everything if own["fitter"] == fitter and "error" in own]
        for words, number in Counter(own["error"].strip().splitlines()[-1] for own in failed).items():
            print(f"{fitter}: {number} without a result: {words}")
    intervals = "68 %", "95 %", "evaluations", "processor time"
    print(head("cubes", "fitted by", "made by", "n", *OWN, *intervals))
    for words, chosen in CUBES.items():
        for fitter, maker in itertools.product(PROGRAMS, MAKERS):
            own = [one for one in found if (one["fitter"], one["cube"][3]) == (fitter, maker) and chosen(*one["cube"])]
            if own:
                print(f"| {words} | {PROGRAMS[fitter]} | {MAKERS[maker]} | {row_of(own)} |")
    for fitter, maker in itertools.product(PROGRAMS, MAKERS):
        own = [one for one in found if (one["fitter"], one["cube"][3]) == (fitter, maker)]
        if own:
            relative, pull = zip(*map(errors_of, own), strict=True)
            bound_check(fitter, MAKERS[maker], own, relative)
            coverage_check(fitter, MAKERS[maker], pulls_of(pull))
    print_pulls(found)


def print_pulls(found):
    """Of each fitter, maker and parameter: mean and scatter of the pulls, and p of uniform ranks of the truths in
    normal distributions of the stated errors."""
    print("\n" + head("fitted by", "made by", "parameter", "mean pull", "scatter", "p of ranks (KS, chi^2)"))
    for fitter, maker in itertools.product(PROGRAMS, MAKERS):
        own = [record for record in found if (record["fitter"], record["cube"][3]) == (fitter, maker)]
        pulls = pulls_of([errors_of(record)[1] for record in own]) if own else np.empty((0, len(OWN)))
        for name, column in zip(OWN, pulls.T, strict=True):
            known = column[np.isfinite(column)]
            if len(known) > 1:
                ranks = norm.cdf(-known)
                p = f"{kstest(ranks, 'uniform').pvalue:.2g}, {chi_square(ranks):.2g}"
                words = f"{PROGRAMS[fitter]} | {MAKERS[maker]} | {name} | {known.mean():+.2f} | {known.std(ddof=1):.2f}"
                print(f"| {words} | {p} |")


def pulls_of(pull):
    """(cube, parameter)."""
    return np.array([[one[name] for name in OWN] for one in pull])


def row_of(own):
    """Cells of a table: number, median error and scatter of each parameter in %, coverage, evaluations and time."""
    relative, pull = zip(*map(errors_of, own), strict=True)
    errors = [100 * np.array([one[name] for one in relative]) for name in OWN]
    pulls = pulls_of(pull)
    inside = [np.mean(np.abs(pulls[np.isfinite(pulls)]) < width) for width in LEVELS.values()]
    cells = [str(len(own)), *(f"{np.median(error):+.1f} ± {np.std(error):.1f}" for error in errors)]
    effort, seconds = (np.median([one[name] for one in own]) for name in ("evaluations", "seconds"))
    return " | ".join([*cells, *(f"{share:.2f}" for share in inside), f"{effort:.0f}", f"{seconds:.0f} s"])


def bound_check(fitter, label, own, relative):
    """Print biases beyond the bounds, over the cubes for which they are stated."""
    wanted = [number for number, one in enumerate(own) if well_resolved(*one["cube"])]
    for name, bound in BOUNDS.items():
        if not wanted:
            return
        bias = float(np.median([relative[number][name] for number in wanted]))
        if abs(bias) > bound:
            where = f"{fitter}, cubes of {label}"
            print(f"    {where}: {name} is {100 * bias:+.1f} % off ({len(wanted)} cubes), beyond {100 * bound:g} %")


def coverage_check(fitter, label, pulls):
    """Print parameters whose 68 or 95 % intervals hold the truth too seldom, or too often, for chance (99.7 %,
    corrected for their number)."""
    tail = (1 - 0.9973) / 2 / len(OWN)
    for (name, column), (level, width) in itertools.product(zip(OWN, pulls.T, strict=True), LEVELS.items()):
        own = column[np.isfinite(column)]
        inside = int((np.abs(own) < width).sum())
        low, high = binom.ppf([tail, 1 - tail], len(own), level)
        if len(own) and not low <= inside <= high:
            where = f"{fitter}, cubes of {label}: {name} is within {width:g} sigma"
            print(f"    {where} in {inside} of {len(own)}, expected {low:.0f}-{high:.0f}")


def main():
    """Run, or report."""
    parser = described(__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--galpak")
    parser.add_argument("--kinms")
    parser.add_argument("--fitters", default="ours,galpak,kinms")
    parser.add_argument("--iterations", type=int, default=10000)
    parser.add_argument("--clouds", type=int, default=500_000)
    parser.add_argument("--kinms-method", choices=("mcmc", "simple"), default="mcmc")
    parser.add_argument("--limit", type=int, help="seconds of processor time for a fit by a peer")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    {"run": run, "report": report}[given.command](given)  # in 32 bits, as a run is by itself


if __name__ == "__main__":
    main()
