"""What a run takes, by rates measured on two CPU cores: for choices between ways to the same cube, not for promises."""

from typing import NamedTuple

_DIRECT_PER_FINE_BIN = 18e-9
_PER_DEPOSIT = 70e-9
_PER_COEFFICIENT = 5e-9
_PER_VALUE = 10e-9
_PER_FLOP = 1 / 150e9
_MATRIX_PER_FINE_BIN = 12e-9
_PER_GATHERED_VOXEL = 16e-9
_GATHER_START = 0.02

_TYPICAL_RANK = 96
_TYPICAL_STEP = 40.0


class Work(NamedTuple):
    """Sizes of a run: particles, spaxels that each touches, spaxels, templates, bins, fine bins."""

    n_particle: int
    n_corner: int
    n_spaxel: int
    n_template: int
    n_wave: int
    n_fine: int


def direct_seconds(work: Work) -> float:
    """Every particle's spectrum, collected in fine bins and added to each of its spaxels."""
    return work.n_particle * work.n_fine * _DIRECT_PER_FINE_BIN * (1 + 0.1 * (work.n_corner - 1))


def basis_seconds(work: Work, velocity_limit: float, n_outlier: int) -> float:
    """Deposits of all particles, the two products, the making of the projection matrix, and the outliers.

    Rank and velocity step are taken as typical of the default tolerance.
    """
    n_node = int(2 * velocity_limit / _TYPICAL_STEP) + 3
    n_cell, deposits = work.n_spaxel * n_node, work.n_particle * work.n_corner
    painting = min(
        template_seconds(4 * deposits, n_cell, work.n_template, _TYPICAL_RANK),
        coefficient_seconds(deposits, n_cell, _TYPICAL_RANK),
    )
    projection = projection_seconds(work.n_spaxel, n_node * _TYPICAL_RANK, work.n_wave)
    matrix = n_node * _TYPICAL_RANK * work.n_fine * _MATRIX_PER_FINE_BIN
    return painting + projection + matrix + direct_seconds(work._replace(n_particle=n_outlier))


def template_seconds(n_deposit: int, n_cell: int, n_template: int, rank: int) -> float:
    """Sums per template in `n_cell` (spaxel, velocity node) cells, then the product with the coefficients.

    `n_deposit` counts particles times spaxels times templates that each touches.
    """
    return n_deposit * _PER_DEPOSIT + n_cell * n_template * (_PER_VALUE + 2 * rank * _PER_FLOP)


def coefficient_seconds(n_deposit: int, n_cell: int, rank: int) -> float:
    """Sums of `rank` coefficients of each particle in each of its spaxels."""
    return rank * (n_deposit * _PER_COEFFICIENT + n_cell * _PER_VALUE)


def projection_seconds(n_spaxel: int, n_coefficient: int, n_wave: int) -> float:
    """The product that takes the coefficients of every spaxel to the detector's bins."""
    return 2 * n_spaxel * n_coefficient * n_wave * _PER_FLOP


def gather_seconds(n_voxel: int) -> float:
    """A cube whose parts are brought from all devices to each of them."""
    return _GATHER_START + n_voxel * _PER_GATHERED_VOXEL
