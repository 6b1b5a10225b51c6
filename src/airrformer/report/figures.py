"""The page's figures. Each takes plain numbers and gives one svg element with its alternative text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from sklearn.metrics import precision_recall_curve, roc_curve

from airrformer.report.svg import COLOURS, Plot, line, marker, number, picture, tag, text, ticks
from airrformer.report.words import decimals, difference, estimate, listing, signed

WIDTH = 380  # of most figures, in CSS pixels: a phone shows them in their own size
SPLIT_SHAPES = {"random": 0, "cluster": 2, "group": 3, "class": 1, "parent": 4, "given": 5}
# Neighbours in the heat map are alike in chemistry: small and hydrophobic, aromatic, special, polar, acid, basic.
RESIDUES = "AVILMCFWYGPSTNQDEKRH"
MAX_CURVES = COLOURS  # more lines than that, and none can be followed
MAX_POINTS = 4000


class Series(NamedTuple):
    """One legend entry: its name, colour class and mark."""

    name: str
    colour: str
    shape: int = 0


def palette(names: Sequence[str]) -> dict[str, Series]:
    """A colour and a shape for each name; the pair stays unique up to 64 names."""
    return {
        name: Series(name, f"c{i % COLOURS}", (i + i // COLOURS) % COLOURS) for i, name in enumerate(names)
    }  # fmt: skip


def swatch(series: Series, kind: str = "mark") -> Markup:
    """The mark, or the line with its dashes, that stands beside a name in a legend."""
    if kind == "line":
        drawn = tag("path", d="M0 8H30", class_=f"curve {series.colour}")
        return tag("svg", drawn, viewBox="0 0 30 16", width=30, height=16, aria_hidden="true")
    drawn = tag("path", d=marker(series.shape, 8, 8, 5), class_=f"mark {series.colour}")
    return tag("svg", drawn, viewBox="0 0 16 16", width=16, height=16, aria_hidden="true")


def split_swatch(split: str) -> Markup:
    return swatch(Series(split, f"s-{split}", SPLIT_SHAPES[split]))


def splits_figure(
    slug: str,
    dataset: str,
    rows: Sequence[tuple[str, dict]],
    splits: Sequence[str],
    score: str = "macro AUROC",
    chance: float = 0.5,
) -> Markup:
    """The score of a few models under each split, with intervals. ``rows``: (name, {split: metric})."""
    ends = [metric[end] for _, scores in rows for metric in scores.values() for end in ("value", "low", "high")
            if metric and metric.get(end) is not None]  # fmt: skip
    low = min([chance, *ends])
    low, high = (
        math.floor(low * 20) / 20 - (0.05 if low >= chance else 0),
        min(1.0, math.ceil(max([chance + 0.2, *ends]) * 20) / 20),
    )
    lane, head = 10, 22
    step = head + lane * len(splits) + 14
    plot = Plot(WIDTH, 18 + step * len(rows) + 40, (low, high), margin=(18, 20, 40, 20))
    plot.x_axis(ticks(low, high, 6), f"{score}, 95 % interval", ".2f" if high - low < 0.35 else ".1f")
    guessing = plot.x(chance)
    plot.add(
        line(guessing, plot.top, guessing, plot.bottom, "chance"),
        text(max(guessing - 24, 2.0), plot.top - 6, "guessing", "tick"),
    )
    described = []
    for i, (name, scores) in enumerate(rows):
        top = plot.top + i * step + 6
        drop = difference(scores.get(splits[-1]), scores.get(splits[0])) if len(splits) > 1 else None
        plot.add(text(4, top + 10, name, "row"))
        if drop is not None:
            plot.add(text(WIDTH - 4, top + 10, signed(drop), "row", "end"))
        ys = {split: top + head + lane * k for k, split in enumerate(splits)}
        seen = [split for split in splits if (scores.get(split) or {}).get("value") is not None]
        path = "L".join(f"{plot.x(scores[s]['value']):.1f} {ys[s]:.1f}" for s in seen)
        if path:
            plot.add(tag("path", d="M" + path, class_="slope"))
        for split in seen:
            metric, y = scores[split], ys[split]
            if metric.get("low") is not None and metric.get("high") is not None:
                plot.add(line(plot.x(metric["low"]), y, plot.x(metric["high"]), y, f"whisker s-{split}"))
            plot.add(
                tag(
                    "path",
                    tag("title", f"{name}, {split}: {estimate(metric)}"),
                    d=marker(SPLIT_SHAPES[split], plot.x(metric["value"]), y, 5),
                    class_=f"mark s-{split}",
                )
            )
        described.append(f"{name}: " + ", ".join(f"{split} {estimate(scores.get(split))}" for split in splits))
    return plot.svg(slug, f"{score[0].upper()}{score[1:]} of {dataset} under each split", ". ".join(described) + ".")


# ------------------------------------------------------------------------------------------------- ROC and PR curves


def mean_curve(kind: str, predictions: pd.DataFrame) -> list[tuple[float, float]]:
    """The ROC (false against true positive rate) or PR curve (recall against precision) of one class.

    Mean over the test folds and seeds, at 201 places along x, of the folds that have both labels: scores of different
    folds come from different models and are not on one scale. So the area under the curve is the metric as it is
    reported. Empty where no fold defines it.
    """
    grid, curves = np.linspace(0, 1, 201), []
    for _, fold in predictions.groupby(["seed", "fold"], sort=True):
        labels, scores = fold["label"].to_numpy(float), fold["score"].to_numpy(float)
        if len(np.unique(labels)) < 2:
            continue
        if kind == "roc":
            false, true, _ = roc_curve(labels, scores)
            curves.append(np.interp(grid, false, true))
        else:
            precision, recall, _ = precision_recall_curve(labels, scores)
            # ascending recall, without sklearn's last point (0, 1), which no threshold reaches; average precision
            # takes for each recall the precision of the first threshold that reaches it
            precision, recall = precision[:-1][::-1], recall[:-1][::-1]
            curves.append(precision[np.searchsorted(recall, grid.clip(1e-6) - 1e-9).clip(max=len(recall) - 1)])
    if not curves:
        return []
    start = [(0.0, 0.0)] if kind == "roc" else []
    return start + list(zip(grid.tolist(), np.mean(curves, axis=0).tolist()))


def curves_figure(
    slug: str, kind: str, split: str, predictions: pd.DataFrame, series: dict[str, Series], metrics: dict
) -> Markup:
    """``mean_curve`` of each class. ``predictions``: one split's rows; ``metrics``: that split's."""
    plot = Plot(280, 278, (0, 1), margin=(26, 8, 42, 44))
    x_label, y_label = ("false positive rate", "true positive rate") if kind == "roc" else ("recall", "precision")
    fifths = [0, 0.2, 0.4, 0.6, 0.8, 1]
    plot.x_axis(fifths, x_label)
    plot.y_axis(fifths, y_label)
    plot.add(text(plot.left, 16, f"{kind.upper()}, {split} split", "panel"))
    described = []
    if kind == "roc":
        plot.add(tag("path", d=f"M{plot.left} {plot.bottom}L{plot.right} {plot.top}", class_="chance"))
    for name, mark in series.items():
        chosen = predictions[predictions["class"] == name]
        points = mean_curve(kind, chosen)
        plot.curve(points, mark.colour)
        scores = metrics["classes"].get(name, {})
        if kind == "pr" and scores.get("prevalence") is not None:
            y = plot.y(scores["prevalence"])
            plot.add(line(plot.left, y, plot.right, y, f"prevalence {mark.colour}"))
        shown = scores.get("auroc" if kind == "roc" else "auprc")
        described.append(f"{name} {estimate(shown)}" if points else f"{name} undefined")
    area = "area under the ROC curve" if kind == "roc" else "area under the precision-recall curve"
    return plot.svg(slug, f"{kind.upper()} curves, {split} split", f"{area} by class: {', '.join(described)}.")


def calibration(predictions: pd.DataFrame, column: str = "score", bins: int = 10) -> pd.DataFrame:
    """Scores against what happened, all classes together: n, score (mean), share of positives, low and high.

    column: score, or probability, the score as it was calibrated. Bins of equal width; those with fewer than ten scores
    are left out. The interval is Wilson's, 95 %.
    """
    known = predictions[["label", column]].dropna()
    bin_of = (known[column].to_numpy(float) * bins).astype(int).clip(0, bins - 1)
    table = known.groupby(bin_of).agg(n=("label", "size"), score=(column, "mean"), share=("label", "mean"))
    table = table[table["n"] >= 10]
    n, p, z = table["n"], table["share"], 1.96
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return table.assign(low=middle - half, high=middle + half)


def calibration_figure(slug: str, split: str, tables: dict[Series, pd.DataFrame]) -> Markup:
    """Reliability diagram of ``calibration``'s tables: on the diagonal, a score is a probability."""
    plot = Plot(280, 278, (0, 1), margin=(26, 8, 42, 44))
    fifths = [0, 0.2, 0.4, 0.6, 0.8, 1]
    plot.x_axis(fifths, "score")
    plot.y_axis(fifths, "share of true members")
    plot.add(
        text(plot.left, 16, f"Calibration, {split} split", "panel"),
        tag("path", d=f"M{plot.left} {plot.bottom}L{plot.right} {plot.top}", class_="chance"),
    )
    described = []
    for series, table in tables.items():
        plot.curve(list(zip(table["score"], table["share"])), series.colour)
        for row in table.itertuples():
            x = plot.x(row.score)
            shown = f"{series.name}: {row.n} scores near {decimals(row.score)}: {decimals(row.share)} are members"
            mark = marker(series.shape, x, plot.y(row.share), 4)
            plot.add(
                line(x, plot.y(row.low), x, plot.y(row.high), f"whisker {series.colour}"),
                tag("path", tag("title", shown), d=mark, class_=f"mark {series.colour}"),
            )
        points = "; ".join(f"score {decimals(row.score)}, share {decimals(row.share)}" for row in table.itertuples())
        described.append(f"{series.name}: {points}")
    return plot.svg(slug, f"Calibration, {split} split", ". ".join(described) + ".")


