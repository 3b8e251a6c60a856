"""MUSE mocks at S/N 30 fitted by a smooth disc, beside maps by pPXF and a disc fitted to them.

    export PYTHONPATH=tests:tests/physics:tests/benchmarks
    python tests/benchmarks/fits/stellar_maps.py run found.jsonl --ppxf PYTHON
        [--galaxy illustris1_z0_subhalo420815_stars.hdf5] [--cases disc galaxy] [--seeds 3]
    python tests/benchmarks/fits/stellar_maps.py report found.jsonl

Two cubes of MUSE's bins and line spread, S/N 30 in the brightest voxel, with the library bc03-miles:

- `disc`: a thin exponential disc made by numpy alone (`tests/foreign_cube.py`) with MUSE's line spread, which is put on
  the library's spectrum here. True maps are those of its distribution along the line of sight.
- `galaxy`: a galaxy of Illustris, painted by this package, at redshift 0.03, seen 60 deg from its axis. True maps are
  sums over its particles, through the seeing, weighted by their light in the fitted range, in numpy here. A disc is no
  model of it.

The same Voronoi bins (S/N 50, by VorBin) for all. `ours`: `rl.fit` of one smooth disc to the cube; its maps are those
of the best model. `ppxf`: pPXF, in its own environment (`stellar_maps_peer.py`), and a disc fitted to its maps of V and
sigma and to the light. Records are JSON lines; what the file has is not fitted again.
"""

import functools
import subprocess
import tempfile
import time
from pathlib import Path

import foreign_cube
import independent
import numpy as np
import yaml
from measuring import add_record, described, head, records, run_or_report
from scipy.interpolate import CubicSpline, RegularGridInterpolator

import rubix_like as rl
from rubix_like.extend import cache_directory, on_grid_of

PEER = Path(__file__).parent / "stellar_maps_peer.py"
RATIO, BIN_RATIO = 30.0, 50.0
"""S/N of the brightest voxel, and of the bins' spectra per bin of wavelength."""

FIRST, LAST, STEP = 4900.0, 5400.0, 1.25
LINE_SPREAD = (6.040, -9.187e-4, 5.866e-8)
"""MUSE's FWHM in Angstrom by powers of the wavelength, with the bin (Bacon et al. 2017, A&A 608, A1, eq. 8)."""

NODES = {"log_ages": np.linspace(8.0, 10.2, 12), "metallicities": (0.004, 0.008, 0.02, 0.05)}
"""Of pPXF's templates."""

GRID = {
    "N_SPAXEL": 12,
    "SPAXEL": 0.6,
    "MARGIN": 6,
    "FINE": 10,
    "FIRST": FIRST,
    "LAST": LAST,
    "STEP": STEP,
    "SIGNAL_TO_NOISE": RATIO,
}
TRUTH = {
    "observation.inclination": 55.0,
    "observation.position_angle": 120.0,
    "observation.velocity_offset": 20.0,
    "instrument.psf.fwhm": 0.9,
    "galaxy.stellar_mass": 1e10,
    "galaxy.disc_scale_length": 0.9,
    "galaxy.rotation_velocity": 200.0,
    "galaxy.turnover_radius": 0.4,
    "galaxy.disc_dispersion": 55.0,
    "galaxy.disc_log_age": 9.6,
    "galaxy.disc_metallicity": 0.015,
}
OBSERVED = {
    "disc": {"redshift": foreign_cube.REDSHIFT, "n_spaxel": 12, "spaxel": 0.6, "seeing": 0.9},
    "galaxy": {"redshift": 0.03, "n_spaxel": 12, "spaxel": 1.4, "seeing": 2.0},
}
TURNED = {"inclination": 90.0, "position_angle": 30.0}
"""Of the galaxy's own axes: its angular momentum is then 120 deg from the line of sight."""

