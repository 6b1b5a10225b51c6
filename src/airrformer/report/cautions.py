"""What to know before the numbers: what makes them too good, what is missing, what to keep in mind.

Every sentence follows from the result files; nothing is claimed that a number does not carry.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from airrformer.config import TRAIN_FOLDS, Config, PublishedEncoder
from airrformer.paths import Results
from airrformer.report.read import BASELINE, SHORTCUT, STRONG
from airrformer.report.study import Study, target_name
from airrformer.report.words import count, estimate, interval, listing, p_value, percent, shorten, signed

LEVELS = ("bad", "gap", "note")
# Fewer positives than this, and an interval says more than its middle.
FEW_POSITIVES = 30


class Warning(NamedTuple):
    """One thing to know before the numbers. ``level``: bad (distrust), gap (something is missing) or note."""

    level: str
    title: str
    text: Markup


def warnings(
    config: Config,
    studies: list[Study],
    summaries: dict[str, dict | None],
    status: dict[str, dict],
    results: Results,
) -> list[Warning]:
    """By level: what makes numbers too good, what is missing, what to keep in mind."""
    found: list[Warning] = []
    if config.evaluation.shuffle_labels:
        text = "They were given to other receptors at random, as a control: every score should be that of guessing."
        found.append(Warning("bad", "The labels of this run are shuffled", Markup(text)))
    for study in studies:
        found += [*_shortcuts(study), *_leaks(study), *_leakage(study)]
    found += _seen_unlabelled(config, studies, status)
    for study in studies:
        found += _strong(study)
        if study.metrics and not study.baselines:
            found.append(_no_baselines(config, study))
    found += _choice(studies)
    found += _skipped_encoders(status)
    for study in studies:
        found += _not_scored(study)
    for name, summary in summaries.items():
        found += _inputs(name, summary, results)
    return sorted(found, key=lambda warning: LEVELS.index(warning.level))


def _shortcuts(study: Study) -> list[Warning]:
    """Shortcuts within the interval of a split's best model, or above it."""
    parts, names = [], {}
    for split in study.splits:
        best = study.ranked(split=split)[0]
        own, reached = study.score(best, split), []
        for name, baseline in study.baselines.items():
            score = study.baseline_score(name, split)
            least = own["value"] if own.get("low") is None else own["low"]
            if baseline["kind"] == SHORTCUT and score and score["value"] >= least:
                names[name] = None
                reached.append(f"{name} ({baseline['what']}) {estimate(score)}")
        if reached:
            parts.append(f"{split} split {listing(reached)} against {estimate(own)} of {target_name(best)}")
    if not parts:
        return []
    text = Markup(
        "By {}: {}. A shortcut sees no residue; where it does as well as a model, the score can come from how the "
        "receptors were gathered."
    ).format(study.score_name, "; ".join(parts))
    does = "does" if len(names) == 1 else "do"
    return [Warning("bad", f"{listing(names)} {does} as well as the best model in {study.name}", text)]


def _leaks(study: Study) -> list[Warning]:
    """What tells the label by itself, of the checks that were made of the data set."""
    return [
        Warning("bad", f"{leak['title']} in {study.name}", Markup("{}").format(_sentence(leak["sentence"])))
        for leak in study.leaks
        if leak["level"] == "bad"
    ]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _strong(study: Study) -> list[Warning]:
    """Plain models that the best classifier does not beat in the strictest split, by the interval of the difference."""
    if study.best is None or not study.baselines:
        return []
    if study.comparisons is None:
        own = study.score(study.best)
        least = own["value"] if own.get("low") is None else own["low"]
        near = [name for name in study.ranked_baselines(STRONG) if study.baseline_score(name)["value"] >= least]
        shown = [f"{name} ({study.baselines[name]['what']}) {estimate(study.baseline_score(name))}" for name in near]
        against, what = f"{estimate(own)} of {target_name(study.best)}", "within its interval, or above"
    else:
        rows = study.comparisons[study.comparisons["split"] == study.strict]
        rows = rows[rows["difference"].notna()]
        shown, against, what = [], "", "difference to the best model, with its 95 % interval and p, corrected"
        for row in rows.sort_values("difference", ascending=False, kind="stable").itertuples():
            name = row.a.removeprefix(BASELINE)
            if name == row.a or study.baselines.get(name, {}).get("kind") != STRONG:
                continue
            if not row.high < 0:
                ends = interval({"low": row.low, "high": row.high})
                gap = f"{signed(row.difference)} {ends}, p {p_value(row.p_holm)}"
                shown.append(f"{name} ({study.baselines[name]['what']}): {gap}")
            against = row.b.replace("/", " / ")
    if not shown:
        return []
    text = Markup("In the {} split, against {} ({}): {}.").format(study.strict, against, what, "; ".join(shown))
    return [Warning("note", f"Plain models that are not clearly beaten in {study.name}", text)]


def _no_baselines(config: Config, study: Study) -> Warning:
    if not config.evaluation.baselines:
        why = Markup("<code>evaluation.baselines</code> is false")
    else:
        why = "there is no result of them; run the workflow again"
    text = Markup("Nothing here says whether genes, lengths or a nearest neighbour would do as well: {}.").format(why)
    return Warning("gap", f"No baselines beside the models of {study.name}", text)


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
    for study in studies:
        found += _read_elsewhere(config, study)
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


def _read_elsewhere(config: Config, study: Study) -> list[Warning]:
    """Encoders whose corpus is other datasets that hold receptors of this one all the same."""
    found = []
    used = {target.encoder for target in study.metrics}
    for name, by_split in study.corpora.items():
        leak = by_split.get(study.strict) or {}
        if name not in used or study.name in getattr(config.encoders.get(name), "corpus", ()) or not leak.get("exact"):
            continue
        text = Markup("{} of {} tests of the {} split are of a receptor with a chain of its corpus. No label was used.")
        shares = count(leak["exact"]), count(leak["of"]), study.strict
        found.append(Warning("bad", f"{name} has read test receptors of {study.name}", text.format(*shares)))
    return found


def _choice(studies: list[Study]) -> list[Warning]:
    parts = []
    for study in studies:
        ranked = study.ranked()
        if len(ranked) > 1:
            low = study.score(study.best).get("low")
            rivals = [t for t in ranked[1:] if low is not None and (study.score(t).get("high") or 0) >= low]
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
    undefined = [] if study.regression else _undefined(study)
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
    if study.best and not study.regression:
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
