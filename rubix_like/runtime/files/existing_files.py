"""The rule for files that exist: no output is an input, and only what rubix_like wrote for the same end is replaced."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rubix_like.errors import ConfigError
from rubix_like.runtime.files.outputs import files_of_others, output_bytes
from rubix_like.runtime.files.separate_files import Named, check_separate
from rubix_like.runtime.files.writers import OPENED_BY, written_by_us


def check_outputs(
    paths: Iterable[Path],
    kinds: Sequence[str],
    setting: str = "path",
    read: Iterable[Named] = (),
    *,
    overwrite: bool = False,
    maker: str | None = None,
) -> None:
    """Raise ConfigError, naming `setting`, where files must not be written at `paths`.

    None of them may be a file that is `read`. Without `overwrite` an existing file is replaced only if it is one of
    `kinds`, written by rubix_like, and, with `maker` (`configuration_words`), made by that configuration. Empty files
    are replaced. To be called before anything is computed.
    """
    written = [path.expanduser() for path in paths]
    check_separate(written, read, setting)
    for path in [] if overwrite else filter(output_bytes, written):
        problem = _problem(path, kinds, maker)
        if problem is not None:
            raise ConfigError(
                f"{setting}: '{path}' {problem}; to replace it give overwrite=True, to keep it another place "
                f"({setting.rpartition('.')[2]}=...)"
            )


def may_be_replaced(path: Path, kinds: Sequence[str]) -> bool:
    """Whether there is no file, or an empty one, or one of these kinds that rubix_like wrote."""
    return not output_bytes(path) or _problem(path, kinds, None) is None


def configuration_words(configuration: str | None) -> str:
    """A configuration in words, its name as a FITS card holds it."""
    if not configuration:
        return "a configuration without a name"
    return f"the configuration '{' '.join(configuration.encode('ascii', 'replace').decode().split())}'"


def _problem(path: Path, kinds: Sequence[str], maker: str | None) -> str | None:
    """Why an existing file is not replaced."""
    written, others = written_by_us(path), files_of_others(path)
    expected = f"and this is {OPENED_BY[kinds[0]][0]}"
    if written is None:
        return f"is no file of rubix-like, {expected}"
    if others:
        return f"holds files of others, such as {others[0].relative_to(path)}, {expected}"
    if written.kind not in kinds:
        return f"is {OPENED_BY[written.kind][0]}, {expected}"
    came = configuration_words(written.configuration)
    return None if maker in {None, came} else f"was made by {came}, and this is {maker}"
