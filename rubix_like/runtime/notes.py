"""Notes for the user: a sentence with a key that stays and a severity, how lists of them are kept, written and printed.

`note_keys.MISTAKES` has every key with the mistake that it guards against.
"""

from collections.abc import Iterable, Iterator, Sequence

from rubix_like.runtime.note_keys import MISTAKES, PLUG_IN, UNKNOWN

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
                f"'{key}'; of a new kind of note write the mistake into rubix_like/runtime/note_keys.py"
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
