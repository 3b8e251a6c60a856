"""A whole run from Python: what is written, what is refused and when, what `check` prints."""

import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest
from astropy.cosmology import Planck18
from astropy.io import fits

from rubix_like import ConfigError, Cube, load_config, run
from rubix_like.config.file_layouts import HEADER_BYTES
from rubix_like.extend import Progress
from rubix_like.runs.run import check_lines, compute, prepare
from rubix_like.runs.run_files import output_files
from rubix_like.runtime.words import format_bytes

INSTRUMENT = {"name": "muse", "fov": "2 arcsec", "wavelength": {"start": 4900, "stop": 5000}, "psf": None, "lsf": None}


def settings(**sections):
    return {
        "galaxy": {"reader": "synthetic", "n_stars": 100},
        "observation": {"redshift": 0.05, "inclination": "60 deg", "position_angle": "30 deg"},
        "instrument": INSTRUMENT,
        "devices": {"data": 1},
        **sections,
    }


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


NOISY = {"noise": {"signal_to_noise": 10}, "instrument": {**INSTRUMENT, "fov": "10 arcsec"}}


def check_size(config, path):
    """The expected size is that of the file."""
    size = path.stat().st_size
    (file,) = output_files(config, path)
    assert size <= file.n_bytes < 1.15 * (size + file.n_voxel)  # with a mask of a byte per voxel, which it has not


def test_the_returned_cube_is_the_written_one(tmp_path, monkeypatch):
    """Beside it stays nothing, also of a process that was killed as it wrote it; an interrupted write keeps it."""
    host = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:16]
    Path(f".rubix-like-{host}-ffffff012345-mine.fits").touch()
    cube = run(settings(**NOISY), "mine.fits")
    assert names(tmp_path) == ["mine.fits"]
    check_size(load_config(settings(**NOISY)), Path("mine.fits"))
    written = Cube.read("mine.fits")
    np.testing.assert_array_equal(np.asarray(cube.flux, dtype=np.float32), written.flux)
    np.testing.assert_array_equal(cube.mask, written.mask)
    assert dict(cube.meta) == dict(written.meta)

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    before = Path("mine.fits").read_bytes()
    monkeypatch.setattr(os, "pwrite", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(settings(**NOISY), "mine.fits")
    assert names(tmp_path) == ["mine.fits"]
    assert Path("mine.fits").read_bytes() == before


def test_configuration_in_every_form_goes_where_it_says(tmp_path):
    changed = {"output": {"path": "~/a.fits"}}
    config = load_config(settings(**changed))
    Path("run.yaml").write_text(config.to_yaml())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path))
        patch.setenv("RUBIX_LIKE_CACHE", str(tmp_path.parent / "cache"))
        cubes = [run(config)]
        for form in (settings(output={"path": "b.fits"}), "run.yaml", Path("run.yaml")):
            cubes.append(run(form, None if isinstance(form, dict) else Path("c.fits")))
    assert names(tmp_path) == ["a.fits", "b.fits", "c.fits", "run.yaml"]
    for cube in cubes[1:]:
        np.testing.assert_array_equal(cube.flux, cubes[0].flux)


def test_times_of_all_steps():
    progress, config = Progress(), load_config(settings(**{**NOISY, "noise": None}))
    compute(config, Path("cube.fits"), progress)
    check_size(config, Path("cube.fits"))
    assert list(progress.timings) == ["load", "plan", "compile", "run", "write"]
    assert all(seconds > 0 for seconds in progress.timings.values())


