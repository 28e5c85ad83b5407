import json
import shlex

import pytest

from mimex.cli import main
from mimex.study.plan import PLANS

TINY = """
tasks = ["FrankaReach"]
seeds = 2
[settings]
envs = 4
loop = { rollout_steps = 8, bonus_minibatch = 16 }
ppo = { minibatches = 2, epochs = 1 }
world.episode_steps = 10
eval.episodes = 2
[axes.method]
rnd = { bonus = "rnd" }
[scales.cpu.settings]
steps = 96
"""
ONE_SEED = ("--tasks", "KukaPick", "--seeds", "1")  # a plan is checked run by run


def test_list_names_every_plan(capsys):
    assert main(["study", "list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in PLANS)


def test_show_lists_the_runs(capsys):
    some = ["--only", "mask 20%", "mask 50%", "base"]
    command = ["study", "show", "ablations", "--tasks", "KukaPick", "--seeds", "2", *some]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "base | mask 20% | mask 50%" in text
    assert "6 runs, 36,000,000 steps in total" in text
    assert main([*command, "--set", "steps=5", "--commands"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("mimex train KukaPick ")
    assert "--mimex.mask-ratio 0.2" in lines[1]
    assert "--steps 5 " in lines[0]


def test_commands_are_shown_so_that_a_shell_reads_the_same_words(capsys):
    words = ["study", "show", "difficulty", *ONE_SEED, "--commands"]
    assert main([*words, "--set", "track.project=x; touch y $(touch z)"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    for line in lines:
        assert shlex.split(line)[:2] == ["mimex", "train"]
        assert "x; touch y $(touch z)" in shlex.split(line)


MARKUP = """
about = "[/a] of [red]"
tasks = ["FrankaReach"]
metric = "[/b]"
[axes."[/c]"]
"[/d]" = { bonus = "none" }
[scales.cpu]
about = "[/e]"
settings = { steps = 96 }
"""


@pytest.mark.parametrize("more", [(), ("--commands",)])
def test_a_plan_cannot_give_orders_to_the_terminal(tmp_path, more, capsys):
    path = tmp_path / "mine.toml"
    text = PLANS["reward-sparsity"].read_text()
    path.write_text(text.replace('about = "MIMEx', 'about = "\\u001b[2JMIMEx'))
    words = ["study", "show", str(path), "--seeds", "1", "--set", "track.project=\x1b[2J", *more]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert r"\x1b[2J" in said
    assert "\x1b" not in said


def test_names_of_a_plan_are_shown_as_they_are(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(MARKUP)
    assert main(["study", "show", str(tmp_path / "mine.toml")]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("[/a] of [red]", "[/c]", "[/d]", "[/e]"))


def test_init_writes_a_plan_that_can_be_shown(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    assert main(["study", "init", str(path), "--like", "reward-sparsity"]) == 0
    assert main(["study", "show", str(path), "--seeds", "1"]) == 0
    assert "4 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum", "difficulty"], "did you mean 'run'"),
        (["run", "dificulty"], "did you mean 'difficulty'"),
        (["run", "mine.toml"], "mimex study init mine.toml writes it"),
        (["run", "difficulty", "--tasks", "KukaPik"], "did you mean 'KukaPick'"),
        (["run", "difficulty", "--set", "steps"], "must be NAME=VALUE"),
        (["run", "difficulty", "--set", "ppo.epoch=3"], "--ppo.epoch"),
        (["run", "difficulty", "--set", "threads=3"], "sets threads to 3"),
        (["run", "difficulty", *ONE_SEED, "--scale", "paper"], "add --set vision.checkpoint=FILE"),
        (["run", "difficulty", *ONE_SEED, "--jobs", "0"], "--jobs is 0"),
        (["run", "difficulty", *ONE_SEED, "--backend", "rey"], "did you mean 'ray'"),
        (["init", "mine"], "must end in .toml"),
        (["run", "ablations", "--set", "mimex.mask_ratio=nan"], "mask-ratio is nan"),
        (["run", "ablations", "--set", "mimex.lr=-1"], "lr=-1.0"),
        (["run", "ablations", "--set", "mimex.size.decoder_depth=0"], "decoder_depth=0"),
        (["run", "ablations", "--set", "scale.discount=2"], "scale.discount"),
        (["run", "difficulty", "--set", 'ppo.hidden=[64, "--out", "x"]'], "another setting"),
        (["show", "difficulty", "--set", 'ppo.hidden=[64, "--out=x"]'], "another setting"),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mimex.agents.encoders.SHIPPED", tmp_path / "none")
    assert main(["study", *arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())  # what makes no study leaves no trace


def test_mistakes_of_a_plan_whose_seeds_begin_elsewhere_are_found_as_well(tmp_path, capsys):
    plan = tmp_path / "tiny.toml"
    plan.write_text(TINY.replace("seeds = 2", "seeds = 2\nfirst_seed = 100"))
    out = tmp_path / "study"
    assert main(["study", "run", str(plan), "--set", "rnd.lr=-1", "--out", str(out)]) == 1
    assert "FrankaReach-rnd-100 is invalid" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
def test_one_command_leads_from_a_plan_to_figures_and_a_report(tmp_path, capsys):
    plan, out = tmp_path / "tiny.toml", tmp_path / "study"
    plan.write_text(TINY)
    command = ["study", "run", str(plan), "--out", str(out)]
    assert main([*command, "--seeds", "1"]) == 0
    assert "1 runs done, 0 failed" in capsys.readouterr().out
    assert (out / "report.html").stat().st_size > 10_000
    assert (out / "figures" / "curves.png").stat().st_size > 1_000
    assert main(command) == 0  # with the second seed
    assert "2 runs done, 0 failed" in capsys.readouterr().out
    names = {run["name"] for run in json.loads((out / "study.json").read_text())["runs"]}
    assert names == {"FrankaReach-rnd-0", "FrankaReach-rnd-1"}
    config = json.loads((out / "runs" / "FrankaReach-rnd-1" / "config.json").read_text())
    assert (config["bonus"], config["seed"], config["envs"]) == ("rnd", 1, 4)
