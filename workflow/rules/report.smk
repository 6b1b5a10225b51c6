rule report:
    input:
        unpack(report_input),
    output:
        leaderboard=report(RESULTS.leaderboard, caption="../report/leaderboard.rst", category="Results"),
        pretraining=RESULTS.pretraining,
        page=report(RESULTS.report, caption="../report/report.rst", category="Results"),
    log:
        LOGS / "report.log",
    benchmark:
        BENCHMARKS / "report.tsv"
    conda:
        "../envs/airrformer.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        config=lambda wildcards: CONFIG.whole(),
        version=STAGE_VERSIONS["report"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer report --config {params.config:q}'
        " --output {output.page} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
