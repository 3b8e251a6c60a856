"""The mosaic: exact areas, light conserved, noise propagated, flags kept where nothing better is seen."""

import re

import numpy as np
import pytest
from astropy.wcs import WCS
from small import OUTSIDE_APERTURE, OUTSIDE_SSP, mixed_fibres

from rubix_like import ConfigError, Cube, make_mosaic
from rubix_like.cube.mosaic_noise import Field, area_in_unit_square, grid_around, overlap_matrix
from rubix_like.extend import Footprint, Meta, WavelengthBins, coverage
from rubix_like.physics.tangent_plane import convergence, from_tangent_plane

REFERENCE = (150.0, 40.0)
SCALE = 0.2


def make_cube(offset=(0.0, 0.0), angle=0.0, n_y=8, n_x=10, n_wave=3, flux=None, variance=None, **changes):
    """A cube `offset` arcsec East, North of the reference, turned by `angle`; flux from (East, North) where given."""
    ra, dec = from_tangent_plane(REFERENCE, offset)
    if callable(flux):
        flux = flux(*sky(offset, angle, n_y, n_x))[:, :, None] * np.ones(n_wave)
    values = np.random.default_rng(1).uniform(1, 2, (n_y, n_x, n_wave)) if flux is None else flux
    fields = {
        "flux": np.asarray(values, np.float32),
        "mask": np.zeros((n_y, n_x, n_wave), np.int32),
        "bins": WavelengthBins(5000.0, 1.0, n_wave, "linear", "vacuum"),
        "footprint": Footprint(n_y, n_x, SCALE),
        "variance": None if variance is None else np.full((n_y, n_x, n_wave), variance, np.float32),
        "meta": Meta(
            {
                "ra": ra,
                "dec": dec,
                "field_angle": angle + convergence(REFERENCE, (ra, dec)),
                "reference_ra": REFERENCE[0],
                "reference_dec": REFERENCE[1],
                "pointing": 2,
                "pointing_name": "here",
            }
        ),
    }
    return Cube(**{**fields, **changes})


def sky(offset, angle, n_y, n_x):
    """(East, North) in arcsec from the reference of the centres of a field's spaxels."""
    rows, columns = np.mgrid[:n_y, :n_x]
    x, y = -(columns - (n_x - 1) / 2) * SCALE, (rows - (n_y - 1) / 2) * SCALE
    a = np.deg2rad(angle)
    return x * np.cos(a) + y * np.sin(a) + offset[0], -x * np.sin(a) + y * np.cos(a) + offset[1]


def gaussian(east, north):
    return 1e4 * np.exp(-((east - 0.05) ** 2 + (north + 0.1) ** 2) / (2 * 0.15**2))


def test_area_of_polygons_in_the_unit_square():
    """Half a square, the whole, none, one turned by 45 degrees (an octagon), a triangle that holds the square."""
    half = np.sqrt(0.5)
    polygons = [
        [(0.5, 0), (1.5, 0), (1.5, 1), (0.5, 1)],
        [(0, 0), (1, 0), (1, 1), (0, 1)],
        [(1, 0), (2, 0), (2, 1), (1, 1)],
        [(0.5 + half, 0.5), (0.5, 0.5 + half), (0.5 - half, 0.5), (0.5, 0.5 - half)],
        [(-3, -1), (4, -1), (0.5, 9), (0.5, 9)],
        [(0, 0), (0, 1), (1, 1), (1, 1)],
    ]
    expected = [0.5, 1, 0, 2 * np.sqrt(2) - 2, 1, 0.5]
    np.testing.assert_allclose(area_in_unit_square(np.array(polygons, float)), expected, atol=1e-15)


def test_area_against_a_count_of_points():
    random = np.random.default_rng(3)
    points = (np.stack(np.meshgrid(np.arange(1000), np.arange(1000)), axis=-1).reshape(-1, 2) + 0.5) / 1000
    for angle, shift in zip(random.uniform(0, 2 * np.pi, 10), random.uniform(-0.9, 0.9, (10, 2)), strict=True):
        axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        middle = 0.5 + shift
        corners = middle + np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]) @ axes
        inside = np.all(np.abs((points - middle) @ axes.T) < 0.5, axis=1)
        np.testing.assert_allclose(area_in_unit_square(corners[None]), [inside.mean()], atol=2e-3)


