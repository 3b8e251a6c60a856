"""A simulated galaxy's mock cube fitted with the parametric disc and bulge: where the model is wrong.

    python fit_real_galaxy.py illustris1_z0_subhalo420815_stars.hdf5 --stem fit-galaxy

The galaxy is a file of star particles that `rubix-like inspect` recognises, to be downloaded from its simulation; the
picture of docs/fitting.md is that of subhalo 420815 of Illustris-1 at z = 0 (https://www.illustris-project.org/data).
With `--library bc03-miles` the SSP library is needed, too: rubix-like ssp get bc03-miles.
"""

import argparse

import jax

import rubix_like as rl

FREE = {
    "observation.inclination": {"uniform": ["0 deg", "85 deg"]},
    "observation.position_angle": {"normal": ["30 deg", "40 deg"]},
    "observation.offset": {"normal": ["0 arcsec", "1 arcsec"]},
    "observation.velocity_offset": {"normal": ["0 km/s", "50 km/s"]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.5]},
    "galaxy.bulge_fraction": {"uniform": [0, 0.6]},
    "galaxy.disc_scale_length": {"log_uniform": ["0.5 kpc", "10 kpc"]},
    "galaxy.bulge_effective_radius": {"log_uniform": ["0.3 kpc", "10 kpc"]},
    "galaxy.rotation_velocity": {"uniform": ["0 km/s", "350 km/s"]},
    "galaxy.turnover_radius": {"log_uniform": ["0.1 kpc", "5 kpc"]},
    "galaxy.disc_dispersion": {"log_uniform": ["10 km/s", "150 km/s"]},
    "galaxy.disc_log_age": {"uniform": [8.0, 10.1]},
    "galaxy.disc_log_age_gradient": {"normal": ["0 dex/kpc", "0.1 dex/kpc"]},
    "galaxy.disc_metallicity": {"log_uniform": [0.002, 0.05]},
    "galaxy.disc_metallicity_gradient": {"normal": ["0 dex/kpc", "0.1 dex/kpc"]},
    "galaxy.bulge_log_age": {"uniform": [8.5, 10.1]},
}

BY_EYE = {
    "galaxy.stellar_mass": "4e9 Msun",
    "galaxy.disc_scale_length": "3 kpc",
    "galaxy.bulge_effective_radius": "2 kpc",
    "galaxy.disc_log_age": 8.7,
    "galaxy.bulge_log_age": 9.8,
}
"""Where the first start begins, from the mock's light and colour; other parameters at their priors' medians."""

COMMON = {
    "observation.redshift": 0.03,
    "observation.inclination": "50 deg",
    "observation.position_angle": "30 deg",
    "instrument": {
        "name": "manga",
        "fov": "24 arcsec",
        "pixel_scale": "1 arcsec",
        "aperture": None,
        "wavelength": {"sampling": "linear", "medium": "vacuum", "start": 4700, "stop": 5600, "step": "3 Angstrom"},
    },
    "engine.deposit": "tsc",
    "engine.method": "basis",
}


def main() -> None:
    """Make the mock, fit it, draw the fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("galaxy", help="a file of star particles")
    parser.add_argument("--stem", default="fit-galaxy", help="how the names of the files begin")
    parser.add_argument("--library", default="popstar", help="SSP library")
    parser.add_argument("--stars", type=int, default=8192, help="particles of the model")
    parser.add_argument("--starts", type=int, default=1)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)

    common = {**COMMON, "ssp.library": options.library}
    seen = {"galaxy": {"path": options.galaxy}, "observation.align": "stars"}
    noise = {"noise": {"signal_to_noise": 30, "seed": 1}}
    mock = rl.run(rl.load_config("quickstart", overrides=common | seen | noise), output=f"{options.stem}-mock.fits")

    model = {"galaxy": {"reader": "synthetic", "n_stars": options.stars, "draws": "sobol"}, "observation.align": "none"}
    result = rl.fit(
        rl.load_config("quickstart", overrides=common | model),
        mock,
        free=FREE,
        starts=options.starts,
        start=BY_EYE,
        optimiser={"steps": 60, "tolerance": 1.0},  # chi^2 of a model that is wrong is tens of thousands too high
        output=f"{options.stem}.h5",
    )
    print(result.summary())
    print(*result.plot(options.stem), sep="\n")


if __name__ == "__main__":
    main()
