"""How well a model fits."""

from dataclasses import dataclass, field

from rubix_like.inference.described_trees import described_as


@dataclass(frozen=True)
class Quality:
    """How well the model fits: chi^2 of `n_voxel` voxels, `n_free` numbers being adjusted to them.

    `chi_square` is in units of the data's errors times the fitted noise scale; `loss` is -ln(posterior) + constant.
    `n_solved`: the effective number of the weights of free-form populations that were solved for, the trace of
    A (A^T A + S^T S)^-1 A^T with the templates A (in units of the errors) of the weights that are not 0 and the rows S
    of their smoothness prior.
    """

    chi_square: float = field(
        metadata=described_as("chi^2 of the voxels, in units of the errors times the fitted noise scale")
    )
    n_voxel: int = field(metadata=described_as("voxels that were fitted"))
    n_free: int = field(metadata=described_as("numbers that were adjusted to them"))
    loss: float = field(metadata=described_as("-ln(posterior) + constant"))
    n_solved: float = field(default=0.0, metadata=described_as("effective number of weights that were solved for"))

    @property
    def degrees_of_freedom(self) -> int:
        """Voxels less what was adjusted, coefficients of continua and (rounded) weights of populations included."""
        return self.n_voxel - self.n_free - round(self.n_solved)

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

    n_voxel: int = field(metadata=described_as("voxels that were compared"))
    chi_square: float = field(metadata=described_as("their sum of squares"))
    within_one: float = field(metadata=described_as("share of them within 1 sigma"))
    within_two: float = field(metadata=described_as("share of them within 2 sigma"))
