"""encoders and poolings: how a receptor becomes numbers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from airrformer.config.base import Once, RegionName, Strict
from airrformer.core.config import ALPHABET_SIZE, ESM2_NAMES, TAGS, ModelConfig
from airrformer.receptors.tables import CHAIN_OF_LOCUS

TRAIN_FOLDS, REVERSAL = "train_folds", "reversal"


def _check_corpus(corpus: Any) -> Any:
    # One dataset may stand without brackets; what is no list and no dataset's name is left for pydantic to refuse.
    return [corpus] if isinstance(corpus, str) and corpus not in (TRAIN_FOLDS, REVERSAL) else corpus


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

    def to_model_config(self, objective: str = "masked", **reads: Any) -> ModelConfig:
        """``reads``: fields of ``ModelConfig`` that follow from what is read."""
        form = {"causal": "decoder", "seq2seq": "encoder-decoder"}.get(objective, "encoder")
        # Not tied: 33 letters cost nothing, and starting weights that suit an embedding do not suit an output.
        # After post-norm blocks all is normed already.
        return ModelConfig(
            **self.model_dump(),
            form=form,
            tied=False,
            final_norm=self.norm_place == "pre",
            head="transform" if form == "encoder" else "linear",
            **reads,
        )


Edits = Annotated[int, Field(ge=0, le=2)]
Locus = Literal[*CHAIN_OF_LOCUS]  # type: ignore[valid-type]


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
    span: Annotated[float, Field(ge=1)] = Field(
        1.0, description="mean number of neighbours that are hidden together; 1: each by itself"
    )
    cdr3_weight: Annotated[float, Field(gt=0)] = Field(
        1.0, description="how much more readily a CDR3 residue is chosen than another"
    )
    hidden_tags: Annotated[float, Field(ge=0, le=1)] = Field(
        0.3,
        description="how often species and locus are left out in training, where `tags` is on",
    )
    temperature: Annotated[float, Field(gt=0)] = Field(
        0.05, description="contrastive: cosines are divided by it; low: only the nearest other receptors count"
    )
    substitute: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="contrastive: share of residues replaced in a view, the likelier the nearer by BLOSUM62"
    )
    drop_chain: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.4, description="contrastive: how often a view lacks one chain of a pair"
    )
    guess_weight: Annotated[float, Field(gt=0)] = Field(
        1.0, description="objective both: how much the hidden residues count beside the contrast"
    )
    sampling: Literal["all", "cluster"] = Field(
        "all",
        description="an epoch has all receptors, or one of each cluster of near copies (CDR3s one edit apart): large "
        "clones and public receptors then count once",
    )
    balance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0,
        description="how much oftener rare kinds of receptors (by their loci) are read: an epoch has in proportion to "
        "n ** (1 - balance) of a kind with n, and all of the rarest kind; 0: all of each",
    )
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(0.1, description="share of receptors held out")
    held_out_edits: Edits | dict[Locus, Edits] = Field(
        0,
        description="a chain whose CDR3 is within so many edits of a held-out one does not train; one number, or one "
        "for each locus that is named (of light chains near copies are the rule: 1 leaves out most of the usual ones)",
    )
    validate_every: Annotated[int, Field(ge=1)] = Field(100, description="steps between validations")
    patience: Annotated[int, Field(ge=1)] = Field(5, description="validations without progress before it stops")
    average: Annotated[int, Field(ge=1)] = Field(
        1,
        description="1: keep the weights of the lowest validation loss; more: the mean of the last so many validations",
    )
    ema: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="what a step keeps of an exponential average of the weights, which is then kept; 0: none",
    )


Form = Literal["chain", "junction", "cdrs"]
ENCODING = ("masked", "contrastive", "both")  # objectives that make an encoder


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


REVERSAL_TOKENS = 18  # its longest strings, of 16 residues, between start and end


class PretrainEncoder(_Encoder):
    """A Transformer trained from scratch in this run: an encoder, or a decoder that writes sequences.

    `objective: masked` makes an encoder, for features. `contrastive` does, too: it learns which two noised views are of
    one receptor (SCEPTR, Nagano et al. 2024), so that receptors that differ little get vectors that differ little;
    `both` guesses the hidden residues of these views as well. `causal` makes a decoder that writes new sequences like
    those of its corpus. `seq2seq` makes the original encoder-decoder; its one corpus so far is `reversal`, random
    strings of 8 to 16 residues to write backwards, the task to learn cross-attention by.
    """

    kind: Literal["pretrain"]
    objective: Literal["masked", "contrastive", "both", "causal", "seq2seq"] = Field(
        "masked",
        description="guess hidden residues, tell noised views apart, both, guess the next residue, or a sequence from "
        "another one",
    )
    corpus: Annotated[
        Annotated[list[str], Once] | Literal["train_folds", "reversal"], BeforeValidator(_check_corpus)
    ] = Field(
        description="datasets to read, unlabelled; train_folds: one encoder a fold, which never sees its test receptors"
    )
    sequence: Annotated[
        Annotated[list[Form], Field(min_length=1), Once] | Form,
        AfterValidator(_as_list),
    ] = Field(
        ["chain"],
        description="how a chain is written: whole (chain), its junction (the CDR3 with both anchors), or its three "
        "CDRs (cdrs); of several an encoder learns all, and makes vectors from the first",
    )
    pairs: bool = Field(
        False, description="read the two chains of a receptor together; each has vectors that know of the other"
    )
    tags: bool = Field(
        False, description="tell the encoder the locus of a chain, and in training the species that the dataset names"
    )
    supervised: bool = Field(
        False,
        description="contrastive: receptors of one class belong together. Needs labels, so `corpus: train_folds` or "
        "datasets on which no classifier of this encoder is judged",
    )
    compare: Annotated[list[Literal["antiberty", *ESM2_NAMES]], Once] = Field(  # type: ignore[valid-type]
        [],
        description="published encoders that guess the same hidden residues, for the card; left out where their "
        "weights are not at hand",
    )
    model: ModelSettings = Field(ModelSettings(), description="size and form; see below")
    train: TrainSettings = Field(TrainSettings(), description="how it is trained; see below")
    layer: int = Field(-1, description="layer to embed from: 0 the embedding, 1 the first block; -1 the last")

    @property
    def encodes(self) -> bool:
        """Whether it makes vectors; else it writes sequences."""
        return self.objective in ENCODING

    def to_model_config(self) -> ModelConfig:
        reads: dict[str, Any] = {}
        if self.encodes:
            reads |= {"loops": "cdrs" in self.sequence, "pairs": self.pairs, "tags": self.tags}
            reads |= {"segments": 2} if self.pairs else {}
            reads |= {"alphabet_size": ALPHABET_SIZE + len(TAGS)} if self.tags else {}
        return self.model.to_model_config(self.objective, **reads)


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


class MiniEncoder(PublishedEncoder):
    """`airrformer-mini`: small, trained on TCRs and antibodies without any label, and shipped with airrformer.

    It reads whole chains or their CDRs, one by one or the two of a receptor together.
    """

    kind: Literal["mini"]
    sequence: Annotated[
        Annotated[list[Literal["cdrs", "chain"]], Field(min_length=1, max_length=1)] | Literal["cdrs", "chain"],
        AfterValidator(_as_list),
    ] = Field(["cdrs"], description="how a chain is written: cdrs (its three CDRs), or chain (whole)")
    pairs: bool = Field(True, description="read the two chains of a receptor together")

    @property
    def published_name(self) -> str:
        return "airrformer-mini"


class Blosum62Encoder(_Encoder):
    """The residue's row of BLOSUM62: 20 numbers a residue, no learning."""

    kind: Literal["blosum62"]


