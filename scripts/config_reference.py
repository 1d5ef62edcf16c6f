"""Writes two pages of the documentation from the tables of keys.

`docs/reference/configuration.md` comes from `samzapy/config/keys.py`, and `docs/guides/coming-from-samza.md` from
`samzapy/config/samza_keys.py`. Unit tests hold them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from samzapy.config import CLIENT_PROPERTIES_REFUSED, KEYS, KINDS, REQUIRED, SAMZA_KEYS, ConfigKey, SamzaKey
from samzapy.config.samza_keys import SAMZA_CLASSES

_DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = _DOCS / "reference" / "configuration.md"
SAMZA_PAGE = _DOCS / "guides" / "coming-from-samza.md"

_HEAD = """# Configuration

Written by `scripts/config_reference` from `samzapy/config/keys.py`; do not edit it by hand.

A job's settings are Samza's dotted keys in a Java properties file:
the file of the same name beside the job file (`flight_delays.py` reads `flight_delays.properties`),
or another one given with `--config FILE`.
The job's groupers and the modules that it imports are beside the path by which the job file is named, a link or not.
`samzapy job plan` and `samzapy config check` take that path as `--job-file` if the properties file is elsewhere.
`samzapy run`, spark-submit, `samzapy job submit` and `samzapy job plan` log which files they read.
Each of these wins over the ones before it:

1. the default,
2. the properties file,
3. the environment, for keys without a `<name>` in them: `SAMZAPY_SET_JOB_NAME` sets `job.name`,
4. `--set key=value` on the command line.

The file is read as `java.util.Properties` reads it: `\\\\` is a backslash, `\\:`, `\\=` and `\\ ` are the characters
themselves. `\\t`, `\\n` and `\\u00e9` mean the same as in Java. A single backslash at the end continues the line.
Lines end at `\\n`, `\\r` or `\\r\\n` and nowhere else.
The file is UTF-8. Java takes a file for ISO-8859-1 by default, so write characters that are not ASCII as `\\uXXXX` in a
file that Java programs read too. A byte order mark is refused by name, and so is a key that is set twice.
Blanks behind a value are no part of it, unless the last one is escaped.
`--set` and the environment have no escapes.

In any value `${env:NAME}` means the environment variable `NAME` of the process that reads it.
It works for every key, also for those with a `<name>`, and may be a part of the value.
A variable that is not set is refused by name, where the value counts.

A key that is not in the tables below is refused, and the message names the nearest one where one is near.
A key of Samza's is refused with its replacement ([coming-from-samza.md](../guides/coming-from-samza.md)).
One message lists all errors. `~` is no home directory in a path; write `${env:HOME}`.
Keys that begin with `spark.` are spark-submit's: pass them with `--conf`.
A few of those are refused too, because order or exactly-once depends on them; the message names the key and the reason.
Times are in milliseconds, sizes in bytes, and `required` means that there is no default.
The cache for the broker's jars and archives of classes is no setting of a job:
it is `SAMZAPY_CACHE_DIR`, else `samzapy` below `XDG_CACHE_HOME` or `~/.cache`. The jars come from Maven Central,
or from the Maven repository whose URL is in `SAMZAPY_MAVEN_REPOSITORY` (`https://`, `http://` or `file:///`).
For a repository that needs a password, and for every other choice of Ivy's, name an Ivy settings file in
`SAMZAPY_IVY_SETTINGS`.
A jar whose SHA-256 is not the locked one is refused from any source.

## Where a value comes from

`samzapy config explain KEY --config FILE` shows a key's value, the line, variable or `--set` that sets it,
its meaning, and the places that would override it.
Without KEY, or with a pattern (`'job.container.*'`), it lists several.
It asks no cluster, unless `--job NAME-ID` or `--bootstrap-servers` is given:
then it also shows the value with which the job was started, as the coordinator stream records it.
`samzapy config check --config FILE` refuses the settings that a start would refuse, as far as that needs no cluster.
It loads the job file as a start does: the one of `--job-file`, or else the one beside FILE, if there is one.

All processors of a job run under one configuration, the recorded one.
A process that brings another one is refused while others run (code 3).
A process that was started at the same moment may notice that only with its first task. It ends before it has processed
any message (code 2). Both name the keys that differ.
A restart of the whole job with other settings changes the record, key by key:
`ConfigSet`, `ConfigChanged` and `ConfigRemoved` in `samzapy stream replay`, each with the old and the new value.
Keys that may differ between the processes of a job are neither recorded nor compared.

## Change a setting of a running job

`samzapy job scale` changes the factor while the job runs, and the number of containers of a submitted job.
For other keys the meaning in the tables decides. Some end with *May differ between the processes of a job*.

A key without that note is a setting of the whole job:

1. Write a copy of the properties file with the new value. `samzapy config check --config COPY --job-file JOB_FILE`
   checks it, and `samzapy job plan` with the same options shows the change of the plan.
2. `samzapy job stop --config FILE` waits until all containers have ended. Only then replace the properties file on
   each host. A container that reads it while others run under the old one is refused.
