"""``config.yaml`` as pydantic models: every mistake in one go, each on a line with its path and a did-you-mean.

Read by the workflow before any job starts, and by every command that takes ``--config``. Never imports torch.
"""

from __future__ import annotations

import difflib
import json
import re
import types
import typing
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from airrformer.core.config import ESM2_NAMES, FAMILIES, ModelConfig
from airrformer.errors import UserError
from airrformer.receptors.tables import CHAIN_LOCI, REGIONS

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
TRAIN_FOLDS, REVERSAL = "train_folds", "reversal"
RESERVED_NAMES = {".", "..", "encoders", "logs", "benchmarks", "folds", "residues"} | {
    # files of ours beside which these folders stand
    "chains.parquet", "receptors.parquet", "rejected.tsv", "genes.tsv", "parse.json", "features.parquet", "map.tsv",
    "leaderboard.tsv", "pretraining.tsv", "report.html",
}  # fmt: skip

ChainName = Literal["TRA", "TRB", "TRG", "TRD", "heavy", "light"]
RegionName = Literal["fwr1", "cdr1", "fwr2", "cdr2", "fwr3", "cdr3", "fwr4"]
assert set(typing.get_args(ChainName)) == set(CHAIN_LOCI) and typing.get_args(RegionName) == REGIONS


def _check_name(name: str) -> str:
    # Names become folders, so a slash, a blank or ".." must never reach a path.
    if name in RESERVED_NAMES - {".", ".."}:
        raise ValueError(f"{name!r} is the name of a file or folder of airrformer's own; take another")
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise ValueError(f"{name!r} becomes a folder's name: use letters, digits, '_', '.' and '-'")
    return name


def _check_corpus(corpus: Any) -> Any:
    # One dataset may stand without brackets; what is no list and no dataset's name is left for pydantic to refuse.
    return [corpus] if isinstance(corpus, str) and corpus not in (TRAIN_FOLDS, REVERSAL) else corpus


def _check_once(values: list) -> list:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} stands there twice; name it once")
    return values


Name = Annotated[str, AfterValidator(_check_name)]
Once = AfterValidator(_check_once)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# --------------------------------------------------------------------------------------------------------- datasets


class Labels(Strict):
    """The table that says what each receptor binds (or its measured value)."""

    path: str | None = Field(
        None, description="CSV or TSV, plain or compressed; default: the columns are in the sequence table itself"
    )
    id: str = Field("receptor_id", description="its column with the receptor's id")
    column: str = Field("label", description="column that holds the class, or the value for regression")
    classes: Annotated[list[str], Field(min_length=1), Once] | None = Field(
        None, description="keep these classes only, in this order; default: all"
    )


class Dataset(Strict):
    """One set of receptors: sequence files, and the labels to predict."""

    sequences: str | Annotated[list[str], Field(min_length=1)] = Field(
        description="FASTA, FASTQ, AnnData or tables of any of the field's tools, plain or compressed, told by content"
    )
    format: str = Field("auto", description="what the tables are, where the header does not tell: a name as parse says")
    id: str | None = Field(None, description="FASTA header template, such as '{receptor_id}|{locus}'")
    repeated_ids: Literal["error", "rename"] = Field(
        "error", description="FASTA ids that repeat: stop, or name the later ones id_2, id_3, ..."
    )
    columns: dict[str, str] | None = Field(
        None,
        description="table input: our column name -> the file's; 'TRA.junction_aa' where a row holds several chains",
    )
    molecule: Literal["auto", "protein", "nucleotide"] = Field(
        "auto", description="what the letters are; auto: all A/C/G/T/N and 60 letters or more in a file is nucleotide"
    )
    receptor: Literal["TCR", "antibody"] = Field(description="decides genes, clusters and which encoders fit")
    species: str = Field(
        "auto", description="whose genes: human, mouse or another; auto: a column species, else human or mouse by genes"
    )
    alleles: Literal["keep", "gene", "first"] = Field(
        "keep", description="gene names: as given, cut to the gene, or with *01 where no allele is given"
    )
    chains: Annotated[list[ChainName], Field(min_length=1), Once] = Field(
        description="chains of one receptor, in the order of their features; light is IGK or IGL"
    )
    missing_chain: Literal["reject", "zero"] = Field(
        "reject", description="a receptor that lacks a chain: reject it, or give it zeros and an indicator column"
    )
    several_chains: Literal["top", "drop"] = Field(
        "top",
        description="several chains of a kind: the productive one with most UMIs, then reads, or drop the receptor",
    )
    min_umis: Annotated[int, Field(ge=0)] = Field(0, description="chains with fewer UMIs are rejected as ambient")
    unknown_productive: Literal["keep", "reject"] = Field(
        "keep", description="chains that nothing says are productive; those said not to be are always rejected"
    )
    locus_conflict: Literal["warn", "correct", "reject"] = Field(
        "warn", description="a chain given as one locus that numbering finds to be another"
    )
    cdr3_anchors: Literal["auto", "with", "without", "each"] = Field(
        "auto", description="whether CDR3s have C104 and F/W118; auto: told by the file; each: told value by value"
    )
    rebuild: Literal["auto", "always", "never"] = Field(
        "auto",
        description="chains known by V, CDR3 and J only: put together from germline residues, or junctions alone; "
        "auto: only TCRs, because antibodies are mutated",
    )
    leader_and_constant: Literal["keep", "cut"] = Field(
        "keep", description="residues before and after the V domain, where it is found"
    )
    labels: Labels | None = Field(None, description="what to predict; without it the dataset is embedded only")
    groups: dict[Name, str] = Field({}, description="group name -> column of the labels table")
    task: Literal["classification", "regression"] = Field(
        "classification", description="classification; regression is not available yet"
    )

    @property
    def files(self) -> list[str]:
        return [self.sequences] if isinstance(self.sequences, str) else list(self.sequences)

    @property
    def label_files(self) -> list[str]:
        """The table of labels, where it is not the sequence table itself."""
        return [self.labels.path] if self.labels and self.labels.path else []


