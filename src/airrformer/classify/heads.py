"""Heads on residue vectors: residues -> one vector a chain -> log-odds, and how the encoder below is trained with them.

Letters in shape comments: B rows, L residues (or tokens), D width of the encoder, W of what a head makes of a chain.
Masks: True is a residue that the head sees. What it does not see is zero and has no weight, so a row's log-odds do not
depend on how far it was padded.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from airrformer.classify.training import picked
from airrformer.core.transformer import Transformer
from airrformer.errors import UserError

ATTENTION_HEADS = 4


class Part(NamedTuple):
    """One chain of some receptors: its distinct forms, and which of them each receptor has.

    values: residue vectors (U, L, D), or where the encoder is trained too tokens (U, L). mask: bool (U, L).
    """

    values: Tensor
    mask: Tensor
    of: Tensor  # int64 (B,)


# ------------------------------------------------------------------------------------------------------- the heads


class AttentionHead(nn.Module):
    """Four weighted means over the residues, the weights learned from the residues themselves.

    A mean over all of them is the special case of even weights (Ilse et al. 2018, arXiv:1802.04712, without gates).
    """

    def __init__(self, width: int, hidden: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.scores = nn.Linear(width, ATTENTION_HEADS)
        self.values = nn.Linear(width, hidden)
        self.width = hidden

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, L, D), (B, L) -> (B, W)."""
        weights = self.scores(x).masked_fill(~mask[..., None], -torch.inf).softmax(1)  # (B, L, 4)
        values = self.values(x).unflatten(-1, (ATTENTION_HEADS, -1))  # (B, L, 4, W / 4)
        return torch.einsum("blh,blhw->bhw", weights, values).flatten(1)


class LightAttentionHead(nn.Module):
    """Light attention (Stärk et al. 2021, Bioinform Adv vbab035): a weighted mean and a maximum of convolved residues.

    Each channel has its own weights, a second convolution's. There are ``hidden`` channels, not as many as the encoder
    has.
    """

    def __init__(self, width: int, hidden: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.values = nn.Conv1d(width, hidden, kernel, padding="same")
        self.scores = nn.Conv1d(width, hidden, kernel, padding="same")
        self.dropout = nn.Dropout(dropout)
        self.width = 2 * hidden

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x, mask = x.transpose(1, 2), mask[:, None]  # (B, D, L), (B, 1, L)
        values = self.dropout(self.values(x))  # (B, W / 2, L)
        weights = self.scores(x).masked_fill(~mask, -torch.inf).softmax(2)
        return torch.cat([(weights * values).sum(2), values.masked_fill(~mask, -torch.inf).amax(2)], dim=1)


class CnnHead(nn.Module):
    """Two convolutions over the residues, then the mean and the maximum of each channel."""

    def __init__(self, width: int, hidden: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv1d(width, hidden, kernel, padding="same")
        self.second = nn.Conv1d(hidden, hidden, kernel, padding="same")
        self.dropout = nn.Dropout(dropout)
        self.width = 2 * hidden

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x, mask = x.transpose(1, 2), mask[:, None]
        x = self.dropout(self.first(x).relu()).masked_fill(~mask, 0.0)
        x = self.second(x).relu()  # (B, W / 2, L)
        mean = x.masked_fill(~mask, 0.0).sum(2) / mask.sum(2)
        return torch.cat([mean, x.masked_fill(~mask, -torch.inf).amax(2)], dim=1)


HEADS = {"attention": AttentionHead, "light_attention": LightAttentionHead, "cnn": CnnHead}


class ResidueNetwork(nn.Module):
    """Residues in units of their spread -> a head a chain -> side by side -> one hidden layer -> log-odds.

    encoder: trained with the heads; without one, residue vectors come in. layer: what is read of it, from 0.
    """

    def __init__(
        self,
        width: int,
        chains: int,
        outputs: int,
        head: str,
        hidden: int,
        kernel: int,
        dropout: float,
        encoder: Transformer | None = None,
        layer: int = 0,
    ) -> None:
        super().__init__()
        self.encoder, self.layer = encoder, layer
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.dropout = nn.Dropout(dropout)
        self.heads = nn.ModuleList(HEADS[head](width, hidden, kernel, dropout) for _ in range(chains))
        joined = chains * self.heads[0].width
        self.top = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(joined, hidden), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(hidden, outputs)),
        )

    def forward(self, parts: list[Part]) -> Tensor:
        """(B, K) log-odds of receptors of so many chains."""
        return self.top(
            torch.cat([picked(head(*self.residues(part)), part.of) for head, part in zip(self.heads, parts)], 1)
        )

    def residues(self, part: Part) -> tuple[Tensor, Tensor]:
        """Scaled residue vectors (U, L, D), zero where the mask (U, L) is False, and the mask."""
        x = (self.hidden(part) - self.shift) / self.spread
        return self.dropout(x).masked_fill(~part.mask[..., None], 0.0), part.mask

    def hidden(self, part: Part) -> Tensor:
        """Residue vectors as the encoder gives them, float32 (U, L, D)."""
        if self.encoder is None:
            return part.values.float()
        return self.encoder.hidden_states(part.values, (self.layer,))[0].float()

    def learn_scale(self, parts: Iterable[Part]) -> None:
        """Shift and spread of each number over the residues of ``parts``."""
        with torch.inference_mode():
            seen = torch.cat([self.hidden(part)[part.mask] for part in parts])  # (residues, D)
            spread = seen.std(0, correction=0)
            self.shift.copy_(seen.mean(0))
            self.spread.copy_(torch.where(spread > 1e-6, spread, 1.0))

    def own_state(self) -> dict[str, np.ndarray]:
        """The heads' weights, all that is not the encoder's: name -> float32 array."""
        return {
            name: value.cpu().numpy() for name, value in self.state_dict().items() if not name.startswith("encoder.")
        }

    def load_own_state(self, weights: Mapping[str, np.ndarray]) -> None:
        state = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
        found = self.load_state_dict(state, strict=False)
        left_out = [name for name in found.missing_keys if not name.startswith("encoder.")]
        if left_out or found.unexpected_keys:
            raise ValueError(f"weights of another network: {', '.join([*left_out, *found.unexpected_keys][:3])}")


