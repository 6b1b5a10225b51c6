"""What the numbers say, in plain sentences: the opening, a headline per data set and the warnings.

Every sentence follows from the result files; nothing is claimed that a number does not carry.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from markupsafe import Markup

from airrformer.config import TRAIN_FOLDS, Config, PublishedEncoder
from airrformer.paths import Results
from airrformer.report.study import Study, target_name
from airrformer.report.words import count, decimals, difference, estimate, interval, listing, percent, shorten

LEVELS = ("bad", "gap", "note")
# Fewer positives than this, and an interval says more than its middle.
FEW_POSITIVES = 30


class Warning(NamedTuple):
    """One thing to know before the numbers. ``level``: bad (distrust), gap (something is missing) or note."""

    level: str
    title: str
    text: Markup


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
    used = [name for name, entry in status.items() if entry["status"] == "ready" and name not in writers]
    trained = sum(len(study.metrics) for study in studies)
    done = [f"read {listing(read)}"] if read else []
    if used:
        done.append(f"turned each receptor into numbers with {count(len(used), 'encoder')} ({listing(used)})")
    if trained:
        done.append(f"trained {count(trained, 'classifier')} to tell which of the given classes a receptor belongs to")
    if writers:
        done.append(f"taught {listing(writers)} to write sequences")
    sentences = [f"This run {listing(done)}."]
    if trained:
        sentences.append(
            "Every score is on receptors that the classifier was not fitted on; "
            "brackets are 95 % bootstrap intervals over the tested receptors."
        )
    return " ".join(sentences)


def split_phrase(study: Study, split: str) -> str:
    return {
        "random": "when receptors are split at random",
        "cluster": "when similar receptors are kept together",
        "group": f"when all receptors of one {study.group_name()} are kept together",
    }[split]


def headline(study: Study) -> list[Markup]:
    """The result of one data set: the best target in each split, then whether it means anything."""
    if study.best is None:
        reason = next(iter(study.skipped.values()), "no split could be scored")
        if study.dataset.labels is None:
            reason = "it has no labels"
        return [Markup("On <strong>{}</strong> nothing was scored: {}.").format(study.name, reason.rstrip("."))]
    best, sentences = study.best, []
    parts = [f"{estimate(study.auroc(best, split))} {split_phrase(study, split)}" for split in study.splits]
    said = Markup("On <strong>{}</strong> the best model ({}) reaches a macro AUROC of {}").format(
        study.name, target_name(best), listing(parts)
    )
    random, strict = study.auroc(best, "random"), study.auroc(best)
    drop = difference(random, strict)
    if study.splits == ["random"]:
        said += Markup(". No stricter split was scored, so expect less on new receptors.")
    elif drop is None:
        said += Markup(".")
    elif drop > 0:
        new = f"a receptor of a new {study.group_name()}" if study.strict == "group" else "receptors unlike these"
        said += Markup(": the random split flatters by <strong>{}</strong>. On {} expect {}, not {}.").format(
            decimals(drop), new, decimals(strict["value"]), decimals(random["value"])
        )
    else:
        said += Markup(": here the random split does not flatter ({} against {}).").format(
            decimals(random["value"]), decimals(strict["value"])
        )
    sentences.append(said)
    low = study.auroc(best).get("low")
    if low is not None and low <= 0.5:
        sentences.append(
            Markup("Its interval in the {} split, {}, reaches 0.5: <strong>no better than guessing</strong>.").format(
                study.strict, interval(study.auroc(best))
            )
        )
    sentences += baseline_sentence(study)
    return sentences


def baseline_sentence(study: Study) -> list[Markup]:
    """Whether the best encoder that learns beats the best that learns nothing, in the strictest split."""
    learned, plain = study.ranked(baseline=False)[:1], study.ranked(baseline=True)[:1]
    if not learned or not plain:
        return []
    a, b = study.auroc(learned[0]), study.auroc(plain[0])
    between = Markup("{} ({}) against {} for the plain baseline {} in the {} split").format(
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


def calibration_sentence(table: pd.DataFrame) -> str:
    """Whether a score can be read as a probability, from ``figures.calibration``'s table."""
    n = table["n"]
    gap = float((n * (table["score"] - table["share"]).abs()).sum() / n.sum())
    lean = float((n * (table["score"] - table["share"])).sum() / n.sum())
    if gap < 0.05:
        return f"Scores can be read as probabilities here: they are off by {decimals(gap)} on average."
    way = "too high" if lean > gap / 2 else "too low" if lean < -gap / 2 else "too extreme or too tame"
    return f"Do not read scores as probabilities: they are off by {decimals(gap)} on average, and {way}."


