"""Notes for the user: a sentence with a key that stays and a severity; all keys, and how notes are kept."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

REMARK: str = "remark"
"""A choice that was made, or a fact that explains the numbers."""

WARNING: str = "warning"
"""The result may not be what was wanted, or may be less accurate: look before you use it."""

_LABELS: dict[str, str] = {WARNING: "Warning", REMARK: "Note"}
"""Severity -> the word before a printed note; the first severities come first."""


class Note(str):
    """A sentence for the user, which is text (`print(note)`, `"smoothed" in note`) with a key and a severity.

    `key` names the fact, in dotted lower case; it stays when the words change. `severity`: "remark" or "warning".
    `text` is the sentence as a plain `str`, which h5py and YAML need. Raises ValueError for a key that is neither in
    docs/notes.md nor begins with `plug_in.`, the prefix of keys that plug-ins choose, and for another severity.
    """

    __slots__ = ("key", "severity")

    key: str
    severity: str

    def __new__(cls, key: str, text: str, severity: str = REMARK) -> "Note":
        """The note of a fact, in words."""
        if key not in MISTAKES and not key.startswith(PLUG_IN):
            raise ValueError(
                f"Note: expected a key of the table of notes (docs/notes.md), or one that begins with '{PLUG_IN}', got "
                f"'{key}'; of a new kind of note write the mistake into rubix_like/runtime/notes.py"
            )
        if severity not in _LABELS:
            raise ValueError(f"Note '{key}': expected the severity {' or '.join(_LABELS)}, got '{severity}'")
        note = str.__new__(cls, text)
        note.key, note.severity = key, severity
        return note

    def __getnewargs__(self) -> tuple[str, str, str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Arguments by which copies and pickles are made."""
        return self.key, self.text, self.severity

    @property
    def text(self) -> str:
        """The sentence alone."""
        return str(self)

    @property
    def mistake(self) -> str:
        """The mistake that the note guards against; empty for a key of a plug-in."""
        return MISTAKES.get(self.key, "")

    def about(self, place: str) -> "Note":
        """A note on the same fact that begins with a name: `place: text`."""
        return Note(self.key, f"{place}: {self.text}", self.severity)


def as_notes(sentences: Iterable[str]) -> tuple[Note, ...]:
    """Notes, each once; plain text, such as a plug-in may give, becomes a remark with the key "unknown"."""
    return tuple(
        sentence if isinstance(sentence, Note) else Note(UNKNOWN, sentence) for sentence in dict.fromkeys(sentences)
    )


def tags_of(notes: Iterable[Note]) -> list[str]:
    """The severity and key of each note, "warning psf.widened", to be stored beside the texts."""
    return [f"{note.severity} {note.key}" for note in notes]


def tagged(texts: Sequence[str], tags: Sequence[str]) -> tuple[Note, ...]:
    """Notes from stored texts and `tags_of` them; those without a tag (of a file of an older version), or with the tag
    of a newer one, have the key "unknown"."""
    notes = []
    for number, text in enumerate(texts):
        severity, _, key = tags[number].partition(" ") if number < len(tags) else (REMARK, "", UNKNOWN)
        if not (key in MISTAKES or key.startswith(PLUG_IN)):
            key = UNKNOWN
        notes.append(Note(key, text, WARNING if severity == WARNING else REMARK))
    return tuple(notes)


