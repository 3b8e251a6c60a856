"""Covariance of cubes of fibres: the published figures of MaNGA, and statistics of noise that numpy draws."""

import dataclasses

import equinox as eqx
import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from fibre_sums import light_in_disc, spaxels_by_shepard
from scipy.optimize import least_squares
from small import OUTSIDE_APERTURE, instrument_settings

import rubix_like as rl
from rubix_like import Cube
from rubix_like.cube.fibres.covariance import SpaxelCovariance
from rubix_like.cube.fibres.fibre_files import correlation_tables, local_covariance
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.extend import Footprint, Meta, WavelengthBins
from rubix_like.instrument.fibres.bundle import cube_weights, fibre_places

SEEING = {
    "kind": "gaussians",
    "components": [{"fwhm": 1.425, "fraction": 9}, {"fwhm": 2.850, "fraction": 4}],
}
"""1.5 arcsec, as the sum of two Gaussians by which SDSS describes its seeing."""


def seen_by(bundle, fov, **changes):
    """Places and the map to spaxels of a bundle."""
    settings = instrument_settings(
        {"name": "manga", "fov": fov, "psf": SEEING, "fibres": {"bundle": bundle, "spectra": "none", **changes}}
    )
    places, footprint = fibre_places(settings.fibres), Footprint.build(settings)
    return places, footprint, cube_weights(settings.fibres.cube, places, footprint)


@pytest.fixture(scope="module")
def manga():
    """127 fibres of 2 arcsec in three exposures 1.44 arcsec apart, spaxels of 0.5 arcsec."""
    return seen_by("manga-127", "32.5 arcsec")


def test_the_cube_of_a_star_is_the_sum_by_hand_and_as_wide_as_mangas(manga):
    """Law et al. (2016): a median FWHM of 2.54 arcsec by fits of Gaussians; here in seeing of 1.5 arcsec."""
    places, footprint, weights = manga
    star, (x, y), widths = (0.43, -0.71), np.meshgrid(*footprint.centres()), []
    for east, north in (star, (-1.9, 2.2), (3.1, 0.4)):
        light = np.array([light_in_disc(SEEING, r, 1.0) for r in np.hypot(places.x - east, places.y - north)])
        image = np.asarray(weights.images(jnp.asarray(light)[:, None]))[:, :, 0]
        if (east, north) == star:
            by_hand = spaxels_by_shepard(
                light, places.x, places.y, np.pi, footprint.centres(), 0.5, sigma=0.7, limit=1.6
            )
            np.testing.assert_array_equal(np.isfinite(by_hand), weights.coverage > 0)
            np.testing.assert_allclose(image, np.nan_to_num(by_hand), rtol=1e-10, atol=1e-16)
            total, middle = image.sum(), [(image * axis).sum() / image.sum() for axis in (x, y)]
            np.testing.assert_allclose(total, 1.0, atol=0.05)
            np.testing.assert_allclose(middle, star, atol=0.1)
        widths.append(fitted_width(image, x, y, (east, north)))
    np.testing.assert_allclose(np.mean(widths), 2.54, rtol=0.05)


