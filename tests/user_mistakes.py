"""Mistakes of two users who knew README, docs and `help` alone: (what was done, words of the message, the call).

They wrote the words down before they ran the calls. Of their 1,100 mistakes the table has the shortest that end in an
error at once.
"""

import copy
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from astropy import units
from astropy.coordinates import SkyCoord

import rubix_like as rl
from rubix_like.extend import AbstractGalaxyModel, Footprint, WavelengthBins

RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 60, "seed": 1},
    "ssp": {"library": "popstar"},
    "observation": {"redshift": 0.05, "inclination": 60, "position_angle": 30, "align": "none"},
    "instrument": {"name": "muse", "fov": "2 arcsec", "wavelength": {"start": 5000, "stop": 5040}},
    "pipeline": "stellar",
    "devices": {"data": 1},
    "engine": {"method": "direct", "deposit": "cic"},
}
COUNT, RANDOM = 30, np.random.default_rng(0)
COLUMNS = {
    "position": RANDOM.normal(0, 1, (COUNT, 3)),
    "velocity": RANDOM.normal(0, 100, (COUNT, 3)),
    "initial_mass": np.full(COUNT, 1e6),
    "log_age": np.full(COUNT, 9.5),
    "metallicity": np.full(COUNT, 0.02),
}
GAS = {
    "position": RANDOM.normal(0, 1, (COUNT, 3)),
    "velocity": RANDOM.normal(0, 100, (COUNT, 3)),
    "mass": np.full(COUNT, 1e6),
    "metallicity": np.full(COUNT, 0.02),
    "temperature": np.full(COUNT, 1e4),
    "density": np.full(COUNT, 1e7),
    "star_formation_rate": np.full(COUNT, 0.01),
}
MOCK_RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 200, "draws": "sobol", "seed": 1},
    "observation": {"redshift": 0.05, "align": "none", "inclination": 55, "position_angle": 30, "ra": 150, "dec": 2},
    "dust": {"a_v": 0.3, "curve": "calzetti"},
    "instrument": {
        "name": "manga",
        "fov": "4 arcsec",
        "pixel_scale": "1 arcsec",
        "aperture": None,
        "wavelength": {"sampling": "linear", "medium": "vacuum", "start": 4800, "stop": 5400, "step": 30},
    },
    "engine": {"deposit": "tsc", "method": "direct"},
    "noise": {"signal_to_noise": 15, "seed": 1},
    "devices": {"data": 1},
}
FREE = {"observation.velocity_offset": {"normal": [0, "50 km/s"]}}
FREE2 = {
    "observation.inclination": {"uniform": ["20 deg", "80 deg"]},
    "galaxy.stellar_mass": {"log_normal": ["2e10 Msun", 0.3]},
}
VELOCITY = {"normal": [0, "50 km/s"]}
PRIORS = {"observation.inclination": {"uniform": [20, 80]}}
DISC = {
    "name": "disc",
    "mass": "1e10 Msun",
    "light": {"profile": "exponential", "scale_length": "1.5 kpc"},
    "rotation": {"curve": "arctan", "velocity": "200 km/s", "turnover_radius": "1 kpc"},
    "dispersion": "50 km/s",
    "population": {"log_age": 9.5, "metallicity": 0.02},
}


def load(overrides=None):
    return rl.load_config(RUN, overrides=overrides or {})


def base():
    return copy.deepcopy(RUN)


def observe(overrides=None, galaxy=None):
    config = load(overrides)
    galaxy = rl.load_galaxy(config) if galaxy is None else galaxy
    return rl.Pipeline.from_config(config, galaxy)(galaxy)


def stars_with(**columns):
    return rl.Stars(**COLUMNS | columns)


def gas_with(**columns):
    return rl.Gas(**{name: values for name, values in (GAS | columns).items() if values is not None})


def galaxy_with(gas=None, **columns):
    return rl.Galaxy(stars_with(**columns), gas)


def observed_with(overrides=None, **columns):
    return observe(overrides, galaxy_with(**columns))


def noise(**settings):
    return {"noise": settings}


def components(**changed):
    disc = {name: value for name, value in (DISC | changed).items() if value is not ...}
    return {**MOCK_RUN, "galaxy": {"reader": "components", "components": [disc]}}


def load_components(**changed):
    return rl.load_config(components(**changed))


class Toy(AbstractGalaxyModel):
    mass: float = 1e9
    velocity: float = 100.0
    count: int = eqx.field(static=True, default=50)
    units: ClassVar = {"mass": "Msun", "velocity": "km/s"}

    def draws(self):
        return np.linspace(0.1, 3, self.count), np.arange(self.count) * 2.4

    def sample(self, draws):
        radius, angle = draws
        zero = jnp.zeros_like(angle)
        around = jnp.stack([-jnp.sin(angle), jnp.cos(angle), zero], 1)
        position = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle), zero], 1)
        stars = position, around * self.velocity, zero + self.mass / self.count, zero + 9.5, zero + 0.02
        return rl.Galaxy(rl.Stars(*stars))


