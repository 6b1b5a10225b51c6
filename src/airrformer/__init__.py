"""airrformer: one Transformer core for immune receptors."""

__version__ = "0.1.0"
