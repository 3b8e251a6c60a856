"""Units that people write in field maps and settings."""

from astropy import units


def check_unit(text: str) -> str:
    """The unit as given; raises ValueError where astropy does not know it."""
    try:
        units.Unit(text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"expected a unit that astropy knows, such as 'kpc' or '1e10 Msun', got '{text}'") from error
    return text


def check_equivalent(quantity: str, text: str, expected: str) -> None:
    """Raise ValueError unless the unit `text` is one of `quantity`, which is read into `expected`."""
    if not units.Unit(text).is_equivalent(units.Unit(expected)):
        raise ValueError(f"{quantity}: expected a unit of {expected or 'a pure number'}, got '{text}'")
