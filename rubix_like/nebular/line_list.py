"""The nebular lines known by name: vacuum wavelengths, ions, and ratios that atomic physics fixes.

Wavelengths are Ritz wavelengths, 1 / (E_upper - E_lower), of the energy levels in the NIST Atomic Spectra Database
(Kramida, Ralchenko, Reader & NIST ASD Team, https://physics.nist.gov/asd). Lines of H I, He I and He II are whole
multiplets: their levels are averages over fine structure, weighted by 2J + 1. Names are as in the literature: the ion
and the wavelength in air (in vacuum below 2000 A; microns in the infrared), and Greek letters or the upper level of
hydrogen's series.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rubix_like.errors import ConfigError

ATOMIC_MASSES: Mapping[str, float] = {
    "H": 1.008,
    "He": 4.0026,
    "C": 12.011,
    "N": 14.007,
    "O": 15.999,
    "Ne": 20.180,
    "S": 32.06,
    "Cl": 35.45,
    "Ar": 39.95,
}
"""Element -> standard atomic weight (IUPAC 2021), in atomic mass units."""


@dataclass(frozen=True)
class EmissionLine:
    """A line: its name, vacuum wavelength at rest (Angstrom) and the ion, as in "O III", that shines in it."""

    name: str
    wavelength: float
    ion: str

    @property
    def mass(self) -> float:
        """Mass of the ion in atomic mass units; it sets the line's thermal width."""
        return ATOMIC_MASSES[self.ion.split()[0]]


_HYDROGEN: Mapping[str, float] = {
    "Ha": 6564.632,
    "Hb": 4862.691,
    "Hg": 4341.691,
    "Hd": 4102.899,
    "H7": 3971.202,
    "H8": 3890.158,
    "H9": 3836.479,
    "H10": 3798.983,
    "H11": 3771.708,
    "H12": 3751.224,
    "Paa": 18756.096,
    "Pab": 12821.576,
    "Pag": 10941.082,
    "Pad": 10052.123,
    "Pa8": 9548.588,
    "Pa9": 9231.546,
    "Pa10": 9017.384,
    "Pa11": 8865.216,
    "Pa12": 8752.876,
    "Bra": 40522.694,
    "Brb": 26258.683,
    "Brg": 21661.212,
}

_OTHERS: Mapping[str, str] = {
    "He I": "3188=3188.665 3889=3889.745 4026=4027.347 4472=4472.756 4922=4923.305 5016=5017.077 5876=5877.287 "
    "6678=6679.996 7065=7067.197 7281=7283.357 10830=10833.138",
    "He II": "1640=1640.416 3203=3204.020 4686=4687.007 10124=10126.364",
    "C II]": "2324=2324.214 2325=2325.403 2326=2326.113 2327=2327.645 2328=2328.837",
    "C III]": "1907=1906.683 1909=1908.734",
    "C IV": "1548=1548.187 1551=1550.772",
    "[N I]": "5198=5199.349 5200=5201.705",
    "[N II]": "5755=5756.191 6548=6549.861 6583=6585.273",
    "N II]": "2143=2143.448",
    "N III]": "1749=1748.646 1750=1749.674 1752=1752.160 1754=1753.995",
    "N IV]": "1483=1483.321 1486=1486.496",
    "[O I]": "5577=5578.887 6300=6302.046 6364=6365.536",
    "[O II]": "2470=2471.07 3726=3727.092 3729=3729.875 7319=7320.939 7320=7322.006 7330=7331.685 7331=7332.755",
    "[O III]": "2321=2321.664 4363=4364.436 4959=4960.295 5007=5008.240",
    "O III]": "1661=1660.809 1666=1666.150",
    "[Ne II]": "12.8um=128135.5",
    "[Ne III]": "3869=3869.861 3967=3968.594 15.6um=155551.0",
    "[Ne IV]": "2422=2422.546 2424=2425.158",
    "[Ne V]": "3346=3346.783 3426=3426.864",
    "[S II]": "4069=4069.749 4076=4077.500 6716=6718.295 6731=6732.674",
    "[S III]": "3722=3722.688 6312=6313.809 9069=9071.109 9531=9533.234 18.7um=187129.3",
    "[S IV]": "10.5um=105104.9",
    "[Cl III]": "5518=5519.242 5538=5539.411",
    "[Ar II]": "7.0um=69852.7",
    "[Ar III]": "7136=7137.759 7751=7753.242 9.0um=89914.3",
    "[Ar IV]": "4711=4712.580 4740=4741.449",
}


