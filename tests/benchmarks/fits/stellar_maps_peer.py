"""Bins by VorBin, and maps by pPXF with a disc fitted to them: in an environment with ppxf 9.4 or later and vorbin.

    PYTHON_WITH_PPXF tests/benchmarks/fits/stellar_maps_peer.py bins job.npz found.npz
    PYTHON_WITH_PPXF tests/benchmarks/fits/stellar_maps_peer.py maps job.npz found.npz

Called by `stellar_maps.py`, whose job is, for bins, images of `signal` and `noise` and a `target`; for maps `spectra`
and `noise` (wave, bin) on bins of even ln(wavelength), `log_wave` (at rest, vacuum), `fwhm` (of the templates, Angstrom
at rest, without the average over bins, which pPXF makes itself), the library's `rest`, `library` (metal, age, wave),
`library_fwhm`, `log_ages`, `metallicities`; for the disc `bins` (y, x), `light` and `light_noise` (bin), `spaxel` and
`seeing` (arcsec).

pPXF fits two moments and weights of all templates, with no polynomials (the cubes are calibrated) and regularised; ages
are means of log10(age) weighted by light in the fitted range. The disc is thin and exponential, with an arctan curve
and one dispersion: its light, V and sigma, through the seeing, averaged over spaxels and bins, are fitted to the three
maps with their errors by `scipy.optimize.least_squares` from several starts.
"""

# ruff: noqa: PLC0415

import sys
import time
from pathlib import Path

import numpy as np
from scipy import optimize

RATIO = 4
"""Templates are sampled this many times finer than the data."""

REGUL = 10.0
LIGHT = 299792.458
FINE, MARGIN = 8, 7
"""Cells a spaxel; spaxels around the field."""

NAMES = (
    "inclination", "position_angle", "systemic", "velocity", "turnover", "dispersion", "scale_length", "east", "north",
)  # fmt: skip
ANGLES = (20.0, 110.0, 200.0, 290.0)
"""Position angles that the disc is begun at."""


def templates_of(job):
    """(wave, metal, age), each with a mean of 1 in the fitted range, and ln of their wavelengths."""
    from ppxf.ppxf_util import varsmooth

    step = np.diff(job["log_wave"])[0]
    fine = np.arange(job["log_wave"][0] - 0.02, job["log_wave"][-1] + 0.02, step / RATIO)
    near = (job["rest"] > np.exp(fine[0]) - 20) & (job["rest"] < np.exp(fine[-1]) + 20)
    rest = job["rest"][near]
    wanted = np.interp(rest, np.exp(job["log_wave"]), job["fwhm"])
    square = wanted**2 - job["library_fwhm"][near] ** 2
    if square.min() <= 0:
        raise SystemExit("the library is coarser than the data")
    rows = job["library"][:, :, near]
    smooth = varsmooth(rest, rows.reshape(-1, len(rest)).T, np.sqrt(square) / 2.35482, xout=np.exp(fine), oversample=2)
    inside = (fine > job["log_wave"][0]) & (fine < job["log_wave"][-1])
    return (smooth / smooth[inside].mean(axis=0)).reshape(-1, *rows.shape[:2]), fine


def fitted(job):
    """V, sigma (km/s), their errors, the mean log age and log Z of every bin, and the processor time."""
    from ppxf.ppxf import ppxf

    begun = time.process_time()
    templates, fine = templates_of(job)
    rows = []
    for flux, noise in zip(job["spectra"].T, job["noise"].T, strict=True):
        level = np.median(flux)
        own = ppxf(
            templates,
            flux / level,
            noise / level,
            np.diff(job["log_wave"])[0] * LIGHT,
            [0.0, 80.0],
            moments=2,
            degree=-1,
            mdegree=0,
            regul=REGUL,
            lam=np.exp(job["log_wave"]),
            lam_temp=np.exp(fine),
            velscale_ratio=RATIO,
            quiet=True,
        )
        share = own.weights.reshape(templates.shape[1:])
        ages = (share * job["log_ages"][None, :]).sum() / share.sum()
        metals = (share * np.log10(job["metallicities"])[:, None]).sum() / share.sum()
        rows.append([*own.sol, *(own.error * np.sqrt(own.chi2)), ages, metals, own.chi2])
    names = ("velocity", "sigma", "velocity_error", "sigma_error", "log_age", "log_metallicity", "chi2")
    return dict(zip(names, np.array(rows).T, strict=True)) | {"seconds": time.process_time() - begun}


