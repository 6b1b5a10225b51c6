"""classifiers: how a class, or a number, is predicted."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from airrformer.config.base import Strict

Positive = Annotated[float, Field(gt=0)]
Grid = Field(min_length=1)
BOTH = ("classification", "regression")


class Tuned(Strict):
    """What all kinds share: settings are chosen by inner cross-validation within the training fold."""

    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    reads: ClassVar[tuple[str, ...]] = ("vectors", "letters")  # letters are made vectors where a kind needs them
    budget: Annotated[int, Field(ge=1)] | None = Field(
        None, description="points of the grid to try at most, drawn with the seed; null: all"
    )


class LogisticGrid(Strict):
    """`kind: logistic_regression`"""

    C: Annotated[list[Positive], Grid] = Field(
        [0.01, 0.1, 1, 10], description="inverse strengths of the L2 penalty to choose from"
    )


class LogisticRegressionClassifier(Tuned):
    """One logistic regression a class."""

    kind: Literal["logistic_regression"]
    grid: LogisticGrid = Field(LogisticGrid(), description="what to choose from")
    class_weight: Literal["balanced"] | None = Field(None, description="balanced: rare classes weigh more")


class NeighborsGrid(Strict):
    """`kind: k_nearest_neighbors`"""

    n_neighbors: Annotated[list[Annotated[int, Field(ge=1)]], Grid] = Field(
        [5, 15, 45], description="numbers of neighbours to choose from"
    )


class NearestNeighborsClassifier(Tuned):
    """k nearest neighbours: vectors by cosine distance, letters by `distance`."""

    tasks = BOTH
    kind: Literal["k_nearest_neighbors"]
    grid: NeighborsGrid = Field(NeighborsGrid(), description="what to choose from")


class SvmGrid(Strict):
    """`kind: linear_svm`, `kind: rbf_svm`"""

    C: Annotated[list[Positive], Grid] = Field([0.1, 1, 10], description="costs of a mistake to choose from")
    gamma: Annotated[list[Positive], Grid] = Field(
        [0.25, 1, 4], description="rbf_svm: widths of the kernel, as multiples of 1 / (features x variance)"
    )


class LinearSvmClassifier(Tuned):
    """One linear support vector machine a class."""

    kind: Literal["linear_svm"]
    grid: SvmGrid = Field(SvmGrid(), description="what to choose from")


class RbfSvmClassifier(Tuned):
    """One support vector machine with a Gaussian kernel a class."""

    tasks = BOTH
    kind: Literal["rbf_svm"]
    grid: SvmGrid = Field(SvmGrid(), description="what to choose from")


Classifier = Annotated[
    LogisticRegressionClassifier | NearestNeighborsClassifier | LinearSvmClassifier | RbfSvmClassifier,
    Field(discriminator="kind"),
]
