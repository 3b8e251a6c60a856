"""What light and maps a file's gas can make: which columns it has for nebulae, dust and hydrogen."""

from collections.abc import Mapping, Sequence

from rubix_like.readers.inspection.inspected_fields import FieldReport


def light_of_gas(fields: Sequence[FieldReport]) -> tuple[str, ...]:
    """One sentence each on star formation, abundances, dust, neutral hydrogen and maps of a group of gas."""
    found = {row.quantity: row for row in fields}
    return (_star_formation(found), _abundances(found), _dust(found), _neutral_hydrogen(found), _maps(found))


def _star_formation(found: Mapping[str, FieldReport]) -> str:
    row = found.get("star_formation_rate")
    if row is None:
        return "nebulae: none around forming stars (no star_formation_rate); young stars ionise nebulae without it"
    if not row.n_values:
        return "nebulae: star_formation_rate has no number that can be read"
    if not row.n_positive:
        return f"nebulae: none around forming stars: star_formation_rate is 0 in all {row.n_values} particles"
    if "metallicity" not in found:
        return "nebulae: none around forming stars (no metallicity, by which they ionise)"
    return (
        f"nebulae: around forming stars: star_formation_rate is above 0 in {row.n_positive} of {row.n_values} "
        f"particles, {row.total:.5g} {row.unit} in all"
    )


def _abundances(found: Mapping[str, FieldReport]) -> str:
    """Where the O/H of the gas comes from."""
    if "oxygen_fraction" in found and "hydrogen_fraction" in found:
        return "abundances: O/H from oxygen_fraction and hydrogen_fraction"
    if "oxygen_fraction" in found:
        return "abundances: O/H from oxygen_fraction and a usual share of hydrogen (no hydrogen_fraction)"
    if "metallicity" in found:
        return "abundances: O/H from metallicity in solar proportions (no oxygen_fraction)"
    return "abundances: neither oxygen_fraction nor metallicity"


def _dust(found: Mapping[str, FieldReport]) -> str:
    row = found.get("dust_mass")
    if row is not None and not row.n_values:
        return "dust: dust_mass has no number that can be read"
    if row is not None:
        return f"dust: dust_mass, {row.total:.5g} {row.unit} in all"
    if "metallicity" in found:
        return "dust: no dust_mass; metallicity and mass give it for a stated dust-to-metal ratio"
    return "dust: neither dust_mass nor metallicity"


def _neutral_hydrogen(found: Mapping[str, FieldReport]) -> str:
    there = [name for name in ("hi_fraction", "h2_fraction") if name in found]
    return f"neutral hydrogen: {' and '.join(there) or 'neither hi_fraction nor h2_fraction'}"


def _maps(found: Mapping[str, FieldReport]) -> str:
    """Which maps `products.gas: true` makes."""
    columns = {
        "mass": "gas mass",
        "velocity": "velocity and dispersion",
        "metallicity": "metallicity",
        "star_formation_rate": "star formation rate",
        "hi_fraction": "neutral hydrogen",
        "h2_fraction": "molecular hydrogen",
    }
    there = [words for name, words in columns.items() if name in found]
    if "mass" not in found:
        return "maps (products.gas: true): none (no mass)"
    return f"maps (products.gas: true): {', '.join(there)}"
