"""The passes over the slabs of a galaxy: its fields first, where the pipeline has any, then its light."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from jax.sharding import PartitionSpec
from jaxtyping import PRNGKeyArray

from rubix_like.engine.painter import Sum
from rubix_like.forward.model import (
    Fields,
    Observed,
    Partial,
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


class AbstractSlabPass(ABC):
    """One way through all slabs: what every device sums, and what is made of the sums of all devices.

    `words` and `done` say what happens to stars, for the progress of a run.
    """

    words: ClassVar[str]
    done: ClassVar[str]

    @abstractmethod
    def readers(self, tables: Tables) -> Sequence[ReadsParticles]:
        """What is summed over particles."""

    @abstractmethod
    def sum(self, plan: Plan, tables: Tables, view: SlabView, particles: tuple[Any, ...]) -> Any:
        """A device's sums over the particles at hand."""

    @abstractmethod
    def kinds(self, tables: Tables, n_leaf: int) -> Sequence[Sum]:
        """How each of the `n_leaf` arrays of the sums is added up over the devices."""

    @abstractmethod
    def finish(
        self, plan: Plan, layout: DeviceLayout, tables: Tables, view: SlabView, sums: Any, key: PRNGKeyArray | None
    ) -> Any:
        """What each device makes of its sums, which are added up over the devices once."""

    @abstractmethod
    def specs(self, layout: DeviceLayout) -> Any:
        """The prefix of the tree of PartitionSpecs of what `finish` makes."""

    @abstractmethod
    def whole(self, plan: Plan, layout: DeviceLayout, made: Any) -> Any:
        """What is made, as it is where the parts of all devices are put together."""

    @abstractmethod
    def shardings(self, layout: DeviceLayout) -> Any:
        """The prefix of the tree of shardings of what `whole` returns."""


@dataclass(frozen=True)
class FieldPass(AbstractSlabPass):
    """The sums of all fields; it makes the fields, the same on every device."""

    words: ClassVar[str] = "summing the fields of"
    done: ClassVar[str] = "summed"

    def readers(self, tables: Tables) -> Sequence[ReadsParticles]:
        """The fields."""
        return tables.fields

    def sum(self, plan: Plan, tables: Tables, view: SlabView, particles: tuple[Any, ...]) -> Any:
        """As `model.sum_fields`."""
        return sum_fields(plan, tables, view.parameters, particles)

    def kinds(self, tables: Tables, n_leaf: int) -> Sequence[Sum]:  # noqa: ARG002
        """Over particles, all of them."""
        return (Sum.PARTICLES,) * n_leaf

    def finish(
        self,
        plan: Plan,
        layout: DeviceLayout,  # noqa: ARG002
        tables: Tables,
        view: SlabView,  # noqa: ARG002
        sums: Any,
        key: PRNGKeyArray | None,  # noqa: ARG002
    ) -> Fields:
        """As `model.finish_fields`."""
        return finish_fields(plan, tables, sums)

    def specs(self, layout: DeviceLayout) -> PartitionSpec:  # noqa: ARG002
        """Whole on every device."""
        return PartitionSpec()

    def whole(self, plan: Plan, layout: DeviceLayout, made: Any) -> Any:  # noqa: ARG002
        """Unchanged: they are whole on every device."""
        return made

    def shardings(self, layout: DeviceLayout) -> Any:
        """Whole on every device."""
        return replicated(layout.mesh)


@dataclass(frozen=True)
class PaintingPass(AbstractSlabPass):
    """The light of all sources, and the sums of the products; it makes the observed cube."""

    words: ClassVar[str] = "painting"
    done: ClassVar[str] = "painted"

    def readers(self, tables: Tables) -> Sequence[ReadsParticles]:
        """The sources."""
        return tables.paint

    def sum(self, plan: Plan, tables: Tables, view: SlabView, particles: tuple[Any, ...]) -> Partial:
        """As `model.paint`."""
        return paint(plan, tables, *view, particles)

    def kinds(self, tables: Tables, n_leaf: int) -> Sequence[Sum]:
        """As `model.kinds_of_sums`."""
        return kinds_of_sums(tables, n_leaf)

    def finish(
        self, plan: Plan, layout: DeviceLayout, tables: Tables, view: SlabView, sums: Any, key: PRNGKeyArray | None
    ) -> Observed:
        """As `model.finish`."""
        return finish(plan, layout, tables, *view, add_up(layout, tables, sums), key)

    def specs(self, layout: DeviceLayout) -> Observed:
        """As `model.observed_specs`."""
        return observed_specs(layout)

    def whole(self, plan: Plan, layout: DeviceLayout, made: Any) -> Observed:
        """As `model.gathered`."""
        return gathered(plan, layout, made)

    def shardings(self, layout: DeviceLayout) -> Any:
        """As `model.observed_shardings`."""
        return observed_shardings(layout)


def passes_of(tables: Tables) -> tuple[AbstractSlabPass, ...]:
    """The passes of a run, in order; the last one makes the cube."""
    return (FieldPass(), PaintingPass()) if tables.fields else (PaintingPass(),)
