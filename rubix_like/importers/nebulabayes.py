"""NebulaBayes' grids (licence: MIT), computed with MAPPINGS 5.1: H II regions, and narrow-line regions of active
nuclei.

Thomas et al. 2018, ApJ 856, 89. A FITS table with a row per model: columns "log U", "log P/k", "12 + log O/H" (and
"log E_peak" for narrow-line regions), then one per line, over Hb; a line below 1e-5 of Hb is NaN.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from astropy.io import fits

from rubix_like.nebular.case_b import PARTICLES_PER_ELECTRON, energy_per_photon
from rubix_like.nebular.line_list import LINES
from rubix_like.nebular.table_file import NebularTable, assembled, recombination_temperature
from rubix_like.runtime.files.foreign_layouts import SourceFormat, open_source_fits

AXES_OF_COLUMNS: Mapping[str, str] = {
    "log U": "log_u",
    "log P/k": "log_pressure",
    "12 + log O/H": "oxygen_abundance",
    "log E_peak": "log_peak_energy",
}

LINES_OF_COLUMNS: Mapping[str, str] = {
    "Halpha": "Ha",
    "Hbeta": "Hb",
    "Hgamma": "Hg",
    "Hdelta": "Hd",
    "Paalpha": "Paa",
    "Pabeta": "Pab",
    "Pagamma": "Pag",
    "Padelta": "Pad",
    "Bralpha": "Bra",
    "Brbeta": "Brb",
    "Brgamma": "Brg",
    "CII2324.7": "C II] 2325",
    "CII2325.4": "C II] 2326",
    "ArII69853": "[Ar II] 7.0um",
    "ArIII89914": "[Ar III] 9.0um",
    "SIV105105": "[S IV] 10.5um",
    "NeII128135": "[Ne II] 12.8um",
    "NeIII155551": "[Ne III] 15.6um",
    "SIII187129": "[S III] 18.7um",
}
"""Column -> line, where the name of the column is not that of the line without brackets and spaces."""

SOLAR_OXYGEN = 8.76
SOLAR_METALLICITY = 0.0142
"""Nicholls et al. 2017, MNRAS 466, 4403: the abundances that the grids scale with oxygen."""


def _is_nebulabayes(path: Path) -> bool:
    try:
        with open_source_fits(path) as file:
            tables = [extension.data for extension in file if isinstance(extension, fits.BinTableHDU)]
            names = (tables[0].names or ()) if tables else ()
    except ValueError:
        return False
    return {"log U", "log P/k", "12 + log O/H", "Hbeta", "Halpha"} <= set(names)


def read_nebulabayes(path: Path) -> NebularTable:
    """A grid of NebulaBayes, per ionising photon.

    The temperature is that of Brg/Hb in case B, the density n_e = P / (2.1 k T); then
    L(Hb) per photon follows from case B, and so do the missing lines of hydrogen.
    """
    with open_source_fits(path) as file:
        data = file[1].data
        values = {name: np.asarray(data[name], dtype=np.float64) for name in data.columns.names}
    stated = [name for name in AXES_OF_COLUMNS if name in values]
    axes = {AXES_OF_COLUMNS[name]: np.unique(values[name]).round(4) for name in stated}
    shape = tuple(len(nodes) for nodes in axes.values())
    order = np.lexsort([values[name] for name in reversed(stated)])
    if len(order) != np.prod(shape):
        raise ValueError(f"{path}: expected a model at every node of the axes {shape}, got {len(order)} models")
    bare = {name.translate(str.maketrans("", "", "[] ")): name for name in LINES}
    ratios = {}
    for name, column in values.items():
        line = LINES_OF_COLUMNS.get(name) or bare.get(name.replace(" ", ""))
        if line is not None:
            ratios[line] = np.nan_to_num(column)[order].reshape(shape)
    others = [number for number, name in enumerate(axes) if name != "log_pressure"]
    pressure = 10.0 ** np.expand_dims(axes["log_pressure"], others)
    temperature = np.full(shape, 1e4)
    for _ in range(5):
        temperature = recombination_temperature(ratios, pressure / (PARTICLES_PER_ELECTRON * temperature))
    density = pressure / (PARTICLES_PER_ELECTRON * temperature)
    h_beta = energy_per_photon("Hb", temperature, density)
    nucleus = "log_peak_energy" in axes
    return assembled(
        {name: ratio * h_beta for name, ratio in ratios.items()},
        density,
        axes,
        name="nlr" if nucleus else "mappings-hii",
        citation="Thomas et al. 2018, ApJ 856, 89 (NebulaBayes); MAPPINGS 5.1: Sutherland & Dopita 2017, ASCL "
        "1807.005; hydrogen: Storey & Hummer 1995, MNRAS 272, 41",
        licence="MIT, Copyright 2017 Adam D. Thomas (see data/README.md)",
        source=f"NebulaBayes 0.9.9, {path.name}, {'active nuclei' if nucleus else 'H II regions'}; per ionising photon "
        "by case B",
        solar_oxygen=SOLAR_OXYGEN,
        solar_metallicity=SOLAR_METALLICITY,
    )


NEBULABAYES_FITS = SourceFormat(_is_nebulabayes, read_nebulabayes)
