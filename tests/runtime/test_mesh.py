"""Meshes, the ladder of sizes, padding and placement."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from rubix_like import Galaxy, Gas, Stars, make_mesh, particle_shardings, shard
from rubix_like.runtime.mesh.mesh import pad_particles, replicated, size_class


def galaxy(n=13, n_gas=None):
    rng = np.random.default_rng(n)
    stars = Stars(
        position=rng.normal(size=(n, 3)),
        velocity=rng.normal(size=(n, 3)),
        initial_mass=rng.uniform(1, 2, n),
        log_age=rng.uniform(8, 10, n),
        metallicity=rng.uniform(0.01, 0.02, n),
        mass=rng.uniform(1, 2, n),
    )
    if n_gas is None:
        return Galaxy(stars=stars)
    one = rng.uniform(1, 2, n_gas)
    return Galaxy(stars=stars, gas=Gas(np.zeros((n_gas, 3)), np.zeros((n_gas, 3)), one, one / 100))


def test_mesh_has_the_data_axis_over_the_first_devices():
    assert make_mesh().axis_names == ("data",)
    assert make_mesh().size == len(jax.devices()) == 8
    assert list(make_mesh(3).devices) == jax.devices()[:3]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "n_devices: expected a whole number of 1 or more, got 0"),
        (-1, "n_devices: expected a whole number of 1 or more, got -1"),
        (9, "devices.data: expected 'all' or 1 to 8 .*got 9"),
    ],
)
def test_mesh_of_devices_that_do_not_exist(number, words):
    with pytest.raises(ValueError, match=words):
        make_mesh(number)


@pytest.mark.parametrize("n_devices", [1, 2, 3, 8])
def test_ladder_of_sizes(n_devices):
    sizes = [size_class(n, n_devices) for n in range(1, 5000)]
    for n, size in enumerate(sizes, start=1):
        assert size % n_devices == 0
        assert n <= size <= 1.125 * n + 1.125 * n_devices
        assert size_class(size, n_devices) == size
    assert sizes == sorted(sizes)
    per_octave = [size for size in set(sizes) if 1024 < size / n_devices <= 2048]
    assert len(per_octave) <= 8


def test_padding_repeats_the_last_particle_without_weight():
    stars = eqx.tree_at(lambda s: s.weight, galaxy().stars, np.ones(13), is_leaf=lambda leaf: leaf is None)
    padded = pad_particles(stars, 16)
    assert len(padded.initial_mass) == 16
    np.testing.assert_array_equal(np.asarray(padded.weight), [1.0] * 13 + [0.0] * 3)
    np.testing.assert_array_equal(np.asarray(padded.position[:13]), stars.position)
    np.testing.assert_array_equal(np.asarray(padded.position[13:]), np.repeat(stars.position[-1:], 3, axis=0))
    assert pad_particles(stars, 13) is stars


def test_padding_takes_no_gradient():
    stars = eqx.tree_at(lambda s: s.weight, galaxy().stars, np.ones(13), is_leaf=lambda leaf: leaf is None)
    gradient = jax.grad(lambda s: pad_particles(s, 16).position.sum())(stars)
    np.testing.assert_array_equal(np.asarray(gradient.position), 1.0)


@pytest.mark.parametrize("n_devices", [1, 3, 8])
def test_shard_places_particles_along_data(n_devices):
    mesh = make_mesh(n_devices)
    placed = shard(galaxy(13, n_gas=5), mesh)
    assert len(placed.stars.initial_mass) == size_class(13, n_devices)
    assert len(placed.gas.mass) == size_class(5, n_devices)
    assert float(placed.stars.weight.sum()) == 13.0
    assert float(placed.gas.weight.sum()) == 5.0
    for leaf in jax.tree.leaves(placed):
        assert leaf.sharding.mesh == mesh
        assert leaf.sharding.spec[0] == "data"
        assert len(leaf.sharding.device_set) == n_devices
        assert {s.data.shape[0] for s in leaf.addressable_shards} == {len(leaf) // n_devices}


def test_spec_tree_follows_the_rank():
    specs = particle_shardings(galaxy(), make_mesh(2))
    assert specs.stars.position.spec == PartitionSpec("data", None)
    assert specs.stars.initial_mass.spec == PartitionSpec("data")
    assert specs.stars.smoothing_length is None
    assert specs.gas is None
    assert replicated(make_mesh(2)).spec == PartitionSpec()


def test_shard_leaves_the_callers_galaxy_alone():
    original = galaxy()
    leaves = jax.tree.leaves(original)
    before = [leaf.tobytes() for leaf in leaves]
    shard(original, make_mesh(8))
    assert original.stars.weight is None
    assert all(now is then for now, then in zip(jax.tree.leaves(original), leaves, strict=True))
    assert [leaf.tobytes() for leaf in leaves] == before


def test_sharding_twice_changes_nothing():
    mesh = make_mesh(8)
    once = shard(galaxy(), mesh)
    assert eqx.tree_equal(shard(once, mesh), once)


def test_a_placed_galaxy_can_go_to_another_mesh():
    moved = shard(shard(galaxy(), make_mesh(8)), make_mesh(3))
    assert float(moved.stars.weight.sum()) == 13.0
    real = np.asarray(moved.stars.weight) == 1
    np.testing.assert_array_equal(np.asarray(moved.stars.log_age)[real], galaxy().stars.log_age)


def test_shard_works_inside_jit():
    mesh = make_mesh(8)
    inside = jax.jit(lambda g: shard(g, mesh))(galaxy())
    assert eqx.tree_equal(inside, shard(galaxy(), mesh))


def test_shard_keeps_the_dtype():
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, "float32"), galaxy())
    assert {leaf.dtype.name for leaf in jax.tree.leaves(shard(single, make_mesh(2)))} == {"float32"}