def scatter_figure(slug: str, split: str, predictions: pd.DataFrame, score: dict | None) -> Markup:
    """Each tested receptor's predicted value (score) against the measured one (label); on the diagonal they agree."""
    xy = predictions[["label", "score"]].dropna().to_numpy(float)
    if len(xy) > MAX_POINTS:
        xy = xy[np.unique(np.linspace(0, len(xy) - 1, MAX_POINTS).round().astype(int))]
    low, high = (float(xy.min()), float(xy.max())) if len(xy) else (0.0, 1.0)
    pad = 0.04 * (high - low) or 1.0
    plot = Plot(280, 278, (low - pad, high + pad), (low - pad, high + pad), margin=(26, 8, 42, 52))
    plot.x_axis(ticks(low, high, 4), "measured")
    plot.y_axis(ticks(low, high, 4), "predicted")
    plot.add(
        text(plot.left, 16, f"{split} split", "panel"),
        tag("path", d=f"M{plot.left} {plot.bottom}L{plot.right} {plot.top}", class_="chance"),
        _cloud(plot, xy, Series(split, f"s-{split}", SPLIT_SHAPES[split]), 2.2 if len(xy) > 400 else 3.2),
    )
    described = f"{len(xy)} receptors; Spearman correlation {estimate(score)}."
    return plot.svg(slug, f"Predicted against measured, {split} split", described)