# --------------------------------------------------------------------------------------------------------- encoders


RECEPTORS = ["TCR", "antibody"]


class _Encoder(Strict):
    receptors: list[Literal["TCR", "antibody"]] = Field(RECEPTORS, description="kinds of datasets to embed with it")


class PublishedEncoder(_Encoder):
    """What every encoder with published weights has: a file that may be somewhere, or nowhere."""

    weights: str | None = Field(
        None, description="the file or its folder; default: looked for where the kind's row says"
    )
    layer: int = Field(-1, description="layer to embed from: 0 the embedding, 1 the first block; -1 the last")
    if_unreachable: Literal["skip", "fail"] = Field(
        "fail", description="when the weights can be had nowhere: stop, or go on without this encoder and say so"
    )

    @property
    def published_name(self) -> str:
        """The row of ``core.config.FAMILIES`` that it stands for."""
        raise NotImplementedError


class ModelSettings(Strict):
    """Size and form of what is trained from scratch; the rest of ``core.config.ModelConfig`` follows."""

    layers: Annotated[int, Field(ge=1)] = Field(4, description="Transformer blocks")
    width: Annotated[int, Field(ge=8)] = Field(128, description="features a residue; a multiple of heads")
    heads: Annotated[int, Field(ge=1)] = Field(4, description="attention heads a block")
    feed_forward: Annotated[int, Field(ge=8)] = Field(512, description="width inside the feed-forward layer")
    positions: Literal["rotary", "alibi", "learned", "sinusoidal", "none"] = Field(
        "rotary", description="how the model knows where a residue stands"
    )
    max_length: Annotated[int, Field(ge=8)] = Field(512, description="tokens, start and end included")
    norm: Literal["layer", "rms"] = Field("layer", description="LayerNorm or RMSNorm")
    norm_place: Literal["pre", "post"] = Field("pre", description="before each sub-layer, or after the residual sum")
    activation: Literal["gelu", "relu", "swiglu"] = Field("gelu", description="inside the feed-forward layer")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="share of features dropped in training")
    embedding_scale: bool = Field(False, description="multiply the embedding by sqrt(width), as the original does")
    initialisation: Literal["scaled", "xavier", "normal"] = Field(
        "scaled", description="starting weights; scaled: each layer keeps the size of what goes through it"
    )

    @model_validator(mode="after")
    def _fits_the_core(self) -> ModelSettings:
        self.to_model_config()
        return self

    def to_model_config(self, objective: str = "masked") -> ModelConfig:
        form = {"masked": "encoder", "causal": "decoder", "seq2seq": "encoder-decoder"}[objective]
        # Not tied: 33 letters cost nothing, and starting weights that suit an embedding do not suit an output.
        # After post-norm blocks all is normed already.
        return ModelConfig(
            **self.model_dump(),
            form=form,
            tied=False,
            final_norm=self.norm_place == "pre",
            head="transform" if form == "encoder" else "linear",
        )


