"""The continuous numbers of a run that can be changed, or fitted, without a new compilation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from rubix_like.config import RunConfig
from rubix_like.config.parameters import declarations, missing_in
from rubix_like.errors import ConfigError, suggest
from rubix_like.instrument.pointing import Pointing
from rubix_like.physics.units import as_quantity, plain_numbers


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
        return cls.of({name: jnp.asarray(np.asarray(value, dtype)) for name, value in config.numbers().items()})

    @classmethod
    def of(cls, leaves: Mapping[str, Array]) -> "Parameters":
        """The tree of all leaves that a run has, by dotted name; raises ValueError for leaves that are no numbers."""
        for name, leaf in leaves.items():
            if as_quantity(leaf) is None:
                plain_numbers(leaf, "", f"parameters['{name}']")
        found: dict[str, Any] = dict.fromkeys(missing_in(RunConfig, leaves)) | dict(leaves)
        for name, section in RunConfig.sections(*{name.partition(".")[0] for name in leaves}).items():
            found |= dict.fromkeys(missing_in(section, leaves, f"{name}."))
        return _tree(found)

    def changed(self, values: Mapping[str, Any]) -> "Parameters":
        """With other values of some leaves, by dotted name, each in its setting's unit or a quantity; raises
        ConfigError for names that the run has none of, and for values of another shape or physical type."""
        leaves = self.named()
        for name, value in values.items():
            if name not in leaves:
                raise ConfigError(f"parameters: expected numbers of this run, got '{name}'{suggest(name, leaves)}")
            shape = np.shape(leaves[name])
            if isinstance(value, str) or np.shape(value) != shape:
                wanted = f"numbers of shape {shape}" if shape else "a number"
                raise ConfigError(
                    f"parameters['{name}']: expected {wanted}, in the unit of the setting, got {value!r}; other shapes "
                    f"need another configuration"
                )
            try:
                leaves[name] = jnp.asarray(plain_numbers(value, _unit_of(name), f"parameters['{name}']"))
            except ValueError as error:
                raise ConfigError(str(error)) from error
        return Parameters.of(leaves)

    def without_units(self) -> "Parameters":
        """With the quantities among the leaves converted."""
        quantities = {name: leaf for name, leaf in self.named().items() if as_quantity(leaf) is not None}
        return self.changed(quantities) if quantities else self

    def named(self) -> dict[str, Any]:
        """The leaves by dotted name."""
        paths = jax.tree_util.tree_leaves_with_path(self)
        return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in paths}

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
        """Leaves and sections, each with its attribute's key, and the names of all."""
        own = vars(self)
        return tuple((jax.tree_util.GetAttrKey(name), value) for name, value in own.items()), tuple(own)

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], leaves: Iterable[Any]) -> "Parameters":
        """The parameters of these names."""
        return cls(**dict(zip(names, leaves, strict=True)))


def _unit_of(name: str) -> str:
    """The unit of a parameter's setting."""
    known = declarations(RunConfig)
    for key, section in RunConfig.sections(name.partition(".")[0]).items():
        known |= declarations(section, f"{key}.")
    return known[name].unit


def _tree(named: Mapping[str, Any]) -> Parameters:
    """Dotted names as a tree, in alphabetical order, so that all trees of the same names have one structure."""
    below: dict[str, dict[str, Any]] = {}
    for name in sorted(named):
        first, _, rest = name.partition(".")
        below.setdefault(first, {})[rest] = named[name]
    return Parameters(**{name: own[""] if "" in own else _tree(own) for name, own in below.items()})


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
