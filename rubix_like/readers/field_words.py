"""Fields of a field map in words: where a quantity is stored, and what its numbers are multiplied by."""

from rubix_like.readers.field_map import FieldSettings


def dataset_words(field: FieldSettings, datasets: tuple[str, ...] = ()) -> str:
    """`GFM_Metals[:, 4]`, `1 - Metallicity`, `x, y, z`: all the names of the field or those of `datasets`."""
    names = datasets or field.dataset or field.stack
    if field.columns is not None:
        names = tuple(_with_columns(name, field.columns) for name in names)
    text = (", " if field.stack else " or ").join(names)
    if field.divide_by is not None:
        text += f" / {field.divide_by}"
    return f"1 - {text}" if field.one_minus else text


def unit_words(unit: str, a: float, h: float) -> str:
    """`Mpc x a^1 x h^-1`; `1` for a pure number."""
    powers = [f"{name}^{power:g}" for name, power in (("a", a), ("h", h)) if power]
    return " x ".join([unit.strip() or "1", *powers])


def counted(number: int, noun: str) -> str:
    """`1 star`, `2 stars`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _with_columns(name: str, columns: tuple[int, ...]) -> str:
    """One column `name[:, 4]`; several are added up, `sum(name[:, 1:11])`."""
    if len(columns) == 1:
        return f"{name}[:, {columns[0]}]"
    first, last = columns[0], columns[-1]
    chosen = f"{first}:{last + 1}" if columns == tuple(range(first, last + 1)) else str(list(columns))
    return f"sum({name}[:, {chosen}])"
