"""Throughputs of presets against the exposure-time calculators of their observatories."""

import functools

import numpy as np
import pytest
from scipy import constants
from small import instrument_settings

from rubix_like.instrument.sky import load_sky

KCWI_NODES = [3550, 3800, 4050, 4500, 4860, 5300]
KCWI_TELESCOPE = np.array([0.54, 0.55, 0.56, 0.56, 0.56, 0.55])
"""Atmosphere and telescope, in etc_kcwi.py of KeckObservatory/exposureTimeCalculator, as the gratings below."""


@functools.cache
def preset(name):
    return instrument_settings({"name": name})


def throughput(name, wavelength):
    detector = preset(name).detector
    return np.interp(wavelength, detector.wavelength, detector.throughput)


@pytest.mark.parametrize(
    ("name", "nodes", "grating"),
    [
        ("kcwi_bl_small", slice(None), [0.1825, 0.38, 0.40, 0.46, 0.47, 0.44]),
        ("kcwi_bm_large", slice(None), [0.1575, 0.33, 0.36, 0.42, 0.48, 0.45]),
        ("kcwi_bh2_medium", slice(1, 5), [0.18, 0.3, 0.4, 0.28]),
    ],
)
def test_kcwi_counts_what_kecks_calculator_counts_behind_the_dark_sky(name, nodes, grating):
    wavelength, sky = np.array(KCWI_NODES[nodes], float), load_sky("dark")
    air = np.interp(wavelength, sky.wavelength, sky.transmission)
    np.testing.assert_allclose(throughput(name, wavelength) * air, grating * KCWI_TELESCOPE[nodes], rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "wavelength", "published"),
    [
        ("megara_lr_u", [3839.7, 3999.7, 4239.7], [0.07579, 0.15741, 0.16777]),
        ("megara_lr_b", [4399.7], [0.19298]),
    ],
)
def test_megara_has_its_calculators_transmission_and_reflectivity(name, wavelength, published):
    """Rows of etc/data/MEGARA_TRANSM_0.1aa of guaix-ucm/django-megaraetc, times 0.822 (etc/justcalc.py)."""
    np.testing.assert_allclose(throughput(name, wavelength), 0.822 * np.array(published), rtol=0.021)


def test_megaras_squares_have_the_area_of_its_hexagons():
    """567 of 0.62 arcsec from corner to corner fill the field of 12.5 x 11.3 arcsec2."""
    area = preset("megara_lr_r").pixel_scale ** 2
    np.testing.assert_allclose([area, 567 * area], [1.5 * np.sqrt(3) * 0.31**2, 12.5 * 11.3], rtol=0.01)


WEAVE = {
    "weave_lr_blue": (0.839, 0.784, 0.567, 0.924),
    "weave_lr_red": (0.870, 0.852, 0.607, 0.805),
    "weave_hr_blue": (0.800, 0.691, 0.337, 0.923),
    "weave_hr_green": (0.833, 0.794, 0.498, 0.927),
    "weave_hr_red": (0.861, 0.837, 0.505, 0.947),
}
"""Prime focus, fibre, spectrograph and detector in signalWEAVE.py of gscouto/waqaqc, the calculator by S. C. Trager."""


@pytest.mark.parametrize("name", WEAVE)
def test_weave_counts_what_its_calculator_counts(name):
    """Pixels of a fibre's image, and S/N per pixel of 0.3 Angstrom behind no atmosphere, by the formulas of
    signal2noise.py, of 20 mag/arcsec2 in V in 1200 s."""
    settings = instrument_settings({"name": name, "fibres": "weave-547", "psf": {"fwhm": 1.0}})
    camera, diameter = settings.detector, 2 * 1.3045
    area, efficiency = np.pi * (2.1**2 - 0.915**2), 0.9 * np.prod(WEAVE[name])
    pixels = diameter * 3.2 * 4.2e6 / 206265 * (1.8 / 3.1) / 15
    object_photons = 1e-8 * 1200 * 10000 * 3640 * 1000 / (6.6 * 550) * efficiency * area * 0.3 * np.pi * diameter**2 / 4
    published = object_photons / np.sqrt(object_photons + pixels * 3.0**2)
    per_angstrom = 1e-8 * 3640e-26 / (constants.h * 5500)  # photons/s/m2/arcsec2
    ours = 1200 * per_angstrom * camera.throughput[0] * camera.collecting_area * 0.3 * settings.element_area
    noise = np.sqrt(ours + camera.pixels_per_voxel * camera.read_noise**2)
    assert (camera.dark_current, camera.wavelength) == (0, None)
    assert ours / noise == pytest.approx(published, rel=0.01)
    assert camera.pixels_per_voxel == pytest.approx(pixels, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "wavelength", "published"),
    [
        ("llamas_blue", [3700, 4100, 4600], [0.22257, 0.36416, 0.30947]),
        ("llamas_green", [5000, 5800, 6700], [0.36379, 0.45129, 0.35847]),
        ("llamas_red", [7000, 8000, 9000], [0.34079, 0.38064, 0.26991]),
    ],
)
def test_llamas_has_its_calculators_throughput(name, wavelength, published):
    """Of spectrograph.py and telescope.py of rasimcoe/llamas-etc, together."""
    np.testing.assert_allclose(throughput(name, wavelength), published, rtol=0.03)