def labelled(sentences: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of "Warning" or "Note" and the text, warnings first; the one order in which notes are shown."""
    notes = as_notes(sentences)
    for severity, label in _LABELS.items():
        yield from ((label, note.text) for note in notes if note.severity == severity)


def note_lines(sentences: Iterable[str]) -> list[str]:
    """Lines "Warning: ..." and "Note: ..." for a summary."""
    return [f"{label}: {text}" for label, text in labelled(sentences)]


def checking_lines(sentences: Iterable[str]) -> list[str]:
    """Lines of a run that is only checked, whose first column is 12 wide: "warning     ..." and "note        ..."."""
    return [f"{label.lower():<12}{text}" for label, text in labelled(sentences)]


UNKNOWN: str = "unknown"
"""The key of a sentence that came without one."""

PLUG_IN: str = "plug_in."
"""Beginning of the keys that plug-ins choose; these are not listed."""

MISTAKES: Mapping[str, str] = {
    "alignment.misaligned": "The inclination of the shape is taken for that of the rotation, or the reverse.",
    "alignment.not_converged": "Axis ratios are quoted that the iteration has not settled.",
    "alignment.round": "A galaxy without a short axis is taken to be seen at the inclination that was asked for.",
    "alignment.uncertain": "An inclination is trusted although the stars hardly define a short axis.",
    "chains.disagree": "Draws are used although the chains have not reached the same distribution.",
    "chains.diverged": "A part of the posterior that the sampler cannot enter is missed.",
    "chains.energy": "The tails of the posterior are missed, and limits come out too narrow.",
    "chains.few_draws": "Means and limits are quoted with more digits than the draws support.",
    "chains.several_maxima": "One of several maxima is reported as the whole posterior.",
    "chains.short": "Convergence is assumed where there are too few draws to test it.",
    "chains.single": "Convergence is assumed where there is no second chain to compare with.",
    "chains.stuck": "A chain that never moved is counted as draws.",
    "chains.tree_depth": "Correlated draws are counted as independent ones.",
    "checks.too_far": "Values are used although the data are unlike anything that the model makes.",
    "checks.too_near": "Errors of the data that are too large hide what the model misses.",
    "components.line_flux": "The flux of a line is given in erg/s/cm2 where 1e-20 erg/s/cm2 is read.",
    "components.no_psf": "The width of the deposit is taken for that of the component.",
    "data.beam": "A flux per beam is divided by the wrong beam.",
    "data.by_survey": "A file of another origin is read with the conventions of a survey.",
    "data.converted_wavelengths": "Frequencies or velocities are taken for wavelengths, or air for vacuum.",
    "data.correlations": "Spaxels with correlated errors are fitted as independent ones.",
    "data.counted_twice": "The same data in two sets count twice, and errors come out too small.",
    "data.cropped": "A part of the cube is taken for the whole.",
    "data.ends_left_out": "Bins at the ends of the data are taken to be fitted.",
    "data.error_unit": "Errors in another unit than the flux are used as they are.",
    "data.errors": "Standard deviations are read as variances, or errors are in another unit than the flux.",
    "data.fibre_area": "A flux per fibre is taken for one per spaxel.",
    "data.flux": "Fluxes are in another unit, or another power of ten, than the header says.",
    "data.flux_unit": "BUNIT 1e+N is written where 1e-N is meant.",
    "data.left_out": "Voxels are missing from a fit without anybody knowing.",
    "data.made_otherwise": "A mock is fitted with another deposit or alignment than it was made with.",
    "data.mask": "A mask that marks good voxels is read as one that marks bad ones.",
    "data.mask_bits": "Voxels are used that another bit of the mask marks as bad.",
    "data.medium": "Wavelengths in vacuum are read as in air, which shifts velocities by 80 km/s.",
    "data.mirrored": "Rows and columns are compared with those of the file, whose order was reversed.",
    "data.no_coordinates": "A field that is turned is taken to have North up.",
    "data.no_variance": "A cube without errors is fitted or compared as if its noise were known.",
    "data.overridden": "An argument replaces what the header says although the header is right.",
    "data.sensitivity": "Counts are taken for fluxes, or a flux is calibrated twice.",
    "data.sky_unknown": "Two fields are fitted as if their centres were the same.",
    "data.uneven_bins": "Bins of uneven width are taken to end where the file does not say.",
    "data.wavelength_unit": "Wavelengths without a unit are read in the wrong one.",
    "data.wavelengths_disagree": "The wavelengths of a table and of the header differ, and the wrong ones are trusted.",
    "deposit.capped_smoothing": "Sparse outskirts look grainy because smoothing lengths were cut off.",
    "deposit.grainy": "Single star particles are taken for structure of the galaxy.",
    "deposit.simulated_as_points": "A training set paints as points what a run smooths.",
    "deposit.smoothed": "The width of smoothed stars is taken for that of the galaxy.",
    "dust.opaque": "An attenuation is so large that the cube is empty.",
    "engine.fast_particles": "A long run time is unexplained: one bright fast particle widens the range of velocities.",
    "engine.inaccurate": "Spectra are used below the accuracy that was asked for.",
    "engine.steep_psf": "A long run time is unexplained: every bin is convolved on its own.",
    "errors.correlated": "Residuals of correlated errors are judged one by one.",
    "errors.correlations": "Correlations of the data are taken to be left out, or to be exact.",
    "errors.correlations_left_out": "Errors are too small because correlations of the data are not used.",
    "errors.kind": "chi^2 is read as a test of the model although errors are not normal.",
    "file.assumed": "A column without a unit, or in place of another one, is read as something else.",
    "file.checksum": "A file that was changed or damaged after it was written is read as whole.",
    "file.counts": "A part of a snapshot is read as the whole, or a damaged header is trusted.",
    "file.missing": "A quantity that the file lacks is derived without anybody knowing.",
    "fit.between_nodes": "An age between two nodes of the SSP library is trusted to the width of one maximum.",
    "fit.correlated": "Single errors are quoted of values that are known in combination only.",
    "fit.data_say_nothing": "The prior of a value is reported as a measurement.",
    "fit.degenerate": "One of two alike effects is reported, such as age for metallicity.",
    "fit.fast_particles": "Values are trusted whose model leaves out particles beyond its velocity range.",
    "fit.large_jacobian": "Slow convergence is unexplained: the fit had no room for a direct solution.",
    "fit.no_effect": "Values that no fitted voxel depends on are reported as fitted.",
    "fit.no_uncertainties": "Values are quoted without errors.",
    "fit.not_finite": "Values are trusted whose model has particles that are not finite.",
    "fit.single_precision": "Small errors and losses are trusted beyond the accuracy of 32-bit numbers.",
    "fit.undetermined": "The width of the prior is reported as the error of a measurement.",
    "galaxy.ages": "Ages in Gyr or Myr are taken for years, or for log10(age / yr).",
    "galaxy.birth_mass": "Masses now are taken for masses at birth, which makes galaxies too faint.",
    "galaxy.bulk_velocity": "Velocities still hold the motion of the whole galaxy.",
    "galaxy.column_left_out": "A column that only some galaxies have is taken to act on the training set.",
    "galaxy.dispersion": "Velocities are in another unit than km/s.",
    "galaxy.drawn_ages": "Ages or metallicities that were drawn by a recipe are taken for those of the simulation.",
    "galaxy.draws_not_compared": "Errors leave out that other particles would move the values.",
    "galaxy.few_draws": "Values are trusted that would move with more particles of the same galaxy.",
    "galaxy.gas_temperature": "log10 of temperatures are taken for K.",
    "galaxy.mass": "Masses are in another unit than Msun, such as 1e10 Msun/h.",
    "galaxy.metallicities": "Metallicities in solar units are taken for mass fractions.",
    "galaxy.no_bulge": "A galaxy is taken to have the bulge that was asked for.",
    "galaxy.no_kinematics": "Velocities are measured in a cube whose stars were set at rest.",
    "galaxy.older_than_universe": "A galaxy is put at a redshift at which its stars do not exist yet.",
    "galaxy.random_draws": "Errors leave out that other random particles would move the values.",
    "galaxy.size": "Positions are in another unit than kpc, or those of a whole box.",
    "galaxy.smoothing_length": "Estimated smoothing lengths are taken for those of the simulation.",
    "galaxy.whole_numbers": "Quantities were rounded to whole numbers before they were stored.",
    "galaxy.wild_velocities": "A bulk velocity is compared with a plain mean, which holds unbound stars.",
    "gas.assumed_ionisation": "Gas temperatures are trusted that rest on an assumed ionisation.",
    "gas.left_out": "A galaxy is taken to have no gas, or dust, where its file lacks a quantity.",
    "gas.partly_known": "A quantity of gas is taken to be used although only some particles have it.",
    "instrument.beyond_table": "The PSF or LSF at the end of a table is taken for one that was measured.",
    "instrument.far_ultraviolet": "Wavelengths are given in another unit than Angstrom.",
    "lines.no_continuum": "Equivalent widths are missed that no template allows for.",
    "lines.none_seen": "A cube is searched for lines that lie outside of the detector.",
    "lines.not_seen": "A line is named that the detector does not see.",
    "lsf.coarse_templates": "The instrument's LSF is assumed where the templates are coarser.",
    "lsf.coarser_than_wanted": "The degraded LSF is assumed where the cube was coarser before.",
    "lsf.several": "One LSF is assumed for sources that have different ones.",
    "noise.empty_bins": "A S/N is asked for in bins that hold no light.",
    "observation.distance": "A distance is given in another unit, or for another redshift.",
    "observation.outside_field": "A cube without the galaxy is used as its mock observation.",
    "output.exists": "A run is started that will be refused because of a file that is there.",
    "populations.total_mass": "An error of a total mass is quoted that is too small for many histories.",
    "prior.beyond_library": "A prior reaches ages or metallicities that the SSP library does not have.",
    "prior.edge": "The end of a prior is reported as a measured value.",
    "prior.older_than_universe": "A prior allows for stars that are older than the Universe.",
    "products.losvd_limit": "The light of fast stars in the outermost velocity bins is taken for a feature.",
    "products.mass_at_birth": "Maps of the mass at birth are taken for the mass now.",
    "products.no_maps": "Maps are looked for that the run did not make.",
    "products.no_stars": "Maps of stars are taken to show what is in the cube.",
    "products.surviving_mass": "Masses that an SSP library derives are taken for those of the simulation.",
    "psf.coarse_image": "The scale of an image of the PSF is wrong, or the image too coarse for the spaxels.",
    "psf.narrower_than_spaxel": "The given FWHM is assumed although spaxels widen it.",
    "psf.widened": "The given FWHM is assumed although the deposit widens it.",
    "quadrature.error": "The error of the quadrature points is taken for a property of the galaxy.",
    "quadrature.more_points": "The time of a fit is unexplained: the quadrature points were too few at first.",
    "registry.name_taken": "A plug-in is taken to replace a built-in member of the same name.",
    "registry.not_usable": "A plug-in that cannot be imported is taken to be in use.",
    "run.planned_with_fewer": "The numbers of a check are taken for those of the whole galaxy.",
    "sampling.better_draw": "A local maximum is reported although the chains have found a better place.",
    "sampling.no_pointwise": "Models are compared by likelihoods of points that do not exist for correlated errors.",
    "sampling.not_inflated": "Enlarged errors are expected of draws, which have those of the data.",
    "sampling.other_fit": "A sampling begins at the best values of other data, or of another model.",
    "search.failed_start": "A search is taken to have covered the prior although starts were lost.",
    "search.false_maximum": "A place at the edge of a prior is reported as the best one.",
    "search.given_up": "A search is taken to have covered the prior although starts were given up.",
    "search.local_optima": "A local optimum is taken for the global one.",
    "search.not_converged": "Values are quoted from a search that had not ended.",
    "search.one_start": "A local optimum is reported because no other one was looked for.",
    "search.other_optimum": "One of several equally good solutions is reported as the only one.",
    "selection.centre": "The centre of a catalogue is taken for that of the stars.",
    "selection.left_out": "Particles that are no stars, such as wind cells, are taken to be in the cube.",
    "selection.not_told": "Particles that are no stars, such as wind cells, are read as stars.",
    "selection.off_centre": "A centre is given in another unit, or of another galaxy.",
    "settings.without_effect": "A setting is changed that nothing in the run uses.",
    "spectra.not_covered": "Bins without templates are taken for dark ones.",
    "ssp.beyond": "Ages or metallicities are in another unit than the SSP library's.",
    "ssp.too_blue": "The wavelengths of an SSP library are in another unit than Angstrom.",
    "ssp.too_bright": "The spectra of an SSP library are in another unit than Lsun / Angstrom / Msun.",
    "systematics.beyond_detector": "A region without data is asked for where the detector is not.",
    UNKNOWN: "Text of a plug-in, or of a file of an older version, which gives no key.",
    "variational.approximate": "Draws from an approximation are taken for draws from the posterior.",
    "variational.inaccurate": "An approximation is trusted where the posterior is strongly curved.",
    "variational.missed": "An approximation that is far from the posterior is used for it.",
    "variational.not_converged": "Draws are used about a mean that still moves.",
    "variational.not_finite": "Draws are used whose loss is not a finite number.",
}
"""Key of a note -> the mistake that it guards against: the table of docs/notes.md."""
