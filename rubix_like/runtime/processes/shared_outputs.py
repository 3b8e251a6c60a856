"""Files that the processes of a run write together: they appear whole or not at all."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rubix_like.runtime.files.outputs import explained, put_in_place, temporary_file
from rubix_like.runtime.processes.process_group import AbstractProcessGroup, Value


class _Explaining(AbstractProcessGroup):
    """A team whose errors of writing hold the path of the file and the remedy."""

    def __init__(self, team: AbstractProcessGroup, path: Path) -> None:
        self.number = team.number
        self.size = team.size
        self._team = team
        self._path = path

    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """What `work` gave in every process."""

        def explained_work() -> Value:
            with explained(self._path):
                return work()

        return self._team.exchange(explained_work)


@contextmanager
def replacing_together(path: Path, team: AbstractProcessGroup) -> Iterator[tuple[Path, AbstractProcessGroup]]:
    """A temporary name beside `path`, the same for all processes of the team, and the team to write with.

    Whatever is written is written in `exchange` of that team. Where all succeed, process 0 renames the file to `path`;
    where one fails, all raise, the file is removed and an older one at `path` stays as it was.
    """
    writing = _Explaining(team, path)
    with ExitStack() as stack:
        name = writing.exchange(lambda: stack.enter_context(temporary_file(path)).name if team.number == 0 else "")[0]
        temporary = path.with_name(name)
        yield temporary, writing
        writing.exchange(lambda: put_in_place(temporary, path) if team.number == 0 else None)
