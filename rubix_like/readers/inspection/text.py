"""Format an inspection as plain text of limited width."""

import textwrap
from collections.abc import Sequence

from rubix_like.readers.inspection.groups import GroupReport
from rubix_like.readers.inspection.inspected_fields import FieldReport
from rubix_like.readers.inspection.report import Inspection
from rubix_like.readers.inspection.structure import shape_words
from rubix_like.runtime.text_tables import table_lines

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
        blocks.append(_how_to_write(inspection.field_map, inspection.facts["file"], width))
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
    values = [line for row in report.fields for line in _values(row)]
    wrong = [f"{row.quantity}: {'; '.join(row.problems)}" for row in report.fields if row.problems]
    remarks = [f"{row.quantity}: {row.remark}" for row in report.fields if row.remark]
    light = ["  Light that it can make:", *(_item(line, width) for line in report.light)] if report.light else []
    notes = [_item(note, width) for note in (*wrong, *remarks, *report.notes)]
    unused = [_paragraph("  not used: ", ", ".join(report.unused), width)] if report.unused else []
    lines = [heading, table_text(STORED, stored, width), "", table_text(VALUES, values, width), *notes, *light, *unused]
    return "\n".join(lines)


def _values(row: FieldReport) -> list[tuple[str, ...]]:
    """The lines of the second table: one, or three of a vector."""
    if not row.axes:
        return [(row.quantity, row.unit, *map(_number, (row.smallest, row.median, row.largest, row.total)))]
    return [
        (f"{row.quantity} {axis}", row.unit, *map(_number, values), "")
        for axis, values in zip("xyz", row.axes, strict=True)
    ]


def table_text(title: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Aligned columns that fit `width`; what is too long goes on below itself. Columns without text are left out."""
    there = [index for index in range(len(title)) if any(row[index] for row in rows)]
    chosen = [[row[index] for index in there] for row in (title, *rows)]
    return "\n".join(f"  {line}" for line in table_lines(chosen, width=width - 2))


def _how_to_write(field_map: str, path: str, width: int) -> str:
    text = (
        "A field map says where a simulation keeps what is needed. Save this as my_simulation.yaml, correct groups, "
        "datasets, units and their powers of a and h (keys a: and h:), add what is missing "
        "(docs/how-to-extend.md), and try it with"
    )
    command = f"  rubix-like inspect {path} --reader my_simulation.yaml"
    return "\n".join([textwrap.fill(text, width), command, "", field_map.rstrip()])


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
