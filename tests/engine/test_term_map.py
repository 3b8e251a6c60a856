"""Products of few columns in place of weights times a projection matrix, with the error that they state."""

import itertools

import numpy as np
import pytest
from test_cost import BC03_LR, work_of

from rubix_like.engine.cost import RATES
from rubix_like.engine.spectra.coefficient_map import TermWeights, find_term_tables

N_NODE, RANK, N_WAVE = 7, 12, 160
SIZES = (1.0, 0.3, 0.04)


def lines_at(velocity, place, width):
    """Gaussian lines over the bins, shifted."""
    return np.exp(-0.5 * ((np.arange(N_WAVE)[None, :] - place[:, None] - velocity) / width[:, None]) ** 2)


def tables(tolerance):
    rng = np.random.default_rng(1)
    place, width = rng.uniform(20, 140, RANK), rng.uniform(3, 30, RANK)
    matrix = np.concatenate([lines_at(velocity, place, width) for velocity in np.linspace(-4, 4, N_NODE)])
    templates = rng.uniform(0.0, 1.0, (50, RANK)) * 10.0 ** -np.linspace(0, 3, RANK)
    x = np.linspace(-1, 1, N_WAVE)
    terms = TermWeights(np.stack([np.ones(N_WAVE), x, 2 * x**2 - 1], axis=1), np.array(SIZES), 1e-6)
    return matrix, templates, terms, find_term_tables(matrix, templates, terms, tolerance)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
def test_the_stated_error_bounds_that_of_every_template_at_every_node(tolerance):
    matrix, templates, terms, found = tables(tolerance)
    kept = found["reduction"] if found["reduction"].shape[1] else np.eye(len(matrix))
    cuts = np.cumsum(found["sizes"])
    first = [found["matrix"][: cuts[0]]]
    products = [kept @ first[0]]
    for low, high in itertools.pairwise(cuts):
        products.append(kept @ found["mixing"][:, low - cuts[0] : high - cuts[0]] @ found["matrix"][low:high])
    total = 0.0
    for product, weights, size in zip(products, terms.weights.T, SIZES, strict=True):
        difference = (product - matrix * weights).reshape(N_NODE, RANK, N_WAVE)
        light = (templates @ matrix.reshape(N_NODE, RANK, N_WAVE)[N_NODE // 2]).mean(axis=1)
        rms = np.sqrt(((templates @ difference) ** 2).mean(axis=2)) / light[None, :]
        total += size * rms.max()
    assert total <= float(found["error"]) <= tolerance
    assert found["sizes"][0] > found["sizes"][1] > found["sizes"][2]


def test_fewer_columns_for_a_wider_tolerance():
    sizes = [sum(tables(tolerance)[-1]["sizes"]) for tolerance in (1e-2, 1e-3, 1e-4)]
    assert sizes == sorted(sizes)
    assert sizes[0] < N_NODE * RANK


def test_terms_are_taken_where_they_are_cheaper():
    """For MUSE's range and bc03-lr; not for a few bins."""
    rates, sizes = RATES["cpu"], (162, 81, 36, 10, 8, 2)
    wide = work_of(1e6, 300, BC03_LR)._replace(psf="terms", n_spaxel=376**2)
    assert rates.terms_seconds(wide, 288, sizes) < 0.3 * rates.planes_seconds(wide, 288)
    narrow = wide._replace(n_wave=100, n_reached=100)
    assert rates.terms_seconds(narrow, 288, sizes) > rates.planes_seconds(narrow, 288)
