"""Avro records into columns, with the writers' schemas looked up in a schema registry.

Values may have been written with any version of a schema: each has its id. They are all resolved to
one, the reader's, so that the columns stay the same for as long as a query runs.
"""

from typing import Any, Final

from pyspark.sql import DataFrame

from hermes.errors import ConfigError
from hermes.extras import install_command
from hermes.schemas import RegistryClient
from hermes.schemas.addresses import CREDENTIALS, has_credentials
from hermes.spark.decoding.avro import with_decoded_avro
from hermes.spark.decoding.dead_letters import DEAD_LETTER, DECODED, check_columns
from hermes.spark.identity import ClientIdentity

# How long a registry is waited for when a query starts.
_SECONDS: Final = 30.0


def decode_registry_avro(
    df: DataFrame,
    registry: str,
    *,
    subject: str | None = None,
    reader_schema: Any = None,
    column: str = "value",
    into: str = DECODED,
    dead_letter: str = DEAD_LETTER,
    tls_ca: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    user: str | None = None,
    password_file: str | None = None,
) -> DataFrame:
    """Decode Avro records whose schemas a registry has: a zero, the schema's id, the record.

    `hermes produce --schema`, the encoder `avro-registry` and Confluent's serializers write them
    so. A worker asks the registry once for each id, and resolves every value to the reader's schema
    by Avro's rules, so that older and newer versions come out in the same columns. Types and dead
    letters are those of `decode_avro`; values whose id the registry doesn't know, or whose schema
    isn't Avro or can't be resolved to the reader's, are dead letters, too. Only the reader's types
    need a counterpart in Spark.

    While the registry can't be reached, no value is a dead letter for it: a task waits for a
    minute, then fails, and Spark retries it as after any failure.

    Needs fastavro, which the extra `avro` brings.

    Example:
        messages = spark.read.format("hermes").options(...).load()
        clicks = decode_registry_avro(
            messages, "http://localhost:8081", subject="clicks-value"
        )
        good, dead = split_dead_letters(clicks)

    Args:
        registry: its URL, or several with commas between them, which every worker must reach. It
            is part of Spark's plans, which many may see: a user and a password are given in the
            environment of the driver and the executors, `HERMES_REGISTRY_CREDENTIALS`.
        subject: whose latest schema is the reader's: the one that is the latest now, for as long
            as the query runs.
        reader_schema: the reader's schema, of a record, in place of a subject: what `json.load`
            returns, or the JSON text.
        column, into, dead_letter: as for `decode_avro`.
        tls_ca: a file with the certificates to trust, for a URL that begins with `https`; on the
            driver and on every worker, as the other files.
        tls_certificate: a file with the client's certificate.
        tls_key: a file with its key.
        user: sent by https, or to this machine.
        password_file: a file with the password; None to take it from HERMES_PASSWORD_FILE or
            HERMES_PASSWORD in their environment.

    Raises:
        ConfigError: an argument is wrong; the text names it, and the field of a schema.
        SchemaRegistryError: the registry has no such subject, or refused.
        RegistryUnavailableError: it can't be reached.
    """
    check_columns(df, column, into, dead_letter)
    if not isinstance(registry, str) or has_credentials(registry):
        raise ConfigError("registry", f"expected a URL without a user, who goes into {CREDENTIALS}")
    if (subject is None) == (reader_schema is None):
        raise ConfigError("reader_schema", "expected either this or a subject")
    try:
        from hermes.spark.decoding import avro_values
    except ModuleNotFoundError as error:
        raise ConfigError("registry", f"Avro needs fastavro: {install_command('avro')}") from error
    identity = ClientIdentity(
        tls_ca=tls_ca,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        user=user,
        password_file=password_file,
    )
    referenced: list[str] = []
    if subject is None:
        argument = "reader_schema"
        text = avro_values.schema_text(reader_schema, argument)
    else:
        argument = "subject"
        *referenced, text = _latest(registry, subject, identity)
    kind = avro_values.to_spark(text, argument, tuple(referenced))
    rules = avro_values.AvroFormat((), text, registry, tuple(referenced), identity)
    return with_decoded_avro(df, rules, kind, column=column, into=into, dead_letter=dead_letter)


def _latest(registry: str, subject: str, identity: ClientIdentity) -> tuple[str, ...]:
    client = RegistryClient(registry, retry_seconds=_SECONDS, **identity.security().settings())
    try:
        latest = client.latest(subject)
        if latest.schema_type != "AVRO":
            raise ConfigError("subject", f"its latest schema is {latest.schema_type}, not Avro")
        return client.texts(latest)
    finally:
        client.close()
