"""`hermes load` as far as it gets without Spark: it is not even started."""

import json
import sys

import click
import pytest
from click.testing import CliRunner
from loaded_topic import LoadedTopic
from planted_secrets import leaks, planted

from hermes import Producer, ProducerConfig
from hermes.cli import program
from hermes.cli.security_options import security_options, spark_options
from hermes.security import ClientSecurity
from hermes.spark.load.commits import JournalCommits
from hermes.spark.load.load_target import LoadTarget, TargetSettings
from hermes.spark.load.plans import LoadManifest
from hermes.spark.offsets import TopicPartition
from hermes.spark.stores import LocalStore
from hermes.testing import running_broker


def hermes(*arguments: object, **environment: str):
    return CliRunner().invoke(program, ["load", *map(str, arguments)], env=environment)


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        with Producer(ProducerConfig(broker_list=running.broker_list, acks="flushed")) as producer:
            producer.send("clicks", [b"one", b"two"])
        yield f"{running.host}:{running.port}"


def test_a_dry_run_tells_what_would_be_copied(broker, tmp_path) -> None:
    ran = hermes("--to", tmp_path / "t", "-b", broker, "--dry-run", "clicks")
    assert ran.exit_code == 0
    assert ran.stdout == (
        f"load 1 would copy 26 B of the logs to {tmp_path / 't'}\n"
        "TOPIC   PARTITION  FROM  TO\n"
        "clicks  0-0           0  26\n"
    )
    assert not (tmp_path / "t").exists()


def test_where_offsets_count_messages_they_are_not_said_to_be_bytes(tmp_path) -> None:
    settings = {"topics": {"orders": {"partitions": 1, "format": "kafka"}}}
    with running_broker(settings=settings) as running:
        with Producer(ProducerConfig(broker_list=running.broker_list, acks="flushed")) as producer:
            producer.send("orders", [b"one", b"two"])
            producer.send("clicks", [b"one", b"two"])
        given = ["-b", f"{running.host}:{running.port}", "--dry-run"]
        alone = hermes("--to", tmp_path / "t", *given, "orders")
        both = hermes("--to", tmp_path / "t", *given, "clicks", "orders")
        told = json.loads(hermes("--to", tmp_path / "t", *given, "--json", "orders").stdout)
    assert alone.stdout.startswith(f"load 1 would copy up to 2 messages to {tmp_path / 't'}\n")
    assert "would copy up to 2 messages and 26 B of the logs to" in both.stdout
    assert (told["log_bytes"], told["log_messages"]) == (0, 2)


def test_json_for_programs(broker, tmp_path) -> None:
    ran = hermes("--to", tmp_path / "t", "-b", broker, "--dry-run", "--json", "clicks")
    told = json.loads(ran.stdout)
    assert (told["number"], told["committed"], told["log_bytes"]) == (1, False, 26)
    assert told["ranges"] == [{"topic": "clicks", "partition": "0-0", "from": 0, "to": 26}]


def test_nothing_new_is_no_failure(broker, tmp_path) -> None:
    ran = hermes("--to", tmp_path / "t", "-b", broker, "--pattern", "none.*")
    assert (ran.exit_code, ran.stdout) == (0, "nothing new\n")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["-b", "127.0.0.1:1"], 2, "name topics, or give --pattern"),
        (["-b", "127.0.0.1:1", "--pattern", "a", "clicks"], 2, "name topics, or give --pattern"),
        (["clicks"], 2, "give --bootstrap-servers or --zookeeper"),
        (["-b", "here:x", "clicks"], 1, "'here:x' is not a broker's address: expected HOST:PORT"),
        (["-b", "BROKER", "--group", "g", "clicks"], 2, "--group needs --zookeeper"),
        (["-b", "BROKER", "-Z", "127.0.0.1:1", "clicks"], 2, "exclude each other"),
        (["-b", "BROKER", "clack"], 1, "there is no topic 'clack' on the brokers; there are: cl"),
        (["-b", "BROKER", "--conf", "x", "clicks"], 2, "--conf: expected KEY=VALUE, got 'x'"),
        (["--expire", "30d", "--compact"], 2, "--expire and --compact exclude each other"),
        (["--verify", "--dry-run"], 2, "--dry-run is for loads and --expire, not for --verify"),
        (["--expire", "30d"], 1, "nothing was ever loaded into this"),
        (["--compact"], 1, "nothing was ever loaded into this"),
        (["--verify"], 1, "nothing was ever loaded into this"),
        (["-b", "BROKER", "--clean-up", "clicks"], 1, "nothing was ever loaded into this"),
    ],
)
def test_mistakes_are_said_in_one_line(broker, tmp_path, arguments, code, says) -> None:
    given = [broker if each == "BROKER" else each for each in arguments]
    ran = hermes("--to", tmp_path / "t", *given)
    assert ran.exit_code == code
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "t").exists()


