"""What a coordinator stream says at some moment, worked out without a line of samzapy: of it only `schemas/` is used.

So a fault in the coordinator's fold, in its codec or in the audit commands cannot hide itself: it would have to be made
here a second time. It also reads the files of `samzapy stream export`, by what they say of themselves.
"""

import io
import json
import re
from pathlib import Path

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

SCHEMAS = {}
for path in (Path(__file__).parents[2] / "schemas").glob("*.avsc"):
    declared = json.loads(path.read_text(encoding="utf-8"))
    digits = fingerprint(to_parsing_canonical_form(declared), "CRC-64-AVRO")
    SCHEMAS[bytes.fromhex(digits)] = fastavro.parse_schema(declared)

SSP_KB = re.compile(
    r"(?P<system>[^.]+)\.(?P<stream>.+)\.(?P<partition>\d+)(:(?P<bucket>\d+)/(?P<factor>\d+))?", re.DOTALL
)
ALIVE = {"STARTED", "RUNNING"}


def records_in(file):
    """(offset, key, value, headers) of each record of an export."""
    with open(file, "rb") as opened:
        rows = list(fastavro.reader(opened))
    assert rows[-1] == {"record_count": len(rows) - 1}
    return [(row["offset"], row["key"], row["value"], row["headers"]) for row in rows[:-1]]


def moment(records, offset):
    """All that was known behind the record at `offset`, in the shape of `samzapy stream state -o json`."""
    facts = {}
    for at, key, value, _ in records:
        if at <= offset:
            facts.pop(key.decode(), None)
            if value is not None:
                facts[key.decode()] = datum(value)
    by_kind = {}
    for key in sorted(facts):
        by_kind.setdefault(key.split("/")[0], {})[key] = facts[key]
    return {"job_model": job_model(by_kind), "owners": owners(by_kind), "records": by_kind}


def datum(value):
    assert value[:2] == b"\xc3\x01"
    body = io.BytesIO(value[10:])
    found = fastavro.schemaless_reader(body, SCHEMAS[value[2:10]])
    assert not body.read()
    return found


def job_model(by_kind):
    in_force = by_kind.get("generation", {}).get("generation")
    if in_force is None:
        return None
    tasks = [
        task
        for key, task in by_kind.get("plan", {}).items()
        if key.startswith(f"plan/{in_force['generation']}/task/")
    ]
    tasks.sort(key=lambda task: (task["partition_id"], task["task_name"]))
    processors = {task["processor_id"] for task in tasks} | set(in_force["processor_ids"])
    return {
        "generation": in_force["generation"],
        "config": {item["config_key"]: item["value"] for item in by_kind.get("config", {}).values()},
        "containers": [
            {
                "processor-id": processor,
                "location-id": by_kind.get("locality", {}).get(f"locality/{processor}", {}).get("host"),
                "tasks": [task_model(task) for task in tasks if task["processor_id"] == processor],
            }
            for processor in sorted(processors, key=lambda found: (len(found), found))
        ],
    }


def task_model(task):
    return {
        "task-name": task["task_name"],
        "mode": task["mode"],
        "partition": task["partition_id"],
        "changelog-partition": task["changelog_partition"],
        "system-stream-partitions": [ssp(text) for text in task["ssp_kbs"]],
        "broadcast-system-stream-partitions": [ssp(text) for text in task["broadcast_ssps"]],
    }


def ssp(text):
    parts = SSP_KB.fullmatch(text)
    found = {"system": parts["system"], "stream": parts["stream"], "partition": int(parts["partition"])}
    if parts["factor"] in (None, "1"):
        return {**found, "keyBucket": -1}
    return {**found, "keyBucket": int(parts["bucket"]), "keyBucketFactor": int(parts["factor"])}


def owners(by_kind):
    newest = {}
    for grant in by_kind.get("grant", {}).values():
        newest[grant["task_name"]] = max(grant, newest.get(grant["task_name"], grant), key=lambda one: one["epoch"])
    found = {}
    for task, grant in newest.items():
        container = by_kind.get("container", {}).get(f"container/{grant['execution_id']}")
        if container is not None and container["phase"] in ALIVE and not grant["released"]:
            found[task] = grant["execution_id"]
    return found
