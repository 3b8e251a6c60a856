"""The command line with input that cannot be used, with odd input that must run, and as a new user types it."""

import csv
import os
import re
import resource as limits
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from astropy.io import fits
from command_line import main
from quick_compiler import quick_environment
from small import make_cube

from rubix_like import ConfigError, Cube, __version__
from rubix_like.extend import resource

REPOSITORY = Path(__file__).resolve().parents[2]

INSTRUMENT = "instrument={name: muse, fov: 2 arcsec, wavelength: {start: 4900, stop: 5000}, psf: null, lsf: null}"
SMALL = ("--set", INSTRUMENT, "galaxy.n_stars=100", "devices.data=1")

SCALE_FACTOR = 0.8
HEADER = {
    "BoxSize": 35000.0,
    "HubbleParam": 0.7,
    "Omega0": 0.3,
    "OmegaLambda": 0.7,
    "Redshift": 1 / SCALE_FACTOR - 1,
    "Time": SCALE_FACTOR,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def command(monkeypatch, cache, capsys, jax_settings):
    """Calls the command in an empty folder: (exit code, standard output, standard error). JAX is left as it was."""
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(cache))

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


def star_columns(n_stars=100):
    """A compact rotating disc in code units."""
    rng = np.random.default_rng(5)
    offset = rng.normal(size=(n_stars, 3)) * [0.3, 0.3, 0.03]
    return {
        "Coordinates": 17000.0 + offset,
        "Velocities": np.cross([0, 0, 1], offset) * 100,
        "Masses": rng.uniform(1e-5, 2e-5, n_stars),
        "GFM_InitialMass": rng.uniform(2e-5, 4e-5, n_stars),
        "GFM_Metallicity": rng.uniform(0.001, 0.03, n_stars),
        "GFM_StellarFormationTime": rng.uniform(0.2, 0.7, n_stars),
    }


def write_cutout(path, stars, header=HEADER):
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        if stars is not None:
            group = file.create_group("PartType4")
            for name, values in stars.items():
                group[name] = values
    return path


def assert_refused(outcome, *fragments):
    """Exit code 2, nothing on standard output, and one message that holds the fragments as its last words."""
    code, output, errors = outcome
    assert code == 2
    assert not output
    assert "Traceback" not in errors
    steps, found, message = errors.partition("rubix-like: ")
    assert found
    assert all(line.endswith((" ...", " s")) for line in steps.splitlines())
    for fragment in fragments:
        assert fragment in message


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("settings", "fragments"),
    [
        (["name=muse"], ["unknown key 'name'", "did you mean 'instrument.name'"]),
        (["observation.n_stars=3"], ["'observation.n_stars'", "did you mean 'galaxy.n_stars'"]),
        (["instrument=manga"], ["instrument", "expected a section", "'manga'"]),
        (["observaton.inclination=3 deg"], ["unknown key 'observaton'", "did you mean 'observation'"]),
        (["observation.redshift=-0.1"], ["observation.redshift", ">= 0", "-0.1"]),
        (["pipeline.foo=3"], ["'pipeline.foo'", "a section", "'stellar'"]),
        (["ssp.library=./foo.h5"], ["ssp.library", "./foo.h5", "no such file"]),
        (["instrument.wavelength={start: 2e9, stop: 2.1e9, step: 1e6, medium: vacuum}"], ["wavelength", "popstar"]),
        (["instrument.wavelength={start: 95.6, stop: 95.8, step: 0.1, medium: vacuum}"], ["wavelength", "km/s"]),
        (["observation.velocity_offset=1e5"], ["velocity", "below 26667 km/s", "observation.velocity_offset"]),
        (["observation.inclination"], ["--set", "KEY=VALUE", "'observation.inclination'"]),
        (["observation.inclination="], ["--set", "KEY=VALUE", "null"]),
        (["=3"], ["--set", "KEY=VALUE"]),
    ],
)
def test_settings_that_cannot_be_used_end_in_one_message(command, tmp_path, settings, fragments):
    assert_refused(command("run", "quickstart", *SMALL, *settings), *fragments)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        ("absent.yaml", None, ["no file 'absent.yaml'", "packaged: fit_synthetic, manga_tng, muse_tng, quickstart"]),
        ("bad.yaml", b"galaxy: {reader: synthetic\nobservation: 3", ["bad.yaml, line 2, column 12", "expected YAML"]),
        ("tab.yaml", b"galaxy:\n\treader: synthetic\n", ["tab.yaml, line 2"]),
        ("partial.yaml", b"galaxy: {reader: synthetic}\n", ["2 problems", "observation: expected", "instrument: exp"]),
    ],
)
def test_configurations_that_cannot_be_read(command, tmp_path, name, content, fragments):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = files(tmp_path)
    assert_refused(command("run", name), *fragments)
    assert_refused(command("check", name), *fragments)
    assert files(tmp_path) == before