class TrainSettings(Strict):
    """How training goes. Masked residues (Devlin et al. 2019): of the chosen, 80/10/10 % mask/random/kept."""

    steps: Annotated[int, Field(ge=1)] = Field(1500, description="optimizer steps at most")
    batch_tokens: Annotated[int, Field(ge=64)] = Field(4096, description="residues a step, all sequences together")
    learning_rate: Annotated[float, Field(gt=0)] = Field(1e-3, description="AdamW's, at the end of the warm-up")
    warmup_steps: Annotated[int, Field(ge=0)] = Field(100, description="steps over which the rate rises from 0")
    schedule: Literal["cosine", "noam"] = Field(
        "cosine", description="how it falls then: to 0 along a cosine, or with 1 / sqrt(step) as the original's does"
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of the target that is spread over all letters"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.01, description="AdamW's")
    clip: Annotated[float, Field(gt=0)] = Field(1.0, description="largest norm of the gradient")
    mask_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(0.15, description="share of residues to guess")
    cdr3_weight: Annotated[float, Field(gt=0)] = Field(
        1.0, description="how much more readily a CDR3 residue is chosen than another"
    )
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(0.1, description="share of receptors held out")
    validate_every: Annotated[int, Field(ge=1)] = Field(100, description="steps between validations")
    patience: Annotated[int, Field(ge=1)] = Field(5, description="validations without progress before it stops")
    average: Annotated[int, Field(ge=1)] = Field(
        1,
        description="1: keep the weights of the lowest validation loss; more: the mean of the last so many validations",
    )


REVERSAL_TOKENS = 18  # its longest strings, of 16 residues, between start and end


class PretrainEncoder(_Encoder):
    """A Transformer trained from scratch in this run: an encoder, or a decoder that writes sequences.

    `objective: masked` makes an encoder, for features. `causal` makes a decoder that writes new sequences like those
    of its corpus. `seq2seq` makes the original encoder-decoder; its one corpus so far is `reversal`, random strings of
    8 to 16 residues to write backwards, the task to learn cross-attention by.
    """

    kind: Literal["pretrain"]
    objective: Literal["masked", "causal", "seq2seq"] = Field(
        "masked", description="guess hidden residues, the next residue, or a sequence from another one"
    )
    corpus: Annotated[
        Annotated[list[str], Once] | Literal["train_folds", "reversal"], BeforeValidator(_check_corpus)
    ] = Field(
        description="datasets to read, unlabelled; train_folds: one encoder a fold, which never sees its test receptors"
    )
    sequence: Literal["chain", "junction"] = Field(
        "chain", description="what a causal model writes: whole chains, or junctions (the CDR3 with both anchors)"
    )
    model: ModelSettings = Field(ModelSettings(), description="size and form; see below")
    train: TrainSettings = Field(TrainSettings(), description="how it is trained; see below")
    layer: int = Field(-1, description="layer to embed from: 0 the embedding, 1 the first block; -1 the last")


class Esm2Encoder(PublishedEncoder):
    """ESM-2 (Lin et al. 2023), from a fair-esm .pt or a Hugging Face .safetensors file.

    Without `weights` the torch hub cache and the Hugging Face cache are looked at; then one download is tried.
    """

    kind: Literal["esm2"]
    name: Literal[ESM2_NAMES] = Field(description="which of the published sizes")  # type: ignore[valid-type]

    @property
    def published_name(self) -> str:
        return self.name


class Esm1bEncoder(PublishedEncoder):
    """ESM-1b (Rives et al. 2021), 650M parameters, from a fair-esm .pt or a Hugging Face .safetensors file.

    Without `weights` the torch hub cache and the Hugging Face cache are looked at; then one download is tried.
    """

    kind: Literal["esm1b"]

    @property
    def published_name(self) -> str:
        return "esm1b_t33_650M_UR50S"


class AntibertyEncoder(PublishedEncoder):
    """AntiBERTy (Ruffolo et al. 2021), for antibodies.

    Without `weights` the wheel `antiberty==0.1.3` (it comes with the demo extra) and the Hugging Face cache are
    looked at; then one download is tried.
    """

    kind: Literal["antiberty"]
    receptors: list[Literal["TCR", "antibody"]] = Field(["antibody"], description="kinds of datasets to embed with it")

    @property
    def published_name(self) -> str:
        return "antiberty"


class AblangEncoder(PublishedEncoder):
    """AbLang (Olsen et al. 2022), one model for heavy and one for light chains of antibodies; at most 157 residues.

    Every chain of a dataset goes through the named one. Without `weights` the installed packages ablang and ablang2,
    which keep what they have downloaded, and the torch hub cache are looked at; then one download is tried. An unknown
    residue (X) is read as one to be guessed.
    """

    kind: Literal["ablang"]
    name: Literal["heavy", "light"] = Field(description="which of the two models")
    receptors: list[Literal["TCR", "antibody"]] = Field(["antibody"], description="kinds of datasets to embed with it")

    @property
    def published_name(self) -> str:
        return f"ablang1-{self.name}"


class Ablang2Encoder(PublishedEncoder):
    """AbLang2 (Olsen et al. 2024), trained on paired and single chains of antibodies.

    Chains are read one by one, each as `<CHAIN>|`, as it knows a heavy chain without its partner. Without `weights` the
    installed package ablang2, which keeps what it has downloaded, and the torch hub cache are looked at; then one
    download is tried.
    """

    kind: Literal["ablang2"]
    receptors: list[Literal["TCR", "antibody"]] = Field(["antibody"], description="kinds of datasets to embed with it")

    @property
    def published_name(self) -> str:
        return "ablang2-paired"


class Blosum62Encoder(_Encoder):
    """The residue's row of BLOSUM62: 20 numbers a residue, no learning."""

    kind: Literal["blosum62"]


class KmerEncoder(_Encoder):
    """Counts of k-mers: sparse, one fixed column per k-mer of the alphabet, no learning."""

    kind: Literal["kmer"]
    k: Annotated[int, Field(ge=1, le=4)] = Field(3, description="residues in a row")
    region: RegionName | None = Field("cdr3", description="count within this region; null: the whole chain")
    genes: bool = Field(True, description="add V and J genes as one-hot columns")


Encoder = Annotated[
    PretrainEncoder
    | Esm2Encoder
    | Esm1bEncoder
    | AntibertyEncoder
    | AblangEncoder
    | Ablang2Encoder
    | Blosum62Encoder
    | KmerEncoder,
    Field(discriminator="kind"),
]


# --------------------------------------------------------------------------- poolings, classifiers and how to judge


class MeanPooling(Strict):
    """Mean over the residues of a region (default: the whole chain), in the context of the whole chain."""

    kind: Literal["mean"]
    region: RegionName | None = Field(None, description="pool within this region; null: the whole chain")


class MaxPooling(Strict):
    """Largest value of each feature over the residues of a region (default: the whole chain)."""

    kind: Literal["max"]
    region: RegionName | None = Field(None, description="pool within this region; null: the whole chain")


class CountsPooling(Strict):
    """For encoders that count (kmer): nothing to pool."""

    kind: Literal["counts"]


Pooling = Annotated[MeanPooling | MaxPooling | CountsPooling, Field(discriminator="kind")]


class LogisticGrid(Strict):
    """`kind: logistic_regression`"""

    C: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)] = Field(
        [0.01, 0.1, 1, 10], description="inverse strengths of the L2 penalty to choose from"
    )


