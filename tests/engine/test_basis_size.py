"""Estimated sizes of a basis, against numpy's own decompositions and scipy's splines."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from rubix_like.engine.cost import BasisSize
from rubix_like.engine.source_planning import basis_size
from rubix_like.extend import TemplateAxes, Templates, WavelengthBins
from rubix_like.instrument.detector import LineSpread

REST = np.linspace(4800.0, 5600.0, 3201)
BINS = WavelengthBins(5000.0, 1.0, 400, "linear", "vacuum")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))


def size_of(table, tolerance=1e-3, attenuation=None):
    axes = TemplateAxes(
        (np.linspace(6.0, 10.0, len(table)),),
        ("age",),
        largest_a_v=None if attenuation is None else np.asarray(3.0),
    )
    templates = Templates("mocks", axes, REST, table, np.zeros_like(REST), (REST[0], REST[-1]), attenuation=attenuation)
    return basis_size(templates, LineSpread(BINS, templates, 0.0, None), tolerance)


def shapes(number, seed=1):
    """Smooth spectra."""
    phase = np.random.default_rng(seed).uniform(0, 2 * np.pi, (number, 1))
    return 2 + np.sin(np.arange(1, number + 1)[:, None] * np.linspace(0, 6, len(REST)) + phase)


@pytest.mark.parametrize(("n_shape", "n_template"), [(1, 5), (7, 60), (30, 1000)])
def test_templates_of_few_shapes_have_that_rank(n_shape, n_template):
    """Rounded up to a multiple of eight, and no more than there are templates."""
    table = np.random.default_rng(2).dirichlet(np.ones(n_shape), n_template) @ shapes(n_shape)
    assert size_of(table, 1e-7).rank == min(n_template, 8 * -(-n_shape // 8))


def test_the_rank_of_a_sample_is_near_that_of_all():
    """600 templates of falling strengths, with a singular-value decomposition of all by numpy."""
    dice = np.random.default_rng(3)
    table = np.exp(0.2 * (dice.normal(size=(600, 120)) * 0.8 ** np.arange(120)) @ shapes(120, 4))
    edges = BINS.edges
    light = np.stack([np.interp(0.5 * (edges[1:] + edges[:-1]), REST, template) for template in table])
    shape = light / light.mean(axis=1, keepdims=True)
    rest = shape - shape.mean(axis=0)
    left, values, _ = np.linalg.svd(rest, full_matrices=False)
    beyond = np.cumsum(((left * values) ** 2)[:, ::-1], axis=1)[:, ::-1].max(axis=0) / len(light[0])
    exact = 1 + np.count_nonzero(np.sqrt(beyond) > 1e-3)
    assert exact / 1.25 - 8 <= size_of(table).rank <= 1.25 * exact + 8


@pytest.mark.parametrize("period", [300.0, 900.0])
def test_the_step_is_that_of_a_spline_within_its_share(period):
    """A wave in ln lambda, `period` in km/s: with this step scipy's spline errs by 0.55 of the tolerance at most."""
    table = 1 + 0.5 * np.sin(2 * np.pi * np.log(REST / 5200.0) * 299792.458 / period)[None, :]
    found = size_of(table, 1e-3)

    def error(step):
        nodes = np.arange(-20, 21) * step
        middle = 0.5 * step
        wave = [np.sin(2 * np.pi * (v + np.linspace(0, period, 64)) / period) for v in (*nodes, middle)]
        spline = CubicSpline(nodes, np.array(wave[:-1]))(middle)
        return 0.5 * np.sqrt(np.mean((spline - wave[-1]) ** 2))

    assert 0.6 * 0.55e-3 < error(found.step) < 1.1 * 0.55e-3


def test_dust_takes_more():
    """Functions of A(V) and a larger basis; a grey curve needs no more than one of them."""
    table = np.random.default_rng(2).dirichlet(np.ones(14), 400) @ shapes(14)
    plain = size_of(table)
    dusty = size_of(table, attenuation=lambda wavelength: (5500.0 / wavelength) ** 1.3)
    grey = size_of(table, attenuation=np.ones_like)
    assert plain.n_factor == plain.n_own == 0
    assert 3 <= dusty.n_factor <= 8
    assert dusty.rank > grey.rank == grey.n_own >= plain.rank
    assert grey.n_factor == 1


def test_it_is_kept_and_depends_on_what_it_was_made_from(monkeypatch):
    table = np.random.default_rng(2).dirichlet(np.ones(14), 400) @ shapes(14)
    first = size_of(table)
    monkeypatch.setattr("rubix_like.engine.source_planning._estimate", lambda *_: BasisSize(1, 1.0))
    assert size_of(table) == first
    assert size_of(table, 1e-4) == BasisSize(1, 1.0)
    assert size_of(table * np.linspace(1, 2, len(REST))) == BasisSize(1, 1.0)


def test_no_light_at_all():
    assert size_of(np.zeros((5, len(REST)))).rank >= 1
