"""ArviZ, which is optional: imported when it is needed."""

import warnings
from typing import Any

from rubix_like.errors import ConfigError


def import_arviz(purpose: str) -> Any:
    """The package; ConfigError where it is missing. Its warning of things to come, at its import, is not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise ConfigError(f"{purpose}: this needs the package arviz: pip install 'rubix-like[sample]'") from error
    return arviz