def test_errors_of_binned_spectra_grow_as_mangas_do(manga):
    """Law et al. (2016, section 9.3): n_covar / n_nocovar = 1 + 1.62 log10 N for square bins of N <= 100 spaxels, 4.2
    beyond, and correlation over 5 to 6 spaxels in all; for fibres with the same noise."""
    places, _, weights = manga
    covariance = SpaxelCovariance(weights.matrix(), np.ones(len(places)), weights.shape)
    bins = {}
    for side in (*range(1, 11), 13):
        found = []
        for row in range(20, 33, 3):
            for column in range(20, 33, 3):
                spaxels = np.zeros(covariance.shape, dtype=bool)
                spaxels[row : row + side, column : column + side] = True
                found.append(covariance.calibration(spaxels))
        bins[side**2] = np.mean(found)
    number, ratio = np.array([*bins]), np.array([*bins.values()])
    small = (number > 1) & (number <= 100)
    slope = np.sum((ratio[small] - 1) * np.log10(number[small])) / np.sum(np.log10(number[small]) ** 2)
    np.testing.assert_allclose(slope, 1.62, rtol=0.05)
    apart = ratio[small] / (1 + 1.62 * np.log10(number[small])) - 1
    assert np.sqrt(np.mean(apart**2)) < 0.05
    np.testing.assert_allclose(apart, 0, atol=0.07)  # a straight line in log N: 5 % above us at N = 4, 6 at 100
    np.testing.assert_allclose(ratio[number > 100], 4.2, rtol=0.05)
    pairs = covariance.correlation.tocoo()
    distance = np.hypot(pairs.row % 65 - pairs.col % 65, pairs.row // 65 - pairs.col // 65)
    assert 5 <= distance[pairs.data > 0.01].max() <= 6.5
    np.testing.assert_allclose(pairs.data[distance == 0], 1)


def test_stars_of_sami_are_a_tenth_wider_than_the_seeing_and_its_local_covariance_is_whole():
    """Sharp et al. (2015): a degradation of the resolution by 10 per cent, of seven exposures, discs of 0.8 arcsec and
    spaxels of 0.5. The seeing is not told there; here the 2.1 to 2.5 arcsec of usual nights, with Gaussian fits. SAMI
    keeps covariance up to two spaxels away (its pipeline's `covarS`), beyond which nothing is shared."""
    for seeing in (2.1, 2.5):
        psf = {"kind": "gaussian", "fwhm": seeing}
        settings = {"name": "sami_blue", "fov": "18 arcsec", "psf": psf, "fibres": "sami-61"}
        instrument = instrument_settings(settings)
        places, footprint = fibre_places(instrument.fibres), Footprint.build(instrument)
        weights = cube_weights(instrument.fibres.cube, places, footprint)
        (x, y), widths = np.meshgrid(*footprint.centres()), []
        for east, north in ((0.4, -0.7),) if seeing < 2.2 else ((-1.6, 1.1),):
            light = np.array([light_in_disc(psf, r, 0.8) for r in np.hypot(places.x - east, places.y - north)])
            image = np.asarray(weights.images(jnp.asarray(light)[:, None]))[:, :, 0]
            widths.append(fitted_width(image, x, y, (east, north)))
        np.testing.assert_allclose(np.mean(widths) / seeing, 1.10, rtol=0.05)
    covariance = SpaxelCovariance(weights.matrix(), np.ones(len(places)), weights.shape)
    pairs = covariance.matrix.tocoo()
    n_x = weights.shape[1]
    apart = np.abs(pairs.row // n_x - pairs.col // n_x), np.abs(pairs.row % n_x - pairs.col % n_x)
    assert max(number[pairs.data != 0].max() for number in apart) == 2


def fitted_width(image, x, y, star):
    """FWHM of the Gaussian that fits an image best within 6 arcsec of a star."""
    near = np.hypot(x - star[0], y - star[1]) < 6

    def off(p):
        return (p[0] * np.exp(-((x - p[1]) ** 2 + (y - p[2]) ** 2) / (2 * p[3] ** 2)) - image)[near]

    return np.sqrt(8 * np.log(2)) * least_squares(off, [image.max(), *star, 1.0]).x[3]


@pytest.fixture(scope="module")
def small():
    """Spectra of 19 fibres in three exposures, each with an error of its own."""
    places, _, weights = seen_by("manga-19", "13.5 arcsec", dead=[4])
    random = np.random.default_rng(7)
    variance = random.uniform(0.5, 2.0, (len(places), 2))
    truth = random.uniform(5, 10, variance.shape)
    flux = truth + np.sqrt(variance) * random.standard_normal(variance.shape)
    return FibreSpectra(flux, variance, truth, places, weights, np.zeros(2, dtype=np.int32))


def test_chi2_of_the_cube_is_that_of_the_fibres_and_its_inverse_is_refused(small):
    covariance, weights = SpaxelCovariance.of(small, 1), small.weights.matrix().toarray()
    np.testing.assert_allclose(covariance.matrix.toarray(), weights @ np.diag(small.variance[:, 1]) @ weights.T)
    variances = np.asarray(small.weights.variances(jnp.asarray(small.variance)))[:, :, 1]
    np.testing.assert_allclose(covariance.variance, variances)
    assert covariance.rank == np.linalg.matrix_rank(weights) == len(small.places) == 54
    residual = (weights @ (small.flux - small.truth)[:, 1]).reshape(covariance.shape)
    np.testing.assert_allclose(covariance.chi2(residual), small.chi2(small.truth)[1], rtol=1e-6)
    good = covariance.variance.ravel() > 0
    inverse = np.linalg.pinv(covariance.matrix.toarray()[np.ix_(good, good)], rcond=1e-12, hermitian=True)
    by_numpy = residual.ravel()[good] @ inverse @ residual.ravel()[good]
    np.testing.assert_allclose(covariance.chi2(residual), by_numpy, rtol=1e-6)
    in_watt = residual * 1e-23 * units.Unit("W / (m2 Angstrom)")
    np.testing.assert_allclose(covariance.chi2(in_watt), by_numpy, rtol=1e-6)
    with pytest.raises(ValueError, match="or close to it, and a numerical inverse is rounding errors; take chi2"):
        covariance.inverse()
    spoilt = residual + np.random.default_rng(1).standard_normal(residual.shape)
    with pytest.raises(ValueError, match="lies outside of the map's row space; make the model by the same pipeline"):
        covariance.chi2(spoilt)
    with pytest.raises(ValueError, match="residual: expected an image of shape"):
        covariance.chi2(residual.reshape(1, -1))
    with pytest.raises(ValueError, match="number: expected a whole number"):
        covariance.draw(seed=1, number=-1)


def test_chi2_of_noise_is_its_rank_with_covariance_and_far_from_the_number_of_spaxels_without(small):
    """200 images of noise that numpy draws fibre by fibre."""
    covariance, weights = SpaxelCovariance.of(small, 0), small.weights.matrix()
    normal = np.random.default_rng(11).standard_normal((200, len(small.places)))
    images = (weights @ (normal * np.sqrt(small.variance[:, 0])).T).T.reshape(200, *covariance.shape)
    chi2 = np.array([covariance.chi2(image) for image in images]) / covariance.rank
    assert abs(chi2.mean() - 1) < 3 * np.sqrt(2 / covariance.rank / 200)
    np.testing.assert_allclose(chi2.std(), np.sqrt(2 / covariance.rank), rtol=0.2)
    good = covariance.variance > 0
    naive = np.sum(images[:, good] ** 2 / covariance.variance[good], axis=1) / good.sum()
    assert naive.std() > 2 * np.sqrt(2 / good.sum())
    drawn = covariance.draw(seed=3, number=4000).reshape(4000, -1)
    sample, expected = drawn.T @ drawn / 4000, covariance.matrix.toarray()
    scale = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()) + expected**2 + 1e-30)
    assert np.abs((sample - expected) / scale * np.sqrt(4000)).max() < 6
    sums = drawn.reshape(4000, *covariance.shape)[:, 10:14, 10:14].sum(axis=(1, 2))
    spaxels = np.zeros(covariance.shape, dtype=bool)
    spaxels[10:14, 10:14] = True
    np.testing.assert_allclose(sums.std(), covariance.binned_sigma(spaxels), rtol=0.05)


