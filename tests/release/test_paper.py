"""The paper: its tables are those of the benchmarks and tests, its citations are all in the bibliography."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAPER = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
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
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| bc03-\w+ \| 1e\d \|.*$", PAPER, re.M)
    assert len(rows) == 8
    for row in rows:
        library, number, run, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        assert re.search(rf"^\| {library} \| {number} \| \d+ \| \d+ \| [\d.]+ \| [\d.]+ \| {run} \|", benchmarks, re.M)


def test_the_figures_in_its_text_are_those_of_the_benchmarks():
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for figure in ("424", "1379", "0.59", "14 GB", "1.03 to 1.54", "25 x 25", "3721 bins"):
        assert figure in " ".join(PAPER.split()), figure
        assert figure in " ".join(benchmarks.replace("\n", " ").split()), figure


def test_citations_and_entries_are_the_same():
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8"), re.M)
    body = PAPER.partition("# Summary")[2]
    assert sorted(entries) == sorted(set(re.findall(r"@(\w+)", body)))
    assert len(entries) == len(set(entries))


def test_it_has_the_sections_of_the_journal():
    assert tuple(re.findall(r"^# (.+)$", PAPER, re.M)) == SECTIONS
    words = re.sub(r"<!-- table.*?end of table -->", "", PAPER.partition("# Summary")[2], flags=re.S).split()
    assert 750 <= len(words) <= 1750
