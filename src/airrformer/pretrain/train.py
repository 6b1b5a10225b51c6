"""The one training loop, whatever the objective: AdamW, warm-up, decay, clipping, early stop, best weights kept.

Every random draw depends on the seed, on what it is for and on the number of the step or epoch alone. So the whole
state of a training is the model, the optimizer and the step, and one machine repeats a run bit by bit.
"""

from __future__ import annotations

import copy
import logging
import math
import statistics
import time
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn

from airrformer.config import TrainSettings
from airrformer.core.config import ModelConfig
from airrformer.core.devices import resolve_device
from airrformer.core.transformer import Transformer, initialise
from airrformer.errors import UserError
from airrformer.pretrain.objectives import STEP, WEIGHTS, Batch, Loss, Objective, draws

log = logging.getLogger(__name__)


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

    def move(self, batch: Batch) -> Batch:
        return tuple(part.to(self.device) for part in batch)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)


@dataclass
class Training:
    """A training between two steps: all that must be kept to go on from here."""

    model: Transformer
    optimizer: torch.optim.AdamW
    averaged: Transformer | None = None  # its exponential average, where one is kept
    step: int = 0
    best_step: int = 0
    best_loss: float = math.inf
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    recent_weights: list[dict[str, Tensor]] = field(default_factory=list)  # of the last validations, to be averaged
    history: list[dict] = field(default_factory=list)

    @classmethod
    def start(cls, model_config: ModelConfig, settings: TrainSettings, seed: int, place: Place) -> Training:
        model = untrained(model_config, seed)
        model.to(place.device)
        averaged = copy.deepcopy(model).requires_grad_(False) if settings.ema else None
        return cls(model, _optimizer(model, settings), averaged)

    @property
    def judged(self) -> Transformer:
        """The model that is validated and kept."""
        return self.model if self.averaged is None else self.averaged

    def state_dict(self) -> dict:
        names = ("step", "best_step", "best_loss", "best_weights", "recent_weights", "history")
        own = {name: getattr(self, name) for name in names}
        if self.averaged is not None:
            own["averaged"] = self.averaged.state_dict()
        return {**own, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        state = dict(state)
        self.model.load_state_dict(state.pop("model"))
        if self.averaged is not None:
            self.averaged.load_state_dict(state.pop("averaged"))
        self.optimizer.load_state_dict(state.pop("optimizer"))
        for name, value in state.items():
            setattr(self, name, value)


def untrained(model_config: ModelConfig, seed: int) -> Transformer:
    """A model with the weights that training starts from."""
    with torch.random.fork_rng(devices=[]):  # torch's layers draw when they are made; those draws are not used
        model = Transformer(model_config)
    initialise(model, draws(seed, WEIGHTS))
    return model


def train(training: Training, settings: TrainSettings, objective: Objective, seed: int, place: Place) -> None:
    """Train until the steps are done or the validation loss has not improved for so long.

    Then take the best weights; or, with ``average``, the mean of the last ones, as the original Transformer was made
    (Vaswani et al. 2017). Raises ``UserError`` when the loss is no number.
    """
    model, started = training.model, time.monotonic()
    earlier = training.history[-1]["seconds"] if training.history else 0.0
    validation = [place.move(batch) for batch in objective.validation_batches()]
    total, norm, since = torch.zeros((), device=place.device), torch.zeros((), device=place.device), 0
    # Dropout draws from torch's own generator, which is left as it was found.
    with torch.random.fork_rng(devices=[place.device] if place.device.type == "cuda" else []):
        for batch in objective.train_batches(training.step):
            torch.manual_seed(draws(seed, STEP, training.step).initial_seed())
            rate = learning_rate(training.step, settings)
            loss, gradient = _step(training, objective, place.move(batch), rate, settings, place)
            total += loss
            norm = torch.maximum(norm, gradient)
            since += 1
            training.step += 1
            last = training.step == settings.steps
            if last or training.step % settings.validate_every == 0:
                loss, accuracy = _validate(training.judged, objective, validation, place)
                training.history.append(
                    {
                        "step": training.step,
                        "train_loss": total.item() / since,
                        "validation_loss": loss,
                        "validation_accuracy": accuracy,
                        "learning_rate": rate,
                        "largest_gradient": norm.item(),  # its norm before clipping
                        "seconds": round(earlier + time.monotonic() - started, 2),
                    }
                )
                total.zero_()
                norm.zero_()
                since = 0
                _keep(training, settings)
                if last or _validations_since_best(training) >= settings.patience:
                    break
    model.load_state_dict(mean_weights(training.recent_weights) if settings.average > 1 else training.best_weights)
    model.eval()


def learning_rate(step: int, settings: TrainSettings) -> float:
    """Of step ``step`` (from 0): rises in a line over the warm-up, then falls, as the schedule says.

    cosine: to 0 at the last step. noam: with 1 / sqrt(step), as the original Transformer was trained; there the peak is
    1 / sqrt(width * warm-up steps).
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    if settings.schedule == "noam":
        return settings.learning_rate * math.sqrt(max(1, settings.warmup_steps) / (step + 1))
    done = (step - settings.warmup_steps) / max(1, settings.steps - settings.warmup_steps)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def stability(history: list[dict]) -> dict[str, float]:
    """How smoothly training went: the largest gradient, as a multiple of the median between validations, and the
    largest rise of the training loss from one validation to the next, in nats (0: it never rose)."""
    gradients = [row["largest_gradient"] for row in history]
    losses = [row["train_loss"] for row in history]
    return {
        "largest_gradient": max(gradients),
        "gradient_spike": max(gradients) / max(statistics.median(gradients), 1e-12),
        "loss_rise": max([0.0, *(later - earlier for earlier, later in pairwise(losses))]),
    }


# ------------------------------------------------------------------------------------------------ inside the loop


def _step(
    training: Training, objective: Objective, batch: Batch, rate: float, settings: TrainSettings, place: Place
) -> tuple[Tensor, Tensor]:
    """One step of the optimizer; the loss before it and the gradient's norm, detached, on the device."""
    training.model.train()
    for group in training.optimizer.param_groups:
        group["lr"] = rate
    loss = _loss(training.model, objective, batch, place).mean
    loss.backward()
    norm = nn.utils.clip_grad_norm_(training.model.parameters(), settings.clip)
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)
    if training.averaged is not None:
        # early on the average is of few steps: it would else be the starting weights for long
        share = 1 - min(settings.ema, (training.step + 1) / (training.step + 10))
        with torch.no_grad():
            for average, weight in zip(training.averaged.parameters(), training.model.parameters()):
                average.lerp_(weight, share)
    return loss.detach(), norm.detach()


