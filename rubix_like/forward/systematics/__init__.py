"""Systematic errors: stages for what calibration and the detector leave in spectra, and what each of them adds."""
