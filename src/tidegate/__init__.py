"""Tidegate is a release control plane: it saves facts and the rows folded from them in one commit.

As a library, it offers the names in ``tidegate.library.__all__``; start with ``Log``
(docs/library.md). They are imported on first use, so that the command line starts fast.
"""

from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.library import *  # noqa: F403

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Import a name of the library on first use.

    The name of a module of this package is not looked up in the library: most programs import
    such modules and never need the library.
    """
    is_private = name.startswith("_") and name != "__all__"
    found = PathFinder.find_spec(f"{__name__}.{name}", __path__)  # noqa: F405 - of this package
    if not is_private and found is None:
        library = import_module(f"{__name__}.library")
        if name in ("__all__", *library.__all__):
            return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
