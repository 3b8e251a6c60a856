"""Nebulae: the lines and the continuum of ionised gas, per ionising photon, from tables and atomic physics."""

from rubix_like.nebular.case_b import energy_per_photon, nebular_continuum, ratio_to_h_beta, recombination_coefficient
from rubix_like.nebular.line_list import FIXED_RATIOS, LINES, EmissionLine, find_line
from rubix_like.nebular.table_file import NebularTable, describe_table, line_rows, write_nebular
from rubix_like.nebular.table_formats import FORMATS, SHELF, load_nebular

__all__ = [
    "FIXED_RATIOS",
    "FORMATS",
    "LINES",
    "SHELF",
    "EmissionLine",
    "NebularTable",
    "describe_table",
    "energy_per_photon",
    "find_line",
    "line_rows",
    "load_nebular",
    "nebular_continuum",
    "ratio_to_h_beta",
    "recombination_coefficient",
    "write_nebular",
]
