"""A tiny file of each simulation, written by hand, and by which factors its numbers become kpc, km/s, Msun, yr."""

from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

A, H, N = 0.5, 0.7, 4
MSUN_PER_YEAR_OF_SWIFT = 1e10 / 977792221680.7891
YEARS_OF_KPC_PER_KMS = 977792221.6807891

KPC, KMS, MSUN = 3.0856775814913673e21, 1e5, 1.988409870698051e33
"""CGS."""

LENGTH, SPEED, MASS, DENSITY = ("Coordinates", 1, 1, -1), ("Velocities", 1, 0.5, 0), 1e10, 1e10
ENERGY, RATE = ("InternalEnergy", 1, 0, 0), ("StarFormationRate", 1, 0, 0)


@dataclass(frozen=True)
class Small:
    """`stars` and `gas`: quantity -> dataset, factor, power of a, power of h. `pure`: quantity -> what it is of, for
    which the gas also needs the datasets `extra`.

    `cgs`, `a`, `h` are the attributes by which datasets state their unit; `stubborn` are the quantities for which they
    are known to be wrong.
    """

    header: dict[str, Any]
    stars: dict[str, tuple[str, float, float, float]]
    gas: dict[str, tuple[str, float, float, float]]
    pure_stars: dict[str, Any]
    pure_gas: dict[str, Any]
    other: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    cgs: str = ""
    a: str = ""
    h: str = ""
    stubborn: tuple[str, ...] = ()
    marks: dict[str, tuple[str, ...]] = field(default_factory=dict)


GADGET_HEADER = {
    "BoxSize": 1000.0,
    "HubbleParam": H,
    "Omega0": 0.3,
    "OmegaLambda": 0.7,
    "Time": A,
    "Redshift": 1.0,
    "MassTable": np.zeros(6),
}
GADGET_STARS = {"position": LENGTH, "velocity": SPEED, "mass": ("Masses", MASS, 0, -1)}
GADGET_GAS = GADGET_STARS | {
    "density": ("Density", DENSITY, -3, 2),
    "internal_energy": ENERGY,
    "star_formation_rate": RATE,
    "smoothing_length": ("SmoothingLength", 1, 1, -1),
}
GFM_STARS = GADGET_STARS | {"initial_mass": ("GFM_InitialMass", MASS, 0, -1)}
GFM_GAS = {name: place for name, place in GADGET_GAS.items() if name != "smoothing_length"}
GFM_PURE_STARS = {"metallicity": "GFM_Metallicity", "birth_scale_factor": "GFM_StellarFormationTime"}
GFM_PURE_GAS = {
    "metallicity": "GFM_Metallicity",
    "electron_abundance": "ElectronAbundance",
    "hydrogen_fraction": lambda raw: raw["GFM_Metals"][:, 0],
    "oxygen_fraction": lambda raw: raw["GFM_Metals"][:, 4],
    "hi_fraction": lambda raw: raw["NeutralHydrogenAbundance"] * raw["GFM_Metals"][:, 0],
}
EAGLE_LENGTH = ("Coordinates", 1e3, 1, -1)
EAGLE_STARS = {
    "position": EAGLE_LENGTH,
    "velocity": ("Velocity", 1, 0.5, 0),
    "mass": ("Mass", MASS, 0, -1),
    "initial_mass": ("InitialMass", MASS, 0, -1),
}
ELEMENTS = {
    "hydrogen_fraction": "SmoothedElementAbundance/Hydrogen",
    "oxygen_fraction": "SmoothedElementAbundance/Oxygen",
}
ELEVEN = {
    "metallicity": lambda raw: raw["Metallicity"][:, 0],
    "hydrogen_fraction": lambda raw: 1 - raw["Metallicity"][:, 0] - raw["Metallicity"][:, 1],
    "oxygen_fraction": lambda raw: raw["Metallicity"][:, 4],
    "electron_abundance": "ElectronAbundance",
    "hi_fraction": lambda raw: raw["NeutralHydrogenAbundance"] * (1 - raw["Metallicity"][:, :2].sum(axis=1)),
    "h2_fraction": lambda raw: raw["FractionH2"] * (1 - raw["Metallicity"][:, :2].sum(axis=1)),
}
ELEVEN_STARS = {"metallicity": ELEVEN["metallicity"], "birth_scale_factor": "StellarFormationTime"}
ATTRIBUTES_OF_EAGLE = {"cgs": "CGSConversionFactor", "a": "aexp-scale-exponent", "h": "h-scale-exponent"}
ATTRIBUTES_OF_AREPO = {"cgs": "to_cgs", "a": "a_scaling", "h": "h_scaling"}

