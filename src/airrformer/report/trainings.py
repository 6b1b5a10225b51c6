"""What was trained in this run: ``pretraining.tsv``, a row an encoder, and the page's part about each of them."""

from __future__ import annotations

import pandas as pd

from airrformer.config import Config, PretrainEncoder
from airrformer.paths import Results
from airrformer.receptors.tables import write_table
from airrformer.report import figures, words
from airrformer.report.read import read_json, read_tsv

_FORM = ("layers", "width", "heads", "feed_forward", "positions", "norm", "norm_place", "activation")
_MEASURES = ("perplexity", "accuracy", "position_unigram_perplexity", "position_unigram_accuracy")
_HISTORY = ("step", "train_loss", "validation_loss", "validation_accuracy")
COLUMNS = (
    *("encoder", "objective", *_FORM, "parameters", "steps", "best_step", "seconds"),
    *(f"{region}_{measure}" for region in ("framework", "cdr3") for measure in _MEASURES),
    *(f"next_residue_{measure}" for measure in _MEASURES),
    *("reversal_greedy_exact", "reversal_beam_exact", "reversal_antidiagonal"),
    *("largest_gradient", "gradient_spike", "loss_rise"),
)


def pretraining_table(config: Config, results: Results) -> pd.DataFrame:
    """``COLUMNS``, a row for each encoder trained here; what an objective does not measure is empty.

    ``reversal_antidiagonal`` is that of the last layer. ``gradient_spike`` is the largest gradient as a multiple of the
    median between validations, ``loss_rise`` the largest rise of the training loss from one validation to the next.
    """
    rows = []
    for name, encoder in _trained(config):
        metrics = read_json(results.encoder(name) / "metrics.json") or {}
        row = {"encoder": name, "objective": encoder.objective}
        row |= {field: getattr(encoder.model, field) for field in _FORM}
        row |= {field: metrics.get(field) for field in ("parameters", "steps", "best_step", "seconds")}
        parts = (metrics.get("regions") or {}) | {"next_residue": metrics.get("next_residue") or {}}
        row |= {f"{part}_{m}": values.get(m) for part, values in parts.items() for m in _MEASURES}
        reversal = metrics.get("reversal") or {}
        row |= {f"reversal_{kind}_exact": reversal.get(f"{kind}_exact") for kind in ("greedy", "beam")}
        row["reversal_antidiagonal"] = (reversal.get("antidiagonal") or [None])[-1]
        rows.append(row | (metrics.get("stability") or {}))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    counts = ["parameters", "steps", "best_step", "reversal_greedy_exact", "reversal_beam_exact"]
    return table.astype(dict.fromkeys(counts, "Int64")).round(6)


def write_pretraining(config: Config, results: Results) -> pd.DataFrame:
    """Write ``results.pretraining`` from the encoders' ``metrics.json`` and return it."""
    table = pretraining_table(config, results)
    write_table(table, results.pretraining)
    return table


def side_by_side(config: Config, results: Results) -> list[dict]:
    """Rows of the page's comparison, of encoders with measured regions; none for fewer than two of them."""
    table = pretraining_table(config, results)
    rows = table[table["cdr3_perplexity"].notna()].to_dict("records")
    return rows if len(rows) > 1 else []


def trainings(config: Config, results: Results) -> list[dict]:
    """For each encoder trained here its numbers, figures and sentences, in config order."""
    found = []
    for i, (name, encoder) in enumerate(_trained(config)):
        history = read_tsv(results.encoder(name) / "history.tsv", needed=_HISTORY)
        metrics = read_json(results.encoder(name) / "metrics.json")
        if history is None and metrics is None:
            continue
        kept = (metrics or {}).get("best_step") if encoder.train.average == 1 else None
        panels = []
        if history is not None and len(history):
            what = {
                "contrastive": "a view",
                "both": "a view and its hidden residues",
                "masked": "a masked residue",
            }.get(encoder.objective, "a residue")
            panels = [
                figures.history_figure(f"{kind}-{i}", name, history, kept, kind, what) for kind in ("loss", "accuracy")
            ]
        looking = results.encoder(name) / "cross_attention.tsv"
        attention = read_tsv(looking, text=("written",), needed=("layer", "written"))
        looks = [] if attention is None else [
            figures.attention_figure(f"attention-{i}-{layer}", name, layer, part)
            for layer, part in attention.groupby("layer")
        ]  # fmt: skip
        generated = read_json(results.generated(name).with_suffix(".json"))
        found.append(
            {
                "name": name,
                "objective": encoder.objective,
                "metrics": metrics,
                "kept": kept,
                "panels": panels,
                "looks": looks,
                "likeness": _likeness(generated or {}, i, name),
                "sentences": [*_learned(metrics or {}), *_reversed(metrics or {}), *_generated(generated or {})],
            }
        )
    return found


