"""Tables of fitted values: digits, units, LaTeX, and the cards of a cube's header."""

import dataclasses

import astropy.units as u
import numpy as np
import pytest
from astropy.io import fits
from astropy.table import QTable
from small import make_cube
from small_results import FREE, fit_result, sample_result

from rubix_like import Cube
from rubix_like.inference.best_fit import with_values
from rubix_like.inference.results.result_summaries import plus_minus


@pytest.mark.parametrize(
    ("value", "sigma", "text"),
    [
        (54.2143, 0.4321, "54.21 +- 0.43"),
        (-0.01234, 0.00098, "-0.01234 +- 0.00098"),
        (54.2143, 12.3, "54 +- 12"),
        (1234.5, 123.4, "1234 +- 123"),
        (1.0521e10, 1.23e8, "(1.052 +- 0.012)e10"),
        (2.5e-6, 3.04e-7, "(2.50 +- 0.30)e-6"),
        (0.0, 0.5, "0.00 +- 0.50"),
        (3.0, 0.0999, "3.00 +- 0.10"),
        (12.3456789, np.nan, "12.3457"),
    ],
)
def test_an_error_has_two_digits_and_its_value_as_many(value, sigma, text):
    assert plus_minus(value, sigma) == text


def fitted():
    """Errors of 0.5 deg and 0.1 arcsec; the last number at the edge of nothing."""
    result = fit_result()
    sigma = {"observation.inclination": np.asarray(0.512), "observation.offset": np.array([0.1, 0.2])}
    return dataclasses.replace(result, sigma=sigma)


def test_the_table_of_a_summary_is_a_papers():
    result = fitted()
    value = float(result.values["observation.inclination"])
    lines = result.summary().splitlines()
    (row,) = [line for line in lines if line.startswith("observation.inclination")]
    assert f"{value:.2f} +- 0.51" in row
    assert row.split("  ")[-1].strip() == "uniform: [20, 80]"


def test_a_table_of_astropy_holds_values_and_units(tmp_path):
    result = fitted()
    table = result.to_table()
    assert isinstance(table, QTable)
    assert list(table["parameter"]) == list(result.labels)
    assert list(table["unit"]) == ["deg", "arcsec", "arcsec"]
    np.testing.assert_allclose(table["value"], result.free.join(result.values))
    np.testing.assert_allclose(table["low"][1:], result.interval()[0]["observation.offset"])
    table.write(tmp_path / "fit.ecsv")
    assert QTable.read(tmp_path / "fit.ecsv")["prior"][0] == "{uniform: [20, 80]}"
    wide = result.to_table(wide=True)
    assert wide["observation.inclination"][0] == result.values["observation.inclination"] * u.deg
    assert wide["observation.offset[1]_sigma"][0] == 0.2 * u.arcsec


def test_draws_have_the_same_tables():
    result = sample_result()
    np.testing.assert_allclose(result.to_table()["value"], result.free.join(result.mean))
    assert len(result.to_latex().splitlines()) == 6 + len(result.labels)


def test_a_table_for_latex():
    result = fitted()
    lines = result.to_latex().splitlines()
    value = float(result.values["observation.inclination"])
    assert lines[0] == r"\begin{tabular}{llll}"
    assert lines[4] == rf"observation.inclination & ${value:.2f} \pm 0.51$ & deg & \{{uniform: [20, 80]\}} \\"
    heavy = dataclasses.replace(result, values={**result.values, "observation.offset": np.array([1.2e7, 3.0])})
    heavy = dataclasses.replace(heavy, sigma={**result.sigma, "observation.offset": np.array([2.2e5, 0.1])})
    assert r"$(1.200 \pm 0.022) \times 10^{7}$" in heavy.to_latex()


def test_the_header_of_a_cube_holds_the_fitted_values(tmp_path):
    values = np.array([51.5, -0.2, 0.3, 0.01, 0.02, 0.03])
    cube = make_cube()
    cube = dataclasses.replace(cube, meta=cube.meta.replace(inclination=40.0, fit_image="model"))
    made = with_values(cube, FREE, values, np.array([0.5, 0.1, np.nan, 0.001, 0.001, 0.001]))
    header = fits.getheader(made.write(tmp_path / "model.fits"))
    assert (header["FITNAM1"], header["FITVAL1"], header["FITERR1"]) == ("observation.inclination", 51.5, 0.5)
    assert header["FITUNI1"] == "deg"
    assert (header["FITNAM3"], header["FITVAL3"]) == ("observation.offset[1]", 0.3)
    assert "FITERR3" not in header
    assert "FITUNI4" not in header
    assert header["FITVAL6"] == 0.03
    assert header["INCLIN"] == 51.5
    again = Cube.read(tmp_path / "model.fits").meta
    assert again["inclination"] == 51.5
    assert again["fit_value_2"] == -0.2