# -------------------------------------------------------------------------------------------------------- pretraining


def history_figure(
    slug: str, encoder: str, history: pd.DataFrame, best_step: int | None, kind: str, what: str = "a masked residue"
) -> Markup:
    """Loss, or accuracy on what was held out, against the training step. ``kind``: loss or accuracy."""
    columns = ["train_loss", "validation_loss"] if kind == "loss" else ["validation_accuracy"]
    lines = {}
    for column in columns:
        known = history[["step", column]].dropna()
        lines[column] = list(zip(known["step"].astype(float), known[column].astype(float)))
    values = [y for points in lines.values() for _, y in points] or [0.0, 1.0]
    low, high = (0.0, max(values) * 1.05) if kind == "loss" else (0.0, min(1.0, max(values) * 1.2))
    plot = Plot(WIDTH, 250, (0, max(float(history["step"].max()), 1.0)), (low, high or 1.0), margin=(14, 24, 42, 48))
    plot.x_axis(ticks(*plot.x_range, 5), "training step", ",.0f")
    plot.y_axis(ticks(low, high or 1.0, 5), f"loss, nats {what}" if kind == "loss" else "accuracy")
    if best_step is not None:
        at = plot.x(best_step)
        plot.add(line(at, plot.top, at, plot.bottom, "chance"))
        near_end = at > plot.right - 90
        plot.add(text(at + (-4 if near_end else 4), plot.top + 10, "kept model", "tick", "end" if near_end else None))
    described = []
    for column, points in lines.items():
        plot.curve(points, "c0" if column.startswith("validation") else "c1")
        if points:
            named = column.replace("_", " ")
            described.append(f"{named} goes from {decimals(points[0][1])} to {decimals(points[-1][1])}")
    return plot.svg(
        slug, f"Learning curve of {encoder}: {kind}", (listing(described) + f" by step {history['step'].max():,.0f}.")
    )


# ----------------------------------------------------------------------------------------------------- masked guesses


