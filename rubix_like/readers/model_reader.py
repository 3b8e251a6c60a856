"""Readers whose galaxy is a model: from YAML to an equinox module that can be fitted."""

from abc import abstractmethod

import jax
import numpy as np

from rubix_like.config.settings import AbstractSettings
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, as_arrays, galaxy_of
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo


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
