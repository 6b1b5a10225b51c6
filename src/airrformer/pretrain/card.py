"""The model card: what the encoder is, what it saw, how well it guesses, and what it must not be taken for."""

from __future__ import annotations

from airrformer.config import PretrainEncoder, TrainSettings

_WORDS = {
    "framework": "framework (FR1 to FR4)",
    "cdr1_cdr2": "CDR1 and CDR2",
    "cdr3": "CDR3 (without its anchors)",
    "cdr3_germline": "CDR3, what follows from the genes",
    "cdr3_junction": "CDR3, the rest: the junction",
}


def write_card(name: str, settings: PretrainEncoder, metrics: dict) -> str:
    """Markdown from an encoder's settings and ``metrics.json``."""
    model, train = settings.model, settings.train
    encodes = settings.encodes
    ends = "at the last step" if metrics["steps"] == train.steps else "early, for the validation loss fell no further"
    decay = "along a cosine" if train.schedule == "cosine" else "with 1 / sqrt(step)"
    lines = [
        f"# Encoder {name}",
        "",
        f"{_WHAT[settings.objective]}, trained from scratch by airrformer: {model.layers} blocks of width "
        f"{model.width} with {model.heads} heads, {metrics['parameters']:,} parameters.",
        "",
        "## What it saw",
        "",
        *_saw(settings, metrics),
        "",
        "## How it was trained",
        "",
        f"{_task(settings)} AdamW, at a rate of {train.learning_rate:g} after {train.warmup_steps} steps of warm-up, "
        f"then down {decay}; batches of {train.batch_tokens:,} tokens. It stopped {ends}, {metrics['steps']:,}; the "
        f"weights are {_kept(train, metrics)}. It took "
        f"{metrics['seconds']:,.0f} s on {metrics['device']} in {metrics['precision']}.",
        "",
        f"## How well it {'guesses' if encodes else 'writes'}",
        "",
        *_measured(settings, metrics),
        "",
        "## What it is not",
        "",
        _WARNING["masked" if encodes else settings.objective],
        "",
    ]
    return "\n".join(lines)


_WHAT = {
    "masked": "A Transformer that guesses hidden residues of receptor chains",
    "contrastive": "A Transformer that gives receptors that differ little vectors that differ little",
    "both": "A Transformer that guesses hidden residues, and gives receptors that differ little vectors that do",
    "causal": "A decoder that writes receptor sequences, residue by residue",
    "seq2seq": "An encoder-decoder that writes strings of residues backwards",
}
_WARNING = {
    "masked": "It knows the kinds of chains above and little else. A likely residue is a common one, not a good "
    "binder, and how likely a chain is says nothing about what it binds.",
    "causal": "It writes what is common among the sequences above. Nothing that it writes has been shown to fold, to "
    "be safe, or to bind anything.",
    "seq2seq": "It is for teaching: strings of residues mean nothing to it, and it has seen no receptor.",
}


def _saw(settings: PretrainEncoder, metrics: dict) -> list[str]:
    if settings.objective == "seq2seq":
        return [
            "- Random strings of 8 to 16 of the twenty residues, new ones in each step, and each of them backwards."
        ]
    only_junctions = settings.sequence == ["junction"] and not settings.encodes
    what = "junctions (the CDR3 with both anchors)" if only_junctions else "chains"
    paired = f", in {metrics['n_receptors']:,} receptors" if settings.pairs else ""
    labels = "with their classes" if settings.supervised else "without any label"
    return [
        f"- {metrics['n_train']:,} distinct {what}{paired} of {_datasets(metrics['corpus'])}, {labels}.",
        *(
            [f"- {_written(settings)}"]
            if settings.encodes and (settings.sequence != ["chain"] or settings.pairs)
            else []
        ),
        f"- Not {metrics['n_validation']:,} distinct {what} of held-out receptors "
        f"({settings.train.validation_fraction:.0%} of the receptors, chosen by seed {metrics['seed']}), by which it "
        "is measured below; " + (_near(settings.train.held_out_edits) or "but relatives of theirs."),
        *([_about_test_receptors(settings)] if settings.encodes else []),
    ]


def _near(edits: int | dict[str, int]) -> str:
    """What was left out beside the held-out chains; "" for nothing."""
    named = edits if isinstance(edits, dict) else {"": edits}
    parts = [
        f"{locus} chains whose CDR3 is within {count} edit{'s' * (count > 1)} of theirs".lstrip()
        for locus, count in named.items()
        if count
    ]
    return f"nor {', nor '.join(parts)}." if parts else ""


_FORMS = {"chain": "whole", "junction": "as their junctions", "cdrs": "as CDR1, CDR2 and CDR3"}


def _written(settings: PretrainEncoder) -> str:
    forms = " or ".join(_FORMS[form] for form in settings.sequence)
    together = ", the two of a receptor together" if settings.pairs else ""
    told = "; species and locus were told in part" if settings.tags else ""
    return f"Chains were read {forms}{together}{told}."