SMALL: dict[str, Small] = {
    "illustris": Small(
        header=GADGET_HEADER,
        stars=GFM_STARS | {"smoothing_length": ("StellarHsml", 1, 1, -1)},
        gas=GFM_GAS,
        pure_stars=GFM_PURE_STARS,
        pure_gas=GFM_PURE_GAS,
        columns={"GFM_Metals": 10},
        extra=("NeutralHydrogenAbundance",),
        **ATTRIBUTES_OF_AREPO,
    ),
    "camels": Small(
        header={"HubbleParam": H, "Omega0": 0.3, "Time": A},
        stars=GFM_STARS | {"smoothing_length": ("SubfindHsml", 1, 1, -1)},
        gas=GFM_GAS | {"smoothing_length": ("SubfindHsml", 1, 1, -1)},
        pure_stars=GFM_PURE_STARS,
        pure_gas=GFM_PURE_GAS,
        columns={"GFM_Metals": 10},
        extra=("NeutralHydrogenAbundance",),
    ),
    "eagle": Small(
        header=GADGET_HEADER | {"RunLabel": np.bytes_("Eagle"), "ExpansionFactor": A},
        stars=EAGLE_STARS | {"smoothing_length": ("SmoothingLength", 1e3, 1, -1)},
        gas={
            "position": EAGLE_LENGTH,
            "velocity": ("Velocity", 1, 0.5, 0),
            "mass": ("Mass", MASS, 0, -1),
            "density": ("Density", 10, -3, 2),
            "temperature": ("Temperature", 1, 0, 0),
            "internal_energy": ENERGY,
            "star_formation_rate": RATE,
            "smoothing_length": ("SmoothingLength", 1e3, 1, -1),
        },
        pure_stars={"metallicity": "SmoothedMetallicity", "birth_scale_factor": "StellarFormationTime"},
        pure_gas={"metallicity": "SmoothedMetallicity", **ELEMENTS},
        **ATTRIBUTES_OF_EAGLE,
    ),
    "horizon_agn": Small(
        header={"RunLabel": "Horizon-AGN", "ExpansionFactor": A, "HubbleParam": H, "Omega0": 0.3, "OmegaLambda": 0.7},
        stars={
            "position": ("Coordinates", 1, 0, 0),
            "velocity": ("Velocity", 1, 0, 0),
            "mass": ("Mass", 1, 0, 0),
            "initial_mass": ("InitialMass", 1, 0, 0),
        },
        gas={
            "position": ("Coordinates", 1, 0, 0),
            "velocity": ("Velocity", 1, 0, 0),
            "mass": ("Mass", 1, 0, 0),
            "density": ("Density", 1, 0, 0),
            "temperature": ("Temperature", 1, 0, 0),
            "star_formation_rate": RATE,
            "smoothing_length": ("dx", 1, 0, 0),
        },
        pure_stars={"metallicity": "SmoothedMetallicity", "birth_scale_factor": "StellarFormationTime"},
        pure_gas={"metallicity": "SmoothedMetallicity", **ELEMENTS},
        stubborn=("density", "star_formation_rate"),
        **ATTRIBUTES_OF_EAGLE,
    ),
    "magneticum": Small(
        header=GADGET_HEADER | {"RunLabel": "Magneticum", "ExpansionFactor": A},
        stars=EAGLE_STARS | {"position": LENGTH},
        gas={
            "position": LENGTH,
            "velocity": ("Velocity", 1, 0.5, 0),
            "mass": ("Mass", MASS, 0, -1),
            "density": ("Density", DENSITY, -3, 2),
            "temperature": ("Temperature", 1, 0, 0),
            "internal_energy": ENERGY,
            "star_formation_rate": RATE,
            "smoothing_length": ("SmoothingLength", 1, 1, -1),
        },
        pure_stars={
            "metallicity": lambda raw: raw["Metallicity"][:, 1:].sum(axis=1) / raw["InitialMass"],
            "birth_scale_factor": "StellarFormationTime",
        },
        pure_gas={
            "metallicity": lambda raw: raw["Metallicity"][:, 1:].sum(axis=1) / raw["Mass"],
            "hydrogen_fraction": lambda raw: 1 - raw["Metallicity"].sum(axis=1) / raw["Mass"],
            "oxygen_fraction": lambda raw: raw["Metallicity"][:, 3] / raw["Mass"],
        },
        columns={"Metallicity": 11},
        stubborn=("star_formation_rate",),
        **ATTRIBUTES_OF_EAGLE,
    ),
    "swift": Small(
        header={"BoxSize": np.full(3, 50.0), "Code": np.bytes_("SWIFT"), "Time": np.array([0.01])},
        other={
            "Cosmology": {
                "Cosmological run": np.array([1]),
                "Scale-factor": np.array([A]),
                "Redshift": np.array([1.0]),
                "h": np.array([H]),
                "Omega_m": np.array([0.3]),
                "Omega_lambda": np.array([0.7]),
            }
        },
        stars={
            "position": ("Coordinates", 1e3, 1, 0),
            "velocity": ("Velocities", 1, 0, 0),
            "mass": ("Masses", MASS, 0, 0),
            "initial_mass": ("InitialMasses", MASS, 0, 0),
        },
        gas={
            "position": ("Coordinates", 1e3, 1, 0),
            "velocity": ("Velocities", 1, 0, 0),
            "mass": ("Masses", MASS, 0, 0),
            "density": ("Densities", 10, -3, 0),
            "temperature": ("Temperatures", 1, 0, 0),
            "internal_energy": ("InternalEnergies", 1, -2, 0),
            "star_formation_rate": ("StarFormationRates", MSUN_PER_YEAR_OF_SWIFT, 0, 0),
            "smoothing_length": ("SmoothingLengths", 2018.932, 1, 0),
        },
        pure_stars={"metallicity": "MetalMassFractions", "birth_scale_factor": "BirthScaleFactors"},
        pure_gas={
            "metallicity": "MetalMassFractions",
            "hydrogen_fraction": lambda raw: raw["ElementMassFractions"][:, 0],
            "oxygen_fraction": lambda raw: raw["ElementMassFractions"][:, 4],
            "hi_fraction": lambda raw: raw["SpeciesFractions"][:, 1] * raw["ElementMassFractions"][:, 0],
            "h2_fraction": lambda raw: 2 * raw["SpeciesFractions"][:, 7] * raw["ElementMassFractions"][:, 0],
            "dust_mass": lambda raw: raw["TotalDustMassFractions"] * raw["Masses"] * MASS,
        },
        columns={"ElementMassFractions": 9, "SpeciesFractions": 10},
        extra=("TotalDustMassFractions",),
        cgs="Conversion factor to CGS (not including cosmological corrections)",
        a="a-scale exponent",
        h="h-scale exponent",
    ),
    "simba": Small(
        header=GADGET_HEADER | {"Flag_Metals": 11},
        stars=GADGET_STARS,
        gas=GADGET_GAS | {"dust_mass": ("Dust_Masses", MASS, 0, -1)},
        pure_stars=ELEVEN_STARS,
        pure_gas=ELEVEN,
        columns={"Metallicity": 11},
        extra=("NeutralHydrogenAbundance", "FractionH2"),
        marks={"PartType0": ("AGS-Softening",)},
    ),
    "gizmo": Small(
        header=GADGET_HEADER | {"Flag_Metals": 11},
        stars=GADGET_STARS,
        gas=GADGET_GAS | {"temperature": ("Temperature", 1, 0, 0)},
        pure_stars=ELEVEN_STARS,
        pure_gas=ELEVEN,
        columns={"Metallicity": 11},
        extra=("NeutralHydrogenAbundance", "FractionH2"),
    ),
    "gadget": Small(
        header=GADGET_HEADER,
        stars=GADGET_STARS | {"initial_mass": ("InitialMass", 1e10, 0, -1)},
        gas=GADGET_GAS,
        pure_stars={"metallicity": "Metallicity", "birth_scale_factor": "StellarFormationTime"},
        pure_gas={
            "metallicity": "Metallicity",
            "electron_abundance": "ElectronAbundance",
            "hi_fraction": lambda raw: 0.76 * raw["NeutralHydrogenAbundance"],
        },
        extra=("NeutralHydrogenAbundance",),
        **ATTRIBUTES_OF_AREPO,
    ),
}
"""Field map -> its file. Numbers are random between 0.1 and 0.45, a tenth of that for masses of dust."""


