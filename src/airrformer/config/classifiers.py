"""classifiers: how a class, or a number, is predicted."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from airrformer.config.base import ChainName, Name, Once, Strict

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Bandwidth = Annotated[float, Field(ge=0.001, le=1000)]
Grid = Field(min_length=1)
LANDMARKS = Field(
    2000, description="beyond 6,000 receptors the kernel is spanned by so many of them (Nystroem); more: better, slower"
)
CLASSIFICATION, REGRESSION = "classification", "regression"


class Source(Strict):
    """What a classifier that reads several things reads."""

    encoder: Name | None = Field(None, description="name of an encoder; default: the target's own")
    pooling: Name | None = Field(None, description="name of a pooling; default: the target's own")


class Tuned(Strict):
    """What all kinds share: settings are chosen by inner cross-validation within the training fold."""

    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)
    reads: ClassVar[tuple[str, ...]] = ("vectors", "letters")  # letters become vectors where a kind needs them
    sources: ClassVar[list[Source]] = []  # of kinds that read more than the target's own
    budget: Count | None = Field(None, description="points of the grid to try at most, drawn at random; null: all")


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

    n_neighbors: Annotated[list[Count], Grid] = Field([5, 15, 45], description="numbers of neighbours to choose from")


class SequenceDistance(Strict):
    """How letters are compared by the classifiers that compare them, and by `multi_kernel`."""

    cost: Literal["tcrdist", "blosum", "hamming", "edit"] = Field(
        "tcrdist",
        description="what residues cost one another: as in TCRdist, by BLOSUM62, 1 at the same place, or edits",
    )
    weights: tuple[Weight, Weight, Weight] = Field((1, 1, 3), description="of CDR1, CDR2 and CDR3; 0 leaves one out")
    gaps: tuple[Weight, Weight, Weight] | None = Field(
        None, description="a residue against a gap in each; default: 4, 4, 8 for tcrdist and blosum, else the weights"
    )
    trim: bool = Field(True, description="the first and last residues of the CDR3 cost nothing, as in TCRdist")
    place: Literal["tcrdist", "centre"] = Field(
        "tcrdist", description="where the gap of a CDR3 lies: after the sixth residue at most, or in the centre"
    )
    smaller: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5,
        description="of two chains, how much the nearer one weighs: 0.5 is the sum; more: one chain may suffice",
    )
    chains: Annotated[list[ChainName], Field(min_length=1), Once] | None = Field(
        None, description="compare these chains only; default: all of the dataset"
    )
    v_gene: Weight = Field(0, description="what another V gene costs, a chain")
    j_gene: Weight = Field(0, description="what another J gene costs, a chain")

    @model_validator(mode="after")
    def _compares_something(self) -> SequenceDistance:
        if not (any(self.weights) or self.v_gene or self.j_gene):
            raise ValueError("weights, v_gene and j_gene are all 0: nothing is compared")
        return self


class NearestNeighborsClassifier(Tuned):
    """k nearest neighbours: vectors by cosine distance, letters by `distance`."""

    tasks = (CLASSIFICATION, REGRESSION)
    kind: Literal["k_nearest_neighbors"]
    grid: NeighborsGrid = Field(NeighborsGrid(), description="what to choose from")
    distance: SequenceDistance = Field(SequenceDistance(), description="of letters; see below")


class DensityGrid(Strict):
    """`kind: density_ratio`"""

    bandwidth: Annotated[list[Bandwidth], Grid] = Field(
        [0.2, 0.1, 0.05, 0.025],
        description="widths of the kernel to choose from, as shares of the usual distance between receptors",
    )


class DensityRatioClassifier(Tuned):
    """Log mean kernel to a class's positives, minus log mean kernel to its negatives."""

    kind: Literal["density_ratio"]
    grid: DensityGrid = Field(DensityGrid(), description="what to choose from")
    distance: SequenceDistance = Field(SequenceDistance(), description="of letters; vectors are compared by Euclid")
    form: Literal["exponential", "gaussian"] = Field("exponential", description="of the kernel")
    background: Weight = Field(
        0,
        description="how much a receptor that is unknown for a class, and of another, weighs among its negatives",
    )
    controls: Weight = Field(0, description="the same for a receptor that is unknown for a class, and of none")


class DensityStackGrid(Strict):
    """`kind: density_stack`"""

    C: Annotated[list[Positive], Grid] = Field([0.1], description="inverse strengths of the L2 penalty to choose from")


