"""The emission lines of a mock cube, fitted with pPXF spaxel by spaxel, beside the maps of its lines.

    python fit_lines.py galaxy.fits --redshift 0.03 --output lines-galaxy.png

The cube comes from a run with `products.lines: true`, a library that is finer than its LSF (rubix-like ssp get
bc03-miles) and noise; beside it lies galaxy_maps.fits. The picture of docs/lines-tutorial.md is that of subhalo 420815
of Illustris-1 at z = 0 (https://www.illustris-project.org/data). Needs `pip install ppxf matplotlib`.
"""

import argparse
import contextlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from astropy.io import fits
from ppxf.ppxf import ppxf
from ppxf.ppxf_util import emission_lines, varsmooth
from scipy.interpolate import CubicSpline

import rubix_like as rl
from rubix_like.extend import to_vacuum

C, FWHM_PER_SIGMA, RATIO = 299792.458, 2.35482, 4
"""km/s; templates are sampled RATIO times finer than the data."""

NOT_FITTED = (3751.2, 4923.3, 5017.1, 6680.0)
"""Lines (vacuum Angstrom) for which pPXF has no template: H12, He I."""

MAPPED = {"Halpha": "Ha", "Hbeta": "Hb", "[OIII]5007_d": "[O III] 5007", "[NII]6583_d": "[N II] 6583"}
"""pPXF's names of lines, and ours. Those with _d are doublets, of which ours is the stronger line."""

FAINTEST = 10.0
"""S/N of Ha below which a spaxel is left out."""


@dataclass(frozen=True)
class Spectra:
    """Flux and noise (bin, y, x; NaN where masked) on bins even in ln(wavelength), of which one has `step` km/s; vacuum
    wavelengths and FWHM of the LSF at rest (Angstrom)."""

    flux: np.ndarray
    noise: np.ndarray | None
    wavelength: np.ndarray
    fwhm: np.ndarray
    step: float


@dataclass(frozen=True)
class Templates:
    """Columns of spectra of stars, then of lines, their names and wavelengths (vacuum Angstrom)."""

    columns: np.ndarray
    wavelength: np.ndarray
    n_star: int
    names: list[str]
    centres: np.ndarray


def read_spectra(path: str, redshift: float, first: float, last: float) -> Spectra:
    """The part of a cube from `first` to `last` (vacuum Angstrom at rest); linear bins are interpolated.

    pPXF averages templates over bins by itself, so that the width of the bin is taken out of an LSF that has it.
    """
    with fits.open(path) as hdus:
        cube, header = hdus["DATA"].data.astype(float), hdus["DATA"].header
        good = hdus["DQ"].data == 0 if "DQ" in hdus else True
        variance = np.where(good, hdus["STAT"].data.astype(float), np.nan) if "STAT" in hdus else None
        wavelength, fwhm = (hdus["LSF"].data[name].astype(float) for name in ("WAVE", "FWHM"))
        includes_bin = hdus[0].header["LSFPIXEL"]
    vacuum = to_vacuum(wavelength) if header["CTYPE3"].startswith("AWAV") else wavelength
    log_wavelength = np.linspace(*np.log(vacuum[[0, -1]]), len(vacuum))
    even, step = np.exp(log_wavelength), C * (log_wavelength[1] - log_wavelength[0])
    if not header["CTYPE3"].endswith("-LOG"):
        cube = CubicSpline(vacuum, cube)(even)
    rest = even / (1 + redshift)
    width2 = np.interp(even, vacuum, fwhm**2) / (1 + redshift) ** 2
    if includes_bin:
        width2 = width2 - FWHM_PER_SIGMA**2 * (rest * step / C) ** 2 / 12
    inside = (rest > first) & (rest < last)
    noise = None if variance is None else np.sqrt(variance[inside])
    return Spectra(cube[inside], noise, rest[inside], np.sqrt(width2[inside]), step)