QUANTITIES = {"velocity": "km/s", "sigma": "km/s", "log_age": "dex"}
FREE = {
    "observation.inclination": {"isotropic": ["5 deg", "88 deg"]},
    "observation.position_angle": {"uniform": ["0 deg", "360 deg"]},
    "observation.offset": {"normal": [0, "1 arcsec"]},
    "observation.velocity_offset": {"normal": [0, "100 km/s"]},
    "galaxy.disc.mass": {"log_uniform": ["1e8 Msun", "1e12 Msun"]},
    "galaxy.disc.light.scale_length": {"log_uniform": ["0.2 kpc", "20 kpc"]},
    "galaxy.disc.rotation.velocity": {"uniform": ["5 km/s", "500 km/s"]},
    "galaxy.disc.rotation.turnover_radius": {"log_uniform": ["0.02 kpc", "8 kpc"]},
    "galaxy.disc.dispersion": {"uniform": ["5 km/s", "300 km/s"]},
    "galaxy.disc.population.log_age": {"uniform": [8.0, 10.2]},
    "galaxy.disc.population.metallicity": {"log_uniform": [0.0005, 0.05]},
}


def width_of(wavelength):
    """FWHM of MUSE's line spread at wavelengths in air."""
    return np.polynomial.polynomial.polyval(wavelength, LINE_SPREAD)


def spread_population(library, redshift):
    """`foreign_cube.population` with MUSE's line spread: on a grid of 0.1 Angstrom, by sums over Gaussians."""
    rest, spectrum = foreign_cube.population(library)
    fwhm = rl.load_ssp(library).fwhm
    fine = np.arange(FIRST / (1 + redshift) - 60, LAST / (1 + redshift) + 60, 0.1)
    seen = fine * (1 + redshift)
    bin_part = 8 * np.log(2) * STEP**2 / 12
    square = (
        width_of(independent.vacuum_to_air(seen)) ** 2 - bin_part - (np.interp(fine, rest, fwhm) * (1 + redshift)) ** 2
    )
    if square.min() <= 0:
        raise ValueError("the library is coarser than MUSE's line spread: shorten the range")
    sigma = np.sqrt(square / (8 * np.log(2))) / (1 + redshift)
    values, reach = np.interp(fine, rest, spectrum), int(6 * sigma.max() / 0.1) + 1
    total = norm = 0.0
    for step in range(-reach, reach + 1):
        weight = np.exp(-0.5 * (0.1 * step / sigma) ** 2)
        total, norm = total + weight * np.roll(values, step), norm + weight
    return fine, total / norm


def write_disc(path, library, seed):
    """The cube of numpy's disc, and its true maps (y, x): light, V, sigma, log age."""
    foreign_cube.TRUTH |= TRUTH
    for name, value in GRID.items():
        setattr(foreign_cube, name, value)
    own, kept = spread_population(library, foreign_cube.REDSHIFT), foreign_cube.population
    try:
        foreign_cube.population = lambda _: own
        foreign_cube.write_foreign_cube(path, library, seed)
    finally:
        foreign_cube.population = kept
    channel, density = foreign_cube.line_of_sight_distribution()
    light = density.sum(axis=2)
    mean = density @ channel / light
    spread = np.sqrt(density @ channel**2 / light - mean**2)
    ages = np.full(light.shape, TRUTH["galaxy.disc_log_age"])
    return light, mean + TRUTH["observation.velocity_offset"], spread, ages


def write_galaxy(path, library, seed, source):
    """The cube of the galaxy of a simulation, painted by this package, and its true maps by numpy."""
    own = OBSERVED["galaxy"]
    galaxy = rl.load_galaxy(source)
    config = rl.load_config(
        {
            "observation": {"redshift": own["redshift"], "align": "none", **TURNED},
            "ssp": {"library": str(library)},
            "instrument": {
                "name": "muse",
                "pixel_scale": own["spaxel"],
                "fov": own["spaxel"] * own["n_spaxel"],
                "psf": {"fwhm": own["seeing"]},
                "wavelength": {"start": FIRST, "stop": LAST},
            },
            "engine": {"deposit": "tsc"},
            "noise": {"signal_to_noise": RATIO, "seed": seed},
        }
    )
    rl.Pipeline.from_config(config, galaxy)(galaxy).write(path)
    return particle_maps(galaxy.stars, rl.load_ssp(library), own)