class DensityStackClassifier(Tuned):
    """Density ratios by several distances (each chain, each CDR3, the genes), weighed by one logistic regression."""

    kind: Literal["density_stack"]
    grid: DensityStackGrid = Field(DensityStackGrid(), description="what to choose from")
    distance: SequenceDistance = Field(SequenceDistance(), description="of letters; vectors are compared by Euclid")
    background: Weight = Field(1, description="as in density_ratio")
    controls: Weight = Field(0.3, description="as in density_ratio")


class DistanceSvmGrid(Strict):
    """`kind: distance_svm`"""

    bandwidth: Annotated[list[Bandwidth], Grid] = Field(
        [0.6, 0.3, 0.15],
        description="widths of the kernel to choose from, as shares of the usual distance between receptors",
    )
    C: Annotated[list[Positive], Grid] = Field([0.3, 1, 3, 10], description="costs of a mistake to choose from")


class DistanceSvmClassifier(Tuned):
    """A support vector machine a class, with the kernel exp(-distance / bandwidth)."""

    kind: Literal["distance_svm"]
    grid: DistanceSvmGrid = Field(DistanceSvmGrid(), description="what to choose from")
    distance: SequenceDistance = Field(SequenceDistance(), description="of letters; vectors are compared by Euclid")
    form: Literal["exponential", "gaussian"] = Field("exponential", description="of the kernel")
    background: Weight = Field(
        0, description="the weight of receptors that are unknown for a class, and of another, as its negatives"
    )
    controls: Weight = Field(0, description="the same for receptors that are unknown for a class, and of none")
    landmarks: Count = LANDMARKS


class LinearSvmGrid(Strict):
    """`kind: linear_svm`"""

    C: Annotated[list[Positive], Grid] = Field(
        [0.0001, 0.001, 0.01, 0.1, 1], description="costs of a mistake to choose from"
    )


class LinearSvmClassifier(Tuned):
    """One linear support vector machine a class."""

    kind: Literal["linear_svm"]
    grid: LinearSvmGrid = Field(LinearSvmGrid(), description="what to choose from")


class RbfSvmGrid(Strict):
    """`kind: rbf_svm`"""

    C: Annotated[list[Positive], Grid] = Field([0.3, 1, 3, 10], description="costs of a mistake to choose from")
    gamma: Annotated[list[Positive], Grid] = Field(
        [0.3, 1, 3], description="steepness of the kernel, as multiples of 1 / (features x variance)"
    )


class RbfSvmClassifier(Tuned):
    """One support vector machine with a Gaussian kernel a class (or for the number to predict)."""

    tasks = (CLASSIFICATION, REGRESSION)
    kind: Literal["rbf_svm"]
    grid: RbfSvmGrid = Field(RbfSvmGrid(), description="what to choose from")
    landmarks: Count = LANDMARKS


class ForestGrid(Strict):
    """`kind: random_forest`"""

    min_samples_leaf: Annotated[list[Count], Grid] = Field([10, 3, 1], description="smallest leaves to choose from")


class RandomForestClassifier(Tuned):
    """Random forests (Breiman 2001)."""

    tasks = (CLASSIFICATION, REGRESSION)
    kind: Literal["random_forest"]
    grid: ForestGrid = Field(ForestGrid(), description="what to choose from")
    trees: Count = Field(500, description="trees a forest")


class BoostingGrid(Strict):
    """`kind: gradient_boosting`"""

    trees: Annotated[list[Count], Grid] = Field([100, 300], description="numbers of trees to choose from")
    leaves: Annotated[list[Annotated[int, Field(ge=2)]], Grid] = Field(
        [7, 15], description="most leaves of a tree to choose from"
    )


class GradientBoostingClassifier(Tuned):
    """Histogram gradient boosting of trees."""

    tasks = (CLASSIFICATION, REGRESSION)
    kind: Literal["gradient_boosting"]
    grid: BoostingGrid = Field(BoostingGrid(), description="what to choose from")
    categories: bool = Field(
        False, description="features are numbers without an order, as `encoding: codes` makes them"
    )
    learning_rate: Positive = Field(0.05, description="how much each tree adds")
    features: Annotated[float, Field(gt=0, le=1)] = Field(
        1, description="share of the features that are looked at for each split, drawn at random"
    )
    min_samples_leaf: Count = Field(20, description="smallest leaves")


class MlpGrid(Strict):
    """`kind: mlp`"""

    alpha: Annotated[list[Positive], Grid] = Field([10, 1, 0.01], description="L2 penalties to choose from")