def make_templates(
    spectra: Spectra, library: rl.SSPLibrary, metallicities: slice | list[int], ages: slice | list[int]
) -> Templates:
    """Some stars of a library, broadened to the LSF of the spectra, and one template for each line (or doublet)."""
    first, last = spectra.wavelength[[0, -1]]
    near = (library.rest_wavelength > 0.96 * first) & (library.rest_wavelength < 1.04 * last)
    rest = library.rest_wavelength[near]
    shapes = library.spectra[metallicities][:, ages][:, :, near].reshape(-1, len(rest)).T.astype(float)
    # pPXF averages over RATIO fine steps, of which the data have one bin: that much of the bin's width is its own
    lost = FWHM_PER_SIGMA**2 * (rest * spectra.step / C) ** 2 / 12 / RATIO**2
    missing = np.interp(rest, spectra.wavelength, spectra.fwhm) ** 2 + lost - library.fwhm[near] ** 2
    if missing.min() < 0:
        coarse = rest[missing < 0]
        raise ValueError(f"{library.name} is coarser than the cube at {coarse[0]:.0f}-{coarse[-1]:.0f} Angstrom (rest)")
    sigma = np.sqrt(missing) / FWHM_PER_SIGMA
    fine = np.exp(np.arange(np.log(0.97 * first), np.log(1.03 * last), spectra.step / RATIO / C))
    stars = varsmooth(rest, shapes, sigma, xout=fine, oversample=2)
    spread = {"lam": spectra.wavelength, "fwhm": spectra.fwhm}
    with contextlib.redirect_stdout(io.StringIO()):
        gas, names, centres = emission_lines(np.log(fine), (first, last), spread, vacuum=True)
    columns = np.column_stack([stars / stars.mean(axis=0), gas])
    return Templates(columns, fine, stars.shape[1], [str(name) for name in names], centres)