# --------------------------------------------------------------------------------------- training the encoder below


def trainable(encoder: Transformer, fine_tune: str, layer: int, rank: int) -> Transformer:
    """A copy of ``encoder`` of which that is trained which ``fine_tune`` says, of all that ``layer`` stands on.

    ``all``: every weight. ``lora``: a change of low rank of every matrix of the blocks (Hu et al. 2021,
    arXiv:2106.09685), by the library peft; the weights themselves stay.
    """
    encoder = copy.deepcopy(encoder).requires_grad_(False)
    if fine_tune == "all":
        for name, parameter in encoder.named_parameters():
            place = depth(name, layer)
            if place is not None and place <= layer:
                parameter.requires_grad_(layer == encoder.config.layers or "final_norm" not in name)
        return encoder
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UserError(
            "fine_tune: lora needs the package peft, which is not installed; run: pip install peft (or: pip install "
            "'airrformer[lora]')"
        ) from None
    blocks = "|".join(map(str, range(layer)))
    matrices = r"attention\.(qkv|output)|feed_forward\.(inner\.(linear|gate)|output)"
    settings = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=rf"encoder\.blocks\.({blocks})\.({matrices})", bias="none"
    )
    return inject_adapter_in_model(settings, encoder)


def depth(name: str, layer: int) -> int | None:
    """How deep a parameter of a ``Transformer`` lies: 0 in the embedding, i in block i, ``layer`` after it.

    ``None`` for what no hidden state stands on.
    """
    if not name.startswith("encoder."):
        return None
    block = re.match(r"encoder\.blocks\.(\d+)\.", name)
    if block:
        return int(block.group(1)) + 1
    return layer if name.startswith("encoder.final_norm") else 0


def learning_rates(network: ResidueNetwork, head: float, encoder: float, decay: float) -> list[dict]:
    """Parameter groups: the heads' rate, and the encoder's, times ``decay`` for each block further from the heads."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            below = name.removeprefix("encoder.")
            rate = head if below == name else encoder * decay ** (network.layer - depth(below, network.layer))
            groups.setdefault(rate, []).append(parameter)
    return [{"params": parameters, "lr": rate} for rate, parameters in groups.items()]


def changes(encoder: Transformer) -> dict[str, np.ndarray]:
    """What training made of an encoder, name -> float32 array: with adapters these alone, else all its weights."""
    adapted = {name: module for name, module in encoder.named_modules() if hasattr(module, "lora_A")}
    if not adapted:
        return {f"encoder.{name}": value.cpu().numpy() for name, value in encoder.state_dict().items()}
    found = {}
    for name, module in adapted.items():
        down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
        found[f"adapter.{name}.down"] = down.detach().cpu().numpy()  # (rank, inputs)
        found[f"adapter.{name}.up"] = (module.scaling["default"] * up).detach().cpu().numpy()  # (outputs, rank)
    return found


def changed(encoder: Transformer, weights: Mapping[str, np.ndarray]) -> Transformer:
    """A copy of ``encoder`` with the ``changes`` among ``weights``; adapters are added to the matrices."""
    encoder = copy.deepcopy(encoder)
    state = {
        name.removeprefix("encoder."): torch.from_numpy(np.array(value))
        for name, value in weights.items()
        if name.startswith("encoder.")
    }
    if state:
        encoder.load_state_dict(state)
    for name, down in weights.items():
        if name.startswith("adapter.") and name.endswith(".down"):
            place = name.removeprefix("adapter.").removesuffix(".down")
            up = weights[f"adapter.{place}.up"]
            weight = encoder.get_submodule(place).weight
            with torch.no_grad():
                weight += torch.from_numpy(up @ np.asarray(down)).to(weight.device)
    return encoder.eval().requires_grad_(False)