3. Start each container of a self-managed job again (`samzapy run`). Start each coordinator of a submitted job again
   (`samzapy job submit`); the leader starts the containers.

State and positions of a streaming job are kept.

A key with that note needs only a new start of the processes that read it, one after the other:

- Self-managed container: end it with SIGTERM, and start it again.
- Coordinator of a submitted job: end it with SIGTERM, and repeat its command. The containers continue
  ([cluster.md](../guides/cluster.md#coordinators)).
- Container of a submitted job: `samzapy job restart`. A container reads the file when it starts. It gets a value of
  `--set` from the coordinator, so start the coordinators again first.

## Secrets

A secret is a property of the Kafka clients, `systems.<system>.client.<property>`, and the property's name decides.
Secrets are all names like password, passphrase, token, credential or private key,
and all of `sasl.jaas.config`, `sasl.oauthbearer.*` and `ssl.key*`, but not the place of a key (`ssl.key.location`).
Its value is shown nowhere. In the coordinator stream, in `/jobModel` and `samzapy job plan`, in logs, messages and
`samzapy config explain` it is `***`, and a task, a grouper or a location provider sees that too.
So a change of the password is no change of the configuration.
Keep it in the properties file, readable by the job's user only, or in the environment of the job's processes:

```properties
systems.kafka.client.sasl.username=flights
systems.kafka.client.sasl.password=${env:KAFKA_PASSWORD}
```

Every user of the host can read a command line, so a `--set` with a secret is refused,
and so is an option of spark-submit that sounds like one,
or in whose value a setting does (`--driver-java-options -Djavax.net.ssl.trustStorePassword=...`).
`--set systems.kafka.client.sasl.password='${env:KAFKA_PASSWORD}'` is taken.
The key decides whether a value is a secret, and not the variable:
under a key that is no secret, the value of the variable is shown and recorded.
"""

_SAMZA_HEAD = Path(__file__).with_name("coming_from_samza.md").read_text(encoding="utf-8")

_SAMZA_CLASSES_HEAD = """
Groupers of a job are classes of Python here (`module:Class`, [planning.md](planning.md)).
Samza's own groupers have these counterparts:

| class of Samza's | here |
|---|---|
"""

_GROUPS = {
    "job": "The job and its coordinator",
    "task": "Tasks, batches and transactions",
    "systems": "Clusters and streams",
    "stores": "Stores",
    "cluster-manager": "Containers that the coordinator starts",
    "cluster": "Settings with which they are started",
    "local": "This host",
    "locationid": "Location of the host",
    "processor": "This process",
}


def page() -> str:
    """The whole page."""
    unknown = {_group(key) for key in KEYS} - _GROUPS.keys()
    assert not unknown, f"keys of {', '.join(sorted(unknown))} have no heading here"
    return "\n".join((_HEAD, *_tables()))


def samza_page() -> str:
    """The whole page of Samza's keys."""
    keys = "".join(f"| `{key.name}` | {_answer(key)} |\n" for key in SAMZA_KEYS)
    classes = "".join(f"| `{name}` | {text[:1].upper()}{text[1:]}. |\n" for name, text in SAMZA_CLASSES.items())
    return f"{_SAMZA_HEAD}{keys}{_SAMZA_CLASSES_HEAD}{classes}"


def _answer(key: SamzaKey) -> str:
    # In a page, angle brackets outside of code would be HTML.
    return re.sub(r"\b(?:systems|stores)\.[\w.]*<[\w.<>]+>(?:[\w.=]*\w)?", r"`\g<0>`", key.answer)


def _tables() -> Iterator[str]:
    for group, heading in _GROUPS.items():
        yield f"## {heading}\n\n| key | default | values | meaning |\n|---|---|---|---|"
        yield from (_row(key) for key in KEYS if _group(key) == group)
        yield _refused() if group == "systems" else ""


def _group(key: ConfigKey) -> str:
    return key.name.partition(".")[0]


def _row(key: ConfigKey) -> str:
    default = "required" if key.default is REQUIRED else "" if key.default in (None, "") else f"`{key.default}`"
    values = ", ".join(f"`{choice}`" for choice in key.choices) or KINDS[key.kind] + _bounds(key)
    meaning = f"{key.meaning} May differ between the processes of a job." if key.of_process else key.meaning
    cells = (f"`{key.name}`", default, values, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _bounds(key: ConfigKey) -> str:
    default = ConfigKey(name="", meaning="")
    least = f", at least {key.least}" if key.least != default.least else ""
    return least + (f", at most {key.most}" if key.most != default.most else "")


def _refused() -> str:
    names = ", ".join(f"`{name}`" for name in CLIENT_PROPERTIES_REFUSED)
    return (
        "\nRefused under `systems.<system>.client.`, because samzapy sets them itself and exactly-once rests on them:\n"
        f"{names}.\n"
    )


if __name__ == "__main__":
    for path, text in ((PAGE, page()), (SAMZA_PAGE, samza_page())):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(path.parent.parent)}")
