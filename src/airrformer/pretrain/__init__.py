"""pretrain: an encoder, or a decoder that writes sequences, trained from scratch on parsed datasets."""

from airrformer.pretrain.stage import pretrain, pretrain_encoder

__all__ = ["pretrain", "pretrain_encoder"]
