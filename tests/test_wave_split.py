"""Cube stages on devices that hold a part of the bins each: the cube, noise and gradients of one that holds them all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo import collectives
from jax.sharding import AxisType, PartitionSpec

from rubix_like import load_config, load_ssp
from rubix_like.parameters import Parameters
from rubix_like.planning import make_setup
from rubix_like.stages import CUBE_STAGES, PaintedCube
from rubix_like.tables import as_dtype
from rubix_like.wave_split import WHOLE, WaveSplit
from rubix_like.wave_tables import padded, wave_specs

N_WAVE = {"even": 40, "uneven, one part empty": 33, "fewer than devices": 5}
TOLERANCE = {"float32": 5e-6, "float64": 1e-12}
GRADIENT_TOLERANCE = {"float32": 5e-5, "float64": 1e-11}
MESHES = {"data": {"data": 8}, "wave and data": {"wave": 2, "data": 4}}
MOFFAT = {"kind": "moffat", "wavelength": [4700, 5100], "fwhm": [0.5, 0.3], "beta": [2.5, 2.8], "enclosed": 0.7}
ONE_MOFFAT = {"kind": "moffat", "fwhm": 0.4, "beta": 2.8, "enclosed": 0.8}
EXPOSURE = {"exposure": {"time": "20 min", "sky": "none"}, "keep_truth": True}
RING = {"signal_to_noise": 20, "wavelength": 4840, "width": 60, "radius": 0.4}
RUNS = {
    "Gaussian, brightest spaxel": {},
    "Moffat of wavelength, ring": {"instrument.psf": MOFFAT, "noise": RING},
    "Moffat, exposure": {"instrument.psf": ONE_MOFFAT, "noise": EXPOSURE},
}
STAGES = ("psf", "dust", "degrade_lsf", "aperture", "noise")
SPREAD = {"fwhm": "26 Angstrom"}


def config(n_wave, precision, changes):
    return load_config(
        {
            "observation": {"redshift": 0.05, "align": "none"},
            "instrument": {
                "name": "muse",
                "fov": "1.6 arcsec",
                "aperture": {"shape": "circle"},
                "psf": {"fwhm": "0.4 arcsec"},
                "lsf": {"fwhm": "25 Angstrom"},
                "wavelength": {"start": 4800, "stop": 4800 + 5 * (n_wave - 1), "step": "5 Angstrom"},
            },
            "engine": {"method": "direct", "precision": precision, "velocity_range": 500},
            "dust": {"a_v": 0.5},
            "noise": {"signal_to_noise": 30},
        },
        changes,
    )


@functools.cache
def stages_for(run, n_wave, precision, names):
    """The stages on the whole detector, and their parameters."""
    settings = config(n_wave, precision, RUNS[run])
    setup = make_setup(settings, load_ssp("popstar"), None)
    assert setup.instrument.bins.n_wave == n_wave
    built = [CUBE_STAGES.find(name).build(setup, SPREAD if name == "degrade_lsf" else {}) for name in names]
    return tuple(as_dtype(stage, precision) for stage in built), Parameters.build(settings, precision)


def painted(n_wave, margin, precision):
    """A field with a clump that is not in its middle; no two spaxels of one brightness."""
    rng, side = np.random.default_rng(5), 8 + 2 * margin
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    image = np.exp(-((y - 0.7) ** 2 + (x + 1.2) ** 2) / 8) + 0.01 * rng.uniform(size=(side, side))
    flux = 50 * image[:, :, None] * rng.uniform(0.5, 1.5, (side, side, n_wave))
    moments = np.stack([image, 100 * image * x], axis=2)
    return jnp.asarray(flux, precision), jnp.asarray(moments, precision)


def through(split, stages, parameters, flux, moments, key):
    """What a device makes of its part."""
    cube = PaintedCube(flux, moments, split=split)
    for number, stage in enumerate(stages):
        cube = stage(cube, parameters, jax.random.fold_in(key, number))
    assert cube.split == split
    return {"flux": cube.flux, "variance": cube.variance, "truth": cube.truth, "moments": cube.moments}


def split_over(n_wave, axes):
    sizes = MESHES[axes]
    return WaveSplit(n_wave, int(np.prod(list(sizes.values()))), tuple(sizes))


def on_devices(split, axes, stages, *arguments, function=through, fill=np.nan):
    """The same on eight devices, each with its own bins, and `fill` in the bins beyond the detector's."""
    sizes = MESHES[axes]
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))
    whole, cube = PartitionSpec(), PartitionSpec(None, None, split.axes)
    specs = {"flux": cube, "variance": cube, "truth": cube, "moments": whole}
    inner = jax.shard_map(
        functools.partial(function, split),
        mesh=mesh,
        in_specs=(wave_specs(stages, split.axes), whole, cube, whole, whole),
        out_specs=specs if function is through else cube,
    )
    parameters, flux, *others = arguments
    flux = jnp.pad(flux, [(0, 0), (0, 0), (0, split.n_padded - split.n_wave)], constant_values=fill)
    found = inner(padded(stages, split), parameters, flux, *others)
    n_wave = split.n_wave
    cut = {name: leaf if name == "moments" or leaf is None else leaf[:, :, :n_wave] for name, leaf in found.items()}
    return cut


