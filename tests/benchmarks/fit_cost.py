"""Processor seconds of whole fits from an empty cache of compiled programs: smooth discs, a first fit, three data sets.

    PYTHONPATH=. python tests/benchmarks/fit_cost.py [--problems disc thick fit_synthetic joint sami] [--sami CUBE]
                                                     [--folder DIR] [--output costs.jsonl]

Mocks are made by `rubix_like run` with noise (seed 1) into DIR, and kept there: `disc`, 18 x 18 spaxels of 0.5 arcsec
and 401 bins of a thin exponential disc, twelve free numbers (bc03-miles); `thick`, the same of a disc 0.3 kpc thick,
whose height is free as well; `fit_synthetic`, the packaged configuration; `joint`, a cube, an image and a spectrum of
one disc, six free numbers. `sami` is the fit of `fits/sami_halpha.py` to a real cube. Nothing is given to begin at.
Each fit is a process of its own, whose `RUBIX_LIKE_CACHE` holds the SSP libraries alone; its time is user and system
time, from start to end. `largest`: the largest |value - truth| / sigma. A line per fit goes to the JSON file too.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import yaml
from astropy.io import fits

import rubix_like as rl
from rubix_like.extend import Progress

SAMI = Path(__file__).parent / "fits" / "sami_halpha.py"
LIBRARIES = Path(os.environ.get("RUBIX_LIKE_CACHE", Path.home() / ".cache" / "rubix_like")) / "ssp"

DISC_TRUTH = {
    "observation.inclination": 52.0,
    "observation.position_angle": 120.0,
    "observation.offset": [0.15, -0.1],
    "observation.velocity_offset": 12.0,
    "galaxy.disc.mass": 1e10,
    "galaxy.disc.light.scale_length": 0.8,
    "galaxy.disc.rotation.velocity": 210.0,
    "galaxy.disc.rotation.turnover_radius": 0.4,
    "galaxy.disc.dispersion": 45.0,
    "galaxy.disc.population.log_age": 9.51,
    "galaxy.disc.population.metallicity": 0.015,
}
DISC_FREE = {
    "observation.inclination": {"isotropic": ["5 deg", "85 deg"]},
    "observation.position_angle": {"uniform": ["0 deg", "360 deg"]},
    "observation.offset": {"normal": [0, "0.5 arcsec"]},
    "observation.velocity_offset": {"normal": [0, "50 km/s"]},
    "galaxy.disc.mass": {"log_normal": ["1e10 Msun", 0.5]},
    "galaxy.disc.light.scale_length": {"log_uniform": ["0.2 kpc", "4 kpc"]},
    "galaxy.disc.rotation.velocity": {"uniform": ["20 km/s", "400 km/s"]},
    "galaxy.disc.rotation.turnover_radius": {"log_uniform": ["0.05 kpc", "3 kpc"]},
    "galaxy.disc.dispersion": {"uniform": ["5 km/s", "150 km/s"]},
    "galaxy.disc.population.log_age": {"uniform": [8.5, 10.1]},
    "galaxy.disc.population.metallicity": {"log_uniform": [0.002, 0.045]},
}
JOINT = (
    *("observation.inclination", "observation.position_angle", "galaxy.disc.mass", "galaxy.disc.light.scale_length"),
    *("galaxy.disc.rotation.velocity", "galaxy.disc.population.log_age"),
)
HEIGHT = "galaxy.disc.height.scale_height"
BAND = (5000.0, 5300.0)
"""Angstrom: a box, of photons."""


def configuration(free, **heights):
    """A disc with the true values, and what is free of it."""
    disc = {
        "name": "disc",
        "mass": "1e10 Msun",
        "light": {"profile": "exponential", "scale_length": "0.8 kpc"},
        "rotation": {"curve": "arctan", "velocity": "210 km/s", "turnover_radius": "0.4 kpc"},
        "dispersion": "45 km/s",
        "population": {"log_age": 9.51, "metallicity": 0.015},
        **heights,
    }
    seen = ("inclination", "position_angle", "offset", "velocity_offset")
    observation = {name: DISC_TRUTH[f"observation.{name}"] for name in seen}
    return {
        "galaxy": {"reader": "components", "components": [disc]},
        "ssp": {"library": "bc03-miles"},
        "observation": {"redshift": 0.02, **observation},
        "instrument": {
            "name": "muse",
            "fov": "9 arcsec",
            "pixel_scale": "0.5 arcsec",
            "psf": {"kind": "gaussian", "fwhm": "0.9 arcsec"},
            "wavelength": {"start": 4900, "stop": 5400, "step": "1.25 Angstrom"},
        },
        "pipeline": "stellar",
        "engine": {"method": "basis", "velocity_range": 1000},
        "devices": {"data": 1},
        "noise": {"signal_to_noise": 30, "seed": 1},
        "fit": {"free": free},
    }


def pose(name):
    """The configuration of a fit whose data lie in this folder (without a section `fit.data`: that of the packaged
    one), and the true values."""
    truth = {
        "disc": DISC_TRUTH,
        "thick": {**DISC_TRUTH, HEIGHT: 0.3},
        "joint": {own: DISC_TRUTH[own] for own in JOINT},
    }.get(name)
    if name == "disc":
        return configuration(DISC_FREE), truth
    if name == "thick":
        free = {**DISC_FREE, HEIGHT: {"log_uniform": ["0.03 kpc", "1 kpc"]}}
        return configuration(free, height={"profile": "sech2", "scale_height": "0.3 kpc"}), truth
    made = configuration({own: DISC_FREE[own] for own in JOINT})
    made["fit"]["data"] = {
        "cube": {"cube": "joint.fits"},
        "image": {
            "image": "image.fits",
            "filter": "band.txt",
            "bins": 24,
            "instrument": {"psf": {"fwhm": "0.5 arcsec"}},
        },
        "fibre": {
            "spectrum": "spectrum.txt",
            "units": "1e-20 erg/s/cm2/Angstrom",
            "medium": "air",
            "aperture": {"shape": "circle", "size": "3 arcsec", "ra": 150.0, "dec": 2.0},
            "instrument": {"wavelength": {"start": 4900, "stop": 5600, "step": "2 Angstrom"}},
        },
    }
    return made, truth


def make_mock(name, folder):
    """The data of a problem, in a folder; the configuration beside them."""
    if name == "fit_synthetic":
        rl.run("fit_synthetic", output=folder / "fit_synthetic.fits")
        return
    config, _ = pose(name)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    without = {key: own for key, own in config.items() if key != "fit"}
    without["observation"] |= {"ra": 150.0, "dec": 2.0}
    rl.run(without, output=folder / f"{name}.fits")
    if name == "joint":
        write_image(without, folder)
        write_spectrum(without, folder)


def write_image(config, folder):
    """An image of the disc: the photons in a box, through a sharper seeing, S/N 50 in the brightest pixel."""
    psf = {"instrument.psf.fwhm": "0.5 arcsec", "instrument.pixel_scale": "0.3 arcsec"}
    bins = {"instrument.wavelength.start": 4990, "instrument.wavelength.stop": 5310, "instrument.wavelength.step": 4}
    without = {key: own for key, own in config.items() if key != "noise"}
    cube = rl.run(rl.load_config(without, overrides={**psf, **bins}))
    wavelength = np.asarray(cube.wavelength)
    weight = wavelength * ((wavelength > BAND[0]) & (wavelength < BAND[1]))
    image = np.asarray(cube.flux, np.float64) @ weight / weight.sum()
    sigma = np.full_like(image, image.max() / 50)
    image += sigma * np.random.default_rng(2).standard_normal(image.shape)
    middle, side = (image.shape[0] + 1) / 2, 0.3 / 3600
    header = {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRPIX1": middle, "CRPIX2": middle, "CD1_1": -side}
    header |= {"CD2_2": side, "CRVAL1": 150.0, "CRVAL2": 2.0, "BUNIT": "1e-20 erg/s/cm2/Angstrom"}
    parts = [fits.ImageHDU(own, fits.Header(header), part) for part, own in (("SCI", image), ("ERR", sigma))]
    fits.HDUList([fits.PrimaryHDU(), *parts]).writeto(folder / "image.fits", overwrite=True)
    edges = [BAND[0] - 1, BAND[0], BAND[1], BAND[1] + 1]
    np.savetxt(folder / "band.txt", np.transpose([edges, [0, 1, 1, 0]]))


def write_spectrum(config, folder):
    """The light inside a circle of 3 arcsec about the field's centre, by spaxels of 0.1 arcsec, S/N 50."""
    bins = {"instrument.wavelength.stop": 5600, "instrument.wavelength.step": 2, "instrument.pixel_scale": "0.1 arcsec"}
    without = {key: own for key, own in config.items() if key != "noise"}
    cube = rl.run(rl.load_config(without, overrides={**bins, "instrument.fov": "5 arcsec"}))
    flux = np.asarray(cube.flux, np.float64)
    y, x = ((np.arange(20 * size) - 0.5 * (20 * size - 1)) * 0.005 for size in flux.shape[:2])
    inside = (np.hypot(y[:, None], x[None, :]) < 1.5).astype(float)
    share = inside.reshape(flux.shape[0], 20, flux.shape[1], 20).mean(axis=(1, 3))
    spectrum = np.einsum("yx,yxw->w", share, flux)
    sigma = np.full_like(spectrum, spectrum.mean() / 50)
    spectrum += sigma * np.random.default_rng(3).standard_normal(spectrum.shape)
    rows = np.transpose([np.asarray(cube.wavelength), spectrum, sigma])
    np.savetxt(folder / "spectrum.txt", rows, header="wavelength flux sigma", comments="")


