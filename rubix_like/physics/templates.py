"""Tables of templates (spectra or emission lines that particles shine as), and a particle's place among them."""

import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.physics.units import plain_fields

_SLACK = 1e-6
"""How far beyond the last node (in the axis's unit, dex for stars) a coordinate is still taken for the node."""

_COMPARED = 4
"""Up to 2 to this power nodes each value is compared with all of them."""

Curve = Callable[[Float[ndarray, " wave"]], Float[ndarray, " wave"]]
"""A(lambda) / A(V) by wavelength (vacuum Angstrom)."""

Layers = Callable[[Float[ndarray, " wave"]], Float[ndarray, "layer wave"]]
"""A(lambda) / A(V) of each layer of dust by wavelength (vacuum Angstrom)."""

A_V: str = "a_v"
"""The coordinate of templates that are seen through dust: attenuation in V, mag."""

A_V_BIRTH: str = "a_v_birth"
"""The coordinate of the birth clouds' attenuation, where their dust has a separate curve."""


class Corners(eqx.Module):
    """The templates around each particle: flat indices and weights (>= 0, sum 1) of a multilinear interpolation."""

    index: Int[Array, "particle corner"]
    weight: Float[Array, "particle corner"]


class TemplateAxes(eqx.Module):
    """The named axes of a table of templates, slowest first; its templates are numbered as in a flattened table.

    For stars: "metallicity" (log10 of the metal mass fraction) and "age" (log10 yr). Templates that are seen through
    dust have one more coordinate, the attenuation `A_V`, without nodes: `largest_a_v` (mag) is the last one whose
    colour is computed; None where there is no such dust. Where birth clouds have a separate curve
    (`has_birth_clouds`), theirs is another coordinate, `A_V_BIRTH`.

    Of a mixture (`is_mixture`) there are no nodes: a particle shines as all templates, which have the names, and its
    coordinates are the share of each.
    """

    nodes: tuple[Float[Array | ndarray, "_"], ...]
    names: tuple[str, ...] = eqx.field(static=True)
    largest_a_v: Float[Array | ndarray, ""] | None = None
    has_birth_clouds: bool = eqx.field(static=True, default=False)
    is_mixture: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        expect_fields(self)
        n_axis = 0 if self.is_mixture else len(self.names)
        if len(self.nodes) != n_axis:
            raise ValueError(f"TemplateAxes.nodes: expected the nodes of {n_axis} axes, got {len(self.nodes)}")
        for name, nodes in zip(self.names, self.nodes, strict=False):
            is_line = np.ndim(nodes) == 1 and len(nodes) > 0
            if isinstance(nodes, ndarray | list | tuple) and not (is_line and np.all(np.diff(nodes) > 0)):
                raise ValueError(f"TemplateAxes.nodes: {name}: expected an array of rising values, got {nodes}")

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of a particle's coordinates: the axes, then the attenuation by each layer of dust."""
        return (*self.names, *self._layers)

    @property
    def _layers(self) -> tuple[str, ...]:
        if self.largest_a_v is None:
            return ()
        return (A_V, A_V_BIRTH) if self.has_birth_clouds else (A_V,)

    def a_v(self, coordinates: tuple[Float[Array, " particle"], ...]) -> Float[Array, "particle layer"] | None:
        """The attenuation of each particle by each layer of dust, mag; None where there is no dust."""
        return jnp.stack(coordinates[-len(self._layers) :], axis=1) if self._layers else None

    @property
    def n_template(self) -> int:
        """Number of templates."""
        if self.is_mixture:
            return len(self.names)
        return int(np.prod([len(nodes) for nodes in self.nodes]))

    @property
    def n_corner(self) -> int:
        """Templates around each particle."""
        if self.is_mixture:
            return len(self.names)
        return 2 ** len(self.nodes)

    def corners(self, coordinates: tuple[Float[Array, " particle"], ...]) -> Corners:
        """Multilinear position on the axes, limited to their edges (zero gradient beyond them)."""
        index, weight = zip(*self.each_corner(coordinates), strict=True)
        return Corners(index=jnp.stack(index, axis=1), weight=jnp.stack(weight, axis=1))

    def each_corner(
        self, coordinates: tuple[Float[Array, " particle"], ...]
    ) -> list[tuple[Int[Array, " particle"], Float[Array, " particle"]]]:
        """Index and weight for each corner, as arrays over the particles."""
        places = coordinates[: len(self.names)]
        if self.is_mixture:
            return [(jnp.full(share.shape, number, jnp.int32), share) for number, share in enumerate(places)]
        sides = [self._sides(axis, coordinate) for axis, coordinate in enumerate(places)]
        every = []
        for corner in itertools.product((0, 1), repeat=len(sides)):
            chosen = [(index[side], weight[side]) for side, (index, weight) in zip(corner, sides, strict=True)]
            indices, weights = zip(*chosen, strict=True)
            every.append((functools.reduce(operator.add, indices), functools.reduce(operator.mul, weights)))
        return every

    def outside(self, name: str, coordinates: tuple[Float[Array, " particle"], ...]) -> Bool[Array, " particle"]:
        """Which particles lie beyond the axis `name` (by more than rounding) and are taken at its edge."""
        if name in self._layers and self.largest_a_v is not None:
            return coordinates[self.coordinate_names.index(name)] > self.largest_a_v + _SLACK
        axis = self.names.index(name)
        if self.is_mixture:
            return jnp.zeros(coordinates[axis].shape, bool)
        nodes, value = jnp.asarray(self.nodes[axis]), coordinates[axis]
        return (value < nodes[0] - _SLACK) | (value > nodes[-1] + _SLACK)

    def _sides(self, axis: int, coordinate: Float[Array, " particle"]) -> tuple[tuple, tuple]:
        """((lower, upper) index times the axis's stride, (lower, upper) weight)."""
        nodes = jnp.asarray(self.nodes[axis])
        stride = int(np.prod([len(later) for later in self.nodes[axis + 1 :]]))
        lower, fraction = bracket(coordinate, nodes)
        upper = jnp.minimum(lower + 1, len(nodes) - 1)
        return (lower * stride, upper * stride), (1 - fraction, fraction)


