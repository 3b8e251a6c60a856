"""What the site needs beside its theme: formulas as MathML, outputs of notebooks, and the notebooks to download.

mkdocs calls the functions `on_...` (mkdocs.yml, `hooks`).
"""

import html
import json
import os
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File
from notebook_pages import NOTEBOOKS, as_notebook

_DOWNLOAD = "[:material-download: Jupyter notebook]({name}.ipynb){{ .md-button download }}"


def formula(source: str, *_: Any, **__: Any) -> str:
    """A block of LaTeX as MathML."""
    return f'<div class="formula">{convert(" ".join(source.split()), display="block")}</div>'


def output(source: str, *_: Any, **__: Any) -> str:
    """What a cell of a notebook printed."""
    return f'<div class="output"><pre><code>{html.escape(source)}</code></pre></div>'


def on_config(config: Any) -> Any:
    """Blocks of the language `math` are formulas, those of `output` are what a cell printed; a build by mike has the
    list of versions."""
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike"}
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [
        {"name": name, "class": name, "format": own} for name, own in (("math", formula), ("output", output))
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Every notebook's page also as a Jupyter notebook, with its outputs."""
    for page in NOTEBOOKS:
        content = json.dumps(as_notebook(page), indent=1)
        files.append(File.generated(config, f"notebooks/{page.stem}.ipynb", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A notebook's page begins with the link to its file."""
    stem = page.file.src_uri.removeprefix("notebooks/").removesuffix(".md")
    if stem not in {own.stem for own in NOTEBOOKS}:
        return markdown
    title, _, rest = markdown.lstrip().partition("\n")
    return f"{title}\n\n{_DOWNLOAD.format(name=stem)}\n{rest}"
