"""Simulations with their parameters: what a sink gets, what is collected, what is read from files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.arguments import expect_fields
from rubix_like.runtime.words import counted

Cubes = Float[Array | ndarray, "simulation y x wave"]


@dataclass(frozen=True, eq=False)
class Simulations:
    """Cubes of random parameters, beside the parameters; every array has the axis simulation first.

    | field | shape | |
    |---|---|---|
    | number | (simulation,) | of each in its set, from 0 |
    | parameters | name: (simulation, ...) | in the units of `units` |
    | units | name: text | empty: a number |
    | galaxy | (simulation,) | which of several galaxies each shows; 0 where there is one |
    | flux | (simulation, y, x, wave) or None | 1e-20 erg/s/cm2/Angstrom, with noise if the run has any |
    | variance | (simulation, y, x, wave) or None | of the noise, the square of that unit |
    | truth | (simulation, y, x, wave) or None | flux without noise (`noise.keep_truth`) |
    | wavelength | (wave,) | Angstrom, centres of the bins, in the instrument's medium |
    | mask | (y, x, wave) | the same for all; bits as in `Cube.mask` |

    `flux` is None where the cubes went to a sink or into files. What a sink gets are arrays on the devices. `n_kept`:
    how many of them were in the files already, before the call.
    """

    number: Int[ndarray, " simulation"]
    parameters: Mapping[str, Float[ndarray, "simulation ..."]]
    units: Mapping[str, str]
    galaxy: Int[ndarray, " simulation"]
    wavelength: Float[ndarray, " wave"]
    mask: Int[ndarray, "y x wave"]
    flux: Cubes | None = None
    variance: Cubes | None = None
    truth: Cubes | None = None
    n_kept: int = 0

    def __post_init__(self) -> None:
        expect_fields(self)

    def __len__(self) -> int:
        """How many simulations there are."""
        return len(self.number)

    def table(self) -> Float[ndarray, "simulation value"]:
        """All parameters as columns, in the order of `labels`."""
        rows = [np.asarray(values).reshape(len(self), -1) for values in self.parameters.values()]
        return np.concatenate(rows, axis=1)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each column of `table`: that of the parameter, with an index where it has several values."""
        shapes = {name: np.shape(values)[1:] for name, values in self.parameters.items()}
        return tuple(
            f"{name}[{','.join(map(str, index))}]" if index else name
            for name, shape in shapes.items()
            for index in np.ndindex(shape)
        )

    def without_cubes(self) -> "Simulations":
        """Numbers and parameters alone."""
        return replace(self, flux=None, variance=None, truth=None)

    def __repr__(self) -> str:
        """How many there are, of what size, and what was random."""
        size = " x ".join(map(str, self.mask.shape))
        cubes = "" if self.flux is None else f" with cubes of {size} (y, x, wave)"
        return f"Simulations({counted(len(self), 'simulation')}{cubes}; random: {', '.join(self.labels)})"


def join_simulations(parts: Sequence[Simulations]) -> Simulations:
    """Parts of one set as one, on the host."""

    def together(name: str) -> ndarray | None:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate([np.asarray(own) for own in arrays])

    first = parts[0]
    cubes: dict[str, Any] = {name: together(name) for name in ("flux", "variance", "truth")}
    return Simulations(
        number=np.concatenate([part.number for part in parts]),
        parameters={name: np.concatenate([part.parameters[name] for part in parts]) for name in first.parameters},
        units=first.units,
        galaxy=np.concatenate([part.galaxy for part in parts]),
        wavelength=first.wavelength,
        mask=first.mask,
        **cubes,
    )