def particle_maps(stars, library, own):
    """Light, V, sigma and log age (y, x) of particles through the seeing: sums in cells, by numpy."""
    turned = independent.Particles.of(stars).turned(independent.sky_rotation(*TURNED.values()))
    fine, margin = 8, 8
    side, cell = (own["n_spaxel"] + 2 * margin) * fine, own["spaxel"] / fine
    scale = independent.arcsec_per_kpc(own["redshift"], independent.luminosity_distance(own["redshift"])) / cell
    x, y, _ = turned.position.T
    column, row = (np.floor(0.5 * side + place * scale).astype(int) for place in (-x, y))
    near = (column >= 0) & (column < side) & (row >= 0) & (row < side)
    light, velocity, ages = light_of(turned, library, own["redshift"]), turned.velocity[:, 2], turned.log_age
    sums = []
    for value in (1.0, velocity, velocity**2, ages):
        image = np.bincount((row * side + column)[near], (light * value)[near], side**2).reshape(side, side)
        wave = np.fft.fftfreq(side, cell)[:, None] ** 2 + np.fft.rfftfreq(side, cell) ** 2
        sigma = own["seeing"] / np.sqrt(8 * np.log(2))
        seen = np.fft.irfft2(np.fft.rfft2(image) * np.exp(-2 * (np.pi * sigma) ** 2 * wave), image.shape)
        whole = own["n_spaxel"] + 2 * margin
        sums.append(seen.reshape(whole, fine, whole, fine).sum(axis=(1, 3))[margin:-margin, margin:-margin])
    mean = sums[1] / sums[0]
    return sums[0], mean, np.sqrt(sums[2] / sums[0] - mean**2), sums[3] / sums[0]


def light_of(particles, library, redshift):
    """Light of each particle in the fitted range, in any unit."""
    rest = library.rest_wavelength * (1 + redshift)
    bright = np.asarray(library.spectra, np.float64)[:, :, (rest > FIRST) & (rest < LAST)].mean(axis=2)
    axes = np.log10(library.metallicity), library.log_age
    with np.errstate(divide="ignore"):
        place = np.log10(np.maximum(particles.metallicity, 0)), particles.log_age
    where = np.stack([np.clip(own, axis[0], axis[-1]) for own, axis in zip(place, axes, strict=True)], axis=1)
    return particles.mass * RegularGridInterpolator(axes, bright)(where)


def in_bins(bins, light, velocity, sigma, ages):
    """Light-weighted V, sigma and log age of bins, from those of spaxels."""
    inside = bins >= 0

    def total(image):
        return np.bincount(bins[inside], image[inside], bins.max() + 1)

    whole, mean = total(light), total(light * velocity) / total(light)
    spread = total(light * (sigma**2 + velocity**2)) / whole - mean**2
    return {"velocity": mean, "sigma": np.sqrt(spread), "log_age": total(light * ages) / whole}


def configuration(case, library):
    """One smooth disc, with no start given."""
    own = OBSERVED[case]
    disc = {
        "name": "disc",
        "mass": "1e10 Msun",
        "light": {"profile": "exponential", "scale_length": "1.5 kpc"},
        "height": {"profile": "thin"},
        "rotation": {"curve": "arctan", "velocity": "150 km/s", "turnover_radius": "0.5 kpc"},
        "dispersion": "60 km/s",
        "population": {"log_age": 9.5, "metallicity": 0.01},
    }
    return {
        "galaxy": {"reader": "components", "components": [disc]},
        "ssp": {"library": str(library)},
        "observation": {"redshift": own["redshift"], "inclination": 45, "position_angle": 90},
        "instrument": {"name": "muse", "psf": {"kind": "gaussian", "fwhm": own["seeing"]}},
        "pipeline": "stellar",
        "engine": {"method": "basis", "velocity_range": 1200},
        "devices": {"data": 1},
        "fit": {"free": FREE, "starts": 1},
    }


def ours(case, path, bins, library):
    """`rl.fit` of the disc: values, maps of the best model in the bins, what the result says, and the time."""
    begun = time.process_time()
    result = rl.fit(configuration(case, library), path)
    seconds = time.process_time() - begun
    config = {**yaml.safe_load(result.config), "products": {}}
    config = on_grid_of(config, rl.read_observed(path))
    maps = rl.Pipeline.from_config(config, result.galaxy)(result.galaxy, result.parameters).maps.after
    images = [np.asarray(own, np.float64) for own in (maps.light, maps.v_light, maps.sigma_light, maps.log_age_light)]
    values = {name: np.ravel(own).tolist() for name, own in result.values.items()}
    sigma = {name: np.ravel(own).tolist() for name, own in result.sigma.items()}
    return {
        "maps": in_bins(bins, *images), "values": values, "sigmas": sigma, "seconds": seconds,
        "first_line": str(result).splitlines()[0], "misfit": result.verdict.misfit, "matters": result.verdict.matters,
    }  # fmt: skip


