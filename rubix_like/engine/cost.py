"""Seconds of a run by rates of the platform: to choose between ways to the same cube, not to predict."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax

_PRODUCTS_OF_OWN = 2.4
"""Products of functions of A(V) with coefficients that are kept, over coefficients (most functions matter little)."""


class BasisSize(NamedTuple):
    """Basis spectra, and km/s between velocity nodes; behind the particles' dust also coefficients of the
    templates without it, and functions of A(V) (0: no dust)."""

    rank: int
    step: float
    n_own: int = 0
    n_factor: int = 0


_REDUCED_COLUMNS = 0.56
"""Columns that coefficients are reduced to before they are projected, over coefficients: 0.55 to 0.61 were found for
three libraries."""

_MOST_REDUCED, _LEAST_REDUCED = 1024, 0.1
"""Coefficients, at most, that are reduced without a PSF that follows wavelength, as it is found out in a second; and
seconds of projection from which on it is tried."""

_TERM_SHARES = (0.5, 0.35)
"""Columns of the first and of all other terms of a PSF that follows wavelength, over coefficients: as found for two
libraries (fewer where there are many velocity nodes)."""

MOST_ROWS: int = 1024
"""Rows of all devices together, at most, in which method `basis` keeps the light of outliers."""

_MOST_KEPT, _KEPT_WORTH = 2**24, 1.25
"""Coefficients of all spaxels, at most, that are kept although the bins are fewer; and the largest share of the seconds
that it may take: products of many spaxels are slower than the rates where a core is shared."""

_TYPICAL = BasisSize(rank=96, step=40.0)


class Work(NamedTuple):
    """Sizes that the cost of one source depends on.

    Particles, spaxels that each touches, painted spaxels, templates, bins; fine bins that a template falls on, the
    wavelengths that it is given at there, bins that a vector of its basis is projected on; the size of that basis;
    spaxels that are projected where the PSF acts on coefficients; spaxels that the layers of wide particles become
    together; products by which the line spread makes bins of a spectrum in fine bins, and those that put the layers of
    one image together; a PSF that is one for all wavelengths (by two `bands` or as an
    `image`) or follows them (`terms`); and whether numbers have 64 bits.
    """

    n_particle: int
    n_corner: int
    n_spaxel: int
    n_template: int
    n_wave: int
    n_fine: int
    n_rest: int
    n_reached: int | float
    n_seen: int
    n_together: int
    n_spread: int = 0
    n_refined: int = 0
    size: BasisSize = _TYPICAL
    psf: Literal["none", "bands", "image", "terms"] = "none"
    is_wide: bool = False
    n_psf: int = 1
    """PSFs, one after the other, of one that varies over the field."""


class Rates(NamedTuple):
    """The fastest deposit kernel of a platform, and the seconds that operations take there."""

    kernel: str
    """The name that `engine.kernel: auto` stands for; `deposit` and `coefficient` are its rates."""
    deposit: float
    """Per particle, spaxel and template: the amounts at four velocity nodes, added at random places."""
    coefficient: float
    """Per particle, spaxel and basis spectrum: `deposit` in rows."""
    deposit_slope: float
    """Per particle, spaxel and template: the derivatives of `deposit`, looked up at random places."""
    coefficient_slope: float
    """Per particle, spaxel and basis spectrum: the derivatives of `coefficient`."""
    histogram_value: float
    """Per number of a histogram, whatever was added to it."""
    flop: float
    """In products of float32 matrices."""
    direct_value: float
    """Per particle and fine bin of method `direct`."""
    rest_value: float
    """Per particle and wavelength of the templates, in `direct`."""
    dimmed_value: float
    """Beside `rest_value`, behind the particles' dust."""
    matrix_value: float
    """Per velocity node, basis spectrum and fine bin, in the making of the projection matrix."""
    voxel: float
    """Per spaxel and bin of either method."""
    direct_voxel: float
    """Per painted spaxel and fine bin of method `direct`, beside it: sums begun, and seen by the detector."""
    spread_product: float
    """Per painted spaxel and product of its line spread."""
    tile_share: float
    """Per particle and spaxel behind dust: sorted into tiles of one spaxel."""
    tile_flop: float
    """In the small products of these tiles."""
    bands_value: float
    """Per painted spaxel and image that is convolved with a PSF by two banded matrices."""
    image_value: float
    """`bands_value` of any other PSF that is one for all wavelengths."""
    wide_product: float
    """Seconds in 64 bits over those in 32 for products of matrices, voxels and images."""
    wide_spectrum: float
    """Seconds in 64 bits over those in 32 for the spectra of particles in method `direct`."""
    gathered_voxel: float
    """Per voxel that all devices are given, beside `gather_start`."""
    gather_start: float
    chunk: int
    """Particles computed at once where `engine.chunk` is "auto"."""
    values_at_once: int
    """Numbers computed at once from a chunk: few enough for a processor's cache, enough to keep an accelerator busy."""
    products_at_once: int
    """Numbers that a deposit kernel multiplies out, in 64 bits, before it adds them."""
    passes_over: bool
    """Whether pieces of particles that add nothing are passed over: not where all of a chunk are added at once."""

    def direct_seconds(self, work: Work) -> float:
        """Every particle's spectrum; all bins of their sums seen and convolved."""
        voxels = work.n_spaxel * (work.n_fine * self.direct_voxel + work.n_spread * self.spread_product)
        return self.spectra_seconds(work) + self._as_wide(work, voxels + self.psf_seconds(work, work.n_wave))

    def spectra_seconds(self, work: Work) -> float:
        """Every particle's spectrum, collected in fine bins and added to each of its spaxels."""
        at_rest = self.rest_value + (self.dimmed_value if work.size.n_factor else 0.0)
        adding = work.n_fine * self.direct_value * (1 + 0.1 * (work.n_corner - 1))
        seconds = work.n_particle * (adding + work.n_rest * at_rest)
        return seconds * (self.wide_spectrum if work.is_wide else 1.0)

    def cube_seconds(self, work: Work) -> float:
        """The cube itself, by either method."""
        return self._as_wide(work, work.n_seen * work.n_wave * self.voxel)

    def basis_seconds(self, work: Work, velocity_limit: float, n_outlier: int) -> float:
        """Deposits of all particles, the product with the projection matrix, the PSF where it acts, and the outliers.

        The planning of the basis and its matrix is not counted.
        """
        size = work.size
        n_node = 2 * (math.ceil(velocity_limit / size.step) + 1) + 1
        painting = self.tile_seconds(work, n_node) if size.n_factor else self._painting_seconds(work, n_node, size.rank)
        number = n_node * size.rank
        seeing = self.seeing_seconds(work, number)
        if self.may_reduce(work, number):
            seeing = min(seeing, self.terms_seconds(work, number, [int(_REDUCED_COLUMNS * number)]))
        return painting + seeing + (self.outlier_seconds(work, n_outlier) if n_outlier else 0.0)

    def outlier_seconds(self, work: Work, n_outlier: int) -> float:
        """Spectra of particles beyond the velocity nodes: in rows, seen through the images of a unit of light in each
        of their spaxels, or of all spaxels."""
        outliers, n_row = work._replace(n_particle=n_outlier), n_outlier * work.n_corner
        if n_row > MOST_ROWS:
            return self.direct_seconds(outliers)
        images = n_row * work.n_fine * self.direct_voxel + self.psf_seconds(work, n_row)
        seen = self.projection_seconds(work.n_seen, n_row, work.n_wave)
        return self.spectra_seconds(outliers) + self._as_wide(work, images + seen)

    def may_reduce(self, work: Work, n_coefficient: int) -> bool:
        """Whether it is tried to do with fewer coefficients, found for the whole library, before the projection."""
        large = self.seeing_seconds(work, n_coefficient) >= _LEAST_REDUCED
        return work.psf != "terms" and n_coefficient <= _MOST_REDUCED and large

    def seeing_seconds(self, work: Work, n_coefficient: int) -> float:
        """The PSF and the product with the projection matrix, in the order that is cheaper."""
        if work.psf == "terms":
            sizes = [int(share * n_coefficient) for share in _TERM_SHARES]
            return min(self.terms_seconds(work, n_coefficient, sizes), self.planes_seconds(work, n_coefficient))
        n_projected = work.n_spaxel if n_coefficient > work.n_wave else work.n_seen
        projection = self.projection_seconds(n_projected, n_coefficient, work.n_reached)
        return self._as_wide(work, projection + self.psf_seconds(work, min(n_coefficient, work.n_wave)))

    def may_keep_all(self, work: Work, n_coefficient: int) -> bool:
        """Whether the PSF is to act on coefficients that are more than the bins: as few spaxels are then projected, it
        takes less time, and they have room."""
        if work.psf not in {"bands", "image"} or not work.n_wave < n_coefficient <= _MOST_KEPT / work.n_spaxel:
            return False
        projection = self.projection_seconds(work.n_seen, n_coefficient, work.n_reached)
        kept = projection + self.psf_seconds(work, n_coefficient)
        return kept < _KEPT_WORTH * self.planes_seconds(work, n_coefficient)

    def terms_seconds(self, work: Work, n_coefficient: int, sizes: Sequence[int]) -> float:
        """A PSF that follows wavelength by terms that need so many columns each: coefficients reduced to those of the
        first and from these to all others, all of them convolved, the product with their matrix."""
        kept, every = sizes[0], sum(sizes)
        reduction = self.projection_seconds(work.n_spaxel, n_coefficient, kept) if kept < n_coefficient else 0.0
        mixing = self.projection_seconds(work.n_spaxel, kept, every - kept)
        projection = self.projection_seconds(work.n_seen, every, work.n_reached)
        return self._as_wide(work, reduction + mixing + self.psf_seconds(work, every) + projection)

    def planes_seconds(self, work: Work, n_coefficient: int) -> float:
        """The PSF and the product for all painted spaxels, by one convolution for each bin."""
        projection = self.projection_seconds(work.n_spaxel, n_coefficient, work.n_reached)
        return self._as_wide(work, projection + self.psf_seconds(work, work.n_wave))

    def span_seconds(self, work: Work, velocity_limit: float, n_outlier: int) -> float:
        """The span of so many velocities by nodes, with the making of the projection matrix.

        Rank and velocity step are taken as typical, so that the span does not depend on estimates.
        """
        rank, n_node = _TYPICAL.rank, int(2 * velocity_limit / _TYPICAL.step) + 3
        painting = self._painting_seconds(work, n_node, rank)
        projection = self.projection_seconds(work.n_spaxel, n_node * rank, work.n_wave)
        matrix = n_node * rank * work.n_fine * self.matrix_value
        outliers = n_outlier * work.n_fine * self.direct_value * (1 + 0.1 * (work.n_corner - 1))
        if n_outlier and work.psf == "terms":  # their cube is convolved bin by bin
            outliers += self._as_wide(work, self.psf_seconds(work, work.n_wave))
        return painting + projection + matrix + outliers

    def _painting_seconds(self, work: Work, n_node: int, rank: int) -> float:
        n_cell, deposits = work.n_spaxel * n_node, work.n_particle * work.n_corner
        by_template = self.template_seconds(4 * deposits, n_cell, work.n_template, rank)
        return min(by_template, self.coefficient_seconds(deposits, n_cell, rank))

    def psf_seconds(self, work: Work, n_image: int) -> float:
        """So many images, put together from their layers and convolved with a PSF; one that acts after other stages
        does so on the cube, whichever method made it."""
        value = {"none": 0.0, "bands": self.bands_value}.get(work.psf, self.image_value)
        return n_image * (work.n_psf * work.n_together * value + 2 * work.n_refined * self.flop)

    def tile_seconds(self, work: Work, n_node: int) -> float:
        """Sums behind dust: particles sorted, small products of each with the functions of its A(V), and of each tile
        with the spectra that these add."""
        size, shares = work.size, work.n_particle * work.n_corner
        products = _PRODUCTS_OF_OWN * size.n_own * size.rank
        width = min(n_node, 11)
        single = 2 * (products + width * size.rank)
        tiled = 2 * width * (size.n_factor * size.n_own + products / max(1.0, shares / (2 * work.n_spaxel)))
        cells = work.n_spaxel * n_node * size.rank * self.histogram_value
        return shares * (self.tile_share + min(single, tiled) * self.tile_flop) + cells

    def _as_wide(self, work: Work, seconds: float) -> float:
        return seconds * (self.wide_product if work.is_wide else 1.0)

    def template_seconds(self, n_deposit: int, n_cell: int, n_template: int, rank: int) -> float:
        """Sums per template in `n_cell` (spaxel, velocity node) cells, then the product with the coefficients.

        `n_deposit` counts particles times spaxels times templates that each touches.
        """
        return n_deposit * self.deposit + n_cell * n_template * (self.histogram_value + 2 * rank * self.flop)

    def coefficient_seconds(self, n_deposit: int, n_cell: int, rank: int) -> float:
        """Sums of `rank` coefficients of each particle in each of its spaxels."""
        return rank * (n_deposit * self.coefficient + n_cell * self.histogram_value)

    def template_slope_seconds(self, n_deposit: int, n_cell: int, n_template: int, rank: int) -> float:
        """Derivatives of the sums per template, and of a histogram of them, which forward mode makes each time.

        The numbers count twice for that: fits go forwards with respect to a few parameters, where it must not take
        longer than derivatives of coefficients; gradients go backwards, and only look the histogram up.
        """
        return n_deposit * self.deposit_slope + n_cell * n_template * (2 * self.histogram_value + 2 * rank * self.flop)

    def coefficient_slope_seconds(self, n_deposit: int, rank: int) -> float:
        """Derivatives of the sums of coefficients."""
        return rank * n_deposit * self.coefficient_slope

    def projection_seconds(self, n_spaxel: int, n_coefficient: int, n_wave: int | float) -> float:
        """The product that takes the coefficients of every spaxel to the detector's bins."""
        return 2 * n_spaxel * n_coefficient * n_wave * self.flop

    def gather_seconds(self, n_voxel: int) -> float:
        """A cube whose parts are brought from all devices to each of them."""
        return self.gather_start + n_voxel * self.gathered_voxel


