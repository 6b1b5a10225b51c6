"""classify: features and labels of a dataset -> classifiers judged by several splits side by side, and one to keep."""

from airrformer.classify.baselines import make_baselines
from airrformer.classify.contest import compare_dataset
from airrformer.classify.evaluation import classify
from airrformer.classify.predict import predict
from airrformer.classify.residue_heads import ResidueHeadClassifier

__all__ = ["ResidueHeadClassifier", "classify", "compare_dataset", "make_baselines", "predict"]
