"""The examples of docs/own-inference.md, as they stand there."""

import re
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-inference.md"


def run_recipe(package, function, start):
    """Run the example that imports `package` on a log-posterior, begun at `start`; return the names that it leaves."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (recipe,) = (block for block in blocks if re.search(rf"^(import|from) {package}\b", block, re.MULTILINE))
    names = {"jax": jax, "np": np, "function": function, "found": SimpleNamespace(x=start)}
    exec(compile(recipe, str(PAGE), "exec"), names)
    return names