def test_correlations_are_kept_as_mangas_and_samis_files_have_them(small):
    bins = WavelengthBins(4702.0, 5.0, 2, "linear", "vacuum")
    (table,) = correlation_tables(small, bins)
    covariance = SpaxelCovariance.of(small, 0)
    n_y, n_x = covariance.shape
    assert (table.name, table.header["BBINDEX"]) == ("GCORREL", 0)
    assert table.header["COVSHAPE"] == f"({n_y * n_x}, {n_y * n_x})"
    found = np.zeros((n_y, n_x, n_y, n_x))
    (i_x, i_y), (j_x, j_y) = ([table.data[f"INDX{spaxel}_C{axis}"] for axis in (1, 2)] for spaxel in "IJ")
    found[i_y, i_x, j_y, j_x] = table.data["RHOIJ"]
    found[j_y, j_x, i_y, i_x] = table.data["RHOIJ"]
    expected = covariance.matrix.toarray()
    sigma = np.sqrt(expected.diagonal())
    inverse = np.where(sigma > 0, 1 / np.where(sigma > 0, sigma, 1), 0)
    np.testing.assert_allclose(found.reshape(n_y * n_x, -1), expected * np.outer(inverse, inverse), atol=1e-6)
    assert ((j_x * n_y + j_y) >= (i_x * n_y + i_y)).all()
    weight = np.asarray(small.weights.coverage).ravel()
    local = local_covariance(covariance, weight.reshape(n_y, n_x))
    assert local.shape == (5, 5, n_y, n_x)
    for up, right, row, column in ((0, 0, 10, 11), (1, -2, 12, 9), (-2, 1, 13, 13), (2, 2, 26, 13)):
        there = row + up, column + right
        inside = max(there) < n_y
        here, other = row * n_x + column, there[0] * n_x + there[1]
        ratio = expected[here, other] / expected[here, here] * weight[other] / weight[here] if inside else 0.0
        np.testing.assert_allclose(local[up + 2, right + 2, row, column], ratio)


