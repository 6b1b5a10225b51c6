"""What a Transformer is, as data: ``ModelConfig`` and the families' rows. No torch here.

The config decides everything; a model's name never does. A published model is one row of ``FAMILIES``.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

# Of the residues (core/alphabet.py); here so that this module imports nothing.
ALPHABET_SIZE, CLS, PAD, EOS, SEPARATOR, MASK = 33, 0, 1, 2, 31, 32
# What may be said of a receptor before its residues (core/writing.py); their ids follow the alphabet's.
TAGS = ("TRA", "TRB", "TRG", "TRD", "IGH", "IGK", "IGL", "human", "mouse")


@dataclass(frozen=True)
class ModelConfig:
    """Everything that the one ``Transformer`` class needs to know.

    Widths and counts are in units of features, layers and heads. ``max_length`` counts tokens, special ones included;
    ``None`` means that the position scheme sets no limit. Raises ``ValueError`` for choices that cannot go together.
    """

    # encoder: all tokens see each other. decoder: each sees those before it. encoder-decoder: a decoder that also looks
    # at a source, which an encoder has read.
    form: Literal["encoder", "decoder", "encoder-decoder"] = "encoder"
    causal: bool = True  # False: the decoder's tokens see each other too, as a receptor does that looks at a peptide
    layers: int = 4
    decoder_layers: int | None = None  # of an encoder-decoder; None: as many as the encoder has
    width: int = 128

    heads: int = 4
    head_width: int | None = None  # None: width / heads
    attn_scale: float | None = None  # of the scores; None: 1 / sqrt(head width)
    feed_forward: int = 512
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = "gelu"  # gelu_tanh: GPT-2's approximation
    bias: bool = True

    alphabet_size: int = ALPHABET_SIZE
    source_alphabet_size: int | None = None  # of an encoder-decoder; None: the same alphabet, with a table of its own
    pad: int = PAD  # the token that nothing sees; in a source too
    mask: int = MASK  # the token that token dropout zeroes
    before: tuple[int, ...] = (CLS,)  # tokens that one chain's residues are read between
    after: tuple[int, ...] = (EOS,)
    tags: bool = False  # species and locus stand before a chain's residues
    loops: bool = False  # reads a chain also as CDR1|CDR2|CDR3
    pairs: bool = False  # reads two chains of a receptor together, the second in segment 1
    embedding_scale: bool = False  # times sqrt(width)
    embedding_norm: bool = False
    segments: int = 0
    token_dropout: bool = False  # ESM-2's

    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "rotary"
    max_length: int | None = None
    rotary_base: float = 10_000.0
    rotary_pairs: Literal["half", "interleaved"] = "half"  # (i, i + K / 2), or neighbours (2 i, 2 i + 1)
    rotary_scaling: Literal["none", "interpolation", "ntk", "yarn"] = "none"  # to read further than was trained
    rotary_factor: float = 1.0  # how many times further
    rotary_length: int | None = None  # tokens that were trained, for YaRN

    norm: Literal["layer", "rms"] = "layer"
    norm_place: Literal["pre", "post"] = "pre"
    final_norm: bool = True
    eps: float = 1e-5

    head: Literal["transform", "linear"] = "transform"  # before the output: dense, activation, norm; or nothing
    output_bias: bool = True
    tied: bool = True  # the output's rows are the embedding's
    contacts: bool = False  # a logistic regression on the attention maps, one coefficient a head

    dropout: float = 0.0  # of what a sub-layer adds; the three below follow it where they are None
    attention_dropout: float | None = None  # of the attention weights
    feed_forward_dropout: float | None = None  # between the two maps of the feed-forward
    embedding_dropout: float | None = None
    initialisation: Literal["scaled", "xavier", "normal"] = "scaled"  # transformer.initialise

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self)).items():
            _check(name, getattr(self, name), hint)
        if self.head_width is None and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.positions == "learned" and self.max_length is None:
            raise ValueError("learned positions need max_length: the number of rows of the position table")
        if self.positions == "rotary" and self.rotary_scaling == "ntk" and self.head_size == 2:
            raise ValueError("NTK scaling needs a head width above 2: it changes how the pairs of a head differ")
        if self.tags and self.alphabet_size < ALPHABET_SIZE + len(TAGS):
            raise ValueError(f"tags need an alphabet of {ALPHABET_SIZE + len(TAGS)} tokens, not {self.alphabet_size}")
        if self.pairs and self.segments < 2:
            raise ValueError(f"pairs need 2 segments, one a chain, not {self.segments}")
        if self.pad >= self.alphabet_size:
            raise ValueError(f"pad {self.pad} is no token of an alphabet of {self.alphabet_size}")
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(f"rotary positions need an even head width, not {self.head_size}")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        if self.rotary_scaling == "yarn" and self.rotary_length is None:
            raise ValueError("YaRN needs rotary_length: the number of tokens that the model was trained on")
        if self.rotary_factor != 1 and self.rotary_scaling == "none":
            raise ValueError(f"rotary_factor {self.rotary_factor:g} needs a rotary_scaling: interpolation, ntk or yarn")
        if self.token_dropout and (self.form != "encoder" or self.mask >= self.alphabet_size):
            raise ValueError("token_dropout is for encoders, and needs their mask's id: it counts the hidden tokens")
        if self.contacts and self.form != "encoder":
            raise ValueError("contacts are an encoder's: they are read off the attention of all residues to each other")
        if self.segments and self.form == "encoder-decoder":
            raise ValueError("segments are for one stack; an encoder-decoder tells its two sequences apart as it is")
        if self.form != "encoder-decoder" and (self.decoder_layers, self.source_alphabet_size) != (None, None):
            raise ValueError(
                f"decoder_layers and source_alphabet_size are an encoder-decoder's, not of form {self.form}"
            )

    @property
    def head_size(self) -> int:
        """Features of one head."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def depth(self) -> int:
        """Blocks of the stack whose states come out: the decoder's, where there is one."""
        return self.layers if self.decoder_layers is None else self.decoder_layers

    def rate(self, place: Literal["attention", "feed_forward", "embedding"]) -> float:
        """Dropout at ``place``: its own, or else the common one."""
        own = getattr(self, f"{place}_dropout")
        return self.dropout if own is None else own

    def parameters(self) -> dict[str, int]:
        """How many trained numbers each part holds, without building the model; their sum is the whole.

        >>> ModelConfig(layers=1, width=8, heads=2, feed_forward=32, tied=False).parameters()
        {'embedding': 264, 'attention': 288, 'feed_forward': 552, 'norms': 48, 'output': 385}
        """
        width, inner, bias = self.width, self.heads * self.head_size, int(self.bias)
        gated = int(self.activation == "swiglu")
        norm = width * (2 if self.norm == "layer" else 1)
        attention = 4 * width * inner + bias * (3 * inner + width)
        feed_forward = (2 + gated) * width * self.feed_forward + bias * ((1 + gated) * self.feed_forward + width)
        transform = (1 + gated) * (width + 1) * width + norm

        both = self.form == "encoder-decoder"
        blocks = self.layers + self.depth if both else self.layers
        attentions = blocks + (self.depth if both else 0)  # each block of the decoder also looks at the source
        places = self.max_length if self.positions == "learned" else 0
        table = self.alphabet_size + self.segments + places
        if both:
            table += (self.source_alphabet_size or self.alphabet_size) + places
        parts = {
            "embedding": table * width,
            "attention": attentions * attention,
            "feed_forward": blocks * feed_forward,
            "norms": norm * (attentions + blocks + (1 + both) * (self.embedding_norm + self.final_norm)),
            "output": (0 if self.tied else self.alphabet_size * width)
            + (self.alphabet_size if self.output_bias else 0)
            + (transform if self.head == "transform" else 0),
        }
        return parts | ({"contacts": self.layers * self.heads + 1} if self.contacts else {})

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> ModelConfig:
        """Build from ``to_dict``'s output; an unknown key is an error, never ignored."""
        if not isinstance(values, dict):
            raise ValueError(f"a table of fields was expected, not {values!r:.40}")
        unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"unknown ModelConfig fields: {', '.join(unknown)}")
        lists = {key: value for key in ("before", "after") if isinstance(value := values.get(key), list)}
        return cls(**values | {key: tuple(value) for key, value in lists.items()})  # JSON has no tuples