@dataclass(frozen=True, eq=False)
class Templates:
    """The spectra that a source's particles shine as, on the source's own wavelengths (host arrays, 64 bits).

    | field | shape | unit |
    |---|---|---|
    | name | | as in a sentence, e.g. "the SSP library 'popstar'" |
    | axes | | where between the templates a particle lies |
    | rest_wavelength | (rest,) | vacuum Angstrom, increasing |
    | table | (template, rest) | Lsun per vacuum Angstrom per unit of amount; linear between nodes, 0 beyond the ends |
    | fwhm | (rest,) | vacuum Angstrom, the resolution of the table; 0 where it is to get the instrument's in full |
    | covered | (first, last) | vacuum Angstrom between which the table holds all of the source's light |
    | remedy | | for the user where `fwhm` exceeds the instrument's, e.g. "take a finer library" |
    | attenuation | | A / A(V) of the dust that particles are seen through, by vacuum Angstrom at rest; None: no dust |
    | birth_clouds | | the same of the young ones' birth clouds; None: as `attenuation` |
    """

    name: str
    axes: TemplateAxes
    rest_wavelength: Float[ndarray, " rest"]
    table: Float[ndarray, "template rest"]
    fwhm: Float[ndarray, " rest"]
    covered: tuple[float, float]
    remedy: str = ""
    attenuation: Curve | None = None
    birth_clouds: Curve | None = None

    def __post_init__(self) -> None:
        units = {"rest_wavelength": "Angstrom", "table": "Lsun / Angstrom", "fwhm": "Angstrom"}
        vars(self).update(plain_fields(self, units))
        expect_fields(self)
        if not np.all(np.diff(self.rest_wavelength) > 0):
            raise ValueError("Templates.rest_wavelength: expected wavelengths that increase")
        expected = (self.axes.n_template, len(self.rest_wavelength))
        if self.table.shape != expected or self.fwhm.shape != expected[1:]:
            raise ValueError(
                f"templates of {self.name}: expected a table of shape {expected} (templates of the axes, rest "
                f"wavelengths) and a fwhm per wavelength, got shapes {self.table.shape} and {self.fwhm.shape}"
            )


