"""The option `--set KEY=VALUE ...` of commands."""

import argparse
from collections.abc import Sequence

from rubix_like.errors import ConfigError


def add_set_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Give a command the option; `text` is its help."""
    parser.add_argument("--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[], help=text)


def read_overrides(pairs: Sequence[str]) -> dict[str, str]:
    """`["a.b=1", ...]` as `{"a.b": "1", ...}`; raises ConfigError for one without a key or value."""
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(
                f"--set: expected KEY=VALUE (e.g. noise.signal_to_noise=50, or noise=null for nothing), got '{pair}'"
            )
        overrides[key.strip()] = value
    return overrides
