"""Seconds that a run takes, by rates of the platform: to choose between ways to the same cube, not to predict."""

from typing import NamedTuple

import jax

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


class Rates(NamedTuple):
    """The fastest deposit kernel of a platform, and the seconds that operations take there."""

    kernel: str
    """The name that `engine.kernel: auto` stands for; `deposit` and `coefficient` are its rates."""
    deposit: float
    """Per particle, spaxel and template: the amounts at four velocity nodes, added at random places."""
    coefficient: float
    """Per particle, spaxel and basis spectrum: the same in rows."""
    histogram_value: float
    """Per number of a histogram, whatever was added to it."""
    flop: float
    """In products of float32 matrices."""
    direct_value: float
    """Per particle and fine bin of method `direct`."""
    matrix_value: float
    """Per velocity node, basis spectrum and fine bin, in the making of the projection matrix."""
    gathered_voxel: float
    """Per voxel that all devices are given, beside `gather_start`."""
    gather_start: float
    chunk: int
    """Particles computed at once where `engine.chunk` is "auto"."""
    values_at_once: int
    """Numbers computed at once from a chunk: few enough for a processor's cache, enough to keep an accelerator busy."""
    products_at_once: int
    """Numbers that a deposit kernel multiplies out, in 64 bits, before it adds them: the same for its inner loop."""
    passes_over: bool
    """Whether pieces of particles that add nothing are passed over: not where all of a chunk are added at once."""

    def direct_seconds(self, work: Work) -> float:
        """Every particle's spectrum, collected in fine bins and added to each of its spaxels."""
        return work.n_particle * work.n_fine * self.direct_value * (1 + 0.1 * (work.n_corner - 1))

    def basis_seconds(self, work: Work, velocity_limit: float, n_outlier: int) -> float:
        """Deposits of all particles, the two products, the making of the projection matrix, and the outliers.

        Rank and velocity step are taken as typical of the default tolerance.
        """
        n_node = int(2 * velocity_limit / _TYPICAL_STEP) + 3
        n_cell, deposits = work.n_spaxel * n_node, work.n_particle * work.n_corner
        painting = min(
            self.template_seconds(4 * deposits, n_cell, work.n_template, _TYPICAL_RANK),
            self.coefficient_seconds(deposits, n_cell, _TYPICAL_RANK),
        )
        projection = self.projection_seconds(work.n_spaxel, n_node * _TYPICAL_RANK, work.n_wave)
        matrix = n_node * _TYPICAL_RANK * work.n_fine * self.matrix_value
        return painting + projection + matrix + self.direct_seconds(work._replace(n_particle=n_outlier))

    def template_seconds(self, n_deposit: int, n_cell: int, n_template: int, rank: int) -> float:
        """Sums per template in `n_cell` (spaxel, velocity node) cells, then the product with the coefficients.

        `n_deposit` counts particles times spaxels times templates that each touches.
        """
        return n_deposit * self.deposit + n_cell * n_template * (self.histogram_value + 2 * rank * self.flop)

    def coefficient_seconds(self, n_deposit: int, n_cell: int, rank: int) -> float:
        """Sums of `rank` coefficients of each particle in each of its spaxels."""
        return rank * (n_deposit * self.coefficient + n_cell * self.histogram_value)

    def projection_seconds(self, n_spaxel: int, n_coefficient: int, n_wave: int) -> float:
        """The product that takes the coefficients of every spaxel to the detector's bins."""
        return 2 * n_spaxel * n_coefficient * n_wave * self.flop

    def gather_seconds(self, n_voxel: int) -> float:
        """A cube whose parts are brought from all devices to each of them."""
        return self.gather_start + n_voxel * self.gathered_voxel


_CPU = Rates(
    kernel="scatter",
    deposit=70e-9,
    coefficient=5e-9,
    histogram_value=10e-9,
    flop=1 / 150e9,
    direct_value=18e-9,
    matrix_value=12e-9,
    gathered_voxel=16e-9,
    gather_start=0.02,
    chunk=8192,
    values_at_once=1 << 17,
    products_at_once=1 << 15,
    passes_over=True,
)

RATES: dict[str, Rates] = {
    "cpu": _CPU,
    "gpu": Rates(
        kernel="scatter",
        deposit=0.3e-9,
        coefficient=0.5e-9,
        histogram_value=16 / 2.3e12,
        flop=1 / 50e12,
        direct_value=0.25e-9,
        matrix_value=_CPU.matrix_value,
        gathered_voxel=4 / 35e9,
        gather_start=12 * 10e-6,
        chunk=1 << 20,
        values_at_once=1 << 24,
        products_at_once=1 << 24,
        passes_over=False,
    ),
}
"""Rates by JAX's name of the platform; one that is not in the table is given the rates of "cpu".

| platform | source |
|---|---|
| cpu | measured on two cores by `tests/benchmarks/engine.py` (docs/benchmarks.md) |
| gpu | measured on an NVIDIA H100 (docs/benchmarks.md) |

Two rates of "gpu" are assumed: the link moves 4 bytes for each voxel at 35 GB/s, in 12 hops of 10 us; the projection
matrix, mostly the host's work, takes as long as for "cpu".
"""


def rates_here() -> Rates:
    """The rates of the platform that JAX computes on."""
    return RATES.get(jax.default_backend(), _CPU)
