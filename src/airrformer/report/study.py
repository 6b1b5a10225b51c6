"""One data set's targets, and which of them is the best: the judgement that the whole page shares."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from airrformer.config import PLAIN_KINDS, STRICTEST_FIRST, Config, Dataset, Target
from airrformer.report.read import METRICS, REGRESSION_METRICS
from airrformer.report.words import listing


@dataclass(frozen=True)
class Study:
    """What was scored on one data set. ``metrics`` holds the targets that ran, ``skipped`` the others' reasons.

    plain: the targets that stand on encoders that learn nothing. baselines: what they have to beat, by name, each with
    its kind and its numbers. leaks: what tells the labels without looking at what binds. corpora: by encoder and split,
    the test receptors that it has read. comparisons: the others against the best of each split.
    """

    name: str
    dataset: Dataset
    splits: list[str]  # least to most demanding, those that at least one target was scored in
    metrics: dict[Target, dict]
    skipped: dict[Target, str]
    plain: frozenset[Target]
    baselines: dict[str, dict]
    leaks: list[dict]
    corpora: dict[str, dict]
    comparisons: pd.DataFrame | None

    @classmethod
    def of(
        cls,
        config: Config,
        name: str,
        metrics: dict[Target, dict],
        baselines: dict | None = None,
        comparisons: pd.DataFrame | None = None,
    ) -> Study:
        """``baselines``: the content of baselines/metrics.json, empty where there is none."""
        own = {target: m for target, m in metrics.items() if target.dataset == name}
        ran = {target: m for target, m in own.items() if "skipped" not in m}
        baselines, dataset = baselines or {}, config.datasets[name]
        scored = {split for m in ran.values() for split in m["splits"] if macro(m, split, metric_of(dataset))}
        return cls(
            name=name,
            dataset=dataset,
            splits=[split for split in reversed(STRICTEST_FIRST) if split in scored],
            metrics=ran,
            skipped={target: m["skipped"] for target, m in own.items() if "skipped" in m},
            plain=frozenset(
                target
                for target in own
                if all(config.encoders[e.encoder].kind in PLAIN_KINDS for e in config.inputs(target))
            ),
            baselines=baselines.get("baselines") or {},
            leaks=[leak | {"sentence": _with_readers(config, name, leak)} for leak in baselines.get("leaks") or []],
            corpora=baselines.get("corpora") or {},
            comparisons=comparisons,
        )

    @property
    def regression(self) -> bool:
        return self.dataset.task == "regression"

    @property
    def metric(self) -> str:
        """What models are ranked by."""
        return metric_of(self.dataset)

    @property
    def score_name(self) -> str:
        return "Spearman correlation" if self.regression else "macro AUROC"

    @property
    def chance(self) -> float:
        """The score of guessing."""
        return 0.0 if self.regression else 0.5

    @property
    def strict(self) -> str | None:
        """The most demanding split that was scored; "best" is judged there."""
        return self.splits[-1] if self.splits else None

    def score(self, target: Target, split: str | None = None) -> dict | None:
        return macro(self.metrics[target], split or self.strict, self.metric)

    def baseline_score(self, name: str, split: str | None = None) -> dict | None:
        return macro(self.baselines[name], split or self.strict, self.metric)

    def ranked(self, plain: bool | None = None, split: str | None = None) -> list[Target]:
        """Targets by their score in a split (the strictest), best first; equals keep the config's order.

        ``plain``: only those on encoders that learn nothing (True), or only the others (False).
        """
        chosen = [
            target
            for target in self.metrics
            if self.strict and self.score(target, split) and plain in (None, target in self.plain)
        ]
        return sorted(chosen, key=lambda target: -self.score(target, split)["value"])

    @property
    def best(self) -> Target | None:
        return next(iter(self.ranked()), None)

    def best_per_encoder(self) -> list[Target]:
        best: dict[str, Target] = {}
        for target in self.ranked():
            best.setdefault(target.encoder, target)
        return list(best.values())

    def ranked_baselines(self, kind: str) -> list[str]:
        """The baselines of a kind by their score in the strictest split, best first."""
        chosen = [
            name
            for name, m in self.baselines.items()
            if m["kind"] == kind and self.strict and self.baseline_score(name)
        ]
        return sorted(chosen, key=lambda name: -self.baseline_score(name)["value"])

    def group_name(self, split: str = "group") -> str:
        """What the group split keeps together (donor, lineage, ...), or the column that names the given folds."""
        for metrics in self.metrics.values():
            named = metrics["splits"].get(split, {}).get("group")
            if named:
                return named
        return next(iter(self.dataset.groups), "group")


def _with_readers(config: Config, dataset: str, leak: dict) -> str:
    """The sentence of a check; of a group, which encoders hand it to the models of a dataset."""
    what, _, column = leak["check"].partition(" ")
    targets = [target for target in config.expand_targets() if target.dataset == dataset]
    names = config.readers_of(column, targets) if what == "group" else []
    return f"{leak['sentence']} Models of {listing(names)} read this column." if names else leak["sentence"]


def metric_of(dataset: Dataset) -> str:
    return REGRESSION_METRICS[0] if dataset.task == "regression" else METRICS[0]


def macro(metrics: dict, split: str | None, metric: str) -> dict | None:
    """A macro metric of a split, or ``None`` where it was skipped or is undefined."""
    found = metrics["splits"].get(split, {}).get("macro", {}).get(metric)
    return found if found and found.get("value") is not None else None


def target_name(target: Target) -> str:
    return f"{target.encoder} / {target.pooling} / {target.classifier}"
