"""Passwords in URIs: none in any file of a run, nor on the terminal; the environment has them on resume."""

import sys
from pathlib import Path

import pytest

from partitioning.cli.exit_status import run_command
from partitioning.common.text import printable
from partitioning.common.uris import masked, masked_value
from raysim.cli.commands import cli
from raysim.common.errors import InputError
from raysim.common.secrets import PASSWORD, TRACKING_URI, USER, tracking_uri, without_secrets
from raysim.config.tables import watch_of
from raysim.store.config_file import config_text

URI = "https://me:hunter2@tracking.example/mlflow"
HIDDEN = "https://me:***@tracking.example/mlflow"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TRACKING_URI, USER, PASSWORD):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URI, HIDDEN),
        ("see 'http://u:p@ss:w@h:5000' and s3://key:secret+/bucket", "see 'http://u:***@h:5000' and s3://***/bucket"),
        ("s3://AKIA:se+cret@bucket/a?region=eu", "s3://AKIA:***@bucket/a?region=eu"),
        ("https://ghp_token@host/x", "https://***@host/x"),
        ("http://h/x?user=me&access_token=abc&n=1", "http://h/x?user=me&access_token=***&n=1"),
        ("http://h/x?sig=abc%2F#top", "http://h/x?sig=***#***"),
        ("postgresql://u:p@h/db", "postgresql://u:***@h/db"),
        ("hdfs://user@host/a", "hdfs://user@host/a"),
        ("--set watch.mlflow_uri=https://a:b@c", "--set watch.mlflow_uri=https://a:***@c"),
        ("me@example.org and 12:30 @ home", "me@example.org and 12:30 @ home"),
        ("'http://user:p'w@h:5000' is", "'http://user:***@h:5000' is"),
        ('"http://user:p\'w@h:5000" is', '"http://user:***@h:5000" is'),
        ("HTTPS://token@h", "HTTPS://***@h"),
        ("postgresql+x://tok@h/db", "postgresql+x://***@h/db"),
        ("http://h/?pass=secret", "http://h/?pass=***"),
        ("http://h/?auth=secret&jwt=a.b&region=eu", "http://h/?auth=***&jwt=***&region=eu"),
        ("https://user:pa/ss@h", "https://***@h"),
        ("https://user:p#ss@h/x", "https://***@h/x"),
        ("https://user:p?ss@h", "https://***@h"),
        ("https://user:p;ss@h", "https://***@h"),
        ("https://user:1/2@h", "https://***@h"),
        ("https://u@x:p@y:p/s@h/a?b=c", "https://***@h/a?b=***"),
        ("http://h/x;password=secret;v=1", "http://h/x;password=***;v=***"),
        ("jdbc:sqlserver://h:1433;password=secret", "jdbc:sqlserver://h:1433;password=***"),
        ("http://h/x#access_token=secret&state=1", "http://h/x#access_token=***&state=***"),
        ("http://h/x?secret", "http://h/x?***"),
        ("http://user:secret", "http://***"),
        ("http://[user:secret@h", "http://***@h"),
        (
            "http://[::1]:5000/x and http://h:5000, http://HOST:PORT.",
            "http://[::1]:5000/x and http://h:5000, http://HOST:PORT.",
        ),
        ("(see https://h/a.html)", "(see https://h/a.html)"),
        ("s3://b/p?endpoint_override=localhost:9000", "s3://b/p?endpoint_override=localhost:9000"),
        ("http://a:b@c http://d:e@f", "http://a:***@c http://d:***@f"),
        ("http://h/a:b/c@d", "http://h/a:b/c@d"),
        ("/home/me/http:/u:secret@h/x.csv is missing", "/home/me/http:/u:***@h/x.csv is missing"),
        ("C:/data/a@b and file:/a/b@c", "C:/data/a@b and file:/a/b@c"),
    ],
)
def test_what_is_secret_is_masked_and_nothing_else(text: str, shown: str) -> None:
    assert masked(text) == printable(text) == shown
    assert masked(shown) == shown


