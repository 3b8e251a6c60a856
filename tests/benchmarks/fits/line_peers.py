"""Line cubes made and fitted by GalPaK3D and KinMS, each in an environment of its own that has numpy and astropy.

    PYTHON_WITH_GALPAK tests/benchmarks/fits/line_peers.py make-galpak job.json cube.npy
    PYTHON_WITH_GALPAK tests/benchmarks/fits/line_peers.py fit-galpak job.json found.json
    PYTHON_WITH_KINMS tests/benchmarks/fits/line_peers.py make-kinms job.json cube.npy
    PYTHON_WITH_KINMS tests/benchmarks/fits/line_peers.py fit-kinms job.json found.json

kinms_fitter 0.5 with Python 3.11 needs `kinms 'jampy<8' 'numpy<2' 'astropy<7'`, GalPaK3D `galpak==1.35`.

Called by `line_cubes.py` and `sami_halpha.py`, which say what is in a job. Lengths are in spaxels, velocities in km/s,
angles in deg; position angles from North through East, of the receding side, on arrays with rows to the North and
columns to the West. What is found has the names of `NAMES`, with the half-width of the central 68 % as `NAME_sigma`.
"""

# ruff: noqa: PLC0415

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from astropy.io import fits

NAMES = ("inclination", "position_angle", "velocity", "turnover", "half_light", "dispersion")
HALF_LIGHT = 1.67834699
"""Half-light radius of an exponential disc in scale lengths."""

CLOUDS_AT_ONCE = 2_000_000
LIGHT = 299792.458


def cube_files(job, folder):
    """FITS files of the fluxes and of the variance, on wavelengths (Angstrom) for GalPaK3D."""
    header = fits.Header(
        {
            "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "WAVE", "CUNIT1": "deg", "CUNIT2": "deg",
            "CUNIT3": "Angstrom", "CDELT1": -job["spaxel"] / 3600, "CDELT2": job["spaxel"] / 3600,
            "CRPIX3": 1.0, "CRVAL3": job["first"], "CDELT3": job["step"], "CD3_3": job["step"],
        }
    )  # fmt: skip
    paths = []
    for name in ("flux", "variance"):
        path = Path(folder) / f"{name}.fits"
        fits.PrimaryHDU(np.load(job[name]).astype(np.float64), header).writeto(path)
        paths.append(path)
    return paths


def galpak_instrument(job, oversampled=1):
    """The seeing, as an image or by its FWHM (spaxels), and the line spread."""
    import galpak

    width = job["spaxel"] / oversampled
    if "seeing_image" in job:
        psf = galpak.ImagePointSpreadFunction(np.load(job["seeing_image"]))
    else:
        psf = galpak.GaussianPointSpreadFunction(fwhm=job["seeing"] * job["spaxel"])
    instrument = galpak.Instrument(psf=psf, lsf=galpak.GaussianLineSpreadFunction(fwhm=job["line_spread"]))
    instrument.xy_step = width
    return instrument


def galpak_model(job):
    """A disc with the thickness of the job, as thin as GalPaK3D's own dispersion of a disc needs to be small."""
    import galpak

    return galpak.DiskModel(
        flux_profile="exponential",
        thickness_profile="sech2",
        dispersion_profile="thick",
        rotation_curve="arctan",
        aspect=job["aspect"],
    )


def make_galpak(job):
    """Flux (wave, y, x) of GalPaK3D's disc, made in cells of a third of a spaxel and added up."""
    import galpak

    fine, side, count = 3, job["n_spaxel"], job["n_wave"]
    shape = (count, side * fine, side * fine)
    cards = {
        "CTYPE3": "WAVE", "CUNIT3": "Angstrom", "CUNIT1": "deg", "CUNIT2": "deg", "CRPIX3": 1.0,
        "CRVAL3": job["first"], "CDELT3": job["step"],
        "CDELT1": -job["spaxel"] / fine / 3600, "CDELT2": job["spaxel"] / fine / 3600,
    }  # fmt: skip
    blank = galpak.HyperspectralCube(data=np.ones(shape), header=fits.Header(cards))
    run = galpak.GalPaK3D(
        blank, variance=1.0, model=galpak_model(job), instrument=galpak_instrument(job, fine), quiet=True
    )
    middle = 0.5 * (side * fine - 1)
    disc = galpak.GalaxyParameters(
        x=middle, y=middle, z=0.5 * (count - 1), flux=1.0, radius=job["half_light"] * fine,
        inclination=job["inclination"], pa=job["position_angle"] + 180, turnover_radius=job["turnover"] * fine,
        maximum_velocity=job["velocity"], velocity_dispersion=job["dispersion"],
    )  # fmt: skip
    made = np.asarray(run.create_convolved_cube(disc, shape).data, dtype=np.float64)
    return made.reshape(count, side, fine, side, fine).sum(axis=(2, 4))