def relative_difference(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert np.isfinite(found).all()
    scale = np.abs(expected).max()
    return np.abs(found - expected).max() / (scale if scale > 0 else 1.0)


def compared(run, n_wave, precision, axes):
    """Cubes on one device and on eight, gradients of a sum in which no two voxels count the same, and the program."""
    names = STAGES if n_wave > 8 else tuple(name for name in STAGES if name != "degrade_lsf")
    stages, parameters = stages_for(run, n_wave, precision, names)
    flux, moments = painted(n_wave, sum(stage.margin for stage in stages), precision)
    key, split = jax.random.key(4), split_over(n_wave, axes)
    weights = jnp.asarray(np.random.default_rng(6).normal(size=(8, 8, n_wave)), precision)

    def loss(arguments, apply):
        cube = apply(*arguments, key)
        return (weights * cube["flux"]).sum() + cube["moments"].sum(), cube

    def both(apply):
        return lambda stages, *arguments: jax.value_and_grad(loss, has_aux=True)(
            arguments, functools.partial(apply, stages)
        )

    parts = functools.partial(on_devices, split, axes, fill=1e3)
    one = jax.jit(both(functools.partial(through, WHOLE)))(stages, parameters, flux, moments)
    program = jax.jit(both(parts)).lower(stages, parameters, flux, moments).compile()
    return program(stages, parameters, flux, moments), one, program.as_text()


EVERY = [(run, size, precision, axes) for run in RUNS for size in N_WAVE for precision in TOLERANCE for axes in MESHES]
QUICK = (
    ("Gaussian, brightest spaxel", "uneven, one part empty", "float64", "wave and data"),
    ("Moffat of wavelength, ring", "uneven, one part empty", "float64", "data"),
    ("Moffat, exposure", "fewer than devices", "float32", "data"),
)
THOROUGH = tuple(row for row in EVERY if (row[1] == "even") == (row[3] == "data") and row[1] != "fewer than devices")


@pytest.mark.parametrize(
    ("run", "size", "precision", "axes"),
    [
        pytest.param(*row, marks=() if row in QUICK else pytest.mark.slow)
        for row in EVERY
        if row in QUICK or row in THOROUGH
    ],
)
def test_all_stages_on_eight_devices_are_those_on_one(run, size, precision, axes):
    """Flux, variance, truth, moments and gradients."""
    ((_, found), gradient), ((_, expected), gradient_1), text = compared(run, N_WAVE[size], precision, axes)
    for name in ("flux", "variance", "moments"):
        assert relative_difference(found[name], expected[name]) < TOLERANCE[precision], name
    assert (found["truth"] is None) == ("exposure" not in run)
    for leaf, leaf_1 in zip(jax.tree.leaves(gradient), jax.tree.leaves(gradient_1), strict=True):
        assert relative_difference(leaf, leaf_1) < GRADIENT_TOLERANCE[precision]
    assert not {kind for kind, _ in collectives(text)} & {"all-to-all", "reduce-scatter"}