def cube_of_fibres(**changes):
    """A cube of nine bins of 19 fibres whose variances change with wavelength, by up to a factor 2, each by its own."""
    places, footprint, weights = seen_by("manga-19", "9.5 arcsec", dead=[4], **changes)
    random = np.random.default_rng(7)
    change = random.uniform(0.5, 2.0, (len(places), 1)) ** np.linspace(0, 1, 9)
    fibres = FibreSpectra(
        flux=random.uniform(5, 10, change.shape),
        variance=random.uniform(0.5, 2.0, (len(places), 1)) * change,
        truth=None,
        places=places,
        weights=weights,
        mask=np.zeros(9, dtype=np.int32),
    )
    near = np.asarray(weights.coverage) > 0
    return Cube(
        flux=weights.images(jnp.asarray(fibres.flux)),
        mask=np.broadcast_to(np.where(near, 0, OUTSIDE_APERTURE).astype(np.int32)[:, :, None], (*near.shape, 9)),
        bins=WavelengthBins(4700.0, 300.0, 9, "linear", "vacuum"),
        footprint=footprint,
        variance=weights.variances(jnp.asarray(fibres.variance)),
        meta=Meta({"ra": 10.0, "dec": 20.0, "instrument": "a mock"}),
        fibres=fibres,
    )


@pytest.fixture(scope="module")
def cube():
    return cube_of_fibres()


@pytest.fixture(scope="module")
def manga_file(cube, tmp_path_factory):
    """The cube in MaNGA's layout."""
    return cube.write(tmp_path_factory.mktemp("fibres") / "cube.fits", "manga")


@pytest.fixture(scope="module")
def from_file(manga_file):
    return Cube.read(manga_file)