class KmerEncoder(_Encoder):
    """Counts of k-mers: sparse, one fixed column per k-mer of the alphabet, no learning."""

    kind: Literal["kmer"]
    k: Annotated[int, Field(ge=1, le=4)] = Field(3, description="residues in a row")
    region: RegionName | None = Field("cdr3", description="count within this region; null: the whole chain")
    genes: bool = Field(True, description="add V and J genes as one-hot columns")


class LettersEncoder(_Encoder):
    """The receptor itself: its CDRs and genes as letters, for classifiers that compare or read sequences.

    A classifier that needs numbers gets the letters of `regions`, aligned from both ends, in the `encoding` named.
    """

    kind: Literal["letters"]
    regions: Annotated[list[Literal["cdr1", "cdr2", "cdr3", "sequence"]], Field(min_length=1), Once] = Field(
        ["cdr1", "cdr2", "cdr3"], description="what is read of each chain; sequence: the V domain, else the whole chain"
    )
    encoding: Literal["onehot", "blosum", "physchem", "codes"] = Field(
        "onehot",
        description="as numbers: a column a position and residue, BLOSUM62 rows, make-up and charge, size, hydropathy, "
        "or the residue's number (for `gradient_boosting` with `categories`)",
    )
    genes: bool = Field(False, description="as numbers: V and J genes too, a column each")


