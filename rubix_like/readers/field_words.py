"""Fields of a field map in words: where a quantity is stored, and what its numbers are multiplied by."""

from rubix_like.readers.field_map import FieldSettings


def dataset_words(field: FieldSettings, datasets: tuple[str, ...] = ()) -> str:
    """`GFM_Metals[:, 4]`, `1 - Metallicity`, `x, y, z`: all the names of the field or those of `datasets`."""
    names = datasets or field.dataset or field.stack
    text = (", " if field.stack else " or ").join(names)
    if field.columns is not None:
        text += f"[:, {' + '.join(map(str, field.columns))}]"
    if field.divide_by is not None:
        text += f" / {field.divide_by}"
    return f"1 - {text}" if field.one_minus else text


def unit_words(unit: str, a: float, h: float) -> str:
    """`Mpc x a^1 x h^-1`; `1` for a pure number."""
    powers = [f"{name}^{power:g}" for name, power in (("a", a), ("h", h)) if power]
    return " x ".join([unit or "1", *powers])
