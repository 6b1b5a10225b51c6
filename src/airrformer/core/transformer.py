"""The one Transformer: attention, feed-forward, block, stack, and the whole. No model names, no files, no losses.

``ModelConfig`` decides everything. Read from top to bottom: first the whole, then its parts. positions.py has the
position schemes and who sees whom, decoding.py writes sequences with it.

Letters in shape comments: B batch, L length in tokens, S length of a source, H heads, D model width, K head width,
F feed-forward width, V alphabet. Masks have one sense: True = may be seen.

Vaswani et al. 2017 (arXiv:1706.03762) is the original. Where a part has another source, it is named there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from airrformer.core.batching import Line
from airrformer.core.config import ModelConfig
from airrformer.core.positions import POSITIONS, Sight, rotate

# --------------------------------------------------------------------------------------------------------- the whole


class Transformer(nn.Module):
    """Token ids -> hidden states -> logits over the alphabet.

    An encoder reads ``tokens``; a decoder reads them from left to right; an encoder-decoder's decoder also looks at
    ``source``, which its encoder has read. ``forward`` gives the last hidden states, ``hidden_states`` those of every
    layer, ``logits`` goes on from the last ones. All tokens are int64, padded on the right with ``config.pad``.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        cross = config.form == "encoder-decoder"
        source_alphabet = (cross and config.source_alphabet_size) or config.alphabet_size
        self.encoder = None if config.form == "decoder" else Stack(config, config.layers, source_alphabet)
        self.decoder = None
        if config.form != "encoder":
            self.decoder = Stack(config, config.depth, config.alphabet_size, causal=config.causal, cross=cross)
        self.head = Head(config)
        self.contact_head = ContactHead(config) if config.contacts else None
        self.tie()

    def tie(self) -> None:
        """Make the output's rows those of the embedding, where the config says so; needed again after weights came."""
        if self.config.tied:
            self.head.output.weight = self._stack.embedding.tokens.weight

    def forward(self, tokens: Tensor, source: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Last hidden states (B, L, D) of ``tokens`` (B, L). Padding rows hold no meaning."""
        return self.hidden_states(tokens, (self.config.depth,), source, segments)[0]

    def hidden_states(
        self,
        tokens: Tensor,
        layers: tuple[int, ...] | None = None,
        source: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> list[Tensor]:
        """Hidden states (B, L, D) after each of ``layers``, in that order; default: all, 0 (the embedding) to the last.

        The last one is taken after the final norm. Layers above the highest asked for are not computed. Raises
        ``ValueError`` for a row without a visible token, for too long an input, for a layer that does not exist, and
        for a ``source`` or ``segments`` that are missing or have no use.
        """
        return self._stack(tokens, layers, segments, *self._memory(source))

    def encode(self, source: Tensor) -> Tensor:
        """What the encoder of an encoder-decoder makes of ``source`` (B, S): the memory (B, S, D)."""
        if self.encoder is None:
            raise ValueError("a decoder encodes no source")
        return self.encoder(source, (self.config.layers,))[0]

    def decode(
        self,
        tokens: Tensor,
        memory: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Last hidden states (B, L, D) of the decoder for ``tokens`` (B, L) beside ``memory`` (B, S, D).

        ``source_mask`` (B, S): which of the memory may be seen; None: all. With a ``cache``, ``tokens`` are the ones
        that follow those of the calls before, without padding and beside the same memory, and only they are computed.
        """
        if self.decoder is None:
            raise ValueError("an encoder decodes nothing")
        if (self.encoder is None) != (memory is None):
            raise ValueError(
                "a decoder without an encoder has no memory" if memory is not None else "a memory is needed"
            )
        return self.decoder(tokens, (self.config.depth,), None, memory, source_mask, cache)[0]

    def attention_maps(
        self,
        tokens: Tensor,
        layers: tuple[int, ...] | None = None,
        source: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> list[Tensor]:
        """Attention weights (B, H, L, L) in each of ``layers``, from 1; default: all. Rows sum to 1.

        They say where a head looks, not what matters for an output: for that, ablate. Raises as ``hidden_states``.
        """
        return _chosen(self._watch(tokens, source, segments).own, layers)

    def cross_attention_maps(
        self, tokens: Tensor, source: Tensor, layers: tuple[int, ...] | None = None
    ) -> list[Tensor]:
        """Attention weights (B, H, L, S) of ``tokens`` on ``source`` in each of ``layers``, from 1; default: all."""
        return _chosen(self._watch(tokens, source).cross, layers)

    def contacts(self, tokens: Tensor, residue_mask: Tensor) -> Tensor:
        """Probability that two residues touch (B, L, L); 0 where ``residue_mask`` (B, L) is False for either.

        Raises ``ValueError`` for a model without a contact head.
        """
        if self.contact_head is None:
            raise ValueError("this model has no contact head")
        return self.contact_head(torch.cat(self.attention_maps(tokens), dim=1), residue_mask)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the alphabet (..., V) of last hidden states (..., D)."""
        return self.head(hidden)

    @property
    def _stack(self) -> Stack:
        """The stack whose states come out."""
        return self.encoder if self.decoder is None else self.decoder

    def _watch(self, tokens: Tensor, source: Tensor | None, segments: Tensor | None = None) -> Maps:
        maps = Maps()
        self._stack(tokens, None, segments, *self._memory(source), maps=maps)
        return maps

    def _memory(self, source: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if (self.config.form == "encoder-decoder") != (source is not None):
            raise ValueError("an encoder-decoder needs a source" if source is None else "this model reads no source")
        return (None, None) if source is None else (self.encode(source), source != self.config.pad)


class Stack(nn.Module):
    """Embedding, blocks, final norm: an encoder; with ``causal`` a decoder; with ``cross`` one that sees a memory."""

    def __init__(
        self, config: ModelConfig, layers: int, alphabet_size: int, causal: bool = False, cross: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.causal = causal
        self.positions = POSITIONS[config.positions](config)
        self.embedding = Embedding(config, alphabet_size)
        self.blocks = nn.ModuleList(Block(config, cross) for _ in range(layers))
        self.final_norm = _norm(config) if config.final_norm else nn.Identity()

    def forward(
        self,
        tokens: Tensor,
        layers: tuple[int, ...] | None = None,
        segments: Tensor | None = None,
        memory: Tensor | None = None,
        source_mask: Tensor | None = None,
        cache: Cache | None = None,
        maps: Maps | None = None,
    ) -> list[Tensor]:
        """Hidden states (B, L, D) after each of ``layers``; see ``Transformer.hidden_states``."""
        last = len(self.blocks)
        layers = tuple(range(last + 1)) if layers is None else layers
        if not layers or not all(0 <= layer <= last for layer in layers):
            raise ValueError(f"layers {layers} asked for; this model has 0 (embedding) to {last}")
        if cache is not None and (not self.causal or len(cache.blocks) != last):
            raise ValueError(f"a cache is for a decoder, where no token sees those after it, and for its {last} blocks")
        before = 0 if cache is None else cache.length
        length = before + tokens.shape[1]
        if self.config.max_length is not None and length > self.config.max_length:
            raise ValueError(
                f"{length} tokens (start and end included); this model's window is {self.config.max_length}"
            )
        token_mask = tokens != self.config.pad  # (B, L)
        if not token_mask.any(dim=1).all():
            raise ValueError("a row without any visible token: its attention would be undefined")
        if cache is not None and not token_mask.all():
            raise ValueError("with a cache there is no padding: give rows of one length")
        if source_mask is not None and not source_mask.any(dim=1).all():
            raise ValueError("a source without any visible token: there is nothing to look at")

        keys = torch.arange(length, device=tokens.device)
        line, at = None, keys[before:]
        # On a CPU padding costs what it is of the tokens; on a GPU many small steps cost more.
        if tokens.device.type == "cpu" and memory is None and maps is None and not token_mask.all():
            line = Line.of(token_mask)
        if line is None:
            sight = Sight.of(at, keys, token_mask, self.causal, self.positions)
        else:
            sight, at = Sight.along(line, keys, self.causal, self.positions), line.at
            segments = None if segments is None else line.join(segments.expand_as(tokens))
            tokens = line.join(tokens)
        source_sight = Sight(None if source_mask is None or source_mask.all() else source_mask[:, None, None, :])

        x = self.embedding(tokens, token_mask, segments, self.positions.embed(at), line)  # (B, L) -> (B, L, D)
        states = {0: x}
        for i, block in enumerate(self.blocks[: max(layers)], start=1):
            kept = None if cache is None else cache.block(i)
            x = block(x, sight, memory, source_sight, kept, maps)
            if i in layers:
                states[i] = x
        if last in layers:
            states[last] = self.final_norm(states[last])
        return [states[layer] if line is None else line.padded(states[layer]) for layer in layers]


# --------------------------------------------------------------------------------------------------------- the parts


# Token dropout (Lin et al. 2023, Science 379:1123): in training 15 % of the tokens were chosen, 80 % of these masked
# and their embeddings zeroed. The others are scaled so that the sum is as large as it was then.
_TRAINED_MASK_RATIO = 0.15 * 0.8


class Embedding(nn.Module):
    """Token vectors, plus positions and segments where the config has them, then norm and dropout."""

    def __init__(self, config: ModelConfig, alphabet_size: int) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(alphabet_size, config.width)
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.norm = _norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.rate("embedding"))

    def forward(
        self,
        tokens: Tensor,
        token_mask: Tensor,
        segments: Tensor | None,
        positions: Tensor | None,
        line: Line | None = None,
    ) -> Tensor:
        x = self.tokens(tokens)  # (B, L) -> (B, L, D)
        if self.config.embedding_scale:
            x = x * math.sqrt(self.config.width)
        if self.config.token_dropout:
            masked = tokens == self.config.mask
            x = x.masked_fill(masked[..., None], 0.0)
            x = x * ((1 - _TRAINED_MASK_RATIO) / (1 - _shares(masked, token_mask, line)))[..., None].to(x.dtype)
        if positions is not None:
            x = x + positions.to(x.dtype)
        if self.segments is None and segments is not None:
            raise ValueError("this model has no segments; leave them out")
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(tokens) if segments is None else segments)
        return self.dropout(self.norm(x))


def _shares(masked: Tensor, token_mask: Tensor, line: Line | None) -> Tensor:
    """How much of each row is masked, for each of its tokens: (B, 1), or in line (T,)."""
    if line is None:
        return masked.sum(1, keepdim=True) / token_mask.sum(1, keepdim=True)
    shares = [rows.sum(1, keepdim=True) / rows.shape[1] for rows in line.rows(masked)]
    return torch.cat([share.expand(run).flatten() for share, run in zip(shares, line.runs)])


class Block(nn.Module):
    """Attention, with ``cross`` attention on a memory, feed-forward: each adds to what comes in."""

    def __init__(self, config: ModelConfig, cross: bool = False) -> None:
        super().__init__()
        self.pre = config.norm_place == "pre"
        self.attention_norm = _norm(config)
        self.attention = Attention(config)
        self.cross_norm = _norm(config) if cross else None
        self.cross_attention = Attention(config) if cross else None
        self.feed_forward_norm = _norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        memory: Tensor | None = None,
        source_sight: Sight | None = None,
        kept: BlockCache | None = None,
        maps: Maps | None = None,
    ) -> Tensor:
        kept_own, kept_cross = (None, None) if kept is None else kept
        own, cross = (None, None) if maps is None else (maps.own, maps.cross)
        x = self._add(x, self.attention_norm, lambda y: self.attention(y, y, sight, kept_own, own))
        if self.cross_attention is not None:
            x = self._add(
                x, self.cross_norm, lambda y: self.cross_attention(y, memory, source_sight, kept_cross, cross)
            )
        return self._add(x, self.feed_forward_norm, self.feed_forward)

    def _add(self, x: Tensor, norm: nn.Module, sub_layer) -> Tensor:
        """The norm stands before the sub-layer (pre), or after the sum (post, the original)."""
        if self.pre:
            return x + self.dropout(sub_layer(norm(x)))
        return norm(x + self.dropout(sub_layer(x)))


class Attention(nn.Module):
    """softmax(scale Q K^T + bias) V in H heads. ``x`` asks, ``memory`` answers; both are ``x`` in self-attention."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = config.head_size**-0.5 if config.attn_scale is None else config.attn_scale
        self.pairs = config.rotary_pairs
        self.dropout = config.rate("attention")
        inner = config.heads * config.head_size
        self.qkv = nn.Linear(config.width, 3 * inner, bias=config.bias)  # rows: queries, keys, values
        self.output = nn.Linear(inner, config.width, bias=config.bias)

    def forward(
        self, x: Tensor, memory: Tensor, sight: Sight, kept: dict | None = None, maps: list[Tensor] | None = None
    ) -> Tensor:
        parts = self._project(x, memory, kept, sight.rotation)  # (B, L, H, K), (B, S, H, K), (B, S, H, K)
        if sight.line is None:
            query, key, value = (part.transpose(1, 2) for part in parts)
            if kept is not None:
                key, value = _grow(kept, key, value, self_attention=memory is x)
            context = self._look(query, key, value, sight, maps).transpose(1, 2)  # (B, H, L, K) -> (B, L, H, K)
        else:  # (T, H, K) each
            found = [
                self._look(*(part.transpose(1, 2) for part in rows), sight.of_rows(rows[0].shape[1]))
                for rows in zip(*map(sight.line.rows, parts))
            ]
            context = torch.cat([part.transpose(1, 2).flatten(0, 1) for part in found])
        return self.output(context.flatten(-2))  # (B, L, H, K) -> (B, L, D)

    def _look(
        self, query: Tensor, key: Tensor, value: Tensor, sight: Sight, maps: list[Tensor] | None = None
    ) -> Tensor:
        """(B, H, L, K), (B, H, S, K) twice -> (B, H, L, K)."""
        dropout = self.dropout if self.training else 0.0
        if maps is None:
            mask = sight.mask if sight.bias is None else sight.bias.to(query.dtype)
            return F.scaled_dot_product_attention(
                query, key, value, mask, dropout, is_causal=sight.causal, scale=self.scale
            )
        weights = self.weights(query, key, sight)  # the same, in the open
        maps.append(weights)
        return F.dropout(weights, dropout) @ value

    def weights(self, query: Tensor, key: Tensor, sight: Sight) -> Tensor:
        """softmax(scale Q K^T + bias) over what may be seen: (B, H, L, S)."""
        scores = self.scale * query @ key.transpose(-2, -1)
        mask = sight.mask
        if sight.causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        if sight.bias is not None:
            scores = scores + sight.bias.to(scores.dtype)
        return scores.softmax(-1)

    def _project(
        self, x: Tensor, memory: Tensor, kept: dict | None, rotation: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        def heads(y: Tensor, n: int) -> Tensor:  # (B, L, n H K) -> (B, L, n, H, K)
            return y.unflatten(-1, (n, self.heads, -1))

        if memory is x:
            made = heads(self.qkv(x), 3)
            pair = made[..., :2, :, :]
            if rotation is not None:
                pair = rotate(pair, *(angles[:, None, None] for angles in rotation), self.pairs)
            return *pair.unbind(-3), made[..., 2, :, :]
        inner, bias = self.output.in_features, self.qkv.bias
        query = F.linear(x, self.qkv.weight[:inner], None if bias is None else bias[:inner])
        (query,) = heads(query, 1).unbind(-3)
        if kept:  # the memory has been looked at before, and does not change
            return query, kept["key"].transpose(1, 2), kept["value"].transpose(1, 2)
        pair = F.linear(memory, self.qkv.weight[inner:], None if bias is None else bias[inner:])
        return query, *heads(pair, 2).unbind(-3)


class FeedForward(nn.Module):
    """Out to F numbers, an activation, and back, for each token by itself."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Activated(config, config.feed_forward, config.bias)
        self.output = nn.Linear(config.feed_forward, config.width, bias=config.bias)
        self.dropout = nn.Dropout(config.rate("feed_forward"))

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(self.inner(x)))  # (B, L, D) -> (B, L, F) -> (B, L, D)


class Activated(nn.Module):
    """A linear map and ReLU or GELU; or two, one of which gates the other (SwiGLU: Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig, features: int, bias: bool) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.linear = nn.Linear(config.width, features, bias=bias)
        self.gate = nn.Linear(config.width, features, bias=bias) if config.activation == "swiglu" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.activation(self.linear(x))
        return self.activation(self.gate(x)) * self.linear(x)


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
}


class Head(nn.Module):
    """Hidden states -> logits: one output row a token; before it dense, activation and norm, or nothing."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        transform = config.head == "transform"
        self.dense = Activated(config, config.width, bias=True) if transform else nn.Identity()
        self.norm = _norm(config) if transform else nn.Identity()
        self.output = nn.Linear(config.width, config.alphabet_size, bias=config.output_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.norm(self.dense(hidden)))


class ContactHead(nn.Module):
    """Attention maps -> contacts: a logistic regression on symmetric, average-product-corrected maps.

    Rao et al. 2021 (ICLR, "Transformer protein language models are unsupervised structure learners").
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.regression = nn.Linear(config.layers * config.heads, 1)

    def forward(self, maps: Tensor, residue_mask: Tensor) -> Tensor:
        """(B, layers H, L, L) and (B, L) -> (B, L, L)."""
        both = (residue_mask[:, :, None] & residue_mask[:, None, :])[:, None]  # (B, 1, L, L)
        maps = maps * both
        maps = maps + maps.transpose(-1, -2)
        rows, columns = maps.sum(-1, keepdim=True), maps.sum(-2, keepdim=True)
        corrected = maps - rows * columns / rows.sum(-2, keepdim=True)
        return self.regression(corrected.movedim(1, -1))[..., 0].sigmoid() * both[:, 0]


def _norm(config: ModelConfig) -> nn.Module:
    """LayerNorm, or RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467), which neither centres nor shifts."""
    return (nn.LayerNorm if config.norm == "layer" else nn.RMSNorm)(config.width, eps=config.eps)


# ---------------------------------------------------------------------------------------- kept, watched, and started


BlockCache = tuple[dict, dict]  # key and value (B, H, S, K) of self- and cross-attention; {} before the first call


class Cache:
    """Keys and values of what a decoder has read, so that each new token costs one row and not all rows again."""

    def __init__(self, layers: int) -> None:
        self.blocks: list[BlockCache] = [({}, {}) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Tokens read so far."""
        own = self.blocks[0][0] if self.blocks else {}
        return own["key"].shape[2] if own else 0

    def block(self, layer: int) -> BlockCache:
        """Of block ``layer``, from 1."""
        return self.blocks[layer - 1]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, (B',) int64, in this order; a row may occur twice."""
        for kept in (part for block in self.blocks for part in block):
            kept.update({name: value[rows] for name, value in kept.items()})


def _grow(kept: dict, key: Tensor, value: Tensor, self_attention: bool) -> tuple[Tensor, Tensor]:
    if self_attention and kept:
        key, value = torch.cat((kept["key"], key), dim=2), torch.cat((kept["value"], value), dim=2)
    kept.update(key=key, value=value)
    return key, value


@dataclass
class Maps:
    """Attention weights as the blocks append them, one tensor a layer."""

    own: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)


def _chosen(maps: list[Tensor], layers: tuple[int, ...] | None) -> list[Tensor]:
    layers = range(1, len(maps) + 1) if layers is None else layers
    if not all(1 <= layer <= len(maps) for layer in layers):
        raise ValueError(f"attention in layers {tuple(layers)} asked for; this model has 1 to {len(maps)}")
    return [maps[layer - 1] for layer in layers]


def initialise(model: Transformer, generator: torch.Generator) -> None:
    """Starting weights of a new model: ``config.initialisation`` says how matrices and embeddings are drawn.

    Biases become 0; norms stay as they are made, 1.
    scaled: each layer keeps the size of what goes through it. Embeddings have std 1 and matrices 1 / sqrt(inputs);
    those that write into the residual stream are smaller by the root of how many there are (Radford et al. 2019).
    At widths of a few hundred the std of 0.02 makes attention so even at first that twice the steps are needed. A tied
    embedding is a matrix of the output too, and is made as one.
    xavier: uniform within sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010), fused matrices one by one.
    normal: std 0.02 (Devlin et al. 2019).
    """
    config = model.config
    writers = {"encoder": 2 * config.layers, "decoder": (3 if model.encoder is not None else 2) * config.depth}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            elif parameter.ndim == 2:
                if config.initialisation == "normal":
                    parameter.normal_(0.0, 0.02, generator=generator)
                elif config.initialisation == "xavier":
                    for matrix in parameter.chunk(3 if name.endswith("qkv.weight") else 1):
                        bound = math.sqrt(6 / sum(matrix.shape))
                        matrix.uniform_(-bound, bound, generator=generator)
                else:
                    tied = config.tied and parameter is model.head.output.weight
                    embeds = (".embedding." in name or ".positions." in name) and not tied
                    writes = ".blocks." in name and name.endswith(".output.weight")
                    std = 1.0 if embeds else parameter.shape[1] ** -0.5
                    std = std / math.sqrt(writers[name.split(".")[0]]) if writes else std
                    parameter.normal_(0.0, std, generator=generator)