def fit_galpak(job):
    """GalPaK3D's own MCMC: the median of the last 60 % of its chain."""
    import galpak

    np.random.seed(job["seed"])
    with tempfile.TemporaryDirectory() as folder:
        flux, variance = cube_files(job, folder)
        run = galpak.GalPaK3D(
            str(flux), variance=str(variance), model=galpak_model(job), instrument=galpak_instrument(job), quiet=True
        )
        known = galpak.GalaxyParameters(inclination=job["inclination"]) if job.get("inclination_is_known") else None
        start = job.get("start")
        first = None
        if start is not None:
            first = galpak.GalaxyParameters(
                inclination=start["inclination"], pa=(start["position_angle"] + 180) % 360, radius=start["half_light"],
                maximum_velocity=start["velocity"], turnover_radius=start["turnover"], velocity_dispersion=30.0,
            )  # fmt: skip
        begun, wall = time.process_time(), time.time()
        run.run_mcmc(
            max_iterations=job["iterations"],
            verbose=False,
            known_parameters=known,
            random_scale=job["scale"],
            initial_parameters=first,
        )
        seconds, wall = time.process_time() - begun, time.time() - wall
        if "model" in job:
            np.save(job["model"], np.asarray(run.convolved_cube.data, np.float64))
    chain = run.chain[run.chain.colnames]
    names = dict(
        zip(
            NAMES,
            ("inclination", "pa", "maximum_velocity", "turnover_radius", "radius", "velocity_dispersion"),
            strict=True,
        )
    )
    kept = len(chain) * 6 // 10
    found = {"seconds": seconds, "wall": wall, "evaluations": job["iterations"], "accepted": float(run.acceptance_rate)}
    found["chi2"] = float(np.nanmin(chain["reduced_chi"])) if "reduced_chi" in chain.colnames else None
    for own, name in names.items():
        low, middle, high = np.percentile(np.asarray(chain[name])[-kept:], [15.87, 50, 84.13])
        found |= {own: float(middle), f"{own}_sigma": float(0.5 * (high - low))}
    found["position_angle"] = (found["position_angle"] + 180) % 360  # its own is that of the approaching side
    curve = np.asarray(chain["maximum_velocity"])[-kept:] * 2 / np.pi
    inner = 2.2 / HALF_LIGHT * np.asarray(chain["radius"])[-kept:] / np.asarray(chain["turnover_radius"])[-kept:]
    low, middle, high = np.percentile(curve * np.arctan(inner), [15.87, 50, 84.13])
    return found | {"velocity_22": float(middle), "velocity_22_sigma": float(0.5 * (high - low))}


