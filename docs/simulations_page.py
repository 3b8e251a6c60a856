"""The page on simulations from the field maps: where each quantity is, and in which unit.

`python docs/simulations_page.py > docs/simulations.md`, in the root of the clone, writes it anew.
"""

from collections.abc import Iterable, Sequence

from rubix_like.readers.fields.field_map import (
    FAMILIES,
    QUANTITIES,
    Family,
    FieldMap,
    FieldSettings,
    dataset_words,
    load_field_map,
    unit_words,
)
from rubix_like.readers.mapped_files import way_words
from rubix_like.runtime.resources import resource_names

GAS: tuple[str, ...] = (
    "star_formation_rate",
    "metallicity",
    "oxygen_fraction",
    "hydrogen_fraction",
    "hi_fraction",
    "h2_fraction",
    "smoothing_length",
    "dust_mass",
)
"""Quantities that nebulae, dust and maps of the gas need."""

COLUMNS: tuple[str, ...] = ("quantity", "of", "dataset", "stored unit", "read into", "note")

_INTRODUCTION = """\
# Simulations

Where the files of each simulation keep what is read, from the field maps in `configs/simulations/`. A value is the
number in the file times the stored unit, with the scale factor a and h = H0 / (100 km/s/Mpc) of the file's header.
Units that the file states itself, in attributes of the dataset or as the run's units in the header, go before those
given here.
[Inputs](inputs.md) says how files are recognised, `rubix-like inspect FILE` what is in one of them, and
[how to extend](how-to-extend.md#a-field-map) how to add a simulation."""


_ON_GAS = """\
The light, the dust and the hydrogen of gas come from these columns, which the files of each simulation can have. A file
may lack some; `rubix-like inspect FILE` says what light its gas can make. Smoothing lengths "from the cell" are twice
the radius of a sphere of the cell's volume."""


def simulations_page() -> str:
    """The whole page in Markdown: a table of the packaged simulations, then one of the fields of each."""
    maps = [load_field_map(name) for name in resource_names("simulations")]
    overview = [(f"[{m.name}](#{m.name})", m.title, " or ".join(m.container), _recognised(m), m.source) for m in maps]
    title = ("name", "simulation", "files", "recognised by", "source of names and units")
    gas = markdown_table(("name", *(f"`{name}`" for name in GAS)), [_gas_row(field_map) for field_map in maps])
    sections = (_section(field_map) for field_map in maps)
    blocks = [_INTRODUCTION, markdown_table(title, overview), f"{_ON_GAS}\n\n{gas}", *sections]
    return "\n\n".join(block.rstrip() for block in blocks) + "\n"


def field_rows(field_map: FieldMap) -> list[tuple[str, ...]]:
    """A row of `COLUMNS` for every quantity of a field map, stars and gas together where they are alike."""
    rows: list[tuple[str, ...]] = []
    for quantity in QUANTITIES:
        alike: dict[tuple[str, ...], list[Family]] = {}
        for family in FAMILIES:
            settings = field_map.family(family)
            for words in _words(quantity, settings.fields.get(quantity)):
                alike.setdefault(words, []).append(family)
        rows += [(quantity, ", ".join(families), *words) for words, families in alike.items()]
    return rows


def _gas_row(field_map: FieldMap) -> tuple[str, ...]:
    """Which columns of `GAS` a simulation's files can have."""
    fields = field_map.family("gas").fields
    words = {name: "yes" if name in fields else "" for name in GAS}
    if not words["smoothing_length"] and "density" in fields:
        words["smoothing_length"] = "from the cell"
    return (f"`{field_map.name}`", *words.values())


def markdown_table(title: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The lines of a table in Markdown."""
    lines = [title, ["---"] * len(title), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _section(field_map: FieldMap) -> str:
    notes = [f"{field_map.title}. {_groups(field_map)}."]
    if field_map.attributes is not None:
        names = (*field_map.attributes.cgs, field_map.attributes.a, field_map.attributes.h)
        notes.append(f"Units in a dataset's own attributes: {', '.join(f'`{name}`' for name in names)}.")
    return "\n\n".join([f"## {field_map.name}", " ".join(notes), markdown_table(COLUMNS, field_rows(field_map))])


def _words(quantity: str, field: FieldSettings | None) -> list[tuple[str, ...]]:
    """Dataset, unit, our unit and note: of the field, and of what is taken where the file has nothing of it."""
    found, start = [], ""
    while field is not None:
        table = " or Header/MassTable" if field.mass_table else ""
        unit = unit_words(f"{field.times:g} {field.unit}" if field.times != 1 else field.unit, field.a, field.h)
        dataset = f"{start}`{dataset_words(field)}`".replace(" or ", "` or `")
        found.append((f"{dataset}{table}", unit, QUANTITIES[quantity] or "1", field.note))
        field, start = field.otherwise, "else "
    return found


def _groups(field_map: FieldMap) -> str:
    texts = []
    for family in FAMILIES:
        settings = field_map.family(family)
        if not settings.groups:
            continue
        text = f"{'Stars are' if family == 'stars' else 'Gas is'} in {', '.join(settings.groups)}"
        if settings.isolated_groups:
            text += f" (without expansion also in {', '.join(settings.isolated_groups)})"
        if settings.keep is not None:
            text += f" (without {settings.keep.others}: `{settings.keep.dataset}` <= {settings.keep.above:g})"
        texts.append(text)
    return ", ".join([texts[0], *(text[0].lower() + text[1:] for text in texts[1:])])


def _recognised(field_map: FieldMap) -> str:
    """What files are recognised by, one way or another."""
    ways = [" and ".join(way_words(way, "`")) for way in field_map.recognise]
    return ", or ".join(ways) or "by its name only"


if __name__ == "__main__":
    print(simulations_page(), end="")