BOSS = {
    4000: ((0.15, 0.14), 0.7451, 0.17742),
    6000: ((0.21, 0.24), 0.9074, 0.25036),
    8000: ((0.25, 0.25), 0.9806, 0.28849),
    10000: ((0.10, 0.10), 0.9599, 0.12057),
}
"""Angstrom: measured with each spectrograph, the atmosphere's transmission and the predicted system, in Sheet1 and BOSS
Components of the workbook of Smee et al. 2013's throughputs; 0.8252 of a star's light enters a fibre there."""


@pytest.mark.parametrize("name", ["manga", "manga_19", "manga_fibres"])
def test_manga_counts_what_boss_counted_and_five_per_cent_more(name):
    measured, air, _ = (np.array(column) for column in zip(*BOSS.values(), strict=True))
    published = throughput(name, list(BOSS)) * air * 0.8252
    np.testing.assert_allclose(published, 1.05 * measured.mean(axis=1), rtol=0.06)


def test_mangas_cameras_have_the_predicted_curves_and_sum_to_the_system():
    measured, air, predicted = (np.array(column) for column in zip(*BOSS.values(), strict=True))
    factor = 1.05 * np.mean(measured.mean(axis=1) / predicted) / (air * 0.8252)
    arms = preset("manga_arms").arms
    blue, red = (arms[name].detector for name in ("blue", "red"))
    cameras = np.array([np.interp(list(BOSS), arm.wavelength, arm.throughput) for arm in (blue, red)])
    np.testing.assert_allclose(cameras[[0, 1], [0, 2]], (factor * predicted)[[0, 2]], rtol=0.01)
    np.testing.assert_allclose(cameras[:, 1].sum(), (factor * predicted)[1], rtol=0.01)
    assert (blue.read_noise, red.read_noise) == (2.0, 2.875)


def test_manga_reaches_its_surveys_signal_to_noise():
    """4 to 8 per Angstrom and fibre at 23 AB mag/arcsec2 in r in 3 h (Bundy et al. 2015), by the CCD equation."""
    camera = preset("manga_fibres").detector
    sky, wavelength = load_sky("dark"), 6200.0
    window = np.abs(sky.wavelength - wavelength) < 200
    per_photon = np.pi * camera.collecting_area * 3 * 3600 * throughput("manga_fibres", wavelength)
    photons = 3631e-26 * 10 ** (-0.4 * 23) / (constants.h * wavelength)  # per second, m2, Angstrom and arcsec2
    source = photons * per_photon * sky.transmission[window].mean()
    background = sky.emission[window].mean() * 1e-4 * per_photon
    pixels = camera.pixels_per_voxel / (1e-4 * np.log(10) * wavelength)
    read = pixels * (12 * camera.read_noise**2 + 3 * camera.dark_current)
    assert 4 < source / np.sqrt(source + background + read) < 8


ETC_SLIT = {
    "nirspec_g235m": {2.60: 0.604, 2.98: 0.457},
    "nirspec_g395m": {3.17: 0.581, 3.47: 0.644, 4.07: 0.612, 4.67: 0.469},
    "nirspec_g395h": {3.17: 0.611, 3.47: 0.706, 4.07: 0.645, 4.67: 0.469},
}
"""micron: efficiency of telescope, slit spectrograph and detector in JWST's calculator, as in gen_tso 1.5.3 (PyPI,
data/throughputs/throughputs_nirspec_bots.pickle)."""