_AT_LEAST = {"layers": 0, "segments": 0, "pad": 0, "mask": 0, "before": 0, "after": 0}  # of whole numbers; others: 1
_MAY_BE_ZERO = {"dropout", "attention_dropout", "feed_forward_dropout", "embedding_dropout"}


def _check(name: str, value: Any, hint: Any) -> None:
    """Raises ``ValueError`` where ``value`` is no ``hint``, or a number that the field cannot be."""
    options = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
    if value is None and type(None) in options:
        return
    kind = options[0]
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        fits, wanted = value in choices, f"one of {', '.join(choices)}"
    elif kind is bool:
        fits, wanted = isinstance(value, bool), "true or false"
    elif kind is float:
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if name in _MAY_BE_ZERO:
            fits, wanted = number and 0 <= value < 1, "a number from 0 to below 1"
        else:
            fits, wanted = number and value > 0, "a number above 0"
    else:
        least, many = _AT_LEAST.get(name, 1), kind is not int
        numbers = value if many and isinstance(value, tuple) else () if many else (value,)
        fits = all(isinstance(n, Integral) and not isinstance(n, bool) and n >= least for n in numbers)
        fits &= not many or isinstance(value, tuple)
        wanted = f"{'whole numbers' if many else 'a whole number'} of {least} or more"
    if not fits:
        raise ValueError(f"{name} must be {wanted}, not {value!r}")


