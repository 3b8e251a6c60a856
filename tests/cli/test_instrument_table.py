"""The table of instruments: a line per preset, as wide as there is room, against the files read here."""

import re

import pytest
import yaml
from command_line import main

from rubix_like.cli.listing import COLUMNS, instrument_table, instrument_text
from rubix_like.extend import resource, resource_names


@pytest.fixture(scope="module")
def table():
    return instrument_table()


def number(text):
    return float(str(text).split()[0])


def test_a_row_states_what_the_file_states(table):
    rows = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in table}
    assert tuple(rows) == resource_names("instruments")
    for name, row in rows.items():
        preset = yaml.safe_load(resource("instruments", name).read_text())
        if "based_on" in preset:
            continue
        wavelength = preset["wavelength"]
        assert row["spaxel"] == f"{number(preset['pixel_scale']):g}"
        start, stop = number(wavelength["start"]), number(wavelength["stop"])
        assert row["range (A)"] == f"{start:.0f}-{stop:.0f} {wavelength['medium'][:3]}"
        assert row["source"] == preset["source"].strip()
        assert row["telescope"] == preset["telescope"]


def test_fields_steps_and_resolutions(table):
    rows = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in table}
    fields = {name: rows[name]["field (arcsec)"] for name in ("muse", "manga_19", "sami_red", "califa_v500")}
    assert fields == {
        "muse": "60 x 60",
        "manga_19": "12.5 hexagon",
        "sami_red": "15 circle",
        "califa_v500": "74 x 64 hexagon",
    }
    assert [rows[name]["step"] for name in ("manga", "muse")] == ["1e-4 dex", "1.25"]
    for name in ("sami", "sami_fibres", "hector", "weave_lr"):  # each arm's
        blue, red = (rows[f"{name.partition('_f')[0]}_{arm}"]["range (A)"] for arm in ("blue", "red"))
        assert rows[name]["range (A)"] == f"{blue.removesuffix(' air')}, {red}"
    # 6.040 - 9.187e-4 x 7050 + 5.866e-8 x 7050^2 = 2.4787 at the middle of MUSE's range
    assert (rows["muse"]["FWHM"], rows["muse"]["R"]) == ("2.48", "2844")


def test_lines_fit_and_each_source_is_there_once(table):
    for width in (80, 150):
        text = instrument_text(table, width)
        assert max(map(len, text.splitlines())) <= width
        for name in resource_names("instruments"):
            assert len(re.findall(rf"^{name} ", text, re.M)) == 1
        flat = " ".join(text.split())
        sources = {row[-1] for row in table}
        for source in sources:  # one may begin like another
            assert flat.count(source) == sum(other.count(source) for other in sources)


@pytest.mark.parametrize(("columns", "width"), [("80", 80), (None, 100)])
def test_in_a_pipe_the_table_is_as_wide_as_the_variable_or_else_100(table, monkeypatch, capsys, columns, width):
    monkeypatch.setattr("sys.__stdout__", None)  # no terminal, as in a pipe
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    assert main(["list", "instruments"]) == 0
    assert capsys.readouterr().out == instrument_text(table, width) + "\n"
