"""The one Transformer: embedding, attention, feed-forward, block, stack. No model names, no files, no losses.

``ModelConfig`` decides everything. Letters in shape comments: B batch, L length in tokens, H heads, D model width,
K head width, F feed-forward width, V alphabet. Masks have one sense: True = may be seen.

Vaswani et al. 2017 (arXiv:1706.03762) is the original; Su et al. 2021 (arXiv:2104.09864) the rotary positions;
Lin et al. 2023 (Science 379:1123) ESM-2's token dropout; Devlin et al. 2019 (arXiv:1810.04805) the masked head.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from airrformer.core import alphabet
from airrformer.core.config import ModelConfig

# ESM-2 was trained with 15 % of the tokens chosen, 80 % of which were masked, their embeddings zeroed.
_TRAINED_MASK_RATIO = 0.15 * 0.8


class Transformer(nn.Module):
    """Token ids -> hidden states -> logits over the alphabet.

    ``forward`` gives the last hidden states; ``hidden_states`` every layer's; ``logits`` goes on from the last ones.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.rotary = Rotary(config) if config.positions == "rotary" else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = _norm(config) if config.final_norm else nn.Identity()
        self.head = MaskedHead(config)
        if config.tied:
            self.head.output.weight = self.embedding.tokens.weight

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """Last hidden states (B, L, D) of ``tokens`` (B, L), int64. Padding rows hold no meaning."""
        return self.hidden_states(tokens, layers=(self.config.layers,), segments=segments)[0]

    def hidden_states(
        self, tokens: Tensor, layers: tuple[int, ...] | None = None, segments: Tensor | None = None
    ) -> list[Tensor]:
        """Hidden states (B, L, D) after each of ``layers``, in that order; default: all, 0 (the embedding) to the last.

        The last one is taken after the final norm, as fair-esm does. Layers above the highest asked for are not
        computed. Raises ``ValueError`` for a row without a visible token, for too long an input and for a layer that
        does not exist.
        """
        config = self.config
        layers = tuple(range(config.layers + 1)) if layers is None else layers
        if not all(0 <= layer <= config.layers for layer in layers):
            raise ValueError(f"layers {layers} asked for; this model has 0 (embedding) to {config.layers}")
        if config.max_length is not None and tokens.shape[1] > config.max_length:
            raise ValueError(
                f"{tokens.shape[1]} tokens (start and end included); this model's window is {config.max_length}"
            )
        token_mask = tokens != alphabet.PAD  # (B, L)
        if not token_mask.any(dim=1).all():
            raise ValueError("a row without any visible token: its attention would be undefined")
        attention_mask = None if token_mask.all() else token_mask[:, None, None, :]  # (B, 1, 1, L)
        rotation = self.rotary(tokens.shape[1]) if self.rotary is not None else None

        x = self.embedding(tokens, token_mask, segments)  # (B, L) -> (B, L, D)
        states = {0: x}
        for i, block in enumerate(self.blocks[: max(layers)], start=1):
            x = block(x, attention_mask, rotation)
            if i in layers:
                states[i] = x
        if config.layers in layers:
            states[config.layers] = self.final_norm(states[config.layers])
        return [states[layer] for layer in layers]

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the alphabet (..., V) of last hidden states (..., D)."""
        return self.head(hidden)


class Embedding(nn.Module):
    """Token vectors, plus positions and segments where the config has them, then norm and dropout."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.alphabet_size, config.width)
        self.positions = nn.Embedding(config.max_length, config.width) if config.positions == "learned" else None
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.norm = _norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor, token_mask: Tensor, segments: Tensor | None) -> Tensor:
        x = self.tokens(tokens)  # (B, L) -> (B, L, D)
        if self.config.token_dropout:
            masked = tokens == alphabet.MASK
            observed = masked.sum(1) / token_mask.sum(1)  # (B,)
            x = x.masked_fill(masked[..., None], 0.0)
            x = x * ((1 - _TRAINED_MASK_RATIO) / (1 - observed))[:, None, None].to(x.dtype)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        elif self.config.positions == "sinusoidal":
            x = x + sinusoidal(tokens.shape[1], self.config.width).to(x)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(tokens) if segments is None else segments)
        return self.dropout(self.norm(x))


