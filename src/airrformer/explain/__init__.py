"""explain: what an encoder guesses where a residue is hidden, and how a dataset's vectors lie in the plane."""

from airrformer.explain.maps import map_embeddings
from airrformer.explain.masked import guess_lines, masked_guesses

__all__ = ["guess_lines", "map_embeddings", "masked_guesses"]