@pytest.mark.parametrize(
    ("layout", "planes", "drizzled"),
    [
        ("manga", (4702.5, 6200.0), False),  # of MaNGA's bands g and r, in a range up to 7250 Angstrom
        ("sami", (4700.0, 5300.0, 5900.0, 6500.0, 7100.0), True),
    ],
)
def test_the_covariance_of_a_cube_that_was_read_is_that_of_its_file(tmp_path, cube, layout, planes, drizzled):
    """At the planes' wavelengths to 32 bits, between to 2 % of sigma_i sigma_j, two bins beyond the last to 10 %, where
    variances of fibres change by up to a factor 2 over the range, each by its own."""
    cube = cube_of_fibres(cube={"method": "drizzle", "drop": 0.5}) if drizzled else cube
    path = cube.write(tmp_path / "cube.fits", layout)
    again, observed = Cube.read(path), rl.read_observed(path)
    for wavelength, tolerance in ((planes[0], 2e-6), (planes[1], 2e-6), (5600.0, 0.02), (6800.0, 0.1)):
        expected = cube.covariance(wavelength).matrix.toarray()
        sigma = np.sqrt(expected.diagonal())
        for read in (again, observed):
            found = read.covariance(f"{wavelength} Angstrom").matrix.toarray()
            np.testing.assert_allclose(found.diagonal(), expected.diagonal(), rtol=2e-6)
            off = np.abs(found - expected)[sigma > 0][:, sigma > 0] / np.outer(sigma[sigma > 0], sigma[sigma > 0])
            assert off.max() < tolerance, wavelength
    covariance = again.covariance(planes[1])
    box = np.zeros(covariance.shape, dtype=bool)
    box[7:12, 6:11] = True
    by_hand = np.sqrt(cube.covariance(planes[1]).matrix.toarray()[np.ix_(box.ravel(), box.ravel())].sum())
    np.testing.assert_allclose(covariance.binned_sigma(box), by_hand, rtol=1e-6)
    sums = covariance.draw(seed=3, number=4000)[:, box].sum(axis=1)
    np.testing.assert_allclose(sums.std(), by_hand, rtol=0.05)
    for refused in (lambda: covariance.rank, covariance.inverse, lambda: covariance.chi2(np.zeros(box.shape))):
        with pytest.raises(ValueError, match="got the correlations that a file keeps of some bins"):
            refused()
    part = again.cut(size="4 arcsec").covariance(planes[1])
    rows = np.arange(box.size).reshape(box.shape)[5:14, 5:14].ravel()
    np.testing.assert_allclose(part.matrix.toarray(), covariance.matrix.toarray()[np.ix_(rows, rows)], rtol=1e-12)
    with pytest.raises(ValueError, match=r"expected a wavelength from 4550\.00 to 7250\.00 Angstrom"):
        again.covariance(9000)


def test_correlations_that_were_read_are_written_again(tmp_path, manga_file, from_file):
    """Those of MaNGA's tables by astropy, and the same matrix of either file; damaged ones are refused."""
    in_fits, in_hdf5 = from_file.write(tmp_path / "again.fits", "manga"), from_file.write(tmp_path / "again.h5")
    for again in (Cube.read(in_fits), Cube.read(in_hdf5)):
        for wavelength in (4702.5, 5400.0):
            found, expected = (cube.covariance(wavelength).matrix.toarray() for cube in (again, from_file))
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())
    sums = []
    for path in (in_fits, manga_file):
        table = fits.getdata(path, "GCORREL")
        apart = (table["INDXI_C1"] != table["INDXJ_C1"]) | (table["INDXI_C2"] != table["INDXJ_C2"])
        sums.append(np.sum(table["RHOIJ"] ** 2 * apart))
    np.testing.assert_allclose(*sums, rtol=1e-6)
    with h5py.File(in_hdf5, "a") as file:
        file["correlations/second"][...] = file["correlations/first"][()] + 10**6
    with pytest.raises(ValueError, match="correlations: expected pairs of"):
        Cube.read(in_hdf5)


def test_the_covariance_of_a_mosaic_of_cubes_that_were_read_is_refused(from_file):
    with pytest.raises(ValueError, match="or of cubes that were read with correlations"):
        rl.make_mosaic([from_file, from_file]).covariance(5000)


def test_correlations_of_files_of_other_programs_are_turned_with_the_cube(tmp_path, cube, manga_file):
    """The same cube with columns from West to East: numbers of columns in GCORREL count from the other side."""
    with fits.open(manga_file) as hdus:
        n_x = cube.n_x
        for name in ("FLUX", "IVAR", "MASK"):
            hdus[name].data = hdus[name].data[:, :, ::-1].copy()
            for card in ("CD1_1", "CD2_1", "CDELT1"):
                hdus[name].header[card] *= -1
        for name in ("GCORREL", "RCORREL"):
            for column in ("INDXI_C1", "INDXJ_C1"):
                hdus[name].data[column] = n_x - 1 - hdus[name].data[column]
        del hdus[0].header["ORIGIN"]
        hdus.writeto(tmp_path / "turned.fits")
    observed = rl.read_observed(tmp_path / "turned.fits")
    np.testing.assert_allclose(observed.flux, cube.flux, rtol=1e-6)
    found, expected = (read.covariance(4702.5).matrix.toarray() for read in (observed, cube))
    np.testing.assert_allclose(found, expected, atol=2e-6 * expected.max())


