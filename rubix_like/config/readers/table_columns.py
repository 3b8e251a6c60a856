"""Which columns of a plain table hold what, and their units, where their names do not tell."""

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema, field_validator

from rubix_like.config.quantities import Texts, check_unit
from rubix_like.config.settings import AbstractSettings


class ColumnSettings(AbstractSettings):
    """The column of a quantity, or the three of a vector, and the unit of its numbers."""

    column: Texts
    unit: str | None = None
    """A unit that astropy knows, e.g. Gyr or 1e10 Msun; null: the one that the file states."""

    @field_validator("column")
    @classmethod
    def _check_number(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) not in {1, 3}:
            raise ValueError(f"expected one column, or three of a vector, got {len(value)}")
        return value

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, value: str | None) -> str | None:
        return value if value is None else check_unit(value)


def _as_settings(value: object) -> object:
    """`m` and `[x, y, z]` stand for `{column: m}` and `{column: [x, y, z]}`."""
    return {"column": value} if isinstance(value, str | list | tuple) else value


def _json_schema() -> dict[str, Any]:
    names = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    with_unit = {
        "type": "object",
        "properties": {"column": names, "unit": {"type": ["string", "null"]}},
        "required": ["column"],
        "additionalProperties": False,
    }
    return {"anyOf": [*names["anyOf"], with_unit, {"type": "null"}]}


Column = Annotated[ColumnSettings | None, BeforeValidator(_as_settings), WithJsonSchema(_json_schema())]


class TableSettings(AbstractSettings):
    """Which table and columns hold the stars or the gas, e.g. `age: {column: t, unit: Gyr}`; null: recognised."""

    table: str | None = None
    """The table (FITS extension, HDF5 group or dataset); null: the only one, or by its name."""
    position: Column = None
    velocity: Column = None
    mass: Column = None
    initial_mass: Column = None
    """Mass at birth."""
    age: Column = None
    log_age: Column = None
    """log10(age / yr)."""
    birth_scale_factor: Column = None
    birth_redshift: Column = None
    """This and the scale factor need the snapshot's redshift, HubbleParam and Omega0 in the file."""
    metallicity: Column = None
    """Mass fraction Z of metals."""
    smoothing_length: Column = None
    density: Column = None
    temperature: Column = None
    internal_energy: Column = None
    """Per mass."""
    electron_abundance: Column = None
    """Electrons per hydrogen nucleus."""
    star_formation_rate: Column = None
    hydrogen_fraction: Column = None
    oxygen_fraction: Column = None
    hi_fraction: Column = None
    """Neutral hydrogen as a fraction of the gas mass, H2 left out where it has a column of its own."""
    h2_fraction: Column = None
    """Molecular hydrogen as a fraction of the gas mass."""
    dust_mass: Column = None

    def named(self) -> dict[str, ColumnSettings]:
        """The quantities whose columns are named in the settings."""
        return {name: value for name, value in self if isinstance(value, ColumnSettings)}
