import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimex.config import parse
from mimex.study.plan import Plan, PlannedRun, Scale, flags


def a_plan(**changes):
    parts = {
        "name": "mine",
        "about": "",
        "tasks": ("FrankaReach", "KukaPick"),
        "axes": {
            "method": {"none": {"bonus": "none"}, "ours": {"bonus": "mimex", "scale.beta": 0.1}},
            "window": {"T = 3": {"mimex.length": 3}, "T = 5": {}},
        },
        "scales": {"cpu": Scale("", {"steps": 100, "scale.beta": 0.5}, {"KukaPick": {"steps": 7}})},
        "settings": {"scale.beta": 0.9, "reward": "dense"},
        "seeds": 3,
    }
    return Plan(**(parts | changes))


def test_runs_are_all_choices_of_all_axes_for_every_task_and_seed():
    runs = a_plan().runs("cpu")
    assert len(runs) == 2 * 2 * 2 * 3
    assert len({run.name for run in runs}) == len(runs)
    found = {(run.task, run.seed, *run.labels.values()) for run in runs}
    assert ("KukaPick", 2, "ours", "T = 3") in found
    assert len(found) == len(runs)


def test_the_first_seed_of_everything_comes_first():
    assert [run.seed for run in a_plan().runs("cpu")] == [0] * 8 + [1] * 8 + [2] * 8


def test_a_search_has_seeds_of_its_own():
    runs = a_plan(first_seed=100).runs("cpu", seeds=2)
    assert [run.seed for run in runs] == [100] * 8 + [101] * 8
    assert {run.settings["seed"] for run in runs} == {100, 101}


def test_the_more_special_setting_wins():
    runs = {run.name: run for run in a_plan().runs("cpu")}
    assert runs["FrankaReach-none-T-5-0"].settings["scale.beta"] == 0.5  # the scale's, not all's
    assert runs["FrankaReach-ours-T-5-0"].settings["scale.beta"] == 0.1  # the choice's
    assert runs["FrankaReach-none-T-5-0"].steps == 100
    assert runs["KukaPick-none-T-5-0"].steps == 7  # the task's
    over = a_plan().runs("cpu", settings={"steps": 8, "scale.beta": 0.2})
    assert {(run.steps, run.settings["scale.beta"]) for run in over} == {(8, 0.2)}


def test_tasks_and_seeds_can_be_fewer():
    runs = a_plan().runs("cpu", tasks=["KukaPick"], seeds=1)
    assert {run.task for run in runs} == {"KukaPick"}
    assert {run.seed for run in runs} == {0}


def test_some_of_what_is_compared_can_be_chosen():
    def compared(*only):
        return {tuple(run.labels.values()) for run in a_plan().runs("cpu", only=only)}

    assert compared("ours") == {("ours", "T = 3"), ("ours", "T = 5")}
    assert compared("T = 5", "none") == {("none", "T = 5")}
    assert compared("T = 3", "T = 5") == compared()
    names = {run.name for run in a_plan().runs("cpu")}  # of the whole study, which they belong to
    assert {run.name for run in a_plan().runs("cpu", only=["ours"])} <= names


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: a_plan().runs("cpu", only=["our"]), "--only is 'our'.*did you mean 'ours'"),
        (lambda: a_plan().runs("cpo"), "did you mean 'cpu'"),
        (lambda: a_plan().runs("cpu", tasks=["KukaPik"]), "did you mean 'KukaPick'"),
        (lambda: a_plan().runs("cpu", seeds=0), "--seeds is 0"),
        (lambda: a_plan().runs("cpu", settings={"seed": 3}), "sets seed to 3"),
        (lambda: a_plan(first_seed=-1), "first_seed"),
        (lambda: a_plan(tasks=()), "has no tasks"),
        (lambda: a_plan(axes={"method": {}}), "'method' of the plan 'mine' has no choices"),
        (
            lambda: a_plan(scales={"big": Scale("", {}, {"KukaPick": {"steps": 7}})}),
            "'big' of the plan 'mine' gives no budget to FrankaReach",
        ),
        (
            lambda: a_plan(axes={"x": {"70%": {}, "70 %": {"envs": 2}}}).runs("cpu"),
            "two runs would share the folder FrankaReach-70-0",
        ),
    ],
)
def test_what_makes_no_study_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_folders_of_suite_tasks_need_no_slash():
    plan = a_plan(tasks=("dmc/acrobot_swingup",), scales={"cpu": Scale("", {"steps": 1})})
    assert plan.runs("cpu")[0].name == "acrobot_swingup-none-T-3-0"


def test_tasks_of_any_kind_have_folders_of_their_own():
    tasks = ("gym/CartPole-v1", "gym/one/Maze-v0", "gym/other/Maze-v0", "FrankaReach")
    runs = a_plan(tasks=tasks, scales={"cpu": Scale("", {"steps": 1})}).runs("cpu", seeds=1)
    assert [run.name for run in runs if run.name.endswith("none-T-3-0")] == [
        "CartPole-v1-none-T-3-0",
        "gym-one-Maze-v0-none-T-3-0",
        "gym-other-Maze-v0-none-T-3-0",
        "FrankaReach-none-T-3-0",
    ]


@settings(max_examples=20, deadline=None)
@given(
    st.floats(0.001, 1.0),
    st.booleans(),
    st.lists(st.integers(1, 99), min_size=1, max_size=3),
    st.none() | st.integers(1, 500),
)
def test_the_command_line_says_what_the_settings_say(beta, stagger, widths, episode_steps):
    chosen = {
        "scale.beta": beta,
        "loop.stagger": stagger,
        "rnd.hidden": widths,
        "world.episode_steps": episode_steps,
        "mimex.size.decoder_width": 128,
    }
    config = parse(["FrankaReach", *flags(chosen)])
    assert config.scale.beta == beta
    assert config.loop.stagger is stagger
    assert config.rnd.hidden == tuple(widths)
    assert config.world.episode_steps == episode_steps
    assert config.mimex.size.decoder_width == 128


def a_run(task="FrankaReach", **settings):
    return PlannedRun("name", task, 0, {}, settings)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (a_run(**{"mimex.lenght": 3}), "name is invalid with .*mimex.lenght.*mimex.length"),
        (a_run(**{"mimex.length": "long"}), "mimex.length.*'long'"),
        (a_run(bonus="ring"), "--bonus is 'ring'"),
        (a_run("FrankaRech"), "did you mean 'FrankaReach'"),
    ],
)
def test_a_run_that_would_end_at_once_is_refused_before(run, words, capsys):
    with pytest.raises(ValueError, match=words):
        run.config()
    assert capsys.readouterr() == ("", "")  # all is in the error


def test_settings_that_are_not_given_are_those_of_the_preset():
    assert a_run().config().ppo.epochs == 3
    assert a_run(preset="paper").config().ppo.epochs == 10