class ColumnsEncoder(_Encoder):
    """Columns of the input as features: an isotype, an HLA allele, a measurement.

    Words become a column each, numbers stay numbers. `airrformer predict` needs a table with the same columns.
    """

    kind: Literal["columns"]
    columns: Annotated[list[str], Field(min_length=1), Once] = Field(
        description="names of `groups` of the dataset; datasets that lack one are not read by it"
    )


Encoder = Annotated[
    PretrainEncoder
    | Esm2Encoder
    | Esm1bEncoder
    | AntibertyEncoder
    | AblangEncoder
    | Ablang2Encoder
    | MiniEncoder
    | Blosum62Encoder
    | KmerEncoder
    | LettersEncoder
    | ColumnsEncoder,
    Field(discriminator="kind"),
]


# ---------------------------------------------------------------------------------------------------------- poolings


class MeanPooling(Strict):
    """Mean over the residues of a region (default: the whole chain), in the context of the whole chain."""

    kind: Literal["mean"]
    region: RegionName | None = Field(None, description="pool within this region; null: the whole chain")


class MaxPooling(Strict):
    """Largest value of each feature over the residues of a region (default: the whole chain)."""

    kind: Literal["max"]
    region: RegionName | None = Field(None, description="pool within this region; null: the whole chain")


class ResiduesPooling(Strict):
    """Nothing is pooled: a classifier of kind residue_head reads the vectors of a region's residues one by one."""

    kind: Literal["residues"]
    region: RegionName | None = Field(None, description="read this region alone; null: the whole chain")


class LoopsPooling(Strict):
    """The means of CDR1, CDR2 and CDR3, each scaled to length 1, side by side: what `objective: contrastive` trains."""

    kind: Literal["loops"]


class CountsPooling(Strict):
    """For encoders that count (kmer): nothing to pool."""

    kind: Literal["counts"]


class LettersPooling(Strict):
    """For the encoder that leaves a receptor as it is (letters): nothing to pool."""

    kind: Literal["letters"]


class ColumnsPooling(Strict):
    """For the encoder that takes columns of the input (columns): nothing to pool."""

    kind: Literal["columns"]


Pooling = Annotated[
    MeanPooling | MaxPooling | LoopsPooling | ResiduesPooling | CountsPooling | LettersPooling | ColumnsPooling,
    Field(discriminator="kind"),
]
# Encoders that learn nothing and have no weights: what a learned one has to beat.
PLAIN_KINDS = ("blosum62", "kmer", "letters", "columns")
# Of these no features are made beforehand: a classifier reads what the input says.
AS_THEY_ARE = ("letters", "columns")
# Encoders that have no residue vectors, and the one pooling that goes with each; both are called alike in turn.
POOLING_OF = {"kmer": "counts", "letters": "letters", "columns": "columns"}