def galaxies():
    CONFIG = load()
    yield "initial_mass as (N,1)", "initial_mass", lambda: galaxy_with(initial_mass=np.full((COUNT, 1), 1000000.0))
    yield "ages in yr as log_age", "log_age", lambda: observed_with(log_age=np.full(COUNT, 5000000000.0))
    yield "log_age as Quantity Gyr", "log_age", lambda: galaxy_with(log_age=np.full(COUNT, 5) * units.Gyr)
    yield "metallicity as log Z", "metallicity", lambda: observed_with(metallicity=np.full(COUNT, -1.7))
    yield "negative masses", "initial_mass", lambda: observed_with(initial_mass=np.full(COUNT, -1000000.0))
    yield "mass zero everywhere", "initial_mass", lambda: observed_with(initial_mass=np.zeros(COUNT))
    yield "position in cm bare", "position", lambda: observed_with(position=RANDOM.normal(0, 1, (COUNT, 3)) * 3e21)
    yield "velocity in m/s bare", "velocity", lambda: observed_with(velocity=RANDOM.normal(0, 100000.0, (COUNT, 3)))
    yield "velocity scalar per particle (v_los)", "velocity", lambda: galaxy_with(velocity=RANDOM.normal(0, 100, COUNT))
    yield "position in arcsec", "position", lambda: galaxy_with(position=np.zeros((COUNT, 3)) * units.arcsec)
    yield "mismatched number of particles", "metallicity", lambda: galaxy_with(metallicity=np.full(COUNT - 1, 0.02))
    yield "scalar metallicity", "metallicity", lambda: galaxy_with(metallicity=0.02)
    yield "Galaxy(gas, stars) swapped", "stars", lambda: rl.Galaxy(gas_with(), stars_with())
    yield "Galaxy(list of Stars)", "stars", lambda: rl.Galaxy([stars_with(), stars_with()])
    yield "weight with NaN by hand", "weight", lambda: observed_with(weight=np.full(COUNT, np.nan))
    yield "validate a config", "galaxy", lambda: rl.validate(CONFIG)
    yield "gas with Z of wrong length", "metallicity", lambda: gas_with(metallicity=np.full(COUNT - 2, 0.02))
    yield "gas density in 1/cm3", "density", lambda: gas_with(density=np.full(COUNT, 1.0) * units.cm ** (-3))
    yield "SyntheticGalaxy unknown name", "v_rot", lambda: rl.SyntheticGalaxy(v_rot=100.0)
    yield "SyntheticGalaxy negative mass", "stellar_mass", lambda: rl.SyntheticGalaxy(stellar_mass=-10000000000.0)
    yield "SyntheticGalaxy log age in Gyr", "disc_log_age", lambda: rl.SyntheticGalaxy(disc_log_age=3.2)
    yield "SyntheticGalaxy bulge_fraction percent", "bulge_fraction", lambda: rl.SyntheticGalaxy(bulge_fraction=20)