def fit_one(name, folder, sami):
    """The fit of one problem, in this process; a line of JSON at the end of what is printed."""
    jax.config.update("jax_enable_x64", True)
    os.chdir(folder)
    progress = Progress(sys.stderr)
    truth = None
    if name == "sami":
        sys.path.insert(0, str(SAMI.parent))
        sami_halpha = importlib.import_module("sami_halpha")
        data = rl.read_observed(sami)
        result = rl.fit(sami_halpha.configuration(sami_halpha.kinematic_angle(data)), data, progress=progress)
    elif name == "fit_synthetic":
        config = rl.load_config("fit_synthetic")
        result = rl.fit(config, progress=progress)
        sections = {"galaxy": config.galaxy.build(), "observation": config.observation}
        truth = {own: float(getattr(sections[own.split(".")[0]], own.split(".")[1])) for own in result.values}
    else:
        _, truth = pose(name)
        config = rl.load_config(f"{name}.yaml")
        result = rl.fit(config, *([] if name == "joint" else [f"{name}.fits"]), progress=progress)
    pulls = {} if truth is None else {own: pull_of(result, own, value) for own, value in truth.items()}
    points = [note for note in result.notes if "quadrature" in note]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "problem": name,
        "seconds": usage.ru_utime + usage.ru_stime,
        "phases": {own: round(value, 1) for own, value in progress.processor.items()},
        "steps": int(result.starts.n_step.sum()),
        "starts": len(result.starts.loss),
        "loss": float(result.quality.loss),
        "reduced": float(result.quality.reduced),
        "converged": bool(result.converged),
        "pulls": pulls,
        "values": {own: np.asarray(value).tolist() for own, value in result.values.items()},
        "sigma": {own: np.asarray(value).tolist() for own, value in result.sigma.items()},
        "verdict": result.summary().splitlines()[0],
        "points": points,
    }
    print("RESULT " + json.dumps(found))


