"""Galaxies that are read part by part, from a file or from memory, checked and completed as whole ones are."""

from dataclasses import dataclass, replace

from rubix_like.config import RunConfig
from rubix_like.errors import ConfigError
from rubix_like.galaxy.galaxy_parts import GalaxyParts
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Gas, Stars
from rubix_like.galaxy.validation import validate_gas, validate_stars
from rubix_like.readers.birth_mass import MISSING, fill_initial_mass, with_birth_mass_origin, without_birth_mass
from rubix_like.readers.smoothing_lengths import choose_smoothing_lengths, smoothing_choice
from rubix_like.ssp.library import SSPLibrary


@dataclass(frozen=True)
class CheckedParts:
    """Parts from a file, each validated and its birth masses completed by the surviving fractions of `library`."""

    parts: GalaxyParts
    library: SSPLibrary | None
    info: GalaxyInfo
    run: RunConfig

    @staticmethod
    def from_parts(parts: GalaxyParts, library: SSPLibrary | None, run: RunConfig) -> "CheckedParts":
        """The parts of the run's galaxy; `library`: None where the file has all birth masses."""
        stored = smoothing_choice(run)[0] == "file"
        info = replace(parts.info, smoothing_length="file") if stored else parts.info
        if library is not None:
            info = with_birth_mass_origin(info, library, info.initial_mass.removeprefix(MISSING))
        return CheckedParts(parts, library, info, run)

    @property
    def n_stars(self) -> int:
        """Number of stars."""
        return self.parts.n_stars

    @property
    def n_gas(self) -> int:
        """Number of gas particles."""
        return self.parts.n_gas

    def read_stars(self, start: int, stop: int) -> Stars:
        """The stars `start` to `stop` (exclusive); ConfigError where asked-for smoothing lengths are missing."""
        galaxy, _ = choose_smoothing_lengths(Galaxy(stars=self.parts.read_stars(start, stop)), self.info, self.run)
        galaxy, lacking = without_birth_mass(galaxy)
        galaxy = Galaxy(stars=validate_stars(galaxy.stars, self.info.universe_age))
        if self.library is not None and lacking.any():
            galaxy, _ = fill_initial_mass(galaxy, self.info, lacking, self.library)
        return galaxy.stars

    def read_gas(self, start: int, stop: int) -> Gas | None:
        """The gas particles `start` to `stop` (exclusive); None where the galaxy has none."""
        gas = self.parts.read_gas(start, stop)
        return None if gas is None else validate_gas(gas)


def needs_all_stars(run: RunConfig) -> bool:
    """Whether smoothing lengths of the stars may depend on all of them."""
    choice, _ = smoothing_choice(run)
    return choice == "neighbours" or (choice == "auto" and run.engine.deposit == "smoothed")


def check_smoothing_of_parts(run: RunConfig) -> None:
    """Raise ConfigError where smoothing lengths of the stars depend on all of them."""
    if needs_all_stars(run):
        choice, _ = smoothing_choice(run)
        raise ConfigError(
            f"galaxy.smoothing_length: expected 'file' for a galaxy that is read part by part, got '{choice}': "
            f"distances to neighbours need all stars at once"
        )
