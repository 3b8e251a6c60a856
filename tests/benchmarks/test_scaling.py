"""The cost model against the measurements that are kept, docs/scaling.md against both; the benchmark still runs."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scaling
import scaling_model
from quick_compiler import quick_environment
from scaling_model import CASES, H100, Rates, Sizes, case, errors, fitted, memory, operations, predicted, stored

DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"
STATED_TIME = (0.08, 0.2)
"""Median and largest relative error of the modelled processor time, as docs/scaling.md says."""

STATED_MEMORY = 0.2
"""Largest relative error of the modelled memory of a device."""


@pytest.mark.parametrize("method", ["basis", "direct"])
def test_the_model_reproduces_the_measured_times(method):
    off = np.abs(errors(stored(), method))
    assert len(off) >= 15
    median, largest = STATED_TIME
    assert np.median(off) <= median
    assert off.max() <= largest


@pytest.mark.parametrize("method", ["basis", "direct"])
def test_the_model_reproduces_the_measured_memory(method):
    rows = [row for row in stored()["memory"]["rows"] if row["method"] == method and "chunk" not in row]
    assert len(rows) >= 4
    for row in rows:
        found = sum(row[f"{kind}_bytes"] for kind in scaling.KINDS)
        assert abs(sum(memory(Sizes(**row["sizes"])).values()) / found - 1) <= STATED_MEMORY, scaling.layout_of(row)


def test_a_fit_finds_the_rates_of_which_the_times_are_made():
    found = json.loads(json.dumps(stored()))
    rates = {
        "basis": Rates(2e-8, 2e-9, 0.0, 3e-11, 2e-10, 1e-9, 3e-3),
        "direct": Rates(0.0, 0.0, 2e-8, 3e-11, 2e-10, 1e-9, 3e-3),
    }
    for name in scaling_model.FITTED_TABLES:
        for row in found[name]["rows"]:
            sizes = Sizes(**row["sizes"])
            row["least_cpu"] = sizes.n_device * rates[row["method"]].seconds(sizes)
    for method, own in fitted(found).items():
        np.testing.assert_allclose(dataclasses.astuple(own), dataclasses.astuple(rates[method]), rtol=1e-6, atol=1e-15)


def test_what_is_predicted_scales_as_it_should():
    """Twice the particles: twice reading and painting; twice the devices: half; the sums depend on neither."""
    one = case("basis", 25, 1, False)
    many = dataclasses.replace(one, n_particle=2 * one.n_particle)
    wide = dataclasses.replace(one, n_data=2 * one.n_data)
    base = predicted(one)
    assert predicted(many)["reading"] == 2 * base["reading"]
    assert predicted(many)["painting"] == 2 * base["painting"]
    assert predicted(many)["adding up"] == base["adding up"]
    assert predicted(wide)["painting"] == base["painting"] / 2
    assert predicted(wide)["adding up"] == pytest.approx(base["adding up"], rel=0.5)
    sharded = case("basis", 300, 1, True)
    assert operations(sharded)["sent"] == operations(case("basis", 300, 1, False))["sent"] / 2
    assert all(sum(memory(case(*own)).values()) < H100.memory for own in CASES.values())


@pytest.mark.parametrize("part", ["times", "model", "prediction"])
def test_the_page_shows_what_was_measured_and_modelled(part, capsys):
    """Every line of every table, as the benchmark prints it."""
    found = stored()
    if part == "times":
        scaling.show_all(found)
    elif part == "model":
        scaling_model.show_fit(found)
    else:
        scaling_model.show_prediction(fitted(found))
    page = DOCS.read_text().splitlines()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) > 5
    assert [line for line in lines if line not in page] == []


@pytest.mark.long
def test_the_benchmark_runs(tmp_path):
    """With tiny sizes: two layouts over virtual devices, two processes."""
    results = tmp_path / "scaling.json"
    command = [sys.executable, scaling.__file__, "--quick", "--repeat", "1", "--methods", "basis"]
    command += ["--tables", "layouts", "processes", "--results", str(results)]
    environment = {**os.environ, **quick_environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(results.read_text())
    assert [row["wall"] > 0 for row in found["layouts"]["rows"]] == [True, True]
    assert [row["processes"] for row in found["processes"]["rows"]] == [2]
    assert found["processes"]["sums"][0]["bytes"] == 4096
    assert "| basis | 1 | 1 | 4 x 2, sharded |" in done.stdout