def _loss(model: Transformer, objective: Objective, batch: Batch, place: Place) -> Loss:
    with place.autocast():
        return objective.loss(model, batch)


def _validate(model: Transformer, objective: Objective, batches: list[Batch], place: Place) -> tuple[float, float]:
    model.eval()
    loss_sum, right, n = 0.0, 0, 0
    with torch.inference_mode():
        for batch in batches:
            loss = _loss(model, objective, batch, place)
            loss_sum += loss.mean.item() * loss.n
            right += int(loss.right)
            n += loss.n
    return loss_sum / n, right / n


def mean_weights(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several states of one model, in fp32."""
    return {name: torch.stack([state[name].float() for state in states]).mean(0) for name in states[0]}


def _keep(training: Training, settings: TrainSettings) -> None:
    row = training.history[-1]
    if not (math.isfinite(row["train_loss"]) and math.isfinite(row["validation_loss"])):
        raise UserError(
            f"training diverged before step {training.step}: the loss is no number; "
            f"lower train.learning_rate (now {settings.learning_rate:g}) or lengthen train.warmup_steps"
        )
    if settings.average > 1:
        training.recent_weights = [*training.recent_weights, _copy(training.judged)][-settings.average :]
    if row["validation_loss"] < training.best_loss:
        training.best_loss, training.best_step = row["validation_loss"], training.step
        if settings.average == 1:  # else the mean is taken, and nobody asks for the best
            training.best_weights = _copy(training.judged)
    log.info(
        "step %d of %d: training loss %.3f, validation loss %.3f, %.1f %% guessed right, %.0f s",
        *(training.step, settings.steps, row["train_loss"], row["validation_loss"]),
        *(100 * row["validation_accuracy"], row["seconds"]),
    )


def _copy(model: Transformer) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _validations_since_best(training: Training) -> int:
    return sum(row["step"] > training.best_step for row in training.history)


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
