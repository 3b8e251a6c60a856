"""Values at the edge of their priors: intervals and limits against quadrature of the whole posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from free_numbers import free_of, parameter
from scipy.special import ndtr

from rubix_like.extend import AbstractQuantile
from rubix_like.inference.checks.uncertainties import (
    EDGE,
    Edges,
    advice_at_edge,
    at_edge,
    edges_from,
    edges_of,
    from_information,
    information,
    notes_on_edges,
    sign_of,
)
from rubix_like.inference.posterior.posterior import normal_equations

HEIGHT = free_of(("height", {"uniform": [0.01, 1]}), ("other", {"normal": [0, 1]}))
GRID = np.linspace(-7, 7, 2801)


class Thick(eqx.Module):
    """A datum that tells height + coupling other, and one that tells the other."""

    seen: jax.Array
    sigma: jax.Array
    coupling: jax.Array

    def residuals(self, latent):
        height = 0.01 + 0.99 * jax.scipy.special.ndtr(latent[0])
        return jnp.stack([(height + self.coupling * latent[1] - self.seen) / self.sigma, latent[1] / 0.5]), latent

    def loss(self, latent):
        return 0.5 * sum(jnp.sum(own**2) for own in self.residuals(latent))


def posterior(seen, sigma, coupling=0.1):
    return Thick(jnp.asarray(seen), jnp.asarray(sigma), jnp.asarray(coupling))


@jax.jit
def best_of(own):
    """By damped Gauss-Newton steps from the priors' medians."""

    def step(_, at):
        matrix, gradient = normal_equations(own, at)
        way = -jnp.linalg.solve(matrix + 0.1 * jnp.diag(jnp.diagonal(matrix)), gradient)
        return at + way * jnp.minimum(1, 0.3 / jnp.max(jnp.abs(way)))

    return jax.lax.fori_loop(0, 200, step, jnp.zeros(2))


def quadrature(seen, sigma, coupling, share):
    """Quantile of the latent of the height, by sums over a grid of both latents."""
    t, x = GRID[:, None], np.linspace(-3, 3, 601)[None]
    height = 0.01 + 0.99 * ndtr(t)
    density = np.exp(-0.5 * (((height + coupling * x - seen) / sigma) ** 2 + (x / 0.5) ** 2 + t**2 + x**2)).sum(axis=1)
    cumulative = np.cumsum(density) / density.sum()
    return float(np.interp(share, cumulative, GRID))


def edges_at(own, best):
    matrix = information(own, HEIGHT, jnp.asarray(best), jnp.asarray(2))
    return edges_of(own, HEIGHT, best, from_information(HEIGHT, jnp.asarray(best), matrix))


@pytest.mark.parametrize(
    ("seen", "sigma", "coupling", "sign"),
    [(-0.4, 0.07, 0.1, "<"), (-0.15, 0.02, 0.1, "<"), (1.4, 0.07, 0.1, ">"), (0.02, 0.002, 0.001, "")],
)
def test_limits_are_those_of_the_whole_posterior(seen, sigma, coupling, sign):
    own = posterior(seen, sigma, coupling)
    best = np.asarray(best_of(own))
    assert abs(best[0]) > EDGE
    edges = edges_at(own, best)
    assert list(edges.index) == [0]
    for probability in (0.6827, 0.95):
        reach = edges.reach(HEIGHT, 0, probability)
        assert reach.sign == sign
        tail = (1 - probability) / (1 if sign else 2)
        low, high = (0.01 + 0.99 * ndtr(quadrature(seen, sigma, coupling, share)) for share in (tail, 1 - tail))
        expected = {"<": (0.01, high), ">": (low, 1.0), "": (low, high)}[sign]
        width = expected[1] - expected[0]
        np.testing.assert_allclose([reach.low, reach.high], expected, atol=0.04 * width)
    assert notes_on_edges(HEIGHT, edges, 1.0) == []