def configurations():
    yield "redshift 'z=0.05'", "observation.redshift", lambda: load({"observation.redshift": "z=0.05"})
    yield "redshift NaN", "observation.redshift", lambda: load({"observation.redshift": float("nan")})
    yield "redshift list", "observation.redshift", lambda: load({"observation.redshift": [0.05, 0.06]})
    yield "distance modulus", "observation.distance", lambda: load({"observation.distance": "36.8 mag"})
    yield "distance negative", "observation.distance", lambda: load({"observation.distance": -10})
    yield "ra in hours text '10h00m'", "observation.ra", lambda: load({"observation.ra": "10h00m00s"}).observation.ra
    yield "ra negative", "observation.ra", lambda: load({"observation.ra": -30})
    yield "dec 95", "observation.dec", lambda: load({"observation.dec": 95})
    yield "ra SkyCoord", "observation.ra", lambda: load({"observation.ra": SkyCoord(10 * units.deg, 3 * units.deg)})
    yield "offset scalar", "observation.offset", lambda: load({"observation.offset": 1.0})
    yield "offset in kpc", "observation.offset", lambda: load({"observation.offset": ["1 kpc", "0 kpc"]})
    yield "instrument fov in spaxels '10 pix'", "instrument.fov", lambda: load({"instrument.fov": "10 pix"})
    yield "pixel_scale 0", "instrument.pixel_scale", lambda: load({"instrument.pixel_scale": 0})
    yield "wavelength as list", "instrument.wavelength", lambda: load({"instrument.wavelength": [5000, 5040]})
    yield "aperture as string", "instrument.aperture", lambda: load({"instrument.aperture": "hexagon"})
    yield "load_instrument nested override as kw psf_fwhm", "psf", lambda: rl.load_instrument("muse", psf_fwhm=0.6)
    yield "load_instrument arms without arm", "arm", lambda: rl.load_instrument("sami")
    yield "load_instrument wrong arm", "arm", lambda: rl.load_instrument("sami", arm="green")
    yield "load_instrument with config", "name", lambda: rl.load_instrument(load())
    yield "ssp library missing file", "ssp.library", lambda: observe({"ssp.library": "mylib.h5"})
    yield "ssp as string", "ssp", lambda: rl.load_config({**base(), "ssp": "popstar"})
    yield "ssp imf key", "imf", lambda: rl.load_config({**base(), "ssp": {"library": "popstar", "imf": "salpeter"}})
    yield "load_ssp raw bc03 ised file name", "mine.ised", lambda: rl.load_ssp("mine.ised")
    yield "dust a_v negative", "dust.a_v", lambda: load({"dust": {"a_v": -0.3}})
    yield "dust as number", "dust", lambda: load({"dust": 0.3})
    yield "dust ebv", "a_v", lambda: load({"dust": {"ebv": 0.3}})
    yield "dust Av case", "a_v", lambda: load({"dust": {"Av": 0.3}})
    yield "dust curve unknown", "dust.curve", lambda: observe({"dust": {"a_v": 0.3, "curve": "ccm89"}})
    yield "dust r_v negative", "dust.r_v", lambda: observe({"dust": {"a_v": 0.3, "curve": "cardelli", "r_v": -3.1}})
    yield "dust place sky", "dust.place", lambda: load({"dust": {"a_v": 1, "place": "sky"}})
    yield "nebular source gas", "nebular.source", lambda: load({"pipeline": "nebular", "nebular": {"source": "gas"}})
    yield "pipeline lines without lines section", "lines", lambda: observe({"pipeline": "lines", "galaxy.n_gas": 50})
    yield "pipeline as dict", "pipeline", lambda: load({"pipeline": {"paint": ["stars"]}})
    yield "pipeline as list", "pipeline", lambda: load({"pipeline": ["stars", "psf"]})
    yield "noise snr key", "signal_to_noise", lambda: load(noise(snr=50))
    yield "noise radius in kpc", "noise.radius", lambda: load(noise(signal_to_noise=50, radius="1 kpc"))
    yield "noise exposure number", "noise.exposure", lambda: load(noise(exposure=3600))
    yield "noise seed negative", "noise.seed", lambda: load(noise(signal_to_noise=5, seed=-1))
    yield "noise seed float", "noise.seed", lambda: load(noise(signal_to_noise=5, seed=1.5))
    yield "engine n_threads", "engine", lambda: load({"engine.n_threads": 4})
    yield "devices more than there are", "devices.data", lambda: observe({"devices.data": 8})
    yield "devices 'gpu'", "devices", lambda: load({"devices": "gpu"})
    yield "devices.wave 2 on one device", "devices.wave", lambda: observe({"devices.wave": 2})
    yield "output path as directory", "output.path", lambda: rl.run(load({"output.path": "d"}), quiet=True)
    yield "output as string", "output", lambda: load({"output": "cube.fits"})
    yield "output overwrite key", "overwrite", lambda: load({"output.overwrite": True})
    yield "products True", "products", lambda: load({"products": True})
    yield "products list", "products", lambda: load({"products": ["losvd"]})
    yield "products gas without gas", "products.gas", lambda: observe({"products": {"losvd": None, "gas": True}})
    yield "products dust without dust", "products.dust", lambda: observe({"products": {"losvd": None, "dust": True}})
    yield "products losvd step 0", "products.losvd.step", lambda: load({"products": {"losvd": {"step": 0}}})


