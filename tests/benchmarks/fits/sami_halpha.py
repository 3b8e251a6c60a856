"""Halpha and [N II] of GAMA 485885 (SAMI) fitted by a disc of gas, beside GalPaK3D and 3DBarolo.

    python tests/benchmarks/fits/sami_halpha.py CUBE [--galpak PYTHON] [--iterations 6000] [--barolo PROGRAM]
                                                [--maps chi2.npz]

CUBE is `sami_gama485885_halpha.fits`. PSF, LSF and inclination are those of the cube's own documentation: two Gaussians
of 2.30" (65 %) and 1.43", 1.61 Angstrom, 32.8 deg (held). Prints V(2.2 R_d), dispersion, chi^2 and time of each, and
the median of chi^2 / n over spaxels by distance from the centre. GalPaK3D and 3DBarolo fit Halpha alone, of 6553 to
6575 Angstrom; 3DBarolo (PROGRAM: `BBarolo` of the package pyBBarolo) by rings, with a Gaussian seeing of the same FWHM.
"""

import argparse
import json
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import scipy.optimize
from astropy.io import fits

import rubix_like as rl

INCLINATION = 32.8
SEEING = ((2.300859878831419, 0.6460957385346204), (1.4309603303694296, 0.35390426146537957))
"""FWHM (arcsec) and share of each Gaussian."""

LINE_SPREAD = 1.61
DISTANCE = 206.264806
"""Mpc, of which 1 arcsec is 1 kpc at redshift 0: lengths come out in arcsec."""

HALF_LIGHT, HALPHA = 1.67834699, 6562.81
PEERS = Path(__file__).parent / "line_peers.py"
GAS = "galaxy.gas."


def configuration(angle):
    """A thin exponential disc; `angle`: where the search begins."""
    gas = {
        "name": "gas",
        "lines": {"wavelengths": ["Ha", "[N II] 6583"], "flux": "1e-14 erg/s/cm2", "ratios": [0.4]},
        "light": {"profile": "exponential", "scale_length": 2.0},
        "rotation": {"curve": "arctan", "velocity": 100, "turnover_radius": 0.5},
        "dispersion": 25,
    }
    components = [{"fwhm": width, "fraction": share} for width, share in SEEING]
    free = {
        "observation.position_angle": {"uniform": [angle - 90, angle + 90]},
        "observation.offset": {"normal": [0, 1.0]},
        "observation.velocity_offset": {"normal": [0, 60]},
        f"{GAS}lines.flux": {"log_normal": ["1e-14 erg/s/cm2", 2.0]},
        f"{GAS}lines.ratios": {"uniform": [0, 2]},
        f"{GAS}light.scale_length": {"log_uniform": [0.3, 10]},
        f"{GAS}rotation.velocity": {"uniform": [10, 350]},
        f"{GAS}rotation.turnover_radius": {"log_uniform": [0.05, 5]},
        f"{GAS}dispersion": {"uniform": [2, 100]},
    }
    return {
        "galaxy": {"reader": "components", "components": [gas]},
        "ssp": {"library": "popstar"},
        "observation": {
            "redshift": 0, "distance": f"{DISTANCE} Mpc", "inclination": INCLINATION, "position_angle": angle,
            "offset": [0, 0], "velocity_offset": 0,
        },
        "instrument": {
            "name": "muse", "psf": {"kind": "gaussians", "components": components}, "lsf": {"fwhm": LINE_SPREAD},
        },
        "pipeline": "lines",
        "engine": {"method": "basis", "velocity_range": 700},
        "devices": {"data": 1},
        "fit": {"free": free, "starts": 1},
    }  # fmt: skip


def kinematic_angle(data):
    """Position angle (deg) of the receding side, by the mean wavelengths of bright spaxels."""
    wavelength, flux = data.wavelength, np.where(data.used, data.flux, 0.0)
    window = np.abs(wavelength - 6562.8) < 8
    light = flux[:, :, window].sum(axis=2)
    bright = light > 0.1 * light.max()
    mean = (flux[:, :, window] * wavelength[window]).sum(axis=2)[bright] / light[bright]
    y, x = np.nonzero(bright)
    weight = np.sqrt(light[bright])
    design = np.stack([np.ones_like(x), x, y], axis=1) * weight[:, None]
    _, along_x, along_y = np.linalg.lstsq(design, mean * weight, rcond=None)[0]
    return float(np.degrees(np.arctan2(-along_x, along_y)) % 360)


def ours(path):
    """The fit, its result, V(2.2 R_d) with its error, and the time."""
    data = rl.read_observed(path)
    begun, wall = time.process_time(), time.time()
    result = rl.fit(configuration(kinematic_angle(data)), data)
    seconds, wall = time.process_time() - begun, time.time() - wall
    names = [f"{GAS}{own}" for own in ("rotation.velocity", "rotation.turnover_radius", "light.scale_length")]
    place = [result.labels.index(own) for own in names]
    draws = np.random.default_rng(1).multivariate_normal(
        [float(result.values[own]) for own in names], result.covariance[np.ix_(place, place)], 4000
    )
    speed = draws[:, 0] * 2 / np.pi * np.arctan(2.2 * draws[:, 2] / np.maximum(draws[:, 1], 1e-3))
    best = [float(result.values[own]) for own in names]
    found = {
        "velocity_22": best[0] * 2 / np.pi * np.arctan(2.2 * best[2] / best[1]),
        "velocity_22_sigma": float(speed.std()),
        "dispersion": float(result.values[f"{GAS}dispersion"]),
        "dispersion_sigma": float(result.sigma[f"{GAS}dispersion"]),
        "half_light": best[2] * HALF_LIGHT,
        "position_angle": float(result.values["observation.position_angle"]),
        "seconds": seconds,
        "wall": wall,
    }
    return data, result, found


