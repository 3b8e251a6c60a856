"""The documentation is true: its examples run, its configurations load, its commands parse, its links resolve."""

import importlib.util
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import pytest
from command_line import main, make_parser

import rubix_like
from rubix_like import RunConfig, extend, list_products, list_readers, list_stages, load_config, load_instrument
from rubix_like.config import load_pipeline
from rubix_like.config.yaml_files import parse_yaml
from rubix_like.extend import load_field_map, resource_names
from rubix_like.inference.posterior.priors import PRIORS

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = tuple(sorted(["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in REPOSITORY.glob("docs/*.md"))]))
NOTEBOOKS = tuple(sorted(f"docs/notebooks/{path.name}" for path in REPOSITORY.glob("docs/notebooks/*.md")))
"""Their examples are run by tests/test_notebooks.py."""


_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
_FILE_NAME = re.compile(r"# ([\w-]+\.\w+)\n")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block; `mark` is the HTML comment in the line before it, `file_name` the comment in its first line."""

    language: str
    text: str
    mark: str
    line: int

    @property
    def file_name(self) -> str | None:
        found = _FILE_NAME.match(self.text)
        return found[1] if found else None

    @property
    def skipped(self) -> bool:
        return self.mark.startswith("not run: ")


def read_blocks(page: str, *languages: str) -> list[Block]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    blocks = [
        Block(m["language"], m["text"], m["mark"] or "", text.count("\n", 0, m.start("text")))
        for m in _BLOCK.finditer(text)
    ]
    assert text.count("```") == 2 * len(blocks), f"{page}: a fence that is not a block"
    return [block for block in blocks if block.language in languages]


def pages_with(*languages: str) -> list[str]:
    return [page for page in PAGES if read_blocks(page, *languages)]


def commands(page: str) -> list[tuple[Block, list[str]]]:
    """The words of every `rubix-like` command in the console and bash blocks of a page, redirections left out."""
    found = []
    for block in read_blocks(page, "console", "bash"):
        for line in block.text.splitlines():
            for part in line.removeprefix("$ ").split("&&"):
                words = shlex.split(part.split(" > ")[0])
                if words and words[0].rpartition("/")[2] == "rubix-like":
                    found.append((block, words[1:]))
    return found


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a cache of its own, from which Python imports."""
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install_entry_points(toml: str, folder: Path) -> None:
    """What pip would leave of a package with this `pyproject.toml`: its metadata, found on Python's path."""
    project = tomllib.loads(toml)["project"]
    place = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in members.items())])
        for group, members in project["entry-points"].items()
    ]
    (place / "entry_points.txt").write_text("\n\n".join(groups) + "\n")


def prepare_files(page: str, folder: Path) -> None:
    """The files that a page names in the first line of a block, and the entry points that it announces."""
    for block in read_blocks(page, "toml"):
        install_entry_points(block.text, folder)
    for block in read_blocks(page, "python", "yaml"):
        if block.file_name:
            (folder / block.file_name).write_text(block.text, encoding="utf-8")


QUICK_PAGES = ("README.md",)
MANY_DEVICES = ("docs/devices.md", "docs/distributed.md")
"""Pages whose examples run on all of the tests' devices; the others on one, as most readers have."""


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=() if p in QUICK_PAGES else pytest.mark.slow) for p in pages_with("python")]
)
def test_the_examples_run(page: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page not in MANY_DEVICES:
        one = jax.devices()[:1]
        monkeypatch.setattr(jax, "devices", lambda: one)
        monkeypatch.setattr(jax, "device_count", lambda: 1)
    prepare_files(page, desk)
    namespace: dict[str, Any] = {"__name__": "example"}
    for block in read_blocks(page, "python"):
        if block.skipped or block.file_name:
            continue
        source = "\n" * block.line + block.text  # so that a traceback names the line of the page
        exec(compile(source, page, "exec"), namespace)


def test_the_plug_ins_of_the_worked_example_are_listed(desk: Path) -> None:
    prepare_files("docs/how-to-extend.md", desk)
    assert "Reads a text table of stars." in dict(list_readers().rows)["star-table"]
    assert dict(list_readers().rows)["toy"] == "Toy simulation"
    assert {"young", "glow", "star_number", "crowding"} <= set(dict(list_stages().rows))
    assert list_products().names == ("star_metals",)


@pytest.mark.install
def test_the_package_of_the_worked_example_installs(desk: Path) -> None:
    """Installed by pip from the files that the page shows; a command elsewhere knows its members."""
    source, installed = desk / "source", desk / "installed"
    source.mkdir()
    (project,) = read_blocks("docs/how-to-extend.md", "toml")
    (source / "pyproject.toml").write_text(project.text)
    for block in read_blocks("docs/how-to-extend.md", "python", "yaml"):
        if block.file_name:
            (source / block.file_name).write_text(block.text, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(installed), str(source)]
    subprocess.run(pip, check=True)
    path = os.pathsep.join([str(installed), str(REPOSITORY)])
    for kind, names in {"readers": ("star-table ", "toy "), "stages": ("young ", "glow ", "screen ")}.items():
        listed = subprocess.run(
            [sys.executable, "-m", "rubix_like", "list", kind],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert all(f"\n{name}" in listed for name in names), listed
        assert "cannot be used" not in listed


def test_the_report_of_the_page_on_inputs_is_true(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file of its first example, inspected: the lines that the page shows are there, in their order."""
    exec(compile(read_blocks("docs/inputs.md", "python")[0].text, "docs/inputs.md", "exec"), {})
    (block,) = read_blocks("docs/inputs.md", "text")
    assert main(["inspect", "cutout.hdf5"]) == 0
    report = capsys.readouterr().out.splitlines()
    places = [report.index(line) for line in block.text.splitlines()]
    assert places == sorted(places)


def check_yaml(block: Block, folder: Path) -> None:
    """Load a block as what its keys say it is: a run (the rest from the quickstart), a pipeline, a preset, a map."""
    keys = set(parse_yaml(block.text, "block"))
    path = folder / "block.yaml"
    path.write_text(block.text, encoding="utf-8")
    if keys <= set(RunConfig.model_fields):
        quickstart = load_config("quickstart")
        load_config({name: getattr(quickstart, name) for name in RunConfig.model_fields} | parse_yaml(block.text, ""))
    elif {"title", "stars"} <= keys:
        load_field_map(str(path))
    elif "paint" in keys:
        load_pipeline(str(path))
    elif keys & {"pixel_scale", "based_on"}:
        load_instrument(str(path))
    else:
        pytest.fail(f"neither a run, a pipeline, an instrument nor a field map: {sorted(keys)}")


@pytest.mark.parametrize("page", pages_with("yaml"))
def test_the_configurations_load(page: str, desk: Path) -> None:
    prepare_files(page, desk)
    for block in read_blocks(page, "yaml"):
        whole = {"observation", "instrument"} <= set(parse_yaml(block.text, page))
        if whole:
            load_config(parse_yaml(block.text, page))
        check_yaml(block, desk)


@pytest.mark.parametrize("page", [page for page in (*PAGES, *NOTEBOOKS) if commands(page)])
def test_the_commands_parse(page: str, desk: Path) -> None:
    for _, words in commands(page):
        options = make_parser().parse_args(words)
        if getattr(options, "config", None) in resource_names("configs"):
            load_config(options.config, overrides=dict(pair.split("=", 1) for pair in options.set))


MARKED = dict.fromkeys(tuple(words) for page in PAGES for block, words in commands(page) if block.mark == "run")
"""The commands that are to be run, each once."""


@pytest.mark.slow
@pytest.mark.usefixtures("desk", "jax_settings")
@pytest.mark.parametrize("words", MARKED, ids=" ".join)
def test_the_marked_commands_run(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(words)
    out, errors = capsys.readouterr()
    assert code == 0, errors
    assert out


_IMPORT = re.compile(r"^ *(?:from (rubix_like[\w.]*) import (\([^)]*\)|[^\n#]+)|import (rubix_like[\w.]*))", re.M)
EXAMPLES = tuple(sorted(f"docs/examples/{path.name}" for path in REPOSITORY.glob("docs/examples/*.py")))


def imported_names(text: str) -> set[str]:
    """`rubix_like.extend.per_bin` of every name that Python in a text imports from the package, whole modules too."""
    found = {module for _, _, module in _IMPORT.findall(text) if module}
    for module, names, _ in _IMPORT.findall(text):
        found |= {f"{module}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?[,\s)]*", names)}
    return found


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS, *EXAMPLES])
def test_what_pages_import_is_public(page: str) -> None:
    """Their names are promised to stay (docs/developers.md, What is stable)."""
    public = {"rubix_like", "rubix_like.extend"} | {f"rubix_like.{name}" for name in rubix_like.__all__}
    public |= {f"rubix_like.extend.{name}" for name in extend.__all__}
    assert imported_names((REPOSITORY / page).read_text(encoding="utf-8")) - public == set()


def test_imports_in_pages_are_found() -> None:
    text = (
        "import rubix_like as rl\n    from rubix_like.a import (\n        B,\n        c as d,\n    )\n"
        "from rubix_like import E, f  # g"
    )
    assert imported_names(text) == {"rubix_like", "rubix_like.a.B", "rubix_like.a.c", "rubix_like.E", "rubix_like.f"}
    assert len(set().union(*(imported_names((REPOSITORY / page).read_text("utf-8")) for page in PAGES))) > 50


def load_script(name: str) -> Any:
    """A script of the folder docs, as a module."""
    return importlib.import_module(name)


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- table: " in (REPOSITORY / page).read_text("utf-8")])
def test_the_tables_are_those_of_the_code(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert text == load_script("write_tables").with_tables(text), "python docs/write_tables.py"


def test_the_words_of_a_page_are_those_kept_by_hand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    table = "| a | b |\n|---|---|\n| c | d |\n"
    generated = f"<!-- table: it -->\n\n{table}\n<!-- end of table -->\n\n<!-- printed -->\n\n{table}\n"
    page.write_text(f"# One two\n\n{generated}three - 4\n\n{table}\n```text\nx y\n```\n", encoding="utf-8")
    assert load_script("count_words").count_words(page) == 8


def test_the_table_of_priors_is_that_of_the_code() -> None:
    text = (REPOSITORY / "docs" / "fitting.md").read_text(encoding="utf-8").partition("## Priors")[2]
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", text.partition("## ")[0], re.M)
    assert {name: tuple(numbers.split(", ")) for name, numbers in rows} == {
        name: meanings for name, (_, meanings) in PRIORS.items()
    }


def slug(heading: str) -> str:
    """The anchor of a heading, as mkdocs (and GitHub) make it."""
    words = re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower()).strip()
    return re.sub(r"[\s]+", "-", words)


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS, "CHANGELOG.md"])
def test_the_links_resolve(page: str) -> None:
    path = REPOSITORY / page
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if re.match(r"https?:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{page}: no file for the link {link}"
        if page.startswith("docs/"):
            assert target.is_relative_to(REPOSITORY / "docs"), f"{page}: {link} is not part of the site"
        if anchor:
            headings = [slug(heading) for heading in _HEADING.findall(target.read_text(encoding="utf-8"))]
            assert anchor in headings, f"{page}: no heading for the link {link}"


def bare_signature(function: Callable[..., Any]) -> str:
    """`(config, galaxy=None)`: without annotations, without self."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(parameters))


def api_headings() -> dict[str, str]:
    """Dotted name -> signature (empty where the heading has none) of every entry of the API page."""
    text = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^### `([\w.]+)(\(.*\))?`$", text, re.M))


def test_the_api_page_has_every_public_name() -> None:
    assert {name.partition(".")[0] for name in api_headings()} == set(rubix_like.__all__)


@pytest.mark.parametrize(("name", "signature"), [(n, s) for n, s in api_headings().items() if s])
def test_the_signatures_of_the_api_page_are_true(name: str, signature: str) -> None:
    target: Any = rubix_like
    for part in name.split("."):
        target = getattr(target, part)
    assert signature == bare_signature(target)


def test_every_public_name_has_its_docstring_on_the_page_of_docstrings() -> None:
    text = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    found = [place.rpartition(".")[2] for place in re.findall(r"^::: (rubix_like\.\S+)$", text, re.M)]
    assert sorted(found) == sorted({*rubix_like.__all__, "extend"} - {"__version__"})


def test_every_key_is_on_the_page_of_configuration() -> None:
    """Those of pydantic's own schema, which the page is not made of."""
    text = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    listed = {part for key in re.findall(r"^\| `([\w.]+)` \|", text, re.M) for part in key.split(".")}
    schema = RunConfig.model_json_schema()
    models = [schema, *(own for own in schema["$defs"].values() if isinstance(own, dict))]
    keys = {key for model in models for key in model.get("properties", {})}
    assert len(keys) > 150
    assert keys - listed <= set(RunConfig.model_fields)


def test_every_test_of_physics_is_on_the_page_of_validation() -> None:
    """And no test that is no more: `python docs/validate.py FILE` measures those of a file again."""
    record = json.loads((REPOSITORY / "docs" / "validation.json").read_text(encoding="utf-8"))
    files = sorted((REPOSITORY / "tests" / "physics").glob("test_*.py"))
    assert {path.stem for path in files} == set(load_script("validation_page").SUBJECTS)
    known = {
        f"tests/physics/{path.name}::{name}"
        for path in files
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    }
    assert not set(record) - known, "measured, but no more there"
    assert len(record) > 30


def test_every_public_function_has_its_signature_on_the_api_page() -> None:
    functions = {name for name in rubix_like.__all__ if inspect.isfunction(getattr(rubix_like, name))}
    assert functions <= {name for name, signature in api_headings().items() if signature}


def test_every_example_on_the_api_page_belongs_to_a_name() -> None:
    entries = re.split(r"^### ", (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    without = [entry.splitlines()[0] for entry in entries if "```python" not in entry]
    assert not without


def test_the_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (REPOSITORY / "docs").glob("*.png")}
    assert {"quickstart.png", "plots.png", "plots-page.png"} <= set(sizes)
    assert max(sizes.values()) < 200_000, sizes


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        assert not os.environ.get("CI"), "mkdocs is missing in CI: pip install -e '.[dev]'"
        pytest.skip("mkdocs is not installed (pip install -e '.[docs]')")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {name: (tmp_path / "site" / name / "index.html").read_text("utf-8") for name in ("physics", "reference")}
    assert pages["physics"].count("<math ") > 3
    assert "\\frac" not in pages["physics"]
    assert 'id="rubix_like.cube.cube.Cube"' in pages["reference"]
    notebook = json.loads((tmp_path / "site" / "notebooks" / "1-first-cube.ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
