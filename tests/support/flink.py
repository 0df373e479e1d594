"""A real Flink cluster and Beam's job server for it: a JobManager, a TaskManager with two slots, three JVMs in all."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.services import START_MAX_S, free_port, stop, wait_for

POM = Path(__file__).with_name("flink_jars") / "pom.xml"
BUILD = Path(__file__).parents[2] / "build"
SLOTS = 2
# Flink reaches into these packages; its start scripts, which no jar holds, open them.
OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.time", "java.util",
                    "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch")
]  # fmt: skip
RESOURCES = {
    "taskmanager.cpu.cores": "2.0", "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.task.off-heap.size": "0b", "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.network.min": "64m", "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.framework.heap.size": "128m", "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m", "taskmanager.memory.jvm-overhead.min": "128m",
    "taskmanager.memory.jvm-overhead.max": "128m",
}  # fmt: skip
"""A TaskManager that no script started must be told each of these."""


def flink_jars() -> Path:
    """Return the folder of the jars, fetched once with Maven; skips the test where its registry refuses one."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("no Maven on this machine: Flink's jars come with it")
    BUILD.mkdir(exist_ok=True)
    jars, stamp = BUILD / "flink-jars", BUILD / "flink-jars.pom"
    with (BUILD / "flink-jars.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_bytes() != POM.read_bytes():
            shutil.rmtree(jars, ignore_errors=True)
            fetch = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
            done = subprocess.run(fetch, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode:
                refusal = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no word of it")
                pytest.skip(f"Maven did not bring Flink's jars: {refusal}")
            stamp.write_bytes(POM.read_bytes())
    return jars


class FlinkCluster:
    """`job_port` is where Beam's job server takes pipelines for the cluster."""

    def __init__(self, java: str, folder: Path) -> None:
        self.folder = folder
        self._java = [
            java,
            *OPENED,
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Xmx512m",
            "-cp",
            f"{flink_jars()}/*",
        ]
        self.rest_port, self.job_port = free_port(), free_port()
        self.started: list[subprocess.Popen[bytes]] = []
        self.task_manager: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start all three; returns once the cluster has its slots and the job server listens."""
        conf = self.folder / "conf"
        conf.mkdir()
        settings = {
            "jobmanager.rpc.address": "localhost", "jobmanager.rpc.port": free_port(), "rest.port": self.rest_port,
            "rest.address": "localhost", "jobmanager.memory.process.size": "1024m", "taskmanager.host": "localhost",
            "taskmanager.numberOfTaskSlots": SLOTS, "io.tmp.dirs": str(self.folder),
            "heartbeat.interval": 1000, "heartbeat.timeout": 10000, "slot.request.timeout": 20000,
        }  # fmt: skip
        (conf / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
        self._launch("job-manager", "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
                     "--configDir", str(conf))  # fmt: skip
        wait_for(self.rest_port)
        self.start_task_manager()
        self._launch(
            "job-server", "org.apache.beam.runners.flink.FlinkJobServerDriver", "--job-host=127.0.0.1",
            f"--job-port={self.job_port}", "--artifact-port=0", "--expansion-port=0",
            f"--artifacts-dir={self.folder / 'artifacts'}", f"--flink-master=localhost:{self.rest_port}",
        )  # fmt: skip
        wait_for(self.job_port)

    def start_task_manager(self) -> None:
        """Start one, also in the place of one that was killed; returns once the cluster has its slots."""
        resources = [word for name, value in RESOURCES.items() for word in ("-D", f"{name}={value}")]
        self.task_manager = self._launch(
            "task-manager", "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            "--configDir", str(self.folder / "conf"), *resources,
        )  # fmt: skip
        deadline = time.monotonic() + START_MAX_S
        while self._ask("/overview")["slots-total"] < SLOTS:
            if time.monotonic() > deadline or self.task_manager.poll() is not None:
                raise AssertionError(f"the TaskManager did not come\n{self.said()}")
            time.sleep(0.2)

    def jobs(self) -> list[str]:
        """Return the states of the jobs that the cluster was given, the last first."""
        jobs = sorted(self._ask("/jobs/overview")["jobs"], key=lambda job: -int(job["start-time"]))
        return [str(job["state"]) for job in jobs]

    def running_tasks(self) -> int:
        """Return how many tasks run on the TaskManager now."""
        return sum(int(job["tasks"]["running"]) for job in self._ask("/jobs/overview")["jobs"])

    def stop(self) -> None:
        stop(self.started)

    def said(self) -> str:
        """Return the ends of the logs, for a test that fails."""
        return "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log")))

    def _launch(self, name: str, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self._java, main_class, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.started.append(process)
        return process

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://localhost:{self.rest_port}{path}", timeout=30) as answer:
            return json.load(answer)
