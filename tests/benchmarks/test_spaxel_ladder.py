"""The ladder of stars in spaxels, smaller: the model is numpy's, its judgement is right, one mock is sampled."""

import functools
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from fit_calibration import model_of
from foreign_stars import Library, star_spectra

sys.path.append(str(Path(__file__).parent / "fits"))
import spaxel_ladder


def mocks(width, number=100):
    """Lines of a file whose posteriors are `width` times as wide as they should be."""
    generator, found = np.random.default_rng(5), []
    for _ in range(number):
        truth = generator.standard_normal((4, 4))
        draws = truth + generator.standard_normal((4, 4)) + width * generator.standard_normal((400, 4, 4))
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        rank = (np.sum(draws[:99] < truth, axis=0) + generator.random((4, 4))) / 100
        own = {"mean": draws.mean(axis=0), "sigma": draws.std(axis=0), "low": low, "high": high, "rank": rank}
        found.append({"truth": truth, "nuts": own, "cramer_rao": np.ones(4)})
    return found


def test_only_right_posteriors_are_called_right():
    assert all(own["right"] for own in spaxel_ladder.judgement(mocks(1.0), "nuts"))
    narrow = spaxel_ladder.judgement(mocks(0.85), "nuts")
    assert not any(own["right"] for own in narrow)
    assert all(own["held"] < own["bounds"][0] for own in narrow)
    assert all(abs(own["scatter"] - 1 / 0.85) < 0.1 for own in narrow)


def test_bounds_hold_all_but_three_in_a_thousand():
    low, high = spaxel_ladder.bounds(400)
    binomial = scipy.stats.binom(400, 0.9)
    outside = 4 * (binomial.cdf(low - 1) + binomial.sf(high))
    assert outside < 0.0027 < 4 * (binomial.cdf(low) + binomial.sf(high - 1))


def test_the_limit_is_reached_by_errors_of_its_size():
    ratio, low, high = spaxel_ladder.beside_limit(mocks(1.0), "nuts")
    assert low < ratio < high
    assert low < 1 < high


def test_a_line_moves_and_its_flux_stays():
    """A star of a triangular line: its centre is at (1 + z) exp(v / c), its photons' energy falls as 1 / (1 + z)."""
    wavelength = np.linspace(4900.0, 5100.0, 2001)
    line = np.clip(1 - np.abs(wavelength - 5000) / 5, 0, None)
    library = Library(wavelength, np.array([9.0, 10.0]), np.array([-2.0, -1.0]), np.tile(line, (2, 2, 1)))
    edges = np.linspace(5000, 5200, 401)
    at = np.array([9.3]), np.array([-1.5])
    found = [star_spectra(library, edges, 0.02, np.array([v]), np.ones(1), *at)[0] for v in (0.0, 300.0)]
    centre = [np.sum(own * 0.5 * (edges[1:] + edges[:-1])) / own.sum() for own in found]
    assert centre[1] / centre[0] == pytest.approx(np.exp(300 / 299792.458), rel=1e-6)
    assert found[0].sum() == pytest.approx(found[1].sum(), rel=1e-6)


@functools.cache
def sampled():
    rung = spaxel_ladder.make_rung(1, library="popstar")
    return rung, spaxel_ladder.run_mock(rung, 1, ("nuts",))


def differs_by(rung, truth):
    """How far ours and numpy's spectra are apart, in sigma of the noise, at most."""
    flux = np.asarray(model_of(rung.problem.posterior, spaxel_ladder.latent_of(rung, truth)))
    return np.abs(flux - rung.model.flux(truth)).max() / rung.model.sigma


@pytest.mark.slow(15)
def test_many_stars_share_the_light_of_their_spaxel(monkeypatch):
    """Latents of a truth are its values again, and ours and numpy's spectra the same to 1e-6 of the noise."""
    monkeypatch.setattr(spaxel_ladder, "N_TYPICAL", 1)
    rung = spaxel_ladder.make_rung(3, library="popstar")
    truth, _ = spaxel_ladder.truth_of(3, rung)
    np.testing.assert_allclose(spaxel_ladder.values_of(rung, spaxel_ladder.latent_of(rung, truth)), truth, rtol=1e-9)
    assert differs_by(rung, truth) < 1e-6
    total = np.log10(rung.model.flux(truth).sum(axis=2).ravel() / rung.model.flux_of_median) / spaxel_ladder.DEX
    free = rung.problem.posterior.free
    found = spaxel_ladder.latent_of(rung, truth)[free.places["galaxy.total"]]
    np.testing.assert_allclose(found, total, atol=0.05)


@pytest.mark.slow(30)
def test_velocities_of_one_mock_are_at_the_limit_of_cramer_and_rao():
    """All within 4.5 of it, and as uncertain."""
    rung, found = sampled()
    truth, _ = spaxel_ladder.truth_of(1, rung)
    assert differs_by(rung, truth) < 1e-6
    limit, nuts = np.array(found["cramer_rao"]), found["nuts"]
    assert found["above_truth"] < 0.01
    assert (np.abs(np.array(nuts["mean"][0]) - truth[0]) < 4.5 * limit).all()
    np.testing.assert_allclose(np.array(nuts["sigma"][0]) / limit, 1, atol=0.35)
    assert nuts["r_hat"] < 1.3
