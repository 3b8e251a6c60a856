"""The painters by the name that `engine.method` gives them."""

from rubix_like.painter import AbstractPainter
from rubix_like.registry import Registry

METHODS = Registry("method", "rubix_like.methods", {"direct": "rubix_like.direct:DirectPainter"})


def resolve_method(method: str) -> str:
    """The method that `auto` stands for."""
    return "direct" if method == "auto" else method


def find_painter(method: str) -> type[AbstractPainter]:
    """The painter class of a method's name, `auto` included; raises ConfigError for an unknown one."""
    return METHODS.find(resolve_method(method))