def near_line(data):
    """Which bins are from 6553 to 6575 Angstrom, which GalPaK3D and 3DBarolo fit."""
    return (data.wavelength > 6553) & (data.wavelength < 6575)


def chi_map(data, model, chosen):
    """Chi^2 / n of every spaxel (y, x) in the `chosen` bins, of a model of these; NaN where nothing is fitted."""
    used = data.used[:, :, chosen] & np.isfinite(model)
    residual = np.where(used, data.flux[:, :, chosen] - model, 0.0)
    square = residual**2 / np.where(used, data.variance[:, :, chosen], 1.0)
    number = used.sum(axis=2)
    return np.where(number > 0, square.sum(axis=2) / np.maximum(number, 1), np.nan)


CHI_RINGS = ((0, 1.5), (1.5, 3), (3, 5), (5, 9))
"""Ends of the rings of which chi^2 is printed, arcsec from the centre."""


def print_chi(name, chi, distance):
    """The median of chi^2 / n over spaxels in rings."""
    rings = [chi[(distance >= low) & (distance < high) & np.isfinite(chi)] for low, high in CHI_RINGS]
    words = (f'{np.median(ring):.2f} ({low}-{high}")' for ring, (low, high) in zip(rings, CHI_RINGS, strict=True))
    print(f"{name:11s} chi^2 / n of spaxels, medians: {', '.join(words)}")


