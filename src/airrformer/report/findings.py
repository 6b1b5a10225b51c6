"""What the numbers say, in plain sentences: the opening and a headline per data set.

Every sentence follows from the result files; nothing is claimed that a number does not carry.
"""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from airrformer.config import AS_THEY_ARE, Config
from airrformer.report.study import Study, target_name
from airrformer.report.words import count, decimals, difference, estimate, interval, listing, p_value

SETTLED = 0.05  # corrected p below which a difference is taken for real


def opening(config: Config, studies: list[Study], summaries: dict[str, dict | None], status: dict[str, dict]) -> str:
    """What was run, in one or two sentences."""
    kinds = {"TCR": "T-cell receptor", "antibody": "antibody"}
    read = []
    for name, dataset in config.datasets.items():
        summary = summaries[name]
        noun = kinds[dataset.receptor]
        plural = "antibodies" if dataset.receptor == "antibody" else None
        read.append(f"{count(summary['receptors'], noun, plural) if summary else noun + 's'} ({name})")
    writers = config.writers
    used = [
        name
        for name, entry in status.items()
        if entry["status"] == "ready" and entry["kind"] not in AS_THEY_ARE and name not in writers
    ]
    classifiers, regressors = (
        sum(len(study.metrics) for study in studies if study.regression is kind) for kind in (False, True)
    )
    done = [f"read {listing(read)}"] if read else []
    if used:
        done.append(f"turned each receptor into numbers with {count(len(used), 'encoder')} ({listing(used)})")
    if classifiers:
        told = "to tell which of the given classes a receptor belongs to"
        done.append(f"trained {count(classifiers, 'classifier')} {told}")
    if regressors:
        done.append(f"trained {count(regressors, 'regressor')} to predict a measured value")
    if writers:
        done.append(f"taught {listing(writers)} to write sequences")
    sentences = [f"This run {listing(done)}."]
    if classifiers or regressors:
        sentences.append(
            "Every score is on receptors that the model was not fitted on; "
            "brackets are 95 % bootstrap intervals over the tested receptors."
        )
    return " ".join(sentences)


def split_phrase(study: Study, split: str) -> str:
    return {
        "random": "when receptors are split at random",
        "cluster": "when similar receptors are kept together",
        "group": f"when all receptors of one {study.group_name()} are kept together",
        "class": "when its negatives are of classes that it has never seen",
        "parent": "when whole stretches of the distance from the parent are kept back",
        "given": "in the folds that were given",
    }[split]


def _elsewhere(study: Study) -> str:
    """The receptors that the strictest split speaks of."""
    return {
        "cluster": "On receptors unlike these",
        "group": f"On a receptor of a new {study.group_name()}",
        "class": "Among receptors of classes that it has never seen",
        "parent": "On variants at other distances from the parent",
        "given": "On receptors as in the given folds",
    }[study.strict]


def headline(study: Study) -> list[Markup]:
    """The result of one data set: the best target in each split, then whether it means anything."""
    if study.best is None:
        reason = next(iter(study.skipped.values()), "no split could be scored")
        if study.dataset.labels is None:
            reason = "it has no labels"
        return [Markup("On <strong>{}</strong> nothing was scored: {}.").format(study.name, reason.rstrip("."))]
    best, sentences = study.best, []
    parts = [f"{estimate(study.score(best, split))} {split_phrase(study, split)}" for split in study.splits]
    said = Markup("On <strong>{}</strong> the best model ({}) reaches a {} of {}").format(
        study.name, target_name(best), study.score_name, listing(parts)
    )
    random, strict = study.score(best, "random"), study.score(best)
    drop = difference(random, strict)
    if study.splits == ["random"]:
        said += Markup(". No stricter split was scored, so expect less on new receptors.")
    elif drop is None:
        said += Markup(".")
    elif drop > 0:
        said += Markup(": the random split flatters by <strong>{}</strong>. {} expect {}, not {}.").format(
            decimals(drop), _elsewhere(study), decimals(strict["value"]), decimals(random["value"])
        )
    else:
        said += Markup(": here the random split does not flatter ({} against {}).").format(
            decimals(random["value"]), decimals(strict["value"])
        )
    sentences.append(said)
    low = study.score(best).get("low")
    if low is not None and low <= study.chance:
        sentences.append(
            Markup("Its interval in the {} split, {}, reaches {:g}: <strong>no better than guessing</strong>.").format(
                study.strict, interval(study.score(best)), study.chance
            )
        )
    return sentences + baseline_sentence(study) + comparison_sentence(study)