def _all_lines() -> dict[str, EmissionLine]:
    lines = [EmissionLine(name, wavelength, "H I") for name, wavelength in _HYDROGEN.items()]
    for kind, entries in _OTHERS.items():
        for entry in entries.split():
            number, wavelength = entry.split("=")
            lines.append(EmissionLine(f"{kind} {number}", float(wavelength), kind.strip("[]")))
    return {line.name: line for line in sorted(lines, key=lambda line: line.wavelength)}


LINES: Mapping[str, EmissionLine] = _all_lines()
"""Name -> line, from short wavelengths to long ones."""

FIXED_RATIOS: Mapping[str, tuple[str, float]] = {
    "[O III] 4959": ("[O III] 5007", 1 / 2.984),
    "[N II] 6548": ("[N II] 6583", 1 / 2.942),
    "[O I] 6364": ("[O I] 6300", 1 / 3.131),
    "[O II] 7319": ("[O II] 7330", 0.604),
    "[Ar III] 7751": ("[Ar III] 7136", 0.2413),
}
"""Line -> (line from the same upper level, their ratio of luminosities, the first over the second), by the transition
probabilities A: A_1 lambda_2 / (A_2 lambda_1). [O III]: Storey & Zeippen 2000, MNRAS 312, 813; [N II]: Froese Fischer &
Tachiev 2004, ADNDT 87, 1; [O I]: Wiese, Fuhr & Deters 1996; [O II]: Zeippen 1982, MNRAS 198, 111; [Ar III]: Munoz
Burgos et al. 2009, A&A 500, 1253."""

_GREEK: Mapping[str, str] = {"alpha": "a", "beta": "b", "gamma": "g", "delta": "d", "epsilon": "7", "eps": "7"}


def find_line(name: str) -> EmissionLine:
    """The line of a name in any usual spelling: `Ha`, `Halpha`, `[O III] 5007`, `[OIII]5007`, `OIII-5008`.

    Brackets, spaces, underscores, hyphens and capitals do not matter; the number may be the wavelength in vacuum, as in
    the names of MaNGA's pipeline. Raises ConfigError with the nearest known name.
    """
    found = _SPELLINGS.get(_key(name))
    if found is None:
        near = difflib.get_close_matches(_key(name), [*_SPELLINGS, *_GREEK_SPELLINGS], n=1)
        guess = f"; did you mean '{(_SPELLINGS | _GREEK_SPELLINGS)[near[0]]}'?" if near else ""
        raise ConfigError(f"unknown line '{name}'{guess} (`rubix-like list lines` shows all)")
    return LINES[found]


def _key(name: str) -> str:
    bare = re.sub(r"[\[\]\s_-]", "", name).lower()
    series = re.fullmatch(r"(h|pa|br)(alpha|beta|gamma|delta|epsilon|eps)(?:\d{4,})?", bare)
    return series[1] + _GREEK[series[2]] if series else bare


def _spellings() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in LINES.values():
        vacuum = f"{line.ion} {line.wavelength:.0f}" if line.ion != "H I" else f"{line.name}{line.wavelength:.0f}"
        found.setdefault(_key(vacuum), line.name)
    for line in LINES.values():
        ion, _, number = line.name.rpartition(" ")
        if number.isdigit():  # rounded the other way, as [N II] 6584
            for near in (int(number) + 1, int(number) - 1):
                found.setdefault(_key(f"{ion} {near}"), line.name)
    return found | {_key(name): name for name in LINES}


_SPELLINGS: dict[str, str] = _spellings()

_GREEK_SPELLINGS: dict[str, str] = {
    f"{series}{letter}": _SPELLINGS[f"{series}{short}"]
    for series in ("h", "pa", "br")
    for letter, short in _GREEK.items()
    if f"{series}{short}" in _SPELLINGS
}
"""Series with whole Greek letters, for guesses at what was meant."""