def seeing_image(spaxel, shape):
    """The seeing's two Gaussians on spaxels, about the middle of a field (y, x)."""
    y, x = ((np.arange(side) - side // 2) * spaxel for side in shape)
    square = y[:, None] ** 2 + x[None, :] ** 2
    widths = [(fwhm / np.sqrt(8 * np.log(2)), share) for fwhm, share in SEEING]
    made = sum(share * np.exp(-0.5 * square / sigma**2) / sigma**2 for sigma, share in widths)
    return made / made.sum()


def galpak(python, data, iterations):
    """GalPaK3D on the bins around Halpha, from where our own fit begins, and its model."""
    spaxel = data.pixel_scale
    start = {"inclination": INCLINATION, "position_angle": kinematic_angle(data), "velocity": 100.0}
    start |= {"turnover": 0.5 / spaxel, "half_light": 2 * HALF_LIGHT / spaxel}
    window = near_line(data)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        good = data.used[:, :, window] & (np.nan_to_num(data.variance[:, :, window]) > 0)
        scale = 1e-4
        flux = np.where(good, data.flux[:, :, window], 0.0) * scale
        variance = np.where(good, data.variance[:, :, window] * scale**2, 1e12)
        np.save(place / "flux.npy", np.moveaxis(flux, 2, 0))
        np.save(place / "variance.npy", np.moveaxis(variance, 2, 0))
        np.save(place / "seeing.npy", seeing_image(data.pixel_scale, data.shape[:2]))
        job = {
            "flux": str(place / "flux.npy"), "variance": str(place / "variance.npy"),
            "seeing_image": str(place / "seeing.npy"), "spaxel": data.pixel_scale, "line_spread": LINE_SPREAD,
            "first": float(data.wavelength[window][0]), "step": float(np.diff(data.wavelength)[0]),
            "aspect": 0.05, "inclination": INCLINATION, "inclination_is_known": True, "seed": 1,
            "iterations": iterations, "scale": 1.0, "start": start, "model": str(place / "model.npy"),
        }  # fmt: skip
        (place / "job.json").write_text(json.dumps(job))
        subprocess.run([python, str(PEERS), "fit-galpak", str(place / "job.json"), str(place / "out.json")], check=True)
        return json.loads((place / "out.json").read_text()), np.moveaxis(np.load(job["model"]), 0, 2) / scale


def seeing_width():
    """FWHM (arcsec) of the seeing's two Gaussians together."""
    parts = [(share / width**2, 4 * np.log(2) / width**2) for width, share in SEEING]

    def above_half(radius):
        return sum(peak * (np.exp(-steepness * radius**2) - 0.5) for peak, steepness in parts)

    return 2 * scipy.optimize.brentq(above_half, 0.1, 5)


BAROLO_RINGS, BAROLO_STEP = 9, 0.9
"""Number of 3DBarolo's rings, and arcsec from one to the next."""


def barolo(program, data, middle, radius):
    """3DBarolo's fit around Halpha: V interpolated at a `radius` (arcsec), medians over rings of the dispersion and the
    position angle; and its model cube (y, x, wave)."""
    window, scale = near_line(data), 1e-2
    step, spaxel = float(np.diff(data.wavelength)[0]), data.pixel_scale
    sigma = LINE_SPREAD / np.sqrt(8 * np.log(2))
    header = fits.Header(
        {
            "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "WAVE", "CUNIT1": "deg", "CUNIT2": "deg",
            "CUNIT3": "Angstrom", "CRPIX1": 1.0, "CRPIX2": 1.0, "CRPIX3": 1.0, "CRVAL1": 150.0, "CRVAL2": 2.0,
            "CRVAL3": float(data.wavelength[window][0]), "CDELT1": -spaxel / 3600, "CDELT2": spaxel / 3600,
            "CDELT3": step, "BUNIT": "erg/s/cm2", "BMAJ": seeing_width() / 3600, "BMIN": seeing_width() / 3600,
            "BPA": 0.0,
        }
    )  # fmt: skip
    settings = {
        "FITSFILE": "cube.fits", "OUTFOLDER": "found/", "3DFIT": "true", "NRADII": BAROLO_RINGS, "RADSEP": BAROLO_STEP,
        "XPOS": middle[1], "YPOS": middle[0], "VSYS": 0, "VROT": 150, "VDISP": 25, "Z0": 0, "INC": INCLINATION,
        "PA": kinematic_angle(data), "FREE": "VROT VDISP PA VSYS", "LINEAR": sigma / step,
        "RESTWAVE": HALPHA, "REDSHIFT": 0, "MASK": "SEARCH", "FLAGERRORS": "true", "TWOSTAGE": "true",
        "PLOTS": "false", "SHOWBAR": "false", "THREADS": 1,
    }  # fmt: skip
    begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        flux = np.where(data.used[:, :, window], data.flux[:, :, window], np.nan) * scale
        fits.PrimaryHDU(np.moveaxis(flux, 2, 0).astype(np.float32), header).writeto(place / "cube.fits")
        (place / "disc.par").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        subprocess.run([program, "-p", "disc.par"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        (path,) = (place / "found").glob("*mod_azim.fits")
        model = np.moveaxis(fits.getdata(path).astype(float), 0, 2) / scale
        rings = np.genfromtxt(place / "found" / "rings_final2.txt", names=True, deletechars="")
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun
    at, speed, spread = rings["RAD(arcs)"], rings["VROT(km/s)"], rings["DISP(km/s)"]
    widths = {key: 0.5 * (rings[f"E_{key}2"] - rings[f"E_{key}1"]) for key in ("VROT", "DISP")}
    found = {
        "velocity_22": float(np.interp(radius, at, speed)),
        "velocity_22_sigma": float(np.interp(radius, at, widths["VROT"])),
        "dispersion": float(np.median(spread)),
        "dispersion_sigma": float(np.median(widths["DISP"])),
        "position_angle": float(np.median(rings["P.A.(deg)"])),
        "seconds": seconds,
    }
    return found, model


def main():
    """Fit, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cube", type=Path)
    parser.add_argument("--galpak")
    parser.add_argument("--iterations", type=int, default=6000)
    parser.add_argument("--barolo")
    parser.add_argument("--maps", type=Path)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    data, result, found = ours(given.cube)
    print(result)
    everywhere, window = np.ones(len(data.wavelength), bool), near_line(data)
    model = np.asarray(result.model.flux, np.float64)
    chi = chi_map(data, model, everywhere)
    light = np.where(data.used, data.flux, 0).sum(axis=2)
    y, x = np.indices(light.shape)
    bright = light > 0.2 * light.max()
    middle = [np.average(own[bright], weights=light[bright]) for own in (y, x)]
    distance = np.hypot(y - middle[0], x - middle[1]) * data.pixel_scale
    print_chi("all bins", chi, distance)
    show("rubix_like", found)
    print_chi("rubix_like", chi_map(data, model[:, :, window], window), distance)
    if given.galpak:
        other, model = galpak(given.galpak, data, given.iterations)
        other["half_light"] *= data.pixel_scale
        show("galpak", other)
        print_chi("galpak", chi_map(data, model, window), distance)
    if given.barolo:
        program = str(Path(shutil.which(given.barolo) or given.barolo).resolve())
        other, model = barolo(
            program,
            data,
            middle,
            2.2 * found["half_light"] / HALF_LIGHT,
        )
        show("3DBarolo", other)
        print_chi("3DBarolo", chi_map(data, model, window), distance)
    if given.maps:
        np.savez(given.maps, chi2=chi, light=light)


def show(name, own):
    """A row of the table; rings have no half-light radius."""
    radius = f"{own['half_light']:.2f} arcsec" if "half_light" in own else "-"
    print(
        f"{name:11s} V(2.2 Rd) {own['velocity_22']:6.1f} +- {own['velocity_22_sigma']:4.1f} km/s, sigma "
        f"{own['dispersion']:5.1f} +- {own['dispersion_sigma']:4.1f} km/s, R_half {radius}, "
        f"PA {own['position_angle']:.1f}, {own['seconds']:.0f} s of processor time"
    )


if __name__ == "__main__":
    main()
