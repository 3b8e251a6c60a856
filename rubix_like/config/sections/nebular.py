"""Settings of nebulae: whose photons ionise the gas, how many it absorbs, and how it shines."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import OLDEST, Kms, Kpc, Myr, Number
from rubix_like.config.sections.products import LARGEST_DISPERSION
from rubix_like.config.settings import AbstractSettings, WithSchema

NEBULAE: str = "nebulae"
"""The name in a pipeline of the source that this section is for."""

YOUNG_STARS: str = "young_stars"
"""The stars that ionise gas, where a run is planned for the velocities of particles by their kind."""

AGN: str = "agn"
"""The name of the source of narrow lines, which a pipeline with `NEBULAE` paints where the section has `agn`."""

NUCLEUS: str = "nucleus"
"""The name of the field that the source of narrow lines reads."""

PhotonSource = Literal["stars", "star_forming_gas", "agn"]

_TWICE = (
    "expected stars or star_forming_gas, got both: the young stars of a galaxy are those that its star-forming gas "
    "makes, so their photons would be counted twice; keep stars for the light of the star particles themselves, or "
    "star_forming_gas where young star particles are few"
)


def _one_source(value: object) -> object:
    """The source, also as a list of one; raises ValueError for both."""
    given = value if isinstance(value, list | tuple) else (value,)
    names = {name for name in given if isinstance(name, str)}
    if {"stars", "star_forming_gas"} <= names:
        raise ValueError(_TWICE)
    if "agn" in names and len(given) > 1:
        raise ValueError(
            "expected the source of the photons beside those of the nucleus, got a list with agn; give source: stars "
            "(or star_forming_gas) and the section agn, for example agn: {log_luminosity: 44}"
        )
    return given[0] if len(given) == 1 else value


class IonisationLaw(AbstractSettings):
    """log10 of the ionisation parameter: at_solar + slope x (12 + log10(O/H) - that of the Sun)."""

    at_solar: Annotated[Number, Field(ge=-8, le=3), Parameter()] = -3.0
    """log10 of the ionisation parameter of gas with the Sun's O/H."""
    slope: Annotated[Number, Field(ge=-5, le=5), Parameter()] = 0.0
    """Change of log10 U per dex of O/H."""


LawOrNumber = Annotated[
    IonisationLaw,
    BeforeValidator(lambda value: value if isinstance(value, Mapping | AbstractSettings) else {"at_solar": value}),
    WithSchema(lambda law: {"anyOf": [{"type": "number"}, {"type": "string"}, law]}),
]
"""A law; a bare number is the value at solar abundance, and at all others."""


class DiffuseSettings(AbstractSettings):
    """Gas far from young stars, which absorbs photons that leak out of the nebulae around them."""

    fraction: Annotated[Number, Field(ge=0, le=1), Parameter()] = 0.4
    """Share of the absorbed photons that diffuse gas absorbs."""
    mean_free_path: Annotated[Kpc, Field(gt=0)] = 1.9
    """Mean way of these photons in kpc (1.9: Belfiore et al. 2022, A&A 659, A26)."""
    log_u: Annotated[Number, Field(ge=-8, le=3), Parameter()] = -4.0
    """log10 of the ionisation parameter of diffuse gas."""
    velocity_dispersion: Annotated[Kms, Field(ge=0, le=LARGEST_DISPERSION), Parameter()] = 40.0
    """Sigma in km/s of diffuse gas around the velocity of the particle whose photons it absorbs."""


