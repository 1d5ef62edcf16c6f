"""The job under test: running sums by key, plain and weighted by changing rules.

A rule is a message of a broadcast input: it sets a weight by name, or removes it. Every task keeps all of them, and for
each partition of that input how many it has read and a hash over those. Each answer shows the rules that its
task knew, so a checker of the rules can see whether that was ever right.
"""

import zlib

import samzapy

PARTITIONS = 2
WEIGHTS = 20


@samzapy.task
def rules(envelope, collector, context):
    ssp = envelope.ssp
    headers = {"src": f"{ssp.stream}-{ssp.partition}-{envelope.offset}".encode(), "task": context.task_name.encode()}
    rules = context.store("rules")
    if ssp.stream == "rules":
        obey(envelope, rules)
        received = {"n": envelope.value["n"], "read": read(rules)}
        collector.send("heard", received, headers=headers, partition=ssp.partition)
        return

    fed, key = envelope.value, envelope.key
    name = f"{fed['n'] % PARTITIONS}/{fed['n'] // PARTITIONS % WEIGHTS}"
    weight = rules.get(name)
    answer = {**fed, "read": read(rules), "name": name, "weight": weight}
    if key is None:
        collector.send("without-key", answer, headers=headers)
        return
    sums, weighted = context.store("sums"), context.store("weighted")
    sums.put((sums.get() or 0) + fed["x"])
    weighted.put((weighted.get() or 0) + fed["x"] * (1 if weight is None else weight))
    collector.send("sums", {**answer, "sum": sums.get(), "weighted": weighted.get()}, key=key, headers=headers)


def obey(envelope, rules):
    rule, partition = envelope.value, str(envelope.ssp.partition)
    count, hashed = rules.get(partition) or (0, 0)
    rules.put((count + 1, zlib.crc32(envelope.value_bytes, hashed)), partition)
    if rule["weight"] is None:
        rules.delete(rule["name"])
    else:
        rules.put(rule["weight"], rule["name"])


def read(rules):
    """Of each partition of the rules, how many were read and the hash over them."""
    return [rules.get(str(partition)) or (0, 0) for partition in range(PARTITIONS)]


if __name__ == "__main__":
    samzapy.run()