# ---------------------------------------------------------------------------------------------------------- warnings


def warnings(
    config: Config,
    studies: list[Study],
    summaries: dict[str, dict | None],
    status: dict[str, dict],
    results: Results,
) -> list[Warning]:
    """By level: what makes numbers too good, what is missing, what to keep in mind."""
    found: list[Warning] = []
    for study in studies:
        found += _leakage(study)
    found += _seen_unlabelled(config, studies, status)
    found += _choice(studies)
    found += _skipped_encoders(status)
    for study in studies:
        found += _not_scored(study)
    for name, summary in summaries.items():
        found += _inputs(name, summary, results)
    return sorted(found, key=lambda warning: LEVELS.index(warning.level))


def _leakage(study: Study) -> list[Warning]:
    if study.best is None:
        return []
    judged = study.metrics[study.best]["splits"]
    leaks = {split: judged[split]["leakage"] for split in study.splits if judged[split].get("leakage")}
    if not any(leak["distance_1"] or leak["exact"] for leak in leaks.values()):
        return []
    parts = [
        f"{split} split {count(leak['distance_1'])} of {count(leak['of'])} ({percent(leak['distance_1'], leak['of'])}) "
        f"with CDR3s at most one edit apart, {count(leak['exact']) if leak['exact'] else 'none'} with the same chains"
        if leak["distance_1"] or leak["exact"]
        else f"{split} split none"
        for split, leak in leaks.items()
    ]
    text = Markup(
        "Tested receptors that have their like in the training part: {}. "
        "A score on such a receptor can be memory; compare the splits before you believe a number."
    ).format("; ".join(parts))
    return [Warning("bad", f"Train and test overlap in {study.name}", text)]


def _seen_unlabelled(config: Config, studies: list[Study], status: dict[str, dict]) -> list[Warning]:
    found = []
    scored = {study.name: {target.encoder for target in study.metrics} for study in studies}
    for name, encoder in config.encoders.items():
        datasets = [d for d, used in scored.items() if name in used]
        if status[name]["status"] == "skipped" or not datasets:
            continue
        if encoder.kind == "pretrain" and encoder.corpus != TRAIN_FOLDS:
            seen = [d for d in datasets if d in encoder.corpus]
            if seen:
                found.append(
                    Warning(
                        "bad",
                        f"{name} has seen the test receptors, without labels",
                        Markup(
                            "Its pre-training corpus holds {}, test receptors included. No label was used, but the "
                            "encoder may suit these receptors better than new ones. With <code>corpus: "
                            "train_folds</code> it never sees the receptors it is tested on."
                        ).format(listing(seen)),
                    )
                )
    foreign = [
        name
        for name, entry in status.items()
        if isinstance(config.encoders.get(name), PublishedEncoder)
        and entry["status"] == "ready"
        and any(name in used for used in scored.values())
    ]
    if foreign:
        text = "{} {} trained elsewhere on public sequences, which can hold some of these receptors, without labels."
        found.append(
            Warning(
                "note",
                "Ready-made encoders may know these receptors",
                Markup(text).format(listing(foreign), "was" if len(foreign) == 1 else "were"),
            )
        )
    return found


def _choice(studies: list[Study]) -> list[Warning]:
    parts = []
    for study in studies:
        ranked = study.ranked()
        if len(ranked) > 1:
            low = study.auroc(study.best).get("low")
            rivals = [t for t in ranked[1:] if low is not None and (study.auroc(t).get("high") or 0) >= low]
            parts.append(
                f"in {study.name} the best of {count(len(ranked), 'model')} is shown, and "
                f"{count(len(rivals)) if rivals else 'none'} of the others have an interval that overlaps its own"
            )
    if not parts:
        return []
    text = Markup(
        "“Best” is chosen by the same test scores that are shown, which favours luck a little: {}. Intervals come from "
        "resampling the tested receptors; they do not hold the spread over other training sets."
    ).format("; ".join(parts))
    return [Warning("note", "The order among near-equals is not settled", text)]


