"""numpyro's NUTS on `log_posterior`: the draws are those of ours, within the errors of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_numbers import check_agrees, drawn, function


@pytest.mark.slow(20)
def test_its_draws_are_those_of_nuts(client):
    infer = client("numpyro.infer")
    kernel = infer.NUTS(potential_fn=lambda x: -function()(x))
    chains = infer.MCMC(
        kernel, num_warmup=150, num_samples=500, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    start = jnp.asarray(drawn().best + 0.01 * function().draw(2, seed=1))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        chains.run(jax.random.PRNGKey(5), init_params=start)
        found = np.asarray(chains.get_samples(group_by_chain=True))
    independent = client("numpyro.diagnostics").effective_sample_size(found)
    check_agrees(found.mean(axis=(0, 1)), found.var(axis=(0, 1)), independent)