def test_files_of_other_configurations_are_replaced_only_where_that_is_asked_for(command, tmp_path):
    """With --overwrite the run goes on, to the next thing that is wrong."""
    cube = make_cube()
    path = replace(cube, meta=cube.meta.replace(configuration="muse_tng")).write(tmp_path / "cube.fits")
    before, wrong = path.read_bytes(), "ssp.library=./foo.h5"
    said = [
        "'cube.fits' was made by the configuration 'muse_tng'",
        "'quickstart'",
        "--overwrite",
        "another place (--output ...)",
    ]
    assert_refused(command("run", "quickstart", *SMALL), *said)
    assert_refused(command("run", "quickstart", "--overwrite", *SMALL, wrong), "./foo.h5", "no such file")
    assert_refused(command("run", "quickstart", "--output", "other.fits", *SMALL, wrong), "no such file")
    assert (files(tmp_path), path.read_bytes()) == (["cube.fits"], before)


@pytest.mark.parametrize(
    ("stages", "fragments"),
    [
        (
            "scene: [orient, piont]\npaint: [stars]\n",
            ["mine.yaml: scene: unknown scene stage 'piont'", "did you mean 'point'"],
        ),
        ("scene: [orient]\npaint: [stars]\ncube: [{psf: {fwmh: 3}}]\n", ["'psf'", "no option 'fwmh'"]),
        ("scene: [orient]\npaint: []\n", ["paint", "at least 1"]),
    ],
)
def test_pipelines_that_cannot_be_built(command, tmp_path, stages, fragments):
    (tmp_path / "mine.yaml").write_text(stages)
    assert_refused(command("run", "quickstart", *SMALL, "pipeline=mine.yaml"), *fragments)
    assert files(tmp_path) == ["mine.yaml"]


def changed(name, index, value):
    stars = star_columns()
    stars[name][index] = value
    return stars


def without(name):
    stars = star_columns()
    del stars[name]
    return stars


@pytest.mark.parametrize(
    ("stars", "fragments"),
    [
        (without("GFM_Metallicity"), ["cutout.hdf5", "PartType4/GFM_Metallicity is missing", "has Coordinates"]),
        (changed("Coordinates", (7, 1), np.nan), ["PartType4/Coordinates", "finite", "nan", "(7, 1)"]),
        (changed("GFM_Metallicity", 3, 1.7), ["metallicity", "mass fractions", "1.7", "index 3"]),
        (star_columns(1), ["observation.align", "1 star", "align: none"]),
    ],
)
def test_cutouts_that_cannot_be_used(command, tmp_path, stars, fragments):
    write_cutout(tmp_path / "cutout.hdf5", stars)
    section = "galaxy={reader: illustris, path: cutout.hdf5}"
    assert_refused(command("run", "quickstart", "--set", section, INSTRUMENT, "devices.data=1"), *fragments)
    assert files(tmp_path) == ["cutout.hdf5"]


