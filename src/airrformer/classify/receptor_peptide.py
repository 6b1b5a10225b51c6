"""A network that reads receptor and peptide, trained on the pairs of all epitopes at once; averaged over networks.

The classes are peptides, so that one network scores them all, and peptides that nobody taught it, too. A receptor and a
peptide are both read by blocks of the core (pairs.py). torch is imported where it is needed: it costs seconds.

A network could do well without looking at both. That an epitope is frequent tells nothing here: each has as many
negatives for a positive as any other (``ratio``). That a receptor binds something tells little: receptors are drawn as
negatives as often as they are drawn as positives; only those that are known to bind nothing (given negatives,
background) are always negatives.

Letters: n receptors to learn from, m others, K classes, S slots: places of an epoch's pairs, each of a class and label.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from airrformer.classify.networks import AveragedNetworks
from airrformer.classify.residues import fill_missing, find_donors
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.errors import UserError
from airrformer.receptors.distances import near_copies
from airrformer.receptors.loops import LOOPS, chains_of

if TYPE_CHECKING:
    from airrformer.classify.pairs import PairNetwork

logger = logging.getLogger(__name__)

SHORTEST = 5  # residues of a peptide
SEES = ("both", "receptor", "peptide")
HOLDS_OUT = ("receptors", "peptides")
_HIDDEN = "X"  # stands for what a network does not see
_ALIKE = 1  # edits between receptors that are held out together
_CLIP = 1.0
_AT_ONCE = 512  # pairs scored together


def peptides_of(classes: Sequence[str], named: Mapping[str, str] | None = None) -> list[str]:
    """The peptide of each class: what ``named`` says, else its name. Raises ``UserError`` where that is none.

    >>> peptides_of(["GILGFVFTL", "flu"], {"flu": "NLVPMVATV"})
    ['GILGFVFTL', 'NLVPMVATV']
    """
    found = [(named or {}).get(name, name).strip().upper() for name in classes]
    for name, peptide in zip(classes, found):
        if len(peptide) < SHORTEST or set(peptide) - set(AMINO_ACIDS):
            raise UserError(
                f"class {name!r}: {peptide!r} is no peptide of {SHORTEST} or more of the twenty residues; name it: "
                f"peptides: {{{name}: SEQUENCE}} in the settings of the classifier"
            )
    return found


class ReceptorPeptideClassifier(AveragedNetworks):
    """A small network on pairs of a receptor and a peptide; averaged over networks.

    Parameters
    ----------
    peptides: the peptide of each class, in the order of the columns of Y.
    form: ``cross``: one reads its own residues and looks at those of the other, block by block; ``looks`` says who:
        ``peptide`` (at the receptor, which is read once for all peptides), ``receptor`` (at the peptide: several times
        the work) or ``both``, side by side.
        ``joint``: receptor and peptide are one sequence for one stack.
    regions: what is read of each chain, of those that the letters have: cdr1, cdr2, cdr3, sequence. What a receptor
        lacks is drawn from training (``fill_missing``).
    layers, width, heads, feed_forward: of each stack. dropout: of all of its layers and of what comes after it.
    ratio: negatives drawn for a positive, anew in every epoch, from those of the same epitope.
    balance: how much less the pairs of frequent epitopes weigh: a positive counts n ** -balance, of an epitope with n.
        0: all positives weigh the same; 1: all epitopes do.
    learning_rate, weight_decay, batch_size: of AdamW, pairs a step; the rate falls to a tenth along a cosine.
    max_epochs, patience, validation: training stops when the log loss of the pairs held out has not improved for
        ``patience`` epochs; the weights of the best epoch are kept. Held out are ``hold_out``: ``receptors``, those
        that differ by one edit of their CDR3s or less together (or one of the ``groups`` that ``fit`` is told), or
        ``peptides``, which is for scoring peptides that are new.
    sees: ``both``; a network that sees the ``receptor`` alone, or the ``peptide`` alone, is a control.
    n_models: networks, each with its own first weights and its own pairs held out; their log-odds are averaged.

    ``fit(X, Y, groups=None)``: letters and Y int8 (n, K): 1, 0 and -1 (unknown). ``predict_proba``: float64 (m, K).
    ``score(X, peptides)``: log-odds of any peptides. The same on every run on one machine with one ``random_state``.

    Attributes
    ----------
    weights_: of each network, name -> float32 array. epochs_: the best epoch of each.
    """

    def __init__(
        self,
        peptides=(),
        form="cross",
        looks="peptide",
        regions=LOOPS,
        layers=2,
        width=64,
        heads=4,
        feed_forward=128,
        dropout=0.2,
        ratio=3,
        balance=0.5,
        learning_rate=2e-3,
        weight_decay=1e-2,
        batch_size=64,
        max_epochs=40,
        patience=8,
        validation=0.1,
        hold_out="receptors",
        sees="both",
        n_models=1,
        device="auto",
        random_state=0,
    ):
        self.peptides = peptides
        self.form = form
        self.looks = looks
        self.regions = regions
        self.layers = layers
        self.width = width
        self.heads = heads
        self.feed_forward = feed_forward
        self.dropout = dropout
        self.ratio = ratio
        self.balance = balance
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation = validation
        self.hold_out = hold_out
        self.sees = sees
        self.n_models = n_models
        self.device = device
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, Y, groups=None) -> ReceptorPeptideClassifier:
        """Train on all pairs but those held out for stopping. Raises ``UserError`` for settings that cannot be."""
        self._check()
        if not isinstance(X, pd.DataFrame):
            raise UserError("a table of the receptors' loops was expected, with columns such as TRB_cdr3")
        Y = self._learn_labels(Y, len(X), groups)
        if not self.multi_ or Y.shape[1] != len(self.peptides):
            raise UserError(f"Y has {Y.shape[1]} columns, and there are {len(self.peptides)} peptides: one is of one")
        self.peptides_ = peptides_of(self.peptides)
        self.parts_ = [str(name) for name in X.columns if str(name).rsplit("_", 1)[-1] in self.regions]
        if not self.parts_:
            raise UserError(f"the letters have no column of {', '.join(self.regions)}, such as TRB_cdr3")
        if not X[self.parts_].fillna("").ne("").any(axis=None):
            raise UserError(f"no receptor has a letter in {', '.join(self.parts_)}: there is nothing to learn from")
        self.n_features_in_ = X.shape[1]
        self.donors_ = find_donors(X, chains_of(X), self.parts_)
        loops = self._loops(X)
        if self.hold_out == "peptides":
            groups = self.peptides_
        elif groups is None:
            groups = alike(loops, self.parts_)
        return self._fit_networks(groups, lambda held, seed: self._train(loops, Y, held, seed))

    def score(self, X: pd.DataFrame, peptides: Sequence[str]) -> np.ndarray:
        """Log-odds that receptors bind ``peptides``, float64 (m, P), be they of training or not."""
        check_is_fitted(self, "weights_")
        import torch

        from airrformer.classify.pairs import Pairs, write_loops
        from airrformer.core.devices import resolve_device

        peptides, device = peptides_of(peptides), resolve_device(self.device)
        distinct, where = np.unique(np.array(peptides, dtype=str), return_inverse=True)
        receptors, rows = np.unique(np.array(list(zip(*self._loops(X))), dtype=str), axis=0, return_inverse=True)
        found = np.zeros((len(self.weights_), len(receptors), len(distinct)))
        if not found.size:
            return np.zeros((len(X), len(peptides)))
        tokens, sought = write_loops(receptors.T), self._peptide_tokens(distinct.tolist()).to(device)
        step = max(1, _AT_ONCE // len(distinct))
        for logits, weights in zip(found, self.weights_):
            network = self._restore(weights).to(device)
            with torch.inference_mode():
                for some in torch.arange(len(receptors)).split(step):
                    of = torch.cartesian_prod(torch.arange(len(some)), torch.arange(len(distinct))).to(device)
                    pairs = Pairs(tokens.rows(some).to(device), sought, of[:, 0], of[:, 1])
                    logits[some] = network(pairs).reshape(len(some), -1).cpu().numpy()
        return found.mean(axis=0)[rows.ravel()][:, where]

    def _logits(self, X: pd.DataFrame) -> np.ndarray:
        check_is_fitted(self, "weights_")
        return self.score(X, self.peptides_)

    def _check(self) -> None:
        from airrformer.classify.pairs import FORMS, LOOKS

        known = {"form": FORMS, "looks": LOOKS, "sees": SEES, "hold_out": HOLDS_OUT}
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                raise UserError(f"{name} {getattr(self, name)!r} is unknown: use one of {', '.join(choices)}")

    # ---------------------------------------------------------------------------------------------- what is read

    def _loops(self, X: pd.DataFrame) -> list[list[str]]:
        """Of each part what it is in each receptor; all alike where the network does not see receptors."""
        if self.sees == "peptide":
            return [[_HIDDEN] * len(X) for _ in self.parts_]
        filled = fill_missing(X, self.parts_, self.donors_)
        return [filled[part].tolist() for part in self.parts_]

    def _peptide_tokens(self, peptides: Sequence[str]):
        from airrformer.classify.pairs import write_peptides

        seen = [_HIDDEN * SHORTEST] * len(peptides) if self.sees == "receptor" else peptides
        return write_peptides(seen, segment=len(self.parts_))

    # -------------------------------------------------------------------------------------------------- networks

    def _network(self) -> PairNetwork:
        from airrformer.classify.pairs import PairNetwork
        from airrformer.core.config import ModelConfig

        size = {name: getattr(self, name) for name in ("layers", "width", "heads", "feed_forward", "dropout")}
        config = ModelConfig(**size, segments=len(self.parts_) + 1, tied=False)
        return PairNetwork(config, self.form, self.looks, self.dropout)

    def _restore(self, weights: Mapping[str, np.ndarray]) -> PairNetwork:
        import torch

        network = self._network()
        network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
        return network.eval()

    def _train(self, loops: list[list[str]], Y: np.ndarray, held: np.ndarray, seed: int):
        """Weights of the best epoch, name -> float32 array, and its number."""
        import torch

        from airrformer.classify.pairs import Pairs, write_loops
        from airrformer.classify.training import train
        from airrformer.core.devices import resolve_device

        held = held[:, None] if self.hold_out == "receptors" else held[None]
        learned, stop = (Slots(np.where(some, Y, -1), self.ratio, self.balance) for some in (~held, held))
        if not len(learned) or not len(stop):
            raise UserError("no receptor is known to bind and none not to: there is nothing to learn, or to stop by")
        rng, device = np.random.default_rng(seed), resolve_device(self.device)
        receptors, peptides = write_loops(loops), self._peptide_tokens(self.peptides_).to(device)
        classes = np.concatenate([learned.classes, stop.classes])
        labels = np.concatenate([learned.labels, stop.labels])
        fixed = np.concatenate([np.full(len(learned), -1), stop.draw(np.arange(len(stop)), rng)])

        def read(rows) -> Pairs:
            rows = rows.numpy()
            drawn = fixed[rows]
            if (new := drawn < 0).any():
                drawn[new] = learned.draw(rows[new], rng, few=True)
            used, of = np.unique(drawn, return_inverse=True)
            found = receptors.rows(torch.from_numpy(used)).to(device)
            return Pairs(found, peptides, *(torch.from_numpy(i).to(device) for i in (of, classes[rows])))

        def build() -> PairNetwork:
            network = self._network().to(device).eval()
            some = np.linspace(0, len(learned) - 1, min(len(learned), _AT_ONCE)).astype(np.int64)
            network.learn_scale(read(torch.from_numpy(some)))
            return network

        network, epoch = train(
            build,
            lambda network: [{"params": list(network.parameters()), "lr": self.learning_rate}],
            read,
            labels[:, None],
            np.arange(len(labels)) >= len(learned),
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
            max_epochs=self.max_epochs,
            patience=self.patience,
            seed=seed,
            clip=_CLIP,
            at_once=_AT_ONCE,
            device=device,
        )
        return {name: value.cpu().numpy() for name, value in network.state_dict().items()}, epoch


def alike(loops: Sequence[Sequence[str]], parts: Sequence[str]) -> np.ndarray:
    """Who is held out together, int (n,): receptors whose CDR3s differ by one edit or less, and those in turn.

    loops: of each of ``parts`` what it is in each receptor. Where no part is a CDR3, all are compared.
    """
    cdr3 = [column for part, column in zip(parts, loops) if part.endswith("_cdr3")] or loops
    return near_copies(list(zip(*cdr3)), _ALIKE)


class Slots:
    """The pairs of an epoch as slots, each of a class and with a label; who stands in one is drawn.

    A class with n positives, and any negative, has about n ** (1 - balance) slots for positives (as many in all as
    there are positives), each with ``ratio`` for negatives. A slot for a negative is filled by a receptor that is not
    of its class, one that is of other classes as often as it is drawn for these.

    classes, labels: int64 (S,), of each slot.
    """

    def __init__(self, Y: np.ndarray, ratio: int, balance: float) -> None:
        counts = (Y == 1).sum(axis=0)
        able = np.flatnonzero((counts > 0) & (Y == 0).any(axis=0))
        share = counts[able] ** (1.0 - balance)
        slots = np.maximum(1, np.round(share * counts[able].sum() / max(share.sum(), 1e-9))).astype(np.int64)
        self.classes = np.repeat(able, slots * (1 + ratio))
        self.labels = np.concatenate(
            [np.repeat([1, 0], [n, n * ratio]) for n in slots] or [np.empty(0, dtype=np.int64)]
        )
        weights = (Y[:, able] == 1) @ (slots / np.maximum(counts[able], 1))
        weights[weights == 0] = 1.0  # of none of these classes: as often as the usual positive
        self._Y, self._binds = Y, (Y[:, able] == 1).any(axis=1)
        self._sums = {
            (k, label): np.cumsum(np.where(Y[:, k] == label, weights if label == 0 else 1.0, 0.0))
            for k in able
            for label in (0, 1)
        }

    def __len__(self) -> int:
        return len(self.classes)

    def draw(self, slots: np.ndarray, rng: np.random.Generator, few: bool = False) -> np.ndarray:
        """A receptor for each of some slots, int64.

        few: negatives are, where they can be, receptors drawn here as positives, so that fewer have to be read; those
        that bind nothing are drawn as they would be.
        """
        found = np.empty(len(slots), dtype=np.int64)
        classes, labels, u = self.classes[slots], self.labels[slots], rng.random(len(slots))
        for key in np.unique(classes * 2 + labels):
            here = classes * 2 + labels == key
            sums = self._sums[key // 2, key % 2]
            below = np.nextafter(sums[-1], 0)
            found[here] = np.searchsorted(sums, np.minimum(u[here] * sums[-1], below), side="right")
        if few:
            ours, negatives = found[labels == 1], np.flatnonzero((labels == 0) & self._binds[found])
            free = self._Y[np.ix_(ours, classes[negatives])] == 0  # (positives, negatives)
            able = np.flatnonzero(free.any(axis=0))
            chosen = (rng.random(free.shape) * free).argmax(axis=0) if len(able) else np.empty(0, dtype=np.int64)
            found[negatives[able]] = ours[chosen[able]]
        return found
