"""Report on the file behind the settings under `galaxy:` without loading the galaxy."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from rubix_like.config.messages import explain
from rubix_like.config.plug_ins import TABLE, find_reader
from rubix_like.config.readers.snapshot import AUTO, SnapshotReader
from rubix_like.config.yaml_files import format_yaml
from rubix_like.errors import ConfigError
from rubix_like.physics.centering import densest_place, unwrap
from rubix_like.physics.plausibility import ParticleSums, implausible_galaxy
from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.derived_columns import log_ages
from rubix_like.readers.fields.epoch import first_number, read_epoch, side_words
from rubix_like.readers.fields.field_map import FAMILIES, Family, FieldMap, Table, stacked
from rubix_like.readers.fields.snapshot_particles import Snapshot, check_parts
from rubix_like.readers.inspection.groups import MEDIAN_ROWS, GroupReport, GroupRows, report_group
from rubix_like.readers.inspection.missing import dataset_names, required, shape_words, skeleton, structure_lines
from rubix_like.readers.mapped_files import conditions, find_field_map, open_mapped_file
from rubix_like.readers.selection.halo_ids import find_entry
from rubix_like.readers.selection.row_ranges import SLAB_ROWS
from rubix_like.readers.selection.selected import Selected, select
from rubix_like.runtime.words import counted, table_lines


@dataclass(frozen=True)
class Inspection:
    """Contents of a file: `facts` by name, `groups`, groups that are not used, and the section `galaxy:` that reads it.

    `groups` are of all rows; `selection` says how many of them are selected, where the section selects any. `notes` are
    on numbers that no galaxy has, in what is selected.
    `problems` are reasons why the file is refused. Where nothing is recognised, or header or groups cannot be read,
    `structure` shows what is there and `field_map` is the start of a field map for it.
    """

    facts: dict[str, str]
    groups: tuple[GroupReport, ...] = ()
    unused_groups: tuple[str, ...] = ()
    selection: str = ""
    problems: tuple[str, ...] = ()
    galaxy: str = ""
    structure: tuple[str, ...] = ()
    field_map: str = ""
    notes: tuple[str, ...] = ()


def inspect_galaxy(section: Mapping[str, Any]) -> Inspection:
    """Look at the file that a section `galaxy:` (path, reader, ...) names; nothing in the file stops it.

    Raises FileNotFoundError or OSError where there is no such file, ConfigError for settings that cannot be.
    """
    name = str(section.get("reader", AUTO))
    if find_reader(name) is not SnapshotReader:
        raise ConfigError(f"inspect shows files that are read by a field map; the reader '{name}' reads without one")
    try:
        settings = SnapshotReader.model_validate(dict(section))
    except ValidationError as error:
        raise ConfigError(explain(error, SnapshotReader, "galaxy")) from error
    with open_mapped_file(settings) as (container, kind):
        facts = {"file": container.name, "kind": kind}
        try:
            field_map = find_field_map(settings, container, kind)
        except ValueError as error:
            start = ""
            with suppress(ValueError):
                start = skeleton(container) if kind != TABLE and settings.reader == AUTO else ""
            return Inspection(facts, problems=(str(error),), structure=structure_lines(container), field_map=start)
        facts |= {"recognised": _recognition(field_map, container, kind, settings.reader)}
        try:
            check_parts(container, field_map)
            snapshot = Snapshot(container, field_map, read_epoch(container, field_map))
            groups = [
                GroupRows(snapshot, family, group, n_rows)
                for family in FAMILIES
                for group, n_rows in snapshot.groups(family).items()
            ]
        except ValueError as error:
            return Inspection(facts, problems=(str(error),), structure=structure_lines(container))
        return _inspect(snapshot, groups, facts, settings, section)


def _recognition(field_map: FieldMap, container: AbstractContainer, kind: str, reader: str) -> str:
    """The simulation that the file is taken for, and why."""
    if field_map.name == TABLE:
        return f"{field_map.title}: columns by their names, or as the settings say"
    found = conditions(field_map, container, kind)
    why = f"it {', '.join(found)}" if found else "it has nothing that would tell"
    return f"{field_map.title} ({field_map.name}{'' if reader == AUTO else ', as named'}): {why}"


def _inspect(
    snapshot: Snapshot,
    groups: Sequence[GroupRows],
    facts: dict[str, str],
    settings: SnapshotReader,
    section: Mapping[str, Any],
) -> Inspection:
    reports = [report_group(rows) for rows in groups]
    problems = [text for report in reports for text in report.problems]
    if not any(report.family == "stars" and report.n_rows > report.n_left_out for report in reports):
        named = snapshot.field_map.stars.groups
        there = [group for group in named if dataset_names(snapshot.container, group)]
        unknown = [f"{group}: {found.text}" for group in there for found in required(snapshot, "stars", group)]
        is_empty = not snapshot.count("stars")
        problems += (unknown if is_empty else []) or [f"no stars ({' or '.join(named)})"]
    selection, notes, problem = ("", (), "") if problems else _selection(snapshot, settings)
    problems += [problem] if problem else []
    needed = {key: value for report in reports for key, value in report.needed.items()}
    galaxy = {name: str(value) if isinstance(value, Path) else value for name, value in section.items()}
    return Inspection(
        facts | _facts(snapshot),
        tuple(reports),
        _unused_groups(snapshot, {report.group for report in reports}),
        selection,
        tuple(problems),
        format_yaml({"galaxy": galaxy | {key: value for key, value in needed.items() if key not in galaxy}}),
        notes=notes,
    )


def _selection(snapshot: Snapshot, settings: SnapshotReader) -> tuple[str, tuple[str, ...], str]:
    """How many particles are selected (empty: all), notes on what no galaxy has, and why they cannot be selected."""
    try:
        selected = select(snapshot, settings, find_entry(settings, snapshot))
        notes = _implausible(selected, settings)
    except (ValueError, OSError) as error:
        return "", (), str(error)
    if all(getattr(settings, key) is None for key in ("halo", "subhalo", "sphere", "box")):
        return "", notes, ""
    counts = [f"{selected.count(family)} of {snapshot.count(family)} {family}" for family in FAMILIES]
    return "; ".join((" and ".join(counts), *selected.notes)), notes, ""


def _implausible(selected: Selected, settings: SnapshotReader) -> tuple[str, ...]:
    snapshot, stars = selected.snapshot, _sample(selected, "stars")
    unknown = np.full(len(stars["mass"]), np.nan)
    center = selected.center
    if center is None:
        center = densest_place(stars["position"], stars["mass"], snapshot.box_size)
    birth_mass, log_age = stars.get("initial_mass", unknown), log_ages(snapshot, stars)
    birth_mass = np.where(np.isnan(birth_mass), stars["mass"], birth_mass)
    known = {
        "position": unwrap(stars["position"], center, snapshot.box_size),
        "velocity": stars.get("velocity", np.zeros_like(stars["position"])),
        "initial_mass": birth_mass * (selected.count("stars") / len(birth_mass)),
        "log_age": unknown if log_age is None else log_age,
        "metallicity": stars.get("metallicity", unknown),
    }
    gas = _sample(selected, "gas")
    sums = ParticleSums.of(known, gas if "mass" in gas else None)
    return tuple(implausible_galaxy(sums, is_at_rest=settings.velocities == "zero" or "velocity" not in stars))


def _sample(selected: Selected, family: Family) -> Table:
    """Columns of every n-th selected particle, about 2^21 of many."""
    count, tables = selected.count(family), []
    step = max(1, -(-count // MEDIAN_ROWS))
    for start in range(0, count, SLAB_ROWS):
        table = selected.read(family, start, min(start + SLAB_ROWS, count))
        tables.append({name: column[::step].copy() for name, column in table.items()})
    return stacked(tables)


def _facts(snapshot: Snapshot) -> dict[str, str]:
    epoch, header = snapshot.epoch, snapshot.field_map.header
    facts = {"simulation": epoch.simulation or "not named in its header"}
    if epoch.redshift is not None and epoch.universe_age is not None:
        facts |= {
            "redshift": f"{round(epoch.redshift, 6):g} (scale factor a = {epoch.scale_factor:.6g})",
            "age then": f"{epoch.universe_age / 1e9:.4g} Gyr since the Big Bang",
        }
    elif first_number(snapshot.container, header.time) is not None:
        facts["time"] = f"{epoch.time:g} as stored"
    if epoch.cosmology is not None or first_number(snapshot.container, header.h) is not None:
        facts["h"] = f"{epoch.h:g}"
    box = "none"
    if epoch.box_size is not None:
        box = f"{side_words(epoch.box_size)} in the unit of the positions"
        with suppress(ValueError):
            sides = [side * snapshot.length for side in epoch.box_size]
            box = f"{side_words(epoch.box_size)} x {snapshot.length:.6g} kpc = {side_words(sides)} kpc"
    return facts | {"cosmology": epoch.cosmology_text, "periodic box": box}


def _unused_groups(snapshot: Snapshot, used: Collection[str]) -> tuple[str, ...]:
    counts = {}
    for group in snapshot.container.groups():
        inner = tuple(f"{other.removeprefix(f'{group}/')}/" for other in used if other.startswith(f"{group}/"))
        counts[group] = sum(not name.startswith(inner) for name in dataset_names(snapshot.container, group))
    return tuple(
        f"{group} ({counted(count, 'dataset')})" for group, count in counts.items() if count and group not in used
    )


STORED: tuple[str, ...] = ("quantity", "dataset", "shape", "type", "stored unit and conversion", "stated by")
"""The first table of a group; the unit is stated by the field map or by the file's attributes."""

