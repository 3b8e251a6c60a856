"""Configuration of a run: YAML in, checked and frozen settings out."""

from rubix_like.config.loading import load_config
from rubix_like.config.run_config import (
    DevicesSettings,
    EngineSettings,
    ObservationSettings,
    OutputSettings,
    RunConfig,
    SSPSettings,
    json_schema,
)
from rubix_like.config.sections.dust import DustSettings, ParticleDustSettings
from rubix_like.config.sections.instrument import (
    ApertureSettings,
    InstrumentSettings,
    LSFSettings,
)
from rubix_like.config.sections.noise import DetectorSettings, ExposureSettings, NoiseSettings
from rubix_like.config.sections.observation import PointingSettings
from rubix_like.config.sections.pipeline import PipelineSettings, StageSettings, load_pipeline
from rubix_like.config.sections.products import LOSVDSettings, ProductsSettings
from rubix_like.config.sections.psf import AdaptiveOptics, PSFComponent, PSFSettings
from rubix_like.config.sections.wavelength import WavelengthSettings

__all__ = [
    "AdaptiveOptics",
    "ApertureSettings",
    "DetectorSettings",
    "DevicesSettings",
    "DustSettings",
    "EngineSettings",
    "ExposureSettings",
    "InstrumentSettings",
    "LOSVDSettings",
    "LSFSettings",
    "NoiseSettings",
    "ObservationSettings",
    "OutputSettings",
    "PSFComponent",
    "PSFSettings",
    "ParticleDustSettings",
    "PipelineSettings",
    "PointingSettings",
    "ProductsSettings",
    "RunConfig",
    "SSPSettings",
    "StageSettings",
    "WavelengthSettings",
    "json_schema",
    "load_config",
    "load_pipeline",
]