def bins_of(python, path):
    """Numbers of Voronoi bins (y, x) whose spectra have the signal to noise `BIN_RATIO`."""
    cube = rl.read_observed(path)
    signal, noise = cube.flux.mean(axis=2), np.sqrt(cube.variance.mean(axis=2))
    return by_peer(python, "bins", {"signal": signal, "noise": noise, "target": BIN_RATIO})["bins"]


def by_peer(python, command, job):
    """Arrays that the peer's `command` makes of a job."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("job.npz", "found.npz")]
        np.savez(paths[0], **job)
        subprocess.run([python, str(PEER), command, *paths], check=True)
        return dict(np.load(paths[1]))


def by_ppxf(python, path, bins, library, case):
    """pPXF's maps and the disc fitted to them; templates are those of `NODES`."""
    own, cube, ssp = OBSERVED[case], rl.read_observed(path), rl.load_ssp(library)
    vacuum, inside = independent.air_to_vacuum(cube.wavelength), bins >= 0
    rows, squares = (
        np.array([np.bincount(bins[inside], image[inside]) for image in np.moveaxis(np.asarray(data, float), 2, 0)])
        for data in (cube.flux, cube.variance)
    )
    log_wave = np.linspace(*np.log(vacuum[[0, -1]]), len(vacuum))
    even, step = np.exp(log_wave), log_wave[1] - log_wave[0]
    average = 8 * np.log(2) * (even * step) ** 2 / 12 * (1 - 1 / 4**2)
    width = np.sqrt(width_of(independent.vacuum_to_air(even)) ** 2 - average) / (1 + own["redshift"])
    log_ages, metals = NODES["log_ages"], np.array(NODES["metallicities"])
    table = [np.interp(log_ages, ssp.log_age, unit) for unit in np.eye(len(ssp.log_age))]
    zs = [np.interp(np.log10(metals), np.log10(ssp.metallicity), unit) for unit in np.eye(len(ssp.metallicity))]
    near = (ssp.rest_wavelength > 4000) & (ssp.rest_wavelength < 6200)
    spectra = np.asarray(ssp.spectra[:, :, near], float)
    job = {
        "spectra": CubicSpline(vacuum, rows)(even), "noise": np.sqrt(CubicSpline(vacuum, squares)(even)),
        "log_wave": log_wave - np.log(1 + own["redshift"]), "fwhm": width, "rest": ssp.rest_wavelength[near],
        "library": np.einsum("mz,an,mar->znr", np.array(zs), np.array(table), spectra),
        "library_fwhm": ssp.fwhm[near], "log_ages": log_ages, "metallicities": metals, "bins": bins,
        "light": rows.mean(axis=0), "light_noise": np.sqrt(squares.sum(axis=0)) / len(rows),
        "spaxel": own["spaxel"], "seeing": own["seeing"],
    }  # fmt: skip
    return {name: own.tolist() for name, own in by_peer(python, "maps", job).items()}


def record_of(case, seed, given):
    """Everything about one cube."""
    write = write_disc if case == "disc" else functools.partial(write_galaxy, source=given.galaxy)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cube.fits"
        truth = write(path, given.library, seed)
        bins = bins_of(given.ppxf, path)
        own = ours(case, path, bins, given.library)
        print(f"{case} {seed}: {bins.max() + 1} bins, {own['seconds']:.0f} s. {own['first_line']}", flush=True)
        peer = by_ppxf(given.ppxf, path, bins, given.library, case)
        print(f"{case} {seed}: {peer['seconds']:.0f} + {peer['disc_seconds']:.0f} s by pPXF and a disc", flush=True)
        found = {"case": case, "seed": seed, "truth": in_bins(bins, *truth), "ours": own, "ppxf": peer}
    return plain(found)


def plain(found):
    """Arrays as lists."""
    if isinstance(found, dict):
        return {name: plain(own) for name, own in found.items()}
    return found.tolist() if isinstance(found, np.ndarray) else found