VALUES: tuple[str, ...] = ("quantity", "unit", "smallest", "median", "largest", "sum")
"""The second one: the values that count, after conversion."""


def inspection_text(inspection: Inspection, width: int = 120) -> str:
    """The report: facts, tables, what is missing, what is wrong, and the configuration to run."""
    facts = inspection.facts
    if inspection.problems and not inspection.groups:
        facts = {"file": facts["file"], "problem": inspection.problems[0], **facts}
    longest = max(map(len, facts))
    blocks = ["\n".join(_paragraph(f"{name:<{longest}}  ", text, width) for name, text in facts.items())]
    blocks += [_group(report, width, bool(inspection.selection)) for report in inspection.groups]
    if inspection.unused_groups:
        blocks.append(_paragraph("Not used: ", ", ".join(inspection.unused_groups), width))
    if inspection.selection:
        blocks.append(_paragraph("Selected: ", inspection.selection, width))
    if inspection.structure:
        blocks.append("\n".join(["What is in it:", *(line[:width] for line in inspection.structure)]))
    if inspection.field_map:
        text = (
            "A field map says where a simulation keeps what is needed. Save this as my_simulation.yaml, correct "
            "groups, datasets, units and their powers of a and h (keys a: and h:), add what is missing "
            "(docs/how-to-extend.md), and try it with"
        )
        command = f"  rubix-like inspect {inspection.facts['file']} --reader my_simulation.yaml"
        blocks.append("\n".join([textwrap.fill(text, width), command, "", inspection.field_map.rstrip()]))
    if inspection.notes:
        blocks.append("\n".join(["Notes", *(_item(note, width) for note in inspection.notes)]))
    if inspection.problems:
        blocks.append("\n".join(["Problems", *(_item(problem, width) for problem in inspection.problems)]))
    if inspection.galaxy:
        heading = "To be read by" if not inspection.problems else "Once the problems are solved, to be read by"
        blocks.append(f"{heading}\n{inspection.galaxy.rstrip()}")
    return "\n\n".join(blocks)