_CPU = Rates(
    kernel="scatter",
    deposit=70e-9,
    coefficient=5e-9,
    deposit_slope=50e-9,
    coefficient_slope=20e-9,
    histogram_value=10e-9,
    flop=1 / 150e9,
    direct_value=21e-9,
    rest_value=8e-9,
    dimmed_value=6e-9,
    matrix_value=12e-9,
    voxel=3e-9,
    direct_voxel=1.8e-9,
    spread_product=0.65e-9,
    tile_share=200e-9,
    tile_flop=1 / 50e9,
    bands_value=5e-9,
    image_value=18e-9,
    wide_product=2.3,
    wide_spectrum=1.4,
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
        deposit_slope=1e-9,
        coefficient_slope=0.0,
        histogram_value=16 / 2.3e12,
        flop=1 / 50e12,
        direct_value=0.4e-9,
        rest_value=0.02e-9,
        dimmed_value=0.05e-9,
        matrix_value=_CPU.matrix_value,
        voxel=8 / 2.3e12,
        direct_voxel=16 / 2.3e12,
        spread_product=4 / 2.3e12,
        tile_share=1e-9,
        tile_flop=1 / 10e12,
        bands_value=16 / 2.3e12,
        image_value=100 / 2.3e12,
        wide_product=1.5,
        wide_spectrum=2.0,
        gathered_voxel=4 / 35e9,
        gather_start=12 * 10e-6,
        chunk=1 << 20,
        values_at_once=1 << 24,
        products_at_once=1 << 24,
        passes_over=False,
    ),
}
"""Rates by JAX's name of the platform; one that is not in the table is given the rates of "cpu".

A table, not a measurement at the start of a run: only ratios of rates matter, and they differ little from one processor
to the next, while a busy machine would measure others from run to run and take another method for the same cube.

| platform | source |
|---|---|
| cpu | measured on two cores by `tests/benchmarks/engine.py` and `methods.py` (docs/benchmarks.md) |
| gpu | measured on an NVIDIA H100 (docs/benchmarks.md) |

Derivatives are never those of sums per template on "gpu" (`coefficient_slope` is 0): no GPU was at hand to measure it.
Assumed, not measured, for "gpu": the link, which moves 4 bytes for each voxel at 35 GB/s in 12 hops of 10 us;
the projection matrix, mostly the host's work, which takes as long as for "cpu";
`rest_value`, `dimmed_value`, and those of tiles, PSFs and 64 bits; `voxel`, `direct_voxel` and `spread_product` are
bytes over the measured 2.3 TB/s.
"""


def rates_here() -> Rates:
    """The rates of the platform that JAX computes on."""
    return RATES.get(jax.default_backend(), _CPU)
