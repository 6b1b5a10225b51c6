rule explain_map:
    input:
        features=[RESULTS.features("{dataset}", "{encoder}", pooling) for pooling in DENSE_POOLINGS],
        receptors=RESULTS.receptors("{dataset}"),
    output:
        [RESULTS.map("{dataset}", "{encoder}", pooling) for pooling in DENSE_POOLINGS or ["none"]],
    log:
        LOGS / "explain" / "map" / "{dataset}" / "{encoder}.log",
    benchmark:
        BENCHMARKS / "explain" / "map" / "{dataset}" / "{encoder}.tsv"
    wildcard_constraints:
        encoder=one_of(DENSE),
    conda:
        "../envs/airrformer.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        config=map_part,
        version=STAGE_VERSIONS["explain_map"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer explain map --config {params.config:q} --dataset {wildcards.dataset}'
        " --encoder {wildcards.encoder} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


# A few positions of one chain: the CPU is enough, also for an encoder that was trained on a GPU.
rule explain_masked:
    input:
        lambda wildcards: encoder_files(wildcards.encoder),
    output:
        RESULTS.masked("{encoder}"),
    log:
        LOGS / "explain" / "masked" / "{encoder}.log",
    benchmark:
        BENCHMARKS / "explain" / "masked" / "{encoder}.tsv"
    wildcard_constraints:
        encoder=one_of(GUESSING),
    conda:
        "../envs/airrformer.yaml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        sequence=EXAMPLE.sequence if EXAMPLE else "",
        region=EXAMPLE.region if EXAMPLE else "",
        version=STAGE_VERSIONS["explain_masked"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer explain masked --encoder $(dirname {output}) --sequence {params.sequence:q}'
        " --region {params.region:q} --output {output} --device cpu > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
