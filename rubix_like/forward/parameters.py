"""The continuous numbers of a run that can be changed, or fitted, without a new compilation."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from pydantic import Field

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig
from rubix_like.config.messages import dotted_keys
from rubix_like.config.parameters import Declaration, Parameter, declarations, missing_in
from rubix_like.config.quantities import Number
from rubix_like.errors import ConfigError, suggest
from rubix_like.instrument.pointing import Pointing
from rubix_like.physics.units import as_quantity, given_numbers, plain_numbers


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, init=False, repr=False, eq=False)
class Parameters(SimpleNamespace):
    """Array leaves under the YAML's dotted names, e.g. `parameters.observation.inclination`; each section is one, too.

    There is a leaf for every setting that is marked as a `Parameter`, in the setting's unit; what a run has none of (an
    angle, the PSF, the section dust) is None.
    """

    def __init__(self, **leaves: Any) -> None:
        vars(self).update(leaves)

    @classmethod
    def build(cls, config: RunConfig, dtype: str) -> "Parameters":
        """The values of a configuration."""
        return _with_missing({name: jnp.asarray(np.asarray(value, dtype)) for name, value in config.numbers().items()})

    @classmethod
    @named_arguments
    def of(cls, leaves: Mapping[str, Array]) -> "Parameters":
        """The tree of all leaves that a run has, by dotted name; raises ValueError for leaves that are no numbers."""
        for name, leaf in leaves.items():
            if as_quantity(leaf) is None:
                plain_numbers(leaf, "", f"parameters['{name}']")
        return _with_missing(leaves)

    @named_arguments
    def changed(self, values: Mapping[str, Any]) -> "Parameters":
        """With other values of some leaves, by dotted name, each in its setting's unit or a quantity.

        Raises ConfigError for names that the run has none of, and for values of another shape or physical type, masked
        ones, and ones beyond the limits of the setting. Of traced values the shape alone is checked.
        """
        leaves = self.named()
        known = declarations(RunConfig)
        for key, section in RunConfig.sections(*{name.partition(".")[0] for name in leaves}).items():
            known |= declarations(section, f"{key}.")
        for name, value in values.items():
            if name not in leaves:
                raise ConfigError(_unknown(name, leaves, known))
            leaves[name] = _read(known.get(name, _SHARES), value, np.shape(leaves[name]), f"parameters['{name}']")
        return jax.tree.unflatten(jax.tree.structure(self), leaves.values())

    def replaced(self, other: "Parameters") -> "Parameters":
        """All of `other`, checked as by `changed`; raises ConfigError where it is not of the same run."""
        values = other.named()
        missing = [name for name in self.named() if name not in values]
        if missing:
            raise ConfigError(
                f"parameters['{missing[0]}']: expected a number, as this pipeline has, got None; change numbers of "
                f"this pipeline's own parameters, and keep the others"
            )
        return self.changed(values)

    def named(self) -> dict[str, Any]:
        """The leaves by dotted name."""
        paths = jax.tree_util.tree_leaves_with_path(self)
        return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in paths}

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
        """Leaves and sections, each with its attribute's key, and the names of all."""
        below = vars(self)
        return tuple((jax.tree_util.GetAttrKey(name), value) for name, value in below.items()), tuple(below)

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], leaves: Iterable[Any]) -> "Parameters":
        """The parameters of these names."""
        return cls(**dict(zip(names, leaves, strict=True)))


_SHARES = Declaration("", "", Parameter(), tuple[Annotated[Number, Field(gt=0)], ...], None)
"""The fractions of a PSF's Gaussians, which are declared as a setting of each."""


def _read(declared: Declaration, value: Any, shape: tuple[int, ...], place: str) -> Array:
    """An array in the unit of a parameter; ConfigError for what its setting cannot be, unless it is traced."""
    if isinstance(value, list | tuple) and any(isinstance(number, Tracer) for number in value):
        numbers = jnp.asarray(value)
    else:
        try:
            numbers = given_numbers(value, declared.unit, place)
        except ValueError as error:
            raise ConfigError(str(error)) from error
    if np.shape(numbers) != shape:
        wanted = f"numbers of shape {shape}" if shape else "a number"
        raise ConfigError(
            f"{place}: expected {wanted}, in the unit of the setting, got {value!r}; other shapes need another "
            f"configuration"
        )
    if not isinstance(numbers, Tracer):
        exact = np.asarray(numbers).astype(str).astype(np.float64)  # 1e-4 of 32 bits is 1e-4, not 9.99999975e-5
        refused = declared.refused(exact)
        if refused is not None:
            row, fault = refused
            unit = f" {declared.unit}" if declared.unit else ""
            raise ConfigError(
                f"{place}: expected a value within the parameter's limits, got {row.flat[0]:.4g}{unit}: {fault}; leave "
                f"it out, or check its unit"
            )
    found = jnp.asarray(numbers)
    return found if jnp.issubdtype(found.dtype, jnp.inexact) else found.astype(float)


def _unknown(name: Any, leaves: Collection[str], known: Collection[str]) -> str:
    expected = f"parameters: expected numbers of this run, got {name!r}"
    if name in known:
        return f"{expected}, which its configuration does not have; give {name} there, or leave it out here"
    inside = sorted(leaf for leaf in leaves if leaf.startswith(f"{name}."))
    if inside:
        return f"{expected}, which is a section; name its numbers by dotted keys, such as '{inside[0]}'"
    if name in set(dotted_keys(RunConfig)):
        return f"{expected}, a setting that is fixed with the pipeline; build another one from a configuration with it"
    return f"{expected}{suggest(str(name), leaves)}"


def _with_missing(leaves: Mapping[str, Array]) -> Parameters:
    """The tree of these leaves, None for all others of the same sections."""
    found: dict[str, Any] = dict.fromkeys(missing_in(RunConfig, leaves)) | dict(leaves)
    for name, section in RunConfig.sections(*{name.partition(".")[0] for name in leaves}).items():
        found |= dict.fromkeys(missing_in(section, leaves, f"{name}."))
    return _tree(found)


def _tree(named: Mapping[str, Any]) -> Parameters:
    """Dotted names as a tree, in alphabetical order, so that all trees of the same names have one structure."""
    below: dict[str, dict[str, Any]] = {}
    for name in sorted(named):
        first, _, rest = name.partition(".")
        below.setdefault(first, {})[rest] = named[name]
    return Parameters(**{name: part[""] if "" in part else _tree(part) for name, part in below.items()})


def screen_a_v(parameters: Parameters) -> Array | None:
    """A(V) of the screen of dust in front of all the light; None where there is none."""
    dust = parameters.dust
    if dust is None or dust.a_v is not None:
        return None if dust is None else dust.a_v
    return None if dust.foreground is None else dust.foreground.a_v


def displaced(parameters: Parameters, pointing: Pointing) -> Parameters:
    """The parameters of the whole observation as seen from one field of it: the offset of the galaxy, and the angle."""
    observation = parameters.observation
    offset = observation.offset - jnp.asarray(pointing.offset, observation.offset.dtype)
    parameters = eqx.tree_at(lambda p: p.observation.offset, parameters, offset)
    if observation.field_angle is None:
        return parameters
    angle = observation.field_angle + jnp.asarray(pointing.turn, observation.field_angle.dtype)
    return eqx.tree_at(lambda p: p.observation.field_angle, parameters, angle)