@dataclass(frozen=True, eq=False)
class LineTemplates:
    """The lines that a source's particles shine in (host arrays, 64 bits).

    | field | shape | unit |
    |---|---|---|
    | name | | as in a sentence, e.g. "the lines of 'mappings-hii'" |
    | axes | | where between the templates a particle lies; without any axis there is one template |
    | lines | (line,) | names of the lines |
    | wavelength | (line,) | vacuum Angstrom at rest, in any order |
    | table | (template, line) | Lsun per unit of amount |
    | thermal | (line,) | km/s, sigma of the thermal motion of the line's ion |
    | attenuation | | A / A(V) of the dust that particles are seen through, by vacuum Angstrom at rest; None: no dust |
    | birth_clouds | | the same of the young ones' birth clouds; None: as `attenuation` |
    """

    name: str
    axes: TemplateAxes
    lines: tuple[str, ...]
    wavelength: Float[ndarray, " line"]
    table: Float[ndarray, "template line"]
    thermal: Float[ndarray, " line"]
    attenuation: Curve | None = None
    birth_clouds: Curve | None = None

    def __post_init__(self) -> None:
        vars(self).update(plain_fields(self, {"wavelength": "Angstrom", "table": "Lsun", "thermal": "km/s"}))
        expect_fields(self)
        expected = (self.axes.n_template, len(self.lines))
        shapes = self.table.shape, self.wavelength.shape, self.thermal.shape
        if shapes != (expected, expected[1:], expected[1:]):
            raise ValueError(
                f"lines of {self.name}: expected a table of shape {expected} (templates of the axes, lines), and a "
                f"wavelength and a thermal width per line, got shapes {shapes}"
            )
        if not (np.all(self.wavelength > 0) and np.all(self.table >= 0) and np.all(self.thermal >= 0)):
            raise ValueError(f"lines of {self.name}: expected wavelengths above 0, luminosities and widths >= 0")

    @property
    def rest_wavelength(self) -> Float[ndarray, " line"]:
        """The wavelengths that `fwhm` is given at."""
        return self.wavelength

    @property
    def fwhm(self) -> Float[ndarray, " line"]:
        """0 at every line: they get the instrument's line spread in full."""
        return np.zeros_like(self.wavelength)

    @property
    def covered(self) -> tuple[float, float]:
        """All wavelengths: there is no light between the lines."""
        return 0.0, np.inf

    @property
    def remedy(self) -> str:
        """None: lines are never coarser than the instrument."""
        return ""


_Any = TypeVar("_Any", Templates, LineTemplates)


@named_arguments
def behind_dust(templates: _Any, curve: Curve, largest: float, birth_clouds: Curve | None = None) -> _Any:
    """The templates, each particle's seen through dust of its own A(V): their last coordinate is `A_V`, or, where
    `birth_clouds` have a separate curve, `A_V_BIRTH` after it.

    Colours are computed up to A(V) = `largest` mag of either; beyond, light gets fainter and no redder.
    """
    axes = replace(templates.axes, largest_a_v=np.asarray(largest), has_birth_clouds=birth_clouds is not None)
    return replace(templates, axes=axes, attenuation=curve, birth_clouds=birth_clouds)


def layers_of(templates: Templates | LineTemplates) -> Layers | None:
    """The curves of all layers of dust that the particles are seen through; None where there is none."""
    curves = [curve for curve in (templates.attenuation, templates.birth_clouds) if curve is not None]
    return (lambda wavelength: np.stack([curve(wavelength) for curve in curves])) if curves else None


def weighted_rows(rows: Float[Array, "template column"], corners: Corners) -> Float[Array, "particle column"]:
    """The rows of a table over templates, interpolated for each particle."""
    terms = [rows[corners.index[:, k]] * corners.weight[:, k, None] for k in range(corners.index.shape[1])]
    return sum(terms[1:], start=terms[0])


def bracket(
    value: Float[Array, " particle"], nodes: Float[Array, " node"]
) -> tuple[Int[Array, " particle"], Float[Array, " particle"]]:
    """Lower node and fraction of the way to the next one, limited to the first and the last node (0 for one node)."""
    if len(nodes) == 1:
        return jnp.zeros(value.shape, jnp.int32), jnp.zeros_like(value)
    limited = jnp.where(value < nodes[0], nodes[0], jnp.where(value > nodes[-1], nodes[-1], value))
    index = _last_not_above(lax.stop_gradient(limited), nodes[:-1])
    low = _at(nodes, index)
    return index, (limited - low) / (_at(nodes, index + 1) - low)


def _last_not_above(value: Float[Array, " particle"], nodes: Float[Array, " node"]) -> Int[Array, " particle"]:
    """The last of the increasing nodes that is not above each value; the first where all are, or where it is NaN.

    By comparison with a few of them, then by halving, as sums: on a processor in a third of the time of
    `jnp.searchsorted`, whose choices between two numbers are jumps that it cannot predict.
    """
    n_bit = (len(nodes) - 1).bit_length()
    stride = 1 if n_bit <= _COMPARED else 2 ** (n_bit // 2)
    index = jnp.zeros(value.shape, jnp.int32)
    for node in range(stride, len(nodes), stride):
        index = index + jnp.int32(stride) * (value >= nodes[node]).astype(jnp.int32)
    padded = jnp.concatenate([nodes, jnp.full(-len(nodes) % stride, jnp.inf, nodes.dtype)])
    for power in reversed(range(stride.bit_length() - 1)):
        reached = _at(padded, index + jnp.int32(2**power)) <= value
        index = index + jnp.int32(2**power) * reached.astype(jnp.int32)
    return index


def _at(nodes: Float[Array, " node"], index: Int[Array, " particle"]) -> Float[Array, " particle"]:
    """The nodes of these indices, all of which exist."""
    return nodes.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)
