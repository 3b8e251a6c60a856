"""A file that keeps a list of what is read of it, for tests of who reads what."""

import dataclasses

from rubix_like.readers.containers.container import AbstractContainer


@dataclasses.dataclass(frozen=True)
class Counting(AbstractContainer):
    """Another container, with a list of all that was read of it."""

    other: AbstractContainer
    asked: list
    name: str = "counted"

    def groups(self):
        return self.other.groups()

    def datasets(self, group):
        return self.other.datasets(group)

    def attributes(self, place):
        return self.other.attributes(place)

    def attribute(self, place, name):
        return self.other.attribute(place, name)

    def shape(self, group, dataset):
        return self.other.shape(group, dataset)

    def read(self, group, dataset, start, stop):
        self.asked.append((f"{group}/{dataset}", start, stop))
        return self.other.read(group, dataset, start, stop)
