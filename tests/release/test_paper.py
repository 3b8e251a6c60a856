"""The paper: its tables are those of the benchmarks and tests, its citations are all in the bibliography."""

import importlib
import re
from pathlib import Path

from rubix_like.extend import resource_names

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
PAPER = (ROOT / "docs" / "paper" / "paper.md").read_text(encoding="utf-8")
SECTIONS = (
    "Summary",
    "Statement of need",
    "State of the field",
    "Software design",
    "Research impact statement",
    "Acknowledgements",
    "References",
)


def test_the_tables_are_made_from_benchmarks_and_tests():
    tables = importlib.import_module("write_tables")
    assert tables.with_tables(PAPER) == PAPER, "python docs/write_tables.py"
    assert PAPER.count("<!-- table: ") == PAPER.count("\\label{tab:") == 2
    rows = re.findall(r"^\| bc03-\w+ \| 1e\d \|.*$", PAPER, re.M)
    assert len(rows) == 8
    for row in rows:
        library, number, run, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        assert re.search(rf"^\| {library} \| {number} \| \d+ \| \d+ \| [\d.]+ \| [\d.]+ \| {run} \|", BENCHMARKS, re.M)


def rows_of(section):
    """The tables' cells in a section of the page on benchmarks, row by row."""
    text = BENCHMARKS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_the_figures_in_its_text_are_those_of_the_benchmarks():
    """Each from its own column or sentence there, in its own sentence here."""
    text, benchmarks = (" ".join(own.split()) for own in (PAPER, BENCHMARKS))
    ratios = [float(own) for row in rows_of("Beside RUBIX") if row[0] == "1e6" for own in row[-1].split(",")]
    assert len(ratios) == 5
    assert f"took RUBIX 0.0.5 between {min(ratios):g} and {max(ratios):g} times as long" in text

    gradients = rows_of("Derivatives")
    column = gradients[0].index("peak GB")
    (ours,) = (row[column] for row in gradients if row[0] == "1e5" and row[-1] == "")
    (memory, particles) = re.search(r"runs out of memory \((\d+ GB)\) at (1e\d)", benchmarks).groups()
    assert particles == "1e5"
    assert f"took {ours} GB for 1e5 particles, where those of RUBIX 0.0.5 ran out of {memory};" in text

    number, error = re.search(
        r"In (\d+) random windows .{1,99}? the stated error is (.*? times the true one)", benchmarks
    ).groups()
    assert f"({error} in {number} random set-ups)" in text

    field, tolerance = re.search(
        r"RUBIX's MUSE grid: (25 x 25 spaxels, \d+ bins) .*?; tolerance ([\de-]+)", benchmarks
    ).groups()
    assert f"for {field.replace(', ', ' and ')} at a tolerance of {tolerance}" in text
    assert f"presets of {len(resource_names('instruments'))} instrument set-ups" in text


def test_citations_and_entries_are_the_same():
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "paper" / "paper.bib").read_text(encoding="utf-8"), re.M)
    body = PAPER.partition("# Summary")[2]
    assert sorted(entries) == sorted(set(re.findall(r"@(\w+)", body)))
    assert len(entries) == len(set(entries))


def test_it_has_the_sections_of_the_journal():
    assert tuple(re.findall(r"^# (.+)$", PAPER, re.M)) == SECTIONS
    words = re.sub(r"<!-- table.*?end of table -->", "", PAPER.partition("# Summary")[2], flags=re.S).split()
    assert 750 <= len(words) <= 1750
