"""The table of instruments: one line per preset in a pipe, fitted to a terminal, against the files read here."""

import io
import re
import sys

import pytest
import yaml

from rubix_like.cli.listing import COLUMNS, instrument_table, print_table, wrapped_table
from rubix_like.runtime.resources import resource, resource_names
from rubix_like.runtime.text_tables import table_lines


def number(text):
    return float(str(text).split()[0])


def test_a_row_states_what_the_file_states():
    rows = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in instrument_table()}
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


def test_fields_steps_and_resolutions():
    rows = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in instrument_table()}
    fields = {name: rows[name]["field (arcsec)"] for name in ("muse", "manga_19", "sami_red", "califa_v500")}
    assert fields == {
        "muse": "60 x 60",
        "manga_19": "12.5 hexagon",
        "sami_red": "15 circle",
        "califa_v500": "74 x 64 hexagon",
    }
    assert [rows[name]["step"] for name in ("manga", "muse")] == ["1e-4 dex", "1.25"]
    # 6.040 - 9.187e-4 x 7050 + 5.866e-8 x 7050^2 = 2.4787 at the middle of MUSE's range
    assert (rows["muse"]["FWHM"], rows["muse"]["R"]) == ("2.48", "2844")


def test_plain_text_has_one_aligned_line_per_preset(capsys):
    print_table(instrument_table())
    title, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(resource_names("instruments"))
    column = title.index("source")
    assert all(line[column - 2 : column] == "  " and line[column] != " " for line in lines)
    assert lines == table_lines([COLUMNS, *instrument_table()])[1:]


@pytest.mark.parametrize("width", [80, 100, 150])
def test_a_terminal_gets_lines_that_fit_and_each_source_once(width):
    text = wrapped_table(instrument_table(), width)
    assert max(map(len, text.splitlines())) <= width
    for name in resource_names("instruments"):
        assert len(re.findall(rf"^{name} ", text, re.M)) == 1
    flat = " ".join(text.split())
    for source in {row[-1] for row in instrument_table()}:
        assert flat.count(source) == 1


class Terminal(io.StringIO):
    """Text that says it goes to a terminal."""

    def isatty(self):
        return True


def test_on_a_terminal_the_table_is_fitted(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    print_table(instrument_table()[:2])
    assert terminal.getvalue() == wrapped_table(instrument_table()[:2], 100) + "\n"
