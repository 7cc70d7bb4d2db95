import json

from hermes.protocol import Codec, encode_message_set

PAYLOADS = [b"payload %d" % number for number in range(50)]
DATA = encode_message_set(PAYLOADS)


def test_json_has_a_row_for_each_finding_and_a_summary(run, make_segment, tmp_path):
    data = bytearray(DATA)
    data[15] ^= 1
    path = make_segment(bytes(data))
    (tmp_path / "data" / "notes.txt").touch()
    result = run("check-log", "--json", tmp_path / "data")
    assert (result.exit_code, result.stderr) == (1, "")
    problem, notice, summary = (json.loads(line) for line in result.stdout.splitlines())
    assert problem.pop("text").startswith("its CRC is ")
    assert problem == {
        "kind": "problem",
        "path": f"clicks-0/{path.name}",
        "offset": 0,
        "next_offset": 19,
    }
    assert notice == {
        "kind": "notice",
        "path": "notes.txt",
        "text": "not a file of Hermes or Kafka; left alone",
        "offset": None,
        "next_offset": None,
    }
    assert summary == {
        "kind": "summary",
        "partitions": 1,
        "segments": 1,
        "messages": 49,
        "size_bytes": len(DATA),
        "problems": 1,
        "notices": 1,
    }


def test_a_good_directory(run, make_segment, tmp_path):
    make_segment(DATA)
    make_segment(encode_message_set(PAYLOADS, Codec.SNAPPY), base=len(DATA))
    make_segment(b"", partition="views-10")
    result = run("check-log", tmp_path / "data")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("checked 2 partitions, 3 segments, 100 messages, ")
    assert result.stdout.endswith(": 0 problems, 0 notices\n")


def test_notices_are_no_failure(run, make_segment, tmp_path):
    make_segment(DATA)
    (tmp_path / "data" / "notes.txt").touch()
    result = run("check-log", tmp_path / "data")
    assert result.exit_code == 0
    assert result.stdout.startswith("notice: notes.txt: ")


def test_a_single_partition_can_be_checked(run, make_segment):
    path = make_segment(DATA)
    result = run("check-log", path.parent)
    assert result.exit_code == 0
    assert "1 partition, 1 segment, 50 messages" in result.stdout


def test_text_names_the_place_and_the_way_on(run, make_segment, tmp_path):
    data = bytearray(DATA)
    data[15] ^= 1
    make_segment(bytes(data))
    result = run("check-log", tmp_path / "data")
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first.startswith("problem: clicks-0/00000000000000000000.kafka: offset 0: its CRC is ")
    assert first.endswith("; the next good message starts at 19")
    assert last.endswith(": 1 problem, 0 notices")


def test_no_such_directory_is_a_wrong_command_line(run, tmp_path):
    assert run("check-log", tmp_path / "none").exit_code == 2


def test_a_directory_without_logs_is_a_problem(run, tmp_path):
    (tmp_path / "elsewhere" / "notes").mkdir(parents=True)
    result = run("check-log", tmp_path / "elsewhere")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"problem: {tmp_path / 'elsewhere'}: holds no partition, so nothing was checked: is it a "
        "broker's log_dir?",
        "notice: notes: not a partition's directory (<topic>-<number>), and Kafka 0.7 would not "
        "start; left alone",
        "checked 0 partitions, 0 segments, 0 messages, 0 B: 1 problem, 1 notice",
    ]
    rows = run("check-log", "--json", tmp_path / "elsewhere").stdout.splitlines()
    assert json.loads(rows[-1])["problems"] == 1


def test_a_broker_that_has_no_topic_yet_has_no_problem(run, tmp_path):
    (tmp_path / ".hermes_lock").touch()
    result = run("check-log", tmp_path)
    assert (result.exit_code, result.stdout) == (
        0,
        "checked 0 partitions, 0 segments, 0 messages, 0 B: 0 problems, 0 notices\n",
    )