def test_a_false_maximum_at_an_edge_is_found_out():
    """The search has ended at the limit; the posterior along the latent has its maximum, and nearly all of itself, at
    the truth, 0.1, which lies within the interval."""
    own = posterior(0.1, 0.01, 0.01)
    stuck = np.array([-3.6, 0.0])
    edges = edges_at(own, stuck)
    reach = edges.reach(HEIGHT, 0, 0.95)
    assert reach.sign == ""
    assert reach.low < 0.1 < reach.high
    expected = [0.01 + 0.99 * ndtr(quadrature(0.1, 0.01, 0.01, share)) for share in (0.025, 0.975)]
    np.testing.assert_allclose([reach.low, reach.high], expected, atol=0.1 * (expected[1] - expected[0]))
    assert edges.lower_loss[0] > 10
    (note,) = notes_on_edges(HEIGHT, edges, 1.0)
    assert note.startswith(f"the loss is lower by {edges.lower_loss[0]:.3g} with height at 0.")
    assert "false maximum" in note


def test_edges_are_where_a_prior_has_an_end():
    free = free_of(
        ("a", {"uniform": [0, 1]}, (3,)),
        ("b", {"normal": [0, 1]}),
        ("c", {"log_uniform": [0.1, 10]}),
        ("d", {"log_normal": [1e10, 0.3]}),
    )
    assert list(at_edge(free, np.array([1.9, 2.0, -2.5, 4.0, 2.2, -3.0]))) == [1, 2, 4]
    assert edges_of(posterior(0.5, 0.1), HEIGHT, np.array([-3.0, 0.0]), None).index.size == 0
    assert Edges.none().index.size == 0


TRUNCATED = type(parameter("a", {"truncated_normal": [0, 1, -1, 1]}).prior)


class Rising(AbstractQuantile):
    """Its density rises in proportion to the value, from 0 to 1."""

    def quantile(self, probability):
        return probability**0.5


@pytest.mark.parametrize(
    ("prior", "lower", "upper"),
    [
        (Rising(), 3, 2),
        ({"truncated_normal": [5, 1, 0, 10]}, 3, 3),
        ({"truncated_normal": [5, 9, 0, 10]}, 2, 2),
        (TRUNCATED(0.0, 1.0, 0.0, np.inf), 2, 3),
        ({"log_uniform": [1, 1e12]}, 2, 2),
        ({"log_normal": [1, 0.3]}, 3, 3),
    ],
)
def test_a_prior_that_fades_away_has_its_edge_further_out(prior, lower, upper):
    """By hand: a quarter of 0 to 1 is below 0.5 where the density rises, 2.3 % below 0.15, 0.13 % below 0.037."""
    free = free_of(("a", prior))
    assert (edges_from(free, -1)[0], edges_from(free, 1)[0]) == (lower, upper)


def test_a_posterior_against_an_end_has_a_limit():
    """Of a half-normal posterior at the lower end it is one; of a normal one three sigma away it is none."""
    half = [0.1 * own for own in (0.2, 0.6745, 1.41)]
    assert sign_of(*half, (0.0, 10.0)) == "<"
    assert sign_of(*[5 - own for own in half[::-1]], (-10.0, 5.0)) == ">"
    assert sign_of(0.2, 0.3, 0.4, (0.0, 10.0)) == ""


@pytest.mark.parametrize(
    ("name", "unit", "prior", "widened"),
    [
        ("observation.inclination", "deg", {"isotropic": [0, 90]}, (False, False)),
        ("observation.inclination", "deg", {"isotropic": [20, 180]}, (True, False)),
        ("observation.inclination", "deg", {"uniform": [0, 80]}, (False, True)),
        ("observation.position_angle", "deg", {"uniform": [0, 90]}, (True, True)),
        ("observation.position_angle", "deg", {"uniform": [0, 360]}, (False, False)),
        ("dust.a_v", "mag", {"uniform": [0, 2]}, (False, True)),
        ("dust.a_v", "mag", {"log_uniform": [0.1, 2]}, (True, True)),
        ("galaxy.disc.mass", "Msun", {"log_normal": [1e10, 0.3]}, (True, True)),
        ("stars.metallicity", "", {"uniform": [0, 1]}, (False, False)),
        ("galaxy.one_of_ones_own", "", {"uniform": [0, 1]}, (True, True)),
    ],
)
def test_only_what_can_be_wider_is_to_be_widened(name, unit, prior, widened):
    shape = (2,) if name.startswith("stars.") else ()
    own, no, yes = parameter(name, prior, shape, unit), np.zeros(shape, bool), np.ones(shape, bool)
    found = [advice_at_edge(own, *sides) for sides in ((yes, no), (no, yes), (yes, yes))]
    assert [advice.startswith("; widen it") for advice in found] == [*widened, any(widened)]
    assert {advice for advice in found if not advice.startswith("; widen it")} <= {", the end of what is possible"}
