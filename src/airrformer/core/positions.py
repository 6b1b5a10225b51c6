"""Where tokens stand and whom they see: the position schemes, and ``Sight``, which joins them with the masks.

Letters as in transformer.py: B batch, L queries, S keys, H heads, D model width, K head width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from airrformer.core.batching import Line
from airrformer.core.config import ModelConfig


class Positions(nn.Module):
    """No order at all. A scheme overrides one of the three: what is added, how heads turn, what scores gain."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def embed(self, at: Tensor) -> Tensor | None:
        """Vectors (L, D) that the embedding adds at positions ``at`` (L,)."""
        return None

    def turn(self, at: Tensor) -> tuple[Tensor, Tensor] | None:
        """Cosine and sine (L, K / 2) of the angles by which queries and keys turn, fp32 whatever the precision."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What is added to the scores (H, L, S) of positions ``queries`` (L,) against ``keys`` (S,)."""
        return None


class Learned(Positions):
    """A row of a table for each position, and none beyond ``max_length``."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.max_length, config.width)

    def embed(self, at: Tensor) -> Tensor:
        return self.table(at)


class Sinusoidal(Positions):
    """The original: sine at even, cosine at odd columns. PE(p + k) is PE(p) turned pair by pair, whatever p is."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.width = config.width

    def embed(self, at: Tensor) -> Tensor:
        return sinusoidal(at, self.width)


class Rotary(Positions):
    """Each pair of a head's numbers turns with its position, so that scores see distances alone.

    Su et al. 2021 (arXiv:2104.09864). To read ``rotary_factor`` times further than was trained, positions are squeezed
    (interpolation: Chen et al. 2023, arXiv:2306.15595), the base grows (NTK: bloc97 2023), or only the slow pairs are
    squeezed (YaRN: Peng et al. 2023, arXiv:2309.00071). ``inv_freq`` (K / 2) is a buffer: foreign checkpoints bring
    their own.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        width, base, factor, scaling = config.head_size, config.rotary_base, config.rotary_factor, config.rotary_scaling
        if scaling == "ntk":
            base *= factor ** (width / (width - 2))
        inv_freq = base ** (-torch.arange(0, width, 2).float() / width)
        self.amplitude = 1.0
        if scaling == "interpolation":
            inv_freq = inv_freq / factor
        elif scaling == "yarn":
            # The pair that turns r times over the trained length; pairs with r above 32 stay, below 1 are squeezed.
            pair = [width * math.log(config.rotary_length / (r * 2 * math.pi)) / (2 * math.log(base)) for r in (32, 1)]
            low, high = max(math.floor(pair[0]), 0), min(math.ceil(pair[1]), width - 1)
            squeezed = ((torch.arange(width // 2) - low) / max(high - low, 1e-3)).clamp(0, 1)
            inv_freq = inv_freq * (1 - squeezed) + inv_freq / factor * squeezed
            self.amplitude = 0.1 * math.log(factor) + 1.0
        self.register_buffer("inv_freq", inv_freq)

    def turn(self, at: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.outer(at.float(), self.inv_freq.float())
        return angles.cos() * self.amplitude, angles.sin() * self.amplitude


class Alibi(Positions):
    """Scores fall in a line with the distance, in each head at its own slope 2^(-8 k / H), k from 1.

    Press et al. 2021 (arXiv:2108.12409).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.heads = config.heads

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.heads + 1, device=keys.device) / self.heads)
        return -slopes[:, None, None] * (queries[:, None] - keys[None, :]).abs()


POSITIONS: dict[str, type[Positions]] = {
    "none": Positions,
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
    "alibi": Alibi,
}


def sinusoidal(at: Tensor, width: int) -> Tensor:
    """Rows (L, D) of the original position table at positions ``at`` (L,), fp32, base 10,000."""
    frequencies = torch.exp(torch.arange(0, width, 2, device=at.device) * (-math.log(1e4) / width))
    angles = torch.outer(at.float(), frequencies)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor, pairs: str = "half") -> Tensor:
    """Turn the pairs of ``x`` (..., K) by angles (..., K / 2): (i, i + K / 2), or interleaved (2 i, 2 i + 1).

    In fp32 pairs are complex numbers, which is three times faster, and come out as neighbours: scores do not see the
    order of a head's numbers, where that of queries and keys is the same.
    """
    if x.dtype == torch.float32:
        if pairs == "half":
            numbers = torch.complex(*x.chunk(2, dim=-1))
        else:
            numbers = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(numbers * torch.complex(cosine, sine)).flatten(-2)
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    if pairs == "half":
        cosine, sine = torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1)  # (L, K)
        partner = torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)
    else:
        cosine, sine = cosine.repeat_interleave(2, dim=-1), torch.stack((-sine, sine), dim=-1).flatten(-2)
        partner = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return x * cosine + partner * sine  # whole rows at once: pieces of half a head are slow


class Sight(NamedTuple):
    """How the tokens of one pass see each other; made once, used by every block.

    ``rotation``: cosine and sine (L, K / 2), or (T, K / 2) of tokens in ``line``, of which none sees another row's.
    """

    mask: Tensor | None = None  # broadcasts to (B, H, L, S): True = may be seen
    causal: bool = False  # instead of a mask: each token sees itself and those before it
    bias: Tensor | None = None  # instead of both: what the scores (B, H, L, S) gain, -inf where nothing may be seen
    rotation: tuple[Tensor, Tensor] | None = None
    line: Line | None = None

    @classmethod
    def of(cls, queries: Tensor, keys: Tensor, token_mask: Tensor, causal: bool, positions: Positions) -> Sight:
        """From positions ``queries`` (L,) and ``keys`` (S,), and which of the tokens (B, L) are none but padding."""
        bias, rotation = positions.bias(queries, keys), positions.turn(queries)
        if len(queries) < len(keys):  # after a cache: no padding, and what is still to come is not among the keys
            token_mask = token_mask.new_ones(len(token_mask), len(keys))
        if token_mask.all() and bias is None and (len(queries) == len(keys) or len(queries) == 1):
            return cls(causal=causal and len(queries) > 1, rotation=rotation)
        mask = token_mask[:, None, None, :]  # (B, 1, 1, S)
        if causal:
            behind = queries[:, None] >= keys[None, :]
            # Padding sees itself, if nothing else: a softmax over nothing would be no number.
            mask = (mask & behind) | (queries[:, None] == keys[None, :])
        if bias is not None:
            return cls(bias=torch.where(mask, bias, float("-inf")), rotation=rotation)
        return cls(mask, rotation=rotation)

    @classmethod
    def along(cls, line: Line, keys: Tensor, causal: bool, positions: Positions) -> Sight:
        """Of tokens in ``line``; ``keys``: the positions of the longest row."""
        turn = positions.turn(keys)
        rotation = None if turn is None else (turn[0][line.at], turn[1][line.at])
        bias = positions.bias(keys, keys)
        if bias is not None and causal:
            bias = bias.masked_fill(keys[:, None] < keys[None, :], float("-inf"))
        return cls(causal=causal and bias is None, bias=bias, rotation=rotation, line=line)

    def of_rows(self, length: int) -> Sight:
        """Of the rows in line that have this length, by themselves."""
        bias = None if self.bias is None else self.bias[None, :, :length, :length]  # of 4: else attention is slow
        return Sight(causal=self.causal and length > 1, bias=bias)
