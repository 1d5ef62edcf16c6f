"""The memory of containers that read one partition: `scripts/bench scale memory`.

One partition, because containers that can have partitions of their own get them, and share none.
"""

from __future__ import annotations

import bench_report as report
import click
from bench_input import random_records
from bench_measure import ROLES
from bench_scale_job import Ground, ScaledJob, measure_phase

PARTITIONS = 1
FACTOR = 4
CONTAINERS = (1, 2, 4)
RECORDS = 1_000_000
RECORD_BYTES = 100


def memory(ground: Ground) -> str:
    """Memory and CPU of 1, 2 and 4 containers of a job with one partition."""
    records = ground.sized(RECORDS, 40_000)
    rows = []
    settings = {"stores.counts.msg.serde": "bytes", "job.elasticity.factor": str(FACTOR)}
    with ScaledJob(ground, "scale-rss", "count_keys.py", partitions=PARTITIONS, cores=1, settings=settings) as job:
        job.factor = FACTOR
        base = 0.0
        for containers in CONTAINERS:
            job.start(containers)
            job.wait_at_work()
            phase = measure_phase(job, FACTOR, random_records(records, RECORD_BYTES, ground.seed))
            pss, rss = job.memory_mib(), sum(job.memory_mib("Rss").values())
            total = sum(pss.values())
            base = base or total
            click.echo(f"{containers} containers: PSS {total:.0f} MiB, RSS {rss:.0f} MiB, read {phase.read:.2f}")
            rows.append(
                (
                    f"{containers}",
                    *(f"{pss[role]:.0f}" for role in ROLES),
                    f"**{total:.0f}**",
                    f"{total / containers:.0f}",
                    f"{total / base:.2f}",
                    f"{rss:.0f}",
                    f"{phase.read:.2f}",
                    f"{phase.cpu_s_per_million:.1f}",
                )
            )
    return "\n\n".join(
        [
            "## Elasticity: containers that read the same partition",
            report.table(
                (
                    *("containers", *(f"{role} MiB" for role in ROLES), "together", "each", "to one"),
                    *("resident", "read", "CPU s per M records"),
                ),
                rows,
            ),
            report.bullets(
                [
                    f"A keyed count over one partition with factor {FACTOR}, so {FACTOR} tasks; "
                    f"each container has `local[1]`. The second and the others join the running job. {records:,} "
                    f"records of {RECORD_BYTES} bytes are handled before each look.",
                    "MiB are proportional set sizes by process tree (JVM, Python driver, workers), with shared "
                    "pages counted once; *resident* is the sum of resident sets. *Read*: offsets read for each record "
                    "handled, by all containers together.",
                ]
            ),
        ]
    )
