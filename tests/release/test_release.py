"""What a release is made of says the same everywhere: version, date, dependencies, and how it is published."""

import json
import re
import tomllib
from datetime import date
from pathlib import Path

import jsonschema
import pytest
import yaml

from rubix_like import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
RECIPE = (ROOT / ".ci" / "conda" / "recipe.yaml").read_text()
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}

CONDA_NAMES: dict[str, str] = {}
"""Of packages that conda-forge calls otherwise than PyPI."""


def requirement(text: str) -> tuple[str, str]:
    """Name, in lower case with hyphens, and versions of a requirement."""
    name, versions = re.match(r"([\w.-]+)\s*(.*)", text).groups()
    return re.sub(r"[-_.]+", "-", name).lower(), versions.replace(" ", "")


@pytest.fixture(scope="module")
def recipe():
    """The recipe with its context put in."""
    context = yaml.safe_load(RECIPE)["context"]
    words = {"PYTHON": "python", **context}
    return yaml.safe_load(re.sub(r"\$\{\{ (\w+) \}\}", lambda found: words[found[1]], RECIPE))


def test_the_citation_is_valid():
    """By the schema of the format; dates are text there."""
    schema = json.loads((ROOT / "tests" / "release" / "cff-schema-1.2.0.json").read_text())
    stated = CITATION | {"date-released": CITATION["date-released"].isoformat()}
    jsonschema.validate(stated, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(stated | {"authors": []}, schema)
    assert CITATION["authors"] == PROJECT["authors"]
    assert CITATION["license"] == PROJECT["license"]


def test_the_version_and_its_date_are_the_same_everywhere(recipe):
    sections = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert sections[0] == ("Unreleased", "")
    dates = [date.fromisoformat(when) for _, when in sections[1:]]
    assert dates == sorted(dates, reverse=True)
    version, when = sections[1]
    assert version == __version__ == CITATION["version"] == recipe["package"]["version"]
    assert date.fromisoformat(when) == CITATION["date-released"]


def test_the_conda_recipe_has_the_requirements_of_the_project(recipe):
    """As grayskull would write it: the same names and versions, the commands, Python and what builds the package."""
    python, *run = recipe["requirements"]["run"]
    assert python == "python " + PROJECT["requires-python"]
    wanted = [requirement(own) for own in PROJECT["dependencies"]]
    assert [requirement(own) for own in run] == [(CONDA_NAMES.get(name, name), versions) for name, versions in wanted]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    host = {requirement(own) for own in recipe["requirements"]["host"]}
    assert {requirement(own) for own in build} <= host
    assert {"python", "pip"} <= {name for name, _ in host}
    commands = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands
    assert recipe["build"]["noarch"] == "python"
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
    assert all((ROOT / own).is_file() for own in PROJECT["license-files"])


def test_the_actions_are_pinned_by_their_major_version():
    used = [
        step["uses"]
        for flow in WORKFLOWS.values()
        for job in flow["jobs"].values()
        for step in job["steps"]
        if "uses" in step
    ]
    assert len(used) >= 8
    assert [own for own in used if not re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+)", own)] == []


def test_a_release_is_built_once_and_published_by_trust_alone():
    """Only the job that publishes may ask for the identity; it builds nothing, and no workflow has a secret."""
    release = WORKFLOWS["release"]
    jobs = release["jobs"]
    assert release["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert set(publish["needs"]) == {"build", "test"}
    assert publish["environment"] == "pypi"
    (last,) = (step for step in publish["steps"] if step["uses"].startswith("pypa/gh-action-pypi-publish@"))
    assert last["with"] == {"attestations": True}
    assert not any("run" in step for step in publish["steps"])
    builds = [step for job in jobs.values() for step in job["steps"] if "python -m build" in step.get("run", "")]
    assert len(builds) == 1
    texts = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    assert not any("secrets." in text or "password" in text for text in texts)


def pinned():
    """name -> version of every line of .ci/constraints.txt."""
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    return dict(own.split("==") for own in lines if not own.startswith("#"))


def test_the_constraints_hold_what_the_project_needs():
    """A version of every requirement of the package and of its tests that is not below the lowest one."""
    found = {requirement(name)[0]: version for name, version in pinned().items()}
    extras = PROJECT["optional-dependencies"]
    for name, versions in map(requirement, (*PROJECT["dependencies"], *extras["fit"], *extras["plots"])):
        lowest = re.search(r">=([\d.]+)", versions)[1]
        assert as_numbers(found[name]) >= as_numbers(lowest), name


def as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
