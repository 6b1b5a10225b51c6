"""What a Transformer is, as data: ``ModelConfig`` and the families' rows. No torch here.

The config decides everything; a model's name never does. A published model is one row of ``FAMILIES``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

ALPHABET_SIZE = 33  # core/alphabet.py; a constant here so that this module stays free of imports


@dataclass(frozen=True)
class ModelConfig:
    """Everything that the one ``Transformer`` class needs to know.

    Widths and counts are in units of features, layers and heads. ``max_length`` counts tokens, special ones included;
    ``None`` means that the position scheme sets no limit.
    """

    layers: int = 4
    width: int = 128
    heads: int = 4
    feed_forward: int = 512
    alphabet_size: int = ALPHABET_SIZE
    positions: Literal["rotary", "learned", "sinusoidal", "none"] = "rotary"
    rotary_base: float = 10_000.0
    max_length: int | None = None
    norm: Literal["layer", "rms"] = "layer"
    norm_place: Literal["pre", "post"] = "pre"
    eps: float = 1e-5
    embedding_norm: bool = False
    final_norm: bool = True
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    bias: bool = True
    segments: int = 0
    tied: bool = True
    token_dropout: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.positions == "learned" and self.max_length is None:
            raise ValueError("learned positions need max_length: the number of rows of the position table")
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise ValueError(f"rotary positions need an even head width, not {self.width // self.heads}")

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> ModelConfig:
        """Build from ``to_dict``'s output; an unknown key is an error, never ignored."""
        unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"unknown ModelConfig fields: {', '.join(unknown)}")
        return cls(**values)


# ESM-2 (Lin et al. 2023, Science 379:1123): pre-norm, rotary, GELU, tied output, token dropout. Sizes are those of
# fair-esm's esm/pretrained.py; max_length is the 1,022 residues plus start and end that it was trained on.
_ESM2 = dict(positions="rotary", norm_place="pre", final_norm=True, tied=True, token_dropout=True, max_length=1024)
# AntiBERTy (Ruffolo et al. 2021, arXiv:2112.07782): BERT, so post-norm, learned positions, norm over the embedding.
_BERT = dict(positions="learned", norm_place="post", final_norm=False, embedding_norm=True, eps=1e-12, segments=2)

_ESM2_SIZES: dict[str, dict] = {
    "esm2_t6_8M_UR50D": dict(layers=6, width=320, heads=20, feed_forward=1280),
    "esm2_t12_35M_UR50D": dict(layers=12, width=480, heads=20, feed_forward=1920),
    "esm2_t30_150M_UR50D": dict(layers=30, width=640, heads=20, feed_forward=2560),
    "esm2_t33_650M_UR50D": dict(layers=33, width=1280, heads=20, feed_forward=5120),
    "esm2_t36_3B_UR50D": dict(layers=36, width=2560, heads=40, feed_forward=10240),
    "esm2_t48_15B_UR50D": dict(layers=48, width=5120, heads=40, feed_forward=20480),
}
ESM2_NAMES: tuple[str, ...] = tuple(_ESM2_SIZES)
FAMILIES: dict[str, ModelConfig] = {
    **{name: ModelConfig(**size, **_ESM2) for name, size in _ESM2_SIZES.items()},
    "antiberty": ModelConfig(layers=8, width=512, heads=8, feed_forward=2048, max_length=512, tied=False, **_BERT),
}