@pytest.mark.parametrize(
    ("name", "bundle", "layout", "n_file"),
    [
        pytest.param("manga_fibres", "manga-19", "manga", 1, marks=pytest.mark.slow(6)),
        pytest.param("sami_blue_fibres", "sami-61", "sami", 7, marks=pytest.mark.slow(6)),
    ],
)
def test_expected_sizes_are_those_of_the_files_of_fibres(tmp_path, name, bundle, layout, n_file):
    """Cube with its covariance, of MaNGA's layout in the band g, and row-stacked spectra; `check` lists these."""
    instrument = {"name": name, "fibres": {"bundle": bundle}, "wavelength": {"start": 4600, "stop": 4750}}
    chosen = {"noise": {"signal_to_noise": 20}, "engine": {"deposit": "nearest"}}
    output = {"path": "cube.fits", "layout": layout, "maps": False}
    changed = settings(instrument=instrument, output=output, **chosen)
    run(changed)
    (file,) = output_files(load_config(changed), Path("cube.fits"))
    size, spectra = (sum(path.stat().st_size for path in tmp_path.glob(own)) for own in ("cube.fits", "cube_rss*.fits"))
    assert size <= file.n_bytes < 1.05 * size + HEADER_BYTES
    assert spectra <= file.spectra_bytes < 1.05 * spectra + n_file * HEADER_BYTES
    assert names(tmp_path) == sorted(["cube.fits", *(path.name for path in file.spectra)])
    (line,) = (own for own in check_lines(prepare(load_config(changed), Progress())) if own.startswith("spectra"))
    assert all(path.name in line for path in file.spectra)
    assert len(file.spectra) == n_file
    run({**changed, "output": {"path": "cube.h5", "maps": False}}, quiet=True)
    (file,) = output_files(load_config(changed | {"output": {}}), Path("cube.h5"))
    size = Path("cube.h5").stat().st_size
    assert size <= file.n_bytes < 1.1 * size + HEADER_BYTES


@pytest.mark.usefixtures("optimised")
def test_the_truth_has_a_file_of_its_own(tmp_path):
    """The same layout and header without variance and noise; both sizes are known before."""
    instrument = {**INSTRUMENT, "fov": "11 arcsec"}
    points = {"instrument": instrument, "engine": {"deposit": "nearest"}}  # the same bits with noise and without
    exposed = settings(noise={"exposure": {"time": 600}, "keep_truth": True}, **points)
    cube = run(exposed, "Deep.fits.gz")
    assert names(tmp_path) == ["Deep.fits.gz", "Deep_truth.fits.gz"]
    truth = Cube.read("Deep_truth.fits.gz")
    np.testing.assert_array_equal(truth.flux, cube.truth)
    assert truth.variance is None
    clean = run(settings(**points), "clean.fits")
    np.testing.assert_array_equal(truth.flux, clean.flux)
    with fits.open("Deep_truth.fits.gz") as hdus:
        assert not {"NOISSEED", "EXPTIME", "NOISMOD"} & set(hdus[0].header)
    with fits.open("Deep.fits.gz") as hdus:
        header = hdus[0].header
        assert (header["EXPTIME"], header["NEXP"], header["SKYSPEC"], header["NOISSEED"]) == (600, 1, "dark", 1)
        assert header["NOISMOD"].startswith("Poisson (source, sky, dark)")
    run(exposed, "cube.FITS")
    size = Path("cube_truth.FITS").stat().st_size
    (file,) = output_files(load_config(exposed), Path("cube.FITS"))
    assert (file.truth, file.truth_bytes < 1.15 * (size + file.n_voxel)) == (Path("cube_truth.FITS"), True)
    assert size <= file.truth_bytes
    (bare,) = output_files(load_config(settings()), Path("cube.FITS"))
    assert (bare.truth, bare.truth_bytes) == (None, 0)


def test_both_files_are_looked_at_before_the_run():
    Path("cube_truth.fits").mkdir()
    with pytest.raises(IsADirectoryError, match=r"cube_truth\.fits"):
        run(settings(noise={"signal_to_noise": 5, "keep_truth": True}), "cube.fits")