class LogisticRegressionClassifier(Strict):
    """One logistic regression a class, C chosen by inner cross-validation within the training fold."""

    kind: Literal["logistic_regression"]
    grid: LogisticGrid = Field(LogisticGrid(), description="what to choose from")
    class_weight: Literal["balanced"] | None = Field(None, description="balanced: rare classes weigh more")


class NeighborsGrid(Strict):
    """`kind: k_nearest_neighbors`"""

    n_neighbors: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)] = Field(
        [5, 15, 45], description="numbers of neighbours to choose from"
    )


class NearestNeighborsClassifier(Strict):
    """k nearest neighbours by cosine distance, k chosen by inner cross-validation within the training fold."""

    kind: Literal["k_nearest_neighbors"]
    grid: NeighborsGrid = Field(NeighborsGrid(), description="what to choose from")


Classifier = Annotated[LogisticRegressionClassifier | NearestNeighborsClassifier, Field(discriminator="kind")]


class ClusterSettings(Strict):
    """When two receptors are too alike to stand on both sides of a split (single linkage)."""

    tcr_cdr3_distance: Annotated[int, Field(ge=0)] = Field(1, description="edits between CDR3s, summed over the chains")
    antibody_identity: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="identity of the first chain's V domain"
    )


# The splits, the most demanding one first; "best" is judged in the first one that a dataset has.
STRICTEST_FIRST = ("group", "cluster", "random")


