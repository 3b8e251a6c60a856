"""The particles of the synthetic galaxy."""

import jax

from rubix_like.config.readers.synthetic import SyntheticReader
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.synthetic import draw_base, sampled
from rubix_like.galaxy.synthetic_defaults import BULGE_SHARE
from rubix_like.runtime.memory import check_making
from rubix_like.runtime.notes import WARNING, Note


def load_synthetic(settings: SyntheticReader) -> tuple[Galaxy, GalaxyInfo]:
    """Sample the galaxy; the same settings give the same particles. Raises ConfigError where memory is too small."""
    check_making(settings.n_stars + settings.n_gas, jax.dtypes.canonicalize_dtype(float).itemsize)
    draws = draw_base(settings.n_stars, settings.n_gas, settings.seed, settings.draws)
    galaxy = sampled(settings.build(), draws)
    notes = ()
    if round(BULGE_SHARE * settings.n_stars) == 0 and settings.bulge_fraction > 0:
        notes = (Note("galaxy.no_bulge", "too few stars to sample the bulge: its mass is in the disc", WARNING),)
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
