"""Readers of galaxies that no file holds: a model of the user's, and the synthetic galaxy."""

from abc import abstractmethod

import jax
import numpy as np

from rubix_like.config.readers.synthetic import SyntheticReader
from rubix_like.config.settings import AbstractSettings
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, as_arrays, galaxy_of
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.synthetic import draw_base, sampled
from rubix_like.galaxy.synthetic_defaults import BULGE_SHARE
from rubix_like.runtime.memory import check_making


class AbstractModelReader(AbstractSettings):
    """The keys under `galaxy:` of a model, announced as `rubix_like.readers`; its `model()` makes the module.

    Runs paint what the module samples; fits free its parameters as `galaxy.NAME`.
    """

    @abstractmethod
    def model(self) -> AbstractGalaxyModel:
        """The module with the settings' values."""

    def load(self) -> tuple[Galaxy, GalaxyInfo]:
        """The particles that the module samples."""
        made = as_arrays(self.model())
        galaxy = jax.tree.map(np.asarray, galaxy_of(made, made.draws()))
        name = type(made).__name__
        return galaxy, GalaxyInfo(name=name, reader=name, source="a model")


def load_synthetic(settings: SyntheticReader) -> tuple[Galaxy, GalaxyInfo]:
    """Sample the galaxy; the same settings give the same particles. Raises ConfigError where memory is too small."""
    check_making(settings.n_stars + settings.n_gas, jax.dtypes.canonicalize_dtype(float).itemsize)
    draws = draw_base(settings.n_stars, settings.n_gas, settings.seed, settings.draws)
    galaxy = sampled(settings.build(), draws)
    notes = ()
    if round(BULGE_SHARE * settings.n_stars) == 0 and settings.bulge_fraction > 0:
        notes = ("too few stars to sample the bulge: its mass is in the disc",)
    info = GalaxyInfo(
        name="synthetic",
        reader=settings.reader,
        source=f"rubix_like.synthetic, {settings.draws} draws, seed {settings.seed}",
        simulation="synthetic",
        n_stars=settings.n_stars,
        n_gas=settings.n_gas,
        initial_mass="drawn: stellar_mass is the mass at birth",
        ages="synthetic",
        metallicities="synthetic",
        velocities="synthetic",
        notes=notes,
    )
    return galaxy, info
