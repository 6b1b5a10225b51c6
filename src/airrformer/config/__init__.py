"""``config.yaml`` as pydantic models.

Read by the workflow before any job starts, and by every command that takes ``--config``. Never imports torch.
"""

from airrformer.config.classifiers import (
    Classifier,
    KernelPart,
    LogisticRegressionClassifier,
    MultiKernelClassifier,
    NearestNeighborsClassifier,
    StackClassifier,
)
from airrformer.config.datasets import Dataset, Labels, Negatives
from airrformer.config.encoders import (
    AS_THEY_ARE,
    PLAIN_KINDS,
    REVERSAL,
    TRAIN_FOLDS,
    ColumnsEncoder,
    Encoder,
    KmerEncoder,
    LettersEncoder,
    ModelSettings,
    Pooling,
    PretrainEncoder,
    PublishedEncoder,
    ResiduesPooling,
    TrainSettings,
)
from airrformer.config.evaluation import STRICTEST_FIRST, ClusterSettings, Evaluation
from airrformer.config.load import load_config, read_yaml
from airrformer.config.whole import Config, Embedding, Target

__all__ = [
    "AS_THEY_ARE",
    "PLAIN_KINDS",
    "REVERSAL",
    "STRICTEST_FIRST",
    "TRAIN_FOLDS",
    "Classifier",
    "ClusterSettings",
    "ColumnsEncoder",
    "Config",
    "Dataset",
    "Embedding",
    "Encoder",
    "Evaluation",
    "KernelPart",
    "KmerEncoder",
    "Labels",
    "LettersEncoder",
    "LogisticRegressionClassifier",
    "ModelSettings",
    "MultiKernelClassifier",
    "NearestNeighborsClassifier",
    "Negatives",
    "Pooling",
    "PretrainEncoder",
    "PublishedEncoder",
    "ResiduesPooling",
    "StackClassifier",
    "Target",
    "TrainSettings",
    "load_config",
    "read_yaml",
]
