"""The base of every section of a run's configuration."""

from pydantic import BaseModel, ConfigDict


class AbstractSettings(BaseModel):
    """A section: immutable once checked, with no keys but its own. Settings only describe; other modules build."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
