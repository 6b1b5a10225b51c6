"""The model card: what the encoder is, what it saw, how well it guesses, and what it must not be taken for."""

from __future__ import annotations

from airrformer.config import PretrainEncoder

_WORDS = {"framework": "framework (FR1 to FR4)", "cdr3": "CDR3 (without its anchors)"}


def write_card(name: str, settings: PretrainEncoder, metrics: dict) -> str:
    """Markdown from an encoder's settings and ``metrics.json``."""
    model, train = settings.model, settings.train
    ends = "at the last step" if metrics["steps"] == train.steps else "early, for the validation loss fell no further"
    lines = [
        f"# Encoder {name}",
        "",
        "A Transformer that guesses hidden residues of receptor chains, trained from scratch by airrformer: "
        f"{model.layers} blocks of width {model.width} with {model.heads} heads, {metrics['parameters']:,} parameters.",
        "",
        "## What it saw",
        "",
        f"- {metrics['n_train']:,} distinct chains of {_datasets(metrics['corpus'])}, without any label.",
        f"- Not {metrics['n_validation']:,} distinct chains of held-out receptors ({train.validation_fraction:.0%} of "
        f"the receptors, chosen by seed {metrics['seed']}), by which it is measured below; but relatives of theirs.",
        _about_test_receptors(settings),
        "",
        "## How it was trained",
        "",
        f"In each step {train.mask_fraction:.0%} of the residues were chosen{_weighted(train.cdr3_weight)}, of which "
        "80 % were masked, 10 % replaced by a random amino acid and 10 % kept; the loss counts the chosen ones alone. "
        "AdamW, at a rate of "
        f"{train.learning_rate:g} after {train.warmup_steps} steps of warm-up, then down along a cosine; batches of "
        f"{train.batch_tokens:,} tokens. It stopped {ends}, {metrics['steps']:,}; the weights are those of step "
        f"{metrics['best_step']:,}, where the validation loss was lowest. It took {metrics['seconds']:,.0f} s on "
        f"{metrics['device']} in {metrics['precision']}.",
        "",
        "## How well it guesses",
        "",
        f"Every residue of the held-out chains was hidden once, {train.mask_fraction:.0%} of a chain at a time. "
        "Perplexity says among how many equally likely letters it seems to choose: 1 is certain, 20 knows nothing. "
        "Beside it stand two guesses from counts over the same training chains: the letters of the region, and the "
        "letters at this offset in this region of this locus.",
        "",
        "| region | residues | guess | perplexity | guessed right |",
        "| --- | --- | --- | --- | --- |",
        *_table(metrics["regions"]),
        "",
        "## What it is not",
        "",
        "It knows the kinds of chains above and little else. A likely residue is a common one, not a good binder, and "
        "how likely a chain is says nothing about what it binds.",
        "",
    ]
    return "\n".join(lines)


def _datasets(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _about_test_receptors(settings: PretrainEncoder) -> str:
    if settings.corpus == "train_folds":
        return (
            "- Classifiers are judged with the encoders in `folds/`, each of which never saw its test receptors; this "
            "one, for new receptors, saw all."
        )
    return (
        "- Receptors on which classifiers are tested are among them, unlabelled; with `corpus: train_folds` the "
        "encoder of a fold never sees its test receptors."
    )


def _table(regions: dict[str, dict]) -> list[str]:
    rows = []
    for group, values in regions.items():
        if not values["n"]:
            rows.append(f"| {_WORDS[group]} | 0 | not measured: no held-out chain is numbered | | |")
            continue
        for prefix, what in (("", "this encoder"), ("position_unigram_", "letters by offset"), ("unigram_", "letters")):
            perplexity, accuracy = values[f"{prefix}perplexity"], values[f"{prefix}accuracy"]
            rows.append(f"| {_WORDS[group]} | {values['n']:,} | {what} | {perplexity:.2f} | {accuracy:.1%} |")
    return rows


def _weighted(cdr3_weight: float) -> str:
    return "" if cdr3_weight == 1 else f" (those of the CDR3 {cdr3_weight:g} times as readily as others)"
