"""The passes over the slabs of a galaxy: its fields first, where the pipeline has any, then its light."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec
from jaxtyping import PRNGKeyArray

from rubix_like.engine.basis import BasisPainter
from rubix_like.engine.painter import Sum
from rubix_like.forward.model import (
    Fields,
    add_up,
    finish,
    finish_fields,
    gathered,
    kinds_of_sums,
    observed_shardings,
    observed_specs,
    paint,
    sum_fields,
)
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import ReadsParticles
from rubix_like.forward.tables import Plan, Tables
from rubix_like.runtime.mesh.device_layout import DeviceLayout
from rubix_like.runtime.mesh.mesh import replicated


class SlabView(NamedTuple):
    """What a pass needs beside the slabs: the parameters of a pointing, and the fields that earlier passes made."""

    parameters: Parameters
    fields: Fields


@dataclass(frozen=True)
class SlabPass:
    """One way through all slabs: what every device sums, and what is made of the sums of all devices."""

    words: str
    """What happens to stars, for the progress of a run."""
    done: str
    """What has happened to them."""
    readers: Callable[[Tables], Sequence[ReadsParticles]]
    """What is summed over particles."""
    sum: Callable[[Plan, Tables, SlabView, tuple[Any, ...]], Any]
    """A device's sums over the particles at hand."""
    kinds: Callable[[Tables, int], Sequence[Sum]]
    """How each of so many arrays of the sums is added up over the devices."""
    finish: Callable[[Plan, DeviceLayout, Tables, SlabView, Any, PRNGKeyArray | None], Any]
    """What each device makes of its sums, which are added up over the devices once."""
    specs: Callable[[DeviceLayout], Any]
    """The prefix of the tree of PartitionSpecs of what `finish` makes."""
    whole: Callable[[Plan, DeviceLayout, Any], Any]
    """The result of a pass with the parts of all devices joined."""
    shardings: Callable[[DeviceLayout], Any]
    """The prefix of the tree of shardings of what `whole` returns."""


def in_slabs(tables: Tables) -> Tables:
    """The tables with painters whose partials of several slabs are added up."""

    def added(node: Any) -> Any:
        return replace(node, in_slabs=True) if isinstance(node, BasisPainter) else node

    return jax.tree.map(added, tables, is_leaf=lambda node: isinstance(node, BasisPainter))


FIELD_PASS = SlabPass(
    words="summing the fields of",
    done="summed",
    readers=lambda tables: tables.fields,
    sum=lambda plan, tables, view, particles: sum_fields(plan, tables, view.parameters, particles),
    kinds=lambda _tables, n_leaf: (Sum.PARTICLES,) * n_leaf,
    finish=lambda plan, _layout, tables, view, sums, _key: finish_fields(plan, tables, view.parameters, sums),
    specs=lambda _layout: PartitionSpec(),
    whole=lambda _plan, _layout, made: made,
    shardings=lambda layout: replicated(layout.mesh),
)
"""The sums of all fields; it makes the fields, whole on every device."""

PAINTING_PASS = SlabPass(
    words="painting",
    done="painted",
    readers=lambda tables: tables.painted,
    sum=lambda plan, tables, view, particles: paint(plan, in_slabs(tables), *view, particles),
    kinds=kinds_of_sums,
    finish=lambda plan, layout, tables, view, sums, key: finish(
        plan, layout, in_slabs(tables), *view, add_up(layout, tables, sums), key
    ),
    specs=observed_specs,
    whole=gathered,
    shardings=observed_shardings,
)
"""The light of all sources, and the sums of the products; it makes the observed cube."""


def passes_of(tables: Tables) -> tuple[SlabPass, ...]:
    """The passes of a run, in order; the last one makes the cube."""
    return (FIELD_PASS, PAINTING_PASS) if tables.fields else (PAINTING_PASS,)