def test_a_value_may_have_white_space_in_a_password() -> None:
    assert masked_value("http://user:p w@h/x") == "http://user:***@h/x"
    assert without_secrets({"a": ["http://user:p\tw@h"]}) == {"a": ["http://user:***@h"]}


def test_a_written_configuration_has_no_password() -> None:
    config = {
        "watch": {"mlflow_uri": URI},
        "data": {"population": "s3://k:v@b/p"},
        "algorithm": [{"name": URI}],
        "n": 1,
    }
    text = config_text(config)
    assert "hunter2" not in text and "k:***@b" in text and text.count(HIDDEN) == 2
    assert without_secrets(config)["n"] == 1


@pytest.mark.parametrize(
    ("variables", "uri"),
    [({TRACKING_URI: URI}, URI), ({USER: "me", PASSWORD: "hunter2"}, "https://tracking.example/mlflow")],
)
def test_the_environment_has_the_password_on_resume(
    variables: dict[str, str], uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tracking_uri(HIDDEN) == uri and tracking_uri(URI) == URI
    assert watch_of({"loggers": ["mlflow"], "mlflow_uri": HIDDEN}).mlflow_uri == HIDDEN


@pytest.mark.parametrize("variables", [{}, {TRACKING_URI: "https://me:x@other.example"}, {USER: "me"}])
def test_a_password_that_nobody_knows_is_asked_for(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        InputError, match=r"watch.mlflow_uri = 'https://me:\*\*\*@.*: must have its password.*; set MLF"
    ):
        watch_of({"loggers": ["mlflow"], "mlflow_uri": HIDDEN})


@pytest.mark.parametrize("key", ["project", "mlflow_uri"])
def test_no_file_of_a_run_has_the_password(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Nothing answers at the server, so the loggers' errors are told as well."""
    loggers = '["own:Logger"]' if key == "project" else '["own:Logger", "mlflow"]'
    if key == "mlflow_uri":
        pytest.importorskip("mlflow")
    uri = "http://me:hunter2@127.0.0.1:9/mlflow?token=swordfish"
    (tmp_path / "own.py").write_text(
        "class Logger:\n"
        f"    def begin(self, run): raise RuntimeError('no answer from ' + run.table.{key})\n"
        "    def algorithm(self, name, settings, done): pass\n"
        "    def round(self, number, row): pass\n"
        "    def end(self, summary): pass\n"
        "    def close(self): pass\n"
    )
    settings = {"watch.loggers": loggers, f"watch.{key}": uri, "rounds": "1", "partition.clients": "3"}
    (tmp_path / "one.toml").write_text('[data]\ndataset = "digits"\n[algorithm]\nname = "fedavg"\n')
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    monkeypatch.chdir(tmp_path)
    try:
        with pytest.raises(SystemExit) as done:
            run_command(cli, "raysim", ["run", "one.toml", "--inline", "--out", "run", *given])
    finally:
        sys.modules.pop("own", None)
    told = capfdbinary.readouterr()
    assert not done.value.code, told.err
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    texts = {str(path): path.read_bytes() for path in written} | {"stdout": told.out, "stderr": told.err}
    assert not [name for name, text in texts.items() if b"hunter2" in text or b"swordfish" in text]
    assert b"http://me:***@127.0.0.1:9/mlflow?token=***" in texts[str(tmp_path / "run" / "config.toml")]
    assert b"no answer from http://me:***@" in told.err


def test_a_job_has_no_password(tmp_path: Path) -> None:
    """Before anything is sent: nothing listens at the address."""
    from raysim.cluster.submitting import submit

    change = 'watch.project="https://me:hunter2@host/x"'
    with pytest.raises(InputError, match=r"a URI of the experiment has a password: must have none in a job") as error:
        submit("quickstart", "http://127.0.0.1:9", tmp_path / "out", changes=[change])
    assert "hunter2" not in str(error.value)
