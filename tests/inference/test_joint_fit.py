"""Two cubes of one disc that numpy made, with other seeing, grid, calibration and place, fitted together; and a cube
with an image, a spectrum, or a cube of other wavelengths, line spread and sky."""

import foreign_sets
import numpy as np
import pytest
import scipy.stats
from astropy.io import fits as files
from foreign_sets import SCALE, SECOND_FWHM, SHIFT, jacobian, write_first, write_second
from quick_compiler import kept_programs, optimised_programs
from test_components_fit import configuration

from rubix_like import FitResult, fit

TRUTH = {
    "observation.inclination": 50.0,
    "galaxy.disc.mass": 1e10,
    "galaxy.disc.light.scale_length": 0.8,
    "data.first.psf_fwhm": 0.9,
    "data.second.scale": SCALE,
    "data.second.shift": np.array(SHIFT),
    "data.second.psf_fwhm": SECOND_FWHM,
}
FREE = {
    "observation.inclination": {"uniform": ["20 deg", "80 deg"]},
    "galaxy.disc.mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc.light.scale_length": {"log_uniform": ["0.3 kpc", "3 kpc"]},
}
FOREIGN = [
    "observation.inclination",
    "galaxy.stellar_mass",
    "galaxy.disc_scale_length",
    "instrument.psf.fwhm",
    "scale",
    "shift[0]",
    "shift[1]",
    "second_fwhm",
]
"""The same numbers in the words of the foreign cubes, in the order of the labels."""


def stellar(sets):
    """The configuration of a fit of the disc to these sets of data."""
    config = configuration()
    config["galaxy"]["components"][0] |= {"rotation": {"curve": "arctan", "velocity": 210, "turnover_radius": 0.4}}
    config["galaxy"]["components"][0]["population"] = {"log_age": 9.512, "metallicity": 0.02}
    start = {"observation.inclination": 42, "galaxy.disc.light.scale_length": 1.0}
    config["fit"] = {"free": FREE, "start": start, "starts": 1, "data": sets}
    return config


def settings(folder, seed):
    """The configuration of a fit of both cubes, with what is not known of each; `seed`: None: without noise."""
    first = {
        "cube": str(write_first(folder / f"first-{seed}.fits", seed)),
        "nuisance": {"psf_fwhm": {"uniform": ["0.5 arcsec", "1.5 arcsec"]}},
    }
    second = {
        "cube": str(write_second(folder / f"second-{seed}.fits", seed)),
        "instrument": {"psf": {"fwhm": 1.6}},
        "nuisance": {
            "scale": {"log_normal": [1, 0.2]},
            "shift": {"normal": [0, "0.5 arcsec"]},
            "psf_fwhm": {"uniform": ["1 arcsec", "2.5 arcsec"]},
        },
    }
    return stellar({"first": first, "second": second})


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Of the cubes without noise; and, by the same programs, with noise and a second cube that is no longer that of a
    disc: half of it is brighter by a tenth."""
    folder = tmp_path_factory.mktemp("joint")
    with kept_programs(folder / "programs"), optimised_programs():
        smooth = fit(settings(folder, None), output=folder / "fit.h5")
        wrong = settings(folder, 5)
        brighten(wrong["fit"]["data"]["second"]["cube"])
        return smooth, FitResult.read(folder / "fit.h5"), fit(wrong), folder


def brighten(path):
    """The lower half of a cube by a tenth."""
    with files.open(path, mode="update") as hdus:
        hdus["DATA"].data[:, :4] *= 1.1


@pytest.mark.slow(25)
def test_the_truth_comes_back_without_bias_nuisances_included(fits):
    """Errors are the inverse of F = sum over both sets of J^T J, by numpy's slopes; priors that matter are none."""
    result, *_ = fits
    assert result.converged
    for name, true in TRUTH.items():
        assert (np.abs(result.values[name] - true) < 0.3 * result.sigma[name]).all(), name
    assert result.sigma["data.second.scale"] < 0.01
    assert (result.sigma["data.second.shift"] < 0.01).all()
    fisher = [slopes @ slopes.T for slopes in jacobian(FOREIGN)]
    assert np.linalg.matrix_rank(fisher[0]) < len(FOREIGN)  # the first knows nothing of the second's nuisances
    expected = np.sqrt(np.diag(np.linalg.inv(sum(fisher))))
    found = np.concatenate([np.ravel(result.sigma[parameter.name]) for parameter in result.free.parameters])
    np.testing.assert_allclose(found, expected, rtol=0.05)
    shared = np.sqrt(np.diag(np.linalg.inv(fisher[0][:4, :4])))
    assert (found[:3] < 0.999 * shared[:3]).any()  # both together know more than the first alone


