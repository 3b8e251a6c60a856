"""When a file says that it was made: now, or the moment that makes the same run give the same bytes."""

import os
from datetime import UTC, datetime

from rubix_like.errors import ConfigError

VARIABLE: str = "SOURCE_DATE_EPOCH"
"""The environment's variable with seconds since 1970 (https://reproducible-builds.org/specs/source-date-epoch)."""


def moment_of_writing() -> datetime:
    """Now, or where `SOURCE_DATE_EPOCH` is set the moment that it states (UTC). Raises ConfigError for no number."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return datetime.now(UTC)
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{VARIABLE}: expected seconds since 1970 as a whole number, got '{text}' in the environment ({error}); "
            f"set it to such a number, e.g. 1700000000, or unset it"
        ) from error


def date_words() -> str:
    """`2023-11-14T22:13:20`: the moment of writing as files state it (UTC)."""
    return moment_of_writing().strftime("%Y-%m-%dT%H:%M:%S")