def pull_of(result, name, value):
    """The largest difference of a parameter's values from the truth, in sigma."""
    apart = np.asarray(result.values[name]) - np.asarray(value)
    if name == "observation.position_angle":
        apart = (apart + 180) % 360 - 180
    return float(np.max(np.abs(apart / np.asarray(result.sigma[name]))))


def measured(name, folder, sami):
    """The fit of one problem in a process of its own, with nothing compiled before, and its wall time."""
    with tempfile.TemporaryDirectory(prefix="empty-") as cache:
        (Path(cache) / "ssp").symlink_to(LIBRARIES)
        command = [sys.executable, __file__, "--fit", name, "--folder", str(folder), "--sami", str(sami)]
        environment = os.environ | {"RUBIX_LIKE_CACHE": cache}
        begun = time.monotonic()
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        wall = time.monotonic() - begun
    (line,) = [own for own in ended.stdout.splitlines() if own.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT ")) | {"wall": wall}


def row_of(found):
    """One row of the table."""
    worst = max(found["pulls"].values(), default=np.nan)
    return (
        f"| {found['problem']} | {found['seconds']:.0f} | {found['wall']:.0f} | {found['starts']} | {found['steps']} "
        f"| {found['loss']:.1f} | {worst:.1f} |"
    )


def main():
    """Make the mocks that are missing, fit, print, write."""
    names = ("disc", "thick", "fit_synthetic", "joint", "sami")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=names, default=list(names))
    parser.add_argument("--fit", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--sami", type=lambda text: Path(text).resolve(), default=None)
    parser.add_argument("--folder", type=lambda text: Path(text).resolve(), default=Path("fit_cost").resolve())
    parser.add_argument("--output", type=Path, default=Path("costs.jsonl"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.fit:
        fit_one(given.fit, given.folder, given.sami)
        return
    print("| problem | processor s | wall s | starts | steps | loss | largest |\n|---|---|---|---|---|---|---|")
    for name in given.problems:
        if name == "sami" and given.sami is None:
            continue
        if name != "sami" and not (given.folder / f"{name}.fits").exists():
            make_mock(name, given.folder)
        found = measured(name, given.folder, given.sami)
        print(row_of(found), flush=True)
        with given.output.open("a") as stream:
            stream.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