def run(given):
    """Fit what the file does not have yet."""
    done = {(own["case"], own["seed"]) for own in records(given.file)}
    for seed in range(1, given.seeds + 1):
        for case in given.cases:
            if (case, seed) in done or (case == "galaxy" and given.galaxy is None):
                continue
            add_record(given.file, record_of(case, seed, given))


NUMBERS = {
    "observation.inclination": ("observation.inclination", "inclination", "deg"),
    "observation.position_angle": ("observation.position_angle", "position_angle", "deg"),
    "observation.velocity_offset": ("observation.velocity_offset", "systemic", "km/s"),
    "galaxy.disc.rotation.velocity": ("galaxy.rotation_velocity", "velocity", "km/s"),
    "galaxy.disc.rotation.turnover_radius": ("galaxy.turnover_radius", "turnover", "kpc"),
    "galaxy.disc.dispersion": ("galaxy.disc_dispersion", "dispersion", "km/s"),
    "galaxy.disc.light.scale_length": ("galaxy.disc_scale_length", "scale_length", "kpc"),
    "galaxy.disc.population.log_age": ("galaxy.disc_log_age", None, "dex"),
}
"""Our name -> that of the truth, that of the disc fitted to maps, unit."""


def report(given):
    """Print maps and numbers, and what results say."""
    found = records(given.file)
    errors = [f"{name}: rms, median" for name in ("V", "sigma", "log age")]
    print(head("cube", "seed", "bins", "by", *errors, "processor s"))
    for own in found:
        for by, maps, seconds in maps_of(own):
            cells = [cell_of(np.subtract(maps[name], own["truth"][name]), name) for name in QUANTITIES]
            count = len(own["truth"]["sigma"])
            print(f"| {own['case']} | {own['seed']} | {count} | {by} | {' | '.join(cells)} | {seconds} |")
    scale = independent.arcsec_per_kpc(foreign_cube.REDSHIFT, independent.luminosity_distance(foreign_cube.REDSHIFT))
    print("\n| number | true | ours, by seed | pPXF and a disc, by seed |\n|---|---|---|---|")
    discs = [own for own in found if own["case"] == "disc"]
    for name, (true, theirs, unit) in NUMBERS.items():
        mine = [f"{own['ours']['values'][name][0]:.3f} ± {own['ours']['sigmas'][name][0]:.3f}" for own in discs]
        other = [
            "" if theirs is None else peer_value(own["ppxf"], theirs, scale if unit == "kpc" else 1.0) for own in discs
        ]
        print(f"| {name} ({unit}) | {TRUTH[true]:g} | {'; '.join(mine)} | {'; '.join(other)} |")
    for own in found:
        print(f"{own['case']}, seed {own['seed']}: {own['ours']['first_line']}")


def maps_of(record):
    """(by, maps, seconds) of each."""
    peer = record["ppxf"]
    disc = {
        "velocity": peer["disc_map_velocity"],
        "sigma": peer["disc_map_sigma"],
        "log_age": np.full(len(peer["sigma"]), np.nan),
    }
    return (
        ("one smooth disc, `rl.fit`", record["ours"]["maps"], f"{record['ours']['seconds']:.0f}"),
        ("bin by bin, pPXF", peer, f"{peer['seconds']:.0f}"),
        ("disc fitted to pPXF's maps", disc, f"+ {peer['disc_seconds']:.0f}"),
    )


def cell_of(error, name):
    """rms and median error."""
    if not np.isfinite(error).all():
        return ""
    digits = 3 if QUANTITIES[name] == "dex" else 2
    return f"{np.sqrt(np.mean(error**2)):.{digits}f}, {np.median(error):+.{digits}f}"


def peer_value(found, name, arcsec):
    """Value and error, lengths in kpc."""
    value, error = found[f"disc_{name}"] / arcsec, found[f"disc_{name}_error"] / arcsec
    return f"{value % 360 if name == 'position_angle' else value:.3f} ± {error:.3f}"


def main():
    """Run, or report."""
    parser = described(__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--ppxf")
    parser.add_argument("--galaxy", type=Path)
    parser.add_argument("--cases", nargs="+", default=("disc", "galaxy"), choices=tuple(OBSERVED))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--library", type=Path, default=cache_directory() / "ssp" / "bc03-miles.h5")
    run_or_report(parser, {"run": run, "report": report})


if __name__ == "__main__":
    main()