@pytest.mark.parametrize("name", ETC_SLIT)
def test_nirspecs_integral_field_unit_has_the_slits_efficiency_times_its_own_optics(name):
    """Which let 0.75 through at 2.5 micron and 0.8 beyond 3 (NIRSpecthruput.txt of JSIM), before the launch."""
    wavelength = np.array(list(ETC_SLIT[name]))
    optics = np.interp(wavelength, [2.5, 3.0], [0.738, 0.800])
    published = optics * np.array(list(ETC_SLIT[name].values()))
    np.testing.assert_allclose(throughput(name, 1e4 * wavelength), published, rtol=0.07)


ETC_LIMITS = {
    "nirspec_prism": {1.39: (135, 190.0), 2.17: (162, 178.0), 2.95: (208, 136.5)},
    "nirspec_g140m_f070lp": {0.96: (1922, 6.38), 1.21: (1400, 6.37)},
    "nirspec_g140m_f100lp": {1.12: (1474, 6.38), 1.43: (1965, 6.36), 1.74: (3274, 6.35)},
    "nirspec_g140h_f100lp": {1.12: (3773, 2.38), 1.43: (5346, 2.35), 1.74: (9392, 2.30)},
    "nirspec_g235m": {1.91: (1866, 10.70), 2.42: (1743, 10.68), 2.92: (2806, 10.65)},
    "nirspec_g235h": {1.90: (4763, 4.01), 2.38: (4611, 3.94), 2.87: (7846, 3.87)},
    "nirspec_g395m": {3.27: (1407, 17.98)},
    "nirspec_g395h": {3.27: (3613, 6.73)},
}
"""micron: nJy and Angstrom of a pixel, in 4.0/nirspec_ifu_sensitivity.npz of spacetelescope/pandeia-verification: what
JWST's calculator finds at S/N 10 per pixel."""


@pytest.mark.parametrize("name", ETC_LIMITS)
def test_nirspec_has_the_signal_to_noise_of_jwsts_calculator_at_its_limits(name):
    """The benchmark: two nods of four exposures of 17 groups of 72.944 s, each less the other, 1.2 times the least
    zodiacal light, in a circle of 0.21 arcsec with about 0.85 of a star's light."""
    camera = preset(name).detector
    count, time, area = 8, 17 * 72.944, np.pi * 0.21**2
    for micron, (limit, width) in ETC_LIMITS[name].items():
        zodiac = np.interp(micron, [1, 1.5, 2, 2.5, 3, 3.5], [0.215, 0.225, 0.187, 0.158, 0.121, 0.121])  # MJy/sr
        per_flux = camera.collecting_area * throughput(name, 1e4 * micron) * count * time  # electrons per W/m2/Hz
        per_flux *= width / (1e4 * micron) / constants.h
        source = 0.85 * limit * 1e-35 * per_flux
        background = zodiac * 1e-20 * area * (np.pi / 648000) ** 2 * per_flux
        detector = area / 0.1**2 * count * (camera.read_noise**2 + camera.dark_current / 3600 * time)
        assert source / np.sqrt(source + 2 * (background + detector)) == pytest.approx(10, rel=0.25)


SAMI_BLUE = [0.0984, 0.1509, 0.1650, 0.1666, 0.1281]
SAMI_RED = [0.2533, 0.2749, 0.2729, 0.2593]


@pytest.mark.parametrize(
    ("name", "ends", "wavelength", "published"),
    [
        ("sami_blue", (3650, 5800), [4000, 4500, 5000, 5400, 5600], SAMI_BLUE),
        ("sami_red_fibres", (6240, 7460), [6400, 6700, 7000, 7300], SAMI_RED),
    ],
)
def test_sami_has_the_throughput_of_its_standard_stars(name, ends, wavelength, published):
    """In standards/throughput of SAMI-Galaxy-Survey/sami (mean_throughput_E2V2A.fits, E2V3A.fits), in 2048 bins between
    the ends in its utils/sami580V_v1_7.idx and sami1000R_v1_7.idx: those of its spectra."""
    settings = preset(name)
    np.testing.assert_allclose(throughput(name, wavelength), published, rtol=0.01)
    assert np.diff(ends)[0] / 2047 == pytest.approx(settings.wavelength.step, rel=0.01)
    assert settings.detector.collecting_area == pytest.approx(0.847 * np.pi * (3.893 / 2) ** 2, rel=1e-3)


