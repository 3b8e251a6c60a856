"""A field map for a plain table: its columns are recognised by common names, or named in the settings."""

import re
from collections.abc import Mapping

from astropy import units

from rubix_like.config.plug_ins import TABLE
from rubix_like.config.quantities import check_unit
from rubix_like.config.readers.snapshot import ColumnSettings, TableSettings
from rubix_like.errors import ConfigError, suggest
from rubix_like.readers.containers.container import AbstractContainer, as_number, as_text
from rubix_like.readers.containers.table_files import ASTROPY_META, yaml_units
from rubix_like.readers.fields.field_map import (
    QUANTITIES,
    VECTORS,
    FamilySettings,
    FieldMap,
    FieldSettings,
    HeaderSettings,
)
from rubix_like.runtime.notes import Note

KINDS = ("table", "hdf5")

NAMES: dict[str, tuple[str, ...]] = {
    "position": ("position", "positions", "pos", "coordinates", "coords", "xyz"),
    "velocity": ("velocity", "velocities", "vel"),
    "mass": ("mass", "masses", "m", "current_mass", "particle_mass"),
    "initial_mass": ("initial_mass", "initial_masses", "birth_mass", "mass_initial", "m_init", "massform"),
    "age": ("age", "ages", "stellar_age", "stellar_ages"),
    "log_age": ("log_age", "logage", "log10_age"),
    "birth_scale_factor": ("birth_scale_factor", "formation_scale_factor", "a_form", "aform"),
    "birth_redshift": ("birth_redshift", "formation_redshift", "form_z", "z_form"),
    "metallicity": ("metallicity", "metallicities", "metal_mass_fraction", "metal_fraction", "metals", "Z"),
    "smoothing_length": ("smoothing_length", "smoothing_lengths", "hsml", "size_h"),
    "density": ("density", "densities", "rho"),
    "temperature": ("temperature", "temperatures", "temp", "T"),
    "internal_energy": ("internal_energy", "internal_energies", "u"),
    "electron_abundance": ("electron_abundance", "electron_abundances"),
    "star_formation_rate": ("star_formation_rate", "star_formation_rates", "sfr"),
    "hydrogen_fraction": ("hydrogen_fraction", "hydrogen_mass_fraction"),
    "oxygen_fraction": ("oxygen_fraction", "oxygen_mass_fraction"),
    "hi_fraction": ("hi_fraction", "hi_mass_fraction"),
    "h2_fraction": ("h2_fraction", "h2_mass_fraction"),
    "dust_mass": ("dust_mass", "dust_masses", "mass_dust", "m_dust"),
}
"""Names by which a column is recognised, the first that the table has; capitals count only in names of one letter."""

TRIPLES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "position": (
        ("x", "y", "z"),
        ("X", "Y", "Z"),
        ("pos_x", "pos_y", "pos_z"),
        ("x_pos", "y_pos", "z_pos"),
        ("position_x", "position_y", "position_z"),
    ),
    "velocity": (
        ("vx", "vy", "vz"),
        ("v_x", "v_y", "v_z"),
        ("vel_x", "vel_y", "vel_z"),
        ("x_vel", "y_vel", "z_vel"),
        ("velocity_x", "velocity_y", "velocity_z"),
    ),
}

SUFFIXES = {"age": {"_yr": "yr", "_myr": "Myr", "_gyr": "Gyr"}}
"""Endings of names that state the unit."""

STAR_TABLES = ("stars", "star", "particles/stars", "parttype4", "stellar")
GAS_TABLES = ("gas", "particles/gas", "parttype0")

UNIT_ATTRIBUTES = ("unit", "units", "Unit", "Units", "UNIT", "UNITS")

PURE_NUMBERS = ("", "1", "-", "none", "dimensionless")

_AMBIGUOUS = ("age",)
"""Quantities without an assumed unit."""

_META = {
    "redshift": ("redshift", "Redshift", "REDSHIFT"),
    "h": ("HubbleParam", "HUBBLE", "h"),
    "omega_m": ("Omega0", "OMEGA0", "Om0", "OM0"),
    "omega_l": ("OmegaLambda", "OMEGA_L", "OMEGAL"),
    "box_size": ("BoxSize", "BOXSIZE"),
}
"""Entries of the file's meta data that make up an epoch, if redshift, h and Omega_m are all there."""