def _trained(config: Config) -> list[tuple[str, PretrainEncoder]]:
    return [(name, encoder) for name, encoder in config.encoders.items() if isinstance(encoder, PretrainEncoder)]


def _learned(metrics: dict) -> list[str]:
    """Per region, whether the encoder guesses better than the best guess without context."""
    parts = (metrics.get("regions") or {}) | (
        {"next residue, or the end": metrics["next_residue"]} if metrics.get("next_residue") else {}
    )
    sentences = []
    for part, m in parts.items():
        kinds = [kind for kind in ("position_unigram", "unigram") if m.get(f"{kind}_perplexity") is not None]
        if not kinds or m.get("perplexity") is None:
            continue
        rival = min(kinds, key=lambda kind: m[f"{kind}_perplexity"])
        better = m["perplexity"] < m[f"{rival}_perplexity"]
        plain = {"position_unigram": "residue frequencies at each position", "unigram": "residue frequencies"}[rival]
        sentences.append(
            f"{_part_name(part)}: perplexity {words.decimals(m['perplexity'])} against "
            f"{words.decimals(m[f'{rival}_perplexity'])} for {plain}"
            + ("." if better else ": it has learned no more than that.")
        )
    return sentences


def _part_name(part: str) -> str:
    return part.upper() if part.startswith(("cdr", "fwr")) else part.capitalize()


def _generated(generated: dict) -> list[str]:
    """How many of the generated sequences are valid and new, and how like the real ones they are together."""
    if not generated:
        return []
    what, shares = generated["settings"]["sequence"], generated["shares"]
    parts = {"valid": f"have the form of a {what}", "new": "are in no training file", "valid_and_new": "are both"}
    counted = [f"{words.percent(shares[key], 1)} {said}" for key, said in parts.items() if key in shares]
    sentences = [f"Of {words.count(generated['n'], 'generated sequence')} {words.listing(counted)}."]
    if found := generated.get("distances"):
        sentences.append(
            f"Total variation between the generated and the real ones: {words.decimals(found['lengths']['generated'])} "
            f"in length and {words.decimals(found['residues']['generated'])} in residues; as many real ones drawn at "
            f"random differ from the rest by {words.decimals(found['lengths']['yardstick'])} and "
            f"{words.decimals(found['residues']['yardstick'])}."
        )
    return sentences


def _likeness(generated: dict, index: int, name: str) -> list:
    """Figures of the generated sequences' lengths and residues beside the real ones'."""
    if "reference" not in generated.get("lengths", {}):
        return []
    return [
        figures.shares_figure(f"{part}-{index}", f"{name}: {part}", generated[part]["generated"],
                              generated[part]["reference"], axis)
        for part, axis in (("lengths", "residues in a sequence"), ("residues", "residue"))
    ]  # fmt: skip


def _reversed(metrics: dict) -> list[str]:
    values = metrics.get("reversal")
    if not values:
        return []
    return [
        f"{words.count(values['greedy_exact'])} of {words.count(values['n'], 'new random string')} came out backwards "
        f"exactly, and {words.count(values['beam_exact'])} with a beam of {values['beam_width']}. "
        f"{values['example']} became {values['example_reversed']}. While it writes, "
        f"{words.percent(values['antidiagonal'][-1], 1)} of the last layer's cross-attention lies on the residue to be "
        "written."
    ]
