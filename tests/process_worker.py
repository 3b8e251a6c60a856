"""One process of a run of several, for tests/runtime/test_joining.py: SCENARIO FOLDER [PORT SIZE NUMBER]."""

import functools
import resource
import sys
import time
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np

import rubix_like as rl
from rubix_like.extend import Progress, plan_share
from rubix_like.plots.figure import save_quicklook
from rubix_like.runtime.exit_codes import orderly_termination
from rubix_like.runtime.files.outputs import replacing

PEER_TIMEOUT = 6.0
SLAB = 30
READ: dict[str, set[int]] = {}


def record_rows():
    """Keep which rows are read of every dataset of stars."""
    taken = {"__getitem__": h5py.Dataset.__getitem__, "read_direct": h5py.Dataset.read_direct}

    def note(dataset, selection):
        rows = selection[0] if isinstance(selection, tuple) else selection
        if dataset.name.startswith("/PartType4"):
            READ.setdefault(dataset.name, set()).update(np.arange(dataset.shape[0])[rows].ravel().tolist())

    def get(dataset, selection, **options):
        note(dataset, selection)
        return taken["__getitem__"](dataset, selection, **options)

    def read(dataset, target, source_sel=None, dest_sel=None):
        note(dataset, slice(None) if source_sel is None else source_sel)
        return taken["read_direct"](dataset, target, source_sel, dest_sel)

    h5py.Dataset.__getitem__ = get
    h5py.Dataset.read_direct = read


def config(folder, precision="float32", slab="all", **sections):
    return {
        "galaxy": {"path": str(folder / "snapshot.hdf5")},
        "observation": {"redshift": 0.05, "inclination": "40 deg", "position_angle": "20 deg"},
        "instrument": {
            "name": "muse",
            "fov": 4,
            "pixel_scale": 0.5,
            "wavelength": {"start": 4800, "stop": 4950, "step": 5},  # 31 bins: no number of parts divides them
            "psf": {"fwhm": 0.8},
            "lsf": {"fwhm": 25},
        },
        "engine": {"method": "direct", "deposit": "cic", "precision": precision, "slab": slab},
        "noise": {"signal_to_noise": 30, "seed": 3},
        "output": {"path": str(folder / "cube.fits")},
        **sections,
    }


def config_of(folder, precision, slab="all", **sections):
    """In float64 with maps, and stars dimmed by how much mass lies in their spaxel, of the stars of all processes."""
    products = {"losvd": None, "gas": True}
    fields = {"pipeline": str(folder / "dim.yaml"), "products": products} if precision == "float64" else {}
    return config(folder, precision, slab, **fields, **sections)


def config_of_pair(folder, slab="all", **sections):
    """Two observations in float64 that are painted together: the same instrument at other wavelengths."""
    own = config_of(folder, "float64", slab, **sections)
    own["engine"] |= {"method": "basis", "velocity_range": 600}
    instrument = own.pop("instrument")
    red = instrument | {"wavelength": {"start": 6000, "stop": 6150, "step": 5}}
    return own | {"observations": {"blue": {"instrument": instrument}, "red": {"instrument": red}}}


def pattern(flux):
    """Weights of the voxels in a loss."""
    return jnp.cos(jnp.arange(flux.size, dtype=flux.dtype)).reshape(flux.shape)


@jax.jit
def slope(pipeline, galaxy):
    def loss(galaxy):
        flux = pipeline(galaxy).flux
        return jnp.sum(flux * pattern(flux)) / 1e3

    return jax.grad(loss)(galaxy)