class MlpClassifier(Tuned):
    """A neural network with one hidden layer a class."""

    kind: Literal["mlp"]
    grid: MlpGrid = Field(MlpGrid(), description="what to choose from")
    hidden: Count = Field(64, description="units of the hidden layer")


class CnnGrid(Strict):
    """`kind: cnn`"""

    channels: Annotated[list[Count], Grid] = Field([64], description="widths of the network to choose from")


class CnnClassifier(Tuned):
    """A small convolutional network over the residues of the loops; stops early on a part of the training fold.

    Without convolutions (`layers: 0`) it is a plain network over residues at their places: for mutational scans.
    """

    reads = ("letters",)
    kind: Literal["cnn"]
    grid: CnnGrid = Field(CnnGrid(), description="what to choose from")
    models: Count = Field(3, description="networks that are averaged")
    layers: Annotated[int, Field(ge=0)] = Field(2, description="convolutions, one after the other")
    kernel: Literal[1, 3, 5, 7, 9, 11] = Field(3, description="residues that a convolution looks at")
    hidden: Count = Field(64, description="units of the hidden layer after them")
    dropout: Share = Field(0.3, description="of the units of each layer, in training")
    input_dropout: Share = Field(0, description="of the residues, in training")
    learning_rate: Positive = Field(0.002, description="of AdamW, at the start")
    batch_size: Count = Field(128, description="receptors a step")


class HeadClassifier(Tuned):
    """A small network on an encoder's residue vectors, which may train the encoder with it; for `kind: residues`.

    It stops early on a part of the training fold. With `fine_tune` a CPU needs minutes to hours: each fold trains the
    encoder three times within, for thresholds and calibration, and `models` times at the end.
    """

    reads = ("residues",)
    kind: Literal["residue_head"]
    head: Literal["attention", "light_attention", "cnn"] = Field(
        "attention",
        description="weighted means over the residues; the same and a maximum, of convolved ones (Stärk et al. 2021); "
        "or two convolutions",
    )
    fine_tune: Literal["none", "lora", "all"] = Field(
        "none",
        description="the encoder stays as it is; changes of low rank are learned (by the package peft); or all of it",
    )
    models: Count = Field(3, description="networks that are averaged")
    hidden: Annotated[int, Field(ge=4, multiple_of=4)] = Field(
        64, description="channels of the head and units of the layer after it; a multiple of 4"
    )
    kernel: Literal[1, 3, 5, 7, 9, 11] = Field(9, description="residues that a convolution looks at")
    dropout: Share = Field(0.2, description="of residue vectors and units, in training")
    learning_rate: Positive = Field(0.001, description="of AdamW, at the start, for the head")
    encoder_learning_rate: Positive | None = Field(
        None, description="the same for the encoder's last block; null: 0.0005 with lora, 0.00005 with all"
    )
    layer_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="the rate of each block further down is this times that of the one above it"
    )
    lora_rank: Count = Field(8, description="rank of the changes that lora learns")
    weight_decay: Weight = Field(0.01, description="AdamW's")
    batch_size: Count = Field(64, description="receptors a step")
    epochs: Count = Field(30, description="rounds at most: once through the training receptors, or 30 steps")
    patience: Count = Field(5, description="epochs without progress before it stops")
    validation: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.1, description="share of the training receptors that each network holds out to know when to stop"
    )


class PeptideClassifier(Tuned):
    """One network of the core that reads receptor and peptide, for all classes at once: each class is a peptide.

    A class whose name is no peptide is named by `peptides`. It stops early on a part of the training fold. It scores
    peptides that it was not trained on as well, near chance: see `tests/benchmarks/peptides.py`.
    """

    reads = ("letters",)
    kind: Literal["receptor_peptide"]
    peptides: dict[str, str] = Field({}, description="class -> peptide; default: the class's name is its peptide")
    form: Literal["cross", "joint"] = Field(
        "cross", description="cross: residues of one look at those of the other; joint: both are one sequence"
    )
    looks: Literal["receptor", "peptide", "both"] = Field(
        "peptide", description="cross: whose residues look at the other's; peptide is several times faster"
    )
    models: Count = Field(3, description="networks that are averaged")
    layers: Count = Field(2, description="blocks of each stack")
    width: Count = Field(64, description="features of a token")
    heads: Count = Field(4, description="of the attention")
    feed_forward: Count = Field(128, description="units of each feed-forward")
    dropout: Share = Field(0.2, description="of what each layer adds, in training")
    ratio: Count = Field(3, description="negatives of an epitope for each of its positives, drawn anew in each epoch")
    balance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="0: each positive weighs the same; 1: each epitope, however many positives it has"
    )
    learning_rate: Positive = Field(0.002, description="of AdamW, at the start")
    weight_decay: Weight = Field(0.01, description="AdamW's")
    batch_size: Count = Field(64, description="pairs a step")
    epochs: Count = Field(40, description="rounds through the positives at most")
    patience: Count = Field(8, description="epochs without progress before it stops")
    validation: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.1, description="share of the training receptors that each network holds out to know when to stop"
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> PeptideClassifier:
        if self.width % (2 * self.heads) or self.width % 4:
            raise ValueError(f"width {self.width} is no multiple of 4 and of twice the heads, {2 * self.heads}")
        return self