def fit_spectrum(
    flux: np.ndarray,
    noise: np.ndarray,
    spectra: Spectra,
    templates: Templates,
    start: Any = ((0, 100), (0, 60)),
    fixed: Any = ((0, 0), (0, 0)),
    degree: int = 4,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(V, sigma) of the lines in km/s, and of each line flux and error in the flux unit of the cube, times Angstrom."""
    level = np.median(flux)
    component = [0] * templates.n_star + [1] * len(templates.names)
    found = ppxf(
        templates.columns,
        flux / level,
        noise / level,
        spectra.step,
        [list(own) for own in start],
        fixed=[list(own) for own in fixed],
        moments=[2, 2],
        degree=degree,
        component=component,
        gas_component=np.array(component) == 1,
        gas_names=templates.names,
        goodpixels=np.flatnonzero(np.min([np.abs(spectra.wavelength - line) for line in NOT_FITTED], axis=0) > 6),
        lam=spectra.wavelength,
        lam_temp=templates.wavelength,
        velscale_ratio=RATIO,
        quiet=True,
    )
    return found.sol[1], found.gas_flux * level, found.gas_flux_error * level


def fit_cube(spectra: Spectra, templates: Templates, redshift: float) -> dict[str, np.ndarray]:
    """Maps (y, x): "V" and "sigma" of the lines, and the flux of each line of MAPPED; NaN where Ha is faint."""
    shape = spectra.flux.shape[1:]
    maps = {name: np.full(shape, np.nan) for name in ("V", "sigma", *MAPPED.values())}
    bins = dict(zip(templates.names, templates.centres * (1 + redshift) * spectra.step / C, strict=True))
    share = {name: 2.984 / 3.984 if name.endswith("_d") else 1.0 for name in MAPPED}
    for place in np.ndindex(*shape):
        flux, noise = spectra.flux[:, *place], spectra.noise[:, *place]
        if not np.all(noise > 0):
            continue
        (v, sigma), fluxes, errors = fit_spectrum(flux, noise, spectra, templates)
        if fluxes[templates.names.index("Halpha")] < FAINTEST * errors[templates.names.index("Halpha")]:
            continue
        maps["V"][place], maps["sigma"][place] = v, sigma
        for name, ours in MAPPED.items():
            maps[ours][place] = fluxes[templates.names.index(name)] * bins[name] * share[name]
    return maps


def draw(found: dict[str, np.ndarray], maps: rl.Maps, path: str) -> None:
    """Flux, velocity and dispersion of Ha as pPXF found them, the truth, and both in the BPT diagram."""
    import matplotlib.pyplot as plt  # noqa: PLC0415

    from rubix_like.extend import kauffmann_2003, kewley_2013  # noqa: PLC0415

    lines = maps.after.lines
    true = {"Ha": lines["Ha"].flux, "V": lines["Ha"].v, "sigma": lines["Ha"].sigma}
    fitted = np.isfinite(found["V"])
    figure, axes = plt.subplot_mosaic("abcg;defg", figsize=(13, 5.2), width_ratios=[1, 1, 1, 1.5], layout="constrained")
    titles = {"Ha": "log flux of Hα", "V": "V (km/s)", "sigma": "σ (km/s)"}
    for column, (name, title) in enumerate(titles.items()):
        pair = [np.where(fitted, own, np.nan) for own in (found[name], np.asarray(true[name], float))]
        pair = [np.log10(own) for own in pair] if name == "Ha" else pair
        low, high = np.nanpercentile(pair[1], [2, 98])
        for row, image in enumerate(pair):
            own = axes["abcdef"[3 * row + column]]
            shown = own.imshow(image, origin="lower", vmin=low, vmax=high, cmap="RdBu_r" if name == "V" else "viridis")
            own.set(xticks=[], yticks=[], title=f"{title}, {('pPXF', 'truth')[row]}")
            figure.colorbar(shown, ax=own, shrink=0.8)
    own = axes["g"]
    for name, values, style in (
        ("truth", {ours: np.asarray(lines[ours].flux, float) for ours in MAPPED.values()}, "o"),
        ("pPXF", found, "."),
    ):
        found_all = fitted & np.all([values[ours] > 0 for ours in MAPPED.values()], axis=0)
        logs = {ours: np.log10(values[ours][found_all]) for ours in MAPPED.values()}
        nitrogen, oxygen = logs["[N II] 6583"] - logs["Ha"], logs["[O III] 5007"] - logs["Hb"]
        own.plot(nitrogen, oxygen, style, markersize=4, label=name, alpha=0.7)
    nitrogen = np.linspace(-1.5, -0.12, 200)
    own.plot(nitrogen, kauffmann_2003(nitrogen), "k--", label="Kauffmann+03")
    own.plot(nitrogen, kewley_2013(nitrogen), "k:", label="Kewley+13, z = 0")
    own.set(xlabel="log [N II] 6583 / Hα", ylabel="log [O III] 5007 / Hβ", xlim=(-1.5, 0.2), ylim=(-1.6, 1))
    own.legend(loc="lower left", frameon=False)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Fit a cube, print how far pPXF is from the truth, and draw both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cube", help="a cube; its maps are in the file of the same name with _maps")
    parser.add_argument("--redshift", type=float, required=True, help="of the run")
    parser.add_argument("--library", default="bc03-miles", help="SSP library of the run")
    parser.add_argument("--output", default="lines-galaxy.png", help="the picture")
    options = parser.parse_args()
    spectra = read_spectra(options.cube, options.redshift, 4800.0, 6760.0)
    if spectra.noise is None:
        parser.error(f"{options.cube} has no variance; set noise.signal_to_noise in the run")
    templates = make_templates(spectra, rl.load_ssp(options.library), slice(3, None), slice(80, None, 20))
    found = fit_cube(spectra, templates, options.redshift)
    maps = rl.Maps.read(options.cube.replace(".fits", "_maps.fits"))
    true = maps.after.lines["Ha"]
    fitted = np.isfinite(found["V"])
    away = {
        "flux of Ha (%)": 100 * (found["Ha"] / np.asarray(true.flux, float) - 1),
        "V (km/s)": found["V"] - np.asarray(true.v, float),
        "sigma (km/s)": found["sigma"] - np.asarray(true.sigma, float),
    }
    print(f"{fitted.sum()} of {fitted.size} spaxels")
    for name, values in away.items():
        low, middle, high = np.percentile(values[fitted], [16, 50, 84])
        print(f"{name}: median {middle:+.2f}, 68 % of the spaxels from {low:+.2f} to {high:+.2f}")
    draw(found, maps, options.output)


if __name__ == "__main__":
    main()