def test_draws_of_correlations_that_no_noise_has_are_refused(tmp_path, cube):
    """SAMI's layout leaves out pairs more than two spaxels apart, which MaNGA's recipe correlates."""
    path = cube.write(tmp_path / "cube.fits", "sami")
    covariance = Cube.read(path).covariance(5300)
    with pytest.raises(ValueError, match="leaves out pairs that are correlated; write the cube in layout 'manga'"):
        covariance.draw(seed=1)
    with pytest.raises(ValueError, match="number: expected a whole number"):
        covariance.draw(seed=1, number=-1)
    cut = rl.read_observed(path)
    np.testing.assert_allclose(cut.covariance(5300).variance, covariance.variance, rtol=1e-6)


def test_other_cubes_have_independent_noise_where_that_is_known(tmp_path):
    config = {
        "galaxy": {"reader": "synthetic", "n_stars": 100},
        "observation": {"redshift": 0.05, "align": "none"},
        "instrument": {"name": "muse", "fov": "2 arcsec", "wavelength": {"start": 5000, "stop": 5010}, "psf": None},
        "noise": {"signal_to_noise": 9},
        "output": {"path": str(tmp_path / "cube.h5"), "maps": False},
    }
    cube = rl.run(config, quiet=True)
    for same in (cube, Cube.read(tmp_path / "cube.h5"), Cube.read(cube.write(tmp_path / "cube.fits"))):
        covariance, variance = same.covariance(5005), np.asarray(cube.variance)[:, :, 4].astype(float)
        good = np.asarray(cube.mask)[:, :, 4] == 0
        np.testing.assert_allclose(covariance.variance, np.where(good, variance, 0))
        np.testing.assert_allclose(covariance.binned_sigma(good), np.sqrt(variance[good].sum()), rtol=1e-6)
        assert covariance.rank == good.sum()
        np.testing.assert_allclose(covariance.chi2(np.sqrt(variance)), good.sum(), rtol=1e-5)
        np.testing.assert_allclose((covariance.inverse() @ covariance.matrix).diagonal(), good.ravel())
        scatter = covariance.draw(1, 2000).std(axis=0)[good].mean()
        np.testing.assert_allclose(scatter, np.sqrt(variance[0, 0]), rtol=0.02)
    mosaic = Cube.read(rl.make_mosaic([cube, cube]).write(tmp_path / "mosaic.fits"))
    with pytest.raises(ValueError, match="got a mosaic that was read from its file"):
        mosaic.covariance(5005)
    with pytest.raises(ValueError, match="got one that does not say which run drew its noise"):
        dataclasses.replace(cube, meta=Meta()).covariance(5005)
    with pytest.raises(ValueError, match=r"expected correlations of spaxels .*GCORREL.* got none"):
        rl.read_observed(tmp_path / "cube.h5").covariance(5005)


def test_hdf5_keeps_the_fibres_and_so_the_covariance(tmp_path, cube):
    bits = np.zeros(np.shape(cube.fibres.flux), np.int32)
    bits[3, 2] = 32
    cube = dataclasses.replace(cube, fibres=dataclasses.replace(cube.fibres, bits=bits, layout="none"))
    path = cube.write(tmp_path / "cube.h5")
    again = Cube.read(path)
    assert eqx.tree_equal(again.fibres, cube.fibres, typematch=False)
    residual = np.asarray(again.fibres.weights.images(jnp.asarray(cube.fibres.flux - 7.0)))[:, :, 1]
    found, expected = (same.covariance(5000).chi2(residual) for same in (again, cube))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(again.fibres.good, bits == 0)
    with h5py.File(path, "a") as file:
        del file["fibres/weights"].attrs["n_fibre"]
    with pytest.raises(ValueError, match="not a complete cube of rubix_like"):
        Cube.read(path)