class RidgeGrid(Strict):
    """`kind: ridge`"""

    alpha: Annotated[list[Positive], Grid] = Field(
        [100000, 10000, 3000, 1000, 300, 100, 10], description="strengths of the L2 penalty to choose from"
    )


class RidgeRegressor(Tuned):
    """Linear regression with an L2 penalty, for numbers."""

    tasks = (REGRESSION,)
    kind: Literal["ridge"]
    grid: RidgeGrid = Field(RidgeGrid(), description="what to choose from")


class GaussianProcessRegressor(Tuned):
    """A Gaussian process (Rasmussen and Williams 2006), for numbers; it tunes itself by its likelihood."""

    tasks = (REGRESSION,)
    kind: Literal["gaussian_process"]


class KernelPart(Source):
    """One of several kernels, and what it reads."""

    weight: Positive = Field(1, description="in the sum; in the product an exponent")
    distance: SequenceDistance | None = Field(
        None, description="how letters are compared; null: as numbers, in the encoding of their encoder"
    )
    bandwidth: Bandwidth = Field(0.5, description="width, as a share of the usual distance between receptors")
    form: Literal["exponential", "gaussian"] = Field("exponential", description="of the kernel")


class MultiKernelGrid(Strict):
    """`kind: multi_kernel`"""

    C: Annotated[list[Positive], Grid] = Field(
        [0.3, 1, 3, 10], description="costs of a mistake to choose from; for numbers 1 / (2 x the penalty)"
    )


class MultiKernelClassifier(Tuned):
    """A support vector machine a class (for numbers: ridge regression) on several kernels, combined.

    Each kernel has its own view of a receptor: letters by a distance, or the vectors of an encoder.
    """

    tasks = (CLASSIFICATION, REGRESSION)
    kind: Literal["multi_kernel"]
    kernels: Annotated[list[KernelPart], Field(min_length=1)] = Field(description="what is combined; see below")
    combine: Literal["sum", "product", "both"] = Field(
        "sum", description="sum: near in one of them is near; product: near in all of them; both: the mean of these"
    )
    grid: MultiKernelGrid = Field(MultiKernelGrid(), description="what to choose from")
    landmarks: Count = LANDMARKS
    numbers: Literal["standard", "rank"] = Field(
        "standard", description="for numbers: predict them as they are, or by their ranks, which tames a long tail"
    )

    @property
    def sources(self) -> list[Source]:
        return self.kernels


class Member(Source):
    """One classifier of a stack, and what it reads."""

    classifier: Name = Field(description="name of a classifier of this config")


class StackClassifier(Strict):
    """Several classifiers, weighed by one logistic regression that all classes share.

    It learns from scores of receptors that the members were not fitted on, within the training fold.
    """

    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION, REGRESSION)
    reads: ClassVar[tuple[str, ...]] = ("vectors", "letters", "residues")
    kind: Literal["stack"]
    members: Annotated[list[Member], Field(min_length=2)] = Field(description="what is weighed; see below")
    rivals: bool = Field(
        False, description="also weigh how well the best other class claims the receptor, by each member's scores"
    )

    @property
    def sources(self) -> list[Source]:
        return self.members


Classifier = Annotated[
    LogisticRegressionClassifier
    | NearestNeighborsClassifier
    | DensityRatioClassifier
    | DensityStackClassifier
    | DistanceSvmClassifier
    | LinearSvmClassifier
    | RbfSvmClassifier
    | RandomForestClassifier
    | GradientBoostingClassifier
    | MlpClassifier
    | CnnClassifier
    | HeadClassifier
    | PeptideClassifier
    | RidgeRegressor
    | GaussianProcessRegressor
    | MultiKernelClassifier
    | StackClassifier,
    Field(discriminator="kind"),
]
