"""The tables of `rubix-like list` against the packaged files and registries, read here on their own."""

from pathlib import Path

import yaml
from building import REGISTRIES
from command_line import make_parser, printed

import rubix_like
from rubix_like import list_configs, list_pipelines, list_readers, list_stages

REPOSITORY = Path(__file__).resolve().parents[2]


def packaged(kind):
    """Name -> content of the YAML files in a folder of the repository."""
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted((REPOSITORY / kind).glob("*.yaml"))}


def test_every_stage_has_its_kind_and_a_description():
    expected = []
    for kind in ("fields", "scene", "paint", "cube"):
        expected += [(name, f"{kind}: ") for name in REGISTRIES[kind].names()]
    rows = list_stages().rows
    assert [name for name, _ in rows] == [name for name, _ in expected]
    for (_, text), (_, start) in zip(rows, expected, strict=True):
        assert text.startswith(start)
        assert len(text) > len(start) + 20


def test_every_reader_has_a_description():
    rows = dict(list_readers().rows)
    assert tuple(rows) == (*REGISTRIES["readers"].names(), "table", *packaged("configs/simulations"))
    assert "Illustris" in rows["illustris"]
    assert "disc" in rows["synthetic"]


def test_every_pipeline_lists_its_stages_in_order():
    rows, pipelines = dict(list_pipelines().rows), packaged("pipelines")
    assert list(rows) == list(pipelines)
    for name, content in pipelines.items():
        stages = [stage for kind in ("fields", "scene", "paint", "cube") for stage in content.get(kind, [])]
        words = [stage if isinstance(stage, str) else next(iter(stage)) for stage in stages]
        assert rows[name] == f"{content['description']} [{' -> '.join(words)}]"


def test_configurations_are_listed_with_their_files():
    rows = dict(list_configs().rows)
    assert list(rows) == list(packaged("configs"))
    for name, text in rows.items():
        assert Path(text) == REPOSITORY / "configs" / f"{name}.yaml"


def test_python_lists_what_the_command_lists():
    """Lists print as a table, say which names there are, and are shown as HTML."""
    (commands,) = (action.choices for action in make_parser()._actions if isinstance(action.choices, dict))
    (kinds,) = (action.choices for action in commands["list"]._actions if action.dest == "kind")
    functions = {kind: f"list_{'libraries' if kind == 'ssp' else kind}" for kind in kinds}
    assert sorted(functions.values()) == sorted(name for name in rubix_like.__all__ if name.startswith("list_"))
    for kind, function in functions.items():
        found = getattr(rubix_like, function)()
        text = printed("list", kind)
        assert all(name in text for name in found)
        lines = repr(found).splitlines()
        assert lines[0].split()[0] == found.columns[0]
        assert len(lines) == len(found) + 1
        assert all(line.startswith(name) for line, name in zip(lines[1:], found, strict=True))
        assert all(name in found for name in found.names)
        assert all(words and "\n" not in name + words for name, words, *_ in found.rows)
        assert "no such name" not in found
        assert found._repr_html_().count("<tr>") == len(found) + 1


def test_an_empty_list_says_so():
    assert printed("list", "products") == "none: no plug-in that is installed brings one\n"
