"""One data set's targets, and which of them is the best: the judgement that the whole page shares."""

from __future__ import annotations

from dataclasses import dataclass

from airrformer.config import STRICTEST_FIRST, Config, Dataset, Target
from airrformer.report.read import BASELINE_KINDS


@dataclass(frozen=True)
class Study:
    """What was scored on one data set. ``metrics`` holds the targets that ran, ``skipped`` the others' reasons."""

    name: str
    dataset: Dataset
    splits: list[str]  # least to most demanding, those that at least one target was scored in
    metrics: dict[Target, dict]
    skipped: dict[Target, str]
    kinds: dict[str, str]  # encoder -> kind

    @classmethod
    def of(cls, config: Config, name: str, metrics: dict[Target, dict]) -> Study:
        own = {target: m for target, m in metrics.items() if target.dataset == name}
        ran = {target: m for target, m in own.items() if "skipped" not in m}
        scored = {split for m in ran.values() for split in m["splits"] if macro(m, split, "auroc")}
        return cls(
            name=name,
            dataset=config.datasets[name],
            splits=[split for split in reversed(STRICTEST_FIRST) if split in scored],
            metrics=ran,
            skipped={target: m["skipped"] for target, m in own.items() if "skipped" in m},
            kinds={encoder: settings.kind for encoder, settings in config.encoders.items()},
        )

    @property
    def strict(self) -> str | None:
        """The most demanding split that was scored; "best" is judged there."""
        return self.splits[-1] if self.splits else None

    def auroc(self, target: Target, split: str | None = None) -> dict | None:
        return macro(self.metrics[target], split or self.strict, "auroc")

    def ranked(self, baseline: bool | None = None, dense: bool | None = None) -> list[Target]:
        """Targets by macro AUROC in the strictest split, best first; equals keep the config's order.

        ``baseline``: only encoders that learn nothing (True), or only those that learn (False). ``dense``: no counts.
        """
        chosen = [
            target
            for target in self.metrics
            if self.strict
            and self.auroc(target)
            and baseline in (None, self.kinds[target.encoder] in BASELINE_KINDS)
            and dense in (None, self.kinds[target.encoder] != "kmer")
        ]
        return sorted(chosen, key=lambda target: -self.auroc(target)["value"])

    @property
    def best(self) -> Target | None:
        return next(iter(self.ranked()), None)

    def best_per_encoder(self) -> list[Target]:
        best: dict[str, Target] = {}
        for target in self.ranked():
            best.setdefault(target.encoder, target)
        return list(best.values())

    def group_name(self) -> str:
        """What the group split keeps together: donor, lineage ..."""
        for metrics in self.metrics.values():
            named = metrics["splits"].get("group", {}).get("group")
            if named:
                return named
        return next(iter(self.dataset.groups), "group")


def macro(metrics: dict, split: str | None, metric: str) -> dict | None:
    """A macro metric of a split, or ``None`` where it was skipped or is undefined."""
    found = metrics["splits"].get(split, {}).get("macro", {}).get(metric)
    return found if found and found.get("value") is not None else None


def target_name(target: Target) -> str:
    return f"{target.encoder} / {target.pooling} / {target.classifier}"
