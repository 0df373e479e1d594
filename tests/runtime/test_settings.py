"""Settings: file, environment, flags, the later one wins; a wrong one is named with its place."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest

from tests.conftest import Command
from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.settings import SETTINGS, load, template


def test_without_file_environment_and_flags_every_setting_is_its_default(tmp_path: Path) -> None:
    settings = load(environ={}, folder=str(tmp_path))
    assert settings[:4] == ("journal", "landing", "lake", "default")
    assert set(settings.origins.values()) == {"default"}


def test_the_environment_overrides_the_file_and_a_flag_overrides_both(tmp_path: Path) -> None:
    (tmp_path / "trajlake.toml").write_text('tenant = "a"\nlake = "s3://bucket/lake"\njournal = "j"\n')
    environ = {"TRAJLAKE_TENANT": "b", "TRAJLAKE_JOURNAL": "k"}
    settings = load(tenant="c", environ=environ, folder=str(tmp_path))
    assert (settings.tenant, settings.journal, settings.lake) == ("c", "k", "s3://bucket/lake")
    assert settings.origins["tenant"] == "--tenant"
    assert settings.origins["journal"] == "TRAJLAKE_JOURNAL"
    assert settings.origins["lake"] == str(tmp_path / "trajlake.toml")


def test_a_relative_place_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "far.toml").write_text('journal = "j"\nlake = "/abs/lake"\nlanding = "s3://b/landing"\n')
    settings = load(environ={"TRAJLAKE_CONFIG": str(tmp_path / "far.toml")})
    assert settings.journal == str(tmp_path / "j")
    assert (settings.lake, settings.landing) == ("/abs/lake", "s3://b/landing")


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load(environ={"TRAJLAKE_TENANT": ""}, folder=str(tmp_path)).tenant == "default"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('tennant = "a"', "unknown setting 'tennant'"),
        ("tenant = 7", "tenant must be a text"),
        ("tenant = ", "not TOML"),
        ('tenant = "a b"', "tenant 'a b'"),
        ('lake = " "', "lake is empty"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "trajlake.toml"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        load(environ={}, folder=str(tmp_path))
    assert part in str(refused.value)
    assert str(path) in str(refused.value)
    assert refused.value.exit_code == 2


def test_bytes_that_are_no_text_and_a_missing_named_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "trajlake.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not TOML"):
        load(environ={}, folder=str(tmp_path))
    with pytest.raises(UserError, match="TRAJLAKE_CONFIG names it"):
        load(environ={"TRAJLAKE_CONFIG": str(tmp_path / "none.toml")})


def test_the_template_is_toml_that_sets_nothing_and_uncommented_sets_the_defaults() -> None:
    assert tomllib.loads(template()) == {}
    lines = [line.removeprefix("# ") for line in template().splitlines() if " = " in line]
    assert tomllib.loads("\n".join(lines)) == {setting.name: setting.default for setting in SETTINGS}


def test_init_writes_a_private_file_once_and_config_reads_it(trajlake: Command) -> None:
    path = trajlake.folder / "trajlake.toml"
    assert trajlake("init").returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text('tenant = "mine"\n')
    again = trajlake("init")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert path.read_text() == 'tenant = "mine"\n'
    shown = json.loads(trajlake("config", "--json", env={"TRAJLAKE_LAKE": "s3://b/l"}).stdout)
    assert shown["tenant"] == {"value": "mine", "from": "trajlake.toml"}
    assert shown["lake"] == {"value": "s3://b/l", "from": "TRAJLAKE_LAKE"}
    assert "tenant   mine" in trajlake("config").stdout


def test_init_in_a_folder_that_is_not_there_is_refused_in_one_line(trajlake: Command) -> None:
    done = trajlake("init", "nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
