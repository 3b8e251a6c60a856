"""Ask the other end of every link to another site: `python docs/check_links.py`, in the root of the clone.

Prints the links that do not answer, with their pages, and ends with 1 if there are any. Needs a network, so it is no
part of the tests. Sites that refuse programs (401, 403, 405, 429) count as answering.
"""

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_LINK = re.compile(r"https?://[^\s)>\]\"'`|]+")
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
_REFUSES_PROGRAMS = {401, 403, 405, 429}
_EXAMPLES = ("https://www.tng-project.org/api/", "http://127.0.0.1", "http://localhost")
_SECONDS = 20


def pages() -> Iterator[Path]:
    """Every page of the site, and those of the repository's root."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def links() -> dict[str, list[str]]:
    """Every link to another site -> the pages that have it; blocks of code are left out."""
    found: dict[str, list[str]] = {}
    for page in pages():
        for link in _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
            address = link.rstrip(".,;:")
            if not address.startswith(_EXAMPLES):
                found.setdefault(address, []).append(str(page.relative_to(ROOT)))
    return found


def fault(address: str) -> str | None:
    """Why a link does not answer; None if it does."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (links of a documentation)"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return None if error.code in _REFUSES_PROGRAMS else f"{error.code} {error.reason}"
    except (OSError, ValueError) as error:
        return str(error)


def main() -> int:
    """Print what does not answer; the exit code."""
    found = links()
    with ThreadPoolExecutor(8) as pool:
        faults = dict(zip(found, pool.map(fault, found), strict=True))
    for address, why in faults.items():
        if why is not None:
            print(f"{address}: {why} ({', '.join(dict.fromkeys(found[address]))})")
    dead = sum(why is not None for why in faults.values())
    print(f"{len(found)} links, {dead} without an answer")
    return int(dead > 0)


if __name__ == "__main__":
    sys.exit(main())
