"""Tables and lines in words, for the command line."""

import textwrap

from rubix_like.nebular.line_list import LINES
from rubix_like.nebular.table_file import AXES, NebularTable

_COLUMN = 16
_WIDTH = 120
_TIGHT = "\xa0"


def describe_table(table: NebularTable) -> str:
    """What `rubix-like nebular info` prints: axes, lines, temperatures, Ha per photon, provenance."""
    h_alpha = table.line("Ha")
    rows = [("name", table.name)]
    for name, nodes in table.axes.items():
        rows.append((name, f"{len(nodes)}, {nodes[0]:.4g} to {nodes[-1]:.4g}: {AXES[name]}"))
    rows += [
        ("temperature", f"{table.temperature.min():.0f} - {table.temperature.max():.0f} K"),
        ("Ha", f"{h_alpha.min():.3g} - {h_alpha.max():.3g} erg per ionising photon"),
        ("Sun", f"12 + log10(O/H) {table.solar_oxygen:g} at a metal mass fraction of {table.solar_metallicity:g}"),
        ("lines", f"{len(table.lines)}: {', '.join(name.replace(' ', _TIGHT) for name in table.lines)}"),
        ("citation", table.citation),
        ("licence", table.licence),
        ("source", table.source),
    ]
    wide = max(_COLUMN, *(len(label) + 2 for label, _ in rows))
    wrap = textwrap.TextWrapper(width=_WIDTH, subsequent_indent=" " * wide, break_long_words=False)
    text = "\n".join(wrap.fill(f"{label + ':':<{wide}}{value}") for label, value in rows)
    return text.replace(_TIGHT, " ")


def line_rows() -> list[tuple[str, str]]:
    """(name, vacuum wavelength and ion) of all known lines, from short wavelengths to long ones."""
    return [(line.name, f"{line.wavelength:.3f} A (vacuum)  {line.ion}") for line in LINES.values()]
