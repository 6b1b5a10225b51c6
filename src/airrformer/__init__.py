"""airrformer: one Transformer core for immune receptors.

>>> import airrformer as af
>>> af.load("blosum62").embed(["CASSIRSSYEQYF"]).shape
(1, 20)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airrformer.embed.encoders import load
    from airrformer.embed.extractor import FeatureExtractor

__version__ = "0.1.0"
__all__ = ["FeatureExtractor", "__version__", "load"]

_WHERE = {"load": "airrformer.embed.encoders", "FeatureExtractor": "airrformer.embed.extractor"}


def __getattr__(name: str) -> object:
    # Looked up on first use: torch costs seconds, and the workflow imports this package without it.
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
