"""What a galaxy prints: a summary, however many particles it has."""

import jax
import numpy as np
from small import few_stars

from rubix_like import Galaxy, Gas


def galaxy():
    place = np.zeros((3, 3))
    return Galaxy(few_stars(1000, 1.0).stars, Gas(place, place, np.arange(3.0), temperature=np.full(3, 1e4)))


def test_a_galaxy_prints_a_line_and_a_notebook_shows_columns_units_and_ranges():
    whole = galaxy()
    assert repr(whole) == "Galaxy(1000 stars, 3 gas particles)"
    assert repr(whole.stars) == "Stars(1000 particles: position, velocity, initial_mass, log_age, metallicity)"
    assert repr(whole.gas) == "Gas(3 particles: position, velocity, mass, temperature)"
    html = whole._repr_html_()
    assert "1000 stars" in html
    assert "3 gas particles" in html
    for cell in ("initial_mass", "Msun", "1e+08", "temperature", "1e+04"):
        assert f">{cell}<" in html
    shown = []  # inside of a compiled function ranges are not known
    jax.jit(lambda traced: shown.append((repr(traced), traced._repr_html_())) or traced.stars.mass)(whole)
    assert shown[0][0] == "Galaxy(1000 stars, 3 gas particles)"
    assert ">Msun<" in shown[0][1]