def _group(report: GroupReport, width: int, is_part_selected: bool) -> str:
    heading = f"{report.family.capitalize()} in {report.group}: {report.n_rows - report.n_left_out}"
    if report.n_left_out:
        heading += f" ({report.n_left_out} {report.others} left out)"
    if is_part_selected:
        heading += ", ranges and sums of the whole file"
    stored = [
        (
            row.quantity,
            row.dataset,
            "" if row.shape is None else shape_words(row.shape),
            row.dtype,
            row.conversion,
            row.origin,
        )
        for row in report.fields
    ]
    values: list[tuple[str, ...]] = []
    for row in report.fields:
        whole = (row.quantity, row.unit, *map(_number, (row.smallest, row.median, row.largest, row.total)))
        by_axis = zip("xyz", row.axes, strict=bool(row.axes))
        axes = [(f"{row.quantity} {axis}", row.unit, *map(_number, found), "") for axis, found in by_axis]
        values += axes or [whole]
    wrong = [f"{row.quantity}: {'; '.join(row.problems)}" for row in report.fields if row.problems]
    remarks = [f"{row.quantity}: {row.remark}" for row in report.fields if row.remark]
    light = ["  Light that it can make:", *(_item(line, width) for line in report.light)] if report.light else []
    notes = [_item(note, width) for note in (*wrong, *remarks, *report.notes)]
    unused = [_paragraph("  not used: ", ", ".join(report.unused), width)] if report.unused else []
    lines = [heading, table_text(STORED, stored, width), "", table_text(VALUES, values, width), *notes, *light, *unused]
    return "\n".join(lines)


def table_text(title: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Aligned columns that fit `width`; what is too long goes on below itself. Columns without text are left out."""
    there = [index for index in range(len(title)) if any(row[index] for row in rows)]
    chosen = [[row[index] for index in there] for row in (title, *rows)]
    return "\n".join(f"  {line}" for line in table_lines(chosen, width=width - 2))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def _item(text: str, width: int) -> str:
    return _paragraph("  - ", text, width)


def _paragraph(start: str, text: str, width: int) -> str:
    """Text after `start`, its further lines indented as far."""
    return textwrap.fill(
        text,
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