@pytest.mark.parametrize("angle", [0.0, 1e-7, 17.0, 45.0, 90.0, 213.0])
def test_every_spaxel_is_shared_out_whole_and_none_twice(angle):
    field = Field((0.07, -0.13), angle, Footprint(7, 9, SCALE))
    grid = grid_around(REFERENCE, [Field((0.0, 0.0), 0.0, Footprint(5, 5, SCALE)), field])
    matrix = grid.overlap(field)
    np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=3e-6)
    assert matrix.sum(axis=1).max() < 1 + 1e-9
    assert matrix.data.min() > 0


def test_what_lies_outside_the_upright_grid_is_left_out():
    corner_y, corner_x = np.meshgrid(np.arange(4.0) - 1.5, np.arange(3.0) - 0.25, indexing="ij")
    matrix = overlap_matrix(corner_x, corner_y, 1, 2).toarray()
    expected = np.zeros((2, 6))
    expected[0, [2, 4]], expected[1, [3, 5]] = 0.5 * 0.75, 0.5 * 0.75
    expected[0, [3, 5]] = 0.5 * 0.25
    np.testing.assert_allclose(matrix, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pointings_whole_spaxels_apart_are_kept_exactly(dtype):
    """No overlap: side by side, 10 columns East and 3 rows North, at declination 40, where meridians converge."""
    first, second = make_cube(variance=2.0), make_cube((2.0, 0.6), variance=3.0)
    flux = np.random.default_rng(2).normal(size=(2, 8, 10, 3)).astype(dtype)
    first, second = (
        Cube(**{**vars(cube), "flux": values, "variance": np.asarray(cube.variance, dtype)})
        for cube, values in zip((first, second), flux, strict=True)
    )
    mosaic = make_mosaic([first, second])
    assert mosaic.flux.shape == (11, 20, 3)
    assert mosaic.flux.dtype == mosaic.variance.dtype == dtype
    tolerance = 0 if dtype == np.float32 else 1e-15
    np.testing.assert_allclose(mosaic.flux[:8, 10:], flux[0], rtol=tolerance)
    np.testing.assert_allclose(mosaic.flux[3:, :10], flux[1], rtol=tolerance)
    np.testing.assert_allclose(mosaic.variance[:8, 10:], 2.0, rtol=1e-7)
    np.testing.assert_allclose(mosaic.variance[3:, :10], 3.0, rtol=1e-7)
    seen = np.zeros((11, 20), bool)
    seen[:8, 10:] = seen[3:, :10] = True
    np.testing.assert_array_equal(mosaic.mask, np.where(seen, 0, OUTSIDE_APERTURE)[:, :, None] * np.ones(3, int))
    assert (mosaic.flux[~seen] == 0).all()
    np.testing.assert_array_equal(mosaic.ivar[~seen], 0)
    np.testing.assert_allclose(coverage([first, second]), seen, atol=1e-12)


def test_one_cube_is_its_own_mosaic():
    cube = make_cube(variance=2.0, meta=Meta({"ra": 10.0, "dec": -30.0}))
    mosaic = make_mosaic([cube])
    np.testing.assert_array_equal(mosaic.flux, cube.flux)
    np.testing.assert_array_equal(mosaic.variance, cube.variance)
    assert mosaic.meta["field_angle"] is None
    np.testing.assert_allclose((mosaic.meta["ra"], mosaic.meta["dec"]), (10.0, -30.0), rtol=1e-14)


def test_deeper_pointings_count_more():
    """Inverse variances 1/4 and 1 at all wavelengths but the last, where they are equal."""
    shallow = np.full((8, 10, 3), 4.0, np.float32)
    shallow[..., 2] = 1.0
    cubes = [make_cube(flux=np.full((8, 10, 3), 1.0), variance=1.0), make_cube(flux=np.full((8, 10, 3), 11.0))]
    cubes[1] = Cube(**{**vars(cubes[1]), "variance": shallow})
    mosaic = make_mosaic(cubes)
    np.testing.assert_allclose(mosaic.flux[4, 4], [3.0, 3.0, 6.0], rtol=1e-6)
    np.testing.assert_allclose(mosaic.variance[4, 4], [0.8, 0.8, 0.5], rtol=1e-6)


@pytest.mark.parametrize("variance", [None, 2.0])
def test_a_uniform_field_stays_uniform(variance):
    cubes = [
        make_cube(offset, angle, flux=np.full((8, 10, 3), 5.0), variance=variance)
        for offset, angle in (((0.0, 0.0), 10.0), ((0.31, 0.22), 77.0), ((-0.5, 0.3), 0.0))
    ]
    mosaic = make_mosaic(cubes)
    good = mosaic.mask == 0
    assert good.sum() > 0.7 * 3 * 80
    np.testing.assert_allclose(mosaic.flux[good], 5.0, rtol=1e-6)


@pytest.mark.parametrize(("offset", "angle"), [((0.07, -0.03), 0.0), ((0.0, 0.0), 30.0), ((0.11, 0.09), -71.0)])
def test_light_is_conserved(offset, angle):
    """What a pointing holds, the mosaic holds: times the area that was seen, and without it where no light is cut."""
    random = np.random.default_rng(5).uniform(0, 1, (20, 20, 2))
    cube = make_cube(offset, angle, 20, 20, 2, flux=random)
    seen = coverage([cube])
    field = Field(offset, angle, cube.footprint)
    matrix = grid_around(REFERENCE, [field]).overlap(field)
    np.testing.assert_allclose(seen.sum(), 400, rtol=1e-6)
    np.testing.assert_allclose(matrix.sum(axis=1), seen.ravel(), atol=1e-9)
    light = (make_mosaic([cube]).flux * seen[:, :, None]).sum(axis=(0, 1))
    np.testing.assert_allclose(light, np.asarray(cube.flux).sum(axis=(0, 1)), rtol=3e-6)
    star = make_cube(offset, angle, 20, 20, 2, flux=gaussian, variance=1.0)
    second = make_cube((0.0, 0.1), 45.0, 20, 20, 2, flux=gaussian, variance=1.0)
    total = make_mosaic([star, second]).flux.sum(axis=(0, 1))
    np.testing.assert_allclose(total, np.asarray(star.flux).sum(axis=(0, 1)), rtol=2e-4)


def test_a_source_is_where_the_header_says():
    """Its centroid, through the mosaic's WCS, at a declination where it matters; East and North are not mixed up."""
    cubes = [make_cube(o, a, 20, 20, 2, flux=gaussian) for o, a in (((0.5, -0.3), 25.0), ((-1.2, 0.6), 130.0))]
    mosaic = make_mosaic(cubes)
    image = mosaic.flux[:, :, 0].astype(np.float64)
    rows, columns = np.indices(image.shape)
    celestial = WCS(mosaic.wcs.celestial.to_header())
    ra, dec = celestial.wcs_pix2world((columns * image).sum() / image.sum(), (rows * image).sum() / image.sum(), 0)
    expected = from_tangent_plane(REFERENCE, (0.05, -0.1))
    np.testing.assert_allclose((ra, dec), expected, atol=0.005 / 3600)
    assert 0 < abs(mosaic.meta["field_angle"]) < 1e-3
    assert (mosaic.meta["n_pointings"], mosaic.meta["pointing"], mosaic.meta["pointing_name"]) == (2, None, None)


def test_variance_is_that_of_many_realisations():
    """Turned and shifted pointings of different depth: realised scatter of the mean against the propagated variance."""
    n_draw = 4000
    random = np.random.default_rng(7)
    layout = [((0.0, 0.0), 0.0, 1.0), ((0.3, 0.1), 35.0, 4.0)]
    cubes = [
        make_cube(o, a, 6, 6, n_draw, flux=random.normal(0, np.sqrt(v), (6, 6, n_draw)), variance=v)
        for o, a, v in layout
    ]
    mosaic = make_mosaic(cubes)
    good = mosaic.mask[:, :, 0] == 0
    realised = mosaic.flux[good].var(axis=1)
    np.testing.assert_allclose(realised, mosaic.variance[good][:, 0], rtol=6 * np.sqrt(2 / n_draw))


def test_flagged_voxels_count_only_where_there_is_no_good_one():
    mask = np.zeros((8, 10, 3), np.int32)
    mask[:, :5] = OUTSIDE_APERTURE
    mask[:, :, 2] |= OUTSIDE_SSP
    first = make_cube(flux=np.full((8, 10, 3), 1.0), variance=1.0, mask=mask)
    flipped = mask[:, ::-1].copy()
    flipped[0, 0, 0] = OUTSIDE_APERTURE
    second = make_cube(flux=np.full((8, 10, 3), 3.0), variance=1.0, mask=flipped)
    mosaic = make_mosaic([first, second])
    expected_flux = np.broadcast_to([3.0] * 5 + [1.0] * 5, (8, 10)).copy()
    expected_flux[0, 0] = 2.0
    np.testing.assert_allclose(mosaic.flux[:, :, 0], expected_flux)
    assert mosaic.mask[0, 0, 0] == OUTSIDE_APERTURE
    assert mosaic.mask[:, :, :2].sum() == OUTSIDE_APERTURE
    assert (mosaic.mask[:, :, 2] & OUTSIDE_SSP == OUTSIDE_SSP).all()
    np.testing.assert_allclose(mosaic.flux[:, :, 2], 2.0)
    np.testing.assert_allclose(mosaic.variance[1, 1], [1.0, 1.0, 0.5])
    np.testing.assert_allclose(coverage([first, second])[1:], 1.0)


def test_many_wavelengths_are_worked_on_in_blocks(monkeypatch):
    cubes = [make_cube(n_wave=50, variance=1.0), make_cube((0.25, 0.1), 20.0, n_wave=50, variance=2.0)]
    whole = make_mosaic(cubes)
    monkeypatch.setattr("rubix_like.cube.mosaic._BLOCK_VOXELS", 2000)
    parts = make_mosaic(cubes)
    for name in ("flux", "variance", "mask"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_velocities_are_weighted_with_light():
    velocity = np.full((8, 10), 100.0)
    velocity[0, 0] = np.nan
    first = make_cube(flux=np.full((8, 10, 3), 1.0), mean_v_los=velocity)
    second = make_cube(flux=np.full((8, 10, 3), 3.0), mean_v_los=np.full((8, 10), 20.0))
    mosaic = make_mosaic([first, second])
    np.testing.assert_allclose(mosaic.mean_v_los[1:], 40.0)
    np.testing.assert_allclose(mosaic.mean_v_los[0, 0], 20.0)
    assert make_mosaic([first, make_cube()]).mean_v_los is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"footprint": Footprint(8, 10, 0.3)}, "pixel_scale"),
        ({"bins": WavelengthBins(5000.0, 1.0, 3, "linear", "air")}, "wavelength bins"),
        ({"bins": WavelengthBins(4999.5, 1.0, 3, "linear", "vacuum")}, "wavelength bins"),
        ({"lsf_fwhm": np.ones(3)}, "lsf_fwhm"),
        ({"variance": np.ones((8, 10, 3))}, r"variance \(all or none\)"),
    ],
)
def test_cubes_of_different_instruments_are_refused(changes, words):
    with pytest.raises(ValueError, match=f"cubes of one instrument, got another {words} in cube 2"):
        make_mosaic([make_cube(), make_cube(**changes)])