def datasets(small: Small, family: str) -> tuple[str, ...]:
    """The datasets of stars or gas."""
    dimensional = getattr(small, family)
    named = [place[0] for place in dimensional.values()]
    pure = [name for name in getattr(small, f"pure_{family}").values() if isinstance(name, str)]
    uses = small.columns if family == "gas" or "Metallicity" in small.columns else ()
    group = {"stars": "PartType4", "gas": "PartType0"}[family]
    extra = small.extra if family == "gas" else ()
    return tuple(dict.fromkeys([*named, *pure, *uses, *extra, *small.marks.get(group, ())]))


def write_small(path, name, change=None):
    """Write the file of a simulation; `change(file)` may alter it. Returns the path."""
    small, rng = SMALL[name], np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(small.header)
        for group, attributes in small.other.items():
            file.create_group(group).attrs.update(attributes)
        for family, group in (("stars", "PartType4"), ("gas", "PartType0")):
            for dataset in datasets(small, family):
                vector = dataset in ("Coordinates", "Velocities", "Velocity")
                shape = (N, 3) if vector else (N, small.columns[dataset]) if dataset in small.columns else (N,)
                largest = 0.1 if dataset == "Dust_Masses" else 1.0
                file[f"{group}/{dataset}"] = largest * rng.uniform(0.1, 0.45, shape)
            if small.a == "aexp-scale-exponent":
                state_units(file, name, family)
        if change is not None:
            change(file)
    return path


def state_units(file, name, family, times=1.0, more_a=0.0, more_h=0.0):
    """Give the datasets of a family the attributes that state unit and powers, altered by the last three."""
    small, group = SMALL[name], {"stars": "PartType4", "gas": "PartType0"}[family]
    for quantity, (dataset, factor, a, h) in getattr(small, family).items():
        kernel = 2.018932 if dataset == "SmoothingLengths" else 1.0
        attributes = file[f"{group}/{dataset}"].attrs
        attributes[small.cgs] = np.array([times * factor / kernel * CGS[quantity]])
        attributes[small.a], attributes[small.h] = a + more_a, h + more_h


CGS = {
    "position": KPC,
    "smoothing_length": KPC,
    "velocity": KMS,
    "mass": MSUN,
    "initial_mass": MSUN,
    "dust_mass": MSUN,
    "density": MSUN / KPC**3,
    "internal_energy": KMS**2,
    "temperature": 1.0,
    "star_formation_rate": MSUN / 3.15576e7,
}
