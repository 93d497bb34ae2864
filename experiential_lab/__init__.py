"""Recorded agent traces become verified precedents, bounded predictions and honest figures.

Names are loaded when they are first used: importing the package loads no client, no plotting and no notebook library.
"""

from importlib import import_module
from importlib.metadata import version

_WHERE = {
    "Lab": "lab",
    "data": "lab",
    "Declared": "evidence.sources",
    "Query": "retrieval.receipts",
    "Exclusion": "retrieval.views",
    "Unverifiable": "records",
    "LabError": "records",
    "CopyNearest": "world.models",
    "SessionError": "world.session",
    "Limits": "world.session",
    "query_of": "retrieval.grounding",
    "around": "retrieval.grounding",
    "verify_receipt": "retrieval.receipts",
}
_CALLED = {"verify_receipt": "verify", "data": "bundled"}
__all__ = [*_WHERE, "plots", "__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version("experiential-lab")
    if name == "plots":
        return import_module("experiential_lab.show.plots")
    if name not in _WHERE:
        raise AttributeError(f"experiential_lab has no {name!r}")
    return getattr(import_module(f"experiential_lab.{_WHERE[name]}"), _CALLED.get(name, name))