class Evaluation(Strict):
    """How the classifiers are judged: cross-validation, split in several ways side by side."""

    splits: Annotated[list[Literal["random", "cluster", "group"]], Field(min_length=1), Once] = Field(
        ["random", "cluster", "group"],
        description="what must not stand on both sides: nothing, similar receptors, one group",
    )
    group: Name | None = Field(None, description="which group the group split keeps together; default: the first")
    folds: Annotated[int, Field(ge=2)] = Field(3, description="parts of the cross-validation")
    seeds: Annotated[list[int], Field(min_length=1), Once] = Field([1], description="one cross-validation a seed")
    bootstrap: Annotated[int, Field(ge=100)] = Field(1000, description="resamples behind each 95 % interval")
    cluster: ClusterSettings = Field(ClusterSettings(), description="what similar means; see below")


# ------------------------------------------------------------------------------------------------------- the whole


class Compute(Strict):
    """Where and how jobs run. Scheduling only: a change here never retrains."""

    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:N")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 where the GPU has it for training, fp32 elsewhere"
    )
    shards: Annotated[int, Field(ge=1, le=1)] = Field(1, description="jobs a dataset is cut into; only 1 for now")


class MaskedExample(Strict):
    """A chain along which each encoder guesses hidden residues, for the report."""

    name: str = Field(description="what the report calls it")
    sequence: str = Field(description="amino acids of the whole chain")
    region: str = Field(description="the stretch to guess, as residues, such as the CDR3 with its anchors")
    receptor: Literal["TCR", "antibody"] = Field("TCR", description="encoders that do not fit it are left out")

    @model_validator(mode="after")
    def _region_in_sequence(self) -> MaskedExample:
        if self.region not in self.sequence:
            raise ValueError(f"region {self.region!r} does not occur in the sequence")
        return self


class Report(Strict):
    """What results/report.html shows."""

    title: str = Field("airrformer report", description="heading of the page")
    masked_example: MaskedExample | None = Field(None, description="a chain whose residues are guessed; see below")


class TargetRow(Strict):
    """A product of names; those of its combinations that fit together are built."""

    datasets: list[str] | Literal["all"] = Field("all", description="names, or all")
    encoders: list[str] | Literal["all"] = Field("all", description="names, or all")
    poolings: list[str] | Literal["all"] = Field("all", description="names, or all")
    classifiers: list[str] | Literal["all"] = Field("all", description="names, or all")


class Target(NamedTuple):
    """One thing to build: a classifier on one pooling of one encoder's vectors of one dataset."""

    dataset: str
    encoder: str
    pooling: str
    classifier: str


class Embedding(NamedTuple):
    """The vectors that targets stand on: one pooling of one encoder's vectors of one dataset."""

    dataset: str
    encoder: str
    pooling: str


