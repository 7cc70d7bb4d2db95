"""How the tests start Java: what they ask of it is over before better code would have paid."""

__all__ = ["ANY_JAVA_OPTIONS", "JAVA_OPTIONS", "SPARK_OPTIONS"]

JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

#: The same for Spark's, as variables of its environment; they halve what its tests compute.
SPARK_OPTIONS = dict.fromkeys(("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"), " ".join(JAVA_OPTIONS))

#: The same for whatever runs Java; each start of it says on standard error that it obeys.
ANY_JAVA_OPTIONS = {"JDK_JAVA_OPTIONS": " ".join(JAVA_OPTIONS)}