@pytest.mark.parametrize("name", ["sami_blue", "sami_red"])
def test_samis_fibres_are_as_wide_across_the_spectrum_as_along_it(name):
    settings = preset(name)
    sigma = settings.lsf.fwhm[0] / settings.wavelength.step / np.sqrt(8 * np.log(2))
    assert settings.detector.pixels_per_voxel == pytest.approx(2 * np.sqrt(np.pi) * sigma, rel=0.02)


HSIM = {
    0.55: (0.53546, 0.0, 0.018624, 0.000634, 0.94125),
    0.7: (0.61576, 0.9, 0.023339, 0.000176, 0.95650),
    0.875: (0.64409, 0.9575, 0.029560, 0.000725, 0.86524),
    1.0: (0.69757, 0.96, 0.027530, 0.000701, 0.88684),
    1.05: (0.70312, 0.96, 0.026149, 0.000946, 0.88295),
    1.15: (0.71423, 0.96, 0.023271, 0.001310, 0.87729),
    1.2: (0.71978, 0.96, 0.021772, 0.001405, 0.87583),
    1.6: (0.75527, 0.96, 0.013296, 0.000623, 0.90128),
    2.1: (0.76451, 0.97, 0.009999, 0.001008, 0.92369),
    2.2: (0.76505, 0.97, 0.008608, 0.001947, 0.92006),
    2.3: (0.76560, 0.97333, 0.009336, 0.006251, 0.91225),
}
"""micron: the telescope's reflectivity, the transmission of the lasers' dichroic, what a mirror and a lens lose, the
detector's efficiency; in hsim/sim_data/throughput of HARMONI-ELT/HSIM (commit 60c354a74ba9), linear between rows."""

HSIM_GRATINGS = {
    "harmoni_vr": {0.55: 0.18338, 0.7: 0.086128},
    "harmoni_izj": {1.0: 0.18083, 1.2: 0.10448},
    "harmoni_hk": {1.6: 0.24103, 2.2: 0.28854},
    "harmoni_iz": {0.875: 0.080372},
    "harmoni_j": {1.2: 0.040907},
    "harmoni_h": {1.6: 0.050316},
    "harmoni_k": {2.2: 0.077766},
    "harmoni_z_high": {0.875: 0.17185},
    "harmoni_j_short": {1.05: 0.195793},
    "harmoni_j_long": {1.15: 0.198925},
    "harmoni_h_high": {1.6: 0.18219},
    "harmoni_k_short": {2.1: 0.195796},
    "harmoni_k_long": {2.3: 0.198902},
}
"""micron: what each grating loses, in the same folder."""


@pytest.mark.parametrize("name", HSIM_GRATINGS)
def test_harmoni_has_the_throughput_and_detectors_of_hsim(name):
    """By sim_instrument.py: losses within the cryostat and at windows count on the whole aperture of 37 m, those of
    the relay's four mirrors on the telescope's area; the trap behind the dichroic takes 3 % more. config.py has areas
    and the average detectors."""
    camera = preset(name).detector
    visible, blue = name == "harmoni_vr", name in ("harmoni_vr", "harmoni_izj", "harmoni_iz", "harmoni_z_high")
    assert camera.collecting_area == (996.3 if blue else 896.3)
    assert camera.read_noise == (2 if visible else 6)
    assert camera.dark_current == pytest.approx(3600 * (0.00042 if visible else 0.0053), rel=0.01)
    aperture = np.pi * 18.5**2 / camera.collecting_area
    for micron, grating in HSIM_GRATINGS[name].items():
        telescope, dichroic, mirror, lens, detector = HSIM[micron]
        published = telescope * detector * (1 - mirror) ** 4 * (1 - 0.4 * lens) * (1 - aperture * 0.5 * lens) ** 2
        published *= (1 - aperture * (1 - (1 - mirror) ** 23)) * (1 - aperture * (1 - (1 - lens) ** 11))
        published *= 1 - aperture * grating
        if not visible:
            published *= (1 - aperture * (1 - dichroic)) * (1 - aperture * 0.03)
        assert throughput(name, 1e4 * micron) == pytest.approx(published, rel=0.02)
