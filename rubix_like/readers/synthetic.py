"""The reader of the synthetic galaxy: settings made from its module's fields, and its particles."""

from typing import Annotated, Any, Literal

import jax
from pydantic import Field, ValidationError, create_model

from rubix_like.config.messages import explain_value
from rubix_like.config.quantities import Integer, as_yaml_values
from rubix_like.config.readers.components import declared_settings
from rubix_like.config.settings import AbstractSettings
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.synthetic import BULGE_SHARE, Draws, SyntheticGalaxy, draw_base, sampled
from rubix_like.runtime.memory import check_making
from rubix_like.runtime.notes import WARNING, Note


class AbstractSampling(AbstractSettings):
    """How a synthetic galaxy is sampled."""

    reader: Literal["synthetic"] = "synthetic"
    n_stars: Annotated[Integer, Field(ge=1)] = 50000
    """Star particles; a fifth of them samples the bulge."""
    n_gas: Annotated[Integer, Field(ge=0)] = 0
    """Gas cells; 0: no gas."""
    seed: Annotated[Integer, Field(ge=0)] = 1
    """Another seed gives other particles."""
    draws: Draws = "random"
    """`sobol`: evenly spread base draws, whose particle noise is lower; `random`: independent ones."""


_PARAMETERS: dict[str, Any] = declared_settings(SyntheticGalaxy)
AbstractDeclared = create_model("AbstractDeclared", __base__=AbstractSampling, __module__=__name__, **_PARAMETERS)


class SyntheticReader(AbstractDeclared):
    """A disc galaxy with bulge and gas made on the spot (`rubix_like.galaxy.synthetic.SyntheticGalaxy`), seeded."""

    @classmethod
    def checked(cls, name: str, value: object) -> float | None:
        """A parameter's value in its unit; raises ValueError for another physical type and beyond its limits."""
        place = f"SyntheticGalaxy.{name}"
        try:
            return getattr(cls.model_validate({name: as_yaml_values(value, place)}), name)
        except ValidationError as error:
            raise ValueError(f"{place}: {explain_value(error)}") from error

    def build(self) -> SyntheticGalaxy:
        """The galaxy's parameters as array leaves."""
        return SyntheticGalaxy(**{name: getattr(self, name) for name in _PARAMETERS})

    def load(self) -> tuple[Galaxy, GalaxyInfo]:
        """Sample the galaxy; the same settings give the same particles. ConfigError where memory is too small."""
        check_making(self.n_stars + self.n_gas, jax.dtypes.canonicalize_dtype(float).itemsize)
        galaxy = self.build()
        notes = ()
        if round(BULGE_SHARE * self.n_stars) == 0 and galaxy.bulge_fraction > 0:
            notes = (Note("galaxy.no_bulge", "too few stars to sample the bulge: its mass is in the disc", WARNING),)
        info = GalaxyInfo(
            name="synthetic",
            reader=self.reader,
            source=f"rubix_like.synthetic, {self.draws} draws, seed {self.seed}",
            simulation="synthetic",
            n_stars=self.n_stars,
            n_gas=self.n_gas,
            initial_mass="drawn: stellar_mass is the mass at birth",
            ages="synthetic",
            metallicities="synthetic",
            velocities="synthetic",
            notes=notes,
        )
        return sampled(galaxy, draw_base(self.n_stars, self.n_gas, self.seed, self.draws)), info