def cubes():
    CONFIG = load({"noise": {"signal_to_noise": 20, "seed": 1}, "products": {"losvd": None}})
    GALAXY = rl.load_galaxy(CONFIG)
    PIPELINE = rl.Pipeline.from_config(CONFIG, GALAXY)
    CUBE = PIPELINE(GALAXY)
    FLUX, MASK, BINS, FOOTPRINT = np.asarray(CUBE.flux), np.asarray(CUBE.mask), CUBE.bins, CUBE.footprint

    def cube_with(**fields):
        return rl.Cube(**{"flux": FLUX, "mask": MASK, "bins": BINS, "footprint": FOOTPRINT} | fields)

    yield "parameters non-parameter setting", "instrument.fov", lambda: PIPELINE(GALAXY, {"instrument.fov": 3})
    yield "parameters dust.a_v when no dust", "dust.a_v", lambda: PIPELINE(GALAXY, {"dust.a_v": 0.5})
    yield "parameters nested dict", "observation", lambda: PIPELINE(GALAXY, {"observation": {"inclination": 30}})
    yield "parameters beyond limit", "instrument.psf.fwhm", lambda: PIPELINE(GALAXY, {"instrument.psf.fwhm": -1})
    yield "parameters list", "parameters", lambda: PIPELINE(GALAXY, [30, 60])
    yield "parameters as kw inclination=", "inclination", lambda: PIPELINE(GALAXY, inclination=30)
    yield "key float array", "key", lambda: PIPELINE(GALAXY, key=np.array([1.0, 2.0]))
    yield "from_config args swapped", "config", lambda: rl.Pipeline.from_config(GALAXY, CONFIG)
    yield "make_mesh 0", "n_devices", lambda: rl.make_mesh(0)
    yield "shard args swapped", "galaxy", lambda: rl.shard(rl.make_mesh(1), GALAXY)
    yield "observe_pointings of single", "pointings", lambda: PIPELINE.observe_pointings(GALAXY)
    yield "load_config unknown name", "quickstrt", lambda: rl.load_config("quickstrt")
    yield "load_config missing yaml", "my.yaml", lambda: rl.load_config("my.yaml")
    yield "load_config YAML text", "yaml", lambda: rl.load_config("galaxy:\n  reader: synthetic\n")
    yield "load_config kwargs", "n_stars", lambda: rl.load_config("quickstart", n_stars=10)
    yield "override deep unknown section", "instrumnt", lambda: rl.load_config("quickstart", {"instrumnt.fov": 5})
    yield "run dict without output", "output", lambda: rl.run({**base(), "output": None}, quiet=True)
    yield "run config with galaxy null", "galaxy", lambda: rl.run({**base(), "galaxy": None}, quiet=True)
    yield "write missing folder", "nofolder", lambda: CUBE.write("nofolder2/w.fits")
    yield "Cube flux (wave,y,x)", "flux", lambda: cube_with(flux=np.moveaxis(FLUX, 2, 0))
    yield "Cube flux 2-d", "flux", lambda: cube_with(flux=FLUX[0])
    yield "Cube flux in Jy", "flux", lambda: cube_with(flux=FLUX * units.Jy)
    yield "Cube meta dict", "meta", lambda: cube_with(meta={"object": "disc"})
    yield "bins medium missing", "medium", lambda: WavelengthBins(5000, 1.25, 33, "linear")
    yield "spectrum radius in kpc", "radius", lambda: CUBE.spectrum(radius=1 * units.kpc)
    yield "spectrum radius 0", "radius", lambda: CUBE.spectrum(radius=0)
    yield "spectrum at swapped dec ra", "at", lambda: CUBE.spectrum(at=(2, 150))
    yield "spectrum at pixel coordinates", "at", lambda: CUBE.spectrum(at=(5, 5), radius=0.3)
    yield "spectrum at and offset", "offset", lambda: CUBE.spectrum(at=(150, 2), offset=(0, 0))
    yield "image band in nm bare", "band", lambda: CUBE.image((501, 503))
    yield "map of fitted without losvd", "v_fit", lambda: CUBE.map("v_fit")
    yield "map of a line that isn't painted", "flux_Ha", lambda: CUBE.map("flux_Ha")
    yield "map gas mass", "gas", lambda: CUBE.map("gas_mass")
    yield "cut reversed", "wavelength", lambda: CUBE.cut((5030, 5010))
    yield "cut slice", "wavelength", lambda: CUBE.cut(slice(5000, 5010))
    yield "cut size 0", "size", lambda: CUBE.cut(size=0)
    yield "cut offset without size", "size", lambda: CUBE.cut(offset=(0.4, 0))
    yield "covariance without wavelength", "wavelength", CUBE.covariance
    yield "covariance index 0", "wavelength", lambda: CUBE.covariance(0)
    yield "covariance array", "wavelength", lambda: CUBE.covariance(CUBE.wavelength)
    yield "plot 9 spaxels", "spaxels", lambda: CUBE.plot([(i, 0) for i in range(9)])
    yield "rl.lines of cube w/o lines", "lines", lambda: rl.lines(CUBE)
    yield "load_galaxy_info of galaxy", "source", lambda: rl.load_galaxy_info(GALAXY)
    yield "load_nebular ssp name", "popstar", lambda: rl.load_nebular("popstar")


