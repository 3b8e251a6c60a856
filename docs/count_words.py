"""Count the words that are kept by hand: `python docs/count_words.py`, in the root of the clone.

Left out: blocks of code and output, docs/simulations.md and tables between `<!-- table: NAME -->` and
`<!-- end of table -->` (all generated), and tables below `<!-- printed -->` (copied from what a benchmark prints).
"""

import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_CODE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
_GENERATED = re.compile(r"<!-- table: .*?<!-- end of table -->|<!-- printed -->\n\n(?:\|[^\n]*\n)+", re.S)


def count_words(page: Path) -> int:
    """The words of a page: texts between spaces with a letter or a digit."""
    text = _CODE.sub("", _GENERATED.sub("", page.read_text(encoding="utf-8")))
    return sum(bool(re.search(r"\w", word)) for word in text.split())


if __name__ == "__main__":
    pages = [_ROOT / "README.md", _ROOT / "CHANGELOG.md", *sorted((_ROOT / "docs").glob("*.md"))]
    counts = {page.name: count_words(page) for page in pages if page.name != "simulations.md"}
    for name, count in counts.items():
        print(f"{count:6d}  {name}")
    print(f"{sum(counts.values()):6d}  together")
