"""pretrain: a masked-residue encoder trained from scratch on the distinct chains of parsed datasets."""

from airrformer.pretrain.stage import pretrain, pretrain_encoder

__all__ = ["pretrain", "pretrain_encoder"]
