"""`samzapy job`: commands that are loaded when they are called."""

from __future__ import annotations

from collections.abc import Mapping

from samzapy.cli.output.groups import LazyCommand, LazyGroup

COMMANDS: Mapping[str, LazyCommand] = {
    "delete": LazyCommand("samzapy.cli.job.removal:delete", "Delete a stopped job: topics, groups and local state."),
    "describe": LazyCommand("samzapy.cli.job.describe:describe", "Show all about a job on one screen."),
    "downgrade": LazyCommand("samzapy.cli.job.downgrade:downgrade", "Downgrade a stopped job to an earlier release."),
    "list": LazyCommand("samzapy.cli.job.lifecycle:list_jobs", "List the jobs on a Kafka cluster."),
    "plan": LazyCommand("samzapy.cli.job.plan:plan", "Show the plan that a submission would make now."),
    "reset": LazyCommand(
        "samzapy.cli.job.removal:reset", "Reset a stopped job, so that its next start is its first."
    ),
    "restart": LazyCommand("samzapy.cli.job.lifecycle:restart", "Restart the containers of a submitted job."),
    "rewind": LazyCommand("samzapy.cli.job.rewind:rewind", "Move a running job to another position in an input."),
    "scale": LazyCommand("samzapy.cli.job.scale:scale", "Change the factor or the number of containers."),
    "status": LazyCommand("samzapy.cli.job.status:status", "Show leader, containers, and the lag of each task."),
    "stop": LazyCommand("samzapy.cli.job.lifecycle:stop", "Stop a job: its containers drain and exit."),
    "submit": LazyCommand("samzapy.cli.job.submit:submit", "Submit a job: lead it and keep its containers running."),
    "token": LazyCommand("samzapy.cli.job.token:token", "Print a credential for the coordinator's HTTP port."),
    "top": LazyCommand("samzapy.cli.job.top:top", "Show the load of each task, and a hint."),
}

job = LazyGroup(table=COMMANDS, name="job", help="Manage a job: submit, stop, scale, rewind, plan, status.")
