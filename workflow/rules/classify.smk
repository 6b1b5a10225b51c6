# Folds, seeds and the grid are inside one job: each start costs seconds.
rule classify:
    input:
        features=RESULTS.features("{dataset}", "{encoder}", "{pooling}"),
        folds=lambda wildcards: [RESULTS.folds(*wildcards[:2])] if wildcards.encoder in FOLDED else [],
        receptors=RESULTS.receptors("{dataset}"),
        chains=RESULTS.chains("{dataset}"),
    output:
        metrics=RESULTS.classifier("{dataset}", "{encoder}", "{pooling}", "{classifier}") / "metrics.json",
        predictions=RESULTS.classifier("{dataset}", "{encoder}", "{pooling}", "{classifier}") / "predictions.tsv",
        model=directory(RESULTS.classifier("{dataset}", "{encoder}", "{pooling}", "{classifier}") / "model"),
        card=RESULTS.classifier("{dataset}", "{encoder}", "{pooling}", "{classifier}") / "card.md",
    log:
        LOGS / "classify" / "{dataset}" / "{encoder}" / "{pooling}" / "{classifier}.log",
    benchmark:
        BENCHMARKS / "classify" / "{dataset}" / "{encoder}" / "{pooling}" / "{classifier}.tsv"
    conda:
        "../envs/airrformer.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        config=classify_part,
        version=STAGE_VERSIONS["classify"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer classify --config {params.config:q}'
        " --target {wildcards.dataset}/{wildcards.encoder}/{wildcards.pooling}/{wildcards.classifier}"
        " --output $(dirname {output.metrics}) > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