def table_field_map(container: AbstractContainer, kind: str, stars: TableSettings, gas: TableSettings) -> FieldMap:
    """The field map of a table; raises ConfigError for columns that are not there and units that are not known.

    A column's unit is the one stated in the settings, else the file's, else kpc, km/s, Msun ... (noted in the field);
    no unit is assumed for ages.
    """
    if kind not in KINDS:
        raise ConfigError(f"galaxy.reader: expected '{container.name}' to hold tables, got a file of kind {kind}")
    star_table = _find_table(container, stars.table, STAR_TABLES, "columns")
    has_gas = gas != TableSettings() or any(name.lower() in GAS_TABLES for name in _tables(container))
    gas_table = _find_table(container, gas.table, GAS_TABLES, "gas") if has_gas else None
    places = {name: tuple(f"/{entry}" for entry in entries) for name, entries in _META.items()}
    header = HeaderSettings.model_validate({"scale_factor": "/scale_factor", "flat": True} | places)
    needed = (header.redshift, header.h, header.omega_m)
    known = [any(as_number(container.attribute("", p[1:])) is not None for p in places) for places in needed]
    return FieldMap(
        title="a plain table",
        source="the columns' names and units",
        container=KINDS,
        expansion="always" if all(known) else "never",
        header=header,
        stars=_family(container, star_table, stars, "columns"),
        gas=None if gas_table is None else _family(container, gas_table, gas, "gas"),
        name=TABLE,
    )


def assumed_units(field_map: FieldMap) -> tuple[str, ...]:
    """Assumptions on a table's columns, as sentences for the summary."""
    if field_map.name != TABLE:
        return ()
    families = {"stars": field_map.stars, "gas": field_map.gas}
    return tuple(
        Note("file.assumed", f"{name}.{quantity}: {field.note}")
        for name, family in families.items()
        for quantity, field in (family.fields.items() if family else ())
        if field.note
    )


def _tables(container: AbstractContainer) -> tuple[str, ...]:
    """Groups with datasets, subgroups as `particles/stars`; `/` for arrays without a group."""
    found = {}
    for group in (*container.groups(), "/"):
        for dataset in container.datasets(group):
            inner = dataset.rpartition("/")[0] if container.nests else ""
            found[f"{group}/{inner}" if inner and group != "/" else group] = None
    names = [name for name in found if not name.endswith(ASTROPY_META)]
    nested = {name.partition("/")[0] for name in names if name != "/"}
    root = [dataset for dataset in container.datasets("/") if dataset.partition("/")[0] not in nested]
    loose = [dataset for dataset in root if not dataset.endswith(ASTROPY_META)]
    return tuple(name for name in names if name != "/" or loose)


def _find_table(container: AbstractContainer, given: str | None, usual: tuple[str, ...], key: str) -> str:
    tables = _tables(container)
    if given is not None:
        near = [name for name in tables if name.lower() == given.lower()]
        if not near:
            raise ConfigError(f"galaxy.{key}.table: '{container.name}' has no '{given}'{suggest(given, tables)}")
        return given if given in tables else near[0]
    by_name = [name for name in tables if name.lower() in usual]
    found = by_name or list(tables)
    if len(found) == 1:
        return found[0]
    raise ConfigError(
        f"galaxy.{key}.table: expected the table to read, as '{container.name}' has {', '.join(tables) or 'none'}; "
        f"name one, e.g. galaxy: {{{key}: {{table: {tables[0] if tables else 'stars'}}}}}"
    )


def _family(container: AbstractContainer, table: str, settings: TableSettings, key: str) -> FamilySettings:
    columns = container.datasets(table)
    named = settings.named()
    for quantity, column in named.items():
        for name in column.column:
            if name not in columns:
                place = f"galaxy.{key}.{quantity}"
                raise ConfigError(
                    f"{place}: '{container.name}' ({table}) has no column '{name}'{suggest(name, columns)}"
                )
        if quantity in VECTORS and len(column.column) == 1 and container.shape(table, column.column[0])[1:] == ():
            raise ConfigError(
                f"galaxy.{key}.{quantity}: expected three columns, or one of vectors, got '{column.column[0]}', a "
                f"column of single numbers; name all three, e.g. {quantity}: [{', '.join(TRIPLES[quantity][0])}]"
            )
    for quantity, other in (("position", "velocity"), ("velocity", "position")):
        if quantity in named and named[quantity].column in TRIPLES[other]:
            raise ConfigError(
                f"galaxy.{key}.{quantity}: expected columns of a {quantity}, got {list(named[quantity].column)}, which "
                f"are names of a {other}; give them as {other}, or rename the columns"
            )
    taken = {name for column in named.values() for name in column.column}
    for quantity in NAMES:
        free = {_split_name(name)[0]: name for name in columns if name not in taken}
        found = None if quantity in named else _recognise(quantity, free)
        if found is not None:
            named[quantity] = found
            taken.update(found.column)
    fields = {quantity: _field(container, table, quantity, column, key) for quantity, column in named.items()}
    if "mass" not in fields and "initial_mass" in fields:
        fields["mass"] = fields["initial_mass"].model_copy(
            update={"note": "the table has only masses at birth: taken for the mass now"}
        )
    return FamilySettings(groups=(table,), fields=fields)