def make_kinms(job):
    """Flux (wave, y, x) of KinMS' thin disc; the line spread is in the dispersion of its gas.

    The mean of as many of its cubes as there are batches of cloudlets, each with seeds of its own.
    """
    n_batch = -(-job["n_cloud"] // CLOUDS_AT_ONCE)
    return sum(_kinms_cube(job, job["cloud_seed"] + number) for number in range(n_batch)) / n_batch


def _kinms_cube(job, seed):
    from kinms import KinMS

    side, count = job["n_spaxel"], job["n_wave"]
    radius = np.arange(0, 12 * job["half_light"], 0.02 * job["half_light"])
    maker = KinMS(
        side, side, count * job["channel"], 1.0, job["channel"], [job["seeing"], job["seeing"], 0],
        nSamps=min(job["n_cloud"], CLOUDS_AT_ONCE), seed=seed + 1, fixSeed=True, huge_beam=False,
    )  # fmt: skip
    made = maker.model_cube(
        job["inclination"],
        job["position_angle"],
        gasSigma=float(np.hypot(job["dispersion"], job["line_spread_sigma"])),
        sbProf=np.exp(-radius * HALF_LIGHT / job["half_light"]),
        sbRad=radius,
        velRad=radius,
        velProf=job["velocity"] * 2 / np.pi * np.arctan(radius / job["turnover"]),
        intFlux=1.0,
        bunit="Jy/pixel",
    )
    return np.moveaxis(np.asarray(made, np.float64), (0, 1, 2), (2, 1, 0))  # x, y, velocity


def fit_kinms(job):
    """kinms_fitter's MCMC, or its minimisation, with an exponential disc and an arctangent."""
    import matplotlib

    matplotlib.use("agg")
    from kinms_fitter import kinms_fitter
    from kinms_fitter.sb_profs import sb_profs
    from kinms_fitter.velocity_profs import velocity_profs

    sys.breakpointhook = lambda: None  # version 0.5.15 has a call of the debugger in `run`, where it waits for ever
    vars(sys.modules["gastimator.gastimator"]).setdefault("__version__", "0.5.4")  # which that version leaves out
    np.random.seed(job["seed"])
    flux = np.load(job["flux"])
    sigma = float(np.sqrt(np.load(job["variance"]).mean()))
    count, side = flux.shape[0], flux.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        header = fits.Header(
            {
                "CTYPE1": "RA---SIN", "CTYPE2": "DEC--SIN", "CTYPE3": "VRAD", "CUNIT1": "deg", "CUNIT2": "deg",
                "CUNIT3": "km/s", "CDELT1": -1 / 3600, "CDELT2": 1 / 3600, "CDELT3": job["channel"],
                "CRPIX1": side // 2 + 1, "CRPIX2": side // 2 + 1, "CRPIX3": 0.5 * (count + 1),
                "CRVAL1": 150.0, "CRVAL2": 2.0, "CRVAL3": 0.0, "RESTFRQ": 230.538e9, "BUNIT": "Jy/beam",
                "BMAJ": job["seeing"] / 3600, "BMIN": job["seeing"] / 3600, "BPA": 0.0, "OBJECT": "disc",
            }
        )  # fmt: skip
        path = Path(folder) / "cube.fits"
        fits.PrimaryHDU(flux, header).writeto(path)
        fit = kinms_fitter(str(path), linefree_chans=[0, 2])
        fit.rms = sigma
        fit.silent, fit.show_plots, fit.pdf, fit.text_output, fit.save_all_accepted = True, False, False, False, False
        fit.nprocesses, fit.niters, fit.nSamps = 1, job["iterations"], job["n_cloud"]
        fit.output_cube_fileroot, fit.chi2_var_correct, fit.chi2_correct_fac = False, False, 1.0
        fit.pa_guess, fit.inc_guess = job["start"]["position_angle"], job["start"]["inclination"]
        fit.inc_range, fit.pa_range = np.array([5.0, 89.0]), fit.pa_guess + np.array([-90.0, 90.0])
        fit.velDisp_guess, fit.velDisp_range = 50.0, np.array([5.0, 120.0])
        fit.sb_profile = [
            sb_profs.expdisk(guesses=[job["start"]["half_light"] / HALF_LIGHT], minimums=[0.3], maximums=[20])
        ]
        fit.vel_profile = [
            velocity_profs.arctan(
                guesses=[job["start"]["velocity"], job["start"]["turnover"]],
                minimums=[10.0, 0.05],
                maximums=[450.0, 15.0],
            )
        ]
        fit.plot = lambda **_: None  # its pictures fail with matplotlib 3.11
        begun, wall = time.process_time(), time.time()
        best, errors, *_ = fit.run(method=job["method"])
        seconds, wall = time.process_time() - begun, time.time() - wall
    errors = np.broadcast_to(errors, np.shape(best))  # the minimisation has none: 0
    places = {"dispersion": 4, "position_angle": 5, "inclination": 6, "half_light": 7, "velocity": 8, "turnover": 9}
    found = {"seconds": seconds, "wall": wall, "evaluations": job["iterations"]}
    found["labels"] = [str(own) for own in fit.labels]
    for name, place in places.items():
        found |= {name: float(best[place]), f"{name}_sigma": float(errors[place])}
    found["half_light"], found["half_light_sigma"] = (HALF_LIGHT * found[f"half_light{own}"] for own in ("", "_sigma"))
    total, spread = found["dispersion"], job["line_spread_sigma"]
    found["dispersion"] = float(np.sqrt(max(total**2 - spread**2, 1.0)))
    found["dispersion_sigma"] *= total / found["dispersion"]
    return found


def main():
    """Do one job."""
    command, job, output = sys.argv[1:]
    work = {"make-galpak": make_galpak, "fit-galpak": fit_galpak, "make-kinms": make_kinms, "fit-kinms": fit_kinms}
    found = work[command](json.loads(Path(job).read_text()))
    if isinstance(found, np.ndarray):
        np.save(output, found)
    else:
        Path(output).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