def masked_figure(slug: str, encoder: str, masked: pd.DataFrame) -> Markup:
    """Heat map of p(letter | rest of the chain): a column a hidden position, a row a letter, the true one framed."""
    width, left, top, cell_height = WIDTH, 26, 46, 15
    cell = min(30.0, (width - left - 8) / max(len(masked), 1))
    marks = [text(left, 14, encoder, "panel")]
    for j, letter in enumerate(RESIDUES):
        marks.append(text(left - 8, top + cell_height * (j + 0.75), letter, "residue", "middle"))
    bottom = top + cell_height * len(RESIDUES)
    for i, row in enumerate(masked.itertuples(index=False)):
        x = left + i * cell
        marks.append(text(x + cell / 2, top - 6, row.residue, "residue truth", "middle"))
        if i == 0 or (i + 1) % 5 == 0:
            marks.append(text(x + cell / 2, bottom + 16, i + 1, "tick", "middle"))
        for j, letter in enumerate(RESIDUES):
            p = getattr(row, letter)
            if p >= 0.004 and p == p:
                shade = f"{shade_of(p):.2f}"
                marks.append(
                    tag(
                        "rect",
                        tag("title", f"position {i + 1}, {letter}: p = {decimals(p)}"),
                        x=x + 0.5,
                        y=top + cell_height * j + 0.5,
                        width=cell - 1,
                        height=cell_height - 1.0,
                        class_="cell",
                        fill_opacity=shade,
                    )
                )
        if row.residue in RESIDUES:
            j = RESIDUES.index(row.residue)
            marks.append(
                tag(
                    "rect",
                    x=x + 1,
                    y=top + cell_height * j + 1.0,
                    width=cell - 2,
                    height=cell_height - 2.0,
                    class_="frame",
                )
            )
    marks.append(tag("rect", x=float(left), y=float(top), width=cell * len(masked),
                     height=float(bottom - top), class_="border"))  # fmt: skip
    marks.append(text(left + cell * len(masked) / 2, bottom + 34, "position in the shown stretch", "axis", "middle"))
    truth = [f"{row.residue}{i} {decimals(getattr(row, row.residue, None))}"
             for i, row in enumerate(masked.itertuples(index=False), 1)]  # fmt: skip
    described = f"Probability that {encoder} gives to the true residue when it is hidden: {', '.join(truth)}."
    return picture(width, bottom + 42, slug, f"Masked guesses of {encoder}", described, marks)


def attention_figure(slug: str, encoder: str, layer: int, table: pd.DataFrame) -> Markup:
    """Heat map of a layer's cross-attention: a row a token that is written, a column a token that is read."""
    names = [name for name in table.columns if name[0].isdigit()]
    letters = [_plain(name.split("_", 1)[1]) for name in names]
    left, top, cell = 40, 62, min(22.0, (WIDTH - 48) / len(names))
    marks = [text(left, 14, f"{encoder}, layer {layer}", "panel"), text(left, 34, "reads", "axis")]
    for i, letter in enumerate(letters):
        marks.append(text(left + cell * (i + 0.5), top - 8, letter, "residue", "middle"))
    strongest = []
    for j, row in enumerate(table.to_dict("records")):
        written = _plain(row["written"])
        marks.append(text(left - 8, top + cell * (j + 0.72), written, "residue", "end"))
        weights = [row[name] for name in names]
        best = int(np.argmax(weights))
        strongest.append(f"{written} from {letters[best]}{best} ({decimals(weights[best])})")
        for i, weight in enumerate(weights):
            if weight >= 0.004:
                hint = tag("title", f"writes {written}, reads {letters[i]} at {i}: {decimals(weight)}")
                place = {"x": left + cell * i + 0.5, "y": top + cell * j + 0.5, "width": cell - 1, "height": cell - 1}
                marks.append(tag("rect", hint, **place, class_="cell", fill_opacity=f"{weight:.2f}"))
    size = {"width": cell * len(names), "height": cell * len(table)}
    marks.append(tag("rect", x=float(left), y=float(top), **size, class_="border"))
    middle = number(top + size["height"] / 2)
    marks.append(text(0, 0, "writes", "axis", "middle", transform=f"translate(10 {middle}) rotate(-90)"))
    described = f"Where layer {layer} of {encoder} looks most while it writes: {', '.join(strongest)}."
    return picture(
        WIDTH, top + size["height"] + 8, slug, f"Cross-attention of {encoder}, layer {layer}", described, marks
    )


