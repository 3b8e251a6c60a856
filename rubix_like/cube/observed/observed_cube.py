"""An observed cube: fluxes, variances, the voxels that can be used, and their grid."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.config.quantities import parse_quantity
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.fibres.covariance import SpaxelCorrelations, StoredCovariance
from rubix_like.cube.footprint import LARGEST_ANGLES, AbstractCube, Footprint
from rubix_like.cube.meta import (
    COSMIC_RAY,
    DETECTOR_GAP,
    NO_DATA,
    NOT_FITTED,
    OUTSIDE_APERTURE,
    OUTSIDE_SSP,
    SATURATED,
    SPREAD_FROM_BEYOND,
    Meta,
    note_entries,
)
from rubix_like.cube.observed.flux_units import plain_flux
from rubix_like.cube.views.covariance import bin_at, known_correlations
from rubix_like.physics.plausibility import implausible_voxels
from rubix_like.physics.units import check_angle, plain_flags, plain_numbers
from rubix_like.runtime.notes import Note, as_notes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Voxels = Float[ndarray, "y x wave"]
Choice = Bool[ndarray, "y x wave"]

_BITS: dict[int, str] = {
    OUTSIDE_SSP: "outside the wavelengths of the SSP library",
    OUTSIDE_APERTURE: "outside the aperture",
    SPREAD_FROM_BEYOND: "at the end of the detector",
    NOT_FITTED: "left out of a fit",
    SATURATED: "saturated",
    COSMIC_RAY: "hit by a cosmic ray",
    NO_DATA: "without data",
    DETECTOR_GAP: "in a gap of the detector",
}


@dataclass(frozen=True, eq=False)
class ObservedCube(AbstractCube):
    """A cube of spectra as a telescope (or a mock observation) gave it, on the host in float64.

    | field | shape | meaning |
    |---|---|---|
    | flux | (y, x, wave) | 1e-20 erg/s/cm2 per Angstrom of the cube's own medium, per spaxel |
    | variance | (y, x, wave) or None | of the flux; None where the file has none |
    | used | (y, x, wave) | whether a voxel is not masked, its flux finite, its variance finite and > 0 |
    | bins | | the wavelength bins: `wavelength`, `wave_edges`, `medium` and `sampling` of the cube |
    | footprint | | the grid of spaxels: `pixel_scale` (arcsec per side) of the cube |
    | field_angle | | deg: position angle of +y, North through East |
    | ra, dec | | deg, of the field's centre; None where the file does not say |
    | name, source | | the object; where it was read |
    | notes | | sentences on what was left out or taken to be so, and on numbers that no observation has |
    | correlations | SpaxelCorrelations or None | of spaxels, as a file keeps them, or by a cube's fibres |
    | meta | | of a mock cube the record of its run (`Cube.meta`); else empty |

    Row y = 0 is South and column x = 0 is East where `field_angle` is 0. What is not `used` may be NaN.
    Quantities are converted to these units, fluxes per Hz and per arcsec2 too; voxels with a masked flux or variance
    are not `used`.
    """

    flux: Voxels
    variance: Voxels | None
    used: Choice
    bins: WavelengthBins
    footprint: Footprint
    field_angle: Any = 0.0
    ra: Any = None
    dec: Any = None
    name: str = ""
    source: str = "an ObservedCube"
    notes: tuple[str, ...] = ()
    correlations: SpaxelCorrelations | None = None
    meta: Meta = dataclasses.field(default_factory=Meta)

    def __post_init__(self) -> None:
        expect_fields(self)
        if self.field_angle is None:
            raise ValueError("ObservedCube.field_angle: expected numbers, got None")
        scale = self.pixel_scale
        flux, no_flux = plain_flux(self.flux, self.bins, scale, "ObservedCube.flux")
        variance, no_variance = plain_flux(self.variance, self.bins, scale, "ObservedCube.variance", power=2)
        used = plain_flags(self.used, "ObservedCube.used", "a voxel is used")
        for field, values in {"flux": flux, "used": used, "variance": variance}.items():
            if values is not None and np.shape(values) != self.shape:
                raise ValueError(
                    f"ObservedCube.{field}: expected the shape of the axes, {self.shape}, got {np.shape(values)}"
                )
        used = used & ~(no_flux | no_variance) if np.any(no_flux | no_variance) else used
        usable, left_out = choose_voxels(flux, variance, {})
        if np.any(used & ~usable):
            used = used & usable
            object.__setattr__(self, "notes", (*self.notes, *left_out))
        vars(self).update(flux=flux, variance=variance, used=used)
        for name, most in LARGEST_ANGLES.items():
            vars(self)[name] = plain_numbers(getattr(self, name), "deg", f"ObservedCube.{name}")
            check_angle(getattr(self, name), f"ObservedCube.{name}", most)
        if (self.ra is None) != (self.dec is None):
            raise ValueError("ObservedCube.ra, ObservedCube.dec: expected both or none of them, got one")
        object.__setattr__(self, "notes", as_notes((*self.notes, *self.implausible)))

    @functools.cached_property
    def implausible(self) -> tuple[Note, ...]:
        """Sentences on numbers that no observation has; a fit refuses such data."""
        return tuple(implausible_voxels(self.flux, self.variance, self.used))

    def __repr__(self) -> str:
        edges, share = self.wave_edges, np.mean(self.used)
        return (
            f"ObservedCube({self.n_x} x {self.n_y} spaxels of {self.pixel_scale:g} arcsec, {self.bins.n_wave} bins "
            f"from {edges[0]:.2f} to {edges[-1]:.2f} Angstrom ({self.medium}), {share:.0%} of voxels used, "
            f"{'no variance' if self.variance is None else 'with variance'}"
            f"{'' if self.correlations is None else ' and correlations'})"
        )

    @named_arguments
    def covariance(self, wavelength: Any) -> StoredCovariance:
        """The covariance of the spaxels that can be used, in the bin at a `wavelength` (Angstrom, or with units): the
        file's correlations, linear between their wavelengths, with the variances of the bin.

        Raises ValueError for a cube without correlations or variances, or a wavelength outside.
        """
        if self.correlations is None or self.variance is None:
            raise ValueError(
                f"{self.source}: expected correlations of spaxels (extensions GCORREL, RCORREL, ICORREL, ZCORREL of "
                f"MaNGA, COVAR of SAMI) and variances, got none; of independent spaxels `variance` is all"
            )
        bin_ = bin_at(self.bins, wavelength)
        variance = np.where(self.used[:, :, bin_], self.variance[:, :, bin_], 0.0)
        return self.correlations.covariance(variance, float(self.wavelength[bin_]))

    @named_arguments
    def plot(self, spaxels: "Sequence[tuple[int, int]]" = (), band: "Sequence[Any] | None" = None) -> "Figure":
        """White light, median S/N and spectra of some `spaxels` (x, y) as a matplotlib figure, as `Cube.plot`; voxels
        that are not used are left out.

        Raises ConfigError without matplotlib, or for a spaxel or band outside the cube.
        """
        return cube_of(self).plot(spaxels, band)

    @named_arguments
    def crop(self, low: Any, high: Any) -> "ObservedCube":
        """The bins whose centres lie from `low` to `high` (Angstrom in the cube's medium, or with units).

        Raises ValueError where the cube has none there, or none that can be used.
        """
        low, high = parse_quantity(low, "Angstrom", "low"), parse_quantity(high, "Angstrom", "high")
        keep = (self.wavelength >= low) & (self.wavelength <= high)
        if not keep.any():
            first, last = self.wavelength[[0, -1]]
            raise ValueError(
                f"{self.source}: expected a range (low, high) with bins of the cube, which lie at {first:.2f} to "
                f"{last:.2f} Angstrom in {self.medium}, got ({low:g}, {high:g})"
            )
        start, stop = int(np.argmax(keep)), len(keep) - int(np.argmax(keep[::-1]))
        bins = slice(start, stop)
        used = self.used[:, :, bins]
        check_any_used(used, f"{self.source}, {low:g} to {high:g} Angstrom", self.notes)
        return dataclasses.replace(
            self,
            flux=self.flux[:, :, bins],
            variance=None if self.variance is None else self.variance[:, :, bins],
            used=used,
            bins=self.bins.part(start, stop),
            notes=(
                *(note for note in self.notes if note not in self.implausible),
                Note("data.cropped", f"cut to {stop - start} bins from {low:g} to {high:g} Angstrom"),
            ),
        )


def choose_voxels(flux: Voxels, variance: Voxels | None, masks: dict[str, Choice]) -> tuple[Choice, tuple[str, ...]]:
    """Which voxels can be used, and a sentence on how many cannot, and why.

    `masks`: reason -> voxels left out for it. A voxel with several reasons is counted under the first.
    """
    reasons = {**masks, "flux not finite": ~np.isfinite(flux)}
    if variance is not None:
        with np.errstate(invalid="ignore"):
            reasons["variance not finite or not > 0"] = ~(np.isfinite(variance) & (variance > 0))
    used = np.ones(flux.shape, dtype=bool)
    counts = []
    for reason, bad in reasons.items():
        n_bad = int(np.count_nonzero(used & bad))
        used &= ~bad
        if n_bad:
            counts.append(f"{n_bad} ({reason})")
    if not counts:
        return used, ()
    return used, (Note("data.left_out", f"of {used.size} voxels these are not used: {', '.join(counts)}"),)


def check_any_used(used: Choice, place: str, notes: tuple[str, ...]) -> None:
    """Raise ValueError where no voxel is left."""
    if not used.any():
        why = f"; {'; '.join(notes)}" if notes else ""
        raise ValueError(f"{place}: expected at least one voxel that can be used, got none{why}")


@named_arguments
def observed_from(cube: Cube, source: str = "a Cube") -> ObservedCube:
    """A cube of ours as if it had been observed; voxels with any bit of its mask are not used."""
    flux = np.array(cube.flux, dtype=np.float64)
    variance = None if cube.variance is None else np.array(cube.variance, dtype=np.float64)
    bits = np.asarray(cube.mask)
    masks = {text: (bits & bit) != 0 for bit, text in _BITS.items()}
    used, notes = choose_voxels(flux, variance, {**masks, "masked": bits != 0})
    check_any_used(used, source, notes)
    ra, dec = (number_of(cube.meta.get(key)) for key in ("ra", "dec"))
    return ObservedCube(
        flux=flux,
        variance=variance,
        used=used,
        bins=cube.bins,
        footprint=cube.footprint,
        field_angle=number_of(cube.meta.get("field_angle")) or 0.0,
        ra=ra if dec is not None else None,
        dec=dec if ra is not None else None,
        name=str(cube.meta.get("object") or ""),
        source=source,
        notes=notes if variance is not None else (*notes, NO_VARIANCE),
        correlations=known_correlations(cube),
        meta=cube.meta,
    )


def cube_of(observed: ObservedCube) -> Cube:
    """An observed cube as a cube of ours, to be drawn or written; what is not used has the bit `NO_DATA`."""
    place = {"ra": observed.ra, "dec": observed.dec, "field_angle": observed.field_angle, "object": observed.name}
    return Cube(
        flux=observed.flux,
        mask=np.where(observed.used, 0, NO_DATA).astype(np.int32),
        bins=observed.bins,
        footprint=observed.footprint,
        variance=observed.variance,
        meta=Meta(place | note_entries(observed.notes)),
        correlations=observed.correlations,
    )


NO_VARIANCE: Note = Note("data.no_variance", "there is no variance")


def number_of(value: object) -> float | None:
    """A number of a header as float; None for what is no number."""
    return float(value) if isinstance(value, int | float) else None