class Block(nn.Module):
    """Attention and feed-forward, each with a residual; the norm before the sub-layer (pre) or after the sum (post)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm_place == "pre"
        self.attention_norm = _norm(config)
        self.attention = SelfAttention(config)
        self.feed_forward_norm = _norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        if self.pre:
            x = x + self.dropout(self.attention(self.attention_norm(x), mask, rotation))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self.dropout(self.attention(x, mask, rotation)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class SelfAttention(nn.Module):
    """softmax(Q K^T / sqrt(K)) V in H heads; ``mask`` (B, 1, 1, L) True = may be seen."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.output = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        # (B, L, D) -> (B, L, 3 D) -> 3 x (B, H, L, K)
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if rotation is not None:
            query, key = rotate(query, *rotation), rotate(key, *rotation)
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.dropout if self.training else 0.0
        )
        return self.output(context.transpose(1, 2).flatten(2))  # (B, H, L, K) -> (B, L, D)


class FeedForward(nn.Module):
    """Two linear maps with ReLU or GELU between, or SwiGLU's three (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = {"gelu": F.gelu, "relu": F.relu, "swiglu": F.silu}[config.activation]
        gated = config.activation == "swiglu"
        self.inner = nn.Linear(config.width, config.feed_forward, bias=config.bias)
        self.gate = nn.Linear(config.width, config.feed_forward, bias=config.bias) if gated else None
        self.output = nn.Linear(config.feed_forward, config.width, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner(x)  # (B, L, D) -> (B, L, F)
        inner = self.activation(inner) if self.gate is None else self.activation(self.gate(x)) * inner
        return self.output(self.dropout(inner))


class MaskedHead(nn.Module):
    """Hidden states -> logits: dense, GELU, norm, then one output row a token (BERT's and RoBERTa's form)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.norm = _norm(config)
        self.output = nn.Linear(config.width, config.alphabet_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.output(self.norm(F.gelu(self.dense(hidden))))


class Rotary(nn.Module):
    """Angles of the rotary positions. ``inv_freq`` (K / 2) is a buffer: foreign checkpoints bring their own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        head_width = config.width // config.heads
        self.register_buffer("inv_freq", config.rotary_base ** (-torch.arange(0, head_width, 2).float() / head_width))

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine (L, K) for positions 0 to L - 1, in fp32 whatever the model's precision."""
        positions = torch.arange(length, device=self.inv_freq.device, dtype=torch.float32)
        angles = torch.outer(positions, self.inv_freq.float())  # (L, K / 2)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn each pair (i, i + K / 2) of ``x`` (B, H, L, K) by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    turned = x * cosine.to(x.dtype) + torch.cat((-second, first), dim=-1) * sine.to(x.dtype)
    return turned


def sinusoidal(length: int, width: int) -> Tensor:
    """The original position table (L, D): sine at even and cosine at odd columns, base 10,000."""
    angles = torch.outer(torch.arange(length).float(), torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width)))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]


def initialise(model: Transformer, generator: torch.Generator) -> None:
    """Starting weights: each layer keeps the size of what goes through it; biases 0, norms 1.

    Embeddings have std 1 and matrices 1 / sqrt(inputs), those that write into the residual stream 1 / sqrt(2 layers)
    of it (Radford et al. 2019). At widths of a few hundred BERT's std of 0.02 makes attention so even at first that
    twice the steps are needed. A tied embedding is a matrix of the output too, and is made as one.
    """
    config = model.config
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            elif parameter.ndim == 2:
                embeds = name.startswith("embedding.") and not (config.tied and parameter is model.head.output.weight)
                writes = name.startswith("blocks.") and name.endswith(".output.weight")
                std = 1.0 if embeds else parameter.shape[1] ** -0.5
                parameter.normal_(0.0, std / math.sqrt(2 * config.layers) if writes else std, generator=generator)


def _norm(config: ModelConfig) -> nn.Module:
    return (nn.LayerNorm if config.norm == "layer" else nn.RMSNorm)(config.width, eps=config.eps)