class Disc:
    """Maps of a disc in the bins; lengths in arcsec, angles in deg, velocities in km/s."""

    def __init__(self, job):
        self.bins, spaxel = job["bins"], float(job["spaxel"])
        self.count = int(self.bins.max()) + 1
        self.shape = [side + 2 * MARGIN for side in self.bins.shape]
        y, x = ((np.arange(side * FINE) - 0.5 * (side * FINE - 1)) * spaxel / FINE for side in self.shape)
        self.east, self.north = -x[None, :], y[:, None]
        waves = [np.fft.fftfreq(len(y), spaxel / FINE)[:, None], np.fft.rfftfreq(len(x), spaxel / FINE)]
        sigma = float(job["seeing"]) / np.sqrt(8 * np.log(2))
        self.transfer = np.exp(-2 * (np.pi * sigma) ** 2 * (waves[0] ** 2 + waves[1] ** 2))

    def maps(self, values):
        """Light (of a disc of total 1), V and sigma of the bins."""
        tilt, turn = np.radians(values[0]), np.radians(values[1])
        east, north = self.east - values[7], self.north - values[8]
        major = east * np.sin(turn) + north * np.cos(turn)
        minor = (-east * np.cos(turn) + north * np.sin(turn)) / np.cos(tilt)
        radius = np.hypot(major, minor)
        light = np.exp(-radius / values[6])
        speed = values[3] * 2 / np.pi * np.arctan(radius / values[4]) * np.sin(tilt)
        velocity = speed * major / np.maximum(radius, 1e-9)
        sums = [self.seen(light * velocity**power) for power in range(3)]
        mean = sums[1] / sums[0]
        spread = np.sqrt(np.maximum(sums[2] / sums[0] - mean**2, 0) + values[5] ** 2)
        cell = 2 * np.pi * values[6] ** 2 * np.cos(tilt) / (self.east[0, 0] - self.east[0, 1]) ** 2
        return sums[0] / cell, mean + values[2], spread

    def seen(self, image):
        """A sum through the seeing, in bins."""
        blurred = np.fft.irfft2(np.fft.rfft2(image) * self.transfer, image.shape)
        y, x = self.shape
        spaxels = blurred.reshape(y, FINE, x, FINE).sum(axis=(1, 3))[MARGIN:-MARGIN, MARGIN:-MARGIN]
        inside = self.bins >= 0
        return np.bincount(self.bins[inside], spaxels[inside], self.count)


def disc_of(job, maps):
    """The best disc of the maps: values, their standard deviations (with the scatter of the residuals), and time."""
    begun, disc = time.process_time(), Disc(job)

    def residuals(values):
        light, velocity, sigma = disc.maps(values)
        weight = light / job["light_noise"]
        seen = job["light"] / job["light_noise"]
        brightness = weight * (weight @ seen) / (weight @ weight) - seen  # the total flux is solved for
        return np.concatenate(
            [
                brightness,
                (velocity - maps["velocity"]) / maps["velocity_error"],
                (sigma - maps["sigma"]) / np.maximum(maps["sigma_error"], 0.5),
            ]
        )

    spaxel = float(job["spaxel"])
    bounds = ([5, -90, -400, 5, 0.02, 5, 0.2, -3, -3], [88, 450, 400, 600, 8, 300, 20, 3, 3])
    starts = [[50.0, angle, 0.0, 150.0, 1.0, 60.0, 4 * spaxel, 0.0, 0.0] for angle in ANGLES]
    scales = [10, 20, 20, 50, 0.5, 20, 1, 0.3, 0.3]
    ends = [optimize.least_squares(residuals, own, bounds=bounds, x_scale=scales) for own in starts]
    found = min(ends, key=lambda own: own.cost)
    scatter = max(1.0, 2 * found.cost / (len(found.fun) - len(found.x)))
    values = dict(zip(NAMES, found.x, strict=True))
    errors = np.sqrt(np.diag(np.linalg.pinv(found.jac.T @ found.jac)) * scatter)
    made = dict(zip(("map_light", "map_velocity", "map_sigma"), disc.maps(found.x), strict=True))
    values |= {f"{name}_error": error for name, error in zip(NAMES, errors, strict=True)}
    return values | made | {"seconds": time.process_time() - begun, "chi2": scatter}


def binned(job):
    """The number of every spaxel's Voronoi bin, -1 where there is no signal."""
    from vorbin.voronoi_2d_binning import voronoi_2d_binning

    used = (job["signal"] > 0) & (job["noise"] > 0)
    bins = np.full(used.shape, -1)
    y, x = np.nonzero(used)
    job = job | {name: job[name][used] for name in ("signal", "noise")}
    bins[used] = voronoi_2d_binning(x, y, job["signal"], job["noise"], float(job["target"]), plot=False, pixelsize=1)[0]
    return {"bins": bins}


def mapped(job):
    """pPXF's maps and the disc of them."""
    maps = fitted(job)
    return maps | {f"disc_{name}": own for name, own in disc_of(job, maps).items()}


def main():
    """Bin, or fit."""
    command, job, found = sys.argv[1:]
    np.savez(Path(found), **{"bins": binned, "maps": mapped}[command](dict(np.load(job))))


if __name__ == "__main__":
    main()