@pytest.mark.slow(25)
def test_the_first_line_says_which_set_disagrees_and_the_evidence_is_that_of_all_voxels(fits):
    """ln Z = sum of ln N of both sets - x^2 / 2 - ln det(J^T J + 1) / 2, from the residuals' cubes."""
    smooth, _, wrong, _ = fits
    assert "no misfit" in smooth.summary().splitlines()[0] or "too low" in smooth.summary().splitlines()[0]
    assert "the model does not describe the data 'second'" in wrong.summary().splitlines()[0]
    assert wrong.verdict.sets["second"].misfit
    assert not wrong.verdict.sets["first"].misfit
    assert "Of first: chi^2" in wrong.summary()
    second = wrong.verdict.sets["second"]
    assert second.excess == pytest.approx((second.chi_square - second.expected) / np.sqrt(2 * second.expected))
    assert second.excess > 5 > abs(wrong.verdict.sets["first"].excess)
    assert second.worst in wrong.summary()
    assert second.where == wrong.verdict.where == ""  # a little in every spaxel: none of them is beyond 5 sigma
    assert {"map of the velocities of second", "line widths of the spaxels of first"} <= set(wrong.verdict.tests)
    cubes = [data_set.residual for data_set in wrong.sets.values()]
    found = sum(np.sum(scipy.stats.norm.logpdf(cube.flux, scale=np.sqrt(cube.variance))) for cube in cubes)
    information = wrong.laplace.information
    found -= 0.5 * np.sum(wrong.latent**2) + 0.5 * np.linalg.slogdet(information + np.eye(len(information)))[1]
    assert wrong.evidence.log_evidence == pytest.approx(found, abs=1e-3)


@pytest.mark.slow(25)
def test_each_set_has_its_cubes_in_the_result_and_beside_it(fits):
    _, read, wrong, folder = fits
    assert set(read.sets) == {"first", "second"}
    assert read.sets["second"].model.flux.shape == (8, 8, 41)
    assert read.verdict.sets["second"].n_voxel == 8 * 8 * 41
    np.testing.assert_array_equal(read.model.flux, read.sets["first"].model.flux)
    assert {f"fit_{what}_{name}.fits" for what in ("model", "residual") for name in read.sets} <= {
        path.name for path in folder.iterdir()
    }
    second = wrong.sets["second"].residual
    chi_square = np.sum(np.asarray(second.flux) ** 2 / np.asarray(second.variance))
    assert wrong.verdict.sets["second"].chi_square == pytest.approx(chi_square, rel=1e-6)


def with_image(folder):
    """A cube, and an image of another field, pixels and seeing."""
    image = {
        "image": str(foreign_sets.write_image(folder / "image.fits")),
        "filter": str(folder / "image.band.txt"),
        "bins": 24,
        "instrument": {"psf": {"fwhm": foreign_sets.IMAGE_FWHM}},
        "nuisance": {"scale": {"log_normal": [1, 0.2]}},
    }
    return beside_a_cube(folder, image), {"data.other.scale": (foreign_sets.IMAGE_SCALE, 0.01)}


def with_spectrum(folder):
    """A cube, and the spectrum inside a rectangle away from the disc's centre."""
    ra, dec = foreign_sets.place_of(*foreign_sets.APERTURE_PLACE)
    spectrum = {
        "spectrum": str(foreign_sets.write_spectrum(folder / "spectrum.txt")),
        "units": "1e-20 erg/s/cm2/Angstrom",
        "medium": "air",
        "aperture": {
            "shape": "rectangle",
            "size": list(foreign_sets.APERTURE),
            "ra": ra,
            "dec": dec,
            "pixel_scale": "0.4 arcsec",
        },
        "nuisance": {"scale": {"log_normal": [1, 0.2]}},
    }
    return beside_a_cube(folder, spectrum), {"data.other.scale": (foreign_sets.SPECTRUM_SCALE, 0.01)}


