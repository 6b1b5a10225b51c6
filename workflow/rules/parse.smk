rule parse:
    input:
        placed_files,
    output:
        chains=RESULTS.chains("{dataset}"),
        receptors=RESULTS.receptors("{dataset}"),
        rejected=RESULTS.rejected("{dataset}"),
        genes=RESULTS.genes("{dataset}"),
        summary=RESULTS.parse_summary("{dataset}"),
    log:
        LOGS / "parse" / "{dataset}.log",
    benchmark:
        BENCHMARKS / "parse" / "{dataset}.tsv"
    conda:
        "../envs/airrformer.yaml"
    threads: 8
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        config=parse_part,
        moving=moving_files,
        version=STAGE_VERSIONS["parse"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer parse --config {params.config:q} --dataset {wildcards.dataset}'
        " --output $(dirname {output.chains}) --threads {threads} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
