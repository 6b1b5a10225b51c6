"""The one training loop: masked residues, AdamW, warm-up, cosine decay, clipping, early stop, best weights kept.

Every random draw depends on the seed, on what it is for and on the number of the step or epoch alone. So the whole
state of a training is the model, the optimizer and the step, and one machine repeats a run bit by bit.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from airrformer.config import TrainSettings
from airrformer.core import alphabet
from airrformer.core.batching import token_batches
from airrformer.core.config import ModelConfig
from airrformer.core.devices import resolve_device
from airrformer.core.transformer import Transformer, initialise
from airrformer.errors import UserError
from airrformer.pretrain import masking

log = logging.getLogger(__name__)

# One number a purpose, so that no two draws share a stream.
_WEIGHTS, _EPOCH, _STEP, _VALIDATION, _HIDING = range(5)
_AMINO_ACIDS = list(alphabet.AMINO_ACID_IDS)


def draws(seed: int, purpose: int, number: int = 0) -> torch.Generator:
    """The generator of everything that is drawn for one purpose at one step or epoch."""
    state = np.random.SeedSequence((seed, purpose, number)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


@dataclass(frozen=True)
class Place:
    """Where to compute and how precisely: bf16 is autocast, the weights stay fp32."""

    device: torch.device
    bf16: bool

    @classmethod
    def choose(cls, device: str = "auto", precision: str = "auto") -> Place:
        """``auto``: CUDA if there is one, else the CPU; bf16 on CUDA, else fp32. Raises ``UserError`` for fp16."""
        if precision not in ("auto", "fp32", "bf16"):
            raise UserError(f"precision {precision!r}: pretrain knows fp32 and bf16; use one of these or auto")
        where = resolve_device(device)
        return cls(where, precision == "bf16" or (precision == "auto" and where.type == "cuda"))

    @property
    def precision(self) -> str:
        return "bf16" if self.bf16 else "fp32"

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)


@dataclass
class Training:
    """A training between two steps: all that must be kept to go on from here."""

    model: Transformer
    optimizer: torch.optim.AdamW
    step: int = 0
    best_step: int = 0
    best_loss: float = math.inf
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict] = field(default_factory=list)

    @classmethod
    def start(cls, model_config: ModelConfig, settings: TrainSettings, seed: int, place: Place) -> Training:
        with torch.random.fork_rng(devices=[]):  # torch's layers draw when they are made; those draws are not used
            model = Transformer(model_config)
        initialise(model, draws(seed, _WEIGHTS))
        model.to(place.device)
        return cls(model, _optimizer(model, settings))

    def state_dict(self) -> dict:
        own = {name: getattr(self, name) for name in ("step", "best_step", "best_loss", "best_weights", "history")}
        return {**own, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        state = dict(state)
        self.model.load_state_dict(state.pop("model"))
        self.optimizer.load_state_dict(state.pop("optimizer"))
        for name, value in state.items():
            setattr(self, name, value)


def train(
    training: Training,
    settings: TrainSettings,
    train_tokens: Sequence[list[int]],
    validation_tokens: Sequence[list[int]],
    seed: int,
    place: Place,
    train_weights: Sequence[Tensor] | None = None,
) -> None:
    """Train until the steps are done or the validation loss has not improved for so long; then take the best weights.

    ``train_tokens`` and ``validation_tokens`` are encoded sequences; ``train_weights``, one number a token, says how
    readily each is hidden in training. Raises ``UserError`` when the loss is no number.
    """
    model, started = training.model, time.monotonic()
    earlier = training.history[-1]["seconds"] if training.history else 0.0
    validation = _validation_batches(validation_tokens, settings, seed, place)
    total, since = torch.zeros((), device=place.device), 0
    # Dropout draws from torch's own generator, which is left as it was found.
    with torch.random.fork_rng(devices=[place.device] if place.device.type == "cuda" else []):
        for rows in _endless_batches(train_tokens, settings, seed, training.step):
            generator = draws(seed, _STEP, training.step)
            torch.manual_seed(generator.initial_seed())
            tokens = masking.pad([train_tokens[row] for row in rows])
            weights = pad_sequence([train_weights[row] for row in rows], True, 1.0) if train_weights else None
            masked = masking.mask_residues(tokens, settings.mask_fraction, generator, weights)
            batch = _to_device(tokens, *masked, place)
            rate = learning_rate(training.step, settings)
            total += _step(training, batch, rate, settings, place)
            since += 1
            training.step += 1
            last = training.step == settings.steps
            if last or training.step % settings.validate_every == 0:
                loss, accuracy = _validate(model, validation, place)
                training.history.append(
                    {
                        "step": training.step,
                        "train_loss": total.item() / since,
                        "validation_loss": loss,
                        "validation_accuracy": accuracy,
                        "learning_rate": rate,
                        "seconds": round(earlier + time.monotonic() - started, 2),
                    }
                )
                total.zero_()
                since = 0
                _keep_best(training, settings)
                if last or _validations_since_best(training) >= settings.patience:
                    break
    model.load_state_dict(training.best_weights)
    model.eval()


def learning_rate(step: int, settings: TrainSettings) -> float:
    """Of step ``step`` (from 0): rises in a line over the warm-up, then falls to 0 along half a cosine."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def guess_hidden(
    model: Transformer, encoded: Sequence[list[int]], settings: TrainSettings, seed: int, place: Place
) -> list[np.ndarray]:
    """For each sequence the probabilities (residues, 20) of every letter where it was hidden.

    Every residue is hidden once, ``mask_fraction`` of them at a time, as ``<mask>`` always. Rows of residues that are
    none of the twenty are 0.
    """
    rounds = max(1, round(1 / settings.mask_fraction))
    generator = draws(seed, _HIDING)
    guesses: list[np.ndarray] = [np.empty(0)] * len(encoded)
    model.eval()
    with torch.inference_mode(), place.autocast():
        for rows in token_batches([len(row) for row in encoded], settings.batch_tokens):
            tokens = masking.pad([encoded[row] for row in rows])
            turn = masking.rounds_of(tokens, rounds, generator)
            found = torch.zeros(*tokens.shape, len(_AMINO_ACIDS))
            for i in range(rounds):
                chosen = turn == i
                hidden = model(tokens.masked_fill(chosen, alphabet.MASK).to(place.device))[chosen.to(place.device)]
                found[chosen] = model.logits(hidden)[:, _AMINO_ACIDS].float().softmax(-1).cpu()
            for row, values in zip(rows, found.numpy()):
                guesses[row] = values[1 : len(encoded[row]) - 1]  # without start and end
    return guesses