def said(work):
    """The words of the error that `work` raises."""
    try:
        work()
    except (ValueError, OSError, LookupError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def fill_the_disk(team, folder):
    """A run where process 0 can write 20 kB at most."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if team.number == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    words = said(lambda: rl.run(config(folder, output={"path": str(folder / "full.fits")}), team=team))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return words


def together(team, folder):
    """Everything that ends well, and what all processes survive."""
    big = team.exchange(lambda: np.full(3_000_000, team.number / 3))
    facts = {
        "devices": len(jax.devices()),
        "order": [float(values[-1]) for values in big],
        "error": said(lambda: team.exchange(lambda: [1.0][team.number])),
    }
    record_rows()
    arrays = {}
    sys.path.insert(0, str(folder))
    for precision in ("float32", "float64"):
        cube = rl.run(config_of(folder, precision), folder / f"{precision}.fits", team)
        arrays[precision] = np.asarray(cube.flux)
    own = rl.run(config(folder, devices={"output": "sharded"}), folder / "parts.fits", team)
    facts["bins"] = own.ranges
    save_quicklook(own, folder / "parts.png", team)
    rl.run(config(folder, slab=SLAB, devices={"output": "sharded"}), folder / "parts_of_slabs.fits", team)
    rl.run(config_of(folder, "float64", SLAB), folder / "fields_of_slabs.fits", team)
    for slab in ("all", SLAB):
        rl.run(config_of_pair(folder, slab), folder / f"pair_{slab}.fits", team, quiet=False)
    rows = {f"rows {name}": sorted(found) for name, found in READ.items()}
    placed, _, pipeline = plan_share(rl.load_config(config(folder, "float64", noise=None)), Progress(), team)
    found = slope(pipeline, placed).stars
    for name in ("position", "velocity", "initial_mass"):
        arrays[f"slope {name}"] = own_rows(getattr(found, name), placed)
    facts["full disk"] = fill_the_disk(team, folder)
    np.savez(folder / f"together_{team.number}.npz", facts=np.array(repr(facts)), **arrays, **rows)


def own_rows(values, placed):
    """This process's rows, in the order of the file, without padding."""
    shards = sorted(values.addressable_shards, key=lambda shard: shard.index[0].start)
    weights = sorted(placed.stars.weight.addressable_shards, key=lambda shard: shard.index[0].start)
    kept = np.concatenate([np.asarray(shard.data) for shard in weights]) > 0
    return np.concatenate([np.asarray(shard.data) for shard in shards])[kept]


def config_of_few(folder, slab="all"):
    """For two stars, which have no disc to align."""
    return config(folder, "float64", slab, observation={"redshift": 0.05, "align": "none"})


def few(team, folder):
    """More processes than stars, all at once and one by one."""
    cube, of_slabs = (rl.run(config_of_few(folder, slab), folder / "few.fits", team) for slab in ("all", 1))
    fluxes = {"flux": np.asarray(cube.flux), "of slabs": np.asarray(of_slabs.flux)}
    np.savez(folder / f"few_{team.number}.npz", share=team.share(2), **fluxes)


def endless(team, folder, *, writing=False):
    """Sums over the devices until somebody dies; process 0 may be in the middle of a file."""
    mesh = rl.make_mesh()
    whole = jax.sharding.PartitionSpec()
    total = jax.jit(
        jax.shard_map(functools.partial(jax.lax.psum, axis_name="data"), mesh=mesh, in_specs=whole, out_specs=whole)
    )
    ones = jax.make_array_from_callback((8,), jax.sharding.NamedSharding(mesh, whole), lambda _: np.ones(8))
    jax.block_until_ready(total(ones))
    if writing and team.number == 0:
        with replacing(folder / "half.fits") as temporary:
            temporary.write_text("half")
            (folder / "ready_0").touch()
            time.sleep(150)
    (folder / f"ready_{team.number}").touch()
    while True:
        jax.block_until_ready(total(ones))
        time.sleep(0.02)


def launched(team, folder):
    """Say who this is."""
    print(f"{team.number} of {team.size}: {team.exchange(lambda: team.number)}")


SCENARIOS = {
    "launched": launched,
    "together": together,
    "few": few,
    "endless": endless,
    "writing": functools.partial(endless, writing=True),
}

if __name__ == "__main__":
    scenario, folder, *place = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    given = (f"127.0.0.1:{place[0]}", int(place[1]), int(place[2])) if place else ()
    limits = {"connect_timeout": 150, "peer_timeout": PEER_TIMEOUT}
    with orderly_termination(), rl.join_processes(*given, **limits) as team:
        SCENARIOS[scenario](team, Path(folder))
