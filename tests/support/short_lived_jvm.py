"""How the tests start Java: what they ask of it is over before better code would have paid."""

__all__ = ["JAVA_OPTIONS", "SPARK_OPTIONS"]

JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

#: The same for Spark's, as variables of its environment; they halve what its tests compute.
SPARK_OPTIONS = dict.fromkeys(
    ("SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"), " ".join(JAVA_OPTIONS)
)
