"""Numbers that no observation has: noted where a cube is read or made, refused by fits unless they are accepted."""

import dataclasses

import numpy as np
import pytest
from small import MUSE, few_stars, image, mock_data, muse, write_fits

from rubix_like import load_config, log_posterior, read_observed

SHAPE = (40, 6, 8)
ONES = np.ones(SHAPE, "i2")
LIGHT = np.random.default_rng(1).uniform(50, 150, SHAPE).astype("f4")
"""(wave, y, x) in 1e-20 erg/s/cm2/Angstrom, with a median of 100."""

BRIGHTEST = np.percentile(LIGHT, 99)

QUALITY = np.where(np.arange(6)[None, :, None] < 4, 9, 0) * ONES
"""9 where data are good, 0 where they are bad: the reverse of a mask."""

IN_EXPONENT = {"BUNIT": "erg/s/cm2/Angstrom"}
WORDS = "unlike in observations"


def read(path, flux=LIGHT, cards=None, **others):
    """What is read of a file in MUSE's axes with other HDUs by their names."""
    named = (image(values, {}, name=name) for name, values in others.items())
    return read_observed(write_fits(path, image(flux, MUSE | (cards or {})), *named))


def field(inside, outside):
    """Fluxes of a round field in a square one, as bundles of fibres have it."""
    y, x = np.indices(SHAPE[1:])
    return np.where(np.hypot(y - 2.5, x - 3.5) < 1.6, inside, outside)


@pytest.mark.parametrize(
    ("changes", "found", "remedy"),
    [
        # variances of 1e-4 in an HDU for standard deviations
        ({"ERR": np.full(SHAPE, 1e-4)}, f"S/N per voxel is {np.median(LIGHT) / 1e-4:.3g}, ", "rename the HDU VAR"),
        # numbers in 1e-16 whose BUNIT says the reverse
        ({"cards": {"BUNIT": "1e+16 erg/s/cm2/Angstrom"}}, f"reaches {BRIGHTEST * 1e16:.3g} erg/s", "Give units"),
        ({"flux": np.full(SHAPE, 3.0), "cards": IN_EXPONENT}, "flux density reaches 3 erg/s/cm2/Angstrom", "BUNIT"),
        (
            {"MASK": QUALITY, "VAR": np.full(SHAPE, 9.0)},
            "67 % of the voxels with flux are masked",
            "write 0 where voxels are good",
        ),
    ],
)
def test_what_no_observation_has_is_noted(tmp_path, changes, found, remedy):
    """Once, also of a part of the cube, and of the same arrays given in Python."""
    observed = read(tmp_path / "cube.fits", **changes)
    part = observed.crop(4760, 4780)
    again = dataclasses.replace(observed, notes=())
    for cube in (observed, part, again):
        (note,) = (note for note in cube.notes if WORDS in note)
        assert remedy in note
    assert found in observed.notes[-1]
    assert again.notes == observed.implausible


@pytest.mark.parametrize(
    "changes",
    [
        {"ERR": np.full(SHAPE, 100 / 5e3)},  # a bright star
        {"VAR": np.full(SHAPE, 1e-4)},  # as the note on ERR says
        {"flux": np.full(SHAPE, 3.6e-9), "cards": IN_EXPONENT},  # Vega
        {"flux": LIGHT / 1e10, "cards": {"BUNIT": "Jy/beam", "BMAJ": 1e-3, "BMIN": 1e-3}},
        {"flux": np.where(np.arange(40)[:, None, None] == 7, np.where(field(0, 1), 100, 1e30), LIGHT)},  # cosmic rays
        {"MASK": np.where(np.arange(6)[None, :, None] < 3, 1, 0) * ONES},  # half of them
        {"flux": field(LIGHT, 0.0), "MASK": field(0, 1) * ONES},  # a bundle of fibres
        {"flux": field(LIGHT, np.nan)},
        # noise alone outside of an aperture
        {"flux": field(LIGHT, (LIGHT - 100) / 5), "ERR": np.full(SHAPE, 10.0), "MASK": field(0, 1) * ONES},
    ],
)
def test_what_observations_have_is_not_noted(tmp_path, changes):
    assert not any(WORDS in note for note in read(tmp_path / "cube.fits", **changes).notes)


CONFIG = {
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": muse(fov="0.6 arcsec"),
    "engine": {"method": "direct", "precision": "float64"},
    "devices": {"data": 1},
    "fit": {"free": {"observation.velocity_offset": {"normal": [0, "100 km/s"]}}},
}
SMALL = (3, 3, 31)
TOO_GOOD = mock_data(SMALL, variance=np.full(SMALL, 1e-10))
"""With a flux of 1 and a standard deviation of 1e-5."""


def test_a_fit_takes_such_data_only_where_they_are_accepted():
    for data, settings, words in (
        (mock_data(SMALL, variance=None), {"fit.sigma": 1e-6}, "is fit.sigma, 1e-06, in another unit?"),
        ({"blue": mock_data(SMALL), "red": TOO_GOOD}, {}, "a mock: expected plausible numbers, but the median S/N per"),
    ):
        with pytest.raises(ValueError, match=r"set fit\.accept_implausible: true") as caught:
            log_posterior(load_config(CONFIG, overrides=settings), data, galaxy=few_stars(30, 0.1))
        assert words in str(caught.value)
    accepted = load_config(CONFIG, overrides={"fit.accept_implausible": True})
    notes = log_posterior(accepted, TOO_GOOD, galaxy=few_stars(30, 0.1)).notes
    assert sum("S/N per voxel is 1e+05" in note for note in notes) == 1


def test_voxels_without_numbers_are_not_used_and_counted():
    cube = mock_data((3, 4, 5))
    flux, variance = np.array(cube.flux, float), np.array(cube.variance, float)
    flux[0], variance[1] = np.nan, -1
    observed = dataclasses.replace(cube, flux=flux, variance=variance, notes=())
    expected = cube.used & np.isfinite(flux) & (variance > 0)
    np.testing.assert_array_equal(observed.used, expected)
    row = flux[0].size
    assert f"{row} (flux not finite), {row} (variance not finite or not > 0)" in observed.notes[0]