class AgnSettings(AbstractSettings):
    """An active nucleus in the galaxy's centre, and the gas that it ionises: its narrow lines, and their continuum."""

    log_luminosity: Annotated[Number, Field(ge=36, le=50), Parameter()]
    """log10 of the nucleus' bolometric luminosity in erg/s; 9.2e9 ionising photons per erg."""
    table: str = "nlr"
    """Lines: a table of active nuclei, by its name or path (`rubix-like nebular get nlr`)."""
    radius: Annotated[Kpc, Field(ge=0)] = 0.0
    """Distance from the centre in kpc within which gas absorbs the photons; 0: a point in the centre does."""
    covering_fraction: Annotated[Number, Field(ge=0, le=1), Parameter()] = 0.05
    """Share of the nucleus' ionising photons that gas absorbs (0.02-0.2: Baskin & Laor 2005, MNRAS 358, 1043)."""
    log_u: Annotated[Number, Field(ge=-8, le=3), Parameter()] = -3.0
    """log10 of the ionisation parameter."""
    log_pressure: Annotated[Number, Field(ge=0, le=12)] = 7.0
    """log10 of the gas pressure over Boltzmann's constant (K / cm^3)."""
    log_peak_energy: Annotated[Number, Field(ge=-4, le=2)] = -1.35
    """log10 of the energy in keV at which the ionising spectrum peaks (45 eV; 40-50 eV: Thomas et al. 2018, ApJ 861,
    L2)."""
    oxygen_abundance: Annotated[Number | None, Field(ge=4, le=11), Parameter()] = None
    """12 + log10(O/H); null: that of each gas particle, of a point the Sun's."""
    velocity_dispersion: Annotated[Kms, Field(ge=0, le=LARGEST_DISPERSION), Parameter()] = 150.0
    """Sigma in km/s of the gas around the velocity of its particle, or around the galaxy's."""


class NebularSettings(AbstractSettings):
    """Gas that shines in lines and in a continuum, by the ionising photons that it absorbs."""

    table: str = "mappings-hii"
    """Lines: a name from `rubix-like nebular list`, or the path of a converted table."""
    source: Annotated[PhotonSource, BeforeValidator(_one_source)] = "stars"
    """stars: photons of every young star, absorbed around it; star_forming_gas: of the stars that the star formation
    rate of a gas particle makes, absorbed in it; agn: of the active nucleus alone."""
    log_u: LawOrNumber = IonisationLaw()
    """log10 of the ionisation parameter: a number for all gas (-3.0), or a law {at_solar, slope}."""
    log_pressure: Annotated[Number, Field(ge=0, le=12)] = 5.8
    """log10 of the gas pressure over Boltzmann's constant (K / cm^3): of the table's lines where it has this axis, and
    of the continuum's density."""
    escape_fraction: Annotated[Number, Field(ge=0, le=1), Parameter()] = 0.0
    """Share of the ionising photons that leave the galaxy."""
    dust_fraction: Annotated[Number, Field(ge=0, le=1), Parameter()] = 0.0
    """Share of the others that dust absorbs before gas does."""
    oldest: Annotated[Myr, Field(gt=0, le=OLDEST)] = 30.0
    """Age in Myr up to which stars ionise gas."""
    resample_ages: Annotated[Myr, Field(gt=0)] | None = None
    """Age in Myr up to which stars shine in the mean of their photons over it, for star particles so massive that few
    are young; null: each shines in those of its own age."""
    velocity_dispersion: Annotated[Kms, Field(ge=0, le=LARGEST_DISPERSION), Parameter()] = 20.0
    """Sigma in km/s of the gas around the velocity of its particle, beside thermal motion."""
    continuum: StrictBool = True
    """Whether the gas shines in its continuum beside the lines."""
    diffuse: DiffuseSettings | None = None
    """Photons that leak into diffuse gas ({} for the defaults); null: all are absorbed where they are made."""
    agn: AgnSettings | None = None
    """An active nucleus, beside the other photons ({log_luminosity: 44}) or, with source: agn, alone; null: none."""

    @model_validator(mode="after")
    def _check_agn(self) -> "NebularSettings":
        if self.source != "agn":
            return self
        if self.agn is None:
            raise ValueError(
                "agn: expected the luminosity of the nucleus for source agn, got null; add for example agn: "
                "{log_luminosity: 44}"
            )
        if self.diffuse is not None:
            raise ValueError(
                "diffuse: expected null for source agn (photons leak from stars' nebulae), got a section; leave it "
                "out, or take source: stars beside agn"
            )
        return self

    @model_validator(mode="after")
    def _check_ages(self) -> "NebularSettings":
        if self.resample_ages is None:
            return self
        if self.source == "agn":
            raise ValueError(f"resample_ages: expected null for source agn, got {self.resample_ages:g} Myr")
        if self.source != "stars":
            raise ValueError(
                f"resample_ages: expected null for source {self.source} (its photons are a mean over ages already), "
                f"got {self.resample_ages:g} Myr"
            )
        if self.resample_ages > self.oldest:
            raise ValueError(f"resample_ages: expected no more than oldest, {self.oldest:g} Myr, got more")
        return self
