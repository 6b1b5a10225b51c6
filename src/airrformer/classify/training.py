"""The one training loop of the networks that classify: log loss of what is known, early stopping, the best epoch kept.

Y is (n, K) of 1, 0 and -1 (unknown: left out of the loss).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as log_loss

from airrformer.errors import UserError


def train(
    build: Callable[[], nn.Module],
    rates: Callable[[nn.Module], list[dict]],
    read: Callable[[Tensor], object],
    Y: np.ndarray,
    held: np.ndarray,
    *,
    batch_size: int,
    weight_decay: float,
    max_epochs: int,
    patience: int,
    seed: int,
    least_steps: int = 1,
    clip: float | None = None,
    at_once: int = 4096,
    device: torch.device | str = "cpu",
) -> tuple[nn.Module, int]:
    """The network with the weights of its best epoch, in eval mode, and the number of that epoch, from 1.

    Parameters
    ----------
    build: makes the network; drawn from the seed, as are dropout and the order of the rows.
    rates: its parameters in groups, each with its learning rate ``lr``; AdamW's falls to a tenth along a cosine.
    read: row numbers, int64 (B,) -> what the network is called with to give logits (B, K).
    held: bool (n,), the rows that are not learned from. Training stops when the log loss on them has not improved for
        ``patience`` epochs.
    least_steps: of an epoch; where the rows make fewer, it goes through them several times.
    clip: largest norm of the gradient. at_once: rows held that are read together.

    Raises ``UserError`` where the loss is no number from the first epoch on.
    """
    device = torch.device(device)
    targets = torch.from_numpy(Y.astype(np.float32)).to(device)
    learned, stop = (torch.from_numpy(np.flatnonzero(rows)) for rows in (~held, held))
    rounds = max(1, -(-least_steps * batch_size // max(1, len(learned))))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        network = build().to(device)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW(rates(network), weight_decay=weight_decay)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda epoch: 0.55 + 0.45 * math.cos(math.pi * epoch / max_epochs)
        )
        best, best_loss, best_epoch = [], np.inf, 0
        for epoch in range(1, max_epochs + 1):
            network.train()
            for rows in torch.cat([learned[torch.randperm(len(learned))] for _ in range(rounds)]).split(batch_size):
                optimiser.zero_grad()
                _loss(network(read(rows)), targets[rows]).backward()
                if clip is not None:
                    nn.utils.clip_grad_norm_(trained, clip)
                optimiser.step()
            schedule.step()
            network.eval()
            with torch.inference_mode():
                logits = torch.cat([network(read(rows)) for rows in stop.split(at_once)])
                loss = float(_loss(logits, targets[stop]))
            if loss < best_loss:
                best = [parameter.detach().cpu().clone() for parameter in trained]
                best_loss, best_epoch = loss, epoch
            elif epoch - best_epoch >= patience:
                break
    if not best:
        raise UserError("the network's loss is no number from the first epoch on: lower learning_rate")
    with torch.no_grad():
        for parameter, value in zip(trained, best):
            parameter.copy_(value)
    return network, best_epoch


def picked(values: Tensor, rows: Tensor) -> Tensor:
    """``values[rows]``, of which rows may come several times, with a gradient that is the same on every run.

    That of ``values[rows]`` is not: on a CPU its threads add to a row in whatever order they come to it.
    """
    return values.index_select(0, rows)


def _loss(logits: Tensor, target: Tensor) -> Tensor:
    known = target >= 0
    return log_loss(logits[known], target[known]) if known.any() else logits.sum() * 0
