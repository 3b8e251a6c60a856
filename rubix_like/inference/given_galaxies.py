"""Given galaxies that simulations observe in turn: loaded, counted, padded to one size."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config import RunConfig, load_config
from rubix_like.errors import ConfigError
from rubix_like.forward.census import Census, take_census
from rubix_like.forward.resolved import Resolved, resolve, settle_deposit
from rubix_like.forward.tables import Plan
from rubix_like.galaxy.alignment import align
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.validation import validate
from rubix_like.inference.posterior.fit_model import AbstractParticleSource, HeldSource, Values
from rubix_like.readers.galaxy_loading import load, smoothing_choice, with_deposit, with_neighbour_lengths
from rubix_like.runtime.mesh.mesh import pad_on_host, size_class
from rubix_like.runtime.notes import Note
from rubix_like.runtime.progress import Report
from rubix_like.runtime.words import counted

_UNREAD = (
    ("stars", "mass"),
    ("gas", "internal_energy"),
    ("gas", "electron_abundance"),
    ("gas", "hi_fraction"),
    ("gas", "h2_fraction"),
)
"""Columns that alignment and maps read, and readers, but no simulation."""


def load_given(
    config: RunConfig, galaxies: Sequence[Galaxy] | None, report: Report
) -> tuple[list[Galaxy], GalaxyInfo | None, tuple[str, ...], RunConfig, Resolved]:
    """Checked galaxies as host arrays without padding, what is known of a single one, notes, and the run.

    Where stars are smoothed, each galaxy has smoothing lengths. The run has the deposit that `auto` stands for: for all
    galaxies that of the first.
    """
    resolved, info = resolve(config), None
    if galaxies is not None:
        found = [_bare(validate(galaxy)) for galaxy in galaxies]
    else:
        files = () if config.simulate is None else config.simulate.galaxies or ()
        configs = [load_config(config, overrides={"galaxy.path": str(path)}) for path in files] or [config]
        if configs[0].galaxy is None:
            raise ConfigError(
                "galaxy: expected a section with a reader, simulate.galaxies, or galaxies given, got none"
            )
        loaded = [load(configs[0], report, resolved.library)]
        deposit = with_deposit(configs[0], loaded[0][0].stars).engine.deposit
        others = [load_config(other, overrides={"engine.deposit": deposit}) for other in configs[1:]]
        loaded += [load(other, report, resolved.library) for other in others]
        found, info = [_bare(galaxy) for galaxy, _ in loaded], loaded[0][1] if len(loaded) == 1 else None
    first = take_census(config, resolved, found[:1])
    config, resolved = settle_deposit(config, resolved, first.crowding, first.all_lengths.n_lacking)
    found, notes = _with_lengths(config, found)
    return found, info, notes, config, resolved


def joint_census(
    config: RunConfig, resolved: Resolved, galaxies: Sequence[Galaxy]
) -> tuple[Census, Float[ndarray, "galaxy 3 3"] | None]:
    """The census of all galaxies, and the rotation of each (None: they are not aligned)."""
    censuses = [take_census(config, resolved, [galaxy]) for galaxy in galaxies]
    census = dataclasses.replace(functools.reduce(Census.joined, censuses), sample=censuses[0].sample)
    by, radius = config.resolved_align, config.observation.align_radius
    if by == "none":
        return census, None
    return census, np.stack([align(by, radius, alone.sample).rotation for alone in censuses])


def _bare(galaxy: Galaxy) -> Galaxy:
    def real(particles: Any) -> Any:
        if particles is None or not len(particles.position):
            return None
        chosen = slice(None) if particles.weight is None else np.asarray(particles.weight) > 0
        return jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], dataclasses.replace(particles, weight=None))

    return Galaxy(stars=real(galaxy.stars), gas=real(galaxy.gas))


def _with_lengths(config: RunConfig, found: list[Galaxy]) -> tuple[list[Galaxy], tuple[str, ...]]:
    """The galaxies with smoothing lengths: where stars are smoothed, those without get the distances to their
    neighbours, with a note; where `galaxy.smoothing_length` is neighbours, those of all."""
    choice, number = smoothing_choice(config)
    makes = [choice == "neighbours" or galaxy.stars.smoothing_length is None for galaxy in found]
    if config.engine.deposit != "smoothed" or choice == "file" or not any(makes):
        return found, ()
    pairs = zip(found, makes, strict=True)
    lengthened = [_bare(with_neighbour_lengths(galaxy, number)) if new else galaxy for galaxy, new in pairs]
    note = f"smoothing lengths of the stars of {sum(makes)} of {counted(len(found), 'galaxy', 'galaxies')} are made"
    return lengthened, (Note("galaxy.smoothing_length", f"{note}: the distance to neighbour {number}"),)


def without_unread(found: list[Galaxy], plan: Plan) -> tuple[list[Galaxy], tuple[str, ...]]:
    """The galaxies without columns that only some have and simulations do not read, with a note on each."""
    unread = list(_UNREAD)
    if plan.deposit != "smoothed" and not plan.fields:
        unread += [("stars", "smoothing_length"), ("gas", "smoothing_length")]
    notes = []
    for kind, name in unread:
        has = [getattr(getattr(galaxy, kind), name, None) is not None for galaxy in found]
        if any(has) and not all(has):
            found = [
                dataclasses.replace(galaxy, **{kind: dataclasses.replace(getattr(galaxy, kind), **{name: None})})
                if present
                else galaxy
                for galaxy, present in zip(found, has, strict=True)
            ]
            text = f"{kind}.{name} is left out: {sum(has)} of {len(has)} galaxies have it, no simulation reads it"
            notes.append(Note("galaxy.column_left_out", text))
    return found, tuple(notes)


def stack_galaxies(galaxies: Sequence[Galaxy], *, with_gas: bool) -> Galaxy:
    """Galaxies as one, with the axis galaxy first: padded to the size class of the largest, unless there is only one.

    Raises ValueError where they have different columns.
    """
    chosen = [galaxy if with_gas else dataclasses.replace(galaxy, gas=None) for galaxy in galaxies]
    columns = [
        {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(galaxy)} for galaxy in chosen
    ]
    for number, names in enumerate(columns):
        if names != columns[0]:
            different = ", ".join(sorted(names ^ columns[0]))
            raise ValueError(
                f"galaxies: expected the same columns in all, got some in galaxy {number} or in galaxy 0 alone: "
                f"{different}; leave them out of both, or simulate the galaxies apart"
            )
    if len(chosen) > 1:
        kinds = ("stars",) if chosen[0].gas is None else ("stars", "gas")
        sizes = {kind: max(len(getattr(galaxy, kind).position) for galaxy in chosen) for kind in kinds}
        chosen = [
            Galaxy(**{kind: pad_on_host(getattr(galaxy, kind), size_class(size, 1)) for kind, size in sizes.items()})
            for galaxy in chosen
        ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *chosen)


class GalaxiesInTurn(AbstractParticleSource):
    """Given galaxies, padded to one size, one after the other: simulation i has number i modulo how many there are.

    `held`: every array has the axis galaxy first; `alignment`: the rotation of each (None: they are not aligned).
    """

    held: Galaxy
    alignment: Float[Array | np.ndarray, "galaxy 3 3"] | None

    @property
    def n_galaxy(self) -> int:
        """How many galaxies there are."""
        return len(self.held.stars.position)

    def galaxy(self, values: Values) -> Galaxy:
        """The first one."""
        return self.alone(jnp.zeros((), jnp.int32)).galaxy(values)

    def of_host(self, values: Values) -> Galaxy:
        """The first one, of which nothing has to be compiled."""
        return HeldSource(jax.tree.map(lambda leaf: np.asarray(leaf)[0], self.held)).galaxy(values)

    def alone(self, index: Int[Array, ""]) -> HeldSource:
        """One of them."""
        return HeldSource(jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], self.held))
