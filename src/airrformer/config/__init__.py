"""``config.yaml`` as pydantic models.

Read by the workflow before any job starts, and by every command that takes ``--config``. Never imports torch.
"""

from airrformer.config.classifiers import Classifier, LogisticRegressionClassifier, NearestNeighborsClassifier
from airrformer.config.datasets import Dataset, Labels
from airrformer.config.encoders import (
    REVERSAL,
    TRAIN_FOLDS,
    Encoder,
    KmerEncoder,
    Pooling,
    PretrainEncoder,
    PublishedEncoder,
    TrainSettings,
)
from airrformer.config.evaluation import STRICTEST_FIRST, ClusterSettings, Evaluation
from airrformer.config.load import load_config, read_yaml
from airrformer.config.whole import Config, Embedding, Target

__all__ = [
    "REVERSAL",
    "STRICTEST_FIRST",
    "TRAIN_FOLDS",
    "Classifier",
    "ClusterSettings",
    "Config",
    "Dataset",
    "Embedding",
    "Encoder",
    "Evaluation",
    "KmerEncoder",
    "Labels",
    "LogisticRegressionClassifier",
    "NearestNeighborsClassifier",
    "Pooling",
    "PretrainEncoder",
    "PublishedEncoder",
    "Target",
    "TrainSettings",
    "load_config",
    "read_yaml",
]
