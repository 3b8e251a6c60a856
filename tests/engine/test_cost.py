"""Which method `auto` takes for which work, by the rates of a platform."""

import itertools

import numpy as np
import pytest

from rubix_like.engine.cost import RATES, BasisSize, Work
from rubix_like.engine.setup import FastParticles
from rubix_like.engine.source_planning import choose_method

CPU = RATES["cpu"]
BC03_LR, BC03_MILES, POPSTAR = BasisSize(32, 130.0), BasisSize(88, 27.0), BasisSize(48, 140.0)
DUSTY = BasisSize(192, 27.0, n_own=136, n_factor=6)
N_REST = {BC03_LR: 250, BC03_MILES: 4500, POPSTAR: 250, DUSTY: 4500}


def work_of(n_particle, side, size, **changes):
    """A cube of side x side spaxels and 3721 bins."""
    work = Work(
        n_particle=int(n_particle),
        n_corner=1,
        n_spaxel=side**2,
        n_template=1320,
        n_wave=3721,
        n_fine=3721,
        n_rest=N_REST.get(size, 250),
        n_reached=3721,
        size=size,
        n_seen=side**2,
        n_together=side**2,
        n_spread=3721,
    )
    return work._replace(**changes)


def chosen(work, fastest=320.0, method="auto"):
    speed = np.full(min(work.n_particle, 5000), fastest)
    fast = FastParticles(speed, np.ones_like(speed), work.n_particle, float(work.n_particle), fastest)
    return choose_method(method, None, fast, work, lambda: work)


CASES = [
    (1e2, 25, BC03_LR, "float32", "direct"),
    (1e3, 25, BC03_LR, "float32", "basis"),
    (1e3, 25, POPSTAR, "float64", "basis"),
    (1e2, 25, BC03_MILES, "float32", "direct"),
    (1e4, 25, BC03_MILES, "float32", "basis"),
    (1e3, 25, BC03_MILES, "float64", "direct"),
    (1e3, 100, POPSTAR, "float32", "direct"),
    (1e4, 100, POPSTAR, "float32", "basis"),
    (1e4, 100, BC03_LR, "float64", "basis"),
    (1e3, 100, BC03_MILES, "float32", "direct"),
    (1e5, 300, BC03_LR, "float64", "basis"),
    (1e4, 300, BC03_MILES, "float64", "direct"),
    (1e5, 100, BC03_MILES, "float32", "basis"),
    (1e3, 300, BC03_MILES, "float32", "direct"),
    (1e6, 300, BC03_MILES, "float32", "basis"),
]
"""What the faster method was where both were timed (docs/benchmarks.md); the first and third, of a few milliseconds,
are `direct`, which has nothing to plan."""


@pytest.mark.parametrize(("n_particle", "side", "size", "precision", "method"), CASES)
def test_auto_takes_the_faster_method(n_particle, side, size, precision, method):
    assert chosen(work_of(n_particle, side, size, is_wide=precision == "float64")).method == method


ILLUSTRIS = work_of(
    13143,
    100,
    BasisSize(32, 124.0),
    n_wave=3681,
    n_fine=3681,
    n_reached=3681,
    n_spaxel=12996,
    n_together=12996,
    psf="bands",
)
"""Subhalo 420815 of Illustris-1 by MUSE's preset on 20 x 20 arcsec, with bc03-lr."""


@pytest.mark.parametrize(("psf", "n_spaxel", "measured"), [("bands", 12996, 4.0), ("image", 23104, 6.3)])
def test_a_real_galaxy_in_a_wide_field_is_painted_by_basis(psf, n_spaxel, measured):
    """The ratio of both methods was 4.0 with a Gaussian, and 6.3 with a Moffat (processor time, one process)."""
    work = ILLUSTRIS._replace(psf=psf, n_spaxel=n_spaxel, n_together=n_spaxel)
    choice = chosen(work, fastest=370.0)
    assert choice.method == "basis"
    direct = CPU.cube_seconds(work) + CPU.direct_seconds(work)
    basis = CPU.cube_seconds(work) + CPU.basis_seconds(work, choice.motion.limit, choice.motion.capacity)
    assert measured / 1.4 < direct / basis < 1.4 * measured
    assert choice.reason == f"about {basis:.2g} s a cube by basis, {direct:.2g} s by direct"


def test_what_makes_basis_dearer_makes_it_direct():
    """Rank, nodes and dust: each alone, for some thousand stars."""
    plain = work_of(3000, 25, BC03_LR)
    assert chosen(plain).method == "basis"
    assert chosen(plain._replace(size=BasisSize(320, 13.0))).method == "direct"
    assert chosen(work_of(500, 100, BC03_LR), fastest=320.0).method == "direct"
    assert CPU.basis_seconds(plain._replace(size=DUSTY), 400.0, 0) > 2 * CPU.basis_seconds(plain, 400.0, 0)


@pytest.mark.parametrize("platform", RATES)
def test_more_particles_never_lead_back_to_direct(monkeypatch, platform):
    """Also behind dust."""
    monkeypatch.setattr("rubix_like.engine.source_planning.rates_here", lambda: RATES[platform])
    fields = [*itertools.product((BC03_LR, BC03_MILES), (10, 25, 100, 300)), *([(DUSTY, 25)] * (platform == "cpu"))]
    for size, side in fields:
        methods = [chosen(work_of(10**n, side, size)).method for n in np.arange(0, 7.1, 0.5)]
        assert methods == sorted(methods, reverse=True), (size, side)
        assert (methods[0], methods[-1]) == ("direct", "basis"), (size, side)


def test_a_gpu_has_rates_of_its_own():
    """Few particles in a wide field: its products are faster by more than its sums over particles are."""
    work = work_of(6e3, 100, BC03_MILES)
    gpu = RATES["gpu"]
    assert CPU.direct_seconds(work) < CPU.basis_seconds(work, 400.0, 0)
    assert gpu.direct_seconds(work) > gpu.basis_seconds(work, 400.0, 0)


def test_a_named_method_is_taken_and_said():
    for method in ("direct", "basis"):
        choice = chosen(work_of(1e4, 25, BC03_LR), method=method)
        assert (choice.method, choice.reason) == (method, "engine.method")


def test_terms_of_a_psf_are_taken_where_they_are_cheaper():
    """For MUSE's range and bc03-lr; not for a few bins."""
    sizes = (162, 81, 36, 10, 8, 2)
    wide = work_of(1e6, 300, BC03_LR)._replace(psf="terms", n_spaxel=376**2)
    assert CPU.terms_seconds(wide, 288, sizes) < 0.3 * CPU.planes_seconds(wide, 288)
    narrow = wide._replace(n_wave=100, n_reached=100)
    assert CPU.terms_seconds(narrow, 288, sizes) > CPU.planes_seconds(narrow, 288)
