"""The census of a galaxy's particles that a run is planned by: counts, sums and extremes, part by part, then joined."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig
from rubix_like.config.plug_ins import PAINT_STAGES, PRODUCTS
from rubix_like.config.sections.nebular import AGN, NEBULAE
from rubix_like.config.sections.products import LINE_SOURCE
from rubix_like.engine.setup import FastParticles
from rubix_like.engine.smoothing import Lengths, allowed_length
from rubix_like.forward.resolved import Resolved
from rubix_like.galaxy.alignment import StarSample
from rubix_like.galaxy.limits import require
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.instrument.crowding import AUTO, Crowding, paints_stars
from rubix_like.instrument.detector import rest_window
from rubix_like.physics.cosmology import find_cosmology, universe_age
from rubix_like.physics.plausibility import ParticleSums
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.ssp.ionising_photons import ionising_photons

_ROUNDING = 1.0001
"""Factor on the radius of an active nucleus, within which float32 may put gas that is just outside it."""


@dataclass(frozen=True, eq=False)
class Census:
    """Counts, sums and extremes of the particles of a galaxy that a run is planned by, without padding (host, float64).

    `line_light`: that of emitters of lines; `sums`: their mass, and what shows whether it is a galaxy's; `sample`: what
    the galaxy's axes are found by, with the current mass where stars have one (empty where the axes are left as they
    are); `n_without_mass`: stars that have no current mass; `n_older`: stars older than the Universe where the
    galaxy is put; `n_beyond_losvd`: stars that may be faster than `products.losvd.limit`; `gas`: how fast the gas that
    shines is, and `gas_lengths` the smoothing lengths of gas that is read, where it was counted and there is any;
    `young`: how fast the stars are that ionise gas, where the run paints nebulae around them; `crowding`: how many
    stars share a resolution element, where the deposit depends on it.
    """

    n_stars: int
    sums: ParticleSums
    sample: StarSample
    fast: FastParticles
    lengths: Lengths
    n_without_mass: int
    n_older: int
    n_beyond_losvd: int
    gas: FastParticles | None = None
    gas_lengths: Lengths | None = None
    young: FastParticles | None = None
    crowding: Crowding | None = None
    line_light: float = 0.0

    @property
    def all_lengths(self) -> Lengths:
        """The smoothing lengths of stars, and of gas that is read."""
        return _joined(self.lengths, self.gas_lengths) or self.lengths

    def among(self, n_stars: int) -> "Census":
        """The census of a part, with its sample reduced to that of all `n_stars` stars."""
        return replace(self, sample=self.sample.among(n_stars))

    def joined(self, other: "Census") -> "Census":
        """The census of the particles of both."""
        return Census(*(_joined(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))


def _joined(one: Any, other: Any) -> Any:
    """Both numbers or counts as one; the one that is there where the other is None."""
    if one is None or other is None:
        return other if one is None else one
    return one + other if isinstance(one, int | float) else one.joined(other)


@named_arguments
def take_census(
    config: RunConfig, resolved: Resolved, slabs: Iterable[Galaxy], team: AbstractProcessGroup = SINGLE
) -> Census:
    """The census of all particles of a run, in one pass over `slabs`, the parts of them that are this process's.

    Any cut into slabs and shares gives the same (sums to about 1e-14); every process of the `team` gets the same bits.
    Of the sample the processes send each other no more than what is left in the whole galaxy's.
    Raises ValueError for values that are not finite, for no stars and for a birth mass of 0.
    """
    return count_particles([CensusRules.build(config, resolved.checked_for(config))], slabs, team)[0]


def count_particles(
    rules: Sequence["CensusRules"], slabs: Iterable[Galaxy], team: AbstractProcessGroup = SINGLE
) -> list[Census]:
    """The census of each of several runs, in one pass over the slabs of this process; see `take_census`."""

    def count() -> list[Census]:
        counts = [rule.census(Galaxy(stars=_no_stars())) for rule in rules]
        for slab in slabs:
            counts = [whole.joined(rule.census(slab)) for whole, rule in zip(counts, rules, strict=True)]
        return counts

    counts = team.each(count)
    n_stars = sum(team.exchange(lambda: counts[0].n_stars))
    every = team.exchange(lambda: [count.among(n_stars) for count in counts])
    found = []
    for counts, rule in zip(zip(*every, strict=True), rules, strict=True):
        census = reduce(Census.joined, counts)
        if not census.n_stars:
            raise ValueError("stars: expected at least one star, got none; is this the right file or subhalo?")
        if not (census.sums.mass > 0 or census.line_light > 0):
            raise ValueError("stars.initial_mass: expected a positive sum, got 0; a galaxy of no mass has no light")
        if census.gas is None or not census.gas.number:
            census = replace(census, gas=None if rule.weight in (None, "mass") else FastParticles.at_rest())
        found.append(census)
    return found


GasWeight = Literal["mass", "star_formation_rate", "central mass"]
"""What gas counts by; "central mass": that of gas within `nebular.agn.radius`."""


def gas_weight(config: RunConfig, resolved: Resolved) -> GasWeight | None:
    """The weight of the gas that a run paints or maps: its mass wherever some source or map goes by it, or where
    sources differ; None where it does neither."""
    painted = {source.name for source in resolved.pipeline.paint}
    found: set[GasWeight] = {"mass" for name in painted if getattr(PAINT_STAGES.find(name), "kind", None) == "gas"}
    if LINE_SOURCE in painted and config.lines is not None and config.lines.particles == "gas":
        found.add(config.lines.weight)
    if NEBULAE in painted and config.nebular is not None and config.nebular.source == "star_forming_gas":
        found.add("star_formation_rate")
    if AGN in painted and _agn_radius(config):
        found.add("central mass")
    if config.products is not None:
        kinds = [PRODUCTS.find(product.name).kind for product in config.products.extra]
        if config.products.gas or "gas" in kinds:
            found.add("mass")
    if not found:
        return None
    return found.pop() if len(found) == 1 else "mass"


def _agn_radius(config: RunConfig) -> float:
    """Distance (kpc) within which gas absorbs the photons of an active nucleus; 0 where none does."""
    return 0.0 if config.nebular is None or config.nebular.agn is None else config.nebular.agn.radius


def speeds(config: RunConfig, stars: Stars | Gas) -> Float[ndarray, " particle"]:
    """Largest |v_los| (km/s) that each particle can have: its speed, or where no stage turns the stars, |v_z|.

    The velocity offset is added.
    """
    velocity, offset = np.asarray(stars.velocity, dtype=np.float64), config.observation.velocity_offset
    given = None if isinstance(stars, Gas) else stars.random_velocity
    random = 0.0 if given is None else np.abs(np.asarray(given, dtype=np.float64))
    if config.is_oriented:
        return np.linalg.norm(velocity, axis=1) + abs(offset) + random
    return np.abs(velocity[:, 2] + offset) + random


class Brightness(NamedTuple):
    """Roughly how bright stars are on the detector: their mass times the mean of the template below them in age and
    metallicity."""

    log_age: Float[ndarray, " age"]
    metallicity: Float[ndarray, " metal"]
    template: Float[ndarray, "metal age"]

    @staticmethod
    def build(resolved: Resolved, redshift: float) -> "Brightness":
        """The means of the library's templates over the range of the detector."""
        bins, library = resolved.instrument.bins, resolved.library
        edges = bins.to_vacuum(bins.edges[[0, -1]]) / (1 + redshift)
        window = rest_window(np.asarray(library.rest_wavelength), edges, 0.0)
        template = np.asarray(library.spectra)[:, :, window].mean(axis=2)
        return Brightness(np.asarray(library.log_age), np.asarray(library.metallicity), template)

    def of(self, stars: Stars) -> Float[ndarray, " particle"]:
        """The brightness of each star."""
        age, metal = (
            np.clip(np.searchsorted(nodes, np.asarray(values), side="right") - 1, 0, len(nodes) - 1)
            for nodes, values in ((self.log_age, stars.log_age), (self.metallicity, stars.metallicity))
        )
        return self.template[metal, age] * np.asarray(stars.initial_mass, dtype=np.float64)