def fits():
    CONFIG = rl.load_config(MOCK_RUN)
    GALAXY = rl.load_galaxy(CONFIG)
    PIPELINE = rl.Pipeline.from_config(CONFIG, GALAXY)
    MOCK = PIPELINE(GALAXY)
    NOISELESS = dataclasses.replace(MOCK, variance=None)
    FLUX, VARIANCE = np.asarray(MOCK.flux, float), np.asarray(MOCK.variance, float)
    N_Y, N_X, N_W = MOCK.shape
    BINS, FOOT = WavelengthBins(4800.0, 30.0, N_W, "linear", "vacuum"), Footprint(N_Y, N_X, 1.0)

    def load(overrides):
        return rl.load_config(MOCK_RUN, overrides=overrides)

    def fit(free=FREE, data=MOCK, cfg=CONFIG, **more):
        return rl.fit(cfg, data, free, **{"starts": 1, "candidates": 2, "discreteness": None} | more)

    def posterior(free=FREE, data=MOCK, cfg=CONFIG, **more):
        return rl.log_posterior(cfg, data, free, **more)

    def simulate(cfg=CONFIG, **more):
        return rl.simulate(cfg, **{"priors": PRIORS, "n": 2, "seed": 1} | more)

    def observed_with(**fields):
        used = np.ones(MOCK.shape, bool)
        given = {"flux": FLUX, "variance": VARIANCE, "used": used, "bins": BINS, "footprint": FOOT}
        return rl.ObservedCube(**given | fields)

    yield "flux with axes (wave,y,x)", "flux", lambda: observed_with(flux=np.moveaxis(FLUX, 2, 0))
    yield (
        "all arrays (wave,y,x) as astropy",
        "flux",
        lambda: observed_with(
            flux=np.moveaxis(FLUX, 2, 0), variance=np.moveaxis(VARIANCE, 2, 0), used=np.ones((N_W, N_Y, N_X), bool)
        ),
    )
    yield "variance missing an axis", "variance", lambda: observed_with(variance=VARIANCE.mean(axis=(0, 1)))
    yield "variance a number", "variance", lambda: observed_with(variance=1.0)
    yield "used as float weights", "used", lambda: observed_with(used=np.full(MOCK.shape, 0.5))
    yield "bins given as wavelength array", "bins", lambda: observed_with(bins=np.asarray(MOCK.wavelength))
    yield "footprint given as pixel scale", "footprint", lambda: observed_with(footprint=1.0)
    yield (
        "of_table edges and wavelength swapped",
        "edges",
        lambda: WavelengthBins.of_table(np.arange(22) * 30.0 + 4785, np.arange(21) * 30.0 + 4800, "air"),
    )
    yield (
        "of_table decreasing",
        "wavelength",
        lambda: WavelengthBins.of_table(
            (np.arange(21) * 30.0 + 4800)[::-1], (np.arange(22) * 30.0 + 4785)[::-1], "air"
        ),
    )
    yield "flux in units of Jy quantity without wavelength", "flux", lambda: observed_with(flux=FLUX * units.K)
    yield (
        "variance given as flux quantity (not squared)",
        "variance",
        lambda: observed_with(variance=np.sqrt(VARIANCE) * units.Unit("1e-20 erg/(s cm2 Angstrom)")),
    )
    yield "crop with low>high", "low", lambda: observed_with().crop(5300, 4900)
    yield "crop with a unit of velocity", "low", lambda: observed_with().crop("100 km/s", "200 km/s")
    yield "covariance without correlations", "correlations", lambda: observed_with().covariance(5000)
    yield "plot spaxel as (y,x) outside", "spaxel", lambda: observed_with().plot([(9, 1)])
    yield "plot band as one number", "band", lambda: observed_with().plot(band=5000)
    yield "plot spaxels as a tuple of two ints", "spaxels", lambda: observed_with().plot((1, 2))
    yield "read_observed missing file", "nofile.fits", lambda: rl.read_observed("nofile.fits")
    yield "obs: correlations a matrix", "correlations", lambda: observed_with(correlations=np.eye(16))
    yield "obs: pixel_scale keyword", "pixel_scale", lambda: observed_with(pixel_scale=1.0)
    yield "obs: without used", "used", lambda: rl.ObservedCube(flux=FLUX, variance=VARIANCE, bins=BINS, footprint=FOOT)
    yield "fit: progress=True", "progress", lambda: posterior(progress=True)
    yield "fit: progress=print", "progress", lambda: fit(progress=print)
    yield (
        "fit: gas parameter in a pipeline of stars",
        "galaxy.gas_fraction",
        lambda: posterior({"galaxy.gas_fraction": {"uniform": [0, 1]}}),
    )
    yield "fit: opacity with a screen", "dust.opacity", lambda: posterior({"dust.opacity": {"uniform": [1, 5]}})
    yield (
        "fit: config with two pointings",
        "pointings",
        lambda: posterior(cfg=load({"observation.pointings": [{"offset": [0, 0]}, {"offset": [1, 0]}]})),
    )
    yield (
        "simulate: pointings given",
        "pointings",
        lambda: rl.simulate(
            load({"observation.pointings": [{"offset": [0, 0]}, {"offset": [1, 0]}]}), priors=PRIORS, n=2
        ),
    )
    yield (
        "simulate: fit.free prior unlimited in a_v",
        "dust.a_v",
        lambda: rl.simulate(CONFIG, priors={"dust.a_v": {"normal": [0.3, 1]}}, n=2),
    )
    yield "fit: flux all NaN", "flux", lambda: fit(data=observed_with(flux=np.full(MOCK.shape, np.nan)))
    yield "fit: used all False", "used", lambda: fit(data=observed_with(used=np.zeros(MOCK.shape, bool)))
    yield "fit: data is numpy flux", "data", lambda: fit(data=FLUX)
    yield "fit: no free anywhere", "free", lambda: rl.fit(CONFIG, MOCK)
    yield (
        "fit: a_v free without dust",
        "dust",
        lambda: fit(free={"dust.a_v": {"uniform": [0, 1]}}, cfg=load({"dust": None})),
    )
    yield (
        "fit: correlated name not free",
        "observation.inclination",
        lambda: fit(
            correlated=[
                {
                    "parameters": ["observation.velocity_offset", "observation.inclination"],
                    "correlation": [[1, 0.5], [0.5, 1]],
                }
            ]
        ),
    )
    yield (
        "fit: deposit nearest with inclination free",
        "deposit",
        lambda: fit(free={"observation.inclination": {"uniform": [20, 80]}}, cfg=load({"engine.deposit": "nearest"})),
    )
    yield "fit: n_starts", "starts", lambda: rl.fit(CONFIG, MOCK, FREE, n_starts=2)
    yield "fit: starts 0", "starts", lambda: fit(starts=0)
    yield "fit: candidates negative", "candidates", lambda: fit(candidates=-1)
    yield "fit: windows one range not nested", "windows", lambda: fit(windows=[4900, 5200])
    yield "fit: windows reversed", "windows", lambda: fit(windows=[[5200, 4900]])
    yield "fit: windows in nm", "windows", lambda: fit(windows=[[490, 520]])
    yield "fit: sigma negative", "sigma", lambda: fit(data=NOISELESS, sigma=-1)
    yield "fit: sigma missing for noiseless data", "sigma", lambda: fit(data=NOISELESS)
    yield "fit: sigma an array", "sigma", lambda: fit(data=NOISELESS, sigma=np.sqrt(VARIANCE))
    yield "fit: sigma of a wrong unit", "sigma", lambda: fit(data=NOISELESS, sigma="0.1 mag")
    yield "fit: sigma beside variance", "sigma", lambda: fit(sigma=0.5)
    yield "fit: polynomial degree negative", "polynomial.degree", lambda: fit(polynomial={"degree": -1, "sigma": 0.1})
    yield (
        "fit: polynomial degree higher than bins",
        "polynomial.degree",
        lambda: fit(polynomial={"degree": 50, "sigma": 0.1}),
    )
    yield "fit: noise_scale number", "noise_scale", lambda: fit(noise_scale=2.0)
    yield "fit: noise_scale True", "noise_scale", lambda: fit(noise_scale=True)
    yield (
        "fit: noise_scale and inflate_sigma",
        "inflate_sigma",
        lambda: fit(noise_scale={"log_uniform": [0.5, 2]}, inflate_sigma=True),
    )
    yield "fit: likelihood name text", "likelihood", lambda: fit(likelihood="student_t")
    yield "fit: likelihood kind misspelt", "likelihood.kind", lambda: fit(likelihood={"kind": "student-t"})
    yield (
        "fit: student_t with polynomial",
        "polynomial",
        lambda: fit(likelihood={"kind": "student_t", "degrees_of_freedom": 4}, polynomial={"degree": 2, "sigma": 0.1}),
    )
    yield "fit: optimiser as name", "optimiser", lambda: fit(optimiser="lbfgs")
    yield "fit: optimiser unknown", "optimiser.name", lambda: fit(optimiser={"name": "adam"})
    yield "fit: model_error with given galaxy components", "model_error", lambda: fit(model_error=True)
    yield "fit: discreteness times 0", "discreteness.times", lambda: fit(discreteness={"times": 0})
    yield "fit: discreteness False", "discreteness", lambda: fit(discreteness=False)
    yield "fit: data_units on Cube in memory", "data_units", lambda: fit(data_units="Jy")
    yield "fit: output .fits", "output", lambda: fit(output="fit.fits")
    yield "fit: output in missing folder", "nowhere", lambda: fit(output="nowhere/fit.h5")
    yield "fit: pipeline without galaxy", "galaxy", lambda: rl.fit(PIPELINE, MOCK, FREE)
    yield "fit: seed text", "seed", lambda: fit(seed="abc")
    yield "fit: restart and resume=True", "restart", lambda: fit(output="fr.h5", restart=True, resume=True)
    yield "fit: starts_from misspelt", "starts_from", lambda: fit(starts_from="priors")
    yield "fit: mask= (no such)", "mask", lambda: fit(mask=np.zeros(MOCK.shape, bool))
    yield "fit: quiet text", "quiet", lambda: fit(quiet="no")
    yield "simulate: priors and draws both", "draws", lambda: simulate(draws={"observation.inclination": [10, 20]})
    yield "simulate: priors passed second positionally as draws", "draws", lambda: rl.simulate(CONFIG, PRIORS, n=2)
    yield (
        "simulate: noise param without noise section",
        "noise",
        lambda: simulate(cfg=load({"noise": None}), priors={"noise.signal_to_noise": {"uniform": [5, 50]}}),
    )
    yield (
        "simulate: exposure free with S/N noise",
        "noise.exposure.time",
        lambda: simulate(priors={"noise.exposure.time": {"uniform": ["1 h", "2 h"]}}),
    )
    yield "simulate: galaxies a single Galaxy", "galaxies", lambda: simulate(galaxies=GALAXY)
    yield "simulate: galaxies empty list", "galaxies", lambda: simulate(galaxies=[])
    yield "simulate: seed negative", "seed", lambda: simulate(seed=-1)
    yield "simulate: sink not callable", "sink", lambda: simulate(sink=[])
    yield "simulate: batch 0", "batch", lambda: simulate(batch=0)
    yield "simulate: particles misspelt", "particles", lambda: simulate(particles="fixed")
    yield "simulate: config with Pipeline", "config", lambda: rl.simulate(PIPELINE, priors=PRIORS, n=2)
    yield "comp: no components", "components", lambda: rl.load_config({**MOCK_RUN, "galaxy": {"reader": "components"}})
    yield (
        "comp: empty list",
        "components",
        lambda: rl.load_config({**MOCK_RUN, "galaxy": {"reader": "components", "components": []}}),
    )
    yield (
        "comp: lines flux missing",
        "flux",
        lambda: rl.load_config(
            {**components(mass=..., population=..., lines={"wavelengths": ["Hb"]}), "pipeline": "lines"}
        ),
    )
    yield (
        "comp: fit frees radii",
        "radii",
        lambda: posterior(
            {"galaxy.disc.rotation.radii": {"uniform": [1, 2]}},
            cfg=load_components(rotation={"curve": "spline", "radii": [1, 2, 3], "speeds": [100, 150, 160]}),
        ),
    )
    yield "prior: own decreasing", "tridec", lambda: posterior({"observation.inclination": {"tridec": [20, 80]}})
    yield "make_mesh: wave 2", "wave", lambda: rl.make_mesh(1, wave=2)
    yield "shard: mesh a number", "mesh", lambda: rl.shard(GALAXY, 4)
    yield "particle_shardings: mesh missing", "mesh", lambda: rl.particle_shardings(GALAXY)
    yield "devices.output misspelt", "devices.output", lambda: load({"devices.output": "shard"})
    yield "join_processes: num without id", "process_id", lambda: rl.join_processes("localhost:5000", 2).__enter__()
    yield (
        "fit: data wavelengths in nm",
        "wavelength",
        lambda: fit(data=observed_with(bins=WavelengthBins(480.0, 3.0, N_W, "linear", "vacuum"))),
    )
    yield "fit: start a list", "start", lambda: fit(start=[10])
    yield "fit: config path missing", "nofile", lambda: rl.fit("nofile.yaml", MOCK, FREE)
    yield "fit: galaxy given as path", "galaxy", lambda: rl.fit(CONFIG, MOCK, FREE, galaxy="a.hdf5")
    yield (
        "fit: offset prior as two separate names",
        "observation.offset",
        lambda: posterior({"observation.offset.east": {"normal": [0, 1]}}),
    )
    yield (
        "fit: free noise_scale inside free",
        "noise_scale",
        lambda: posterior({**FREE, "noise_scale": {"log_uniform": [0.5, 2]}}),
    )
    frees = {
        "fit: unknown parameter typo": ("observation.velocity_offset", {"observation.velocity_ofset": VELOCITY}),
        "fit: redshift free": ("observation.redshift", {"observation.redshift": {"uniform": [0.04, 0.06]}}),
        "fit: ssp.metallicity free": ("ssp", {"ssp.library": {"uniform": [0, 1]}}),
        "fit: galaxy.n_stars free": ("galaxy.n_stars", {"galaxy.n_stars": {"uniform": [10, 100]}}),
        "fit: prior kind misspelt": ("uniform", {"observation.inclination": {"unifrom": [0, 90]}}),
        "fit: prior gaussian": ("normal", {"observation.velocity_offset": {"gaussian": [0, 50]}}),
        "fit: prior limits swapped": ("observation.inclination", {"observation.inclination": {"uniform": [80, 20]}}),
        "fit: normal sigma negative": ("sigma", {"observation.velocity_offset": {"normal": [0, -50]}}),
        "fit: normal with 3 numbers": ("normal", {"observation.velocity_offset": {"normal": [0, 50, 10]}}),
        "fit: prior NaN": (
            "observation.velocity_offset",
            {"observation.velocity_offset": {"normal": [0, float("nan")]}},
        ),
        "fit: log_uniform with 0": ("dust.a_v", {"dust.a_v": {"log_uniform": [0, 2]}}),
        "fit: log_normal dex with a unit": (
            "galaxy.stellar_mass",
            {"galaxy.stellar_mass": {"log_normal": ["2e10 Msun", "1e10 Msun"]}},
        ),
        "fit: unit of wrong kind": (
            "observation.inclination",
            {"observation.inclination": {"uniform": ["20 km/s", "80 km/s"]}},
        ),
        "fit: a_v prior below 0": ("dust.a_v", {"dust.a_v": {"uniform": [-1, 1]}}),
        "fit: psf beta free of a gaussian": ("instrument.psf.beta", {"instrument.psf.beta": {"uniform": [2, 5]}}),
        "fit: noise free": ("noise.signal_to_noise", {"noise.signal_to_noise": {"uniform": [5, 50]}}),
        "fit: stars.* free with synthetic": ("stars.velocity", {"stars.velocity": {"normal": [0, 100]}}),
        "fit: log_age in years": (
            "galaxy.disc_log_age",
            {"galaxy.disc_log_age": {"uniform": [1000000000.0, 10000000000.0]}},
        ),
        "fit: isotropic of a mass": (
            "isotropic",
            {"galaxy.stellar_mass": {"isotropic": [1000000000.0, 100000000000.0]}},
        ),
        "fit: mixture weights negative": (
            "weight",
            {
                "observation.inclination": {
                    "mixture": [{"weight": -1, "normal": [40, 5]}, {"weight": 2, "uniform": [0, 90]}]
                }
            },
        ),
        "fit: mixture without weight": (
            "weight",
            {"observation.inclination": {"mixture": [{"normal": [40, 5]}, {"uniform": [0, 90]}]}},
        ),
        "fit: mixture of disjoint": (
            "overlap",
            {
                "observation.inclination": {
                    "mixture": [{"weight": 1, "uniform": [0, 20]}, {"weight": 1, "uniform": [60, 90]}]
                }
            },
        ),
        "fit: same parameter by alias (galaxy.log_age)": (
            "galaxy.disc_log_age",
            {"galaxy.log_age": {"uniform": [9, 10]}},
        ),
        "fit: uniform prior with inf": (
            "observation.velocity_offset",
            {"observation.velocity_offset": {"uniform": [float("-inf"), float("inf")]}},
        ),
        "fit: prior given as scipy dist": (
            "free",
            {"observation.velocity_offset": __import__("scipy.stats").stats.norm(0, 50)},
        ),
        "fit: dof free but gaussian": (
            "degrees_of_freedom",
            {**FREE, "likelihood.degrees_of_freedom": {"log_uniform": [1, 100]}},
        ),
        "fit: config.fit.free both with 'observation' nested dict": (
            "observation",
            {"observation": {"inclination": {"uniform": [20, 80]}}},
        ),
    }
    for name, (words, free) in frees.items():
        yield name, words, lambda free=free: fit(free=free)
    drawn = {
        "simulate: draws with other lengths": (
            "draws",
            {"observation.inclination": [10, 20], "dust.a_v": [0.1, 0.2, 0.3]},
        ),
        "simulate: draws NaN": ("observation.inclination", {"observation.inclination": [10, np.nan]}),
        "simulate: draws negative a_v": ("dust.a_v", {"dust.a_v": [-0.1, 0.2]}),
        "simulate: draws of a scalar": ("observation.inclination", {"observation.inclination": 30}),
        "simulate: draws astropy wrong unit": (
            "observation.inclination",
            {"observation.inclination": np.array([0.2, 0.4]) * units.km},
        ),
        "simulate: draws a table (n,k) array": ("draws", np.zeros((2, 1))),
        "simulate: draws empty": ("draws", {"observation.inclination": []}),
    }
    for name, (words, draws) in drawn.items():
        yield name, words, lambda draws=draws: simulate(priors=None, n=None, draws=draws)
    changed = {
        "comp: mass negative": ("mass", "mass", -10000000000.0),
        "comp: profile misspelt": ("profile", "light", {"profile": "exponetial", "scale_length": 1.5}),
        "comp: sersic with scale_length": (
            "effective_radius",
            "light",
            {"profile": "sersic", "scale_length": 1.5, "index": 1},
        ),
        "comp: sersic index 20": ("index", "light", {"profile": "sersic", "effective_radius": 1.5, "index": 20}),
        "comp: scale length in arcsec": (
            "scale_length",
            "light",
            {"profile": "exponential", "scale_length": "1.5 arcsec"},
        ),
        "comp: rotation number": ("rotation", "rotation", 200),
        "comp: rotation curve flat": ("curve", "rotation", {"curve": "flat", "velocity": 200}),
        "comp: age key": ("log_age", "population", {"age": "3 Gyr", "metallicity": 0.02}),
        "comp: metallicity solar units": ("metallicity", "population", {"log_age": 9.5, "metallicity": 1.0}),
        "comp: metallicity [Z/H]": ("metallicity", "population", {"log_age": 9.5, "metallicity": -0.3}),
        "comp: dispersion negative": ("dispersion", "dispersion", -50),
        "comp: name with a dot": ("name", "name", "thin.disc"),
        "comp: spline radii not ascending": (
            "radii",
            "rotation",
            {"curve": "spline", "radii": [3, 2, 1], "speeds": [100, 150, 200]},
        ),
        "comp: spline of other lengths": (
            "speeds",
            "rotation",
            {"curve": "spline", "radii": [1, 2, 3], "speeds": [100, 150]},
        ),
    }
    for name, (words, key, value) in changed.items():
        yield name, words, lambda key=key, value=value: load_components(**{key: value})


def cases():
    for table in (galaxies, configurations, cubes, fits):
        yield from table()