def test_no_cubes_and_unknown_line_spreads_are_refused():
    unknown = make_cube(lsf_fwhm=np.array([1.0, np.nan, 1.0]))
    with pytest.raises(ValueError, match="got another lsf_fwhm in cube 2"):
        make_mosaic([unknown, unknown])
    with pytest.raises(ValueError, match="at least one cube"):
        make_mosaic([])


def test_the_covariance_of_a_mosaic_is_that_of_its_map_and_of_drawn_noise():
    """Two pointings with noise of their own in every spaxel and flags that differ by wavelength, one of them turned by
    33 deg: W from the mosaics of unit images, W V W^T by numpy, and 300 images of noise that numpy draws."""
    random = np.random.default_rng(5)
    variance = random.uniform(0.5, 2.0, (2, 4, 5, 2))
    mask = np.where(random.uniform(size=variance.shape) < 0.1, OUTSIDE_SSP, 0).astype(np.int32)
    places = [{}, {"offset": (0.33, -0.21), "angle": 33.0}]

    def of_noise(flux, times):
        """The mosaic of pointings, each of the two bins `times` over."""
        parts = []
        for place, values, noise, flags in zip(places, flux, variance, mask, strict=True):
            wider = {"mask": np.repeat(flags, times, axis=2), "n_wave": 2 * times}
            cube = make_cube(**place, n_y=4, n_x=5, flux=values, variance=1.0, **wider)
            parts.append(Cube(**{**vars(cube), "variance": np.repeat(noise, times, axis=2)}))
        return make_mosaic(parts)

    mosaic = of_noise(np.zeros(variance.shape), 1)
    units = np.moveaxis(np.eye(40).reshape(40, 2, 4, 5), 0, -1)
    columns = np.split(np.asarray(of_noise(np.concatenate([units, units], axis=-1), 40).flux), 2, axis=2)
    for bin_, wavelength in enumerate(("5000 Angstrom", 5001.0)):
        covariance = mosaic.covariance(wavelength)
        linear = columns[bin_].reshape(-1, 40).astype(np.float64)
        expected = linear @ np.diag(variance[..., bin_].ravel()) @ linear.T
        np.testing.assert_allclose(covariance.matrix.toarray(), expected, atol=1e-6)
        np.testing.assert_allclose(covariance.variance, mosaic.variance[:, :, bin_], rtol=1e-6)
    assert covariance.rank == np.linalg.matrix_rank(expected, tol=1e-9, hermitian=True)
    normal = random.standard_normal((300, 40)) * np.sqrt(variance[..., 1].ravel())
    drawn = (normal @ linear.T).reshape(300, *covariance.shape)
    chi2 = np.array([covariance.chi2(image) for image in drawn]) / covariance.rank
    assert abs(chi2.mean() - 1) < 3 * np.sqrt(2 / covariance.rank / len(drawn))
    box = np.zeros(covariance.shape, dtype=bool)
    box[2:5, 2:5] = True
    np.testing.assert_allclose(drawn[:, box].sum(axis=1).std(), covariance.binned_sigma(box), rtol=0.13)
    assert covariance.calibration(box) > 1.1
    part = mosaic.cut((5000.5, 5002.0), offset=(0, 0), size=0.9)
    np.testing.assert_allclose(part.covariance(5001.0).variance, np.asarray(part.variance)[:, :, 0], rtol=1e-6)


