"""Populations of the bins of a cube: maps, a table, histories of star formation, and their FITS file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.table import Column, Table
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.wcs import celestial_cards, header_of, spectral_cards
from rubix_like.errors import ConfigError
from rubix_like.inference.binned.binning import NOT_BINNED
from rubix_like.inference.populations.histories import Interval, Populations
from rubix_like.runtime.files.outputs import replacing
from rubix_like.runtime.files.writers import CREATOR, ORIGIN
from rubix_like.runtime.files.writing_date import date_words
from rubix_like.runtime.words import counted

_SUFFIXES = (".fits", ".fits.gz")
_FLUX = "10**-20 erg s-1 cm-2 Angstrom-1"
_EXCESS = 5.0
"""Sigma of chi^2 from which on a bin is said to be misfitted."""

_UNITS = {"Msun": "solMass", "km/s": "km s-1"}


def _excess_of(chi_square: Float[ndarray, " bin"], n_fitted: Int[ndarray, " bin"]) -> Float[ndarray, " bin"]:
    """(chi^2 - n) / sqrt(2 n), n the number of wavelengths: about normal for spectra that the model can have made."""
    number = np.maximum(n_fitted, 1)
    return (chi_square - number) / np.sqrt(2 * number)


def notes_on_misfit(chi_square: Float[ndarray, " bin"], n_fitted: Int[ndarray, " bin"]) -> tuple[str, ...]:
    """A sentence on bins that no history fits, whose errors therefore do not hold; none where all are fitted."""
    bad = int((_excess_of(chi_square, n_fitted) > _EXCESS).sum())
    if not bad:
        return ()
    return (
        f"{bad} of {counted(len(chi_square), 'bin')}: chi^2 is more than {_EXCESS:g} sigma above the number of "
        "wavelengths; no history fits, so errors of the populations do not hold there; check the errors of the data, "
        "the line spread, emission lines (exclude) and reddening",
    )


@dataclass(frozen=True, eq=False)
class PopulationMaps:
    """What `fit_populations` finds.

    | field | shape | |
    |---|---|---|
    | bin_map | (y, x) | number of each spaxel's bin; -1: in none |
    | populations | | masses on the grid of age and metallicity, with draws, one population for each bin |
    | velocity, sigma | (bin,) | km/s |
    | velocity_error, sigma_error | (bin,) | their standard deviations; 0 where they were given |
    | flux, error, model | (bin, wave) | the bins' spectra, standard deviations (0: not fitted) and best models, |
    | | | 1e-20 erg/s/cm2/Angstrom |
    | chi_square, n_fitted | (bin,) | of the best model, and how many bins of wavelength were fitted |
    | bins, footprint | | wavelengths and grid of the cube |
    | notes | | sentences: what was left out |
    """

    bin_map: Int[ndarray, "y x"]
    populations: Populations
    velocity: Float[ndarray, " bin"]
    sigma: Float[ndarray, " bin"]
    velocity_error: Float[ndarray, " bin"]
    sigma_error: Float[ndarray, " bin"]
    flux: Float[ndarray, "bin wave"]
    error: Float[ndarray, "bin wave"]
    model: Float[ndarray, "bin wave"]
    chi_square: Float[ndarray, " bin"]
    n_fitted: Int[ndarray, " bin"]
    bins: WavelengthBins
    footprint: Footprint
    ra: float = 0.0
    dec: float = 0.0
    field_angle: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def excess(self) -> Float[ndarray, " bin"]:
        """By how many standard deviations chi^2 is above its expectation, the number of fitted wavelengths."""
        return _excess_of(self.chi_square, self.n_fitted)

    @property
    def n_spaxel(self) -> Int[ndarray, " bin"]:
        """Spaxels of each bin."""
        return np.bincount(self.bin_map[self.bin_map >= 0], minlength=len(self.velocity))

    @named_arguments
    def spread(self, values: Float[ndarray, " bin"]) -> Float[ndarray, "y x"]:
        """A number of each bin as an image; NaN where there is no bin."""
        return np.where(self.bin_map >= 0, np.asarray(values, float)[np.maximum(self.bin_map, 0)], np.nan)

    def maps(self) -> dict[str, Float[ndarray, "y x"]]:
        """Images by name: those of `Populations.columns`, each with `_low` and `_high`, `mass` per spaxel in Msun;
        `velocity`, `sigma` (km/s) and their errors; `reduced_chi_square`."""
        found = {}
        for name, (own, _) in self.populations.columns().items():
            share = self.n_spaxel if name == "mass" else 1
            for suffix, values in zip(("", "_low", "_high"), own, strict=True):
                found[f"{name}{suffix}"] = self.spread(values / share)
        for name in ("velocity", "velocity_error", "sigma", "sigma_error"):
            found[name] = self.spread(getattr(self, name))
        found["reduced_chi_square"] = self.spread(self.chi_square / np.maximum(self.n_fitted, 1))
        return found

    @named_arguments
    def history(self, edges: Any) -> Interval:
        """Mass formed between neighbouring edges of log10(age / yr), (bin, age bin), Msun, with 16 and 84 %."""
        return self.populations.history(edges)

    def to_table(self) -> Table:
        """An `astropy.table.Table` with a row for each bin: columns of `Populations.to_table`, kinematics, chi^2."""
        table = self.populations.to_table()
        table.rename_column("population", "bin")
        table["n_spaxel"] = self.n_spaxel
        for name in ("velocity", "velocity_error", "sigma", "sigma_error"):
            table[name] = Column(getattr(self, name), unit="km/s")
        table["smoothness"] = self.populations.smoothness
        table["chi_square"], table["n_fitted"], table["excess"] = self.chi_square, self.n_fitted, self.excess
        return table

    @named_arguments
    def write(self, path: str | Path) -> Path:
        """Write a FITS file (docs/free-form-populations.md) and return its path; ConfigError for another suffix,
        OSError where it cannot be written."""
        path = Path(path).expanduser()
        if not path.name.lower().endswith(_SUFFIXES):
            raise ConfigError(f"output: expected a name ending in {', '.join(_SUFFIXES)}, got '{path.name}'")
        hdus = fits.HDUList([self._primary(), *self._images(), *self._tables()])
        with replacing(path) as temporary:
            hdus.writeto(temporary, overwrite=True, checksum=True)
        return path

    def __repr__(self) -> str:
        return f"PopulationMaps({counted(len(self.velocity), 'bin')} of {int((self.bin_map >= 0).sum())} spaxels)"

    def _primary(self) -> fits.PrimaryHDU:
        cards = (
            ("ORIGIN", ORIGIN, ""),
            ("CREATOR", CREATOR, ""),
            ("DATE", date_words(), ""),
            ("CONTENT", "populations", "mass on a grid of age and metallicity"),
        )
        header = header_of(cards)
        for note in self.notes:
            header.add_history(note)
        return fits.PrimaryHDU(header=header)

    def _images(self) -> list[fits.ImageHDU]:
        sky = celestial_cards(self.footprint, self.ra, self.dec, self.field_angle)
        numbers = np.where(self.bin_map >= 0, self.bin_map, NOT_BINNED).astype(np.int32)
        images = [fits.ImageHDU(numbers, header_of(sky), name="BINS")]
        units = {name: unit for name, (_, unit) in self.populations.columns().items()}
        units |= dict.fromkeys(("velocity", "sigma"), "km/s")
        for name, image in self.maps().items():
            unit = units.get(name.removesuffix("_low").removesuffix("_high").removesuffix("_error"), "")
            header = header_of((("BUNIT", _UNITS.get(unit, unit), "mass: per spaxel"), *sky))
            images.append(fits.ImageHDU(image.astype(np.float32), header, name=name.upper()))
        return images

    def _tables(self) -> list[Any]:
        own = self.populations
        table = fits.table_to_hdu(self.to_table())
        table.name = "TABLE"
        nodes = fits.BinTableHDU.from_columns(
            [
                fits.Column("LOG_AGE", "D", array=np.broadcast_to(own.log_age, own.light_per_mass.shape).ravel()),
                fits.Column(
                    "METALLICITY",
                    "D",
                    array=np.broadcast_to(own.metallicity[:, None], own.light_per_mass.shape).ravel(),
                ),
                fits.Column("LIGHT_PER_MASS", "D", array=own.light_per_mass.ravel()),
            ],
            name="NODES",
        )
        wave = [card for card in spectral_cards(self.bins) if "_" not in card[0]]
        along = [(card[0].replace("3", "1"), card[1], card[2]) for card in wave]
        spectra = [
            fits.ImageHDU(values, header_of((("BUNIT", _FLUX, ""), *along)), name=name)
            for name, values in (("SPECTRA", self.flux), ("ERRORS", self.error), ("MODELS", self.model))
        ]
        mass = header_of((("BUNIT", "solMass", "at birth; axes: age, metallicity, bin (, draw)"),))
        weights = [
            fits.ImageHDU(own.mass, mass.copy(), name="WEIGHTS"),
            fits.ImageHDU(own.draws.astype(np.float32), mass.copy(), name="DRAWS"),
        ]
        return [table, nodes, *weights, *spectra]
