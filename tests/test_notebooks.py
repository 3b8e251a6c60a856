"""The notebooks run, at small sizes and on a cut-out made from the synthetic galaxy, and are what they say they are."""

import ast
import json
import re
from pathlib import Path

import jax
import matplotlib as mpl
import notebook_pages
import pytest
import run_notebooks
from small_cutout import write_cutout

PAGES = notebook_pages.NOTEBOOKS
MANY_DEVICES = ("8-devices",)


@pytest.fixture(scope="module")
def cutout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for a cut-out of IllustrisTNG."""
    return write_cutout(tmp_path_factory.mktemp("galaxy") / "cutout.hdf5")


@pytest.mark.slow(12)
@pytest.mark.usefixtures("jax_settings")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_runs(
    page: Path, cutout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Each cell draws as many figures as the page shows; where the page shows words, it prints some."""
    mpl.use("Agg")
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cutout.hdf5").symlink_to(cutout)
    devices = jax.devices()[: 4 if page.stem in MANY_DEVICES else 1]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "device_count", lambda: len(devices))
    known = [cell for _, cell in notebook_pages.cells(page.read_text(encoding="utf-8"))]
    found = list(run_notebooks.run_page(page, run_notebooks.SMALL.get(page.stem), pytestconfig.getoption("--long")))
    for cell, ran in zip(known, found, strict=True):
        if ran.skipped:
            assert ran.skipped == (cell.needs or "long")
            continue
        assert len(ran.pictures) == len(cell.pictures), cell.code
        assert bool(ran.text.strip()) == (cell.output is not None), cell.code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_a_notebook(page: Path) -> None:
    """Every block of Python is a cell, every picture of its folder is one of a cell, and nothing is lost."""
    text = page.read_text(encoding="utf-8")
    found = [cell for _, cell in notebook_pages.cells(text)]
    assert len(found) == len(re.findall(r"^```python$", text, re.M)) > 0
    assert text.count("```output") == sum(cell.output is not None for cell in found)
    assert text.count("](pictures/") == sum(len(cell.pictures) for cell in found) > 0
    made = notebook_pages.as_notebook(page)
    assert json.loads(json.dumps(made)) == made
    code = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    assert [cell["source"] for cell in code] == [cell.code.rstrip() for cell in found]
    for cell in code:
        ast.parse(cell["source"])
    prose = "".join(cell["source"] for cell in made["cells"] if cell["cell_type"] == "markdown")
    for line in re.sub(r"^```(python|output)\n.*?^```$", "", text, flags=re.M | re.S).splitlines():
        assert line in prose or line.startswith(("<!-- needs", "<!-- parameters", "<!-- long", "![")), line


def test_outputs_are_put_back_where_they_were() -> None:
    text = PAGES[0].read_text(encoding="utf-8")
    outputs = [cell.output or "" for _, cell in notebook_pages.cells(text)]
    assert notebook_pages.with_outputs(text, outputs) == text
    other = notebook_pages.with_outputs(text, ["new"] * len(outputs))
    assert [cell.output for _, cell in notebook_pages.cells(other)] == ["new\n"] * len(outputs)
    assert notebook_pages.with_outputs(other, outputs) == text


def test_the_pictures_are_those_of_the_pages_and_small() -> None:
    folder = PAGES[0].parent
    named = {path for page in PAGES for path in re.findall(r"\]\((pictures/[^)]+)\)", page.read_text("utf-8"))}
    stored = {f"pictures/{path.name}": path.stat().st_size for path in (folder / "pictures").glob("*")}
    assert set(stored) == named
    assert sum(stored.values()) < 1_500_000, stored


def test_the_cutout_is_read_as_one_of_illustris_tng(cutout: Path) -> None:
    """Half of it lies across the edge of the box, and masses are those of the synthetic galaxy."""
    import rubix_like as rl  # noqa: PLC0415

    galaxy, info = rl.load_galaxy(cutout), rl.load_galaxy_info(cutout)
    assert "synthetic" in info.simulation
    assert (info.n_stars, info.n_gas) == (1500, 400)
    assert float(galaxy.stars.initial_mass.sum()) == pytest.approx(1e10, rel=1e-5)
    assert abs(galaxy.stars.position).max() < 100
    assert float((galaxy.stars.log_age < 7.5).mean()) == pytest.approx(0.05, abs=0.02)
    assert float(galaxy.gas.star_formation_rate.sum()) == pytest.approx(2.0, rel=1e-5)