# ESM-2 (Lin et al. 2023, Science 379:1123): pre-norm, rotary, GELU, tied output, token dropout. Sizes are those of
# fair-esm's esm/pretrained.py; max_length is the 1,022 residues plus start and end that it was trained on.
_ESM2 = dict(positions="rotary", norm_place="pre", final_norm=True, tied=True, token_dropout=True, max_length=1024)
# ESM-1b (Rives et al. 2021, PNAS 118:e2016239118): the same with learned positions and a norm over the embedding.
_ESM1B = _ESM2 | dict(positions="learned", embedding_norm=True)
# AntiBERTy (Ruffolo et al. 2021, arXiv:2112.07782) and AbLang (Olsen et al. 2022, Bioinform Adv 2:vbac046) are BERTs,
# so post-norm, learned positions, norm over the embedding, rows of their own for the output. AbLang's table of 160
# positions counts from 1, which leaves 159 tokens.
_BERT = dict(positions="learned", norm_place="post", final_norm=False, embedding_norm=True, eps=1e-12, tied=False)
_ABLANG1 = dict(layers=12, width=768, heads=12, feed_forward=3072, max_length=159, **_BERT)
# AbLang2 (Olsen et al. 2024, Bioinformatics 40:btae618): ESM-2's plan with SwiGLU, also before the output, and
# neighbours that turn together. Its scores are divided by sqrt(head width) twice. It reads <HEAVY>|<LIGHT>, and a chain
# without its partner as <CHAIN>|, which is how a heavy chain alone stood in its training.
_ABLANG2 = dict(layers=12, width=480, heads=20, feed_forward=1920, activation="swiglu", attn_scale=1 / 24,
                positions="rotary", rotary_pairs="interleaved", norm_place="pre", final_norm=True, eps=1e-12, tied=True,
                after=(EOS, SEPARATOR))  # fmt: skip
# Not here: SCEPTR (Nagano et al. 2024, arXiv:2406.06397). Its blocks are those of this core (post-norm, ReLU), but its
# token is four numbers: residue, place in its CDR loop, that loop's length, and which of six loops. What enters the
# first block is a projection of a one-hot residue, place / length and a one-hot loop side by side. Place / length is
# neither a row of a table nor a function of the position in the input, so this embedding cannot make it.

_ESM2_SIZES: dict[str, dict] = {
    "esm2_t6_8M_UR50D": dict(layers=6, width=320, heads=20, feed_forward=1280),
    "esm2_t12_35M_UR50D": dict(layers=12, width=480, heads=20, feed_forward=1920),
    "esm2_t30_150M_UR50D": dict(layers=30, width=640, heads=20, feed_forward=2560),
    "esm2_t33_650M_UR50D": dict(layers=33, width=1280, heads=20, feed_forward=5120),
    "esm2_t36_3B_UR50D": dict(layers=36, width=2560, heads=40, feed_forward=10240),
    "esm2_t48_15B_UR50D": dict(layers=48, width=5120, heads=40, feed_forward=20480),
}
ESM2_NAMES: tuple[str, ...] = tuple(_ESM2_SIZES)
# How the files of each are read is a row of core/published.py's CHECKPOINTS.
FAMILIES: dict[str, ModelConfig] = {
    **{name: ModelConfig(**size, **_ESM2) for name, size in _ESM2_SIZES.items()},
    "esm1b_t33_650M_UR50S": ModelConfig(layers=33, width=1280, heads=20, feed_forward=5120, **_ESM1B),
    "antiberty": ModelConfig(layers=8, width=512, heads=8, feed_forward=2048, max_length=512, segments=2, **_BERT),
    "ablang1-heavy": ModelConfig(**_ABLANG1),
    "ablang1-light": ModelConfig(**_ABLANG1),
    "ablang2-paired": ModelConfig(**_ABLANG2),
    # Our own, trained by config/examples/airrformer_mini.yaml.
    "airrformer-mini": ModelConfig(
        layers=4,
        width=96,
        heads=4,
        feed_forward=384,
        max_length=512,
        tied=False,
        alphabet_size=ALPHABET_SIZE + len(TAGS),
        segments=2,
        tags=True,
        loops=True,
        pairs=True,
    ),
}