# ------------------------------------------------------------------------------------------------ inside the loop


def _step(training: Training, batch: tuple[Tensor, ...], rate: float, settings: TrainSettings, place: Place) -> Tensor:
    """One step of the optimizer; the loss before it, detached, on the device."""
    training.model.train()
    for group in training.optimizer.param_groups:
        group["lr"] = rate
    loss = _loss(training.model, batch, place)[0]
    loss.backward()
    nn.utils.clip_grad_norm_(training.model.parameters(), settings.clip)
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def _loss(model: Transformer, batch: tuple[Tensor, ...], place: Place) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy at the chosen residues, and how many of them are guessed right."""
    hidden_tokens, chosen, targets = batch
    with place.autocast():
        # (B, L, D) -> (chosen, D) -> (chosen, V): the head runs where there is something to guess, nowhere else
        logits = model.logits(model(hidden_tokens)[chosen]).float()
    return F.cross_entropy(logits, targets), (logits.argmax(-1) == targets).sum()


def _to_device(tokens: Tensor, hidden: Tensor, chosen: Tensor, place: Place) -> tuple[Tensor, ...]:
    return tuple(part.to(place.device) for part in (hidden, chosen, tokens[chosen]))


def _validation_batches(
    encoded: Sequence[list[int]], settings: TrainSettings, seed: int, place: Place
) -> list[tuple[Tensor, ...]]:
    """The held-out sequences with the residues that are hidden in every validation, drawn once."""
    generator = draws(seed, _VALIDATION)
    batches = []
    for rows in token_batches([len(row) for row in encoded], settings.batch_tokens):
        tokens = masking.pad([encoded[row] for row in rows])
        batches.append(_to_device(tokens, *masking.mask_residues(tokens, settings.mask_fraction, generator), place))
    return batches


def _validate(model: Transformer, batches: list[tuple[Tensor, ...]], place: Place) -> tuple[float, float]:
    model.eval()
    loss_sum, right, n = 0.0, 0, 0
    with torch.inference_mode():
        for batch in batches:
            loss, hits = _loss(model, batch, place)
            loss_sum += loss.item() * len(batch[-1])
            right += int(hits)
            n += len(batch[-1])
    return loss_sum / n, right / n


def _keep_best(training: Training, settings: TrainSettings) -> None:
    row = training.history[-1]
    if not (math.isfinite(row["train_loss"]) and math.isfinite(row["validation_loss"])):
        raise UserError(
            f"training diverged before step {training.step}: the loss is no number; "
            f"lower train.learning_rate (now {settings.learning_rate:g}) or lengthen train.warmup_steps"
        )
    if row["validation_loss"] < training.best_loss:
        training.best_loss, training.best_step = row["validation_loss"], training.step
        training.best_weights = {name: value.detach().clone() for name, value in training.model.state_dict().items()}
    log.info(
        "step %d of %d: training loss %.3f, validation loss %.3f, %.1f %% guessed right, %.0f s",
        *(training.step, settings.steps, row["train_loss"], row["validation_loss"]),
        *(100 * row["validation_accuracy"], row["seconds"]),
    )


def _validations_since_best(training: Training) -> int:
    return sum(row["step"] > training.best_step for row in training.history)


def _endless_batches(
    encoded: Sequence[list[int]], settings: TrainSettings, seed: int, first: int
) -> Iterator[list[int]]:
    """Rows of the training set, epoch after epoch, from batch ``first`` on."""
    batches = (batch for epoch in count() for batch in _epoch(encoded, settings, draws(seed, _EPOCH, epoch)))
    return islice(batches, first, None)


def _epoch(encoded: Sequence[list[int]], settings: TrainSettings, generator: torch.Generator) -> list[list[int]]:
    """Every row once, in batches of similar lengths in random order.

    Lengths are stretched at random by up to a tenth before they are sorted: batches differ from epoch to epoch and
    hold chains of several kinds, while little of them is padding.
    """
    lengths = torch.tensor([len(row) for row in encoded])
    order = torch.randperm(len(lengths), generator=generator)
    stretched = lengths[order] * (1 + 0.1 * torch.rand(len(lengths), generator=generator))
    batches = token_batches(stretched.ceil().int().tolist(), settings.batch_tokens)
    return [[int(order[i]) for i in batches[b]] for b in torch.randperm(len(batches), generator=generator).tolist()]


def _optimizer(model: Transformer, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW; matrices decay, norms and biases do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=parameters[0].device.type != "mps"
    )