class Config(Strict):
    """The whole of ``config.yaml``."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(7, description="of everything that is drawn")
    compute: Compute = Field(Compute(), description="where and how jobs run")
    keep_residues: bool = Field(False, description="keep the per-residue vectors too (large)")
    datasets: dict[Name, Dataset] = Field({}, description="name -> what to read; at least one")
    encoders: dict[Name, Encoder] = Field({}, description="name -> how sequences become vectors")
    poolings: dict[Name, Pooling] = Field({}, description="name -> how residue vectors become one vector a chain")
    classifiers: dict[Name, Classifier] = Field({}, description="name -> how a class is predicted from vectors")
    evaluation: Evaluation = Field(Evaluation(), description="how classifiers are judged")
    report: Report = Field(Report(), description="what the report shows")
    targets: list[TargetRow] = Field([TargetRow()], description="what to build")

    def fits(self, dataset: str, encoder: str, pooling: str) -> bool:
        """Whether the three go together: the encoder reads this kind of receptor, and counts are not pooled."""
        counts = self.encoders[encoder].kind == "kmer"
        return (
            self.datasets[dataset].receptor in self.encoders[encoder].receptors
            and (self.poolings[pooling].kind == "counts") == counts
            and encoder not in self.writers
        )

    @property
    def writers(self) -> list[str]:
        """The encoders that write sequences and so make no features; they are built whatever the targets say."""
        return [name for name, encoder in self.encoders.items() if getattr(encoder, "objective", "masked") != "masked"]

    def _names(self, row: TargetRow, field: str) -> list[str]:
        chosen = getattr(row, field)
        return list(getattr(self, field)) if chosen == "all" else chosen

    def expand_embeddings(self) -> list[Embedding]:
        """Every (dataset, encoder, pooling) that some target row asks for and that fits, in the config's order."""
        embeddings: dict[Embedding, None] = {}
        for row in self.targets:
            for names in product(*(self._names(row, f"{field}s") for field in Embedding._fields)):
                if self.fits(*names):
                    embeddings[Embedding(*names)] = None
        return list(embeddings)

    def expand_targets(self) -> list[Target]:
        """Every target once, in the order of the config. Datasets without labels have no classifier to train."""
        targets: dict[Target, None] = {}
        for row in self.targets:
            for names in product(*(self._names(row, f"{field}s") for field in Target._fields)):
                target = Target(*names)
                if self.datasets[target.dataset].labels is not None and self.fits(*target[:3]):
                    targets[target] = None
        return list(targets)

    def part(
        self,
        datasets: typing.Iterable[str] = (),
        encoders: typing.Iterable[str] = (),
        poolings: typing.Iterable[str] = (),
        classifiers: typing.Iterable[str] = (),
        evaluation: bool = False,
        seed: bool = False,
        training: bool = False,
        unreachable: bool = False,
    ) -> str:
        """The named parts alone, as JSON with sorted keys: what one job depends on, and its tracked parameter.

        ``load_config`` reads it back. What only schedules (``compute``) is never in it, the ``seed`` only for jobs
        that draw. An encoder stands in it as those see it who read its vectors; ``training`` adds how it is trained,
        ``unreachable`` what to do without its weights. Which datasets it fits has been decided when there is a part,
        so ``receptors`` says all.
        """
        whole = self.model_dump(mode="json")
        chosen: dict[str, Any] = {"targets": []}
        for section, names in (
            ("datasets", datasets), ("encoders", encoders), ("poolings", poolings), ("classifiers", classifiers)
        ):  # fmt: skip
            chosen[section] = {name: whole[section][name] for name in names}
        for encoder in chosen["encoders"].values():
            encoder["receptors"] = RECEPTORS
            if not unreachable:
                encoder.pop("if_unreachable", None)
            if encoder["kind"] == "pretrain" and not training:
                del encoder["model"], encoder["train"]
                if isinstance(encoder["corpus"], list):
                    encoder["corpus"] = []
        if seed:
            chosen["seed"] = self.seed
        if evaluation:
            chosen["evaluation"] = whole["evaluation"]
        return json.dumps(chosen, sort_keys=True)

    def whole(self) -> str:
        """All that results depend on, as JSON in the order of the config; what only schedules is left out."""
        return self.model_dump_json(exclude={"compute"})

    # -------------------------------------------------------------------------------------------- cross-checks

    def problems(self) -> list[str]:
        """Names that nothing defines, and choices that cannot work; a line each, with its path."""
        lines = []
        for i, row in enumerate(self.targets):
            for field in ("datasets", "encoders", "poolings", "classifiers"):
                chosen = getattr(row, field)
                for name in [] if chosen == "all" else chosen:
                    if name not in getattr(self, field):
                        lines.append(
                            f"targets.{i}.{field}: no {field[:-1]} {name!r}{_near(name, getattr(self, field))}"
                        )
        for name, encoder in self.encoders.items():
            corpus = getattr(encoder, "corpus", [])
            for dataset in corpus if isinstance(corpus, list) else []:
                if dataset not in self.datasets:
                    lines.append(f"encoders.{name}.corpus: no dataset {dataset!r}{_near(dataset, self.datasets)}")
            if isinstance(encoder, PretrainEncoder):
                lines += _objective_problems(name, encoder)
        for i, row in enumerate(self.targets):
            for name in [] if row.encoders == "all" else row.encoders:
                if name in self.writers:
                    lines.append(
                        f"targets.{i}.encoders: {name!r} writes sequences (objective: {self.encoders[name].objective}) "
                        "and makes no features; leave it out here, it is trained all the same"
                    )
        for name, dataset in self.datasets.items():
            if dataset.task == "regression":
                lines.append(f"datasets.{name}.task: regression is not available yet; use classification")
            for chain in dataset.chains:
                if (chain in ("heavy", "light")) != (dataset.receptor == "antibody"):
                    lines.append(f"datasets.{name}.chains: {chain} is no chain of {_article(dataset.receptor)}")
            for group in {"receptor_id", "label", "chain_status"} & set(dataset.groups):
                lines.append(f"datasets.{name}.groups.{group}: this name is taken; give the group another one")
            if dataset.groups and dataset.labels is None:
                lines.append(f"datasets.{name}.groups: groups are columns of the labels table; add labels")
            if self.evaluation.group and dataset.labels and self.evaluation.group not in dataset.groups:
                lines.append(
                    f"evaluation.group: dataset {name!r} has no group {self.evaluation.group!r}"
                    f"{_near(self.evaluation.group, dataset.groups)}"
                )
        return lines

    def loose_ends(self) -> list[str]:
        """What a part may leave open and the whole may not; a line each, with its path."""
        needless = self.encoders and all(getattr(e, "corpus", None) == REVERSAL for e in self.encoders.values())
        lines = [] if self.datasets or needless else ["datasets: there is none; name at least one"]
        for name, encoder in self.encoders.items():
            if encoder.kind == "pretrain" and not encoder.corpus:
                lines.append(f"encoders.{name}.corpus: names no dataset; there is {', '.join(self.datasets)}")
            if isinstance(encoder, PretrainEncoder | PublishedEncoder):  # a part may lack the model's size
                lines += _layer_problems(name, encoder)
            if name in self.writers:
                continue
            kind = "counts" if encoder.kind == "kmer" else "mean"
            if not any((pooling.kind == "counts") == (kind == "counts") for pooling in self.poolings.values()):
                lines.append(f"encoders.{name}: no pooling fits it; add to poolings: {{{kind}: {{kind: {kind}}}}}")
        for name, dataset in self.datasets.items():
            for path in [*dataset.files, *dataset.label_files]:
                if "{" in path or "}" in path:
                    lines.append(f"datasets.{name}: rename {path!r}: Snakemake keeps {{ and }} for itself")
        for i, row in enumerate(self.targets):
            names = [self._names(row, f"{field}s") for field in Embedding._fields]
            names[1] = [name for name in names[1] if name not in self.writers]
            if all(names) and not any(self.fits(*combination) for combination in product(*names)):
                lines.append(f"targets.{i}: none of its datasets, encoders and poolings fit together")
        return lines

    def missing_files(self) -> list[str]:
        """Input files that are not there; a line each, with the path in the config."""
        lines = []
        for name, dataset in self.datasets.items():
            for path in dataset.files:
                if path != "-" and (not Path(path).exists() or Path(path).is_dir()):
                    lines.append(f"datasets.{name}.sequences: there is no file {path!r}")
            for path in dataset.label_files:
                if not Path(path).is_file():
                    lines.append(f"datasets.{name}.labels.path: there is no file {path!r}")
        for name, encoder in self.encoders.items():
            weights = getattr(encoder, "weights", None)
            if weights and encoder.if_unreachable == "fail" and not Path(weights).exists():
                lines.append(f"encoders.{name}.weights: there is no file {weights!r}")
        return lines


