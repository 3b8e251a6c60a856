"""Tables of emission lines that particles shine in: where the lines are, how bright and how wide they are."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.physics.templates import TemplateAxes

LARGEST_DISPERSION: float = 500.0
"""Largest velocity_dispersion (km/s) that lines are painted with."""


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
    | thermal | (line,) | km/s, sigma of the thermal motion of the line's ion, at `reference_temperature` |
    | reference_temperature | | K |
    """

    name: str
    axes: TemplateAxes
    lines: tuple[str, ...]
    wavelength: Float[ndarray, " line"]
    table: Float[ndarray, "template line"]
    thermal: Float[ndarray, " line"]
    reference_temperature: float = 1e4
    remedy: str = ""

    def __post_init__(self) -> None:
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
        """`wavelength`: where `fwhm` is given."""
        return self.wavelength

    @property
    def fwhm(self) -> Float[ndarray, " line"]:
        """0 at every line: they get the instrument's line spread in full."""
        return np.zeros_like(self.wavelength)

    @property
    def covered(self) -> tuple[float, float]:
        """All wavelengths: there is no light between the lines."""
        return 0.0, np.inf
