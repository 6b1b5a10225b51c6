"""classify: features and labels of a dataset -> classifiers judged by several splits side by side, and one to keep."""

from airrformer.classify.evaluation import classify
from airrformer.classify.predict import predict

__all__ = ["classify", "predict"]
