"""The plan of a source: its line spread, method, velocities, and the bins that it covers."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.sections.nebular import AGN, YOUNG_STARS
from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.engine.cost import BasisSize, Work, rates_here
from rubix_like.engine.setup import LARGEST_STEP, FastParticles, Motion, Setup, SourcePlan, plan_motion
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.engine.spectra.attenuation import factored_dust
from rubix_like.errors import ConfigError
from rubix_like.instrument.detector import LineSpread, Response, fineness, plan_response, rest_window
from rubix_like.physics import bspline
from rubix_like.physics.templates import Templates, layers_of
from rubix_like.physics.units import expect_positive
from rubix_like.runtime.arrays_on_disk import key_of, remembered

_N_SAMPLE = 256
"""Templates that the rank is estimated from, evenly spread; the first guess of the step from a quarter of them."""

_N_WORST = 16
"""Templates that the step is then found for."""

_RANK_STEP = 8
_STEP_SHARE, _OWN_SHARE, _DUST_SHARE = 0.55, 0.55, 0.3
"""Shares of the tolerance: for what lies between nodes, for templates without their dust, for functions of A(V)."""

_RANK_BEHIND_DUST = 1.4
"""Rank over that of the templates without their dust, as found for two libraries and several curves."""

_N_SIDE = 8
_FIRST_STEP = 60.0
_STEPS = (2.0, 200.0)
_N_TRIES = 4
_REACH = (_N_SIDE + 0.5) * _STEPS[1]
"""Largest velocity (km/s) at which templates are looked at."""


class _Sample(NamedTuple):
    """Some templates on the rest-frame window that the detector can see, its fine edges at rest (vacuum Angstrom), and
    the map from light in fine bins to the detector's bins."""

    rows: Float[ndarray, "row rest"]
    rest_wavelength: Float[ndarray, " rest"]
    edges: Float[ndarray, " fine_edge"]
    response: scipy.sparse.csr_matrix

    def some(self, number: int) -> "_Sample":
        """So many of them at most, evenly spread."""
        return self._replace(rows=_evenly(self.rows, number))

    def seen(self, velocity: float) -> Float[ndarray, "row wave"]:
        """The piecewise linear spectra in the detector's bins, of a source at this velocity (km/s)."""
        nodes, edges = self.rest_wavelength, self.edges / np.exp(velocity / SPEED_OF_LIGHT)
        width, columns = np.diff(nodes)[:, None], np.ascontiguousarray(self.rows.T)
        segment = np.clip(np.searchsorted(nodes, edges, side="right") - 1, 0, len(nodes) - 2)
        step = np.clip(edges - nodes[segment], 0.0, width[segment, 0])[:, None]
        areas = 0.5 * (columns[1:] + columns[:-1]) * width
        running = np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(areas, axis=0)])
        low = columns[segment]
        slope = (columns[segment + 1] - low) / width[segment]
        light = np.diff(running[segment] + step * (low + 0.5 * step * slope), axis=0)
        return np.ascontiguousarray((self.response @ light).T)


def basis_size(templates: Templates, spread: LineSpread, tolerance: float) -> BasisSize:
    """The estimated size of the basis for templates on a detector; from the disk cache where it was estimated before.

    Rank and number of nodes are within a quarter of those of the basis itself (`tests/benchmarks/methods.py` prints
    both for three libraries); behind the particles' dust, the rank is known to about a third.
    """
    fine_edges, response = plan_response(spread.bins, spread)
    edges = fine_edges / (1.0 + spread.redshift)
    window = rest_window(templates.rest_wavelength, edges, _REACH)
    nodes = templates.rest_wavelength[window]
    rows = _evenly(templates.table, _N_SAMPLE)[:, window].astype(np.float64)
    covered, number = spread.covered(-_REACH, _REACH), templates.axes.n_template
    layers = layers_of(templates)
    relative = None if layers is None else layers(nodes)
    largest = 0.0 if templates.axes.largest_a_v is None else float(np.asarray(templates.axes.largest_a_v))
    key = key_of(rows, nodes, edges, response.matrix, covered, number, tolerance, relative, largest)

    def estimated() -> dict[str, ndarray]:
        sample = _Sample(rows, nodes, edges, _matrix(response, covered if covered.any() else ~covered))
        size = _estimate(sample, number, tolerance, relative, largest)
        return {name: np.asarray(value) for name, value in size._asdict().items()}

    found = remembered("size", key, BasisSize._fields, estimated)
    return BasisSize(int(found["rank"]), float(found["step"]), int(found["n_own"]), int(found["n_factor"]))


