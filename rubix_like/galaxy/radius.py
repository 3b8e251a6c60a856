"""A radius within a galaxy: in half-mass radii of its stars, or a length."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Radius:
    """`number` half-mass radii of the stars, or, with `in_kpc`, kpc."""

    number: float
    in_kpc: bool = False

    def kpc(self, half_mass_radius: float) -> float:
        """The radius in kpc, for stars of this half-mass radius (kpc)."""
        return self.number if self.in_kpc else self.number * half_mass_radius

    def written(self) -> float | str:
        """The radius as in a YAML: a bare number is in half-mass radii."""
        return f"{self.number!r} kpc" if self.in_kpc else self.number
