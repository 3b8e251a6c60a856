"""The grid of an observed cube as an instrument's settings: the model's cube is on it, voxel for voxel."""

import dataclasses
import functools
import re

import numpy as np
import pytest
from small import fit_section

from rubix_like import ConfigError, ObservedCube, Pipeline, load_config, read_observed, run
from rubix_like.extend import Footprint, WavelengthBins, check_same_grid, on_grid_of, to_air
from rubix_like.inference.posterior.model_settings import model_config

BASE = {"galaxy.n_stars": 100, "observation.align": "none", "engine.method": "direct", "engine.deposit": "nearest"}

MANGA = WavelengthBins(4800.12345, 1e-4, 60, "log", "vacuum")
MUSE = WavelengthBins(4749.890625, 1.25, 50, "linear", "air")


def data_on(bins: WavelengthBins, shape=(5, 4), **changes) -> ObservedCube:
    flux = np.ones((*shape, bins.n_wave))
    fields = {
        "flux": flux,
        "variance": flux,
        "used": flux > 0,
        "bins": bins,
        "footprint": Footprint.of(flux.shape, 0.5000004),
        "field_angle": -35.0,
        "ra": 150.0,
        "dec": 2.0,
        "source": "data.fits",
    }
    return ObservedCube(**{**fields, **changes})


@functools.cache
def base_config(name: str = "quickstart"):
    return load_config(name, overrides=BASE)


@functools.cache
def pipeline_on_muse() -> Pipeline:
    return Pipeline.from_config(on_grid_of(base_config(), data_on(MUSE)))


@pytest.mark.parametrize(
    "bins",
    [MANGA, MUSE, dataclasses.replace(MUSE, n_wave=1), dataclasses.replace(MUSE, first=5100.7, step=0.23, n_wave=203)],
    ids=["manga", "muse", "one bin", "fine"],
)
def test_the_configuration_has_the_bins_of_the_data(bins):
    """Also where the instrument has another sampling and medium."""
    data = data_on(bins)
    settings = on_grid_of(base_config(), data).instrument
    made = WavelengthBins.build(settings.wavelength)
    assert (made.n_wave, made.medium, made.sampling) == (bins.n_wave, bins.medium, bins.sampling)
    width = np.diff(bins.edges)
    assert np.max(np.abs(made.wavelength - data.wavelength) / width) < 1e-6
    assert np.max(np.abs(made.edges - data.wave_edges)[1:] / width) < 1e-6
    assert settings.n_spaxel_xy == (4, 5)
    assert settings.pixel_scale == 0.5000004


def test_the_rest_stays_the_configurations():
    base, config = base_config(), on_grid_of(base_config(), data_on(MANGA))
    observation = config.observation
    assert (observation.ra, observation.dec, observation.field_angle) == (150.0, 2.0, -35.0)
    assert (config.instrument.psf, config.instrument.lsf) == (base.instrument.psf, base.instrument.lsf)
    assert config.instrument.name == base.instrument.name
    assert observation.redshift == base.observation.redshift
    assert [name for name in type(base).model_fields if getattr(config, name) != getattr(base, name)] == [
        "observation",
        "instrument",
    ]
    again = load_config(config, overrides={"observation.inclination": 40})
    assert again.instrument == config.instrument
    changes = {
        "observation.ra": 20,
        "observation.field_angle": 5,
        "instrument.aperture": {"shape": "circle", "size": 1},
    }
    placed = on_grid_of(load_config(base, overrides=changes), data_on(MUSE, ra=None, dec=None, field_angle=0.0))
    assert (placed.observation.ra, placed.observation.field_angle) == (20.0, 5.0)
    assert placed.instrument.aperture is None  # the data's mask stands for it


def test_a_pipeline_is_on_the_grid():
    pipeline, data = pipeline_on_muse(), data_on(MUSE)
    frame = pipeline.frame
    assert frame.shape == (*frame.spaxel_bits.shape, frame.bins.n_wave) == data.shape
    assert np.max(np.abs(frame.bins.wavelength - data.wavelength)) < 1e-6 * 1.25
    assert np.max(np.abs(frame.bins.edges - data.wave_edges)) < 1e-6 * 1.25
    assert frame.pixel_scale == data.pixel_scale
    assert {key: frame.meta[key] for key in ("ra", "dec", "field_angle")} == {
        "ra": 150.0,
        "dec": 2.0,
        "field_angle": -35.0,
    }
    check_same_grid(frame, data)
    check_same_grid(frame, data_on(MUSE, field_angle=325.0))  # the same angle


