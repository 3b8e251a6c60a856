"""Products of few columns in place of weights times a projection matrix, with the error that they state."""

import itertools

import numpy as np

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


def total_size(tolerance):
    """Columns of all terms, whose stated error bounds that of every template at every node."""
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
    return sum(found["sizes"])


def test_the_stated_error_holds_and_a_wider_tolerance_takes_fewer_columns():
    sizes = [total_size(tolerance) for tolerance in (1e-2, 1e-3, 1e-4)]
    assert sizes == sorted(sizes)
    assert sizes[0] < N_NODE * RANK
