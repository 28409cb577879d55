"""Configuration: layers, origins, and one clear line for each thing that is wrong."""

import dataclasses
import os
from decimal import Decimal
from pathlib import Path

import pytest

from agent_harness.config import check_ready, load
from agent_harness.errors import ConfigError, CredentialError, Exit
from agent_harness.types import Check, CheckKind, Limits

ROUTE = '[routes.main]\nmodel = "p/m"\napi_key_env = "P_KEY"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty git project that is the current folder, and nobody's home."""
    folder = tmp_path / "työ 1"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def config(project, text="", env=None, **more):
    if text:
        (project / "harness.toml").write_text(text, encoding="utf-8")
    return load(project, env=env or {}, **more).config


def wrong(project, text="", env=None, **more):
    with pytest.raises(ConfigError) as caught:
        config(project, text, env, **more)
    assert caught.value.exit == Exit.USAGE
    assert "\n" not in caught.value.line
    return caught.value.line


def test_defaults_need_no_file(project):
    found = load(project, env={})
    assert found.root == project and found.file is None
    assert found.config.limits.limits == Limits(steps=80, tokens=3_000_000, nanousd=5_000_000_000, seconds=3600)
    assert (found.config.policy.max_files, found.config.sandbox.memory) == (200, 2 << 30)
    assert "harness.toml" in found.config.policy.protected
    assert found.config.origin("limits.steps") == "default"
    assert found.config.database(project) == f"sqlite:///{project}/.harness/harness.db"


def test_each_layer_is_above_the_one_before_it_and_the_origin_says_which(project, tmp_path):
    user = tmp_path / "xdg" / "agent-harness" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text(ROUTE + "[limits]\nsteps = 1\ntokens = 1\nusd = 1\nseconds = 1\n")
    env = {
        "XDG_CONFIG_HOME": str(tmp_path / "xdg"),
        "AGENT_HARNESS_LIMITS__USD": "3",
        "AGENT_HARNESS_LIMITS__SECONDS": "3",
        "AGENT_HARNESS_ROUTES__MAIN__TIMEOUT_S": "9",
        "AGENT_HARNESS_LIMITS__STEPS": "",
    }
    got = config(
        project, "[limits]\ntokens = 2\nusd = 2\nseconds = 2\n", env, sets=["limits.seconds=4"], db="sqlite:///x.db"
    )
    assert dataclasses.astuple(got.limits.limits) == (1, 2, 3_000_000_000, 4.0)
    assert [got.origin(f"limits.{key}") for key in ("steps", "tokens", "usd", "seconds")] == [
        str(user),
        "harness.toml",
        "environment variable AGENT_HARNESS_LIMITS__USD",
        "--set",
    ]
    assert got.routes["main"].timeout_s == 9
    assert (got.database(project), got.origin("state.db")) == (f"sqlite:///{project}/x.db", "--db")
    assert dict(got.leaves())["limits.usd"] == "3"


def test_home_is_used_without_xdg_and_a_relative_xdg_is_ignored(project, tmp_path):
    user = tmp_path / "home" / ".config" / "agent-harness" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[limits]\nsteps = 11\n")
    env = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": "rel"}
    assert config(project, env=env).limits.steps == 11


def test_the_configuration_is_found_from_a_folder_below_and_paths_start_at_it(project):
    (project / "pyproject.toml").write_text('[tool.agent-harness.project]\nsource = "../other"\n')
    below = project / "a" / "b"
    below.mkdir(parents=True)
    found = load(below, env={})
    assert found.root == project and found.file == project / "pyproject.toml"
    assert found.config.source(found.root) == f"{project}/../other"


def test_nothing_above_the_git_root_or_a_bare_folder_is_read(project, tmp_path):
    (tmp_path / "harness.toml").write_text("[limits]\nsteps = 3\n")
    plain = tmp_path / "plain"
    plain.mkdir()
    assert config(project).limits.steps == 80
    assert load(plain, env={}).config.limits.steps == 80


def test_two_configurations_in_one_folder_are_refused(project):
    (project / "pyproject.toml").write_text("[tool.agent-harness]\n")
    assert "two configurations: harness.toml" in wrong(project, "[limits]\n")


def test_a_broken_pyproject_of_somebody_else_is_no_obstacle(project):
    (project / "pyproject.toml").write_text("broken [")
    assert config(project).limits.steps == 80
    (project / "pyproject.toml").write_text("broken [\n[tool.agent-harness]")
    assert wrong(project).startswith("pyproject.toml:1:")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[limits]\nstep = 3", "harness.toml: unknown key limits.step. Next: did you mean limits.steps?"),
        ("steps = 3", "harness.toml: unknown key steps. Next: did you mean limits.steps?"),
        ("[polcy]\nmax_files = 3", "did you mean policy?"),
        ("[routes.main]\nmodell = 'x'", "did you mean routes.main.model?"),
        ("[limits]\nsteps = 3\n[limits", "harness.toml:3:8: not TOML: "),
        ("[limits]\nsteps = \n", "harness.toml:2:9: not TOML: Invalid value"),
        ("x = '''", "harness.toml:1:8: not TOML: "),
        ("[limits]\nsteps = -3", "harness.toml: limits.steps must be a whole number above 0, not -3"),
        ("[limits]\nsteps = 0", "limits.steps must be"),
        ("[limits]\nsteps = true", "limits.steps must be"),
        ("[limits]\nsteps = '7'", "limits.steps must be"),
        ("[limits]\nusd = 0", "limits.usd must be US dollars above 0"),
        ("[limits]\nusd = nan", "limits.usd must be"),
        ("[limits]\nseconds = inf", "limits.seconds must be a number above 0"),
        ("limits = 3", "harness.toml: limits must be a table"),
        ("[limits.steps]\na = 1", "limits.steps must be a whole number"),
        ("[sandbox]\nmemory = '2x'", "sandbox.memory must be a size above 0"),
        ("[sandbox]\nnetwork = 'host'", "sandbox.network must be 'none' or 'full', not 'host'"),
        ("[sandbox]\nallow = ['example.org']", "sandbox.allow 'example.org' is not HOST:PORT"),
        ("[sandbox]\nallow = ['a:1']\nnetwork = 'full'", "sandbox has an allow list beside the network"),
        ("[sandbox]\nimage = 'x'\ndockerfile = 'Dockerfile'", "sandbox names more than one of image, dockerfile"),
        ("[sandbox]\nmounts = [{source = '/a'}]", "sandbox.mounts must hold tables such as"),
        ("[sandbox]\ncaches = ['gem']", "sandbox.caches must be 'pip' or"),
        ("[sandbox]\ngpus = 'some'", "sandbox.gpus must be a whole number"),
        ("[sandbox]\ngpus = 0", "sandbox.gpus must be a whole number"),
        ("[services.db]\nenv = {}", "services.db.image is missing"),
        ("[services.db]\nimage = 'a'\nport = 1", "unknown key services.db.port. Next: did you mean services.db.ports"),
        ("[services.db]\nimage = 'a'\nenv = {A = 1}", "services.db.env must be a text"),
        ("[services.db]\nimage = 'a'\nports = [70000]", "services.db.ports must hold ports from 1"),
        ("[review]\nenabled = 1", "review.enabled must be true or false"),
        ("[project]\nchecks = 'pytest'", "project.checks must be a list"),
        ("[project]\nchecks = [{kind = 'tests'}]", "project.checks must hold commands"),
        ("[project]\nchecks = [{run = 'a', kid = 'tests'}]", "unknown key 'kid'"),
        ("[project]\nchecks = ['  ']", "project.checks must be a text"),
        ("[policy]\nprotected = ['/etc/*']", "must hold patterns relative to the repository"),
        ("[routes.main]\nbase_url = 'x'\nmodel = 'm'", "routes.main.base_url must be an http or https URL"),
        ("[routes.main]\ntimeout_s = 1", "harness.toml: routes.main.model is missing"),
        ("[routes.'a b']\nmodel = 'm'", "a name in [routes] must be a name of letters"),
        ("[roles.reviewer]\nroutes = ['mian']\n" + ROUTE, "names the route 'mian', which is not configured. Next: did you mean 'main'?"),
        ("[roles.reviewer]\nroutes = ['a']", "Next: add routes.a = {model = "),
        ("[limits]\nsteps = -3\ntokens = -3", "(and 1 more)"),
        ("[state]\ndb = 'mysql://x'", "state.db must be sqlite:///PATH"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_with_file_and_key(project, text, says):
    assert says in wrong(project, text)


def test_bytes_that_are_no_text_and_a_file_that_is_none_are_said(project):
    (project / "harness.toml").write_bytes(b"[limits]\n# caf\xe9\n")
    assert wrong(project).startswith("harness.toml:2:6: not TOML")
    (project / "harness.toml").unlink()
    (project / "harness.toml").mkdir()
    assert "cannot read harness.toml" in wrong(project)


@pytest.mark.parametrize("key", ["api_key", "token", "password", "API-KEY", "secret", "auth_token"])
def test_a_key_in_a_file_is_refused_and_never_repeated(project, key):
    line = wrong(project, f'[routes.main]\nmodel = "p/m"\n{key} = "sk-live-1"\n')
    assert "keys are never in the configuration" in line and "api_key_env" in line and "sk-live" not in line


@pytest.mark.parametrize("value", ["sk-live-1", "skLive1", "A B"])
def test_a_key_in_the_place_of_its_variables_name_is_refused_and_never_repeated(project, value):
    line = wrong(project, f'[routes.main]\nmodel = "p/m"\napi_key_env = "{value}"\n')
    assert "routes.main.api_key_env must be the name of an environment variable" in line and value not in line


def test_a_password_in_a_url_is_refused_in_files_and_masked_elsewhere(project):
    line = wrong(project, '[state]\ndb = "postgresql://u:hunter2@h/d"\n')
    assert "AGENT_HARNESS_STATE__DB" in line and "hunter2" not in line
    (project / "harness.toml").unlink()
    got = config(project, env={"AGENT_HARNESS_STATE__DB": "postgresql://u:hunter2@h/d"})
    assert got.database(project) == "postgresql://u:hunter2@h/d"
    assert dict(got.leaves())["state.db"] == "postgresql://***@h/d"


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"AGENT_HARNESS_LIMITS__STEP": "3"}, "environment variable AGENT_HARNESS_LIMITS__STEP: unknown key limits.step"),
        ({"AGENT_HARNESS_LIMITS__STEPS": "x"}, "environment variable AGENT_HARNESS_LIMITS__STEPS: limits.steps must be"),
        ({"AGENT_HARNESS_LIMITS_STEPS": "3"}, "write AGENT_HARNESS_LIMITS__STEPS"),
    ],
)  # fmt: skip
def test_variables_are_named_when_wrong(project, env, says):
    assert says in wrong(project, env=env)


def test_other_variables_are_not_judged(project):
    assert config(project, env={"AGENT_HARNESS_DEBUG": "1", "AGENT_HARNESSES__X": "1"}).limits.steps == 80


@pytest.mark.parametrize("flag", ["limits.usd", "=3", "a b=1", "limits.=1", "#=1"])
def test_a_flag_that_is_no_pair_is_said(project, flag):
    assert "is not KEY=VALUE" in wrong(project, sets=[flag])


def test_raw_text_becomes_what_its_key_needs(project):
    got = config(
        project,
        ROUTE.replace("main", "my-route"),
        {"AGENT_HARNESS_ROUTES__MY_ROUTE__MODEL": "q/n"},
        sets=[
            "project.base=1234567",
            "review.enabled=no",
            'project.checks=["make", {run = "lint", kind = "command", timeout_s = 2.5, no_worse = true}]',
            "sandbox.memory=1.5g",
            'routes."my-route".price.input=0.15',
            'routes."my-route".price.output=1',
        ],
    )
    assert got.routes["my-route"].model == "q/n"
    assert (got.project.base, got.review.enabled, got.sandbox.memory) == ("1234567", False, 3 << 29)
    assert got.project.checks == (Check("make"), Check("lint", CheckKind.COMMAND, 2.5, no_worse=True))
    price = got.routes["my-route"].price
    assert price is not None and (price.input, price.output) == (Decimal("0.15"), 1)
    assert got.origin("project.checks") == "--set"


def test_a_role_takes_its_own_ceilings_and_the_rest_from_the_role(project):
    got = config(project, "[roles.reviewer]\nusd = 0.5\nsteps = 9\n")
    own = Limits(30, 100, 1_000_000_000, 60)
    assert got.role("reviewer").over(own) == Limits(9, 100, 500_000_000, 60)
    assert got.role("implementer").over(own) == own


def test_the_digest_is_of_values_not_of_where_they_stand(project):
    first = config(project, "[limits]\nusd = 2.50\n").digest
    (project / "harness.toml").unlink()
    assert config(project, sets=["limits.usd=2.5"]).digest == first
    assert config(project, sets=["limits.usd=2.51"]).digest != first


def test_it_is_frozen(project):
    got = config(project)
    with pytest.raises(ValueError, match="frozen"):
        got.limits.steps = 3


def test_ready_says_the_line_to_add(project):
    got = config(project)
    with pytest.raises(ConfigError, match="no model route for the role implementer: none is configured") as caught:
        check_ready(got, "implementer", {})
    line = caught.value.next.split("harness.toml: ")[1]
    assert config(project, line + "\n" + "[limits]\nsteps = 1\n").routes_of("implementer") == ("main",)

    got = config(project, ROUTE + '[routes.other]\nmodel = "p/o"\n')
    with pytest.raises(ConfigError, match="several routes are configured") as caught:
        check_ready(got, "implementer", {})
    line = caught.value.next.split("harness.toml: ")[1]
    (project / "harness.toml").write_text(line + "\n" + (project / "harness.toml").read_text())
    assert config(project).routes_of("implementer") == ("main",)


def test_ready_wants_the_key_in_the_environment(project):
    got = config(project, ROUTE)
    check_ready(got, "implementer", {"P_KEY": "x"})
    with pytest.raises(CredentialError, match="P_KEY is not set") as caught:
        check_ready(got, "implementer", {"P_KEY": " "})
    assert caught.value.exit == Exit.CREDENTIALS


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_said(project):
    (project / "harness.toml").write_text("")
    Path("harness.toml").chmod(0)
    assert "cannot read harness.toml: Permission denied" in wrong(project)