def test_brokers_that_are_named_come_before_the_environment(broker, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HERMES_ZOOKEEPER", "127.0.0.1:1")
    ran = hermes("--to", tmp_path / "t", "-b", broker, "--dry-run", "clicks")
    assert (ran.exit_code, "would copy 26 B" in ran.stdout) == (0, True)


def test_lost_data_name_the_option_of_the_command(tmp_path) -> None:
    with running_broker(settings={"num_partitions": 1}) as running:
        with Producer(ProducerConfig(broker_list=running.broker_list, acks="flushed")) as producer:
            producer.send("clicks", [b"one", b"two"])
        target = LoadTarget(LocalStore(tmp_path / "t"), TargetSettings())
        target.create()
        partition = TopicPartition("clicks", 0, 0)
        directory = f"_hermes/attempts/load-{1:020d}-00000000"
        done = LoadManifest(1, 0, 9, 1, 9, 500, directory, {partition: (0, 500)}, {partition: 500})
        assert JournalCommits(target).commit(done, [])
        ran = hermes("--to", tmp_path / "t", "-b", f"{running.host}:{running.port}", "clicks")
    assert ran.exit_code == 1
    assert "give --allow-data-loss to load what is left" in ran.stderr


def test_a_foreign_directory_is_left_alone(broker, tmp_path) -> None:
    (tmp_path / "notes").write_text("mine")
    ran = hermes("--to", tmp_path, "-b", broker, "clicks")
    assert (ran.exit_code, "holds something else (notes)" in ran.stderr) == (1, True)
    assert [each.name for each in tmp_path.iterdir()] == ["notes"]


def test_without_spark_it_says_what_to_install(broker, tmp_path, monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("hermes.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    ran = hermes("--to", tmp_path / "t", "-b", broker, "clicks")
    assert (ran.exit_code, "pip install 'pyspark<4.4,>=4.2' 'pyarrow" in ran.stderr) == (1, True)


def test_without_deltalake_it_says_what_to_install(broker, tmp_path, monkeypatch) -> None:
    for name in [name for name in sys.modules if "hermes.spark" in name and "delta" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    ran = hermes("--to", tmp_path / "t", "-b", broker, "--sink", "delta", "clicks")
    assert (ran.exit_code, "pip install 'deltalake<2" in ran.stderr) == (1, True)


def test_who_loads_is_said_as_to_all_commands(tmp_path, monkeypatch) -> None:
    password = planted("loader")
    file = tmp_path / "password"
    file.write_text(password)
    monkeypatch.chdir(tmp_path)
    with running_broker(tls=True, users={"loader": password}) as broker:
        me = broker.client_settings("loader")
        with Producer(ProducerConfig(broker_list=broker.broker_list, **me)) as producer:
            producer.send("clicks", [b"one", b"two"])
        load = ["--to", tmp_path / "t", "-b", f"{broker.host}:{broker.port}", "--dry-run", "clicks"]
        known = ["--tls-ca", me["tls_ca"], "--user", "loader"]
        for given in (["--password-file", "password"], []):
            environment = {} if given else {"HERMES_PASSWORD": password}
            told = hermes(*load, *known, *given, **environment)
            assert told.exit_code == 0, told.output
            assert "load 1 would copy 26 B" in told.stdout
            assert not leaks(told.output)
        refused = hermes(*load, "--tls-ca", me["tls_ca"])
        assert refused.exit_code == 5
        assert "wants to know who asks" in refused.output


def test_tasks_read_the_password_of_a_file_themselves(tmp_path, monkeypatch) -> None:
    (tmp_path / "password").write_text("of the file\n")
    monkeypatch.chdir(tmp_path)
    found = []

    @click.command()
    @security_options
    def command(security: ClientSecurity) -> None:
        found.append(spark_options(security))

    run = CliRunner().invoke
    run(command, ["--user", "me", "--password-file", "password"], catch_exceptions=False)
    run(command, ["--user", "me"], env={"HERMES_PASSWORD": "x"}, catch_exceptions=False)
    run(command, ["--no-tls"], catch_exceptions=False)
    assert found == [
        {"user": "me", "passwordFile": str(tmp_path / "password")},
        {"user": "me", "password": "x"},
        {"tls": "false"},
    ]


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_what_was_loaded_is_compacted_verified_and_expires(tmp_path, sink) -> None:
    topic, store = LoadedTopic(), LocalStore(tmp_path / "t")
    for topic.count in range(5, 21, 5):
        topic.load(store, TargetSettings(sink))
    ran = hermes("--to", tmp_path / "t", "--compact")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0].split() == ["TOPIC", "PERIOD", "FILES", "NOW", "BYTES", "NOW"]
    assert ran.stdout.splitlines()[1].split()[:4] == ["clicks", "2023-11-01", "2", "1"]
    assert hermes("--to", tmp_path / "t", "--compact").stdout == "nothing to compact\n"
    ran = hermes("--to", tmp_path / "t", "--verify")
    assert (ran.exit_code, ran.stdout[:34]) == (0, "20 messages of 4 loads in 2 files ")
    assert ran.stdout.endswith(": no problems\n")
    arguments = ("--to", tmp_path / "t", "--expire", "2023-11-02")
    assert (
        "would remove what is before 2023-11-02: 10 messages"
        in hermes(*arguments, "--dry-run").stdout
    )
    told = json.loads(hermes(*arguments, "--json").stdout)
    assert (told["messages"], told["before"], told["dry_run"]) == (10, "2023-11-02", False)
    assert told["folders"] == [{"topic": "clicks", "period": "2023-11-01"}]
    next((tmp_path / "t" / "data").rglob("*.parquet")).unlink() if sink == "parquet" else None
    if sink == "parquet":
        ran = hermes("--to", tmp_path / "t", "--verify")
        assert (ran.exit_code, ran.stdout.startswith("PROBLEM: a file that counts")) == (1, True)
        told = json.loads(hermes("--to", tmp_path / "t", "--verify", "--json").stdout)
        assert told["problems"][0].startswith("a file that counts is missing")


def test_a_wrong_age_is_said_in_one_line(tmp_path) -> None:
    topic = LoadedTopic()
    topic.count = 5
    topic.load(LocalStore(tmp_path / "t"))
    ran = hermes("--to", tmp_path / "t", "--expire", "yesterday")
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert "expected an age such as 30d, or a day" in ran.stderr


@pytest.mark.parametrize("is_there", [True, False])
def test_a_new_target_is_a_delta_table_where_it_can_be(
    broker, tmp_path, monkeypatch, is_there
) -> None:
    from hermes.spark.load import job

    if not is_there:
        monkeypatch.setitem(sys.modules, "deltalake", None)
    sinks = []
    monkeypatch.setattr(
        job,
        "open_commits",
        lambda target, *_, **__: sinks.append(target.settings.sink) or JournalCommits(target),
    )
    assert hermes("--to", tmp_path / "t", "-b", broker, "--dry-run", "clicks").exit_code == 0
    odd = tmp_path / "50%25"  # which deltalake would take for another path
    assert hermes("--to", odd, "-b", broker, "--dry-run", "clicks").exit_code == 0
    assert sinks == ["delta" if is_there else "parquet", "parquet"]


@pytest.mark.parametrize("option", ["--include-key", "--include-headers", "--merge-schema"])
def test_what_only_tables_can_do_is_refused_for_plain_parquet(broker, tmp_path, option) -> None:
    ran = hermes("--to", tmp_path / "t", "-b", broker, "--sink", "parquet", option, "clicks")
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert "plain Parquet, where all loads have the same columns" in ran.stderr
    assert not (tmp_path / "t").exists()