def test_noise_of_fibres_is_propagated_into_a_mosaic_and_its_covariance():
    """Spaxels of a pointing share fibres: variance and covariance of the mosaic are A W V W^T A^T."""
    random = np.random.default_rng(6)
    weights = np.where(random.uniform(size=(42, 9)) < 0.3, random.uniform(size=(42, 9)), 0.0)
    variance = random.uniform(0.5, 2.0, (9, 1))
    fibres = mixed_fibres(variance, weights, (6, 7))
    of_spaxels = (weights**2 @ variance).reshape(6, 7, 1)
    mask = np.where(of_spaxels > 0, 0, OUTSIDE_APERTURE).astype(np.int32)
    cube = make_cube(angle=20.0, n_y=6, n_x=7, n_wave=1, mask=mask, fibres=fibres, flux=np.zeros((6, 7, 1)))
    mosaic = make_mosaic([Cube(**{**vars(cube), "variance": of_spaxels})])
    share = np.where(mask.ravel() == 0, 1.0, 1e-30)
    grid = grid_around(REFERENCE, [Field((0.0, 0.0), 20.0, cube.footprint)])
    area = grid.overlap(Field((0.0, 0.0), 20.0, cube.footprint)).toarray() * share
    total = area.sum(axis=1)
    mean = area / np.where(total > 0, total, 1)[:, None] @ weights
    expected = mean @ np.diag(variance[:, 0]) @ mean.T
    np.testing.assert_allclose(mosaic.covariance(5000.0).matrix.toarray(), expected, atol=1e-9)
    np.testing.assert_allclose(mosaic.variance.ravel(), expected.diagonal(), rtol=1e-6, atol=1e-12)
    assert mosaic.covariance(5000.0).rank <= 9