def _estimate(
    sample: _Sample, n_template: int, tolerance: float, relative: Float[ndarray, "layer rest"] | None, largest: float
) -> BasisSize:
    """The size for all of the templates; `relative`: A / A(V) of their dust, up to A(V) = `largest`."""
    seen = sample.seen(0.0)
    step = _step(sample.some(_N_SAMPLE // 4), _STEP_SHARE * tolerance)
    if relative is None:
        return BasisSize(_rank_of_all(seen, n_template, tolerance), step)
    dust_free = _rank_of_all(seen, n_template, _OWN_SHARE * tolerance)
    n_factor = len(factored_dust(relative, largest, _DUST_SHARE * tolerance).parts)
    rank = int(dust_free * (_RANK_BEHIND_DUST if n_factor > 1 else 1.0))
    return BasisSize(rank, step, dust_free, n_factor)


def _rank_of_all(seen: Float[ndarray, "row wave"], n_template: int, tolerance: float) -> int:
    """The rank for all templates, of which these are some: more of them need more vectors, by about as many again as
    these need beyond those of every second one."""
    rank = _rank(seen, tolerance)
    if len(seen) < n_template:
        rank = max(rank, 2 * rank - _rank(seen[::2], tolerance))
    return min(-(-rank // _RANK_STEP) * _RANK_STEP, n_template)


def _rank(seen: Float[ndarray, "row wave"], tolerance: float) -> int:
    """Vectors, with the mean, that keep the rms error of every row within the tolerance, relative to its mean."""
    mean = seen.mean(axis=1)
    shape = seen[mean > 0] / mean[mean > 0, None]
    if len(shape) == 0:
        return 1
    rest = shape - shape.mean(axis=0)
    squares, vectors = scipy.linalg.eigh(rest @ rest.T)
    scores = vectors[:, ::-1] ** 2 * np.maximum(squares[::-1], 0.0)
    beyond = np.cumsum(scores[:, ::-1], axis=1)[:, ::-1].max(axis=0) / rest.shape[1]
    return 1 + int(np.count_nonzero(np.sqrt(beyond) > tolerance))


def _step(sample: _Sample, budget: float) -> float:
    """Velocity step (km/s) at which the rms error of a spline, midway between nodes, is the budget for the worst row.

    The error grows about as a power of the step, the third to begin with.
    """
    step, power, last = _FIRST_STEP, 3.0, None
    for _ in range(_N_TRIES):
        error = _spline_errors(sample, step)
        worst = max(float(error.max(initial=0.0)), np.finfo(float).tiny)
        if last is not None and step != last[0]:
            power = float(np.clip(np.log(worst / last[1]) / np.log(step / last[0]), 2.0, 5.0))
        last = step, worst
        step = float(np.clip(step * np.clip((0.9 * budget / worst) ** (1 / power), 0.25, 4.0), *_STEPS))
        if 0.7 * budget <= worst <= budget or step == last[0]:
            break
        sample = sample._replace(rows=sample.rows[np.argsort(error)[::-1][:_N_WORST]])
    return step


def _spline_errors(sample: _Sample, step: float) -> Float[ndarray, " row"]:
    """rms error midway between two nodes of a spline whose nodes are `step` km/s apart, relative to each row's mean."""
    offsets = (np.arange(-_N_SIDE, _N_SIDE) + 0.5) * step
    true = sample.seen(0.0)
    error = -true
    for weight, velocity in zip(bspline.halfway(_N_SIDE), offsets, strict=True):
        error += weight * sample.seen(float(velocity))
    level = true.mean(axis=1)
    return np.divide(np.sqrt((error**2).mean(axis=1)), level, out=np.zeros_like(level), where=level > 0)


def _evenly(table: Float[ndarray, "row column"], number: int) -> Float[ndarray, "some column"]:
    """So many rows at most, evenly spread."""
    return table[np.unique(np.linspace(0, len(table) - 1, min(number, len(table))).round().astype(int))]


def _matrix(response: Response, chosen: Bool[ndarray, " wave"]) -> scipy.sparse.csr_matrix:
    """The response of some of the bins to light in fine bins."""
    matrix = np.asarray(response.matrix)
    block, part, n_wave = matrix.shape
    fine = (np.arange(n_wave)[:, None, None] + np.arange(block)[None, :, None]) * part + np.arange(part)
    values = np.moveaxis(matrix, 2, 0).reshape(n_wave, -1)
    bins = np.repeat(np.arange(n_wave), block * part)
    shape = n_wave, response.n_fine
    return scipy.sparse.csr_matrix((values.reshape(-1), (bins, fine.reshape(-1))), shape)[np.flatnonzero(chosen)]


_DEFAULT_VELOCITY_LIMIT = 4000.0
_NAMED = "engine.method"
_WORTH = 0.005
"""Seconds per cube that `basis` must save."""

_VELOCITY_LADDER = (1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0)


@named_arguments
def plan_source(
    setup: Setup,
    templates: Templates,
    kind: str,
    *,
    method: str | None = None,
    velocity_range: float | None = None,
) -> SourcePlan:
    """The plan of a source whose particles, of the `kind` "stars" or "gas", shine as these templates.

    `method` and `velocity_range` (km/s) are those of the section `engine` where not given. Without a velocity range
    particles whose velocities are not known in advance are painted by `direct`. Raises ConfigError where the detector
    lies wholly outside the templates, and ValueError for velocities beyond all bounds.
    """
    engine, observation = setup.config.engine, setup.config.observation
    limit = engine.velocity_range if velocity_range is None else velocity_range
    fast = setup.particles.get(kind)
    spread = LineSpread(setup.instrument.bins, templates, observation.redshift, setup.instrument.lsf)
    velocity_limit = velocity_limit_of(limit, observation.velocity_offset, kind, fast)
    work = work_of(setup, spread, fast, OnBins.of_spectra(spread))

    def sized() -> Work:
        return work._replace(size=basis_size(templates, spread, engine.tolerance))

    chosen = choose_method(method or engine.method, limit, fast, work, sized)
    return SourcePlan(
        templates=templates,
        spread=spread,
        method=chosen.method,
        reason=chosen.reason,
        motion=chosen.motion,
        velocity_limit=velocity_limit,
        covered=_covered(spread, max(velocity_limit, chosen.motion.limit + LARGEST_STEP)),
    )


_MOVERS = ("stars", "gas", YOUNG_STARS, AGN)
"""Particles whose velocities are planned for, as `Setup.particles` has them."""


def velocity_limit_of(velocity_range: float | None, offset: float, kind: str, fast: FastParticles | None) -> float:
    """Largest |v_los| in km/s that the tables hold: the given range, or the particles' with room to spare."""
    if kind not in _MOVERS:
        raise ConfigError(f"kind: expected one of {', '.join(map(repr, _MOVERS))}, got {kind!r}")
    if velocity_range is not None:
        expect_positive(velocity_range, "velocity_range")
        return velocity_range
    if fast is None:
        return _DEFAULT_VELOCITY_LIMIT
    needed = 1.2 * (fast.fastest + abs(offset))
    fitting = [limit for limit in _VELOCITY_LADDER if limit >= needed]
    if not fitting:
        raise ValueError(
            f"{kind}.velocity: expected speeds below {_VELOCITY_LADDER[-1] / 1.2:.0f} km/s, got "
            f"{needed / 1.2:.4g} km/s (with observation.velocity_offset); check the unit (km/s), or give "
            f"engine.velocity_range"
        )
    return fitting[0]


def _covered(spread: LineSpread, velocity_limit: float) -> Bool[ndarray, " wave"]:
    """Which detector bins the templates cover, line spread included, for every velocity up to the limit."""
    covered = spread.covered(-velocity_limit, velocity_limit)
    if not covered.any():
        bins, templates = spread.bins, spread.templates
        first, last = templates.covered
        stretch = 1.0 + spread.redshift
        raise ConfigError(
            f"instrument.wavelength: expected the detector to see {templates.name} "
            f"({first:.5g}-{last:.5g} Angstrom, at this redshift {first * stretch:.5g}-{last * stretch:.5g}) at "
            f"velocities up to {velocity_limit:g} km/s, got {bins.edges[0]:.5g}-{bins.edges[-1]:.5g} Angstrom; "
            f"change the instrument, the redshift or the templates"
        )
    return covered


class OnBins(NamedTuple):
    """Fine bins that a template of a source falls on, wavelengths that it is given at there, and bins that each vector
    of the basis is projected on."""

    n_fine: int
    n_rest: int
    n_reached: int | float
    n_spread: int = 0
    """Products by which the line spread makes bins of the fine bins of a spectrum."""

    @staticmethod
    def of_spectra(spread: LineSpread) -> "OnBins":
        """All bins, and the wavelengths that they see at rest."""
        bins = spread.bins
        edges = bins.to_vacuum(bins.edges) / (1.0 + spread.redshift)
        window = rest_window(spread.templates.rest_wavelength, edges, 0.0)
        n_sub, reach = fineness(bins, spread)
        n_fine, n_spread = (bins.n_wave + 2 * reach) * n_sub, bins.n_wave * (2 * reach + 1) * n_sub
        return OnBins(n_fine, window.stop - window.start, bins.n_wave, n_spread)


def work_of(setup: Setup, spread: LineSpread, fast: FastParticles | None, on_bins: OnBins) -> Work:
    """The sizes that costs go by, for a basis of typical size."""
    instrument, painting, widths, psf = setup.instrument, setup.painting, setup.widths, setup.instrument.psf
    inner = instrument.footprint.painted(instrument.psf_reach, painting.cells)
    beyond = 0 if widths is None else widths.reach
    grid = SpaxelGrid(inner.painted(beyond), painting.deposit, widths)
    is_one = psf is not None and psf.nodes is None and setup.pipeline.blurs
    is_one = is_one and not setup.config.instrument.is_refracted
    acts_early = is_one or setup.psf_terms is not None
    psf_kind: Literal["none", "bands", "image", "terms"] = "none"
    if psf is not None and acts_early:
        psf_kind = "image" if is_one else "terms"
        psf_kind = "bands" if psf.is_separable else psf_kind
    return Work(
        n_particle=0 if fast is None else fast.number,
        n_corner=grid.n_corner,
        n_spaxel=grid.n_spaxel,
        n_template=spread.templates.axes.n_template,
        n_wave=instrument.bins.n_wave,
        n_fine=on_bins.n_fine,
        n_rest=on_bins.n_rest,
        n_reached=on_bins.n_reached,
        n_seen=instrument.footprint.n_element if acts_early else inner.n_element,
        n_together=inner.n_element,
        n_spread=on_bins.n_spread,
        n_refined=0 if widths is None else widths.n_product(inner.shape),
        psf=psf_kind,
        is_wide=setup.config.engine.precision == "float64",
        n_psf=1 if instrument.psf_field is None else instrument.psf_field.n_place,
    )


class MethodChoice(NamedTuple):
    """The method of a source, the span of the velocity nodes of `basis`, and why it is this method."""

    method: str
    motion: Motion
    reason: str


def choose_method(
    method: str, velocity_range: float | None, fast: FastParticles | None, work: Work, sized: Callable[[], Work]
) -> MethodChoice:
    """The method, `auto` decided, and the span of the velocity nodes of `basis`.

    `sized` gives the `work` with the size of the basis, where that matters.

    `auto` is the cheaper of the two for each cube by the rates of `cost`, whatever is planned before the first one. It
    is `direct`, which is exact and plans little, where `basis` would save no more than some milliseconds, or where the
    particles' speeds are not known; and `basis` where their number is not known.
    """
    if fast is None and velocity_range is None:
        if method == "basis":
            raise ConfigError(
                "engine.velocity_range: expected the largest |v_los| for method 'basis' in a pipeline that is built "
                "without a galaxy, got null; give it (e.g. 1000 km/s) or pass the galaxy to Pipeline.from_config"
            )
        return MethodChoice("direct", Motion(0.0, 0), "no galaxy to plan from" if method == "auto" else _NAMED)
    if method == "direct":
        return MethodChoice("direct", Motion(0.0, 0), _NAMED)
    motion = Motion(velocity_range or 0.0, 0)
    if fast is None:
        return MethodChoice("basis", motion, "no galaxy to plan from" if method == "auto" else _NAMED)
    if velocity_range is None:
        motion = plan_motion(fast, work)
    if method != "auto":
        return MethodChoice(method, motion, _NAMED)
    sizes, rates = sized(), rates_here()
    either = rates.cube_seconds(sizes)
    by_basis = either + rates.basis_seconds(sizes, motion.limit, motion.capacity)
    by_direct = either + rates.direct_seconds(sizes)
    reason = f"about {by_basis:.2g} s a cube by basis, {by_direct:.2g} s by direct"
    return MethodChoice("direct" if by_direct < by_basis + _WORTH else "basis", motion, reason)
