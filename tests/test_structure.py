"""House rules, by machine."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "rubix_like"
MODULES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(text) for name, text in MODULES.items()}


def nodes(kind):
    return [(name, node) for name, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, kind)]


def called(node):
    """Last part of the name that a call or base refers to."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def base_names(node):
    return [called(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]


def test_modules_are_short():
    assert len(MODULES) > 30
    assert {name: text.count("\n") for name, text in MODULES.items() if text.count("\n") > 500} == {}


def test_functions_are_short():
    functions = nodes(ast.FunctionDef | ast.AsyncFunctionDef)
    assert [(name, f.name) for name, f in functions if f.end_lineno - f.lineno + 1 >= 40] == []


def test_nesting_is_shallow():
    blocks = ast.For | ast.While | ast.If | ast.With | ast.Try

    def depth(node):
        inside = max((depth(child) for child in ast.iter_child_nodes(node)), default=0)
        return inside + isinstance(node, blocks)

    assert [(name, f.name) for name, f in nodes(ast.FunctionDef) if depth(f) > 3] == []


def test_modules_have_names_of_their_own():
    vague = {"utils", "util", "misc", "helpers", "helper", "common"}
    assert [name for name in MODULES if vague & set(Path(name).with_suffix("").parts)] == []


def test_classes_are_abstract_or_final():
    classes = {node.name for _, node in nodes(ast.ClassDef)}
    assert "AbstractPainter" in classes
    extended = [
        (name, node.name, base)
        for name, node in nodes(ast.ClassDef)
        for base in base_names(node)
        if base in classes and not base.startswith("Abstract")
    ]
    assert extended == []


def test_abstract_classes_are_never_instantiated():
    made = [(name, node.lineno) for name, node in nodes(ast.Call) if called(node.func).startswith("Abstract")]
    assert made == []


def test_classes_with_abstract_methods_say_so():
    for name, node in nodes(ast.ClassDef):
        decorators = [called(d) for f in node.body if isinstance(f, ast.FunctionDef) for d in f.decorator_list]
        if "abstractmethod" in decorators:
            assert node.name.startswith("Abstract"), f"{name}: {node.name}"


def test_no_hidden_machinery():
    """No super(), hasattr, setattr, __getattr__: what a class has is written in it."""
    calls = [
        (name, node.lineno) for name, node in nodes(ast.Call) if called(node.func) in {"super", "hasattr", "setattr"}
    ]
    hooks = [(name, f.name) for name, f in nodes(ast.FunctionDef) if f.name in {"__getattr__", "__setattr__"}]
    assert calls + hooks == []


def test_annotations_are_real():
    imported = [(name, node.lineno) for name, node in nodes(ast.ImportFrom) if node.module == "__future__"]
    assert imported == []


def test_only_the_command_line_touches_the_configuration_of_jax():
    def target(node):
        return ast.unparse(node.func) if isinstance(node, ast.Call) else ""

    updates = [name for name, node in nodes(ast.Call) if target(node) in {"jax.config.update", "config.update"}]
    assert set(updates) <= {"cli/main.py"}
    assigned = [name for name, node in nodes(ast.Assign) if "jax.config." in ast.unparse(node.targets[0])]
    assert assigned == []


def test_no_global_state_is_rebound():
    assert [(name, node.lineno) for name, node in nodes(ast.Global | ast.Nonlocal)] == []


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"])
def test_nothing_is_left_for_later(word):
    tests = {path.name: path.read_text() for path in Path(__file__).parent.rglob("*.py")}
    assert [name for name, text in (MODULES | tests).items() if word in text] == []


def test_notes_are_logged_never_warned():
    assert [(name, node.lineno) for name, node in nodes(ast.Call) if ast.unparse(node.func) == "warnings.warn"] == []


def test_importing_everything_starts_nothing():
    """No device is looked for, no setting of JAX changed, no plotting or optional package imported."""
    modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in MODULES]
    names = [f"rubix_like.{module}" for module in modules if module not in {"__init__", "__main__"}]
    script = f"""
import importlib, sys, jax
before = dict(jax.config.values)
for name in {names!r}:
    importlib.import_module(name)
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "a device was used"
changed = {{key for key, value in jax.config.values.items() if before.get(key, value) != value}}
assert not changed, changed
assert "matplotlib" not in sys.modules, "matplotlib was imported"
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_public_names_exist_and_are_few():
    package = __import__("rubix_like")
    assert len(package.__all__) <= 40
    assert list(package.__all__) == sorted(package.__all__)
    assert [name for name in package.__all__ if getattr(package, name, None) is None] == []
