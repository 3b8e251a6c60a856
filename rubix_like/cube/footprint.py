"""What is seen of the sky: the grid of spaxels of an instrument, of a cube and of its files."""

from functools import partial
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Shaped

from rubix_like.arguments import named_arguments
from rubix_like.config import InstrumentSettings
from rubix_like.cube.bins import AbstractBinned
from rubix_like.errors import expect_count
from rubix_like.physics.units import expect_positive, plain_array

LARGEST_ANGLES: dict[str, float] = {"field_angle": np.inf, "ra": 360.0, "dec": 90.0}
"""Magnitude (deg) of the angles that say where on the sky a field lies."""


class Footprint(eqx.Module):
    """n_y x n_x square spaxels about the field's centre, `pixel_scale` arcsec (or a quantity) wide.

    Inside the model spectra are (element, wave): an element is a spaxel, row after row. `images` and `elements` turn
    them into images and back. `pixel_scale` is a number on the host, an array in the model: a new value
    does not recompile it.
    """

    n_y: int = eqx.field(static=True)
    n_x: int = eqx.field(static=True)
    pixel_scale: Any = eqx.field(converter=partial(plain_array, unit="arcsec", place="Footprint.pixel_scale"))

    def __check_init__(self) -> None:
        expect_count(self.n_y, "Footprint.n_y")
        expect_count(self.n_x, "Footprint.n_x")
        if isinstance(self.pixel_scale, float | int | np.ndarray | None):
            expect_positive(self.pixel_scale, "Footprint.pixel_scale")

    @classmethod
    def build(cls, settings: InstrumentSettings) -> "Footprint":
        """The spaxels of an instrument's settings."""
        n_x, n_y = settings.n_spaxel_xy
        return cls(n_y, n_x, settings.pixel_scale)

    @classmethod
    @named_arguments
    def of(cls, shape: tuple[int, ...], pixel_scale: Any) -> "Footprint":
        """The spaxels of an array (y, x, ...)."""
        n_y, n_x = shape[:2]
        return cls(n_y, n_x, pixel_scale)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_y, self.n_x

    @property
    def n_element(self) -> int:
        """Number of spaxels."""
        return self.n_y * self.n_x

    @property
    def sides(self) -> tuple[Any, Any]:
        """Width and height in arcsec."""
        return self.n_x * self.pixel_scale, self.n_y * self.pixel_scale

    def centres(self, namespace: Any = np) -> tuple[Shaped[Any, " x"], Shaped[Any, " y"]]:
        """The columns' x and the rows' y in arcsec from the field's centre: on the host, or with `jax.numpy`."""
        dtype = namespace.result_type(self.pixel_scale)
        column, row = (namespace.arange(size, dtype=dtype) for size in (self.n_x, self.n_y))
        return ((self.n_x - 1) / 2 - column) * self.pixel_scale, (row - (self.n_y - 1) / 2) * self.pixel_scale

    def images(self, values: Shaped[Any, "element *rest"]) -> Shaped[Any, "y x *rest"]:
        """The values of all spaxels as images; raises ValueError for another number of spaxels."""
        if np.shape(values)[:1] != (self.n_element,):
            raise ValueError(f"values: expected {self.n_element} spaxels, got an array of shape {np.shape(values)}")
        return values.reshape(*self.shape, *values.shape[1:])

    def elements(self, images: Shaped[Any, "y x *rest"]) -> Shaped[Any, "element *rest"]:
        """The values of all spaxels, from images; raises ValueError for those of another footprint."""
        if np.shape(images)[:2] != self.shape:
            raise ValueError(f"images: expected shape (y, x) {self.shape}, got an array of shape {np.shape(images)}")
        return images.reshape(self.n_element, *images.shape[2:])

    @named_arguments
    def painted(self, margin: int, cells: int = 1) -> "Footprint":
        """The footprint with `margin` spaxels more on each side, every spaxel cut into `cells` x `cells`."""
        n_y, n_x = (cells * (size + 2 * margin) for size in self.shape)
        return Footprint(n_y, n_x, self.pixel_scale / cells)

    @named_arguments
    def within(self, margin: int, cells: int = 1) -> "Footprint":
        """The footprint of which `painted` makes this one."""
        n_y, n_x = (size // cells - 2 * margin for size in self.shape)
        return Footprint(n_y, n_x, self.pixel_scale * cells)


class AbstractGridded:
    """The spaxels of what has a `footprint`."""

    footprint: Footprint

    @property
    def n_y(self) -> int:
        """Rows of spaxels."""
        return self.footprint.n_y

    @property
    def n_x(self) -> int:
        """Columns of spaxels."""
        return self.footprint.n_x

    @property
    def pixel_scale(self) -> float:
        """Arcsec per side of the (square) spaxels."""
        return float(self.footprint.pixel_scale)


class AbstractCube(AbstractBinned, AbstractGridded):
    """The axes of what has `bins` and a `footprint`."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, wave) of the whole cube."""
        return *self.footprint.shape, self.bins.n_wave