def _split_name(column: str) -> tuple[str, str | None]:
    """A column's name and the unit in brackets behind it: `vx [km/s]`; None where there is no unit."""
    found = re.fullmatch(r"(.*\S)\s*[\[(](.+)[\])]", column)
    if found is None:
        return column, None
    try:
        units.Unit(found[2])
    except ValueError:
        return column, None
    return found[1], found[2]


def _recognise(quantity: str, columns: Mapping[str, str]) -> ColumnSettings | None:
    """The column whose name is one of the common ones; with an ending such as `_gyr` its unit is known, too.

    `columns`: the file's columns by their names without units.
    """
    for triple in TRIPLES.get(quantity, ()):
        if set(triple) <= set(columns):
            return ColumnSettings(column=tuple(columns[name] for name in triple))
    by_name = {name if len(name) == 1 else name.lower(): columns[name] for name in reversed(tuple(columns))}
    for name in NAMES[quantity]:
        if name in by_name:
            return ColumnSettings(column=(by_name[name],))
        for ending, unit in SUFFIXES.get(quantity, {}).items():
            if name + ending in by_name:
                return ColumnSettings(column=(by_name[name + ending],), unit=unit)
    return None


def _field(container: AbstractContainer, table: str, quantity: str, column: ColumnSettings, key: str) -> FieldSettings:
    """The field of a column: its unit is checked, and said in the note where it is assumed."""
    place = f"{container.name}: {table}/{' '.join(column.column)}"
    example = "Gyr" if quantity == "age" else QUANTITIES[quantity] or '""'
    remedy = f"state it, e.g. galaxy: {{{key}: {{{quantity}: {{column: ..., unit: {example}}}}}}}"
    stated = {_stated_unit(container, table, name) for name in column.column}
    if column.unit is None and len(stated) > 1:
        raise ConfigError(f"{place}: expected one unit, got {', '.join(sorted(map(str, stated)))}; {remedy}")
    unit = column.unit if column.unit is not None else stated.pop()
    note, expected = "", QUANTITIES[quantity]
    if unit is None and quantity in _AMBIGUOUS:
        raise ConfigError(f"{place}: expected a unit, got none; {remedy}")
    if unit is None and expected:
        note = f"the file has no unit for {' '.join(column.column)}: taken as {expected}"
    unit = expected if unit is None else unit
    try:
        known = units.Unit(check_unit(unit))
    except ValueError as error:
        raise ConfigError(f"{place}: {error}; {remedy}") from error
    if not known.is_equivalent(units.Unit(expected)):
        hint = " ('h' is an hour here: divide by the Hubble parameter first)" if "/ h" in str(known) else ""
        raise ConfigError(f"{place}: expected a unit of {expected or 'a pure number'}, got '{unit}'{hint}; {remedy}")
    is_stack = len(column.column) == 3 and quantity in VECTORS
    names = {"stack": column.column} if is_stack else {"dataset": column.column}
    return FieldSettings(**names, unit=unit, note=note)  # pyright: ignore[reportArgumentType]


def _stated_unit(container: AbstractContainer, table: str, column: str) -> str | None:
    """The unit in the column's attributes, or in the YAML that astropy puts beside a table in HDF5; None without."""
    place = f"{table}/{column}"
    for name in (name for name in UNIT_ATTRIBUTES if name in container.attributes(place)):
        text = as_text(container.attribute(place, name))
        return "" if text.lower() in PURE_NUMBERS else text
    where, _, name = table.rpartition("/")
    beside = f"{name}{ASTROPY_META}"
    if beside not in container.datasets(where or "/"):
        return _split_name(column)[1]
    lines = container.read(where or "/", beside, 0, container.shape(where or "/", beside)[0])
    return yaml_units([as_text(line) for line in lines])[0].get(column)