def test_a_pipeline_on_the_grid_of_a_real_cube(real_data):
    path = real_data / "ifu" / "muse_a478_13x13.fits"
    if not path.exists():
        pytest.skip(f"no {path}")
    data = read_observed(path).crop(5000.0, 5100.0)
    settings = on_grid_of(base_config(), data).instrument
    made = WavelengthBins.build(settings.wavelength)
    np.testing.assert_allclose(made.wavelength, data.wavelength, rtol=0, atol=1e-6 * 1.25)
    assert settings.n_spaxel_xy == (13, 13)


def test_a_model_without_noise_has_a_layout_that_needs_none():
    """Of a run that is written as MaNGA, which needs a variance."""
    config = load_config(
        on_grid_of(base_config(), data_on(MANGA)),
        overrides={"noise.signal_to_noise": 30, "output": {"path": "x.fits", "layout": "manga"}},
    )
    settings = fit_section(free={"observation.velocity_offset": {"normal": [0, 100]}})
    assert model_config(config, settings, "nearest", noise=None).output.layout == "default"


@pytest.mark.slow
def test_cubes_made_on_the_grid_of_a_cube_are_on_it(tmp_path):
    """Simulated on a grid, written as MaNGA, read, put on the grid again."""
    config = load_config(
        on_grid_of(base_config(), data_on(MANGA)),
        overrides={"galaxy.n_stars": 300, "noise.signal_to_noise": 30, "output": {"path": "x.fits", "layout": "manga"}},
    )
    cube = run(config, output=tmp_path / "cube.fits")
    data = read_observed(tmp_path / "cube.fits")
    np.testing.assert_allclose(data.wavelength, MANGA.wavelength, rtol=1e-12)
    np.testing.assert_allclose(data.flux, cube.flux, rtol=1e-6)
    np.testing.assert_allclose([data.pixel_scale, data.ra, data.dec], [0.5000004, 150.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(data.field_angle, -35.0, atol=1e-10)
    again = on_grid_of(config, data)
    np.testing.assert_allclose(
        WavelengthBins.build(again.instrument.wavelength).wavelength, MANGA.wavelength, rtol=1e-6 * 1e-4
    )


# ---------------------------------------------------------------- what is refused


def test_instruments_elsewhere_and_pointings_are_refused():
    message = (
        "instrument.wavelength: expected a range that overlaps with the data's, 9000.0 to 9031.0 Angstrom in air "
        "(data.fits), got"
    )
    far = WavelengthBins(9000.5, 1.0, 31, "linear", "air")
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        on_grid_of(load_config(base_config(), overrides={"instrument.wavelength.stop": 5000}), data_on(far))
    assert "choose the instrument with which the data were taken" in str(error.value)
    config = load_config(base_config(), overrides={"observation.pointings": [{"offset": [0, 0]}, {"offset": [2, 0]}]})
    with pytest.raises(ConfigError, match=r"observation.pointings: expected null for the fit of one cube"):
        on_grid_of(config, data_on(MUSE))


def test_overlap_is_judged_in_one_medium():
    """5000 Angstrom in vacuum is 4998.6 in air: data in air from 4999 on lie beyond an instrument up to there."""
    config = load_config(
        base_config(), overrides={"instrument.wavelength": {"medium": "vacuum", "start": 4900, "stop": 5000, "step": 1}}
    )
    first = float(to_air(np.array([5000.0]))[0])
    assert 4998 < first < 4999
    on_grid_of(config, data_on(WavelengthBins(first, 1.0, 5, "linear", "air")))
    with pytest.raises(ConfigError, match="overlaps"):
        on_grid_of(config, data_on(WavelengthBins(first + 0.7, 1.0, 5, "linear", "air")))


@pytest.mark.parametrize(
    ("bins", "changes", "message"),
    [
        (MUSE, {"shape": (4, 4)}, "instrument: expected shape (y, x, wave) (4, 4, 50), got (5, 4, 50)"),
        (
            dataclasses.replace(MUSE, n_wave=49),
            {},
            "instrument: expected shape (y, x, wave) (5, 4, 49), got (5, 4, 50)",
        ),
        (dataclasses.replace(MUSE, medium="vacuum"), {}, "instrument.wavelength.medium: expected vacuum, got air"),
        (dataclasses.replace(MUSE, first=4749.895), {}, "instrument.wavelength: expected bins from 4749.8950 to"),
        (MUSE, {"footprint": Footprint(5, 4, 0.501)}, "instrument.pixel_scale: expected 0.501 arcsec, got 0.5"),
        (MUSE, {"field_angle": 324.0}, "observation.field_angle: expected 324 deg, got -35"),
    ],
)
def test_another_grid_is_refused(bins, changes, message):
    frame = pipeline_on_muse().frame
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        check_same_grid(frame, data_on(bins, **changes))
    assert "is not on the grid of the data (data.fits)" in str(error.value)