def _task(settings: PretrainEncoder) -> str:
    train = settings.train
    smoothed = (
        f" {train.label_smoothing:.0%} of each target was spread over all letters." if train.label_smoothing else ""
    )
    if settings.encodes:
        hidden = (
            f"In each step {train.mask_fraction:.0%} of the residues were chosen{_weighted(train.cdr3_weight)}, of "
            "which 80 % were masked, 10 % replaced by a random amino acid and 10 % kept"
        )
        if settings.objective == "masked":
            return f"{hidden}; the loss counts the chosen ones alone.{smoothed}"
        return (
            f"{hidden}, in two views of each receptor{_noise(settings)}. It learned to tell which two views belong "
            f"together among those of the batch, by the cosine over {train.temperature:g}"
            + (f"; and to guess the chosen residues.{smoothed}" if settings.objective == "both" else ".")
        )
    beside = " and the string to turn round" if settings.objective == "seq2seq" else ""
    return f"It guessed each residue, and the end, from those before it{beside}.{smoothed}"


def _noise(settings: PretrainEncoder) -> str:
    train = settings.train
    more = []
    if train.substitute:
        more.append(f"{train.substitute:.0%} of the residues were replaced by ones like them")
    if settings.pairs and train.drop_chain:
        more.append(f"{train.drop_chain:.0%} of the views lacked one chain")
    return f" ({'; '.join(more)})" if more else ""


def _kept(train: TrainSettings, metrics: dict) -> str:
    average = f" of their exponential average (by {train.ema:g} a step)" if train.ema else ""
    if train.average > 1:
        every = f"one every {train.validate_every} steps"
        return f"the mean of those{average} at the last {train.average} validations, {every}"
    return f"those{average} of step {metrics['best_step']:,}, where the validation loss was lowest"


def _measured(settings: PretrainEncoder, metrics: dict) -> list[str]:
    perplexity = (
        "Perplexity says among how many equally likely letters it seems to choose: 1 is certain, 20 knows nothing. "
    )
    if settings.objective == "contrastive":
        return [f"Of the held-out receptors {metrics['views_told']:.1%} of the views were told among those of a batch."]
    if settings.encodes:
        unread = "" if "chain" in settings.sequence else " It was never taught to read a whole chain, as here it must."
        return [
            f"Every residue of the held-out chains was hidden once, {settings.train.mask_fraction:.0%} of a chain at a "
            f"time. {perplexity}Beside it stand two guesses from counts over the same training chains: the letters of "
            f"the region, and the letters at this offset in this region of this locus.{unread}",
            "",
            "| region | residues | guess | perplexity | guessed right |",
            "| --- | --- | --- | --- | --- |",
            *_table(metrics["regions"]),
            *_by_locus(metrics),
        ]
    if settings.objective == "causal":
        values, n = metrics["next_residue"], metrics["next_residue"]["n"]
        rows = (("", "this decoder"), ("position_unigram_", "letters by offset"))
        return [
            f"Over the residues and ends of the held-out sequences. {perplexity}Beside it stands a guess from counts "
            "over the same training sequences: the letters, and the end, at this offset.",
            "",
            "| residues and ends | guess | perplexity | guessed right |",
            "| --- | --- | --- | --- |",
            *(
                f"| {n:,} | {what} | {values[f'{prefix}perplexity']:.2f} | {values[f'{prefix}accuracy']:.1%} |"
                for prefix, what in rows
            ),
        ]
    values = metrics["reversal"]
    on = ", ".join(f"{share:.1%} in layer {i}" for i, share in enumerate(values["antidiagonal"], start=1))
    return [
        f"Of {values['n']:,} new strings it wrote {values['greedy_exact']:,} backwards exactly, taking the likeliest "
        f"residue each time, and {values['beam_exact']:,} with a beam of {values['beam_width']} (mean log p "
        f"{values['greedy_mean_score']:.4f} and {values['beam_mean_score']:.4f}). {values['example']} becomes "
        f"{values['example_reversed']}. While it writes, this much of the cross-attention lies on the residue to be "
        f"written: {on} (`cross_attention.tsv` has the example's).",
    ]


def _datasets(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _about_test_receptors(settings: PretrainEncoder) -> str:
    if settings.corpus == "train_folds":
        return (
            "- Classifiers are judged with the encoders in `folds/`, each of which never saw its test receptors; this "
            f"one, for new receptors, saw all{_and_labels(settings)}."
        )
    how = "" if settings.supervised else ", unlabelled"
    return (
        f"- Receptors on which classifiers are tested may be among them{how}; with `corpus: train_folds` the encoder "
        "of a fold never sees its test receptors."
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


def _by_locus(metrics: dict) -> list[str]:
    """The CDR3s of each locus; where published encoders were compared, beside theirs."""
    lines = [
        "",
        "CDR3s by locus; `germline` are residues that follow from the V and J gene, `junction` the others.",
        "",
        "| locus | encoder | CDR3 residues | perplexity | germline | junction |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = [("this encoder", metrics["regions_by_locus"]), *metrics["compared"].items()]
    for name, loci in found:
        who = name or "this encoder, on those that the published ones read"
        for locus, groups in loci.items():
            if groups["cdr3"]["n"]:
                shown = (groups[group]["perplexity"] for group in ("cdr3", "cdr3_germline", "cdr3_junction"))
                numbers = " | ".join("" if value is None else f"{value:.2f}" for value in shown)
                lines.append(f"| {locus} | {who} | {groups['cdr3']['n']:,} | {numbers} |")
    return lines if len(lines) > 5 else []


def _and_labels(settings: PretrainEncoder) -> str:
    return ", with their labels: what its vectors tell of these receptors is no finding" if settings.supervised else ""


def _weighted(cdr3_weight: float) -> str:
    return "" if cdr3_weight == 1 else f" (those of the CDR3 {cdr3_weight:g} times as readily as others)"