def test_flagged_fibres_are_left_out_of_a_mosaic_in_blocks(monkeypatch):
    """Bin by bin as in one piece, though the bins are worked on one after the other."""
    random = np.random.default_rng(7)
    weights = random.uniform(size=(42, 9))
    variance, bits = random.uniform(0.5, 2.0, (9, 5)), np.zeros((9, 5), np.int32)
    bits[4, 3] = 32
    fibres = mixed_fibres(variance, weights, (6, 7), bits=bits)
    cube = make_cube(angle=20.0, n_y=6, n_x=7, n_wave=5, fibres=fibres, flux=np.zeros((6, 7, 5)))
    cube = Cube(**{**vars(cube), "variance": np.ones((6, 7, 5))})
    whole = make_mosaic([cube])
    monkeypatch.setattr("rubix_like.cube.mosaic._BLOCK_VOXELS", 1)
    np.testing.assert_allclose(make_mosaic([cube]).variance, whole.variance, rtol=1e-12)
    covariance = whole.covariance(cube.wavelength[3])
    np.testing.assert_allclose(whole.variance[..., 3].ravel(), covariance.matrix.diagonal(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("offset", "words"), [(0.6, "expected a mosaic that fits"), (3600.0, "got cubes[1] 0.9999 deg from")]
)
def test_what_is_too_large_is_blamed_on_memory_or_on_distance(offset, words, monkeypatch):
    """0.6 arcsec is half of a field, one degree is 18000 spaxels."""
    monkeypatch.setattr("rubix_like.cube.mosaic.available_memory", lambda: 1000)
    with pytest.raises(ConfigError, match=re.escape(words)):
        make_mosaic([make_cube(), make_cube((0.0, offset))])
