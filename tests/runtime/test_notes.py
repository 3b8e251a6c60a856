"""Notes are text with a key and a severity; every key is made somewhere and says which mistake it guards against."""

import ast
import copy
import dataclasses
import json
import pickle
import re
from pathlib import Path

import h5py
import jax
import numpy as np
import pytest
from small import make_cube
from small_results import fit_result, sample_result

from rubix_like import Cube, FitResult, Note, ObservedCube, Pipeline, SampleResult, list_notes, load_config

PACKAGE = Path(__file__).resolve().parents[2] / "rubix_like"

NOTES = (
    Note("psf.widened", "stars are seen wider", "warning"),
    Note("data.beam", "each plane has its own beam"),
    Note("plug_in.fade", "it dims nothing", "warning"),
)


def keys_made():
    """First arguments of all calls of Note in the package."""
    paths = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "runtime" / "notes.py"]
    calls = [first for path in paths for first in re.findall(r"\bNote\(\s*([^,]+),", path.read_text())]
    assert len(calls) > 100
    return {ast.literal_eval(first) for first in calls}


def test_every_key_is_listed_and_every_listed_key_is_made():
    assert keys_made() | {"unknown"} == set(list_notes())


def test_keys_are_dotted_and_mistakes_are_sentences():
    assert list(list_notes()) == sorted(list_notes())
    for key, mistake in list_notes().rows:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+|unknown", key)
        assert re.fullmatch(r"[A-Z].*\.|log10.*\.|chi\^2.*\.|BUNIT.*\.", mistake), key


@pytest.mark.parametrize("key", ["psf.wider", "psf", "", "plug_in"])
def test_a_key_that_is_not_listed_is_refused(key):
    with pytest.raises(ValueError, match=rf"docs/notes\.md.*'plug_in\.', got '{key}'"):
        Note(key, "text")


def test_another_severity_is_refused():
    with pytest.raises(ValueError, match="expected the severity warning or remark, got 'error'"):
        Note("psf.widened", "text", "error")


def test_a_note_is_text():
    note = NOTES[0]
    assert note == "stars are seen wider"
    assert "wider" in note
    assert f"{note}" == note.text
    assert {note: 1}["stars are seen wider"] == 1
    assert json.loads(json.dumps([note])) == [note]
    assert type(note.text) is str
    assert note.mistake == dict(list_notes().rows)["psf.widened"]
    assert described(note.about("muse")) == ("psf.widened", "muse: stars are seen wider", "warning")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda note: pickle.loads(pickle.dumps(note))])
def test_copies_keep_key_and_severity(copied):
    assert [described(copied(note)) for note in NOTES] == [described(note) for note in NOTES]


def described(note):
    return note.key, note.text, note.severity


@pytest.mark.parametrize("made", [fit_result, sample_result])
def test_notes_come_back_from_the_file_of_a_result(made, tmp_path):
    result = dataclasses.replace(made(), notes=NOTES)
    read = type(result).read(result.write(tmp_path / "result.h5"))
    assert [described(note) for note in read.notes] == [described(note) for note in NOTES]


@pytest.mark.parametrize(("made", "kind"), [(fit_result, FitResult), (sample_result, SampleResult)])
def test_texts_of_a_file_without_keys_are_notes_of_an_unknown_key(made, kind, tmp_path):
    path = dataclasses.replace(made(), notes=NOTES).write(tmp_path / "result.h5")
    with h5py.File(path, "a") as file:
        assert list(file["notes"].asstr()) == [note.text for note in NOTES]
        del file["notes"].attrs["tags"]
    assert [described(note) for note in kind.read(path).notes] == [("unknown", note.text, "remark") for note in NOTES]


def test_a_key_of_a_newer_version_is_unknown_and_its_severity_stays(tmp_path):
    path = dataclasses.replace(fit_result(), notes=NOTES).write(tmp_path / "result.h5")
    with h5py.File(path, "a") as file:
        file["notes"].attrs["tags"] = ["warning psf.new_in_2040", "remark data.beam", "fatal data.beam"]
    assert [(note.key, note.severity) for note in FitResult.read(path).notes] == [
        ("unknown", "warning"),
        ("data.beam", "remark"),
        ("data.beam", "remark"),
    ]


@pytest.mark.parametrize("name", ["cube.fits", "cube.h5"])
def test_notes_come_back_from_the_file_of_a_cube(name, tmp_path):
    config = load_config("quickstart", {"observation.align": "none", "observation.align_radius": "2 kpc"})
    pipeline = Pipeline.from_config(config)
    cube = make_cube(meta=pipeline.frame.meta)
    read = Cube.read(cube.write(tmp_path / name)).meta.notes
    assert [described(note) for note in read] == [described(note) for note in pipeline.notes]
    assert ("settings.without_effect", "warning") in [(note.key, note.severity) for note in read]


def test_texts_in_a_header_without_keys_are_notes_of_an_unknown_key():
    meta = make_cube().meta.replace(note_1="a sentence", note_2="another")
    assert [described(note) for note in meta.notes] == [
        ("unknown", "a sentence", "remark"),
        ("unknown", "another", "remark"),
    ]


def test_an_observed_cube_has_notes():
    cube = make_cube()
    ones = np.ones(cube.shape)
    observed = ObservedCube(2 * ones, ones, ones > 0, cube.bins, cube.footprint, notes=(*NOTES, "a plain sentence"))
    assert [described(note) for note in observed.notes[:4]] == [
        *map(described, NOTES),
        ("unknown", "a plain sentence", "remark"),
    ]


def test_warnings_are_printed_first():
    result = dataclasses.replace(fit_result(), notes=(NOTES[1], "a plain sentence", NOTES[0]))
    assert result.summary().splitlines()[-3:] == [
        "Warning: stars are seen wider",
        "Note: each plane has its own beam",
        "Note: a plain sentence",
    ]
    assert [note.key for note in result.notes] == ["data.beam", "unknown", "psf.widened"]


def test_notes_are_static_parts_of_compiled_functions():
    """A cube with notes goes through jit, and equal notes do not compile again."""
    compiled = jax.jit(lambda cube: cube.flux.sum())
    for _ in range(2):
        compiled(dataclasses.replace(make_cube(), meta=make_cube().meta.replace(note_1=NOTES[0])))
    assert compiled._cache_size() == 1