def baseline_sentence(study: Study) -> list[Markup]:
    """Whether the best encoder that learns beats the best that learns nothing, in the strictest split."""
    learned, plain = study.ranked(plain=False)[:1], study.ranked(plain=True)[:1]
    if not learned or not plain:
        return []
    a, b = study.score(learned[0]), study.score(plain[0])
    between = Markup("{} ({}) against {} for the plain encoder {} in the {} split").format(
        learned[0].encoder, estimate(a), estimate(b), plain[0].encoder, study.strict
    )
    if a["value"] <= b["value"]:
        return [Markup("No learned encoder does better than a plain one here: {}.").format(between)]
    if a.get("low") is not None and b.get("high") is not None and a["low"] > b["high"]:
        return [Markup("The best learned encoder does better than the best plain one: {}.").format(between)]
    return [
        Markup(
            "The best learned encoder is ahead of the best plain one, but their intervals overlap, "
            "so this may be chance: {}."
        ).format(between)
    ]


def comparison_sentence(study: Study) -> list[Markup]:
    """Whether the best model beats all others and the baselines by more than chance, in the strictest split."""
    if study.comparisons is None:
        return []
    rows = study.comparisons[study.comparisons["split"] == study.strict]
    rows = rows[rows["difference"].notna()]  # who predicts one number for all has no correlation
    if rows.empty:
        return []
    others = count(len(rows), "other model or baseline", "other models and baselines")
    apart, p = rows["high"] < 0, rows["p_holm"].max(skipna=False)
    if apart.all() and p < SETTLED:
        said = "Paired comparisons in the {} split: <strong>it is better than each of the {}</strong> (corrected p {})."
        return [Markup(said).format(study.strict, others, p_value(p))]
    if apart.all():
        said = (
            "Paired comparisons in the {} split: it is ahead of each of the {} by an interval that excludes 0, but "
            "the corrected test over {} does not settle it (p {})."
        )
        return [Markup(said).format(study.strict, others, count(rows["folds"].max(), "fold"), p_value(p))]
    said = (
        "Paired comparisons in the {} split: <strong>it is not better than all</strong> of the {}; it is ahead of {} "
        "by an interval that excludes 0, and of {} by the corrected test over {} as well."
    )
    ahead, settled = (int(n) for n in (apart.sum(), (apart & (rows["p_holm"] < SETTLED)).sum()))
    numbers = (count(n) if n else "none" for n in (ahead, settled))
    return [Markup(said).format(study.strict, others, *numbers, count(rows["folds"].max(), "fold"))]


def calibration_sentence(table: pd.DataFrame, what: str = "Scores") -> str:
    """Whether a score can be read as a probability, from ``figures.calibration``'s table."""
    n = table["n"]
    gap = float((n * (table["score"] - table["share"]).abs()).sum() / n.sum())
    lean = float((n * (table["score"] - table["share"])).sum() / n.sum())
    if gap < 0.05:
        return f"{what} can be read as probabilities: they are off by {decimals(gap)} on average."
    way = "too high" if lean > gap / 2 else "too low" if lean < -gap / 2 else "too extreme or too tame"
    return f"{what} are no probabilities: they are off by {decimals(gap)} on average, and {way}."
