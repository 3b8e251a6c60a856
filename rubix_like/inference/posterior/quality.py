"""How well a model fits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Quality:
    """How well the model fits: chi^2 of `n_voxel` voxels, `n_free` numbers being adjusted to them.

    `chi_square` is in units of the data's errors times the fitted noise scale; `loss` is -ln(posterior) + constant.
    """

    chi_square: float
    n_voxel: int
    n_free: int
    loss: float

    @property
    def degrees_of_freedom(self) -> int:
        """Voxels less what was adjusted, the coefficients of the continua included."""
        return self.n_voxel - self.n_free

    @property
    def reduced(self) -> float:
        """chi^2 per degree of freedom; NaN where there is none."""
        return self.chi_square / self.degrees_of_freedom if self.degrees_of_freedom > 0 else float("nan")


@dataclass(frozen=True)
class Scatter:
    """How the data lie about the mean of a predictive cube, in units of its standard deviation.

    `n_voxel` were compared; `chi_square`: their sum of squares; `within_one`, `within_two`: which share of them is
    closer than 1 and 2 (of normal errors: 0.683 and 0.954).
    """

    n_voxel: int
    chi_square: float
    within_one: float
    within_two: float
