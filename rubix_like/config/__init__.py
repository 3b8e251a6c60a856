"""Configuration of a run: YAML in, checked and frozen settings out."""

from rubix_like.config.loading import load_config
from rubix_like.config.run_config import (
    EngineSettings,
    ObservationSettings,
    RunConfig,
    json_schema,
)
from rubix_like.config.sections.instrument import (
    ApertureSettings,
    InstrumentSettings,
    LSFSettings,
)
from rubix_like.config.sections.noise import ExposureSettings, NoiseSettings
from rubix_like.config.sections.pipeline import PipelineSettings, StageSettings, load_pipeline
from rubix_like.config.sections.products import LOSVDSettings, ProductsSettings
from rubix_like.config.sections.psf import AdaptiveOptics, PSFSettings
from rubix_like.config.sections.wavelength import WavelengthSettings

__all__ = [
    "AdaptiveOptics",
    "ApertureSettings",
    "EngineSettings",
    "ExposureSettings",
    "InstrumentSettings",
    "LOSVDSettings",
    "LSFSettings",
    "NoiseSettings",
    "ObservationSettings",
    "PSFSettings",
    "PipelineSettings",
    "ProductsSettings",
    "RunConfig",
    "StageSettings",
    "WavelengthSettings",
    "json_schema",
    "load_config",
    "load_pipeline",
]
