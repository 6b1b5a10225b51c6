# Folds, seeds and the grid are inside one job: each start costs seconds.
rule classify:
    input:
        unpack(classify_input),
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
    # only a classifier that reads residues has an encoder at work
    threads: lambda wildcards: HALF_THE_CORES if reads_residues(wildcards) else 1
    resources:
        mem_mb=lambda wildcards: 16000 if reads_residues(wildcards) else 4000,
        runtime=lambda wildcards: 1440 if reads_residues(wildcards) else 240,
        gpu=lambda wildcards: GPUS if reads_residues(wildcards) else 0,
        device=CONFIG.compute.device,
    params:
        config=classify_part,
        version=STAGE_VERSIONS["classify"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer classify --config {params.config:q}'
        " --target {wildcards.dataset}/{wildcards.encoder}/{wildcards.pooling}/{wildcards.classifier}"
        " --device {resources.device} --threads {threads}"
        " --output $(dirname {output.metrics}) > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


# What every classifier of a dataset has to beat, and what leaks in it.
rule baselines:
    input:
        receptors=RESULTS.receptors("{dataset}"),
        chains=RESULTS.chains("{dataset}"),
        corpora=lambda wildcards: [RESULTS.chains(name) for name in read_before(wildcards.dataset)[1]],
    output:
        metrics=RESULTS.baselines("{dataset}") / "metrics.json",
        predictions=RESULTS.baselines("{dataset}") / "predictions.tsv",
    log:
        LOGS / "baselines" / "{dataset}.log",
    benchmark:
        BENCHMARKS / "baselines" / "{dataset}.tsv"
    conda:
        "../envs/airrformer.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        config=baselines_part,
        version=STAGE_VERSIONS["baselines"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer baselines --config {params.config:q} --dataset {wildcards.dataset}'
        " --output $(dirname {output.metrics}) > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


rule compare:
    input:
        compare_input,
    output:
        RESULTS.comparisons("{dataset}"),
    log:
        LOGS / "compare" / "{dataset}.log",
    benchmark:
        BENCHMARKS / "compare" / "{dataset}.tsv"
    conda:
        "../envs/airrformer.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        config=compare_part,
        version=STAGE_VERSIONS["compare"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer compare --config {params.config:q} --dataset {wildcards.dataset}'
        " --output {output} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
