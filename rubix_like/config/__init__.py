"""Configuration of a run: YAML in, checked and frozen settings out."""

from rubix_like.config.aperture import ApertureSettings
from rubix_like.config.detector import DetectorSettings
from rubix_like.config.dust import DustSettings
from rubix_like.config.instrument import (
    InstrumentSettings,
    LSFSettings,
    WavelengthSettings,
)
from rubix_like.config.loading import load_config
from rubix_like.config.models import (
    DevicesSettings,
    EngineSettings,
    ObservationSettings,
    OutputSettings,
    RunConfig,
    SSPSettings,
    json_schema,
)
from rubix_like.config.noise import ExposureSettings, NoiseSettings
from rubix_like.config.pipeline import PipelineSettings, StageSettings, load_pipeline
from rubix_like.config.pointings import PointingSettings
from rubix_like.config.psf import PSFComponent, PSFSettings

__all__ = [
    "ApertureSettings",
    "DetectorSettings",
    "DevicesSettings",
    "DustSettings",
    "EngineSettings",
    "ExposureSettings",
    "InstrumentSettings",
    "LSFSettings",
    "NoiseSettings",
    "ObservationSettings",
    "OutputSettings",
    "PSFComponent",
    "PSFSettings",
    "PipelineSettings",
    "PointingSettings",
    "RunConfig",
    "SSPSettings",
    "StageSettings",
    "WavelengthSettings",
    "json_schema",
    "load_config",
    "load_pipeline",
]
