"""A Spark session that fits this machine, and the registration of the data source.

The settings are those that were measured to matter: workers that run the same Python, loopback addresses, UTC, few shuffle
partitions, and checkpoints that do not fork a `chmod` for every file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kraftlite.spark.starting import none_left_behind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROFILES: Final = ("job", "test")
_ALWAYS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # How long a Python worker may take to start; on a busy machine the 15 s of the default are short.
    "spark.python.authenticate.socketTimeout": "60s",
}
_JAVA: Final = "-Xss16m"
"""Spark looks for an interruption in the text of a failed foreachBatch by a regular expression that recurses for each character:
with the default stack a query that is stopped in the middle of a batch dies of StackOverflowError, without a word."""
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.sql.shuffle.partitions": "4",
    # Without Hadoop's native library each checkpoint file costs two processes; these two write it as Java does.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_TEST: Final = {
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.driver.extraJavaOptions": (
        f"{_JAVA} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
        "-Xlog:disable -Xlog:all=error:stderr"
    ),
}


def session(
    profile: str = "job",
    *,
    master: str = "local[*]",
    app: str = "kraftlite",
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """The session of this process, made if need be, with the data source registered. `config` goes before what is set here.

    `profile` is job or test; test starts faster and runs slower. With a `master` that is not local, addresses and files are left
    to that cluster. Raises ValueError for another profile, and what Spark raises when there is no Java.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile is {profile!r}; allowed are {', '.join(PROFILES)}")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {**_ALWAYS, **(_LOCAL if local else {}), **(_TEST if profile == "test" else {}), **(config or {})}
    builder = SparkSession.builder.master(master).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with none_left_behind():
        found = builder.getOrCreate()
    found.sparkContext.setLogLevel(log_level)
    register(found)
    return found


def register(spark: SparkSession) -> None:
    """Make `format("kraftlite")` known to this session, also where the package is not found by its name (another `pyspark_*`
    package that cannot be imported hides all of them), and in this thread: Spark looks in the thread's active session only."""
    from pyspark.sql import SparkSession

    from kraftlite.spark.source.datasource import KraftliteDataSource

    jvm: Any = spark._jvm
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
    spark.dataSource.register(KraftliteDataSource)