def _skipped_encoders(status: dict[str, dict]) -> list[Warning]:
    return [
        Warning(
            "gap", f"Encoder {name} was skipped", Markup("{}").format(entry.get("reason") or "No reason was given.")
        )
        for name, entry in status.items()
        if entry["status"] == "skipped"
    ]


def _not_scored(study: Study) -> list[Warning]:
    found = []
    left_out = {x["class"]: x for m in study.metrics.values() for x in m.get("left_out", [])}
    if left_out:
        text = listing(f"{name} ({count(x['n'], 'receptor')}: {x['reason']})" for name, x in left_out.items())
        found.append(Warning("gap", f"Classes left out of {study.name}", Markup("{}.").format(text)))
    not_run = {t: why for t, why in study.skipped.items() if why.startswith("not run")}
    if not_run:
        text = listing((target_name(t) for t in not_run), limit=4)
        found.append(Warning("gap", f"Not run in {study.name}", Markup("No result file for {}.").format(text)))
    unmade = {split: s["skipped"] for m in study.metrics.values() for split, s in m["splits"].items() if "skipped" in s}
    for split, why in unmade.items():
        found.append(Warning("gap", f"No {split} split in {study.name}", Markup("{}").format(why)))
    undefined = _undefined(study)
    if undefined:
        text = listing((f"{name} in the {split} split" for name, split in undefined), limit=6)
        found.append(
            Warning(
                "gap",
                f"Undefined metrics in {study.name}",
                Markup(
                    "{}: in every test fold the receptors are all of one kind, so AUROC has no value. "
                    "It is shown as undefined, never as 0 or 0.5, and the macro mean leaves it out."
                ).format(text),
            )
        )
    if study.best:
        classes = study.metrics[study.best]["splits"][study.strict]["classes"]
        few = [f"{c} ({m['n_positive']})" for c, m in classes.items() if 0 < m.get("n_positive", 0) < FEW_POSITIVES]
        if few:
            found.append(
                Warning(
                    "note",
                    f"Few positives in {study.name}",
                    Markup("{}: read the intervals, not the middles.").format(listing(few, limit=8)),
                )
            )
    return found


def _undefined(study: Study) -> list[tuple[str, str]]:
    """(class, split) whose AUROC has no value in some target, each once, in order."""
    pairs = {
        (name, split): None
        for metrics in study.metrics.values()
        for split, result in metrics["splits"].items()
        for name, scores in result.get("classes", {}).items()
        if (scores.get("auroc") or {}).get("value") is None
    }
    return list(pairs)


def _inputs(name: str, summary: dict | None, results: Results) -> list[Warning]:
    if summary is None:
        text = Markup("There is no {}.").format(results.parse_summary(name).as_posix())
        return [Warning("gap", f"No summary of what was read for {name}", text)]
    found = []
    rejected = summary.get("rejected") or {}
    if sum(rejected.values()):
        reasons = sorted(rejected.items(), key=lambda item: -item[1])
        text = Markup("{} of {}: {}. Each is listed with its reason in {}.").format(
            count(sum(rejected.values()), "record"),
            count(summary.get("records")),
            listing((f"{shorten(reason, 80)} ({count(n)})" for reason, n in reasons), limit=4),
            results.rejected(name).as_posix(),
        )
        found.append(Warning("gap", f"Records rejected from {name}", text))
    labels = summary.get("labels") or {}
    if labels.get("unmatched"):
        examples = labels.get("examples") or []
        more = f", for example {listing(shorten(x, 40) for x in examples[:3])}" if examples else ""
        text = Markup("{} of {} match no receptor{}.").format(
            count(labels["unmatched"], "label row"), count(labels.get("rows")), more
        )
        found.append(Warning("gap", f"Labels without a receptor in {name}", text))
    return found
