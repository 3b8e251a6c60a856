"""The cube as a pytree, its world coordinates, its inverse variance."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from astropy.coordinates import SkyCoord
from small import make_cube

from rubix_like import Counters, Cube
from rubix_like.extend import Footprint, Meta, WavelengthBins


def test_leaves_are_arrays_and_the_rest_is_static():
    cube = make_cube(variance=jnp.ones((3, 5, 4), jnp.float32), counters=Counters(n_outside=3))
    leaves, treedef = jax.tree.flatten(cube)
    assert all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)
    assert hash(treedef) == hash(jax.tree.structure(cube))
    again = jax.tree.unflatten(treedef, leaves)
    assert (again.meta, again.medium, again.pixel_scale) == (cube.meta, "air", 0.2)


def test_passes_through_jit_and_grad():
    cube = make_cube()

    def total(scale):
        scaled = Cube(scale * cube.flux, cube.mask, cube.bins, cube.footprint, variance=scale * cube.flux)
        return jnp.sum(scaled.flux * scaled.ivar)

    good = np.asarray(cube.mask) == 0
    np.testing.assert_allclose(jax.jit(total)(jnp.float32(2)), good.sum(), rtol=1e-6)
    assert np.isfinite(jax.grad(total)(jnp.float32(2)))
    doubled = jax.jit(lambda c: jax.tree.map(lambda leaf: 2 * leaf, c))(cube)
    np.testing.assert_allclose(doubled.flux, 2 * np.asarray(cube.flux))
    assert doubled.meta == cube.meta


def test_gradient_of_ivar_is_finite_where_the_variance_is_zero():
    variance = jnp.zeros((3, 5, 4), jnp.float32).at[0, 0, 0].set(4.0)
    mask = jnp.zeros((3, 5, 4), jnp.int32).at[0, 0, 1].set(2)

    def ivar(values):
        return make_cube(variance=values, mask=mask).ivar

    expected = np.zeros((3, 5, 4))
    expected[0, 0, 0] = 0.25
    np.testing.assert_array_equal(ivar(variance), expected)
    gradient = jax.grad(lambda values: ivar(values).sum())(variance)
    np.testing.assert_allclose(gradient[0, 0, 0], -1 / 16)
    assert np.isfinite(gradient).all()
    assert make_cube().ivar is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mask", np.zeros((3, 5, 3), np.int32)),
        ("variance", np.zeros((5, 3, 4))),
        ("bins", WavelengthBins(5000.0, 1.0, 5, "linear", "air")),
        ("footprint", Footprint(5, 3, 0.2)),
        ("lsf_fwhm", np.zeros(5)),
        ("mean_v_los", np.zeros((5, 3))),
        ("contributions", {"flat_field": None}),
    ],
)
def test_wrong_shapes_are_refused(field, value):
    with pytest.raises(Exception, match=field):
        make_cube(**{field: value})


def test_lists_are_arrays(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    cube = Cube(
        flux=[[[1.0, 2.0]]],
        mask=[[[0, 1]]],
        variance=[[[4.0, 4.0]]],
        bins=WavelengthBins(5000.0, 10.0, 2, "linear", "air"),
        footprint=Footprint(1, 1, 0.2),
    )
    spectrum = cube.spectrum(0, 0)
    np.testing.assert_array_equal(spectrum.flux.value, [1.0, np.nan])
    np.testing.assert_array_equal(cube.ivar, [[[0.25, 0.0]]])


def test_meta_is_an_immutable_mapping():
    meta = Meta({"ra": np.float64(1.5), "n": np.int64(3), "name": "NGC 1", "none": None, "flag": True})
    assert dict(meta) == {"ra": 1.5, "n": 3, "name": "NGC 1", "none": None, "flag": True}
    assert type(meta["n"]) is int
    assert meta == Meta(dict(reversed(list(meta.items()))))
    assert hash(meta) == hash(Meta(dict(reversed(list(meta.items())))))
    assert meta != meta.replace(n=4)
    assert Meta({"a": 1}) != Meta({"a": True})
    assert meta["n"] == 3
    with pytest.raises(TypeError, match="meta 'list'"):
        Meta({"list": [1]})
    with pytest.raises(TypeError):
        meta["n"] = 4


def test_counters_default_to_zero():
    assert all(np.asarray(leaf) == 0 for leaf in jax.tree.leaves(Counters()))


def test_counters_show_what_is_not_0():
    assert repr(Counters(n_particles=300, mass_outside=2.5)) == "Counters(n_particles=300, mass_outside=2.5)"
    shown = []
    jax.jit(lambda counters: shown.append(repr(counters)))(Counters())
    assert shown == ["Counters(traced)"]


@pytest.mark.parametrize(("n_y", "n_x"), [(3, 5), (4, 6)])
def test_field_centre_and_east(n_y, n_x):
    wcs = make_cube(n_y, n_x).wcs
    centre = SkyCoord(150.0, 40.0, unit="deg")

    def sky(column, row):
        ra, dec, _ = wcs.wcs_pix2world(column, row, 0, 0)
        return SkyCoord(ra, dec, unit="deg")

    middle = ((n_x - 1) / 2, (n_y - 1) / 2)
    assert sky(*middle).separation(centre).arcsec < 1e-7
    east = sky(middle[0] - 2, middle[1])
    assert east.ra > centre.ra
    np.testing.assert_allclose(centre.separation(east).arcsec, 0.4, rtol=1e-6)
    np.testing.assert_allclose(centre.position_angle(east).deg, 90, atol=1e-3)
    north = sky(middle[0], middle[1] + 1)
    assert north.dec > centre.dec
    np.testing.assert_allclose(centre.position_angle(north).wrap_at("180d").deg, 0, atol=1e-9)
    cards = {keyword: value for keyword, value, _ in make_cube(n_y, n_x).wcs_cards}
    assert cards["CD1_1"] < 0 < cards["CD2_2"]
    assert (cards["CDELT1"], cards["CDELT2"], cards["CDELT3"]) == (cards["CD1_1"], cards["CD2_2"], cards["CD3_3"])


@pytest.mark.parametrize("angle", [30.0, 90.0, -160.0])
def test_a_turned_field(angle):
    """Up the rows is at the position angle, against the columns a quarter turn further; spaxels keep their size."""
    wcs = make_cube(meta=Meta({"ra": 150.0, "dec": 40.0, "field_angle": angle})).wcs
    centre = SkyCoord(150.0, 40.0, unit="deg")
    for step, expected in (((0, 1), angle), ((-1, 0), angle + 90)):
        ra, dec, _ = wcs.wcs_pix2world(2 + step[0], 1 + step[1], 0, 0)
        place = SkyCoord(ra, dec, unit="deg")
        np.testing.assert_allclose(centre.separation(place).arcsec, 0.2, rtol=1e-6)
        difference = (centre.position_angle(place).deg - expected + 180) % 360 - 180
        np.testing.assert_allclose(difference, 0, atol=1e-4)
    np.testing.assert_allclose(wcs.celestial.proj_plane_pixel_scales()[1].to_value("arcsec"), 0.2)


@pytest.mark.parametrize("sampling", ["linear", "log"])
@pytest.mark.parametrize(("medium", "word"), [("air", "AWAV"), ("vacuum", "WAVE")])
def test_wavelengths_of_the_wcs(sampling, medium, word):
    cube = make_cube(n_wave=2000, sampling=sampling, medium=medium)
    metres = cube.wcs.wcs_pix2world(0, 0, np.arange(2000), 0)[2]
    np.testing.assert_allclose(metres * 1e10, cube.wavelength, rtol=1e-12)
    assert cube.wcs.wcs.ctype[2] == word + ("-LOG" if sampling == "log" else "")
    assert str(cube.wcs.wcs.cunit[2]) == "m"
    cards = {keyword: value for keyword, value, _ in cube.wcs_cards}
    assert (cards["CUNIT3"], cards["CRPIX3"]) == ("Angstrom", 1.0)
    assert cards["CRVAL3"] == cube.wavelength[0]


@pytest.mark.parametrize("bins", [(4749.7, 1.25), (3622.0 * 10**0.37e-4, 1e-4, "log"), (10.0**3.6, 0.01 / 3, "log")])
@pytest.mark.parametrize("n_wave", [1, 2, 3000])
def test_bins_are_found_again_from_their_centres_and_edges(bins, n_wave):
    """The centres exactly, where the step is a round number."""
    first, step, *sampling = bins
    bins = WavelengthBins(first, step, n_wave, *(sampling or ["linear"]), "air")
    if n_wave == 3000 and step > 1e-3 and sampling:
        bins = bins.part(0, 40)
    again = WavelengthBins.through(bins.wavelength, bins.edges, bins.sampling, bins.medium)
    np.testing.assert_allclose(again.edges, bins.edges, rtol=1e-14)
    np.testing.assert_allclose(again.wavelength, bins.wavelength, rtol=0 if f"{step:.6g}" == repr(step) else 1e-14)
    assert bins.agrees(again)
    assert n_wave == 1 or not bins.agrees(bins.part(0, bins.n_wave - 1))


@pytest.mark.parametrize("change", ["sampling", "wavelength", "edges", "order", "nan"])
def test_uneven_bins_are_refused(change):
    bins = WavelengthBins(3622.0, 1e-4, 500, "log", "air")
    wavelength, edges, sampling = bins.wavelength.copy(), bins.edges.copy(), "log"
    if change == "sampling":
        sampling = "linear"
    elif change == "order":
        wavelength, edges = wavelength[::-1], edges[::-1]
    elif change == "nan":
        wavelength[3] = np.nan
    else:
        (wavelength if change == "wavelength" else edges)[3] += 1e-2
    with pytest.raises(
        ValueError, match=f"wavelength: expected positive wavelengths that ascend in even bins .{sampling}"
    ):
        WavelengthBins.through(wavelength, edges, sampling, "air")