class CensusRules(NamedTuple):
    """Limits beyond which stars are counted: `oldest` log10(age / yr), `widest` kpc, `losvd` km/s; `weight`: of gas.

    `ionising`: the log10 age up to which stars ionise gas, and how bright they are in photons; None where the run
    paints no nebulae around stars.
    """

    config: RunConfig
    resolved: Resolved
    brightness: Brightness
    oldest: float
    widest: float
    losvd: float
    weight: GasWeight | None
    ionising: tuple[float, Brightness] | None

    @staticmethod
    def build(config: RunConfig, resolved: Resolved) -> "CensusRules":
        """The rules of a run; raises ConfigError for a library without the light that its nebulae need."""
        products, nebular, library = config.products, config.nebular, resolved.library
        ionising = None
        painted = {source.name for source in resolved.pipeline.paint}
        if nebular is not None and nebular.source == "stars" and NEBULAE in painted:
            nodes = np.asarray(library.log_age), np.asarray(library.metallicity)
            ionising = float(np.log10(nebular.oldest * 1e6)), Brightness(*nodes, ionising_photons(library))
        limit = None if products is None or products.losvd is None else products.losvd.limit
        scale = resolved.arcsec_per_kpc
        may_smooth = config.engine.deposit in ("smoothed", AUTO)
        return CensusRules(
            config=config,
            resolved=resolved,
            brightness=Brightness.build(resolved, config.observation.redshift),
            oldest=log_universe_age(config) + 1e-3,
            widest=allowed_length(config.engine, config.instrument, scale) if may_smooth else np.inf,
            losvd=np.inf if limit is None else limit,
            weight=gas_weight(config, resolved),
            ionising=ionising,
        )

    def census(self, galaxy: Galaxy) -> Census:
        """The census of one slab."""
        config, resolved = self.config, self.resolved
        young = crowding = None
        stars, (gas, gas_lengths) = _real(galaxy.stars), self._gas(galaxy.gas)
        birth_mass = np.asarray(stars.initial_mass, dtype=np.float64)
        if self.ionising is not None:
            oldest, photons = self.ionising
            chosen = jax.tree.map(lambda leaf: leaf[np.asarray(stars.log_age) <= oldest], stars)
            young = self._fast(chosen, photons.of(chosen))
        if config.engine.deposit == AUTO and paints_stars(resolved.pipeline):
            position = np.asarray(stars.position)
            crowding = Crowding.of(position, config.instrument, resolved.pipeline, resolved.arcsec_per_kpc)
        return Census(
            n_stars=len(birth_mass),
            sums=ParticleSums.of(vars(stars), None if galaxy.gas is None else vars(galaxy.gas)),
            sample=StarSample.of(_no_stars() if config.resolved_align == "none" else stars),
            fast=self._fast(stars, self.brightness.of(stars)),
            lengths=Lengths.of(stars, self.widest),
            n_without_mass=len(birth_mass) if stars.mass is None else 0,
            n_older=int(np.sum((np.asarray(stars.log_age) > self.oldest) & (birth_mass > 0))),
            n_beyond_losvd=0 if self.losvd == np.inf else int(np.sum(speeds(config, stars) > self.losvd)),
            gas=gas,
            gas_lengths=gas_lengths,
            young=young,
            crowding=crowding,
            line_light=0.0 if stars.line_light is None else float(np.sum(stars.line_light, dtype=np.float64)),
        )

    def _fast(self, particles: Stars | Gas, brightness: Float[ndarray, " particle"]) -> FastParticles:
        velocity = np.asarray(particles.velocity, dtype=np.float64)
        return FastParticles.of(velocity, speeds(self.config, particles), brightness)

    def _gas(self, gas: Gas | None) -> tuple[FastParticles, Lengths] | tuple[None, None]:
        """How fast and how wide gas with any of the weight is; None where nothing reads gas, or there is none.

        Gas without lengths lacks them whether it shines or not.
        """
        if gas is None or self.weight is None:
            return None, None
        rate = gas.star_formation_rate if self.weight == "star_formation_rate" else None
        brightness = np.asarray(gas.mass if rate is None else rate, dtype=np.float64)
        if self.weight == "central mass":
            within = np.linalg.norm(gas.position, axis=1) <= _ROUNDING * _agn_radius(self.config)
            brightness = brightness * within
        if gas.weight is not None:
            brightness = brightness * np.asarray(gas.weight)
        shining = jax.tree.map(lambda leaf: np.asarray(leaf)[brightness > 0], gas)
        lengths = Lengths.of(gas if gas.smoothing_length is None else shining, self.widest)
        return self._fast(shining, brightness[brightness > 0]), lengths


def log_universe_age(config: RunConfig) -> float:
    """log10(age / yr) of the Universe at the redshift where the galaxy is put."""
    observation = config.observation
    return float(np.log10(universe_age(find_cosmology(observation.cosmology), observation.redshift)))


def _real(stars: Stars) -> Stars:
    """The stars on the host without padding; raises ValueError where values are not finite."""
    real = slice(None) if stars.weight is None else np.asarray(stars.weight) > 0
    stars = jax.tree.map(lambda leaf: np.asarray(leaf)[real], replace(stars, weight=None))
    remedy = "leave these particles out or repair the file"
    for path, values in jax.tree_util.tree_leaves_with_path(stars):
        require(np.isfinite(values), values, f"stars{jax.tree_util.keystr(path)}", "finite values", remedy)
    return stars


def _no_stars() -> Stars:
    vectors, numbers = np.zeros((0, 3)), np.zeros(0)
    return Stars(vectors, vectors, numbers, numbers, numbers, mass=numbers, smoothing_length=numbers)