def write_truncated(path):
    write_cutout(path, star_columns(3000))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("make", "fragments"),
    [
        (lambda path: None, ["galaxy.path", "no file 'cutout.hdf5'", "set galaxy.path"]),
        (write_truncated, ["galaxy.path", "cannot be read", "is the download complete"]),
        (lambda path: write_cutout(path, star_columns(), {}), ["cutout.hdf5", "datasets or attributes are others"]),
    ],
)
def test_galaxy_files_that_cannot_be_read(command, tmp_path, make, fragments):
    make(tmp_path / "cutout.hdf5")
    before = files(tmp_path)
    section = "galaxy={reader: illustris, path: cutout.hdf5}"
    assert_refused(command("run", "quickstart", "--set", section, INSTRUMENT), *fragments)
    assert files(tmp_path) == before


def test_damaged_library_in_the_cache(command, tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    content = bytearray(resource("data", "popstar").read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "ssp").mkdir()
    (tmp_path / "ssp" / "bc03-miles.h5").write_bytes(content)
    outcome = command("run", "quickstart", *SMALL, "ssp.library=bc03-miles")
    assert_refused(outcome, "bc03-miles.h5", "damaged", "rubix-like ssp get bc03-miles")
    (tmp_path / "ssp" / "bc03-miles.h5").write_bytes(content[: len(content) // 2])
    assert_refused(command("ssp", "info", "bc03-miles"), "bc03-miles.h5", "damaged")


@pytest.mark.parametrize(
    ("output", "fragments"),
    [
        ("no/such/cube.fits", ["no/such/cube.fits", "does not exist", "mkdir -p"]),
        ("folder.fits", ["folder.fits", "it is a folder", "folder.fits/cube.fits"]),
        ("file.txt/cube.fits", ["file.txt is a file, not a folder"]),
        ("cube.png", ["output.path", ".fits", "'cube.png'", "cube.fits"]),
        ("cube", ["output.path", "'cube'", "write e.g. 'cube.fits'"]),
        ("", ["output.path", "the folder '.'"]),
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_the_galaxy_is_read(command, tmp_path, output, fragments):
    (tmp_path / "folder.fits").mkdir()
    (tmp_path / "file.txt").write_text("")
    before = files(tmp_path)
    absent = "galaxy={reader: illustris, path: absent.hdf5}"
    assert_refused(command("run", "quickstart", "--output", output, "--set", absent), *fragments)
    assert files(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(command, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert_refused(command("run", "quickstart", *SMALL), "no permission to write")
    finally:
        tmp_path.chmod(0o700)


def test_disk_that_fills_up_during_the_write_leaves_the_older_cube(command, tmp_path):
    """A limit on the size of files stands for the full disk: the write fails part of the way."""
    (tmp_path / "cube.fits").write_text("older")
    soft, hard = limits.getrlimit(limits.RLIMIT_FSIZE)
    assert command("run", "quickstart", "--output", "first.fits", *SMALL)[0] == 0
    limit = (tmp_path / "first.fits").stat().st_size // 2
    limits.setrlimit(limits.RLIMIT_FSIZE, (limit, hard))
    try:
        outcome = command("run", "quickstart", "--overwrite", *SMALL)
    finally:
        limits.setrlimit(limits.RLIMIT_FSIZE, (soft, hard))
    assert_refused(outcome, "cannot write cube.fits", "disk or the quota is full", "free some space")
    assert files(tmp_path) == ["cube.fits", "first.fits"]
    assert (tmp_path / "cube.fits").read_text() == "older"


def test_field_far_too_large_is_refused_at_once(command, tmp_path):
    """6000 x 6000 spaxels x 3281 bins: more than the disk or, where that is huge, the memory holds."""
    huge = ("instrument.fov=60 arcsec", "instrument.pixel_scale=0.01 arcsec", "instrument.wavelength.stop=9000")
    peak = limits.getrusage(limits.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    assert_refused(command("run", "quickstart", *SMALL, *huge), "GB")
    assert_refused(command("check", "quickstart", *SMALL, *huge), "GB")
    assert time.perf_counter() - start < 5
    assert limits.getrusage(limits.RUSAGE_SELF).ru_maxrss - peak < 200_000  # kB
    assert files(tmp_path) == []


def test_too_many_particles_for_any_memory(command, tmp_path):
    assert_refused(
        command("run", "quickstart", *SMALL, "galaxy.n_stars=1e14"), "memory", "set galaxy.n_stars or n_gas lower"
    )
    assert files(tmp_path) == []


def test_traceback_on_request(command):
    with pytest.raises(ConfigError, match="quikstart"):
        command("--traceback", "run", "quikstart")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["rum"], "invalid choice: 'rum'"),
        (["run"], "required: CONFIG"),
        (["list", "instrument"], "invalid choice: 'instrument' (choose from "),
        (["ssp"], "required: ACTION"),
        (["ssp", "fetch"], "invalid choice: 'fetch'"),
        (["check", "quickstart", "--output", "x.fits"], "unrecognized arguments: --output"),
        (["check", "quickstart", "--output", "x.fits"], "did you mean --set output.path=x.fits?"),
        (["run", "quickstart", "name=MUSE"], "did you mean --set instrument.name=muse?"),
        (["run", "quickstart", "--inclination", "30"], "did you mean --set observation.inclination=30?"),
        (["run", "quickstart", "--inclnation=30"], "did you mean --set observation.inclination=30?"),
        (["run", "quickstart", "--signal-to-noise", "30"], "did you mean --set noise.signal_to_noise=30?"),
        (["run", "quickstart", "--seed", "3"], "did you mean --set galaxy.seed=3 (or noise.seed or systematics.seed)?"),
        (["run", "quickstart", "--plto"], "did you mean --plot?"),
        (["simulate", "quickstart", "--seed", "3"], "did you mean --set simulate.seed=3?"),
        (["run", "quickstart", "observation.redshift=0.1"], "did you mean --set observation.redshift=0.1?"),
        (["run", "quickstart", "--qqqqq"], "unrecognized arguments: --qqqqq\n"),
    ],
)
def test_wrong_usage(capsys, arguments, words):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow(4)
def test_a_catalogue_is_checked_before_it_is_run(command, tmp_path):
    """Every row is; the first run is planned, nothing is computed or written."""
    (tmp_path / "list.csv").write_text("name,galaxy.n_stars\na,100\nb,120\n")
    (tmp_path / "views.csv").write_text("name,observation.inclination\nface,0\nedge,90\n")
    lists = ("--catalogue", "list.csv", "--views", "views.csv")
    code, text, errors = command("check", "quickstart", *lists, *SMALL)
    assert code == 0, errors
    lines = text.splitlines()
    assert lines[0].startswith("catalogue   4 runs of 2 galaxies, ")
    assert lines[1] == "folder      cube"
    assert "The first, a_face:" in lines
    assert any(line.startswith("  cube        10 x 10 spaxels") for line in lines)
    assert files(tmp_path) == ["list.csv", "views.csv"]
    (tmp_path / "list.csv").write_text("name,galaxy.n_stars\na,100\nb,-1\n")
    assert_refused(command("check", "quickstart", *lists[:2], *SMALL), "1 entries cannot be used", "galaxy.n_stars")
    assert_refused(command("check", "quickstart", *lists[2:], *SMALL), "--views: expected --catalogue")


@pytest.mark.slow(9)
def test_a_check_of_a_catalogue_says_what_the_run_will_record(command, tmp_path):
    """Both pass the good galaxies and name each of the others once, whatever its views, with the same reason and code;
    the second view of the good one sees nothing of it."""
    lacking = {"ageless": "GFM_StellarFormationTime", "still": "Velocities", "poor": "GFM_Metallicity"}
    for name, dataset in {"good": "", **lacking}.items():
        stars = {key: values for key, values in star_columns().items() if key != dataset}
        write_cutout(tmp_path / f"{name}.hdf5", stars)
    (tmp_path / "none.hdf5").write_bytes(b"nothing of the kind" * 20)
    (tmp_path / "list.csv").write_text("galaxy.path\n" + "".join(f"{path.name}\n" for path in tmp_path.glob("*.hdf5")))
    (tmp_path / "views.csv").write_text('name,observation.offset\nhere,"[0, 0]"\nbeside,"[300 arcsec, 0]"\n')
    (tmp_path / "run.yaml").write_text("galaxy: {reader: illustris}\nobservation: {redshift: 0.03}\n")
    words = ("run.yaml", "--catalogue", "list.csv", "--views", "views.csv", "--set", INSTRUMENT)
    code, checked, _ = command("check", *words)
    assert code == 1
    assert "The first, good_here:" in checked
    code, ran, log = command("run", *words)
    assert code == 1
    assert ran.startswith("Catalogue in cube: 2 done, 8 failed\n")
    with Path("cube/summary.csv").open() as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    for name, fragment in {"none": "none.hdf5", **lacking}.items():
        reason = rows[f"{name}_here"]["error"]
        assert fragment in reason
        assert f"Failed: {name}: {reason}\n" in checked
        assert f"Failed: {name} (2 views): {reason}\n" in ran
        assert (ran + log).count(reason) == 1
        assert len(re.findall(rf"\] {name}_\w+: failed", log)) == 1
    assert "outside the field" not in rows["good_here"]["notes"]
    assert "100 of 100 stars are outside the field" in rows["good_beside"]["notes"]
    assert "Warning: good_beside: 100 of 100 stars are outside the field" in ran


def run_small(command, *settings, output="cube.fits"):
    """The lines that a run prints, and its cube."""
    code, text, errors = command("run", "quickstart", "--output", output, *SMALL, *settings)
    assert code == 0, errors
    return text, Cube.read(output)


def test_run_says_what_it_wrote_and_a_second_one_compiles_nothing(command, tmp_path, cache):
    """Standard output holds the results alone; the second cube is compressed, and drawn."""
    code, text, errors = command("run", "quickstart", *SMALL)
    assert code == 0
    lines = text.splitlines()
    assert lines[0] == f"Cube written to cube.fits ({Path('cube.fits').stat().st_size / 1e3:.3g} kB)"
    assert lines[1] == "10 x 10 spaxels of 0.2 arcsec, 81 bins from 4899.38 to 5000.62 Angstrom (air, linear)"
    data = fits.getdata("cube.fits", "DATA")
    assert f"Total flux {data.sum(dtype=float) * 1.25e-20:.4g} erg/s/cm2" in lines[2]
    assert "Time: load" in text
    assert data.shape == (81, 10, 10)
    assert files(tmp_path) == ["cube.fits"]
    assert "..." not in text
    assert [line for line in errors.splitlines() if line.endswith("...")] == [
        "loading the galaxy ...",
        "planning the run ...",
        "compiling ...",
        "painting 100 stars on 1 device ...",
        "writing cube.fits ...",
    ]
    first = Path("cube.fits").stat().st_ino
    run_small(command)
    assert Path("cube.fits").stat().st_ino != first
    kept = files(cache)
    assert any(name.startswith("compiled/jit_observe") for name in kept)
    run_small(command)
    assert files(cache) == kept
    code, text, _ = command("run", "quickstart", "--plot", "--output", "cube.fits.gz", *SMALL)
    assert code == 0
    assert text.splitlines()[-1] == "Picture: cube.png"
    assert files(tmp_path) == ["cube.fits", "cube.fits.gz", "cube.png"]
    assert (tmp_path / "cube.fits.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert (tmp_path / "cube.png").read_bytes()[:4] == b"\x89PNG"
    np.testing.assert_array_equal(Cube.read("cube.fits.gz").flux, np.moveaxis(data, 0, -1))


def test_run_says_where_all_pointings_are(command, tmp_path):
    fields = "observation.pointings=[{}, {offset: [0.5, 0.3], field_angle: 30 deg, name: turned}]"
    code, output, errors = command("run", "quickstart", *SMALL, fields, "--output", tmp_path / "m.fits", "--plot")
    assert code == 0
    lines = output.splitlines()
    written = [f"Pointing written to {tmp_path / name}" for name in ("m_1.fits", "m_turned.fits")]
    size = f"{(tmp_path / 'm.fits').stat().st_size / 1e3:.3g} kB"
    assert lines[:3] == [*written, f"Mosaic of 2 pointings written to {tmp_path / 'm.fits'} ({size})"]
    assert lines[-1] == f"Picture: {tmp_path / 'm.png'}"
    assert "combining 2 pointings" in errors
    assert "(pointing turned)" in errors
    assert files(tmp_path) == ["m.fits", "m.png", "m_1.fits", "m_turned.fits"]


def test_one_star_without_alignment(command, tmp_path):
    write_cutout(tmp_path / "one.hdf5", star_columns(1))
    points = ("observation.align=none", "engine.deposit=nearest")
    _, cube = run_small(command, "galaxy={reader: illustris, path: one.hdf5}", *points)
    light = np.asarray(cube.flux).sum(axis=2)
    assert np.count_nonzero(light) == 1
    assert light[4:6, 4:6].sum() == light.sum()


def test_ages_and_metallicities_beyond_the_library_are_clamped_and_counted(command, tmp_path):
    stars = star_columns()
    stars["GFM_StellarFormationTime"][:4] = SCALE_FACTOR
    stars["GFM_Metallicity"][:6] = [0.3, 0.9, 0.0, -1e-16, 1e-6, 0.051]
    write_cutout(tmp_path / "odd.hdf5", stars)
    text, cube = run_small(command, "galaxy={reader: illustris, path: odd.hdf5}")
    share = 100 * stars["GFM_InitialMass"][:6].sum() / stars["GFM_InitialMass"].sum()
    assert "4 of 100 stars" in text
    assert f"6 of 100 stars ({share:.3g} % of the mass) are poorer or richer in metals" in text
    assert np.isfinite(cube.flux).all()
    header = fits.getheader("cube.fits")
    assert (header["NCLAMPA"], header["NCLAMPZ"]) == (4, 6)


def test_detector_partly_outside_the_library_is_flagged(command):
    settings = "instrument.wavelength={start: 1600000, stop: 1700000, step: 10000, medium: vacuum}"
    text, cube = run_small(command, settings)
    last = 1.6e6 * 1.05  # the library ends at 160 um in the rest frame
    edges = 1.595e6 + 1e4 * np.arange(12)
    outside = edges[1:] * np.exp(1000 / 299792.458) > last  # with room for 1000 km/s
    np.testing.assert_array_equal(np.asarray(cube.mask), np.broadcast_to(outside.astype(int), cube.mask.shape))
    assert f"{outside.sum()} of 11 bins lie outside the SSP library: masked (DQ 1)" in text
    assert 0 < outside.sum() < 11
    assert "Warning: " in text
    assert "spectra.not_covered" in [note.key for note in cube.meta.notes]


def test_all_stars_outside_the_field(command):
    away = "observation.offset=[500 arcsec, 0 arcsec]"
    text, cube = run_small(command, away, "noise.signal_to_noise=10")
    assert "100 of 100 stars (100 % of the mass) are outside the field" in text
    assert not np.any(cube.flux)
    assert not np.any(cube.variance)
    assert not np.any(cube.ivar)
    assert "Noise: S/N 10 was asked for, but none was added" in text


def test_one_star_in_the_middle_of_the_only_voxel(command):
    """Nearest gives the voxel all its light, tsc 3/4 of it along each axis."""
    sizes = "disc_scale_length: 1 pc, disc_scale_height: 0.1 pc, bulge_effective_radius: 1 pc"
    galaxy = f"galaxy={{reader: synthetic, n_stars: 1, {sizes}}}"
    totals = {}
    for deposit in ("nearest", "tsc"):
        one = ("instrument.fov=0.2 arcsec", "instrument.wavelength.stop=4900", "observation.align=none")
        text, cube = run_small(command, galaxy, *one, f"engine.deposit={deposit}")
        assert cube.flux.shape == (1, 1, 1)
        assert "1 x 1 spaxels of 0.2 arcsec, 1 bin" in text
        assert "too few stars to sample the bulge" in text
        totals[deposit] = float(np.asarray(cube.flux).sum())
    assert totals["nearest"] > 0
    assert totals["tsc"] == pytest.approx(0.75**2 * totals["nearest"], rel=1e-2)


def test_redshift_0_at_a_distance(command):
    """100 times farther away, and on spaxels that look at the same kpc: 1e4 times less light in each."""
    cubes = []
    for distance, side in (("10 Mpc", 600), ("1000 Mpc", 6)):
        field = (f"instrument.fov={side} arcsec", f"instrument.pixel_scale={side / 10} arcsec")
        cubes.append(run_small(command, "observation.redshift=0", f"observation.distance={distance}", *field)[1])
    near, far = (np.asarray(cube.flux) for cube in cubes)
    np.testing.assert_allclose(far, near / 1e4, rtol=1e-4, atol=1e-7 * near.max())


def test_two_bins_at_high_redshift_in_double_precision(command):
    settings = ("observation.redshift=6", "instrument.wavelength.stop=4901.25", "engine.precision=float64")
    _, cube = run_small(command, *settings)
    assert cube.flux.shape == (10, 10, 2)
    np.testing.assert_allclose(cube.wavelength, [4900, 4901.25])
    np.testing.assert_allclose(cube.wave_edges, [4899.375, 4900.625, 4901.875])
    assert np.asarray(cube.flux).min() >= 0
    assert float(np.asarray(cube.flux).sum()) > 0
    header = fits.getheader("cube.fits")
    assert (header["REDSHIFT"], header["PRECISIO"]) == (6, "float64")


def test_picture_that_cannot_be_written_is_refused_before_the_run(command, tmp_path):
    (tmp_path / "cube.png").mkdir()
    assert_refused(command("run", "quickstart", "--plot", *SMALL), "cube.png", "it is a folder")
    assert files(tmp_path) == ["cube.png"]


def test_paths_of_configuration_and_output(command, tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "there" / "mine.yaml").write_text(resource("configs", "quickstart").read_text())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for config, output in [
        ("there/mine.yaml", tmp_path / "there" / "a.fits"),
        (tmp_path / "there" / "mine.yaml", "b.fits"),
        ("there/mine.yaml", "~/c.fits"),
    ]:
        assert command("run", config, "--output", output, *SMALL)[0] == 0
    assert command("run", "there/mine.yaml", *SMALL, "output.path=~/d.fits")[0] == 0
    made = [name for name in files(tmp_path) if name.endswith("fits")]
    assert made == ["b.fits", "home/c.fits", "home/d.fits", "there/a.fits"]


def test_check_prints_and_writes_nothing(command, tmp_path):
    code, text, _ = command("check", "quickstart", *SMALL)
    assert code == 0
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert "100 stars" in lines["galaxy"]
    assert "10 x 10 spaxels of 0.2 arcsec, 81 bins of 4900-5000 Angstrom" in lines["cube"]
    assert "popstar" in lines["ssp"]
    assert "1 x cpu" in lines["devices"]
    assert {"distance", "velocities", "engine", "memory", "file"} <= set(lines)
    assert files(tmp_path) == []


def test_check_refuses_the_output_that_run_would_refuse(command):
    assert_refused(command("check", "quickstart", *SMALL, "output.path=absent/cube.fits"), "absent does not exist")
    unlikely = "fit={free: {dust.a_v: {uniform: [1, 0]}}}"
    assert_refused(command("check", "quickstart", *SMALL, unlikely), "fit.free.dust.a_v: expected low < high")
    disc = "{name: disc, mass: 1e9, light: {profile: exponential, scale_length: 1}, "
    disc += "population: {log_age: 9, metallicity: 0.02}}"
    misspelt = [
        f"galaxy={{reader: components, components: [{disc}]}}",
        "fit.free.galaxy.disk.mass={log_normal: [1e9, 1]}",
    ]
    named = "fit.free.galaxy.disk.mass: expected the name of a component after 'galaxy.' (disc), got 'disk'"
    assert_refused(command("check", "quickstart", *SMALL, *misspelt), named)


def test_libraries(command, tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    packaged = resource("data", "popstar")
    assert "Chabrier" in command("ssp", "info", "popstar")[1]
    assert str(tmp_path / "cache" / "ssp" / "mine.h5") in command("ssp", "import", packaged, "--name", "mine")[1]
    assert re.search("^mine +in the cache", command("ssp", "list")[1], re.M)
    assert f"Library popstar is in {packaged}" in command("ssp", "get", "popstar")[1]
    assert_refused(command("ssp", "get", "bc03"), "'bc03'", "did you mean 'bc03-lr'")
    assert_refused(command("ssp", "info", "popsta"), "did you mean 'popstar'")
    assert_refused(command("ssp", "import", "absent.h5"), "no such file or folder: absent.h5")
    (tmp_path / "text.h5").write_text("hello")
    assert_refused(command("ssp", "import", "text.h5"), "text.h5", "known layouts")
    assert files(tmp_path) == ["cache", "cache/ssp", "cache/ssp/mine.h5", "text.h5"]


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"rubix-like {__version__}\n"


def start(cache, *arguments, program=("-m", "rubix_like.cli"), **options):
    """The command as a process of its own, for what only a process shows."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "RUBIX_LIKE_CACHE": str(cache)}
    environment |= quick_environment()
    environment.pop("PYTHONUNBUFFERED", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([sys.executable, *program, *map(str, arguments)], env=environment, **pipes)


# The command, which tells of it and waits when its cube is written but for its name: a signal that comes while numpy
# decodes strings may be lost (numpy 2.4).
WAITS_BEFORE_THE_NAME = """
import os, sys, time
from rubix_like.cli.main import main
replace = os.replace
def wait(old, new):
    if str(new).endswith("cube.fits.gz"):
        print("written", flush=True)
        time.sleep(300)
    replace(old, new)
os.replace = wait
sys.exit(main())
"""


@pytest.fixture
def interruptible():
    """A shell's background jobs ignore Ctrl-C, and so would what they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "rubix-like: interrupted; nothing was left half-written\n"),
        pytest.param(signal.SIGTERM, 143, "", marks=pytest.mark.long),
    ],
)
def test_interruption_while_the_cube_is_written(cache, tmp_path, number, code, said):
    (tmp_path / "cube.fits.gz").write_text("older")
    arguments = ("run", "quickstart", "--overwrite", "--output", tmp_path / "cube.fits.gz", *SMALL)
    with start(cache, *arguments, program=("-c", WAITS_BEFORE_THE_NAME)) as process:
        try:
            line = process.stdout.readline()
            begun = len(files(tmp_path)) == 2  # with the temporary file
            process.send_signal(number)
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert line == "written\n", errors
    assert begun, errors
    assert process.returncode == code
    assert output == ""
    assert errors.endswith(said)
    assert "Traceback" not in errors
    assert files(tmp_path) == ["cube.fits.gz"]
    assert (tmp_path / "cube.fits.gz").read_text() == "older"


def test_output_into_a_pipe_whose_reader_has_gone(cache):
    reader, writer = os.pipe()
    os.close(reader)
    process = start(cache, "list", "instruments", stdout=writer)
    os.close(writer)
    _, errors = process.communicate(timeout=60)
    assert errors == ""
    assert process.returncode == 141


@pytest.mark.usefixtures("without_matplotlib")
def test_picture_without_matplotlib(command, tmp_path):
    assert_refused(command("run", "quickstart", "--plot", *SMALL), "matplotlib", "rubix-like[plots]")
    assert files(tmp_path) == []