def beside_a_cube(folder, other):
    """The configuration of a fit to a cube of the disc and another set."""
    cube = str(foreign_sets.write_centred(folder / "cube.fits"))
    config = stellar({"cube": {"cube": cube}, "other": other})
    config["instrument"]["psf"]["fwhm"] = SECOND_FWHM
    return config


def with_other_gas(folder):
    """Two cubes of gas, the second with wrong wavelengths, a wider line spread and a residual of the sky."""
    gas = {
        "name": "gas",
        "lines": {"wavelengths": ["Ha", "[N II] 6583"], "doublets": False, "flux": "1.8e-15 erg/s/cm2", "ratios": 0.4},
        "light": {"profile": "exponential", "scale_length": "0.8 kpc"},
        "rotation": {"curve": "arctan", "velocity": "190 km/s", "turnover_radius": "0.4 kpc"},
        "dispersion": "50 km/s",
    }
    other = {
        "cube": str(foreign_sets.write_other_gas(folder / "other.fits")),
        "nuisance": {
            "velocity_shift": {"normal": [0, "30 km/s"]},
            "lsf_scale": {"uniform": [0.9, 1.6]},
            "sky": {"templates": str(folder / "other.sky.txt"), "sigma": 300},
        },
    }
    config = configuration() | {"pipeline": "lines"}
    config["galaxy"] = {"reader": "components", "components": [gas]}
    config["observation"]["inclination"] = 50
    config["instrument"] |= {"lsf": {"fwhm": foreign_sets.LINE_FWHM}, "psf": {"kind": "gaussian", "fwhm": 0.9}}
    free = {
        "observation.velocity_offset": {"normal": [0, "50 km/s"]},
        "galaxy.gas.lines.flux": {"log_normal": ["2e-15 erg/s/cm2", 0.3]},
        "galaxy.gas.rotation.velocity": {"uniform": ["100 km/s", "300 km/s"]},
        "galaxy.gas.dispersion": {"uniform": ["10 km/s", "100 km/s"]},
    }
    cube = {"cube": str(foreign_sets.write_gas(folder / "gas.fits"))}
    config["fit"] = {"free": free, "starts": 1, "data": {"cube": cube, "other": other}}
    return config, {
        "observation.velocity_offset": (0.0, 1.0),
        "galaxy.gas.lines.flux": (foreign_sets.FLUX, 2000.0),
        "galaxy.gas.rotation.velocity": (210.0, 2.0),
        "galaxy.gas.dispersion": (45.0, 1.0),
        "data.other.velocity_shift": (foreign_sets.VELOCITY_SHIFT, 1.0),
        "data.other.lsf_scale": (foreign_sets.LSF_SCALE, 0.03),
        "data.other.sky": (foreign_sets.SKY, 5.0),
    }


@pytest.mark.parametrize(
    "posed",
    [
        pytest.param(with_image, marks=pytest.mark.slow(11)),
        pytest.param(with_spectrum, marks=pytest.mark.slow(8)),
        pytest.param(with_other_gas, marks=pytest.mark.slow(15)),
    ],
)
def test_another_set_of_the_same_disc(posed, tmp_path):
    """The truth, nuisances included, comes back without bias, each known better than the number beside it; numpy's
    data are those of the model."""
    config, expected = posed(tmp_path)
    with optimised_programs():
        result = fit(config)
    assert result.converged
    shared = {name: (TRUTH[name], 0.02 * TRUTH[name]) for name in FREE if name in result.sigma}
    assert result.sigma.keys() == {*shared, *expected}
    for name, (true, known) in {**shared, **expected}.items():
        assert (np.abs(result.values[name] - true) < 0.3 * result.sigma[name]).all(), name
        assert (result.sigma[name] < known).all(), name
    for name, verdict in result.verdict.sets.items():
        assert verdict.chi_square < 1e-3 * verdict.n_voxel, name