def _article(receptor: str) -> str:
    return f"an {receptor}" if receptor == "antibody" else f"a {receptor}"


def _objective_problems(name: str, encoder: PretrainEncoder) -> list[str]:
    """What an objective cannot be trained on; a line each, with its path."""
    lines = []
    if (encoder.objective == "seq2seq") != (encoder.corpus == REVERSAL):
        lines.append(
            f"encoders.{name}.corpus: objective seq2seq and corpus reversal go together, and with nothing else; here "
            f"they are {encoder.objective} and {encoder.corpus}"
        )
    if encoder.objective == "causal" and encoder.corpus == TRAIN_FOLDS:
        lines.append(f"encoders.{name}.corpus: train_folds is for encoders that make features (objective: masked)")
    if encoder.objective != "causal" and encoder.sequence != "chain":
        lines.append(f"encoders.{name}.sequence: {encoder.sequence} is for objective causal; leave it out")
    if encoder.objective == "seq2seq" and encoder.model.max_length < REVERSAL_TOKENS:
        lines.append(
            f"encoders.{name}.model.max_length: {encoder.model.max_length} is too short for the strings of the "
            f"reversal task; give {REVERSAL_TOKENS} tokens or more"
        )
    return lines


def _layer_problems(name: str, encoder: PretrainEncoder | PublishedEncoder) -> list[str]:
    """A layer to embed from that the encoder does not have; otherwise found out when training is over."""
    trained = isinstance(encoder, PretrainEncoder)
    layers = encoder.model.layers if trained else FAMILIES[encoder.published_name].layers
    if -layers - 1 <= encoder.layer <= layers:
        return []
    return [f"encoders.{name}.layer: there is no {encoder.layer}; it has 0 (the embedding) to {layers}, -1 the last"]


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is a mistake; plain YAML takes the last one without a word."""

    def construct_mapping(self, node, deep=False):
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands there twice", key.start_mark
                )
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> Any:
    """What a YAML file holds. Raises ``UserError`` when it cannot be read or a key stands in it twice."""
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UserError(f"{path}: cannot read the config: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split()).replace('"<unicode string>", ', "")
        raise UserError(f"{path}: not valid YAML: {reason}") from None


def load_config(source: str | Path | dict, check_files: bool = False) -> Config:
    """Read a config from a YAML file, from JSON text (as ``Config.part`` writes it) or from a dict.

    Raises ``UserError`` that lists every mistake, each on a line of its own.
    """
    where = "the config"
    if isinstance(source, dict):
        values = source
    elif isinstance(source, str) and source.lstrip().startswith("{"):
        try:
            values = json.loads(source)
        except ValueError as error:
            raise UserError(f"the config: not valid JSON: {error}") from None
    else:
        where = str(source)
        values = read_yaml(source)
        if not isinstance(values, dict):
            raise UserError(f"{where}: the config is empty or not a mapping; see config/README.md")
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise _as_user_error(where, [_line(e) for e in error.errors()]) from None
    lines = config.problems()
    if check_files and not lines:
        lines = config.loose_ends()
    lines += config.missing_files() if check_files else []
    if lines:
        raise _as_user_error(where, lines)
    return config


def _as_user_error(where: str, lines: list[str]) -> UserError:
    mistakes = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    return UserError("\n".join([f"{where}: {mistakes} in the config:", *(f"  {line}" for line in lines)]))


def _near(name: str, candidates: typing.Iterable[str]) -> str:
    candidates = list(candidates)
    near = difflib.get_close_matches(name, candidates, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there is {', '.join(map(repr, candidates))}" if candidates else ""


def _line(error: dict) -> str:
    """One pydantic error as 'path: what is wrong', its path without the tags that pydantic puts into unions."""
    path, fields = [], _fields_of(Config)
    model: Any = Config
    for depth, part in enumerate(error["loc"]):
        inner = _step(model, part)
        unknown_key = error["type"] == "extra_forbidden" and depth == len(error["loc"]) - 1
        if inner is None and isinstance(part, str) and not unknown_key:
            # a discriminator's tag or a union member's name: no key of the user's file
            tagged = _member(model, part)
            model = tagged if tagged is not None else model
            continue
        path.append(str(part))
        fields = _fields_of(model)
        model = inner
    where = ".".join(path) or "(top level)"
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown key{_near(str(error['loc'][-1]), fields)}"
    if error["type"] == "missing":
        return f"{where}: missing; it is required"
    if error["type"] == "union_tag_not_found":
        return f"{where}.kind: missing; it is required"
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    value = error.get("input")
    shown = f", not {value!r}" if isinstance(value, str | int | float | bool) and repr(value) not in message else ""
    quote = "; put it into quotes" if error["type"] == "string_type" and shown else ""
    return f"{where}: {message}{shown}{quote}"


def _fields_of(model: Any) -> list[str]:
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _unwrap(annotation: Any) -> Any:
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _options(annotation: Any) -> list[Any]:
    annotation = _unwrap(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [option for member in typing.get_args(annotation) for option in _options(member)]
    return [annotation]


def _step(model: Any, part: str | int) -> Any:
    """The annotation that key or index ``part`` of ``model`` leads to, or None where there is no such key."""
    for option in _options(model):
        if isinstance(option, type) and issubclass(option, BaseModel):
            if part in option.model_fields:
                return option.model_fields[part].annotation
        elif typing.get_origin(option) is dict:
            return typing.get_args(option)[1]
        elif typing.get_origin(option) is list and isinstance(part, int):
            return typing.get_args(option)[0]
    return None


def _member(model: Any, tag: str) -> Any:
    """The member of a tagged union whose ``kind`` is ``tag``."""
    for option in _options(model):
        if isinstance(option, type) and issubclass(option, BaseModel):
            kind = option.model_fields.get("kind")
            if kind is not None and tag in typing.get_args(kind.annotation):
                return option
    return None