def shares_figure(slug: str, title: str, generated: dict, reference: dict, axis: str) -> Markup:
    """Two histograms, as shares, side by side in each bin: what was generated and what it should be like."""
    bins = sorted({*generated, *reference}, key=lambda key: (key.isdigit() and int(key), key))
    shares = [[part.get(key, 0) / (sum(part.values()) or 1) for key in bins] for part in (generated, reference)]
    top = max(max(part, default=0.0) for part in shares) or 1.0
    plot = Plot(WIDTH, 220, (-0.6, len(bins) - 0.4), (0, top * 1.05), margin=(28, 8, 42, 48))
    plot.add(text(4, 16, title, "panel"))
    plot.y_axis(ticks(0, top, 4), "share", ".2f" if top < 0.4 else ".1f")
    every = math.ceil(len(bins) * max(map(len, bins)) / 26)  # single letters all, numbers where they fit
    for i, key in enumerate(bins):
        if i % every == 0:
            plot.add(text(plot.x(i), plot.bottom + 16, key, "tick", "middle"))
        for share, name, colour, left, right in (
            (shares[0][i], "generated", "c0", -0.42, 0.0), (shares[1][i], "real", "c1", 0.0, 0.42)
        ):  # fmt: skip
            hint = tag("title", f"{key}, {name}: {decimals(share, 3)}")
            box = {"x": plot.x(i + left), "width": plot.x(i + right) - plot.x(i + left), "y": plot.y(share)}
            plot.add(tag("rect", hint, **box, height=plot.bottom - plot.y(share), class_=f"bar {colour}"))
    plot.add(text((plot.left + plot.right) / 2, plot.height - 6, axis, "axis", "middle"))
    commonest = [max(zip(part, bins))[1] for part in shares]
    described = f"{title}; the commonest is {commonest[0]} among the generated and {commonest[1]} among the real ones."
    return plot.svg(slug, title, described)


def _plain(token: str) -> str:
    """Start and end as one sign each; a letter as it is."""
    return {"<cls>": "\u25b7", "<eos>": "\u25a1"}.get(token, token)


def shade_of(p: float) -> float:
    """Opacity of a cell: the square root, so that a guess of 5 % can be seen beside one of 95 %."""
    return math.sqrt(min(max(p, 0.0), 1.0))


# --------------------------------------------------------------------------------------------------------------- maps


def map_figure(slug: str, title: str, places: pd.DataFrame, kinds: pd.Series, series: dict[str, Series]) -> Markup:
    """Scatter of ``places`` (tsne_1, tsne_2), each in the colour and shape of its kind; other kinds small and grey."""
    xy = places[["tsne_1", "tsne_2"]].to_numpy(float)
    known = np.isfinite(xy).all(1)
    xy, kinds = xy[known], kinds[known].to_numpy()
    if len(xy) > MAX_POINTS:
        keep = np.unique(np.linspace(0, len(xy) - 1, MAX_POINTS).round().astype(int))
        xy, kinds = xy[keep], kinds[keep]
    (x0, y0), (x1, y1) = (xy.min(0), xy.max(0)) if len(xy) else ((0, 0), (1, 1))
    pad_x, pad_y = 0.04 * (x1 - x0) or 1, 0.04 * (y1 - y0) or 1
    plot = Plot(WIDTH, 364, (x0 - pad_x, x1 + pad_x), (y0 - pad_y, y1 + pad_y), margin=(28, 4, 24, 20))
    plot.add(text(4, 16, title, "panel"))
    plot.add(
        tag(
            "rect",
            x=plot.left,
            y=plot.top,
            width=plot.right - plot.left,
            height=plot.bottom - plot.top,
            class_="border",
        ),
        text((plot.left + plot.right) / 2, plot.height - 6, "t-SNE 1", "axis", "middle"),
        text(0, 0, "t-SNE 2", "axis", "middle", transform=f"translate(12 {(plot.top + plot.bottom) // 2}) rotate(-90)"),
    )
    radius = 2.2 if len(xy) > 800 else 2.9 if len(xy) > 200 else 3.8
    others = ~np.isin(kinds, list(series))
    plot.add(_cloud(plot, xy[others], Series("other", "other"), radius * 0.7))
    for name, mark in series.items():
        plot.add(_cloud(plot, xy[kinds == name], mark, radius))
    counts = [f"{name} {int((kinds == name).sum())}" for name in series]
    if others.any():
        counts.append(f"other {int(others.sum())}")
    return plot.svg(slug, title, f"t-SNE map of {len(xy)} receptors: {', '.join(counts)}.")


def _cloud(plot: Plot, xy: np.ndarray, series: Series, radius: float) -> Markup:
    if not len(xy):
        return Markup("")
    data = "".join(marker(series.shape, plot.x(x), plot.y(y), radius) for x, y in xy)
    return tag("path", d=data, class_=f"cloud {series.colour}")
