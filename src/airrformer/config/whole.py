"""The whole of ``config.yaml``: its parts, the targets that follow from them, and checks across them."""

from __future__ import annotations

import json
import typing
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from airrformer.config.base import Name, Strict, near
from airrformer.config.classifiers import REGRESSION, Classifier, Member, Source, StackClassifier
from airrformer.config.datasets import Dataset
from airrformer.config.encoders import (
    AS_THEY_ARE,
    ENCODING,
    PLAIN_KINDS,
    POOLING_OF,
    RECEPTORS,
    REVERSAL,
    REVERSAL_TOKENS,
    TRAIN_FOLDS,
    Encoder,
    Pooling,
    PretrainEncoder,
    PublishedEncoder,
)
from airrformer.config.evaluation import Evaluation
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.core.config import FAMILIES
from airrformer.errors import UserError


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
        """Whether the three go together: the encoder reads such receptors and has its columns; poolings match."""
        kind, own = self.poolings[pooling].kind, POOLING_OF.get(self.encoders[encoder].kind)
        return (
            self.datasets[dataset].receptor in self.encoders[encoder].receptors
            and (kind == own if own else kind not in POOLING_OF.values())
            and encoder not in self.writers
            and set(getattr(self.encoders[encoder], "columns", [])) <= set(self.datasets[dataset].groups)
        )

    def reads_several(self, target: Target) -> bool:
        """Whether the target's classifier says itself what it reads: a stack, or several kernels."""
        return bool(self.classifiers[target.classifier].sources)

    def source(self, target: Target, source: Source) -> Target:
        """What a member of a target's stack, or one of its kernels, stands for: what it leaves out is the target's."""
        classifier = source.classifier if isinstance(source, Member) else target.classifier
        return Target(target.dataset, source.encoder or target.encoder, source.pooling or target.pooling, classifier)

    def inputs(self, target: Target) -> list[Embedding]:
        """What a target reads: its own features, or those of each member of a stack or of several kernels, once."""
        sources = self.classifiers[target.classifier].sources
        found: dict[Embedding, None] = {} if sources else {Embedding(*target[:3]): None}
        for source in sources:
            read = self.source(target, source)
            found |= dict.fromkeys(self.inputs(read) if isinstance(source, Member) else [Embedding(*read[:3])])
        return list(found)

    def read_as(self, embedding: Embedding) -> Literal["letters", "residues", "vectors"]:
        """What a classifier reads there: no features are made beforehand of letters (and columns) and residues."""
        if self.encoders[embedding.encoder].kind == "letters":
            return "letters"
        return "residues" if self.poolings[embedding.pooling].kind == "residues" else "vectors"

    def readers_of(self, column: str, targets: typing.Iterable[Target]) -> list[str]:
        """The encoders of kind columns by which one of the targets reads a column."""
        read = {embedding.encoder for target in targets for embedding in self.inputs(target)}
        return [
            name
            for name, encoder in self.encoders.items()
            if name in read and encoder.kind == "columns" and column in encoder.columns
        ]

    def parts_of(self, target: Target) -> dict[str, list[str]]:
        """The names that a target stands on, for ``part``."""
        inputs, own = self.inputs(target), self.classifiers[target.classifier]
        members = [member.classifier for member in own.members] if isinstance(own, StackClassifier) else []
        return {
            "datasets": [target.dataset],
            "encoders": list(dict.fromkeys([target.encoder, *(embedding.encoder for embedding in inputs)])),
            "poolings": list(dict.fromkeys([target.pooling, *(embedding.pooling for embedding in inputs)])),
            "classifiers": list(dict.fromkeys([target.classifier, *members])),
        }

    def _hindrance(self, target: Target) -> str | None:
        """Why a target cannot be built; ``None`` where it can: something to predict, and what its classifier reads."""
        dataset, settings = self.datasets[target.dataset], self.classifiers[target.classifier]
        if dataset.labels is None:
            return f"dataset {target.dataset!r} has no labels"
        if dataset.task not in settings.tasks:
            return f"kind {settings.kind} is not for {dataset.task}, the task of dataset {target.dataset!r}"
        if dataset.task == REGRESSION and getattr(settings, "categories", False):
            return (
                f"categories: true of kind {settings.kind} is for classes, and dataset {target.dataset!r} has numbers"
            )
        for embedding in self.inputs(target):
            if not self.fits(*embedding):
                return (
                    f"encoder {embedding.encoder!r} with pooling {embedding.pooling!r} cannot read dataset "
                    f"{target.dataset!r}"
                )
            kind = self.read_as(embedding)
            if kind not in settings.reads:
                maker = f"pooling {embedding.pooling!r}" if kind == "residues" else f"encoder {embedding.encoder!r}"
                return f"kind {settings.kind} reads no {kind}, and {maker} makes them"
            tuned = getattr(settings, "fine_tune", "none")
            if tuned != "none" and self.encoders[embedding.encoder].kind in PLAIN_KINDS:
                return f"fine_tune: {tuned} trains weights, and encoder {embedding.encoder!r} has none"
        return next(filter(None, (self._incomparable(target, source) for source in settings.sources)), None)

    def _incomparable(self, target: Target, source: Source) -> str | None:
        """Why a member or kernel cannot compare what it reads by its distance."""
        read = self.source(target, source)
        if isinstance(source, Member):
            return self._hindrance(read)
        if source.distance is None:
            return None
        if self.encoders[read.encoder].kind != "letters":
            return f"a distance compares letters, and encoder {read.encoder!r} makes vectors"
        lacking = [chain for chain in source.distance.chains or [] if chain not in self.datasets[read.dataset].chains]
        return f"a distance compares {lacking[0]}, no chain of dataset {read.dataset!r}" if lacking else None

    @property
    def writers(self) -> list[str]:
        """The encoders that write sequences and so make no features; they are built whatever the targets say."""
        return [name for name, encoder in self.encoders.items() if not getattr(encoder, "encodes", True)]

    def _names(self, row: TargetRow, field: str) -> list[str]:
        chosen = getattr(row, field)
        return list(getattr(self, field)) if chosen == "all" else chosen

    def expand_embeddings(self) -> list[Embedding]:
        """Every (dataset, encoder, pooling) that some target row or stack asks for and that fits, in config order.

        Letters, columns and residues are no features: nothing is made of them beforehand.
        """
        embeddings: dict[Embedding, None] = {}
        for row in self.targets:
            for names in product(*(self._names(row, f"{field}s") for field in Embedding._fields)):
                if self.fits(*names):
                    embeddings[Embedding(*names)] = None
        for target in self.expand_targets():
            embeddings |= dict.fromkeys(self.inputs(target))
        return [
            embedding
            for embedding in embeddings
            if self.encoders[embedding.encoder].kind not in AS_THEY_ARE and self.read_as(embedding) != "residues"
        ]

    def expand_residues(self) -> list[Embedding]:
        """What the classifiers that read an encoder's residues themselves read, in config order."""
        read = dict.fromkeys(embedding for target in self.expand_targets() for embedding in self.inputs(target))
        return [embedding for embedding in read if self.read_as(embedding) == "residues"]

    def expand_targets(self) -> list[Target]:
        """Every target once, in config order: what fits together, and has labels that the classifier can learn."""
        targets: dict[Target, None] = {}
        for row in self.targets:
            for names in product(*(self._names(row, f"{field}s") for field in Target._fields)):
                target = Target(*names)
                if self.fits(*target[:3]) and self._hindrance(target) is None:
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
        corpora: bool = False,
        targets: typing.Sequence[dict] = (),
    ) -> str:
        """The named parts alone, as JSON with sorted keys: what one job depends on, and its tracked parameter.

        ``load_config`` reads it back. What only schedules (``compute``) is never in it, the ``seed`` only for jobs
        that draw. An encoder stands in it as those see it who read its vectors; ``training`` adds how it is trained,
        ``corpora`` what it has read, ``unreachable`` what to do without its weights. Which datasets it fits has been
        decided when there is a part, so ``receptors`` says all.
        """
        whole = self.model_dump(mode="json")
        chosen: dict[str, Any] = {"targets": list(targets)}
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
                if isinstance(encoder["corpus"], list) and not corpora:
                    encoder["corpus"] = []
        if seed:
            chosen["seed"] = self.seed
        if evaluation:
            # whether there are baselines changes nothing in what is judged
            chosen["evaluation"] = {key: value for key, value in whole["evaluation"].items() if key != "baselines"}
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
                        lines.append(f"targets.{i}.{field}: no {field[:-1]} {name!r}{near(name, getattr(self, field))}")
        for name, classifier in self.classifiers.items():
            listed = "members" if isinstance(classifier, StackClassifier) else "kernels"
            for i, source in enumerate(classifier.sources):
                for field in ("encoder", "pooling", "classifier"):
                    named, known = getattr(source, field, None), getattr(self, f"{field}s")
                    if named is not None and named not in known:
                        lines.append(
                            f"classifiers.{name}.{listed}.{i}.{field}: no {field} {named!r}{near(named, known)}"
                        )
                if isinstance(self.classifiers.get(getattr(source, "classifier", None)), StackClassifier):
                    lines.append(f"classifiers.{name}.members.{i}.classifier: a stack cannot be a member of a stack")
        for name, encoder in self.encoders.items():
            corpus = getattr(encoder, "corpus", [])
            for dataset in corpus if isinstance(corpus, list) else []:
                if dataset not in self.datasets:
                    lines.append(f"encoders.{name}.corpus: no dataset {dataset!r}{near(dataset, self.datasets)}")
            if isinstance(encoder, PretrainEncoder):
                lines += _objective_problems(name, encoder)
                read = [self.datasets[d] for d in corpus if d in self.datasets] if isinstance(corpus, list) else []
                if encoder.pairs and read and all(len(dataset.chains) == 1 for dataset in read):
                    lines.append(f"encoders.{name}.pairs: no dataset of its corpus has two chains; leave it out")
        for i, row in enumerate(self.targets):
            for name in [] if row.encoders == "all" else row.encoders:
                if name in self.writers:
                    lines.append(
                        f"targets.{i}.encoders: {name!r} writes sequences (objective: {self.encoders[name].objective}) "
                        "and makes no features; leave it out here, it is trained all the same"
                    )
        for name, dataset in self.datasets.items():
            for chain in dataset.chains:
                if (chain in ("heavy", "light")) != (dataset.receptor == "antibody"):
                    lines.append(f"datasets.{name}.chains: {chain} is no chain of {_article(dataset.receptor)}")
            for chain, residues in (dataset.parent or {}).items():
                if chain not in dataset.chains:
                    lines.append(
                        f"datasets.{name}.parent.{chain}: no chain of the dataset; it has {', '.join(dataset.chains)}"
                    )
                if not residues or set(residues) - set(AMINO_ACIDS):
                    lines.append(f"datasets.{name}.parent.{chain}: {residues!r} are not residues")
            for group in sorted(TAKEN & set(dataset.groups)):
                lines.append(f"datasets.{name}.groups.{group}: this name is taken; give the group another one")
            if dataset.groups and dataset.labels is None:
                lines.append(f"datasets.{name}.groups: groups are columns of the labels table; add labels")
            if self.evaluation.group and dataset.labels and self.evaluation.group not in dataset.groups:
                lines.append(
                    f"evaluation.group: dataset {name!r} has no group {self.evaluation.group!r}"
                    f"{near(self.evaluation.group, dataset.groups)}"
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
            if getattr(encoder, "supervised", False) and encoder.corpus != TRAIN_FOLDS:
                judged = {
                    target.dataset
                    for target in self.expand_targets()
                    if any(embedding.encoder == name for embedding in self.inputs(target))
                }
                lines += [
                    f"encoders.{name}.supervised: it learns the labels of {dataset!r}, by whose receptors a target of "
                    f"{other!r} judges it; take `corpus: train_folds`, or other datasets"
                    for dataset in encoder.corpus
                    for other in sorted(judged)
                    if dataset == other or _shares_files(self.datasets.get(dataset), self.datasets[other])
                ]
            if name in self.writers:
                continue
            own = POOLING_OF.get(encoder.kind)
            kinds = {pooling.kind for pooling in self.poolings.values()}
            if own not in kinds if own else not kinds - set(POOLING_OF.values()):
                kind = own or "mean"
                lines.append(f"encoders.{name}: no pooling fits it; add to poolings: {{{kind}: {{kind: {kind}}}}}")
        for name, dataset in self.datasets.items():
            for path in _files(dataset):
                if "{" in path or "}" in path:
                    lines.append(f"datasets.{name}: rename {path!r}: Snakemake keeps {{ and }} for itself")
        for i, row in enumerate(self.targets):
            names = [self._names(row, f"{field}s") for field in Embedding._fields]
            names[1] = [name for name in names[1] if name not in self.writers]
            if all(names) and not any(self.fits(*combination) for combination in product(*names)):
                lines.append(f"targets.{i}: none of its datasets, encoders and poolings fit together")
            lines += self._never_built(i, row)
        return lines

    def _never_built(self, i: int, row: TargetRow) -> list[str]:
        """Classifiers that a row names and of which it makes none, though there are labels; each with the reason."""
        lines = []
        for classifier in [] if row.classifiers == "all" else row.classifiers:
            names = product(*(self._names(row, f"{field}s") for field in Embedding._fields))
            targets = [Target(*some, classifier) for some in names if self.fits(*some)]
            reasons = [
                self._hindrance(target) for target in targets if self.datasets[target.dataset].labels is not None
            ]
            if reasons and all(reasons):
                lines.append(f"targets.{i}.classifiers: {classifier!r} is never built: {reasons[0]}")
        return lines

    def missing_files(self) -> list[str]:
        """Input files that are not there; a line each, with the path in the config."""
        lines = []
        for name, dataset in self.datasets.items():
            try:
                sequences, labels = dataset.files, dataset.label_files
            except UserError as error:  # a variable that is not set, a pattern that nothing is like
                lines.append(f"datasets.{name}.{error}")
                continue
            for path in sequences:
                if path != "-" and (not Path(path).exists() or Path(path).is_dir()):
                    lines.append(f"datasets.{name}.sequences: there is no file {path!r}")
            for path in labels:
                if not Path(path).is_file():
                    lines.append(f"datasets.{name}.labels.path: there is no file {path!r}")
        for name, encoder in self.encoders.items():
            weights = getattr(encoder, "weights", None)
            if weights and encoder.if_unreachable == "fail" and not Path(weights).exists():
                lines.append(f"encoders.{name}.weights: there is no file {weights!r}")
        return lines


TAKEN = {"receptor_id", "label", "not_label", "occurrences", "chain_status"}  # columns of receptors.parquet


def _files(dataset: Dataset) -> list[str]:
    """The files of a dataset; none where it cannot be told which, as ``missing_files`` says."""
    try:
        return [*dataset.files, *dataset.label_files]
    except UserError:
        return []


def _shares_files(one: Dataset | None, other: Dataset) -> bool:
    named = [{d.sequences} if isinstance(d.sequences, str) else {*d.sequences} for d in (one, other) if d is not None]
    return len(named) == 2 and bool(named[0] & named[1])


def _article(receptor: str) -> str:
    return f"an {receptor}" if receptor == "antibody" else f"a {receptor}"


_VIEWS = ("contrastive", "both")
_GUESSING = ("masked", "both")
_OF_OBJECTIVES = {  # options that other objectives have no use for
    "pairs": ENCODING,
    "tags": ENCODING,
    "compare": _GUESSING,
    "supervised": _VIEWS,
    "train.mask_fraction": ENCODING,
    "train.span": ENCODING,
    "train.cdr3_weight": ENCODING,
    "train.hidden_tags": ENCODING,
    "train.sampling": ENCODING,
    "train.balance": ENCODING,
    "train.temperature": _VIEWS,
    "train.substitute": _VIEWS,
    "train.drop_chain": _VIEWS,
    "train.guess_weight": ("both",),
    "train.label_smoothing": ("masked", "both", "causal", "seq2seq"),
    "train.held_out_edits": (*ENCODING, "causal"),
    "train.validation_fraction": (*ENCODING, "causal"),
    "layer": ENCODING,
}


def _changed(settings: Strict, key: str) -> bool:
    return getattr(settings, key) != type(settings).model_fields[key].default


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
    if encoder.objective == "seq2seq" and encoder.sequence != ["chain"]:
        lines.append(f"encoders.{name}.sequence: of no use to objective seq2seq; leave it out")
    if encoder.objective == "causal" and encoder.sequence not in (["chain"], ["junction"]):
        lines.append(f"encoders.{name}.sequence: a causal model writes chain or junction, one of the two")
    for option, objectives in _OF_OBJECTIVES.items():
        place, _, key = option.rpartition(".")
        if encoder.objective not in objectives and _changed(encoder.train if place else encoder, key):
            which = f"objective{'s' * (len(objectives) > 1)} {', '.join(objectives)}"
            lines.append(f"encoders.{name}.{option}: is for {which}; leave it out")
    if encoder.compare and "chain" not in encoder.sequence:
        lines.append(f"encoders.{name}.compare: published encoders read whole chains; add chain to sequence")
    for option, needs in {"hidden_tags": "tags", "drop_chain": "pairs"}.items():
        if not getattr(encoder, needs) and _changed(encoder.train, option):
            lines.append(f"encoders.{name}.train.{option}: is of no use without {needs}; leave it out")
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
