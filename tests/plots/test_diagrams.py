"""Diagrams of maps: BPT ratios, curves and pictures, and attenuation curves."""

import dataclasses

import numpy as np
import pytest
from command_line import main
from small import make_maps

from rubix_like import ConfigError, Maps
from rubix_like.cube.maps import AttenuationCurve, LineLabel, LineMaps
from rubix_like.extend import bpt_ratios, kauffmann_2003, kewley_2013, save_attenuation, save_bpt
from rubix_like.plots.figure import BPT_LINES, kewley_2001, save_maps

FLUX = {"Ha": 100.0, "Hb": 35.0, "[N II] 6583": 40.0, "[O III] 5007": 20.0}


def maps_with(names=BPT_LINES, width=True) -> Maps:
    """Four lines in equal ratios everywhere, but for a spaxel without light, one outside the aperture and one that has
    no Hb; Ha grows along x."""
    plain = make_maps()
    scale = np.broadcast_to(np.arange(1.0, 6.0), (3, 5)).copy()
    scale[0, 0] = 0.0
    lines = {}
    for name in names:
        flux = (FLUX[name] * scale).astype(np.float32)
        if name == "Hb":
            flux[0, 1] = 0.0
        lines[name] = LineMaps(flux, None, flux, flux, flux if width else None, flux if width else None)
    mask = np.zeros((3, 5), np.int32)
    mask[2, 4] = 2
    both = dataclasses.replace(plain.after, lines=lines)
    labels = tuple(LineLabel(name, 6564.6, 6900.0) for name in names)
    return dataclasses.replace(plain, before=both, after=both, mask=mask, lines=labels)


def test_ratios_are_those_of_spaxels_with_all_lines():
    ratios = bpt_ratios(maps_with())
    lit = np.ones((3, 5), bool)
    lit[0, :2] = lit[2, 4] = False
    assert (np.isfinite(ratios.nitrogen) == lit).all()
    assert (np.isfinite(ratios.oxygen) == lit).all()
    np.testing.assert_allclose(ratios.nitrogen[lit], np.log10(0.4), rtol=1e-5)
    np.testing.assert_allclose(ratios.oxygen[lit], np.log10(20 / 35), rtol=1e-5)
    assert ratios.words.startswith("EW")
    assert bpt_ratios(maps_with(width=False)).words.startswith("flux")
    with pytest.raises(ConfigError, match=r"BPT diagram: expected maps of Ha, Hb.*got Ha, Hb; .*products\.lines"):
        bpt_ratios(maps_with(("Ha", "Hb")))


def test_curves_are_those_of_the_papers():
    """By hand."""
    nitrogen = np.array([-0.45, -0.2])
    np.testing.assert_allclose(kauffmann_2003(nitrogen), [0.08, -1.14], atol=1e-12)
    np.testing.assert_allclose(kewley_2001(nitrogen), [0.526956522, 0.279552239], atol=1e-8)
    np.testing.assert_allclose(kewley_2013(nitrogen), [-0.548648649, -3.983333333], atol=1e-8)


def test_the_picture_names_its_curves(tmp_path):
    text = save_bpt(maps_with(), tmp_path / "bpt.svg").read_text()
    for word in ("Kauffmann+03", "Kewley+01", "Kewley+13, z = 0", "log [N II] 6583 / Hα", "EW(Hα) (Å)"):
        assert word in text
    dark = dataclasses.replace(maps_with(), mask=np.full((3, 5), 2, np.int32))
    assert "no spaxel has all four lines" in save_bpt(dark, tmp_path / "dark.svg").read_text()


@pytest.mark.long
def test_the_command_draws_lines_apart(tmp_path, capsys):
    maps_with().write(tmp_path / "maps.fits")
    assert main(["plot", str(tmp_path / "maps.fits"), "--output", str(tmp_path / "m.svg")]) == 0
    assert capsys.readouterr().out.count("Picture: ") == 3
    texts = {name: (tmp_path / f"m{name}.svg").read_text() for name in ("", "_lines", "_bpt")}
    assert "flux of Ha" in texts["_lines"]
    assert "flux of Ha" not in texts[""]
    assert "mass now" not in texts["_lines"]


def test_no_picture_is_written_where_another_cannot_be(tmp_path):
    maps_with().write(tmp_path / "maps.fits")
    for end in ("_lines", "_bpt"):
        (tmp_path / f"m{end}.svg").write_text("mine")
        with pytest.raises(ConfigError, match=f"m{end}.svg' is no file of rubix-like"):
            save_maps(tmp_path / "maps.fits", tmp_path / "m", ".svg")
        (tmp_path / f"m{end}.svg").unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["maps.fits"]


@pytest.mark.parametrize(
    ("first", "label", "words"), [(1000, "A / A(5500 Å)", "A(5500 Å) = 0.5"), (6000, "A (mag)", "")]
)
def test_a_curve_is_drawn_relative_to_v_where_it_reaches_there(first, label, words, tmp_path):
    """A(V) is found between two wavelengths, of a power law."""
    wavelength = np.geomspace(first, 2e4, 200)
    bare = np.full(200, 2.0)
    curve = AttenuationCurve(wavelength, bare, bare * 10 ** (-0.4 * 0.5 * (wavelength / 5500) ** -0.7))
    text = save_attenuation(dataclasses.replace(make_maps(), attenuation=curve), tmp_path / "curve.svg").read_text()
    assert label in text
    assert words in text
    relative = np.asarray(curve.relative)
    if words:
        assert float(curve.a_v) == pytest.approx(0.5, rel=1e-3)
        np.testing.assert_allclose(relative, (wavelength / 5500) ** -0.7, rtol=1e-3)
    else:
        assert np.isnan(relative).all()


def test_maps_without_dust_have_no_curve(tmp_path):
    with pytest.raises(ConfigError, match=r"attenuation curve: expected maps of dust, got none; set products"):
        save_attenuation(make_maps(), tmp_path / "curve.svg")