def test_a_check_tells_of_the_second_file_and_of_dust():
    kept = load_config(settings(noise={"signal_to_noise": 5, "keep_truth": True}, dust={"a_v": 0.3}))
    lines = check_lines(prepare(kept, Progress()))
    assert [line for line in lines if line.startswith("truth ")] == [
        f"truth       {format_bytes(output_files(kept, Path('cube.fits'))[0].truth_bytes)}, in a second file"
    ]
    assert "dust        a screen in the galaxy, A(V) 0.3 mag, curve calzetti, R(V) 4.05" in lines


def test_without_a_galaxy(tmp_path):
    with pytest.raises(ConfigError, match="galaxy: expected a section with a reader"):
        run(settings(galaxy=None))
    assert names(tmp_path) == []


ABSENT = {"reader": "illustris", "path": "absent.hdf5"}


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"output": {"path": "absent/cube.fits"}}, FileNotFoundError, "the folder absent does not exist"),
        ({"ssp": {"library": "popstarr"}}, ConfigError, "did you mean 'popstar'"),
        ({"instrument": {**INSTRUMENT, "fov": "2e7 arcsec"}}, ConfigError, "a field of at most 100000 spaxels"),
        ({}, FileNotFoundError, "no file 'absent.hdf5'"),
    ],
)
def test_what_the_settings_alone_tell_is_refused_before_the_galaxy_is_read(tmp_path, changed, error, words):
    with pytest.raises(error, match=words):
        run(settings(galaxy=ABSENT, **changed))
    assert names(tmp_path) == []


def test_a_cube_beyond_all_memory_is_refused_before_the_galaxy_is_read():
    """Also where no file is to be written, as in `check`: 9e9 spaxels."""
    config = load_config(settings(galaxy=ABSENT, instrument={**INSTRUMENT, "fov": "19000 arcsec"}))
    with pytest.raises(ConfigError, match=r"memory: .* 95000 x 95000 spaxels x 81 bins .*instrument\.fov smaller"):
        prepare(config, Progress())


def test_check_lines_state_what_the_run_will_be(tmp_path):
    instrument = {**INSTRUMENT, "psf": {"fwhm": "1 arcsec"}, "wavelength": {"start": 1.6e6, "stop": 1.7e6, "step": 1e4}}
    prepared = prepare(load_config(settings(instrument=instrument)), Progress())
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in check_lines(prepared)}
    assert lines["galaxy"].startswith("synthetic: 100 stars, 0 gas particles")
    assert lines["ssp"] == "popstar"
    distance, scale = Planck18.luminosity_distance(0.05).value, Planck18.arcsec_per_kpc_proper(0.05).value
    assert f"{distance:.6g} Mpc (redshift 0.05, Planck18); {scale:.4g} arcsec per kpc" in lines["distance"]
    assert "10 x 10 spaxels of 0.2 arcsec, 11 bins of 1.6e+06-1.7e+06 Angstrom (air, linear)" in lines["cube"]
    margin = (prepared.pipeline.plan.margin,) * 2
    assert margin > (4, 4)  # 1 arcsec of FWHM is 5 spaxels
    assert f"painted on {10 + 2 * margin[0]} x {10 + 2 * margin[1]}" in lines["cube"]
    assert "1 x cpu" in lines["devices"]
    assert "available" in lines["memory"]
    assert "outside the SSP library" in lines["warning"]
    assert names(tmp_path) == []


def test_no_file_of_a_run_overwrites_another(tmp_path):
    noise = {"signal_to_noise": 10, "keep_truth": True}
    with pytest.raises(ConfigError, match=r"another file.*cube_truth.fits"):
        run(settings(noise=noise, products={"losvd": None}, output={"maps": "cube_truth.fits"}))
    pointings = [{"name": "truth"}, {"offset": ["1 arcsec", "0 arcsec"]}]
    observation = {"redshift": 0.05, "pointings": pointings}
    with pytest.raises(ConfigError, match=r"another file.*the name of a pointing"):
        run(settings(noise=noise, observation=observation))
    assert names(tmp_path) == []
